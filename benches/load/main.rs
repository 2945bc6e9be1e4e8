//! The end-to-end load benchmark: `cargo bench --bench load [-- --quick]`.
//!
//! Starts a small upstream, a bare Pingora pass-through (the floor), nginx as
//! a plain proxy where it is installed, and the real program, all on loopback;
//! drives each case with wrk in short interleaved rounds; prints requests per
//! second, latency and the proxy's own CPU time per request, with medians of
//! the ratios that have a bar. Then a thousand changes are made under load, ten
//! thousand services held, the cost of a change measured among a hundred to ten
//! thousand of them, the identity provider is called, a thousand realms are
//! started, a million tokens are shown, a million people are held, and every page of the
//! console is asked for over as many. Timings are never a test: it exits 0 whatever they are. Instructions, which callgrind counts,
//! are exact: `--only instructions --baseline FILE` exits 1 where they grow.
//! Everything it starts ends with it.

mod callgrind;
mod cases;
mod changes;
mod chunks;
mod client;
mod console;
mod credentials;
mod door;
mod floor;
mod forwarder;
mod growth;
mod http;
mod http2;
mod identity;
mod instructions;
mod many;
mod peers;
mod people;
mod process;
mod realms;
mod report;
mod tokens;
mod upstream;
mod wrk;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use cases::{Case, Field};
use door::Door;
use floor::Floor;
use process::{Port, Process};
use report::Report;

// The program's allocator, so that floor and program differ in nothing else.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The part of this program that is the forwarding loop on the engine's pool.
const FORWARDER_POOL: &str = "forwarder";
/// The same, which keeps a connection to the upstream for each client.
const FORWARDER_KEPT: &str = "forwarder-kept";

/// Connections that wrk keeps busy.
const CONNECTIONS: u32 = 64;

const USAGE: &str = "\
usage: cargo bench --bench load -- [--quick] [--only PART] [--rounds N] [--cores 1|2]
                                   [--binary PATH]
  --quick   few rounds, few changes, few services: under two minutes
  --only    one part: cases, footprint, changes, many, growth, identity,
            tokens, realms, people, console, or instructions and
            console-instructions, which need no wrk
  --rounds  rounds for each number of cores (7, with --quick 2)
  --cores   only this number of proxy workers
  --binary  another doorward program
  --baseline FILE  with instructions: fail where a row is more than 3 % dearer";

/// What can be measured alone.
const PARTS: [&str; 12] = [
    "cases",
    "footprint",
    "changes",
    "many",
    "growth",
    "identity",
    "tokens",
    "realms",
    "people",
    "instructions",
    "console",
    "console-instructions",
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("upstream") => upstream::serve(argument(&arguments, 1)?),
        Some("floor") => floor::serve(
            argument(&arguments, 1)?,
            argument(&arguments, 2)?,
            argument(&arguments, 3)?,
        ),
        Some(part @ (FORWARDER_POOL | FORWARDER_KEPT)) => floor::serve_forwarder(
            argument(&arguments, 1)?,
            argument(&arguments, 2)?,
            argument(&arguments, 3)?,
            if part == FORWARDER_POOL {
                forwarder::Keeping::Pool
            } else {
                forwarder::Keeping::Client
            },
        ),
        Some("idle") => http::hold_idle(
            argument(&arguments, 1)?,
            argument(&arguments, 2)?,
            argument(&arguments, 3)?,
        ),
        _ => run(&Options::read(&arguments)?),
    }
}

fn argument<T: std::str::FromStr>(arguments: &[String], n: usize) -> Result<T> {
    let text = arguments
        .get(n)
        .with_context(|| format!("argument {n} is missing"))?;
    match text.parse() {
        Ok(value) => Ok(value),
        Err(_) => bail!("argument {n}, {text:?}, is not what is expected"),
    }
}

/// What the command line asks for.
struct Options {
    quick: bool,
    only: Option<String>,
    rounds: u32,
    cores: Vec<usize>,
    binary: PathBuf,
    baseline: Option<PathBuf>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            quick: false,
            only: None,
            rounds: 7,
            cores: vec![1, 2],
            binary: env!("CARGO_BIN_EXE_doorward").into(),
            baseline: None,
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .with_context(|| format!("{flag} needs a value"))
            };
            match flag.as_str() {
                "--quick" => (options.quick, options.rounds) = (true, 2),
                "--only" => options.only = Some(value()?.clone()),
                "--rounds" => options.rounds = value()?.parse()?,
                "--cores" => options.cores = vec![value()?.parse()?],
                "--binary" => options.binary = std::path::absolute(value()?)?,
                "--baseline" => options.baseline = Some(std::path::absolute(value()?)?),
                // What `cargo bench` passes by itself.
                "--bench" => {}
                _ => bail!("{flag} is not an option\n{USAGE}"),
            }
        }
        match &options.only {
            Some(part) if !PARTS.contains(&part.as_str()) => bail!("no part '{part}'\n{USAGE}"),
            _ => Ok(options),
        }
    }

    fn asks_for(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }
}

fn run(options: &Options) -> Result<()> {
    if options.only.as_deref() == Some("instructions") {
        let requests = if options.quick { 200 } else { 1000 };
        return instructions::measure(&options.binary, requests, options.baseline.as_deref());
    }
    if options.only.as_deref() == Some("console-instructions") {
        let requests = if options.quick { 200 } else { 1000 };
        return console::instructions(&options.binary, requests);
    }
    if process::find("wrk").is_none() {
        println!("wrk is not installed: no load benchmark (Debian: apt-get install wrk)");
        return Ok(());
    }
    let started = Instant::now();
    let upstream_port = Port::free()?;
    let upstream = Process::own("upstream", &["upstream", &upstream_port.address()])?;
    http::await_answer(&upstream_port, "/", Duration::from_secs(5))?;
    let mut report = Report::default();
    let binary = &options.binary;
    if options.asks_for("cases") {
        for cores in &options.cores {
            Field::open(*cores, &upstream_port, binary)?.measure(options.rounds, &mut report)?;
        }
    }
    if options.asks_for("footprint") {
        footprint(binary, &upstream_port)?;
    }
    report.print();
    if options.asks_for("changes") {
        let (workers, changes) = (
            options.cores.iter().max(),
            if options.quick { 200 } else { 1000 },
        );
        changes::measure(binary, &upstream_port, *workers.unwrap_or(&1), changes)?;
    }
    if options.asks_for("many") {
        many::measure(
            binary,
            &upstream_port,
            if options.quick { 1000 } else { 10_000 },
        )?;
    }
    if options.asks_for("growth") {
        let counts = [100, 1000, 10_000];
        let most = if options.quick { 2 } else { 3 };
        growth::measure(binary, &upstream_port, &counts[..most])?;
        growth::synchronise(binary, &upstream_port)?;
        growth::load(binary, &upstream_port)?;
    }
    if options.asks_for("identity") {
        let cores = *options.cores.iter().max().unwrap_or(&2);
        identity::measure(binary, &upstream_port, options.rounds, cores)?;
    }
    if options.asks_for("tokens") {
        let count = if options.quick { 100_000 } else { 1_000_000 };
        tokens::measure(binary, &upstream_port, count)?;
    }
    if options.asks_for("realms") {
        realms::measure(binary, &upstream_port)?;
    }
    if options.asks_for("people") {
        let count = if options.quick { 100_000 } else { 1_000_000 };
        people::measure(binary, &upstream_port, count)?;
    }
    if options.asks_for("console") {
        let (services, people) = if options.quick {
            (1000, 10_000)
        } else {
            (10_000, 1_000_000)
        };
        console::pages(binary, &upstream_port, services, people)?;
    }
    println!("took {:.0?} in all", started.elapsed());
    drop(upstream);
    Ok(())
}

/// Start, idle memory, and the memory of idle connections.
fn footprint(binary: &std::path::Path, upstream: &Port) -> Result<()> {
    let mut door = Door::prepare(binary, upstream, 1)?;
    let first = door.start()?;
    door.stop();
    let again = door.start()?;
    let floor = Floor::start(upstream, 1)?;
    // What starts late (keys, watchers) has settled by then.
    std::thread::sleep(Duration::from_millis(1500));
    println!("\nfootprint");
    println!("  ready after the first start   {first:>8.0?}   (bar: 300 ms)");
    println!("  ready after a restart         {again:>8.0?}   (bar: 300 ms)");
    println!(
        "  resident, idle                {:>5.1} MB   (bar: 30 MB; floor {:.1} MB)",
        mega(door.resident()?),
        mega(floor.resident()?)
    );
    let (held, each) = idle_connections(door.port(), || door.resident())?;
    let (_, floor_each) = idle_connections(floor.port(), || floor.resident())?;
    println!(
        "  each of {held} idle connections {each:>5.1} KB   (bar: 36 KB; floor {floor_each:.1} KB)"
    );
    Ok(())
}

/// How many connections could be held, and what each adds in kilobytes.
fn idle_connections(port: &Port, resident: impl Fn() -> Result<u64>) -> Result<(u64, f64)> {
    let before = resident()?;
    let arguments = ["idle", &port.address(), Case::Plain.path(), "1000"];
    let idlers = Process::own("idle", &arguments)?;
    let held = http::await_ready(&idlers, Duration::from_secs(20))?.max(1);
    std::thread::sleep(Duration::from_millis(300));
    let grown = resident()?.saturating_sub(before);
    Ok((held, grown as f64 / 1024.0 / held as f64))
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
