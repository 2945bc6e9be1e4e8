//! Changes under load: wrk drives one route while a thousand changes are made
//! over the Admin API, one after the other.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::client::{Client, WebSocket};
use crate::door::Door;
use crate::http;
use crate::process::{Port, Process};
use crate::report::median;
use crate::wrk::{self, Round};

/// The route that is under load: balanced over two targets, of which one comes
/// and goes.
const LOADED: &str = "/pooled/x";
/// After so many routes, a target is removed and added, and a certificate
/// swapped.
const OTHERS: usize = 10;

/// How long changes took, in milliseconds from the first byte of the request.
#[derive(Default)]
pub(crate) struct Times {
    /// Until the Admin API had answered.
    acknowledged: Vec<f64>,
    /// Until a request to the proxy met the change; of routes.
    visible: Vec<f64>,
}

/// Makes `changes` changes and prints what that did to everybody else.
pub(crate) fn measure(
    binary: &Path,
    upstream: &Port,
    workers: usize,
    changes: usize,
) -> Result<()> {
    let mut door = Door::prepare(binary, upstream, workers)?;
    door.start()?;
    let second = Port::free()?;
    let _second = Process::own("upstream", &["upstream", &second.address()])?;
    http::await_answer(&second, "/", Duration::from_secs(5))?;
    let others = Others::prepare(&door, upstream, &second)?;
    let rounds = (changes / 200).max(2);
    let quiet = (0..rounds)
        .map(|_| wrk::run(door.port(), LOADED, None))
        .collect::<Result<Vec<_>>>()?;
    let done = AtomicBool::new(false);
    let started = Instant::now();
    let (times, loaded, echoed) = thread::scope(|scope| {
        let load = scope.spawn(|| load_until(&done, door.port()));
        let socket = scope.spawn(|| talk_until(&done, door.port()));
        // The load is at its full strength before the first change.
        thread::sleep(Duration::from_millis(200));
        let times = make(&door, upstream, &others, changes);
        done.store(true, Ordering::Relaxed);
        let lost = || anyhow::anyhow!("a thread of the benchmark panicked");
        let loaded = load.join().map_err(|_| lost())?;
        let echoed = socket.join().map_err(|_| lost())?;
        Ok::<_, anyhow::Error>((times?, loaded?, echoed))
    })?;
    println!("\nchanges under load, {workers} worker(s)");
    println!(
        "  {} changes made in {:.1?}",
        times.acknowledged.len(),
        started.elapsed()
    );
    print_load(&quiet, &loaded);
    match echoed {
        Ok(count) => println!("  WebSocket open throughout   {count} echoes   (bar: open): met"),
        Err(error) => println!("  WebSocket dropped: {error:#}   (bar: open): missed"),
    }
    times.print(Some(10.0));
    Ok(())
}

fn print_load(quiet: &[Round], loaded: &[Round]) {
    let sum = |field: fn(&Round) -> u64| loaded.iter().map(field).sum::<u64>();
    let failed = sum(|r| r.not_2xx) + sum(|r| r.socket_errors);
    println!(
        "  failed requests             {failed} of {}   (bar: 0): {}",
        sum(|r| r.requests),
        if failed == 0 { "met" } else { "missed" }
    );
    let of =
        |rounds: &[Round], field: fn(&Round) -> f64| median(rounds.iter().map(field).collect());
    let (before, during) = (of(quiet, |r| r.p99_ms), of(loaded, |r| r.p99_ms));
    println!(
        "  p99 of the others           {before:.2} ms without changes, {during:.2} ms with: {:.2} \
         times   (bar: 2): {}",
        during / before,
        if during <= 2.0 * before {
            "met"
        } else {
            "missed"
        }
    );
    println!(
        "  requests per second         {:.0} without changes, {:.0} with",
        of(quiet, |r| r.per_second),
        of(loaded, |r| r.per_second)
    );
}

impl Times {
    /// Notes a change that began at `began`, and whose answer has come; waits
    /// until `path` has `status` on the proxy.
    fn note(
        &mut self,
        began: Instant,
        proxy: &mut Client,
        (path, status): (&str, u16),
    ) -> Result<()> {
        let milliseconds = || began.elapsed().as_secs_f64() * 1000.0;
        self.acknowledged.push(milliseconds());
        while proxy.get(path)? != status {
            if began.elapsed() > Duration::from_secs(5) {
                bail!("a change was not visible in five seconds at {path}");
            }
        }
        self.visible.push(milliseconds());
        Ok(())
    }

    /// Medians and the worst, next to a bar in milliseconds if there is one.
    pub(crate) fn print(&self, bar: Option<f64>) {
        for (name, times) in [
            ("acknowledged after", &self.acknowledged),
            ("visible after", &self.visible),
        ] {
            let mut times = times.clone();
            times.sort_by(f64::total_cmp);
            let at = |part: f64| {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let index = (times.len() as f64 * part) as usize;
                times.get(index.min(times.len().saturating_sub(1)))
            };
            let (Some(p50), Some(p99), Some(max)) = (at(0.5), at(0.99), times.last()) else {
                continue;
            };
            print!("  {name:<27} p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms");
            match bar {
                Some(bar) if *p99 < bar => println!("   (bar for p99: {bar} ms): met"),
                Some(bar) => println!("   (bar for p99: {bar} ms): missed"),
                None => println!(),
            }
        }
    }
}

fn load_until(done: &AtomicBool, port: &Port) -> Result<Vec<Round>> {
    let mut rounds = Vec::new();
    while !done.load(Ordering::Relaxed) {
        rounds.push(wrk::run(port, LOADED, None)?);
    }
    Ok(rounds)
}

fn talk_until(done: &AtomicBool, port: &Port) -> Result<u64> {
    let mut socket = WebSocket::open(port, "/socket")?;
    while !done.load(Ordering::Relaxed) {
        socket.echo()?;
        thread::sleep(Duration::from_millis(10));
    }
    socket.echo()?;
    Ok(socket.echoed)
}

/// Routes are added, changed and removed in turn, so that their number stays.
fn make(door: &Door, upstream: &Port, others: &Others, changes: usize) -> Result<Times> {
    let mut admin = Client::connect(door.admin())?;
    let mut proxy = Client::connect(door.port())?;
    let service = json!({"name": "changing", "url": format!("http://{}", upstream.address())});
    admin.admin("POST", "/services", &service)?;
    let mut times = Times::default();
    for number in 0..changes.div_ceil(3) {
        routes(&mut admin, &mut proxy, number, &mut times)
            .with_context(|| format!("change {number}"))?;
        if number % OTHERS == 0 {
            others.change(&mut admin, number, &mut times)?;
        }
    }
    Ok(times)
}

/// What changes besides routes.
struct Others {
    /// The target that comes and goes.
    target: String,
    /// What the certificate is replaced by, in turn.
    certificates: [Value; 2],
}

impl Others {
    /// Makes an upstream of two targets, a route to it, and a certificate.
    fn prepare(door: &Door, first: &Port, second: &Port) -> Result<Self> {
        let pair = || {
            let made = rcgen::generate_simple_self_signed(["bench.test".to_owned()])?;
            Ok::<_, rcgen::Error>(json!({
                "cert": made.cert.pem(),
                "key": made.signing_key.serialize_pem(),
            }))
        };
        let certificates = [pair()?, pair()?];
        let mut named = certificates[0].clone();
        named["snis"] = json!(["bench.test"]);
        let mut admin = Client::connect(door.admin())?;
        admin.admin("POST", "/certificates", &named)?;
        admin.admin("POST", "/upstreams", &json!({"name": "pool"}))?;
        for port in [first, second] {
            let target = json!({"target": port.address()});
            admin.admin("POST", "/upstreams/pool/targets", &target)?;
        }
        let service = json!({"name": "pooled", "host": "pool"});
        admin.admin("POST", "/services", &service)?;
        let route = json!({"paths": ["/pooled"], "strip_path": false});
        admin.admin("POST", "/services/pooled/routes", &route)?;
        http::await_answer(door.port(), LOADED, Duration::from_secs(5))?;
        Ok(Self {
            target: second.address(),
            certificates,
        })
    }

    fn change(&self, admin: &mut Client, number: usize, times: &mut Times) -> Result<()> {
        let target = format!("/upstreams/pool/targets/{}", self.target);
        let certificate = &self.certificates[(number / OTHERS + 1) % 2];
        let steps = [
            ("DELETE", target.as_str(), &Value::Null),
            ("PATCH", "/certificates/bench.test", certificate),
            (
                "POST",
                "/upstreams/pool/targets",
                &json!({"target": self.target}),
            ),
        ];
        for (method, path, body) in steps {
            let began = Instant::now();
            admin.admin(method, path, body)?;
            times
                .acknowledged
                .push(began.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(())
    }
}

fn routes(admin: &mut Client, proxy: &mut Client, number: usize, times: &mut Times) -> Result<()> {
    let (first, second) = (format!("/first-{number}"), format!("/second-{number}"));
    let at = format!("/routes/changing-{number}");
    let route = json!({"name": format!("changing-{number}"), "paths": [first]});
    let steps = [
        (
            "POST",
            "/services/changing/routes",
            route,
            (first.as_str(), 200),
        ),
        (
            "PATCH",
            at.as_str(),
            json!({"paths": [second]}),
            (&second, 200),
        ),
        ("DELETE", at.as_str(), Value::Null, (&second, 404)),
    ];
    for (method, path, body, expected) in steps {
        let began = Instant::now();
        admin.admin(method, path, &body)?;
        times.note(began, proxy, expected)?;
    }
    Ok(())
}

/// Adds and removes a route `rounds` times, without load.
pub(crate) fn few(door: &Door, rounds: usize) -> Result<Times> {
    let mut admin = Client::connect(door.admin())?;
    let mut proxy = Client::connect(door.port())?;
    let mut times = Times::default();
    let service = json!({"name": "changing", "protocol": "internal", "host": "echo"});
    admin.admin("PUT", "/services/changing", &service)?;
    for number in 0..rounds {
        let (name, path) = (format!("few-{number}"), format!("/few-{number}"));
        let route = json!({"name": name, "paths": [path]});
        let began = Instant::now();
        admin.admin("POST", "/services/changing/routes", &route)?;
        times.note(began, &mut proxy, (&path, 200))?;
        let began = Instant::now();
        admin.admin("DELETE", &format!("/routes/{name}"), &Value::Null)?;
        times.note(began, &mut proxy, (&path, 404))?;
    }
    Ok(times)
}
