//! Medians, ratios and the bars next to them.

use std::collections::HashMap;

use crate::cases::{CASES, Case};
use crate::wrk::Round;

/// Ratios of CPU time per request that have a bar.
const RATIOS: &[(&str, Case, Case, Option<f64>)] = &[
    ("no plugin / floor", Case::Plain, Case::Floor, Some(1.05)),
    (
        "both / no plugin with token",
        Case::Both,
        Case::PlainToken,
        Some(1.08),
    ),
    (
        "bearer / no plugin with token",
        Case::Bearer,
        Case::PlainToken,
        Some(1.05),
    ),
    (
        "handle / no plugin with it",
        Case::Handle,
        Case::PlainHandle,
        Some(1.08),
    ),
    (
        "sealed / no plugin with it",
        Case::Sealed,
        Case::PlainSealed,
        Some(1.15),
    ),
    (
        "brokered / no plugin with token",
        Case::Brokered,
        Case::PlainToken,
        Some(1.05),
    ),
    (
        "throttling / no plugin",
        Case::Throttle,
        Case::Plain,
        Some(1.03),
    ),
    (
        "throttling, told / no plugin",
        Case::Told,
        Case::Plain,
        Some(1.03),
    ),
    ("traced / no plugin", Case::Traced, Case::Plain, Some(1.02)),
    (
        "401 / no plugin",
        Case::Unauthorized,
        Case::Plain,
        Some(0.5),
    ),
    ("404 / no plugin", Case::NotFound, Case::Plain, Some(0.5)),
    ("429 / no plugin", Case::Throttled, Case::Plain, Some(0.5)),
    ("no plugin / nginx", Case::Plain, Case::Nginx, None),
];

/// What an unseen RS256 token may add, in microseconds of CPU time.
const COLD_US: f64 = 40.0;

/// Everything measured, by number of cores.
#[derive(Default)]
pub(crate) struct Report {
    runs: Vec<(usize, Vec<HashMap<Case, Round>>)>,
}

impl Report {
    /// Adds one round of cases.
    pub(crate) fn add(&mut self, cores: usize, results: Vec<(Case, Round)>) {
        let round = results.into_iter().collect();
        match self.runs.iter_mut().find(|(known, _)| *known == cores) {
            Some((_, rounds)) => rounds.push(round),
            None => self.runs.push((cores, vec![round])),
        }
    }

    pub(crate) fn print(&self) {
        for (cores, rounds) in &self.runs {
            println!(
                "\n{cores} worker(s), medians of {} rounds of 1 s",
                rounds.len()
            );
            println!(
                "  {:<24} {:>9} {:>9} {:>9} {:>10}",
                "", "req/s", "p50 ms", "p99 ms", "CPU µs/req"
            );
            for case in CASES {
                print_case(case, rounds);
            }
            println!("  CPU time per request, medians of the rounds' ratios (lowest – highest)");
            for (name, above, below, bar) in RATIOS {
                print_ratio(name, ratios(rounds, *above, *below), *bar);
            }
            print_cold(rounds);
        }
    }
}

fn print_case(case: Case, rounds: &[HashMap<Case, Round>]) {
    let found: Vec<&Round> = rounds.iter().filter_map(|round| round.get(&case)).collect();
    if found.is_empty() {
        return;
    }
    let of = |field: fn(&Round) -> f64| median(found.iter().map(|round| field(round)).collect());
    print!(
        "  {:<24} {:>9.0} {:>9.2} {:>9.2} {:>10.2}",
        case.name(),
        of(|r| r.per_second),
        of(|r| r.p50_ms),
        of(|r| r.p99_ms),
        of(|r| r.cpu_us)
    );
    let unexpected: u64 = found.iter().map(|r| r.unexpected).sum();
    let errors: u64 = found.iter().map(|r| r.socket_errors).sum();
    if unexpected + errors > 0 {
        print!("   ({unexpected} unexpected answers, {errors} socket errors)");
    }
    println!();
}

fn print_cold(rounds: &[HashMap<Case, Round>]) {
    let added = rounds.iter().filter_map(|round| {
        Some(round.get(&Case::Cold)?.cpu_us - round.get(&Case::PlainCold)?.cpu_us)
    });
    let added: Vec<f64> = added.collect();
    if added.is_empty() {
        return;
    }
    let (low, high) = (
        added.iter().copied().fold(f64::MAX, f64::min),
        added.iter().copied().fold(f64::MIN, f64::max),
    );
    let middle = median(added);
    let word = if middle <= COLD_US { "met" } else { "missed" };
    println!(
        "  an unseen RS256 token adds     {middle:.1} µs  ({low:.1} – {high:.1})   \
         bar {COLD_US:.0}: {word}"
    );
}

fn print_ratio(name: &str, ratios: Vec<f64>, bar: Option<f64>) {
    let (Some(low), Some(high)) = (
        ratios.iter().copied().reduce(f64::min),
        ratios.iter().copied().reduce(f64::max),
    ) else {
        return;
    };
    let middle = median(ratios);
    print!("  {name:<30} {middle:.3}  ({low:.3} – {high:.3})");
    match bar {
        Some(bar) if middle <= bar => println!("   bar {bar:.2}: met"),
        Some(bar) => println!(
            "   bar {bar:.2}: missed by {:.1} %",
            (middle / bar - 1.0) * 100.0
        ),
        None => println!(),
    }
}

/// The ratio within each round: what slows the machine slows both.
fn ratios(rounds: &[HashMap<Case, Round>], above: Case, below: Case) -> Vec<f64> {
    rounds
        .iter()
        .filter_map(|round| Some(round.get(&above)?.cpu_us / round.get(&below)?.cpu_us))
        .filter(|ratio| ratio.is_finite())
        .collect()
}

/// The middle value, or that between the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}
