//! The engine's own log lines: what a client brings about by leaving is no
//! error of anybody, and what it can repeat is bounded.

use log::{Level, Log, Metadata, Record};
use tracing_log::LogTracer;

use super::client_aborts::{ClientAborts, Phase};
use super::repeats::Repeats;
use doorward_core::clock;

/// A line of the engine that a client alone can bring about.
struct Abort {
    /// How it begins.
    start: &'static str,
    /// What it contains besides.
    within: &'static str,
    /// What is counted. Lines that a server can bring about, too, count nothing.
    phase: Option<Phase>,
}

const fn abort(start: &'static str, phase: Option<Phase>) -> Abort {
    Abort {
        start,
        within: "",
        phase,
    }
}

const ABORTS: &[Abort] = &[
    Abort {
        start: "Fail to proxy: ",
        within: "downstream session type",
        phase: Some(Phase::Head),
    },
    abort(
        "failed to send error response to downstream",
        Some(Phase::Response),
    ),
    abort(
        "Error finish sending body to downstream",
        Some(Phase::Response),
    ),
    abort("H2 handshake error", Some(Phase::Connection)),
    abort(
        "tearing down downstream h2 connection",
        Some(Phase::Connection),
    ),
    abort("negative content-length header value", None),
    abort("invalid content-length header", None),
    abort("TLS shutdown failed", None),
    abort("Sending warning alert", None),
    abort("TLS alert warning received", None),
    abort("Illegal SNI extension", None),
];

/// Libraries whose lines are looked at.
const LIBRARIES: [&str; 2] = ["pingora", "rustls"];

/// Hands the records of the `log` crate over to `tracing`.
pub(super) struct EngineLog {
    tracer: LogTracer,
    aborts: ClientAborts,
    repeats: &'static Repeats,
}

impl EngineLog {
    pub(super) fn new(aborts: ClientAborts, repeats: &'static Repeats) -> Self {
        Self {
            tracer: LogTracer::new(),
            aborts,
            repeats,
        }
    }
}

impl Log for EngineLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.tracer.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() > Level::Warn {
            return self.tracer.log(record);
        }
        if let Some(abort) = find(record.target(), &record.args().to_string()) {
            if let Some(phase) = abort.phase {
                self.aborts.count(phase);
            }
            return self.tracer.log(
                &Record::builder()
                    .args(*record.args())
                    .level(Level::Debug)
                    .target(record.target())
                    .module_path(record.module_path())
                    .file(record.file())
                    .line(record.line())
                    .build(),
            );
        }
        if !self.enabled(record.metadata()) {
            return;
        }
        let (target, line) = (record.target(), record.line());
        if self.repeats.admit(target, line, clock::monotonic_ns()) {
            self.tracer.log(record);
        }
    }

    fn flush(&self) {}
}

/// What a client has done that a warning or an error is about; `None`: it is
/// about something else.
fn find(target: &str, message: &str) -> Option<&'static Abort> {
    if !LIBRARIES.iter().any(|library| target.starts_with(library)) {
        return None;
    }
    let mut all = ABORTS.iter();
    all.find(|abort| message.starts_with(abort.start) && message.contains(abort.within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_brings_about_is_told_from_what_an_upstream_does() {
        for (target, message, expected) in [
            (
                "pingora_proxy",
                "Fail to proxy: Downstream ReadError cause: reset, downstream session type: HTTP/1.1",
                Some(Phase::Head),
            ),
            (
                "pingora_core::apps",
                "H2 handshake error  H2Error context: while h2 handshake",
                Some(Phase::Connection),
            ),
            (
                "pingora_proxy",
                "Fail to proxy: Upstream ConnectRefused, status: 502, tries: 1, retry: false, GET /",
                None,
            ),
            ("elsewhere", "H2 handshake error", None),
        ] {
            assert_eq!(
                find(target, message).and_then(|abort| abort.phase),
                expected,
                "{message}"
            );
        }
    }
}
