//! What upstreams and clients are told of a session (`session_request_headers`,
//! `session_response_headers`).

use http::{HeaderName, HeaderValue};

use crate::config::fields::{Fields, wrong};
use crate::session::Sessions;
use crate::session::open_session::OpenSession;
use doorward_net::session::headers::{SessionFacts, SessionItem};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::Exchange;

/// What is told to whom.
#[derive(Debug)]
pub(crate) struct SessionHeaders {
    request: Vec<(HeaderName, SessionItem)>,
    response: Vec<(HeaderName, SessionItem)>,
    audience: String,
}

impl SessionHeaders {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        Ok(Self {
            request: of_requests(fields)?,
            response: of_responses(fields)?,
            audience: fields
                .sessions
                .session_audience
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

type Items = Vec<(HeaderName, SessionItem)>;

fn of_requests(fields: &Fields) -> Result<Items, ConfigError> {
    items(
        "session_request_headers",
        &fields.sessions.session_request_headers,
    )
}

fn of_responses(fields: &Fields) -> Result<Items, ConfigError> {
    items(
        "session_response_headers",
        &fields.sessions.session_response_headers,
    )
}

fn items(field: &str, texts: &[String]) -> Result<Items, ConfigError> {
    let item = |text: &String| {
        let known = SessionItem::named(text);
        known.ok_or_else(|| wrong(field, "expected id, audience, subject or a timeout"))
    };
    texts.iter().map(item).collect()
}

/// Names of the response headers that do.
pub(crate) fn answered(fields: &Fields) -> Result<Vec<HeaderName>, ConfigError> {
    let items = of_responses(fields)?;
    Ok(items.into_iter().map(|(name, _)| name).collect())
}

/// Names of the request headers that tell of sessions, where they are on.
pub(crate) fn owned(fields: &Fields) -> Result<Vec<HeaderName>, ConfigError> {
    let items = of_requests(fields)?;
    Ok(items.into_iter().map(|(name, _)| name).collect())
}

impl Sessions {
    /// Tells upstream and client of a session at `now_ms`.
    pub(crate) fn tell(&self, held: &OpenSession, now_ms: i64, exchange: &mut Exchange) {
        let headers = &self.session_headers;
        if headers.request.is_empty() && headers.response.is_empty() {
            return;
        }
        let subject = held.owner().subject;
        let facts = SessionFacts {
            id: Some(&held.id),
            audience: &headers.audience,
            subject: subject.as_deref(),
            started_ms: held.started,
            renewed_ms: held.renewed,
            timers: self.timers,
        };
        for (all, items) in [
            (&mut exchange.vouched, &headers.request),
            (&mut exchange.response_headers, &headers.response),
        ] {
            for (name, item) in items {
                let text = item.text(&facts, now_ms);
                let value = text.and_then(|text| HeaderValue::try_from(text).ok());
                all.extend(value.map(|value| (name.clone(), value)));
            }
        }
    }
}
