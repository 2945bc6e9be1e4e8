//! What a command that takes a while shows on a terminal; elsewhere nothing.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// Progress on standard error, gone with the value.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Of rows that are counted.
    pub(super) fn of_rows(doing: &'static str) -> Self {
        Self::new(doing, "{spinner} {msg} {human_pos} rows, {per_sec}")
    }

    /// Of work that is waited for.
    pub(super) fn of_wait(doing: &'static str) -> Self {
        Self::new(doing, "{spinner} {msg} {elapsed}")
    }

    fn new(doing: &'static str, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(doing);
        bar.enable_steady_tick(TICK);
        Self(Some(bar))
    }

    /// So many rows more.
    pub(super) fn add(&self, rows: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(rows);
        }
    }

    /// What is done now.
    pub(super) fn tell(&self, doing: &'static str) {
        if let Some(bar) = &self.0 {
            bar.set_message(doing);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
