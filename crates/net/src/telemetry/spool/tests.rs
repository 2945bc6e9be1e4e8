use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader};
use std::sync::Arc;

use super::*;
use crate::telemetry::log_file::LogFile;

/// Longer than any machine takes; a test that passes does not wait for it.
const LONG: Duration = Duration::from_secs(60);

/// More than a pipe takes without a reader: 64 KiB, and 1 MiB at most.
const LONGEST: usize = 2 << 20;

const BOUNDS: Bounds = Bounds {
    shards: 1,
    lines: 1_000,
    bytes: 2 * LONGEST,
    prompt: true,
};

fn spool(bounds: Bounds) -> Arc<Spool> {
    Arc::new(Spool::new("test", bounds, Counter::default()))
}

fn start(spool: &Arc<Spool>, outlet: LineSink) {
    let writer = spool.clone();
    std::thread::spawn(move || writer.run(outlet));
}

fn line(spool: &Spool, text: &str) {
    spool.append(&format!("{text}\n"));
}

/// A spool whose writer is stuck in a full pipe, and the pipe's other end.
fn stuck() -> (Arc<Spool>, PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let spool = spool(BOUNDS);
    start(&spool, LineSink::duplicate(&writer).expect("a descriptor"));
    // More than any pipe holds.
    line(&spool, &"x".repeat(LONGEST));
    assert!(!spool.flush(Duration::from_millis(1)));
    (spool, reader)
}

#[test]
fn a_full_pipe_holds_nobody_up_and_costs_lines_that_are_counted() {
    let (spool, reader) = stuck();
    for n in 0..3_000 {
        line(&spool, &n.to_string());
    }
    // One bound waits, and the writer has at most another in its hands.
    assert!(spool.dropped() >= 999, "{}", spool.dropped());
    let dropped = spool.dropped();
    let taken = std::thread::spawn(move || {
        let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
        lines.find(|line| line == "last").is_some()
    });
    assert!(spool.flush(LONG), "the reader is back");
    line(&spool, "last");
    assert!(spool.flush(LONG));
    assert_eq!(
        spool.dropped(),
        dropped,
        "what was counted is all that was lost"
    );
    assert!(taken.join().expect("no panic"));
}

#[test]
fn bytes_are_bounded_as_well_as_lines() {
    let spool = spool(Bounds {
        bytes: 100,
        ..BOUNDS
    });
    for _ in 0..10 {
        line(&spool, &"x".repeat(49));
    }
    assert_eq!(spool.dropped(), 8);
}

#[test]
fn a_closed_pipe_and_a_full_disk_cost_lines_that_are_counted() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let full = File::options().append(true).open("/dev/full");
    for outlet in [
        LineSink::duplicate(&writer),
        LineSink::duplicate(&full.expect("a device")),
    ] {
        let spool = spool(BOUNDS);
        start(&spool, outlet.expect("a descriptor"));
        for n in 1..=3 {
            line(&spool, "lost");
            assert!(spool.flush(LONG));
            assert_eq!(spool.dropped(), n);
        }
    }
}

#[test]
fn a_flush_writes_all_that_came_before_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let spool = spool(Bounds {
        shards: 4,
        prompt: false,
        ..BOUNDS
    });
    let file = LogFile::open(&path, 0o644).expect("a file");
    start(&spool, LineSink::file(file));
    for _ in 0..500 {
        line(&spool, "line");
    }
    assert!(spool.flush(LONG));
    let text = std::fs::read_to_string(&path).expect("a file");
    assert_eq!((text.lines().count(), spool.dropped()), (500, 0));
}

#[test]
fn a_file_is_opened_again_before_anything_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.log");
    let spool = spool(BOUNDS);
    let file = LogFile::open(&path, 0o644).expect("a file");
    start(&spool, LineSink::file(file));
    std::fs::rename(&path, directory.path().join("a.1")).expect("renamed");
    spool.reopen();
    assert!(spool.flush(LONG));
    assert!(path.exists());
}

#[test]
fn a_stream_says_once_that_it_fails_and_once_what_it_lost() {
    let mut reporter = Reporter::new();
    let now = Instant::now();
    let failed = || Err(io::Error::from(io::ErrorKind::StorageFull));
    reporter.report("test", 1, failed(), now);
    reporter.report("test", 2, failed(), now);
    assert!(reporter.failing && reporter.reported == 0);
    reporter.report("test", 2, Ok(false), now);
    assert!(reporter.failing, "nothing was written");
    reporter.report("test", 2, Ok(true), now);
    assert!(!reporter.failing && reporter.reported == 2);
    reporter.report("test", 5, Ok(true), now);
    assert_eq!(reporter.reported, 2, "not again at once");
    reporter.report("test", 5, Ok(true), now + QUIET);
    assert_eq!(reporter.reported, 5);
}
