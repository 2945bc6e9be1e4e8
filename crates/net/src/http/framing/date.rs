//! The `Date` of an upstream's answer: the engine puts its own in the place of
//! it, where a proxy has to leave it alone (RFC 9110 §6.6.1).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Length of a date (RFC 9110 §5.6.7).
const LENGTH: usize = 29;
/// How the engine writes its own.
const FIELD: &[u8] = b"Date: ";

/// Puts a date back into the next head that is written.
#[derive(Debug, Default)]
pub(super) struct UpstreamDate {
    due: AtomicBool,
    words: [AtomicU64; 4],
    /// What of a head is still to be written.
    head: Vec<u8>,
    written: usize,
}

impl UpstreamDate {
    /// Keeps `date` for the next head.
    pub(super) fn keep(&self, date: &[u8]) {
        if date.len() != LENGTH {
            return;
        }
        for (word, bytes) in self.words.iter().zip(date.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        self.due.store(true, Ordering::Relaxed);
    }

    /// What is to be written in the place of `bytes`.
    pub(super) fn apply<'a>(&'a mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.due.load(Ordering::Relaxed) {
            self.due.store(false, Ordering::Relaxed);
            self.replace(bytes);
        }
        match self.head.get(self.written..) {
            // It is the rest of a head that was not written at once.
            Some(rest) if !rest.is_empty() && rest.len() == bytes.len() => rest,
            _ => bytes,
        }
    }

    /// Notes that so many bytes were written.
    pub(super) fn wrote(&mut self, count: usize) {
        if self.head.is_empty() {
            return;
        }
        self.written += count;
        if self.written >= self.head.len() {
            self.head.clear();
            self.written = 0;
        }
    }

    /// Forgets the date: what is written is no head.
    pub(super) fn forget(&mut self) {
        self.due.store(false, Ordering::Relaxed);
    }

    fn replace(&mut self, head: &[u8]) {
        self.head.clear();
        self.written = 0;
        let Some(at) = place(head) else {
            return;
        };
        self.head.extend_from_slice(head);
        let date = &mut self.head[at..at + LENGTH];
        for (word, bytes) in self.words.iter().zip(date.chunks_mut(8)) {
            let word = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
    }
}

/// Where the date is in `head`: among the last fields.
fn place(head: &[u8]) -> Option<usize> {
    let mut end = head.len();
    while let Some(line_end) = memchr::memrchr(b'\n', &head[..end]) {
        let line = &head[line_end + 1..];
        if line.starts_with(FIELD) && line.get(FIELD.len() + LENGTH) == Some(&b'\r') {
            return Some(line_end + 1 + FIELD.len());
        }
        end = line_end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &[u8] = b"HTTP/1.1 200 OK\r\nX-Date: x\r\nDate: Mon, 23 Nov 2026 22:18:52 GMT\r\n\
        Connection: close\r\n\r\n";
    const THEIRS: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    #[test]
    fn a_date_is_put_back_however_the_head_is_written() {
        let wanted = String::from_utf8_lossy(OURS).replace(
            "Mon, 23 Nov 2026 22:18:52 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT",
        );
        for step in [1, 7, 40, 1000] {
            let mut date = UpstreamDate::default();
            date.keep(THEIRS);
            let (mut sent, mut left) = (Vec::new(), OURS);
            while !left.is_empty() {
                let instead = date.apply(left);
                let count = step.min(instead.len());
                sent.extend_from_slice(&instead[..count]);
                date.wrote(count);
                left = &left[count..];
            }
            assert_eq!(String::from_utf8_lossy(&sent), wanted);
            assert_eq!(date.apply(OURS), OURS, "the next head has its own");
        }
    }

    #[test]
    fn what_has_no_date_stays_as_it_is() {
        let mut date = UpstreamDate::default();
        date.keep(b"yesterday");
        assert_eq!(date.apply(OURS), OURS);
        date.keep(THEIRS);
        let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n";
        assert_eq!(date.apply(interim), interim);
        date.wrote(interim.len());
        assert_eq!(date.apply(OURS), OURS);
    }
}
