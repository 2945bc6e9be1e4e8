//! Where commands print to: names that strangers chose steer no terminal.

use std::io::{Result, Write};

use doorward_core::model::visible;

/// Output whose steering characters are written as escapes.
pub(super) struct Terminal<W>(pub(super) W);

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        // Formatted text comes in whole pieces of UTF-8.
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(visible::escaped(text).as_bytes())?,
            Err(_) => self
                .0
                .write_all(bytes.escape_ascii().to_string().as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_overrides_and_escapes_is_printed_as_escapes() {
        let mut out = Terminal(Vec::new());
        let name = "Bank\u{202e}knaB\u{1b}[31m";
        writeln!(out, "{name}\t{:#}", serde_json::json!([name])).expect("written");
        let printed = String::from_utf8(out.0).expect("UTF-8");
        let shown = "Bank\\u202eknaB\\u001b[31m";
        assert_eq!(printed, format!("{shown}\t[\n  \"{shown}\"\n]\n"));
    }
}
