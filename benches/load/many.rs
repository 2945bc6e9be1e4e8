//! Ten thousand services with a route each: memory, start and changes.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use crate::changes;
use crate::client::Client;
use crate::door::Door;
use crate::mega;
use crate::process::Port;

/// The file that declares them.
const FILE: &str = "many.yaml";
/// Connections on which they are made over the Admin API.
const WRITERS: usize = 8;

/// Declares `count` services, then makes them over the Admin API; prints both.
pub(crate) fn measure(binary: &Path, upstream: &Port, count: usize) -> Result<()> {
    let mut door = Door::prepare(binary, upstream, 2)?;
    println!("\n{count} services with a route each, 2 workers");
    door.declare(FILE, &file(count, upstream))?;
    let ready = door.start()?;
    settle();
    println!("  declared in a file");
    println!("    ready after               {ready:.0?}");
    resident(&door)?;
    serves_the_last(&door, count)?;
    changes::few(&door, 25)?.print(Some(10.0));
    door.declare(FILE, &(file(count, upstream) + "# edited\n"))?;
    settle();
    print!("    after a reload of all:");
    resident(&door)?;
    door.stop();
    door.forget(FILE)?;
    door.start()?;
    println!("  made over the Admin API");
    let began = Instant::now();
    over_admin_api(&door, upstream, count)?;
    let each = began.elapsed() / u32::try_from(2 * count)?;
    println!(
        "    made in                   {:.0?}, {each:.0?} each",
        began.elapsed()
    );
    settle();
    resident(&door)?;
    serves_the_last(&door, count)?;
    changes::few(&door, 25)?.print(Some(10.0));
    door.stop();
    let ready = door.start()?;
    println!("    ready after a restart     {ready:.0?}");
    settle();
    resident(&door)
}

/// What is done late or in the background is done by then.
fn settle() {
    std::thread::sleep(Duration::from_secs(3));
}

fn resident(door: &Door) -> Result<()> {
    let megabytes = mega(door.resident()?);
    let met = if megabytes < 100.0 { "met" } else { "missed" };
    println!("    resident                  {megabytes:.1} MB   (bar: 100 MB): {met}");
    Ok(())
}

fn serves_the_last(door: &Door, count: usize) -> Result<()> {
    let path = format!("/many-{}/x", count - 1);
    match Client::connect(door.port())?.get(&path)? {
        200 => Ok(()),
        status => bail!("{path} was answered with {status}"),
    }
}

pub(crate) fn file(count: usize, upstream: &Port) -> String {
    let mut file = "_format_version: \"3.0\"\nservices:\n".to_owned();
    for n in 0..count {
        // Writing to a text can't fail.
        let _ = write!(
            file,
            "- name: many-{n}\n  host: 127.0.0.1\n  port: {}\n  routes:\n  - name: many-{n}\n    \
             paths:\n    - /many-{n}\n",
            upstream.0
        );
    }
    file
}

pub(crate) fn over_admin_api(door: &Door, upstream: &Port, count: usize) -> Result<()> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut admin = Client::connect(door.admin())?;
                    for n in (writer..count).step_by(WRITERS) {
                        let name = format!("many-{n}");
                        let service =
                            json!({"name": name, "host": "127.0.0.1", "port": upstream.0});
                        admin.admin("POST", "/services", &service)?;
                        let route = json!({"name": name, "paths": [format!("/{name}")]});
                        admin.admin("POST", &format!("/services/{name}/routes"), &route)?;
                    }
                    Ok::<_, anyhow::Error>(())
                })
            })
            .collect();
        for writer in writers {
            match writer.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a thread of the benchmark panicked"),
            }
        }
        Ok(())
    })
}
