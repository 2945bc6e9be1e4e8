//! Parameters of requests, in query and body.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use pingora::http::RequestHeader;
use serde_json::Value;
use url::form_urlencoded;

use doorward_net::http::bridge::{BUFFERED_MAX, announced_length};
use doorward_net::http::form::{is_form, is_json, is_multipart, without};
use doorward_net::http::multipart::MultipartForm;
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
        let pairs = form_urlencoded::parse(text);
        pairs
            .map(|(name, value)| (name.into_owned(), Some(value.into_owned())))
            .collect()
    }

    fn of_parts(form: &MultipartForm<'_>) -> Self {
        let parts = form.parts.iter().map(|part| {
            let value = std::str::from_utf8(part.value).ok();
            (part.name.to_owned(), value.map(str::to_owned))
        });
        parts.collect()
    }

    fn of_body(request: &RequestHeader, body: &Bytes) -> Self {
        match &request.headers {
            headers if is_form(headers) => Self::of_pairs(body),
            headers if is_multipart(headers) => MultipartForm::read(headers, body)
                .map(|form| Self::of_parts(&form))
                .unwrap_or_default(),
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

impl FromIterator<(String, Option<String>)> for Parameters {
    fn from_iter<I: IntoIterator<Item = (String, Option<String>)>>(pairs: I) -> Self {
        let mut all = Self::default();
        for (name, value) in pairs.into_iter().take(MAX) {
            all.0
                .entry(name)
                .and_modify(|known| *known = None)
                .or_insert(value);
        }
        all
    }
}

/// Whether bodies of requests with this method are read.
pub(super) fn has_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

/// Whether the body of a request may hold parameters. Forms in parts are uploads most
/// often, so they are looked at where they are known to be short.
pub(super) fn may_be_in_body(request: &RequestHeader) -> bool {
    let headers = &request.headers;
    let is_short = || announced_length(headers).is_some_and(|length| length <= BUFFERED_MAX);
    let in_parts = || is_multipart(headers) && is_short();
    has_body(&request.method) && (is_form(headers) || is_json(headers) || in_parts())
}

/// Takes the access token out of the query and of a form, of one in parts, too.
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
    let Some(body) = &exchange.body else {
        return;
    };
    if is_form(&request.headers)
        && let Ok(form) = std::str::from_utf8(body)
        && let Some(rest) = without(form, &[ACCESS_TOKEN])
    {
        exchange.replacement = Some(rest.into());
    } else if is_multipart(&request.headers)
        && let Some(form) = MultipartForm::read(&request.headers, body)
        && let Some(rest) = form.without(&[ACCESS_TOKEN])
    {
        exchange.replacement = Some(rest.into());
    }
}
