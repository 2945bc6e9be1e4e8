//! When a login session is over.

/// Parts of the bounds after which use renews a session. How long it was idle is
/// counted from its last renewal, so that has to be close to its last use.
const ROLLING_PART: i64 = 4;
const IDLING_PART: i64 = 20;

/// How long a session lasts, in milliseconds; `None`: no such bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// Since it was last renewed, which use does.
    pub rolling: Option<i64>,
    /// Without any use. It ends a session at most a twentieth later, and never
    /// earlier: only every so often is use noted.
    pub idling: Option<i64>,
    /// Since it began, whatever its use.
    pub absolute: Option<i64>,
}

/// What is to be done with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It goes on as it is.
    Fresh,
    /// It goes on, and the browser shall keep a renewed one.
    Due,
    /// It is over.
    Over,
}

impl Timers {
    /// The age at `now_ms` of a session that began at `started_ms` and was
    /// renewed at `renewed_ms`. A session from the future is over: its clock
    /// can't be trusted.
    ///
    /// A session is renewed after a part of its shorter bound: not with every
    /// request, and early enough that use keeps it alive.
    pub fn age(self, started_ms: i64, renewed_ms: i64, now_ms: i64) -> Age {
        const SKEW: i64 = 60_000;
        let since = |then: i64| now_ms.saturating_sub(then);
        if since(started_ms) < -SKEW || since(renewed_ms) < -SKEW {
            return Age::Over;
        }
        let span = self.span();
        let over = |bound: Option<i64>, then| bound.is_some_and(|bound| since(then) >= bound);
        if over(self.absolute, started_ms) || over(span, renewed_ms) {
            return Age::Over;
        }
        if over(self.step(), renewed_ms) {
            Age::Due
        } else {
            Age::Fresh
        }
    }
}

impl Timers {
    /// Whether a session that was renewed at `renewed_ms` has most of its time before
    /// it at `now_ms`.
    pub fn is_young(self, started_ms: i64, renewed_ms: i64, now_ms: i64) -> bool {
        let early = |span: i64| now_ms.saturating_sub(renewed_ms) < span / 4;
        self.age(started_ms, renewed_ms, now_ms) != Age::Over && self.span().is_none_or(early)
    }

    /// How long a session lasts without being renewed.
    fn span(self) -> Option<i64> {
        // It may have been used until just before it would have been renewed.
        let idling = |idling: i64| idling.saturating_add(idling / IDLING_PART);
        match (self.rolling, self.idling.map(idling)) {
            (Some(rolling), Some(idling)) => Some(rolling.min(idling)),
            (one, other) => one.or(other),
        }
    }

    /// For how long use does not renew a session.
    fn step(self) -> Option<i64> {
        match (self.rolling, self.idling) {
            (Some(rolling), Some(idling)) if rolling < idling => Some(rolling / ROLLING_PART),
            (_, Some(idling)) => Some(idling / IDLING_PART),
            (rolling, None) => rolling.map(|rolling| rolling / ROLLING_PART),
        }
    }

    /// When every copy is over of a session that is renewed nowhere from
    /// `now_ms` on; `None`: never. Some learn late that it is not to be: they have
    /// as long again.
    pub fn copies_end(self, started_ms: i64, now_ms: i64) -> Option<i64> {
        let span = self.span().map(|span| span.saturating_mul(2));
        let twice = Self {
            rolling: span,
            idling: None,
            absolute: self.absolute,
        };
        twice.ends_at(started_ms, now_ms)
    }

    /// When a session is over that is not renewed again; `None`: never.
    pub fn ends_at(self, started_ms: i64, renewed_ms: i64) -> Option<i64> {
        let span = self.span().map(|span| renewed_ms.saturating_add(span));
        let absolute = self.absolute.map(|bound| started_ms.saturating_add(bound));
        match (span, absolute) {
            (Some(span), Some(absolute)) => Some(span.min(absolute)),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_renews_a_session_until_its_absolute_end() {
        let timers = Timers {
            rolling: Some(4_000),
            idling: None,
            absolute: Some(10_000),
        };
        for (renewed, now, age) in [
            (0, 0, Age::Fresh),
            (0, 999, Age::Fresh),
            (0, 1_000, Age::Due),
            (0, 3_999, Age::Due),
            (0, 4_000, Age::Over),
            (9_000, 9_999, Age::Fresh),
            (9_000, 10_000, Age::Over),
        ] {
            assert_eq!(timers.age(0, renewed, now), age, "{renewed} {now}");
        }
    }

    #[test]
    fn the_shorter_of_rolling_and_idling_counts_and_none_is_for_ever() {
        let timers = Timers {
            rolling: Some(9_000),
            idling: Some(1_000),
            absolute: None,
        };
        assert_eq!(timers.age(0, 0, 1_050), Age::Over);
        assert_eq!(timers.age(0, 0, 49), Age::Fresh);
        assert_eq!(timers.age(0, 0, 50), Age::Due);
        let timers = Timers {
            rolling: Some(1_000),
            idling: Some(9_000),
            absolute: None,
        };
        assert_eq!(timers.age(0, 0, 1_000), Age::Over);
        assert_eq!(timers.age(0, 0, 249), Age::Fresh);
        assert_eq!(Timers::default().age(0, 0, i64::MAX), Age::Fresh);
    }

    #[test]
    fn a_session_ends_never_before_its_idle_time_and_at_most_a_step_later() {
        let timers = Timers {
            rolling: Some(9_000),
            idling: Some(1_000),
            absolute: None,
        };
        for used in 0..500 {
            let renewed = match timers.age(0, 0, used) {
                Age::Due => used,
                Age::Fresh => 0,
                Age::Over => panic!("{used}"),
            };
            assert_ne!(timers.age(0, renewed, used + 999), Age::Over, "{used}");
            assert_eq!(timers.age(0, renewed, used + 1_050), Age::Over, "{used}");
        }
    }

    #[test]
    fn a_session_ends_when_its_first_bound_is_reached() {
        let mut timers = Timers {
            rolling: Some(10),
            idling: Some(5),
            absolute: Some(100),
        };
        assert_eq!(timers.ends_at(0, 20), Some(25));
        assert_eq!(timers.ends_at(0, 99), Some(100));
        timers.absolute = None;
        assert_eq!(timers.ends_at(0, 99), Some(104));
        assert_eq!(Timers::default().ends_at(0, 99), None);
    }

    #[test]
    fn copies_of_a_session_end_by_themselves() {
        let mut timers = Timers {
            rolling: Some(10),
            idling: None,
            absolute: Some(100),
        };
        assert_eq!(timers.copies_end(0, 50), Some(70));
        assert_eq!(timers.copies_end(0, 95), Some(100));
        timers.absolute = None;
        assert_eq!(timers.copies_end(0, 95), Some(115));
        assert_eq!(Timers::default().copies_end(0, 0), None);
    }

    #[test]
    fn a_session_from_the_future_is_over() {
        assert_eq!(Timers::default().age(100_000, 0, 0), Age::Over);
    }

    #[test]
    fn a_session_is_young_in_its_first_quarter_however_often_it_is_renewed() {
        let idling = Timers {
            rolling: None,
            idling: Some(4_000),
            absolute: Some(4_100),
        };
        assert!(idling.is_young(0, 0, 1_000));
        assert!(!idling.is_young(0, 0, 1_050));
        assert!(idling.is_young(0, 4_000, 4_099));
        assert!(!idling.is_young(0, 4_000, 4_100));
    }
}
