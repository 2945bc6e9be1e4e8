//! How many instructions a request costs, by callgrind: each row asks the same
//! thing many times on one kept connection.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::callgrind::{Count, Runner};
use crate::client::Client;
use crate::door::{Door, EVERYDAY, WITHOUT_PLUGIN};
use crate::floor::Floor;
use crate::http;
use crate::http2::Http2Client;
use crate::peers::Peer;
use crate::process::{Port, Process};
use crate::{FORWARDER_KEPT, FORWARDER_POOL};

/// How much dearer than the baseline a row may be, in percent of it.
const TOLERANCE: f64 = 3.0;
/// Requests before the counted ones: what is done once is done by then.
const WARM_UP: usize = 100;
/// How often each row is counted.
const ROUNDS: usize = 2;
/// How often at most, while a row is dearer than the baseline allows.
const MOST_ROUNDS: usize = 6;
/// The row that all others are compared with.
const FLOOR: &str = "bare Pingora (floor)";
/// Functions of ours that are named.
const COSTLIEST: usize = 10;
/// The row without a plugin.
const PLAIN: &str = "no plugin";
/// The row that everyday plugins are compared with, and the instructions that one may
/// add.
const WITHOUT: &str = "no plugin, with the fields of a browser";
const BAR: f64 = 2500.0;
/// The calls of a tool that are compared: by the plugin that checks tokens alone, with
/// what `mcp` has it check, and by the one that reads the message too; and the
/// instructions that this may add.
const CALL: &str = "call of a tool, openid-connect";
const CALL_BY_RULES: &str = "call of a tool, mcp";
const CALL_BAR: f64 = 6000.0;
/// The length of the message of such a call, in bytes.
const CALL_LENGTH: usize = 1024;
const FORM: &str = "application/x-www-form-urlencoded";

/// A request that is asked again and again.
struct Row {
    name: &'static str,
    request: Request,
    status: u16,
}

enum Request {
    /// Of HTTP/1.1, as it is sent.
    Http1(String),
    /// The path of a GET of HTTP/2.
    Http2(String),
}

impl Request {
    /// What asks it on a connection of its own, and says the status of the answer.
    fn asker<'a>(&'a self, port: &Port) -> Result<Box<dyn FnMut() -> Result<u16> + 'a>> {
        Ok(match self {
            Self::Http1(request) => {
                let mut client = Client::connect(port)?;
                Box::new(move || client.status(request))
            }
            Self::Http2(path) => {
                let mut client = Http2Client::connect(port)?;
                Box::new(move || client.get(path))
            }
        })
    }
}

impl Row {
    fn get(name: &'static str, port: &Port, path: &str, lines: &str, status: u16) -> Self {
        let host = port.address();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
        Self {
            name,
            request: Request::Http1(request),
            status,
        }
    }

    fn stream(name: &'static str, path: &str) -> Self {
        Self {
            name,
            request: Request::Http2(path.to_owned()),
            status: 200,
        }
    }

    fn post(name: &'static str, port: &Port, path: &str, form: &str) -> Self {
        let (host, length) = (port.address(), form.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {FORM}\r\n\
             Content-Length: {length}\r\n\r\n{form}"
        );
        Self {
            name,
            request: Request::Http1(request),
            status: 200,
        }
    }

    /// The call of a tool with a message of 1 KiB.
    fn call(name: &'static str, port: &Port, path: &str, lines: &str) -> Self {
        let message = |text: &str| {
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":\
                 {{\"name\":\"search\",\"arguments\":{{\"limit\":10,\"text\":\"{text}\"}}}}}}"
            )
        };
        let text = "x".repeat(CALL_LENGTH - message("").len());
        let (host, message) = (port.address(), message(&text));
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2025-11-25\r\n{lines}\
             Content-Length: {CALL_LENGTH}\r\n\r\n{message}"
        );
        Self {
            name,
            request: Request::Http1(request),
            status: 200,
        }
    }

    /// What asking `requests` times costs; every answer must be the right one. The
    /// connection stays the same from the warming up to the end. It is counted several
    /// times, and some more beyond `limit` instructions a request: what the program does
    /// by the clock only adds, so the least counts.
    fn count(
        &self,
        port: &Port,
        requests: usize,
        limit: f64,
        count: impl Fn(&mut dyn FnMut() -> Result<()>) -> Result<Count>,
    ) -> Result<Count> {
        let mut asker = self.request.asker(port)?;
        // Where refusals are counted, this one is let in.
        asker()?;
        let mut ask = |times: usize| {
            (0..times).try_for_each(|_| match asker()? {
                status if status == self.status => Ok(()),
                status => bail!("{}: {status} instead of {}", self.name, self.status),
            })
        };
        ask(WARM_UP)?;
        let mut least = count(&mut || ask(requests))?;
        let mut rounds = 1;
        while rounds < ROUNDS || (rounds < MOST_ROUNDS && least.each(requests) > limit) {
            let other = count(&mut || ask(requests))?;
            if other.total < least.total {
                least = other;
            }
            rounds += 1;
        }
        Ok(least)
    }
}

/// What the rows have cost.
struct Table {
    requests: usize,
    rows: Vec<(&'static str, f64)>,
}

impl Table {
    fn add(&mut self, name: &'static str, count: &Count) {
        self.rows.push((name, count.each(self.requests)));
    }

    fn floor(&self) -> f64 {
        let floor = self.rows.iter().find(|(name, _)| *name == FLOOR);
        floor.map_or(1.0, |(_, each)| *each)
    }

    fn print(&self) {
        println!(
            "\ninstructions in user space, of {} requests each",
            self.requests
        );
        let floor = self.floor();
        for (name, each) in &self.rows {
            println!("  {name:<34} {each:>9.0}  {:>5.2}", each / floor);
        }
    }

    /// What an everyday plugin adds to a request, against its bar. One that answers
    /// itself adds less than nothing.
    fn print_everyday(&self) {
        let plain = self.rows.iter().find(|(name, _)| *name == WITHOUT);
        let plain = plain.map_or(0.0, |(_, each)| *each);
        println!("\nwhat an everyday plugin adds to '{WITHOUT}'");
        for (name, each) in &self.rows {
            if EVERYDAY.iter().any(|(plugin, _)| plugin == name) {
                let added = each - plain;
                let met = if added <= BAR { "met" } else { "missed" };
                println!("  {name:<34} {added:>+9.0}   (bar: {BAR}): {met}");
            }
        }
    }

    /// What the rules of an MCP server add to a call, against their bar.
    fn print_calls(&self) {
        let each = |wanted| self.rows.iter().find(|(name, _)| *name == wanted);
        let (Some((_, plain)), Some((_, ruled))) = (each(CALL), each(CALL_BY_RULES)) else {
            return;
        };
        let added = ruled - plain;
        let met = if added <= CALL_BAR { "met" } else { "missed" };
        println!("\nwhat '{CALL_BY_RULES}' adds to '{CALL}'");
        println!("  {added:>+9.0}   (bar: {CALL_BAR}): {met}");
    }

    /// Compares what each row of the baseline costs.
    fn compare(&self, baseline: &Baseline) -> Result<()> {
        let floor = self.floor();
        let mut dearer = Vec::new();
        for (name, cost) in &baseline.costs {
            let row = self.rows.iter().find(|(row, _)| row == name);
            let Some((_, each)) = row else {
                bail!("the row {name:?} of the baseline was not measured");
            };
            let growth = (each - floor - cost) / (floor + cost) * 100.0;
            println!("  {name:<34} {growth:>+6.1} % against the baseline");
            if *each > baseline.limit(name, floor) {
                dearer.push(format!("{name}: {growth:+.1} %"));
            }
        }
        if dearer.is_empty() {
            return Ok(());
        }
        bail!(
            "dearer than the baseline: {}. A commit that has a reason for that changes the \
             file.",
            dearer.join(", ")
        )
    }
}

/// What rows may cost: a line a row, its name, a tab, and what it costs beyond the
/// floor. Compilers and processors differ, and the floor with them.
#[derive(Default)]
struct Baseline {
    costs: Vec<(String, f64)>,
}

impl Baseline {
    fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("can't read {}", file.display()))?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let costs = lines.filter_map(|line| line.split_once('\t'));
        let costs = costs.map(|(name, cost)| {
            let cost = cost.trim().parse();
            Ok((
                name.to_owned(),
                cost.with_context(|| format!("row {name}"))?,
            ))
        });
        Ok(Self {
            costs: costs.collect::<Result<_>>()?,
        })
    }

    /// Most instructions of a request of the row, where it has a bound.
    fn limit(&self, name: &str, floor: f64) -> f64 {
        let cost = self.costs.iter().find(|(row, _)| row == name);
        cost.map_or(f64::INFINITY, |(_, cost)| {
            (floor + cost) * (1.0 + TOLERANCE / 100.0)
        })
    }
}

/// Counts all rows, prints them, and compares them with `baseline`.
pub(crate) fn measure(binary: &Path, requests: usize, baseline: Option<&Path>) -> Result<()> {
    if !Runner::can_count() {
        if baseline.is_some() {
            bail!("valgrind is not installed (Debian: apt-get install valgrind)");
        }
        println!("valgrind is not installed: no counts (Debian: apt-get install valgrind)");
        return Ok(());
    }
    let bounds = baseline.map_or_else(|| Ok(Baseline::default()), Baseline::read)?;
    let upstream = Port::free()?;
    let _upstream = Process::own("upstream", &["upstream", &upstream.address()])?;
    http::await_answer(&upstream, "/", Duration::from_secs(5))?;
    let mut table = Table {
        requests,
        rows: Vec::new(),
    };
    others(&upstream, &mut table)?;
    let mut door = Door::prepare(binary, &upstream, 1)?;
    door.run_under(Runner::callgrind("doorward")?);
    door.start()?;
    let token = door.token()?;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    floor(&upstream, &bearer, &mut table)?;
    let tools_token = format!("Authorization: Bearer {}\r\n", door.tools_token()?);
    let calls = [(CALL, "/check"), (CALL_BY_RULES, "/tools")].map(|(name, path)| {
        let row = Row::call(name, door.port(), path, &tools_token);
        (row, door.port())
    });
    let mut both = None;
    for (row, port) in rows(&door, &bearer, &token)
        .into_iter()
        .chain(everyday(&door))
        .chain(calls)
    {
        let limit = bounds.limit(row.name, table.floor());
        let count = row.count(port, requests, limit, |work| door.count(row.name, work))?;
        table.add(row.name, &count);
        if row.name == BOTH {
            both = Some(count);
        }
    }
    table.print();
    table.print_everyday();
    table.print_calls();
    if let Some(count) = &both {
        print_functions(count, requests);
    }
    table.compare(&bounds)
}

/// Proxies of other makers, where they are installed.
fn others(upstream: &Port, table: &mut Table) -> Result<()> {
    let runner = Runner::callgrind("nginx")?;
    if let Some(nginx) = Peer::nginx(&runner, upstream, 1)? {
        let names = ["nginx, plain proxy", "nginx, plain proxy, HTTP/2"];
        count_peer(names, &runner, &nginx, table)?;
    }
    let runner = Runner::callgrind("haproxy")?;
    if let Some(haproxy) = Peer::haproxy(&runner, upstream)? {
        let names = ["haproxy, plain proxy", "haproxy, plain proxy, HTTP/2"];
        count_peer(names, &runner, &haproxy, table)?;
    }
    Ok(())
}

/// Counts a request of HTTP/1.1 and one of HTTP/2.
fn count_peer(
    [http1, http2]: [&'static str; 2],
    runner: &Runner,
    peer: &Peer,
    table: &mut Table,
) -> Result<()> {
    let (port, http2_port) = (peer.port(), peer.http2_port());
    for (row, port) in [
        (Row::get(http1, port, "/plain/x", "", 200), port),
        (Row::stream(http2, "/plain/x"), http2_port),
    ] {
        let count = row.count(port, table.requests, f64::INFINITY, |work| {
            runner.count(peer.process(), row.name, work)
        })?;
        table.add(row.name, &count);
    }
    Ok(())
}

fn floor(upstream: &Port, bearer: &str, table: &mut Table) -> Result<()> {
    for (part, name) in [
        (FORWARDER_POOL, "study: own loop, engine's pool"),
        (FORWARDER_KEPT, "study: own loop, without a pool"),
    ] {
        let runner = Runner::callgrind(part)?;
        let floor = Floor::start_as(part, &runner, upstream, 1)?;
        let row = Row::get(name, floor.port(), "/plain/x", "", 200);
        let count = row.count(floor.port(), table.requests, f64::INFINITY, |work| {
            runner.count(floor.process(), name, work)
        })?;
        table.add(name, &count);
    }
    let runner = Runner::callgrind("floor")?;
    let floor = Floor::start_under(&runner, upstream, 1)?;
    let port = floor.port();
    for (name, lines) in [(FLOOR, ""), ("bare Pingora, with token", bearer)] {
        let row = Row::get(name, port, "/plain/x", lines, 200);
        let count = row.count(port, table.requests, f64::INFINITY, |work| {
            runner.count(floor.process(), name, work)
        })?;
        table.add(name, &count);
    }
    Ok(())
}

/// Each everyday plugin on a route of its own, and the same request to a route without
/// one: its fields cost something by themselves.
fn everyday(door: &Door) -> impl Iterator<Item = (Row, &Port)> {
    let plain = (WITHOUT, WITHOUT_PLUGIN);
    let plugins = EVERYDAY.iter().map(|(name, _)| (*name, *name));
    std::iter::once(plain)
        .chain(plugins)
        .map(|(name, service)| {
            // All are as long: each byte of a path is looked at.
            let path = format!("{:x<40}", format!("/everyday/{service}/"));
            let lines = "Origin: https://app.example\r\nUser-Agent: Mozilla/5.0\r\n";
            (Row::get(name, door.port(), &path, lines, 200), door.port())
        })
}

/// The row whose functions are printed.
const BOTH: &str = "bearer and throttling";

/// What the program is asked, and where.
fn rows<'a>(door: &'a Door, bearer: &str, token: &str) -> Vec<(Row, &'a Port)> {
    let (port, admin) = (door.port(), door.admin());
    let issue =
        "grant_type=client_credentials&client_id=bench&client_secret=bench-secret&scope=read";
    let inspect = format!("token={token}&client_id=bench&client_secret=bench-secret");
    vec![
        (Row::get(PLAIN, port, "/plain/x", "", 200), port),
        (Row::stream("no plugin, HTTP/2", "/plain/x"), port),
        (
            Row::get("no plugin, with token", port, "/plain/x", bearer, 200),
            port,
        ),
        (
            Row::get("bearer, cached token", port, "/bearer/x", bearer, 200),
            port,
        ),
        (Row::get("throttling", port, "/throttle/x", "", 200), port),
        (Row::get(BOTH, port, "/both/x", bearer, 200), port),
        (Row::get("refused 401", port, "/bearer/x", "", 401), port),
        (Row::get("refused 404", port, "/nowhere/x", "", 404), port),
        (Row::get("refused 429", port, "/limited/x", "", 429), port),
        (Row::get("/status", admin, "/status", "", 200), admin),
        (
            Row::get("tokeninfo", port, "/oauth2/tokeninfo", bearer, 200),
            port,
        ),
        (
            Row::post("introspection", port, "/oauth2/introspect", &inspect),
            port,
        ),
        (
            Row::post("client_credentials", port, "/oauth2/access_token", issue),
            port,
        ),
    ]
}

/// The functions of ours that cost most by themselves.
fn print_functions(count: &Count, requests: usize) {
    let ours = |name: &str| name.contains("doorward");
    let mut functions: Vec<_> = count.functions.iter().collect();
    functions.sort_by(|a, b| b.1.cmp(a.1));
    println!("\nours that cost most in '{BOTH}', without what they call");
    for (name, cost) in functions
        .iter()
        .filter(|(name, _)| ours(name))
        .take(COSTLIEST)
    {
        println!("  {:>7.0}  {name}", **cost as f64 / requests as f64);
    }
    println!("\nall that cost most");
    for (name, cost) in functions.iter().take(2 * COSTLIEST) {
        println!("  {:>7.0}  {name}", **cost as f64 / requests as f64);
    }
}
