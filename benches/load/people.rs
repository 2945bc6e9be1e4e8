//! A directory of many people: import, look-up, search, sign-in.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use doorward_core::model::secret::Secret;
use doorward_identity::config::HashingConfig;
use doorward_store as store;

use crate::door::Door;
use crate::http;
use crate::mega;
use crate::process::Port;
use crate::report::median;
use crate::wrk;

const PASSWORD: &str = "correct horse battery staple";
/// Look-ups by name that are timed.
const LOOKUPS: usize = 20_000;
/// Searches of each kind that are timed.
const SEARCHES: usize = 15;
/// Hashes that tell what one costs a core.
const HASHES: u32 = 10;

const GIVEN: [&str; 10] = [
    "Anna", "Bert", "Carla", "Dora", "Emil", "Fritz", "Gerda", "Hans", "Ida", "Jonas",
];
const FAMILY: [&str; 8] = [
    "Smith", "Müller", "Jones", "García", "Kowalski", "Rossi", "Tanaka", "Ivanov",
];

/// Imports `count` people with ready hashes, then looks for them and signs
/// them in.
pub(crate) fn measure(binary: &Path, upstream: &Port, count: usize) -> Result<()> {
    println!("\na directory of {count} people");
    let mut door = Door::prepare(binary, upstream, 2)?;
    let cost = fill(binary, &mut door, count)?;
    lookups(&door, count)?;
    door.start()?;
    searches(&door, count)?;
    sign_ins(&door, count, cost)
}

/// Imports `count` people into the store of a door, which has stopped then; what one hash
/// costs.
pub(crate) fn fill(binary: &Path, door: &mut Door, count: usize) -> Result<Duration> {
    door.hash_as_usual()?;
    door.start()?;
    door.stop();
    let began = Instant::now();
    let cost = hash_cost()?;
    let file = write_people(door.dir(), count, &cost.hash)?;
    println!("  (file written in {:.1?})", began.elapsed());
    import(binary, door, &file, count)?;
    Ok(cost.each)
}

/// What one hash costs, and one that fits [`PASSWORD`].
struct Cost {
    hash: Secret,
    each: Duration,
}

fn hash_cost() -> Result<Cost> {
    let config = HashingConfig::default();
    let password = Secret::new(PASSWORD);
    let hash = doorward_identity::hash_blocking(&password, &config)?;
    // On all cores, as the program does: they share caches and memory.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                for _ in 0..HASHES {
                    let _ = doorward_identity::hash_blocking(&password, &config);
                }
            });
        }
    });
    Ok(Cost {
        hash,
        each: began.elapsed() / HASHES,
    })
}

/// The name shown for a person: no two of a kind stand together.
fn display_name(number: usize) -> String {
    let given = GIVEN[number % GIVEN.len()];
    let family = FAMILY[(number / 7) % FAMILY.len()];
    format!("{given} {family}{}", number % 5003)
}

fn write_people(dir: &Path, count: usize, hash: &Secret) -> Result<PathBuf> {
    let path = dir.join("people.csv");
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    writeln!(
        file,
        "userName,passwordHash,displayName,name.givenName,name.familyName,\
         emails.value,emails.type,title"
    )?;
    for number in 0..count {
        let given = GIVEN[number % GIVEN.len()];
        let family = FAMILY[(number / 7) % FAMILY.len()];
        writeln!(
            file,
            "user{number:07},\"{}\",{},{given},{family},user{number:07}@example.com,work,Engineer",
            hash.expose(),
            display_name(number),
        )?;
    }
    file.flush()?;
    Ok(path)
}

fn import(binary: &Path, door: &Door, file: &Path, count: usize) -> Result<()> {
    let began = Instant::now();
    let output = Command::new(binary)
        .args(["users", "import"])
        .arg(file)
        .args(["-c", "doorward.yaml"])
        .current_dir(door.dir())
        .output()?;
    let took = began.elapsed();
    if !output.status.success() {
        bail!("import: {}", String::from_utf8_lossy(&output.stderr));
    }
    let rate = count as f64 / took.as_secs_f64();
    println!("  import, ready hashes       {rate:>9.0} users/s   (bar: 20,000)");
    Ok(())
}

/// Look-ups by name in the store itself, one after the other.
fn lookups(door: &Door, count: usize) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let times = runtime.block_on(async {
        let url = format!("sqlite:{}", door.database().display());
        let store = store::open(&url).await?;
        let mut times = Vec::with_capacity(LOOKUPS);
        for turn in 0..LOOKUPS {
            let name = format!("User{:07}", turn.wrapping_mul(7_919) % count);
            let began = Instant::now();
            let user = store.user_by_name("/", &name).await?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
            user.context("a person is missing")?;
        }
        anyhow::Ok(times)
    })?;
    println!(
        "  look-up by userName        {:>9.1} µs        (bar: 100)",
        median(times)
    );
    Ok(())
}

/// Searches over HTTP, one after the other.
fn searches(door: &Door, count: usize) -> Result<()> {
    let token = door.token()?;
    let rare = display_name(count / 2);
    let rare = rare.split(' ').nth(1).unwrap_or_default();
    for (name, filter, more) in [
        (
            "co, few match",
            format!("displayName co \"{rare}\""),
            "&count=20",
        ),
        (
            "co, one in a hundred",
            "displayName co \"th77\"".to_owned(),
            "&count=20",
        ),
        (
            "co, one in eight",
            "displayName co \"tanaka\"".to_owned(),
            "&count=20",
        ),
        (
            "co, nearly all match",
            "displayName co \"a\"".to_owned(),
            "&count=20",
        ),
        (
            "co, page 50",
            "displayName co \"rossi\"".to_owned(),
            "&count=20&startIndex=981",
        ),
        (
            "co, nobody matches",
            "displayName co \"zzz\"".to_owned(),
            "&count=20",
        ),
        ("userName eq", "userName eq \"user0000042\"".to_owned(), ""),
        (
            "emails.value eq",
            "emails.value eq \"user0000042@example.com\"".to_owned(),
            "",
        ),
    ] {
        let encoded: String = url::form_urlencoded::byte_serialize(filter.as_bytes()).collect();
        let path = format!("/v1/users?filter={encoded}{more}");
        let mut times = Vec::with_capacity(SEARCHES);
        let mut total = 0;
        for _ in 0..SEARCHES {
            let began = Instant::now();
            let (status, body) =
                http::get(door.port(), &path, Some(&token), Duration::from_secs(30))?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            if status != 200 {
                bail!("{path}: {status} {body}");
            }
            total = matches(&body)?;
        }
        let slowest = times.iter().copied().fold(0.0, f64::max);
        println!(
            "  {name:<26} {:>9.1} ms, slowest {slowest:.1}   {total} match (bar of co: 200 ms)",
            median(times)
        );
    }
    Ok(())
}

fn matches(body: &str) -> Result<u64> {
    let (from, to) = (body.find('{'), body.rfind('}'));
    let object = from.zip(to).and_then(|(from, to)| body.get(from..=to));
    let object: serde_json::Value = serde_json::from_str(object.unwrap_or_default())?;
    object["totalResults"].as_u64().context("no totalResults")
}

/// Sign-ins of many people at once: how much of the cores goes into hashing.
fn sign_ins(door: &Door, count: usize, each: Duration) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let script = door.dir().join("sign-in.lua");
    let mut lua = String::new();
    writeln!(
        lua,
        "wrk.method = 'POST'\n\
         wrk.headers['Content-Type'] = 'application/json'\n\
         wrk.headers['Accept-API-Version'] = 'resource=2.1'\n\
         wrk.headers['X-OpenAM-Password'] = '{PASSWORD}'\n\
         local n = 0\n\
         function request()\n\
         n = (n + 7919) % {count}\n\
         wrk.headers['X-OpenAM-Username'] = string.format('user%07d', n)\n\
         return wrk.format(nil, '/json/authenticate')\n\
         end"
    )?;
    std::fs::write(&script, lua)?;
    let before = (door.cpu()?, Instant::now());
    let resident = door.resident()?;
    let round = wrk::run_script_for(10, door.port(), "/json/authenticate", &script)?;
    let (done, shed) = (round.requests - round.not_2xx, round.not_2xx);
    let (cpu, wall) = (door.cpu()?.saturating_sub(before.0), before.1.elapsed());
    let ideal = cores as f64 / each.as_secs_f64();
    let rate = done as f64 / wall.as_secs_f64();
    println!(
        "  sign-ins                   {rate:>9.1} /s of {ideal:.1} that hashing alone allows \
         ({:.1} ms a hash); {:.0} % of the CPU time is hashing",
        each.as_secs_f64() * 1e3,
        100.0 * done as f64 * each.as_secs_f64() / cpu.as_secs_f64(),
    );
    println!(
        "  sign-ins shed              {shed:>9} answers, p99 of all {:.0} ms (bar: 2,000); \
         memory grew by {:.1} MB",
        round.p99_ms,
        mega(door.resident()?.saturating_sub(resident))
    );
    Ok(())
}
