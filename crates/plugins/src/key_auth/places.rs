//! Where a request may carry its key.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderName, Uri};
use pingora::http::RequestHeader;
use url::form_urlencoded;

use super::Config;
use super::body::Body;
use crate::settings::wrong;
use doorward_net::http::form::without;
use doorward_net::http::path::with_path_and_query;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::Exchange;

/// Parameters of a query or a form that are looked at.
pub(super) const PARAMETERS_MAX: usize = 100;

/// A name of the key.
struct KeyName {
    text: Box<str>,
    /// The header; and the one that it also stands for, with `-` in the place of `_`.
    headers: [Option<HeaderName>; 2],
}

/// Where keys are looked for.
pub(super) struct Places {
    names: Box<[KeyName]>,
    header: bool,
    query: bool,
    pub(super) body: bool,
}

/// What was there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// A text, right or wrong, empty or not: no other place is looked at.
    Key(Cow<'a, [u8]>),
    /// Two in one place: which one counts is anyone's guess.
    Twice,
    /// Nothing.
    Nowhere,
}

impl<'a> Place<'a> {
    /// What these values make of a place.
    pub(super) fn of<T: Into<Cow<'a, [u8]>>>(mut values: impl Iterator<Item = T>) -> Self {
        match (values.next(), values.next()) {
            (Some(_), Some(_)) => Self::Twice,
            (Some(value), None) => Self::Key(value.into()),
            (None, _) => Self::Nowhere,
        }
    }

    fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Nowhere => other(),
            there => there,
        }
    }
}

impl KeyName {
    fn new(text: &str) -> Result<Self, ConfigError> {
        let header = |text: &str| {
            let name = HeaderName::try_from(text);
            name.map_err(|_| wrong("key_names", "expected names of headers"))
        };
        let dashed = text.replace('_', "-");
        let twin = (dashed != text).then(|| header(&dashed)).transpose()?;
        Ok(Self {
            text: text.into(),
            headers: [Some(header(text)?), twin],
        })
    }

    fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().flatten()
    }
}

impl Places {
    /// The names and the places of a configuration.
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let names = config.key_names.iter().map(|name| KeyName::new(name));
        Ok(Self {
            names: names.collect::<Result<_, _>>()?,
            header: config.key_in_header,
            query: config.key_in_query,
            body: config.key_in_body,
        })
    }

    /// The names.
    pub(super) fn names(&self) -> Vec<&str> {
        self.names.iter().map(|name| &*name.text).collect()
    }

    /// The first place that has something: of each name header, query, body.
    pub(super) fn find<'a>(
        &self,
        request: &'a RequestHeader,
        body: Option<&'a Bytes>,
    ) -> Place<'a> {
        let body = body.filter(|_| self.body);
        let body = body.map(|body| Body::read(&request.headers, body));
        let places = self.names.iter().map(|name| {
            let in_header = if self.header {
                in_headers(request, name)
            } else {
                Place::Nowhere
            };
            in_header
                .or_else(|| match request.uri.query() {
                    Some(query) if self.query => Place::of(values(query, &name.text)),
                    _ => Place::Nowhere,
                })
                .or_else(|| match &body {
                    Some(body) => body.find(&name.text),
                    None => Place::Nowhere,
                })
        });
        let mut places = places.filter(|place| *place != Place::Nowhere);
        places.next().unwrap_or(Place::Nowhere)
    }

    /// Takes every name out of header and query, and out of the body where keys may
    /// be there.
    pub(super) fn hide(&self, request: &mut RequestHeader, exchange: &mut Exchange) {
        for name in &self.names {
            for header in name.headers() {
                request.remove_header(header);
            }
        }
        let names: Vec<&str> = self.names.iter().map(|name| &*name.text).collect();
        if let Some(query) = request.uri.query().and_then(|query| without(query, &names))
            && let Some(uri) = with_query(&request.uri, &query)
        {
            exchange.keep_original(request);
            request.set_uri(uri);
        }
        if let Some(body) = exchange.body.as_ref().filter(|_| self.body)
            && let Some(rest) = Body::read(&request.headers, body).without(&names)
        {
            exchange.replacement = Some(rest);
        }
    }
}

fn in_headers<'a>(request: &'a RequestHeader, name: &KeyName) -> Place<'a> {
    let mut all = name.headers().map(|header| {
        let values = request.headers.get_all(header).iter();
        Place::of(values.map(|value| value.as_bytes()))
    });
    all.find(|place| *place != Place::Nowhere)
        .unwrap_or(Place::Nowhere)
}

/// The values of a parameter; one without `=` has none.
pub(super) fn values<'a>(form: &'a str, name: &str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = form.split('&').take(PARAMETERS_MAX);
    pairs.filter_map(move |pair| {
        pair.contains('=').then_some(())?;
        let (key, value) = form_urlencoded::parse(pair.as_bytes()).next()?;
        (key == name).then_some(())?;
        Some(match value {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    })
}

/// The target with another query; none, if that is empty.
fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let target = if query.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{query}", uri.path())
    };
    with_path_and_query(uri, &target)
}
