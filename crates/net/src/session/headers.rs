//! What upstreams and clients are told of a session, by headers.

use http::HeaderName;

use super::timers::Timers;

/// What can be told, and by which header.
const ITEMS: &[(&str, &str, SessionItem)] = &[
    ("id", "session-id", SessionItem::Id),
    ("audience", "session-audience", SessionItem::Audience),
    ("subject", "session-subject", SessionItem::Subject),
    ("timeout", "session-timeout", SessionItem::Timeout),
    (
        "idling-timeout",
        "session-idling-timeout",
        SessionItem::Idling,
    ),
    (
        "rolling-timeout",
        "session-rolling-timeout",
        SessionItem::Rolling,
    ),
    (
        "absolute-timeout",
        "session-absolute-timeout",
        SessionItem::Absolute,
    ),
];

/// A fact of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionItem {
    /// What it is called; it opens nothing.
    Id,
    /// Whom it is for.
    Audience,
    /// Whose it is.
    Subject,
    /// Seconds until the session is over if it is not used; so the others.
    Timeout,
    /// Until it has been idle for too long.
    Idling,
    /// Until it has to be renewed.
    Rolling,
    /// Until its absolute end.
    Absolute,
}

/// What can be told of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionFacts<'a> {
    /// What it is called.
    pub id: Option<&'a str>,
    /// Whom it is for.
    pub audience: &'a str,
    /// Whose it is.
    pub subject: Option<&'a str>,
    /// When it began, in milliseconds since the epoch.
    pub started_ms: i64,
    /// When it was last renewed.
    pub renewed_ms: i64,
    /// How long it lasts.
    pub timers: Timers,
}

impl SessionItem {
    /// The item that fields call so, and the header that tells it.
    pub fn named(name: &str) -> Option<(HeaderName, Self)> {
        let known = ITEMS.iter().find(|(known, ..)| *known == name);
        known.map(|(_, header, item)| (HeaderName::from_static(header), *item))
    }

    /// What fields call them.
    pub const NAMES: &[&str] = &{
        let mut names = [""; ITEMS.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = ITEMS[index].0;
            index += 1;
        }
        names
    };

    /// Its text at `now_ms`; `None`: there is none.
    pub fn text(self, facts: &SessionFacts<'_>, now_ms: i64) -> Option<String> {
        let left = |end: Option<i64>| {
            let left = end?.saturating_sub(now_ms).max(0);
            Some(left.div_euclid(1000).to_string())
        };
        let since = |begin: i64, bound: Option<i64>| bound.map(|bound| begin.saturating_add(bound));
        let timers = facts.timers;
        match self {
            Self::Id => facts.id.map(str::to_owned),
            Self::Audience => Some(facts.audience.to_owned()),
            Self::Subject => facts.subject.map(str::to_owned),
            Self::Timeout => left(timers.ends_at(facts.started_ms, facts.renewed_ms)),
            Self::Idling => left(since(facts.renewed_ms, timers.idling)),
            Self::Rolling => left(since(facts.renewed_ms, timers.rolling)),
            Self::Absolute => left(since(facts.started_ms, timers.absolute)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_told_in_whole_seconds_and_only_where_there_are_any() {
        let facts = SessionFacts {
            id: Some("s"),
            audience: "default",
            subject: None,
            started_ms: 0,
            renewed_ms: 10_000,
            timers: Timers {
                rolling: Some(60_000),
                idling: None,
                absolute: Some(100_000),
            },
        };
        let text = |name: &str| {
            let (header, item) = SessionItem::named(name).expect("an item");
            assert_eq!(header.as_str(), format!("session-{name}"));
            item.text(&facts, 20_500)
        };
        let told: Vec<_> = SessionItem::NAMES.iter().map(|name| text(name)).collect();
        let expected = [
            Some("s"),
            Some("default"),
            None,
            Some("49"),
            None,
            Some("49"),
            Some("79"),
        ];
        assert_eq!(told, expected.map(|text| text.map(str::to_owned)));
        assert_eq!(SessionItem::named("cookie"), None);
    }
}
