//! The console: how fast each page answers with ten thousand services and a million
//! people, and what a proxied request costs while consoles are open.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::callgrind::{Count, Runner};
use crate::cases::Case;
use crate::client::Client;
use crate::door::Door;
use crate::http::{self, connect};
use crate::process::{Port, Process};
use crate::report::median;
use crate::{many, people};

/// Consoles that are open at the same time.
const CONSOLES: usize = 50;
/// Answers of each page that are timed.
const ROUNDS: usize = 15;
/// The slowest answer that the median of a page may be.
const BAR: Duration = Duration::from_millis(100);
/// How much dearer a request may be with open consoles, in percent: two counts of the
/// same differ by less.
const TOLERANCE: f64 = 0.5;
/// How often a request is counted without consoles and with them. The middle counts: what
/// goes on by the clock meanwhile may fall to either side.
const COUNTS: usize = 7;
/// The file that declares services.
const FILE: &str = "many.yaml";
/// Lists with a search, as people send them.
const SEARCHES: [&str; 6] = [
    "/gateway/services?q=many-77",
    "/gateway/services?q=nothing-has-this",
    "/gateway/routes?q=many-99",
    "/identity/users?q=user0000077",
    "/identity/users?q=anna",
    "/audit?kind=entity.create",
];

/// Times every page over `services` services and `people` people.
pub(crate) fn pages(binary: &Path, upstream: &Port, services: usize, people: usize) -> Result<()> {
    println!("\nthe console with {services} services and {people} people");
    let mut door = Door::prepare(binary, upstream, 2)?;
    people::fill(binary, &mut door, people)?;
    door.start()?;
    many::over_admin_api(&door, upstream, services)?;
    println!("  services made over the Admin API");
    time_all(&door)?;
    door.stop();
    let mut door = Door::prepare(binary, upstream, 2)?;
    door.declare(FILE, &many::file(services, upstream))?;
    door.start()?;
    println!("  services declared in a file");
    time_all(&door)
}

/// Times all pages that can be found.
fn time_all(door: &Door) -> Result<()> {
    let mut client = Client::connect(door.admin())?;
    let mut slow = 0;
    for address in addresses(&mut client)? {
        let path = format!("/console{address}");
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let status = client.get(&path)?;
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            // What a file declares has no form: a page says so.
            if !matches!(status, 200 | 409) {
                bail!("{path} was answered with {status}");
            }
        }
        let most = times.iter().copied().fold(0.0, f64::max);
        let usual = median(times);
        let is_slow = usual > BAR.as_secs_f64() * 1000.0;
        slow += usize::from(is_slow);
        let mark = if is_slow { "missed" } else { "met" };
        println!("    {usual:>8.2} ms, at most {most:>8.2} ms  {mark:<6}  {path}");
    }
    println!("    pages beyond {BAR:?}: {slow}");
    Ok(())
}

/// The pages without an open part, searches, and the first record of each list.
fn addresses(client: &mut Client) -> Result<Vec<String>> {
    let no_pages = ["/events", "/language", "/sign-in", "/audit/export"];
    let mut all: Vec<String> = doorward_console::page_paths();
    all.retain(|path| !path.contains("{}") && !no_pages.iter().any(|no| path.starts_with(no)));
    all.extend(["/identity/realms/root".to_owned()]);
    for list in ["realms", "clients", "sessions", "lockouts"] {
        all.push(format!("/identity/{list}"));
    }
    for list in ["products", "developers", "applications"] {
        all.push(format!("/broker/{list}"));
    }
    let mut found = Vec::new();
    for list in all
        .iter()
        .filter(|one| one.starts_with("/gateway/") || *one == "/identity/users")
    {
        let (_, body) = client.page(&format!("/console{list}"))?;
        let prefix = format!("href=\"/console{list}/");
        let records = body.split(prefix.as_str()).skip(1);
        let mut ids = records.filter_map(|rest| rest.split(['"', '?']).next());
        if let Some(id) = ids.find(|id| id.len() == 36) {
            found.push(format!("{list}/{id}"));
        }
    }
    all.extend(found);
    all.extend(SEARCHES.map(str::to_owned));
    Ok(all)
}

/// An open event stream, which is read until it is dropped.
struct OpenConsoles {
    is_over: Arc<AtomicBool>,
    readers: Vec<std::thread::JoinHandle<()>>,
}

impl OpenConsoles {
    fn open(port: &Port, count: usize) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut readers = Vec::new();
        for _ in 0..count {
            let mut stream = connect(&port.address(), Duration::from_secs(60))?;
            let head = format!(
                "GET /console/events HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n",
                port.address()
            );
            stream.write_all(head.as_bytes())?;
            await_event(&mut stream)?;
            let is_over = Arc::clone(&is_over);
            readers.push(std::thread::spawn(move || drain(stream, &is_over)));
        }
        Ok(Self { is_over, readers })
    }
}

impl Drop for OpenConsoles {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        for reader in self.readers.drain(..) {
            // A reader that panicked has told so.
            let _ = reader.join();
        }
    }
}

/// Waits for the first event.
fn await_event(stream: &mut TcpStream) -> Result<()> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while !text.windows(5).any(|part| part == b"data:") {
        match stream.read(&mut piece)? {
            0 => bail!("no stream of events: {}", String::from_utf8_lossy(&text)),
            read => text.extend_from_slice(&piece[..read]),
        }
    }
    Ok(())
}

fn drain(mut stream: TcpStream, is_over: &AtomicBool) {
    let mut piece = [0; 16 << 10];
    while !is_over.load(Ordering::Acquire) && stream.read(&mut piece).is_ok_and(|read| read > 0) {}
}

/// Counts what a proxied request costs without a console and with fifty of them. What the
/// consoles cost by themselves is counted without a request, and told apart.
pub(crate) fn instructions(binary: &Path, requests: usize) -> Result<()> {
    if !Runner::can_count() {
        println!("valgrind is not installed: no instructions (Debian: apt-get install valgrind)");
        return Ok(());
    }
    let upstream = Port::free()?;
    let _upstream = Process::own("upstream", &["upstream", &upstream.address()])?;
    http::await_answer(&upstream, "/", Duration::from_secs(5))?;
    let mut door = Door::prepare(binary, &upstream, 1)?;
    door.run_under(Runner::callgrind("console")?);
    door.start()?;
    let mut client = Client::connect(door.port())?;
    let mut work = |count: usize| -> Result<()> {
        for _ in 0..count {
            let status = client.get(Case::Plain.path())?;
            if status != 200 {
                bail!("a request was answered with {status}");
            }
        }
        Ok(())
    };
    work(100)?;
    let without = each(&door, "without consoles", requests, &mut work)?;
    let consoles = OpenConsoles::open(door.admin(), CONSOLES)?;
    work(100)?;
    let with = each(&door, "with consoles", requests, &mut work)?;
    drop(consoles);
    let growth = 100.0 * (with - without) / without;
    let mark = if growth <= TOLERANCE { "met" } else { "missed" };
    println!("\ninstructions of a proxied request, {requests} requests on one connection");
    println!("  no console                  {without:>10.0}");
    println!("  {CONSOLES} open consoles            {with:>10.0}   {growth:+.2} %: {mark}");
    Ok(())
}

/// What one request costs. Requests are counted twice as many and once, in the same time:
/// the difference is theirs alone, and not that of clocks that tick meanwhile.
fn each(
    door: &Door,
    row: &str,
    requests: usize,
    work: &mut impl FnMut(usize) -> Result<()>,
) -> Result<f64> {
    let mut count = |requests: usize, time: Option<Duration>| -> Result<(Count, Duration)> {
        let began = Instant::now();
        let counted = door.count(row, || {
            work(requests)?;
            // The rest of the time passes without a request.
            let left = time.map_or(Duration::ZERO, |time| time.saturating_sub(began.elapsed()));
            std::thread::sleep(left);
            Ok(())
        })?;
        Ok((counted, began.elapsed()))
    };
    let mut differences = Vec::with_capacity(COUNTS);
    for _ in 0..COUNTS {
        let (both, time) = count(2 * requests, None)?;
        let (once, _) = count(requests, Some(time))?;
        let difference = both.total.checked_sub(once.total);
        differences.push(difference.context("fewer requests cost more")?);
    }
    differences.sort_unstable();
    let middle = differences.get(COUNTS / 2).copied().unwrap_or_default();
    Ok(middle as f64 / requests as f64)
}
