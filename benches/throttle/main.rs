//! Throttling: what a decision costs, what a partition weighs, what cleaning
//! does: `cargo bench --bench throttle [-- --only PART] [--rounds N]`.
//!
//! Bars: a decision takes at most 60 ns on a hot partition, 100 ns when two
//! threads hit it, 300 ns on a random one of a million; a partition weighs at
//! most 64 bytes, given back when cleaned; no decision waits a millisecond for
//! cleaning; one hot partition from all cores does not collapse. Timings are
//! never a test: it exits 0 whatever they are.

mod decide;
mod filters;
mod rounds;
mod sweep;

use anyhow::{Context, Result, bail};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PARTS: [&str; 6] = [
    "alone",
    "together",
    "crowd",
    "filters",
    "million",
    "ten-millions",
];

fn main() -> Result<()> {
    let (mut only, mut rounds) = (None, 25);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{flag} needs a value"))
        };
        match flag.as_str() {
            "--only" => only = Some(value()?),
            "--rounds" => rounds = value()?.parse()?,
            // What `cargo bench` passes by itself.
            "--bench" => {}
            _ => bail!("{flag} is not an option: --only PART, --rounds N"),
        }
    }
    if let Some(part) = &only
        && !PARTS.contains(&part.as_str())
    {
        bail!("no part {part}: {}", PARTS.join(", "));
    }
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only == part);
    for part in PARTS.into_iter().filter(|part| wanted(part)) {
        match part {
            "alone" => decide::alone(rounds),
            "together" => decide::together(rounds),
            "crowd" => decide::crowd(rounds),
            "filters" => filters::filters(rounds),
            "million" => sweep::measure(decide::MILLION),
            _ => sweep::measure(10 * decide::MILLION),
        }
    }
    Ok(())
}
