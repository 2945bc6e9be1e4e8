//! What commands print. A reader that has seen enough is no error.

use std::io::{self, Write};
use std::process::ExitCode;

use super::complain;

/// Standard output for commands that do more than print: once its reader has
/// gone, it takes everything, so that the command does the rest.
pub(super) struct Output {
    out: io::Stdout,
    gone: bool,
}

impl Output {
    pub(super) fn new() -> Self {
        Self {
            out: io::stdout(),
            gone: false,
        }
    }

    fn unless_gone<T>(
        &mut self,
        whole: T,
        act: impl FnOnce(&mut io::Stdout) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.gone {
            return Ok(whole);
        }
        let outcome = act(&mut self.out);
        self.gone = outcome.as_ref().is_err_and(has_no_reader);
        if self.gone { Ok(whole) } else { outcome }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_gone(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_gone((), io::Stdout::flush)
    }
}

/// Whether a write failed because nobody reads any more.
pub(super) fn has_no_reader(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints `text`: success, unless it can't be written.
pub(super) fn print(text: &str) -> ExitCode {
    match try_print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints `text`.
///
/// # Errors
/// When a reader is there and it can't be written.
pub(super) fn try_print(text: &str) -> io::Result<()> {
    let mut output = Output::new();
    output.write_all(text.as_bytes())?;
    output.flush()
}
