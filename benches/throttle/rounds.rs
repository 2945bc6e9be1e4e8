//! Cases measured in short rounds, in turn: what slows the machine for a while
//! slows them all, and the best round is what the code can do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a case runs in one lap, about: short enough to get through without
/// losing the core, on a machine that does other things too.
const LAP: Duration = Duration::from_millis(1);
/// Laps of a round.
const LAPS: usize = 20;

/// Something that takes time.
pub(crate) struct Case<'a> {
    name: &'static str,
    /// Most nanoseconds it may take.
    bar: Option<f64>,
    /// The time of each of so many laps of so many times.
    run: Box<dyn FnMut(usize, u64) -> Vec<Duration> + 'a>,
}

impl<'a> Case<'a> {
    /// `once`, many times on this thread.
    pub(crate) fn one<T>(name: &'static str, mut once: impl FnMut() -> T + 'a) -> Self {
        Self::timed(name, move |laps, n| {
            let lap = |_| {
                let start = Instant::now();
                for _ in 0..n {
                    std::hint::black_box(once());
                }
                start.elapsed()
            };
            (0..laps).map(lap).collect()
        })
    }

    /// `once`, many times on each of `threads` threads at once; pinned: each on
    /// a core of its own.
    pub(crate) fn threads<T>(
        name: &'static str,
        threads: usize,
        pinned: bool,
        once: impl Fn() -> T + Sync + 'a,
    ) -> Self {
        Self::timed(name, move |laps, n| {
            at_once(threads, pinned, laps, n, &once)
        })
    }

    fn timed(name: &'static str, run: impl FnMut(usize, u64) -> Vec<Duration> + 'a) -> Self {
        Self {
            name,
            bar: None,
            run: Box::new(run),
        }
    }

    /// With a bar, in nanoseconds.
    pub(crate) fn bar(mut self, nanos: f64) -> Self {
        self.bar = Some(nanos);
        self
    }
}

/// Runs the cases in turn and prints nanoseconds of the best and of the median
/// round.
pub(crate) fn measure(title: &str, rounds: usize, mut cases: Vec<Case<'_>>) {
    let counts: Vec<u64> = cases.iter_mut().map(calibrate).collect();
    let mut found = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for ((case, count), found) in cases.iter_mut().zip(&counts).zip(&mut found) {
            let laps = (case.run)(LAPS, *count);
            found.extend(laps.iter().map(|lap| lap.as_nanos() as f64 / *count as f64));
        }
    }
    println!(
        "\n{title}: ns each, {rounds} rounds of {LAPS} laps; load {}\n  {:<58} {:>8} {:>8}",
        load(),
        "",
        "best",
        "median"
    );
    for (case, mut found) in cases.iter().zip(found) {
        found.sort_by(f64::total_cmp);
        let (best, median) = (found[0], found[found.len() / 2]);
        print!("  {:<58} {best:>8.1} {median:>8.1}", case.name);
        match case.bar {
            Some(bar) if median <= bar => println!("   bar {bar}: met"),
            Some(bar) if best <= bar => println!("   bar {bar}: met in the best round"),
            Some(bar) => println!("   bar {bar}: MISSED"),
            None => println!(),
        }
    }
}

/// How many times take a lap.
fn calibrate(case: &mut Case<'_>) -> u64 {
    let mut count = 64;
    loop {
        let took = (case.run)(3, count).into_iter().min().unwrap_or_default();
        if took > LAP / 8 {
            let times = LAP.as_secs_f64() / took.as_secs_f64();
            return ((count as f64 * times) as u64).max(1);
        }
        count *= 2;
    }
}

/// Laps of `n` times on each of `threads` threads, each until the last is done.
fn at_once<T>(
    threads: usize,
    pinned: bool,
    laps: usize,
    n: u64,
    once: &(impl Fn() -> T + Sync),
) -> Vec<Duration> {
    let ready = AtomicUsize::new(0);
    let run = |core: usize| {
        if pinned {
            pin(core);
        }
        let lap = |lap: usize| {
            // Awake, or one would be done before the other has begun.
            ready.fetch_add(1, Ordering::AcqRel);
            while ready.load(Ordering::Acquire) < threads * (lap + 1) {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            for _ in 0..n {
                std::hint::black_box(once());
            }
            start.elapsed()
        };
        (0..laps).map(lap).collect::<Vec<Duration>>()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|core| scope.spawn(move || run(core)))
            .collect();
        let mut slowest = vec![Duration::ZERO; laps];
        for thread in running {
            let own = thread.join().expect("no panic");
            for (slowest, own) in slowest.iter_mut().zip(own) {
                *slowest = own.max(*slowest);
            }
        }
        slowest
    })
}

/// Keeps this thread on one core, where the system can.
pub(crate) fn pin(core: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(thread) = link.file_name() {
        let done = std::process::Command::new("taskset")
            .args(["-cp", &(core % cores).to_string()])
            .arg(thread)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        if done.is_err() {
            println!("no taskset: not pinned");
        }
    }
}

/// How busy the machine is with this and everything else.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}
