//! A thousand realms: start and memory, next to those of one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::door::Door;
use crate::mega;
use crate::process::Port;

/// Prints start and memory with one realm, with a thousand empty ones, and with
/// a thousand that have a client each.
pub(crate) fn measure(binary: &Path, upstream: &Port) -> Result<()> {
    println!("\nrealms, declared");
    let client = "clients: [{client_id: app, client_secret: s, \
                  grant_types: [client_credentials], scope: a}]";
    for (name, count, content) in [
        ("one", 0, ""),
        ("1000, empty", 1000, ""),
        ("1000, with a client each", 1000, client),
    ] {
        let mut door = Door::prepare(binary, upstream, 2)?;
        let mut realms = String::new();
        for number in 0..count {
            writeln!(realms, "    /r{number}: {{{content}}}")?;
        }
        door.add_realms(&realms)?;
        let first = door.start()?;
        door.stop();
        let mut again = Duration::MAX;
        for _ in 0..3 {
            again = again.min(door.start()?);
            door.stop();
        }
        door.start()?;
        std::thread::sleep(Duration::from_millis(1500));
        println!(
            "  {name:<26} ready after {first:>6.0?}, after a restart {again:>6.0?}, {:.1} MB",
            mega(door.resident()?)
        );
    }
    Ok(())
}
