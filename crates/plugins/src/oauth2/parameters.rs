//! Parameters of requests, in query and body.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use pingora::http::RequestHeader;
use serde_json::Value;
use url::form_urlencoded;

use doorward_net::http::form::{is_form, is_json, without};
use doorward_net::http::path::with_path_and_query;
use doorward_plugin_api::filter::Exchange;

/// Parameters that are looked at, of the query and of the body.
const MAX: usize = 100;
/// The parameter that carries an access token.
pub(super) const ACCESS_TOKEN: &str = "access_token";

/// Parameters by name; `None`: one that is there several times, which says nothing.
#[derive(Debug, Default)]
pub(super) struct Parameters(HashMap<String, Option<String>>);

impl Parameters {
    /// Those of a request; the body's count before the query's.
    pub(super) fn read(request: &RequestHeader, body: Option<&Bytes>) -> Self {
        let query = request.uri.query().unwrap_or_default();
        let mut all = Self::of_pairs(query.as_bytes());
        if let Some(body) = body.filter(|_| has_body(&request.method)) {
            all.0.extend(Self::of_body(request, body).0);
        }
        all
    }

    fn of_pairs(text: &[u8]) -> Self {
        let mut all = Self::default();
        for (name, value) in form_urlencoded::parse(text).take(MAX) {
            let value = Some(value.into_owned());
            all.0
                .entry(name.into_owned())
                .and_modify(|known| *known = None)
                .or_insert(value);
        }
        all
    }

    fn of_body(request: &RequestHeader, body: &Bytes) -> Self {
        match &request.headers {
            headers if is_form(headers) => Self::of_pairs(body),
            headers if is_json(headers) => {
                let Ok(Value::Object(members)) = serde_json::from_slice(body) else {
                    return Self::default();
                };
                let texts = members.into_iter().take(MAX);
                let texts = texts.map(|(name, value)| match value {
                    Value::String(text) => (name, Some(text)),
                    _ => (name, None),
                });
                Self(texts.collect())
            }
            _ => Self::default(),
        }
    }

    /// The parameter of this name, if it is there once.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    /// Whether there is something of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Whether bodies of requests with this method are read.
pub(super) fn has_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// Whether the body of a request may hold parameters.
pub(super) fn may_be_in_body(request: &RequestHeader) -> bool {
    has_body(&request.method) && (is_form(&request.headers) || is_json(&request.headers))
}

/// Takes the access token out of the query and of a form.
pub(super) fn hide(request: &mut RequestHeader, exchange: &mut Exchange) {
    let query = request.uri.query();
    if let Some(query) = query.and_then(|query| without(query, &[ACCESS_TOKEN])) {
        let path = request.uri.path();
        let target = match query.as_str() {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        if let Some(uri) = with_path_and_query(&request.uri, &target) {
            exchange.keep_original(request);
            request.set_uri(uri);
        }
    }
    if is_form(&request.headers)
        && let Some(body) = &exchange.body
        && let Ok(form) = std::str::from_utf8(body)
        && let Some(rest) = without(form, &[ACCESS_TOKEN])
    {
        exchange.replacement = Some(rest.into());
    }
}
