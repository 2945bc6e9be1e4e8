//! What is written, read back by a strict reader of structured fields.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::throttling::partitions::MAX_RATES;

const SECOND: u64 = 1_000_000_000;

fn shown(outcome: &Outcome) -> [String; 2] {
    let rate = |n, seconds| Rate::new(n, Duration::from_secs(seconds)).expect("a rate");
    let rates = Rates::new(vec![rate(6, 12), rate(1000, 100_000)], false);
    let quota = Quota::new(vec!["burst".into(), "1000/1d".into()]);
    let headers = quota.headers(&rates, &[0, 1], outcome);
    headers.map(|(_, value)| value.to_str().expect("ASCII").to_owned())
}

fn levels(first: u64, second: u64) -> [u64; MAX_RATES] {
    let mut levels = [0; MAX_RATES];
    (levels[0], levels[1]) = (first, second);
    levels
}

#[test]
fn a_passed_request_is_told_what_is_left_and_until_when() {
    let outcome = Outcome {
        delay: 0,
        levels: levels(3 * SECOND, 150 * SECOND),
    };
    let [policy, state] = shown(&outcome);
    assert_eq!(policy, "\"burst\";q=6;w=12, \"1000/1d\";q=1000;w=100000");
    assert_eq!(state, "\"burst\";r=4;t=1, \"1000/1d\";r=998;t=50");
}

#[test]
fn no_effective_window_of_a_refusal_ends_after_retry_after() {
    let delay = SECOND + 1;
    let outcome = Outcome {
        delay,
        levels: levels(10 * SECOND + delay, 150 * SECOND),
    };
    assert_eq!(seconds(delay), 2);
    assert_eq!(
        shown(&outcome)[1],
        "\"burst\";r=0;t=2, \"1000/1d\";r=998;t=2"
    );
}

/// A bare item (RFC 9651 §3.3); the kinds that the draft uses.
#[derive(Debug, Clone, PartialEq)]
enum Bare {
    Integer(i64),
    Text(String),
}

/// Reads a list of items with parameters (RFC 9651 §4.2), as strictly as the
/// algorithm there; kinds that the draft does not use are refused.
struct Reader<'a>(&'a [u8]);

type Item = (Bare, Vec<(String, Bare)>);

impl Reader<'_> {
    fn list(text: &str) -> Option<Vec<Item>> {
        let mut reader = Reader(text.as_bytes());
        reader.skip(b" ");
        let mut items = Vec::new();
        while !reader.0.is_empty() {
            items.push(reader.item()?);
            reader.skip(b" \t");
            if reader.0.is_empty() {
                return Some(items);
            }
            reader.expect(b',')?;
            reader.skip(b" \t");
            if reader.0.is_empty() {
                return None;
            }
        }
        Some(items)
    }

    fn item(&mut self) -> Option<Item> {
        let bare = self.bare()?;
        let mut parameters: Vec<(String, Bare)> = Vec::new();
        while self.0.first() == Some(&b';') {
            self.expect(b';')?;
            self.skip(b" ");
            let key = self.key()?;
            self.expect(b'=')?;
            let value = self.bare()?;
            assert!(parameters.iter().all(|(known, _)| *known != key), "twice");
            parameters.push((key, value));
        }
        Some((bare, parameters))
    }

    fn bare(&mut self) -> Option<Bare> {
        match self.0.first()? {
            b'"' => self.text(),
            b'-' | b'0'..=b'9' => self.integer(),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<Bare> {
        self.expect(b'"')?;
        let mut text = String::new();
        loop {
            match self.next()? {
                b'"' => return Some(Bare::Text(text)),
                b'\\' => match self.next()? {
                    escaped @ (b'"' | b'\\') => text.push(escaped.into()),
                    _ => return None,
                },
                plain @ 0x20..=0x7e => text.push(plain.into()),
                _ => return None,
            }
        }
    }

    fn integer(&mut self) -> Option<Bare> {
        let sign = match self.0.first()? {
            b'-' => self.next().map(|_| -1)?,
            _ => 1,
        };
        let digits = self.take(u8::is_ascii_digit);
        if digits.is_empty() || digits.len() > 15 || self.0.first() == Some(&b'.') {
            return None;
        }
        digits.parse().ok().map(|n: i64| Bare::Integer(sign * n))
    }

    fn key(&mut self) -> Option<String> {
        let first = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
        self.0.first().filter(|byte| first(byte))?;
        let inner = |byte: &u8| first(byte) || byte.is_ascii_digit() || b"_-.".contains(byte);
        Some(self.take(inner))
    }

    fn take(&mut self, wanted: impl Fn(&u8) -> bool) -> String {
        let len = self.0.iter().take_while(|byte| wanted(byte)).count();
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        String::from_utf8_lossy(taken).into_owned()
    }

    fn skip(&mut self, blanks: &[u8]) {
        self.take(|byte| blanks.contains(byte));
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }
}

#[test]
fn the_strict_reader_is_strict() {
    for text in [
        "\"a\";q=1,",
        "a",
        "\"a",
        "\"a\";Q=1",
        "\"a\";q=1.0",
        "\"a\";q",
        "\"\\n\"",
        "\"é\"",
        "\"a\";q=1234567890123456",
        "\"a\" \"b\"",
        "\"a\" ;q=1",
        "12-",
    ] {
        assert_eq!(Reader::list(text), None, "{text}");
    }
    assert_eq!(
        Reader::list(" \"a\"; q=1 ,\t\"b\" ").map(|list| list.len()),
        Some(2)
    );
}

/// The number of a parameter.
fn number(item: &Item, key: &str) -> Option<i64> {
    let of = |(name, value): &(String, Bare)| match value {
        Bare::Integer(n) if name == key => Some(*n),
        _ => None,
    };
    item.1.iter().find_map(of)
}

proptest! {
    /// Draft-ietf-httpapi-ratelimit-headers-11, sections 3, 4 and 6.
    #[test]
    fn what_is_written_is_what_the_draft_allows(
        rates in prop::collection::vec((1..=crate::throttling::rate::MOST, 1_u64..3_000_000_000_000), 1..=8),
        levels in prop::collection::vec(any::<u64>(), 8),
        refused in any::<bool>(),
    ) {
        let named: Vec<Rate> = rates
            .iter()
            .map(|(n, ms)| Rate::new(*n, Duration::from_millis(*ms)).expect("a rate"))
            .collect();
        let limit: Vec<u16> = (0..).take(named.len()).collect();
        let mut outcome = Outcome { delay: 0, levels: [0; MAX_RATES] };
        for (at, rate) in named.iter().enumerate() {
            // As buckets are: never emptier than empty, and on a refusal at
            // least one has less than a token.
            let level = &mut outcome.levels[at];
            *level = levels[at] % (rate.fill() + 1);
            if !refused {
                *level = (*level).min(rate.fill() - rate.step()).max(1);
            } else if at == 0 {
                *level = rate.fill() - levels[at] % rate.step();
            }
            let wait = (*level + rate.step()).saturating_sub(rate.fill());
            outcome.delay = outcome.delay.max(wait);
        }
        if !refused { outcome.delay = 0; }
        let names = named.iter().map(Rate::to_string).collect();
        let quota = Quota::new(names);
        let [policy, state] = quota.headers(&Rates::new(named.clone(), false), &limit, &outcome);
        let read = |value: &HeaderValue| Reader::list(value.to_str().expect("ASCII"));
        let (policy, state) = (read(&policy.1).expect("a list"), read(&state.1).expect("a list"));
        prop_assert_eq!((policy.len(), state.len()), (named.len(), named.len()));
        let retry_after = (outcome.delay > 0).then(|| i64::try_from(seconds(outcome.delay)).expect("small"));
        for (policy, state) in policy.iter().zip(&state) {
            prop_assert!(matches!(policy.0, Bare::Text(_)));
            prop_assert_eq!(&policy.0, &state.0);
            let (quota, left) = (number(policy, "q").expect("q"), number(state, "r").expect("r"));
            prop_assert!(quota >= 1 && (0..=quota).contains(&left));
            prop_assert!(number(policy, "w").is_none_or(|window| window >= 1));
            let wait = number(state, "t").expect("t");
            prop_assert!(wait >= 1);
            if let Some(retry_after) = retry_after {
                prop_assert!(wait <= retry_after);
                prop_assert!(left > 0 || wait == retry_after);
            }
        }
        if refused {
            prop_assert_eq!(number(&state[0], "r"), Some(0));
        }
    }
}
