//! What a change costs, by how many services there are: CPU time of the program,
//! whether its memory grows with the number of changes, and how long it takes to
//! make thousands of services with their routes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::client::Client;
use crate::door::{Door, EVERYDAY};
use crate::many;
use crate::mega;
use crate::process::Port;

/// Rounds that are measured: each makes a service and a route, changes both and
/// removes both.
const ROUNDS: usize = 100;
/// Changes of a round.
const CHANGES: usize = 6;
/// The most that a change may cost among ten thousand services, in milliseconds.
const BAR_MS: f64 = 1.2;
/// How many services with a route each are made at once, and the most seconds that
/// may take.
const MADE: (usize, f64) = (3000, 8.0);

/// How many services of a file have plugins, and the most seconds that loading it may
/// take.
const LOADED: (usize, f64) = (1000, 1.0);
/// The plugins of each.
const PLUGINS: usize = 5;

/// Prints the cost of a change among each of these numbers of services.
pub(crate) fn measure(binary: &Path, upstream: &Port, counts: &[usize]) -> Result<()> {
    println!("\nwhat a change costs, CPU time of the program, 1 worker");
    for count in counts {
        let mut door = Door::prepare(binary, upstream, 1)?;
        door.start()?;
        many::over_admin_api(&door, upstream, *count)?;
        std::thread::sleep(Duration::from_secs(2));
        let mut admin = Client::connect(door.admin())?;
        // What is made once is made before.
        changes(&mut admin, upstream, 20)?;
        let (before, began) = (door.resident()?, door.cpu()?);
        changes(&mut admin, upstream, ROUNDS)?;
        let spent = door.cpu()?.saturating_sub(began);
        let each = spent.as_secs_f64() * 1000.0 / (ROUNDS * CHANGES) as f64;
        changes(&mut admin, upstream, 2 * ROUNDS)?;
        let grown = mega(door.resident()?) - mega(before);
        let met = if each <= BAR_MS { "met" } else { "missed" };
        println!(
            "  among {count:>6} services      {each:.2} ms   (bar: {BAR_MS} ms): {met}; {} changes \
             later {grown:+.1} MB",
            3 * ROUNDS * CHANGES
        );
        door.stop();
    }
    Ok(())
}

/// Prints how long it takes to make services and routes over the Admin API.
pub(crate) fn synchronise(binary: &Path, upstream: &Port) -> Result<()> {
    let (count, bar) = MADE;
    let mut door = Door::prepare(binary, upstream, 1)?;
    door.start()?;
    let (before, began) = (door.cpu()?, Instant::now());
    many::over_admin_api(&door, upstream, count)?;
    let (took, spent) = (began.elapsed(), door.cpu()?.saturating_sub(before));
    let met = if took.as_secs_f64() <= bar {
        "met"
    } else {
        "missed"
    };
    println!(
        "  {count} services and routes are made in {:.1} s   (bar: {bar} s): {met}; {:.1} s of CPU \
         time",
        took.as_secs_f64(),
        spent.as_secs_f64()
    );
    door.stop();
    Ok(())
}

/// Prints how long the program takes to start with a file of services that have five
/// plugins each.
pub(crate) fn load(binary: &Path, upstream: &Port) -> Result<()> {
    let (count, bar) = LOADED;
    let mut door = Door::prepare(binary, upstream, 1)?;
    // Keys are made at the first start.
    door.start()?;
    door.stop();
    let without = door.start()?;
    door.stop();
    door.declare("everyday.yaml", &with_plugins(upstream, count))?;
    let with = door.start()?;
    let took = with.saturating_sub(without).as_secs_f64();
    let met = if took <= bar { "met" } else { "missed" };
    println!(
        "  a file of {count} services with five plugins each is loaded in {took:.2} s   (bar: \
         {bar} s): {met}"
    );
    door.stop();
    Ok(())
}

fn with_plugins(upstream: &Port, count: usize) -> String {
    let mut file = "_format_version: \"3.0\"\nservices:\n".to_owned();
    for i in 0..count {
        file += &format!(
            "- name: loaded-{i}\n  url: http://{}\n  routes: [{{name: loaded-{i}, paths: \
             [/loaded/{i}/]}}]\n  plugins:\n",
            upstream.address()
        );
        for (name, config) in EVERYDAY.iter().take(PLUGINS) {
            file += &format!("  - {{name: {name}, config: {{{config}}}}}\n");
        }
    }
    file
}

fn changes(admin: &mut Client, upstream: &Port, rounds: usize) -> Result<()> {
    let service = json!({"name": "grown", "host": "127.0.0.1", "port": upstream.0});
    for _ in 0..rounds {
        admin.admin("POST", "/services", &service)?;
        let route = json!({"name": "grown", "paths": ["/grown"]});
        admin.admin("POST", "/services/grown/routes", &route)?;
        admin.admin("PATCH", "/services/grown", &json!({"retries": 3}))?;
        admin.admin("PATCH", "/routes/grown", &json!({"paths": ["/other"]}))?;
        admin.admin("DELETE", "/routes/grown", &Value::Null)?;
        admin.admin("DELETE", "/services/grown", &Value::Null)?;
    }
    Ok(())
}
