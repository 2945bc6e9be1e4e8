//! Templates `$(…)` in the values of transformers: a small, safe part of the
//! language in which the imitated gateway has them.
//!
//! A text is compiled when its plugin is built ([`Template::read`]); what is not
//! in the subset is refused then, by name. Evaluation looks at the request alone,
//! has no loops, and produces texts of bounded length.

mod expression;
mod parse;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;
use url::form_urlencoded;

use doorward_plugin_api::filter::Exchange;

use expression::Expression;

/// Longest text that a template makes, in bytes.
const MAX_TEXT: usize = 16 * 1024;

/// A text with expressions in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template(Box<[Piece]>);

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(Box<str>),
    Value(Expression),
}

/// A template came to no text: a list where one value is needed, arithmetic with
/// what is no number, or a text that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed;

impl Template {
    /// Compiles a text.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("$(") {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.into()));
            }
            let (expression, after) = parse::expression(after).map_err(|message| {
                format!("value '{text}' is not in supported format, error:{message}")
            })?;
            pieces.push(Piece::Value(expression));
            rest = after;
        }
        if !rest.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Ok(Self(pieces.into()))
    }

    /// The text, if it is the same for every request.
    pub(crate) fn constant(&self) -> Option<&str> {
        match &*self.0 {
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text for a request.
    ///
    /// # Errors
    /// [`Failed`].
    pub(crate) fn render(&self, request: &Request<'_>) -> Result<String, Failed> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Value(expression) => {
                    out.push_str(&expression.evaluate(request)?.rendered()?);
                }
            }
            if out.len() > MAX_TEXT {
                return Err(Failed);
            }
        }
        Ok(out)
    }
}

/// What templates look at.
pub(crate) struct Request<'a> {
    /// The request as filters before have left it.
    pub(crate) parts: &'a Parts,
    /// What is known about it.
    pub(crate) exchange: &'a Exchange,
}

/// Request headers that only filters write: a client's own are never believed.
const OF_FILTERS: &[&str] = &[
    "x-consumer-",
    "x-credential-",
    "x-anonymous-consumer",
    "x-authenticated-",
];

impl Request<'_> {
    /// The values of a header; `_` counts as `-`. What filters vouch for comes
    /// from them alone.
    fn header(&self, name: &str) -> Vec<String> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        let Ok(name) = HeaderName::try_from(name) else {
            return Vec::new();
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let vouched = self.exchange.vouched.iter();
        let vouched = vouched.filter(|(other, _)| *other == name);
        let vouched: Vec<_> = vouched.map(|(_, value)| text(value.as_bytes())).collect();
        if !vouched.is_empty() {
            return vouched;
        }
        if let Some(value) = self.of_consumer(name.as_str()) {
            return vec![value];
        }
        let owned = self.exchange.route_context.as_deref();
        let owned = owned.is_some_and(|route| route.owned_headers.contains(&name));
        if owned
            || OF_FILTERS
                .iter()
                .any(|start| name.as_str().starts_with(start))
        {
            return Vec::new();
        }
        let values = self.parts.headers.get_all(&name).iter();
        let values: Vec<_> = values.map(|value| text(value.as_bytes())).collect();
        if values.is_empty() && name == http::header::HOST {
            // HTTP/2 says it elsewhere.
            let authority = self.parts.uri.authority();
            return authority
                .map(|a| a.as_str().to_owned())
                .into_iter()
                .collect();
        }
        values
    }

    fn of_consumer(&self, name: &str) -> Option<String> {
        let consumer = self.exchange.consumer.as_deref()?;
        match name {
            "x-consumer-id" => Some(consumer.id.to_string()),
            "x-consumer-username" => consumer.username.clone(),
            "x-consumer-custom-id" => consumer.custom_id.clone(),
            _ => None,
        }
    }

    /// The values of a parameter of the query.
    fn parameter(&self, name: &str) -> Vec<String> {
        let query = self.parts.uri.query().unwrap_or_default();
        let all = form_urlencoded::parse(query.as_bytes());
        let found = all.filter(|(other, _)| other == name);
        found.map(|(_, value)| value.into_owned()).collect()
    }

    /// What a group of the route's path has matched.
    fn capture(&self, name: &str) -> Option<Cow<'_, str>> {
        let captures = &self.exchange.route_context.as_deref()?.captures;
        let found = captures.iter().find(|(other, _)| **other == *name);
        found.map(|(_, text)| Cow::Borrowed(&**text))
    }
}
