//! Clients that leave before they have their answer: nobody's error, counted.

use super::metrics::Counter;

/// When a client left, or stopped making sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before or between requests.
    Connection,
    /// Within the head of a request.
    Head,
    /// After the head of a request, before the answer began.
    Request,
    /// Within the answer.
    Response,
}

impl Phase {
    /// Every phase with its label.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Connection, "connection"),
        (Self::Head, "head"),
        (Self::Request, "request"),
        (Self::Response, "response"),
    ];
}

/// How many clients left, by phase (`doorward_client_aborts_total`).
#[derive(Clone, Debug, Default)]
pub struct ClientAborts([Counter; Phase::ALL.len()]);

impl ClientAborts {
    /// Counts one.
    pub fn count(&self, phase: Phase) {
        let mut all = Phase::ALL.iter().zip(&self.0);
        if let Some((_, counter)) = all.find(|((one, _), _)| *one == phase) {
            counter.inc();
        }
    }

    /// The numbers so far, by label.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let labels = Phase::ALL.iter().map(|(_, label)| *label);
        labels.zip(self.0.iter().map(Counter::get))
    }
}
