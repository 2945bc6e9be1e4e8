//! What upstreams and clients are told of a session (`session_request_headers`,
//! `session_response_headers`).

use http::{HeaderName, HeaderValue};

use crate::config::fields::{Fields, wrong};
use crate::session::Sessions;
use crate::session::open_session::OpenSession;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::Exchange;

/// What can be told, and by which header.
const ITEMS: &[(&str, &str, Item)] = &[
    ("id", "session-id", Item::Id),
    ("audience", "session-audience", Item::Audience),
    ("subject", "session-subject", Item::Subject),
    ("timeout", "session-timeout", Item::Timeout),
    ("idling-timeout", "session-idling-timeout", Item::Idling),
    ("rolling-timeout", "session-rolling-timeout", Item::Rolling),
    (
        "absolute-timeout",
        "session-absolute-timeout",
        Item::Absolute,
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Id,
    Audience,
    Subject,
    /// Seconds until the session is over if it is not used; so the others.
    Timeout,
    Idling,
    Rolling,
    Absolute,
}

/// What is told to whom.
#[derive(Debug)]
pub(crate) struct SessionHeaders {
    request: Vec<(HeaderName, Item)>,
    response: Vec<(HeaderName, Item)>,
    audience: String,
}

impl SessionHeaders {
    pub(crate) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            request: items(fields, "session_request_headers")?,
            response: items(fields, "session_response_headers")?,
            audience: fields
                .text("session_audience")?
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

fn items(fields: Fields<'_>, field: &str) -> Result<Vec<(HeaderName, Item)>, ConfigError> {
    let texts = fields.texts(field)?;
    let item = |text: &String| {
        let known = ITEMS.iter().find(|(name, ..)| name == text);
        known
            .map(|(_, header, item)| (HeaderName::from_static(header), *item))
            .ok_or_else(|| wrong(field, "expected id, audience, subject or a timeout"))
    };
    texts.iter().map(item).collect()
}

/// Names of the response headers that do.
pub(crate) fn answered(fields: Fields<'_>) -> Result<Vec<HeaderName>, ConfigError> {
    let items = items(fields, "session_response_headers")?;
    Ok(items.into_iter().map(|(name, _)| name).collect())
}

/// Names of the request headers that tell of sessions, where they are on.
pub(crate) fn owned(fields: Fields<'_>) -> Result<Vec<HeaderName>, ConfigError> {
    let items = items(fields, "session_request_headers")?;
    Ok(items.into_iter().map(|(name, _)| name).collect())
}

impl Sessions {
    /// Tells upstream and client of a session at `now_ms`.
    pub(crate) fn tell(&self, held: &OpenSession, now_ms: i64, exchange: &mut Exchange) {
        for (all, items) in [
            (&mut exchange.vouched, &self.session_headers.request),
            (
                &mut exchange.response_headers,
                &self.session_headers.response,
            ),
        ] {
            for (name, item) in items {
                let text = self.text(*item, held, now_ms);
                let value = text.and_then(|text| HeaderValue::try_from(text).ok());
                all.extend(value.map(|value| (name.clone(), value)));
            }
        }
    }

    fn text(&self, item: Item, held: &OpenSession, now_ms: i64) -> Option<String> {
        let left = |end: Option<i64>| {
            let left = end?.saturating_sub(now_ms).max(0);
            Some(left.div_euclid(1000).to_string())
        };
        let since = |bound: Option<i64>| bound.map(|bound| held.renewed.saturating_add(bound));
        match item {
            Item::Id => Some(held.id.clone()),
            Item::Audience => Some(self.session_headers.audience.clone()),
            Item::Subject => held.owner().subject,
            Item::Timeout => left(self.timers.ends_at(held.started, held.renewed)),
            Item::Idling => left(since(self.timers.idling)),
            Item::Rolling => left(since(self.timers.rolling)),
            Item::Absolute => {
                let absolute = self.timers.absolute;
                left(absolute.map(|bound| held.started.saturating_add(bound)))
            }
        }
    }
}
