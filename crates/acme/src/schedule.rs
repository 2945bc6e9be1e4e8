//! When certificates are ordered: pure decisions, with the time and the chance as
//! arguments.

use crate::config::RenewalPolicy;
use doorward_core::model::acme::{AcmeState, StoredAcmeCertificate};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Minutes between orders that fail one after the other; the last one repeats.
const PAUSES: [i64; 10] = [1, 2, 5, 10, 20, 30, 60, 120, 180, 360];
/// The longest time that an authority can put an order off.
const RETRY_AFTER_MAX: i64 = 7 * DAY;
/// The least pause after a refusal that time alone does not heal.
const LASTING_REFUSAL: i64 = HOUR;
/// Which part of its lifetime a certificate has left when it is renewed whatever the
/// authority suggests.
const LAST_PART: i64 = 20;
/// Which part of its lifetime renewals of certificates of one age are spread over.
const JITTER_PART: i64 = 50;
/// How often an authority is asked when to renew, whatever it says.
const WINDOW_PAUSES: [i64; 2] = [MINUTE, DAY];
/// When it is asked again that did not answer.
pub(crate) const WINDOW_RETRY: i64 = 6 * HOUR;

/// From when to when a certificate is good, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from_ms: i64,
    pub(crate) until_ms: i64,
}

impl Validity {
    fn lifetime(self) -> i64 {
        self.until_ms.saturating_sub(self.from_ms).max(1)
    }
}

/// What orders go by.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// The authority.
    pub(crate) directory: &'a str,
    /// Fingerprint of the whole section.
    pub(crate) section: &'a str,
    pub(crate) policy: &'a RenewalPolicy,
}

/// When a certificate is to be ordered; not before what it has waited for since the last
/// failure. Without `validity` there is none that serves.
pub(crate) fn order_ms(
    row: &StoredAcmeCertificate,
    validity: Option<Validity>,
    terms: &Terms<'_>,
) -> i64 {
    let state = &row.state;
    let is_foreign = state.issuer.as_deref() != Some(terms.directory);
    let due = match validity {
        Some(validity) if !is_foreign => {
            let usual = renew_ms(validity, terms.policy, 0.0);
            let last = validity.until_ms - validity.lifetime() / LAST_PART;
            state.renew_ms.unwrap_or(usual).min(last)
        }
        // None, or one of another authority.
        _ => 0,
    };
    let retry_ms = if is_same_request(row, terms) {
        state.retry_ms
    } else {
        0
    };
    due.max(retry_ms)
}

/// Whether what failed would be asked for again. Another authority has refused nothing
/// yet, and an edited section may have mended what was wrong. Limits stay.
fn is_same_request(row: &StoredAcmeCertificate, terms: &Terms<'_>) -> bool {
    let state = &row.state;
    let kind = state
        .problem
        .as_ref()
        .and_then(|problem| problem.kind.as_deref());
    let is_limited = kind == Some("rateLimited");
    let is_edited = state.section.as_deref() != Some(terms.section);
    row.directory == terms.directory && (is_limited || !is_edited)
}

/// When to renew a certificate of which the authority suggests nothing. `chance` is
/// between 0 and 1: certificates of one hour are not renewed in one second.
pub(crate) fn renew_ms(validity: Validity, policy: &RenewalPolicy, chance: f64) -> i64 {
    let lifetime = validity.lifetime();
    let left = lifetime / 100 * i64::from(policy.percent_left);
    validity.until_ms - left - part(lifetime / JITTER_PART, chance)
}

/// A time in the window that the authority suggests: the one that is planned already, if
/// it lies there.
pub(crate) fn within(window: Validity, planned: Option<i64>, chance: f64) -> i64 {
    let fits = |time: &i64| (window.from_ms..=window.until_ms).contains(time);
    planned
        .filter(fits)
        .unwrap_or_else(|| window.from_ms + part(window.lifetime(), chance))
}

/// When to ask for the window again, if the authority says so after `pause_ms`.
pub(crate) fn next_window_ms(now_ms: i64, pause_ms: i64) -> i64 {
    let [least, most] = WINDOW_PAUSES;
    now_ms + pause_ms.clamp(least, most)
}

/// How a failed order ended, as far as the next one depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// When the authority wants to be asked again, in milliseconds.
    pub(crate) retry_after_ms: Option<i64>,
    /// Whether it lasts until somebody changes something.
    pub(crate) is_lasting: bool,
}

/// Notes a failure in `state`: when to try again.
pub(crate) fn fail(state: &mut AcmeState, refusal: Refusal, now_ms: i64, chance: f64) {
    let place = usize::try_from(state.failures).unwrap_or(usize::MAX);
    let last = PAUSES[PAUSES.len() - 1];
    let pause = PAUSES.get(place).copied().unwrap_or(last) * MINUTE;
    let least = if refusal.is_lasting {
        LASTING_REFUSAL
    } else {
        0
    };
    let pause = pause.max(least);
    let asked = refusal
        .retry_after_ms
        .unwrap_or(0)
        .clamp(0, RETRY_AFTER_MAX);
    let pause = pause.max(asked);
    state.failures = state.failures.saturating_add(1);
    state.retry_ms = now_ms + pause + part(pause / 5, chance);
}

/// This share of `span`.
fn part(span: i64, chance: f64) -> i64 {
    // Whole milliseconds of at most some years: no number is lost.
    (span as f64 * chance.clamp(0.0, 1.0)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::model::acme::AcmeProblem;

    const DIRECTORY: &str = "https://authority.test/directory";
    const SECTION: &str = "section";
    const VALIDITY: Validity = Validity {
        from_ms: 0,
        until_ms: 90 * DAY,
    };

    fn row(state: AcmeState) -> StoredAcmeCertificate {
        StoredAcmeCertificate {
            names: "a.test".to_owned(),
            directory: DIRECTORY.to_owned(),
            issued: None,
            state,
            updated_ms: 0,
        }
    }

    fn issued() -> AcmeState {
        AcmeState {
            issuer: Some(DIRECTORY.to_owned()),
            ..AcmeState::default()
        }
    }

    fn due(state: AcmeState, validity: Option<Validity>) -> i64 {
        order_of(&row(state), validity, SECTION)
    }

    fn order_of(row: &StoredAcmeCertificate, validity: Option<Validity>, section: &str) -> i64 {
        let terms = Terms {
            directory: DIRECTORY,
            section,
            policy: &RenewalPolicy::default(),
        };
        order_ms(row, validity, &terms)
    }

    #[test]
    fn a_name_without_a_certificate_is_ordered_at_once() {
        assert_eq!(due(AcmeState::default(), None), 0);
        assert_eq!(due(issued(), None), 0, "its certificate can't be read");
    }

    #[test]
    fn a_certificate_of_another_authority_is_replaced_at_once() {
        let state = AcmeState {
            issuer: Some("https://staging.test/directory".to_owned()),
            retry_ms: 5,
            section: Some(SECTION.to_owned()),
            ..AcmeState::default()
        };
        assert_eq!(
            due(state.clone(), Some(VALIDITY)),
            5,
            "but after its failures"
        );
        let mut row = row(state);
        row.directory = "https://staging.test/directory".to_owned();
        assert_eq!(order_of(&row, Some(VALIDITY), SECTION), 0);
    }

    #[test]
    fn an_edited_section_is_tried_at_once_unless_a_limit_was_reached() {
        let failed = |kind: &str| {
            row(AcmeState {
                retry_ms: 5,
                section: Some(SECTION.to_owned()),
                problem: Some(AcmeProblem {
                    kind: Some(kind.to_owned()),
                    ..AcmeProblem::default()
                }),
                ..AcmeState::default()
            })
        };
        let refused = failed("externalAccountRequired");
        assert_eq!(order_of(&refused, None, SECTION), 5);
        assert_eq!(order_of(&refused, None, "edited"), 0);
        assert_eq!(order_of(&failed("rateLimited"), None, "edited"), 5);
    }

    #[test]
    fn a_third_of_the_lifetime_is_left_when_the_authority_says_nothing() {
        let at = due(issued(), Some(VALIDITY));
        assert!((60 * DAY..=61 * DAY).contains(&at), "{}", at / DAY);
        let policy = RenewalPolicy::default();
        let early = renew_ms(VALIDITY, &policy, 0.999);
        assert!(early < at && early > 58 * DAY, "{}", early / DAY);
    }

    #[test]
    fn the_authoritys_word_counts_unless_it_comes_too_late() {
        let planned = |renew_ms| AcmeState {
            renew_ms: Some(renew_ms),
            ..issued()
        };
        assert_eq!(due(planned(3), Some(VALIDITY)), 3);
        assert_eq!(
            due(planned(89 * DAY), Some(VALIDITY)),
            90 * DAY - 90 * DAY / 20
        );
    }

    #[test]
    fn the_time_in_a_window_stays_while_it_lies_there() {
        let window = Validity {
            from_ms: 100,
            until_ms: 200,
        };
        assert_eq!(within(window, None, 0.5), 150);
        assert_eq!(within(window, Some(120), 0.5), 120);
        assert_eq!(within(window, Some(250), 0.0), 100);
        assert_eq!(next_window_ms(0, 0), MINUTE, "never in a hot loop");
        assert_eq!(next_window_ms(0, i64::MAX), DAY);
    }

    #[test]
    fn failures_are_spaced_out_and_retry_after_is_obeyed() {
        let mut state = AcmeState::default();
        let mut before = 0;
        for _ in 0..20 {
            fail(&mut state, Refusal::default(), 0, 0.0);
            assert!(state.retry_ms >= before && state.retry_ms >= MINUTE);
            before = state.retry_ms;
        }
        assert_eq!(before, 6 * HOUR);
        let mut state = AcmeState::default();
        let limited = Refusal {
            retry_after_ms: Some(2 * DAY),
            is_lasting: false,
        };
        fail(&mut state, limited, 7, 0.0);
        assert_eq!((state.retry_ms, state.failures), (7 + 2 * DAY, 1));
        let mut state = AcmeState::default();
        let endless = Refusal {
            retry_after_ms: Some(i64::MAX),
            is_lasting: false,
        };
        fail(&mut state, endless, 0, 0.0);
        assert_eq!(state.retry_ms, RETRY_AFTER_MAX);
        let mut state = AcmeState::default();
        let lasting = Refusal {
            retry_after_ms: None,
            is_lasting: true,
        };
        fail(&mut state, lasting, 0, 1.0);
        assert_eq!(state.retry_ms, HOUR + HOUR / 5);
    }
}
