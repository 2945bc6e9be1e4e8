//! The rates of a filter, by number.
//!
//! Those of the configuration are known when the filter is built. An
//! expression may name others per request; those are added as they come, up to
//! a limit.

use std::sync::OnceLock;

use ahash::RandomState;
use dashmap::DashMap;
use parking_lot::Mutex;

use super::rate::Rate;

/// Most rates that requests may bring up.
const MOST_FOUND: usize = 1024;
/// Longest text of such a rate, in bytes.
const MAX_TEXT: usize = 64;

/// The rates of a filter.
#[derive(Debug)]
pub struct Rates {
    fixed: Box<[Rate]>,
    /// Empty unless requests may name rates.
    found: Box<[OnceLock<Rate>]>,
    numbers: DashMap<Box<str>, u16, RandomState>,
    /// How many of `found` there are.
    used: Mutex<usize>,
    /// For a number that nobody has.
    slowest: Rate,
}

impl Rates {
    /// The configured rates, distinct; and room for more if requests may name
    /// them.
    pub fn new(fixed: Vec<Rate>, open: bool) -> Self {
        let room = if open { MOST_FOUND } else { 0 };
        Self {
            fixed: fixed.into(),
            found: (0..room).map(|_| OnceLock::new()).collect(),
            numbers: DashMap::default(),
            used: Mutex::new(0),
            slowest: Rate::slowest(),
        }
    }

    /// The configured ones.
    pub fn fixed(&self) -> &[Rate] {
        &self.fixed
    }

    /// One past the highest number.
    pub(super) fn len(&self) -> u16 {
        u16::try_from(self.fixed.len() + *self.used.lock()).unwrap_or(u16::MAX)
    }

    /// The rate with this number.
    pub fn get(&self, number: u16) -> &Rate {
        let number = usize::from(number);
        match self.fixed.get(number) {
            Some(rate) => rate,
            None => self
                .found
                .get(number.wrapping_sub(self.fixed.len()))
                .and_then(OnceLock::get)
                .unwrap_or(&self.slowest),
        }
    }

    /// The number of the rate that a request names; `None` where the text is
    /// not a rate, or one too many.
    pub(super) fn named(&self, text: &str) -> Option<u16> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        if text.len() > MAX_TEXT {
            return None;
        }
        self.add(text, text.parse().ok()?)
    }

    fn add(&self, text: &str, rate: Rate) -> Option<u16> {
        let mut used = self.used.lock();
        let fixed = self.fixed.iter();
        let found = self.found.iter().take(*used).filter_map(OnceLock::get);
        let place = match fixed.chain(found).position(|known| *known == rate) {
            Some(place) => place,
            None => {
                self.found.get(*used)?.get_or_init(|| rate);
                *used += 1;
                self.fixed.len() + *used - 1
            }
        };
        let number = u16::try_from(place).ok()?;
        // Texts of one rate are many; what is not kept is read again.
        if self.numbers.len() < 2 * MOST_FOUND {
            self.numbers.insert(text.into(), number);
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rate(requests: u64) -> Rate {
        Rate::new(requests, Duration::from_secs(10)).expect("a rate")
    }

    #[test]
    fn a_rate_has_one_number_however_it_is_written() {
        let rates = Rates::new(vec![rate(6), rate(7)], true);
        assert_eq!(rates.named("7/10 s"), Some(1));
        assert_eq!(rates.named("8/10 s"), Some(2));
        assert_eq!(rates.named("8/10000ms"), Some(2));
        assert_eq!(rates.named("8/10 s"), Some(2));
        assert_eq!(rates.get(2), &rate(8));
        assert_eq!(rates.named("8"), None);
        assert_eq!(rates.named(&format!("8/10 s{}", " ".repeat(99))), None);
    }

    #[test]
    fn requests_cannot_bring_up_rates_without_end() {
        let rates = Rates::new(vec![rate(1)], true);
        let named = (1..5000).filter(|n| rates.named(&format!("{n}/10 s")).is_some());
        assert_eq!(named.count(), MOST_FOUND + 1);
        assert!(Rates::new(vec![rate(1)], false).named("2/10 s").is_none());
    }
}
