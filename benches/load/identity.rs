//! The identity provider under load: CPU time a call, refreshes a second, and
//! the memory of sessions.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::door::{Door, PASSWORD};
use crate::http;
use crate::mega;
use crate::process::Port;
use crate::report::median;
use crate::wrk::{self, Round};

/// Sessions that are opened.
const SESSIONS: usize = 10_000;
/// Connections on which they are.
const PEOPLE: usize = 16;

/// A token by name and password, of the provider.
const OWN_FLOW: &str = "token by password";
/// The same by way of the token broker.
const BROKERED_FLOW: &str = "token by password, brokered";

/// One kind of call.
struct Call {
    name: &'static str,
    path: &'static str,
    /// `@…@` are tokens.
    body: &'static str,
    /// Bars: microseconds of CPU time a call, calls a second.
    bars: (Option<f64>, f64),
}

const CALLS: [Call; 8] = [
    Call {
        name: "client_credentials, ES256",
        path: "/oauth2/access_token",
        body: "grant_type=client_credentials&client_id=bench&client_secret=bench-secret&scope=read",
        bars: (Some(45.0), 15_000.0),
    },
    Call {
        name: "client_credentials, RS256",
        path: "/oauth2/access_token",
        body: "grant_type=client_credentials&client_id=rsa&client_secret=bench-secret&scope=read",
        bars: (Some(290.0), 3_000.0),
    },
    Call {
        name: "tokeninfo",
        path: "/oauth2/tokeninfo",
        body: "",
        bars: (Some(16.0), 25_000.0),
    },
    Call {
        name: "tokeninfo of a user's",
        path: "/oauth2/tokeninfo",
        body: "",
        bars: (Some(16.0), 25_000.0),
    },
    Call {
        name: "introspection",
        path: "/oauth2/introspect",
        body: "client_id=bench&client_secret=bench-secret&token=@own@",
        bars: (Some(16.0), 25_000.0),
    },
    Call {
        name: OWN_FLOW,
        path: "/oauth2/access_token",
        body: PASSWORD,
        bars: (None, 0.0),
    },
    Call {
        name: BROKERED_FLOW,
        path: "/brokered/access_token",
        body: PASSWORD,
        bars: (None, 0.0),
    },
    Call {
        name: "refresh, durable",
        path: "/oauth2/access_token",
        body: "",
        bars: (None, 3_000.0),
    },
];

/// What the calls need.
struct Tokens {
    own: String,
    of_user: String,
    /// A refresh token for each connection.
    refresh: Vec<String>,
}

/// Measures all of it.
pub(crate) fn measure(binary: &Path, upstream: &Port, rounds: u32, cores: usize) -> Result<()> {
    let mut door = Door::prepare(binary, upstream, cores)?;
    door.start()?;
    let tokens = Tokens::get(&door)?;
    let scripts = tempfile::TempDir::new()?;
    println!("\nidentity provider, {cores} worker(s), medians of {rounds} rounds of 1 s");
    println!(
        "  {:<28} {:>9} {:>9} {:>9} {:>10}   bars",
        "", "req/s", "p50 ms", "p99 ms", "CPU µs/req"
    );
    let mut results: Vec<Vec<Round>> = CALLS.iter().map(|_| Vec::new()).collect();
    let mut refresh = tokens.refresh.clone();
    for _ in 0..rounds {
        for (call, results) in CALLS.iter().zip(&mut results) {
            if call.body.is_empty() && call.path == "/oauth2/access_token" {
                // What a round leaves in flight is lost: each has new ones.
                refresh = refreshable(&door, refresh.len())?;
            }
            let script = script(scripts.path(), call, &tokens, &refresh)?;
            let before = door.cpu()?;
            let mut round = wrk::run_script(door.port(), call.path, &script)?;
            let spent = door.cpu()?.saturating_sub(before);
            round.cpu_us = spent.as_secs_f64() * 1e6 / round.requests.max(1) as f64;
            results.push(round);
        }
    }
    for (call, results) in CALLS.iter().zip(&results) {
        print(call, results);
    }
    broker_ratio(&results);
    sessions(&door)
}

/// What the token broker adds to the provider's own token call.
fn broker_ratio(results: &[Vec<Round>]) {
    let of = |name: &str| {
        let at = CALLS.iter().position(|call| call.name == name);
        at.and_then(|at| results.get(at)).into_iter().flatten()
    };
    let pairs = of(BROKERED_FLOW).zip(of(OWN_FLOW));
    let ratio = median(pairs.map(|(a, b)| a.cpu_us / b.cpu_us).collect());
    println!(
        "  token flow of the broker / the provider's own: {ratio:.3}   bar 1.20: {}",
        word(ratio <= 1.2)
    );
}

fn print(call: &Call, rounds: &[Round]) {
    let of = |field: fn(&Round) -> f64| median(rounds.iter().map(field).collect());
    let (cpu, rate) = (of(|r| r.cpu_us), of(|r| r.per_second));
    let (most, least) = call.bars;
    let most = most.map_or(String::new(), |most| {
        format!("≤ {most:.0} µs: {}, ", word(cpu <= most))
    });
    print!(
        "  {:<28} {rate:>9.0} {:>9.2} {:>9.2} {cpu:>10.2}   {most}≥ {least:.0}/s: {}",
        call.name,
        of(|r| r.p50_ms),
        of(|r| r.p99_ms),
        word(rate >= least)
    );
    let bad: u64 = rounds.iter().map(|r| r.not_2xx + r.socket_errors).sum();
    match bad {
        0 => println!(),
        bad => println!("   ({bad} errors)"),
    }
}

fn word(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

impl Tokens {
    fn get(door: &Door) -> Result<Self> {
        let user = post(door, PASSWORD)?;
        Ok(Self {
            own: door.token()?,
            of_user: text(&user, "access_token")?,
            refresh: refreshable(door, crate::CONNECTIONS as usize * 2)?,
        })
    }
}

fn refreshable(door: &Door, count: usize) -> Result<Vec<String>> {
    let token = |_| text(&post(door, PASSWORD)?, "refresh_token");
    (0..count).map(token).collect()
}

fn post(door: &Door, form: &str) -> Result<serde_json::Value> {
    let (status, body) = http::post_form(door.port(), "/oauth2/access_token", form)?;
    let (from, to) = (body.find('{'), body.rfind('}'));
    let object = from.zip(to).and_then(|(from, to)| body.get(from..=to));
    serde_json::from_str(object.unwrap_or_default())
        .with_context(|| format!("the token endpoint answered {status}: {body}"))
}

fn text(body: &serde_json::Value, name: &str) -> Result<String> {
    match body[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => bail!("no {name} in {body}"),
    }
}

/// The script with which wrk makes the calls.
fn script(dir: &Path, call: &Call, tokens: &Tokens, refresh: &[String]) -> Result<PathBuf> {
    let mut lua = String::new();
    if call.path == "/oauth2/tokeninfo" {
        let token = match call.name {
            "tokeninfo" => &tokens.own,
            _ => &tokens.of_user,
        };
        writeln!(lua, "wrk.headers['Authorization'] = 'Bearer {token}'")?;
    } else {
        lua += "wrk.method = 'POST'\n\
                wrk.headers['Content-Type'] = 'application/x-www-form-urlencoded'\n";
        if call.body.is_empty() {
            writeln!(lua, "local pool = {{'{}'}}", refresh.join("','"))?;
            lua += REFRESH;
        } else {
            let body = call.body.replace("@own@", &tokens.own);
            writeln!(lua, "wrk.body = '{body}'")?;
        }
    }
    let path = dir.join("call.lua");
    std::fs::write(&path, lua)?;
    Ok(path)
}

/// Each answer brings the token of a later request.
const REFRESH: &str = r#"
local head = 'grant_type=refresh_token&client_id=people&client_secret=bench-secret&refresh_token='
function request()
  return wrk.format(nil, nil, nil, head .. table.remove(pool))
end
function response(status, headers, body)
  local token = body:match('"refresh_token":"([^"]+)"')
  if token then pool[#pool + 1] = token end
end
"#;

/// What sessions add to the memory.
fn sessions(door: &Door) -> Result<()> {
    // What the first ones warm up is not theirs.
    open_sessions(door.port(), 200)?;
    std::thread::sleep(Duration::from_millis(500));
    let before = door.resident()?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let each = SESSIONS / PEOPLE;
        let workers: Vec<_> = (0..PEOPLE)
            .map(|_| scope.spawn(move || open_sessions(door.port(), each)))
            .collect();
        let mut done = workers.into_iter().map(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a sign-in broke off"),
        });
        done.try_for_each(|outcome| outcome)
    })?;
    let took = began.elapsed();
    std::thread::sleep(Duration::from_secs(1));
    let grown = door.resident()?.saturating_sub(before);
    println!(
        "  {SESSIONS} sessions, opened in {took:.1?}, add {:.1} MB resident (bar: 10 MB)",
        mega(grown)
    );
    Ok(())
}

/// Signs in `count` times on one connection.
fn open_sessions(port: &Port, count: usize) -> Result<()> {
    let address = port.address();
    let request = format!(
        "POST /json/authenticate HTTP/1.1\r\nHost: {address}\r\nX-OpenAM-Username: demo\r\n\
         X-OpenAM-Password: bench-password\r\nAccept-API-Version: resource=2.1\r\n\
         Content-Type: application/json\r\nContent-Length: 0\r\n\r\n"
    );
    let stream = http::connect(&address, Duration::from_secs(10))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let mut stream: TcpStream = stream;
    for _ in 0..count {
        stream.write_all(request.as_bytes())?;
        let (mut line, mut length, mut status) = (String::new(), 0, String::new());
        loop {
            line.clear();
            answers.read_line(&mut line)?;
            if status.is_empty() {
                status.clone_from(&line);
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body)?;
        if !status.contains(" 200 ") {
            bail!("sign-in: {status}{}", String::from_utf8_lossy(&body));
        }
    }
    Ok(())
}
