//! A question, and the request head that it describes.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Version, header};
use pingora::http::RequestHeader;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schemas::checks;

/// The request that is asked about.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Question {
    /// The method; `GET` if empty.
    pub method: String,
    /// `http://host/path?query`, `https://…`, or a path.
    pub url: String,
    /// Headers: a map of names to a value or a list of values, or a list of
    /// `Name: value` and `[name, value]`.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub headers: Value,
    /// Address of the TCP peer; loopback if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Server name of the handshake; by default the URL's host. Empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// `1.1` or `2`; by default 2 for gRPC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_version: Option<String>,
    /// Name or id of the consumer that authentication finds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// Most near misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Methods that most requests have.
const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Why a question can't be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// A part of it can't be part of a request.
    #[error("{field}: {message}")]
    Field {
        /// The part.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

fn wrong(field: &'static str, message: impl Into<String>) -> QuestionError {
    QuestionError::Field {
        field,
        message: message.into(),
    }
}

/// Scheme, authority and target of a URL. Nothing is normalised: what a client
/// sends is what is asked about.
fn split(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme.is_empty() {
        return ("", "", rest);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (scheme, &rest[..end], &rest[end..])
}

impl Question {
    /// Whether the client speaks TLS.
    pub(super) fn is_tls(&self) -> bool {
        split(&self.url).0.eq_ignore_ascii_case("https")
    }

    pub(super) fn sni(&self) -> Option<String> {
        if !self.is_tls() {
            return None;
        }
        if let Some(sni) = &self.sni {
            return Some(sni.clone()).filter(|sni| !sni.is_empty());
        }
        let (_, authority, _) = split(&self.url);
        let host = authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host);
        // Addresses are not sent (RFC 6066 §3).
        let is_name = !host.is_empty() && !host.starts_with('[') && host.parse::<IpAddr>().is_err();
        is_name.then(|| host.to_ascii_lowercase())
    }

    /// The head of the request.
    pub(super) fn request(&self) -> Result<RequestHeader, QuestionError> {
        let (scheme, authority, target) = split(&self.url);
        if !matches!(scheme.to_ascii_lowercase().as_str(), "" | "http" | "https") {
            return Err(wrong("url", "expected http://…, https://… or a path"));
        }
        if self.url.is_empty() {
            return Err(wrong("url", "required field missing"));
        }
        let method = self.method()?;
        let is_path = target.is_empty() || target.starts_with(['/', '?', '#']);
        let is_whole_server = target == "*" && method == Method::OPTIONS;
        if !is_path && !is_whole_server {
            let url = &self.url;
            let message = format!(
                "'{url}' is neither http://…, https://… nor a path; did you mean http://{url} or \
                 /{url}?"
            );
            return Err(wrong("url", message));
        }
        let target = target.split('#').next().unwrap_or_default();
        let target = match target {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            target => target.to_owned(),
        };
        let mut request = RequestHeader::build(method, target.as_bytes(), None)
            .map_err(|error| wrong("url", error.to_string()))?;
        for (name, value) in self.headers()? {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong("headers", format!("'{name}' is not a header name")))?;
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| wrong("headers", format!("{name}: not a header value")))?;
            request
                .append_header(name, value)
                .map_err(|error| wrong("headers", error.to_string()))?;
        }
        if !authority.is_empty() && !request.headers.contains_key(header::HOST) {
            let value =
                HeaderValue::from_str(authority).map_err(|e| wrong("url", e.to_string()))?;
            request
                .insert_header(header::HOST, value)
                .map_err(|error| wrong("url", error.to_string()))?;
        }
        request.set_version(self.version(&request)?);
        Ok(request)
    }

    /// The method: a word in capitals, as clients send it and routes name it.
    fn method(&self) -> Result<Method, QuestionError> {
        let name = self.method.as_str();
        if name.is_empty() {
            return Ok(Method::GET);
        }
        let meant = name.to_ascii_uppercase();
        let message = match checks::method(name) {
            Ok(()) => match Method::from_bytes(name.as_bytes()) {
                Ok(method) => return Ok(method),
                Err(_) => format!("'{name}' is no method"),
            },
            Err(_) if KNOWN.contains(&meant.as_str()) => {
                format!("'{name}' is no method; did you mean {meant}?")
            }
            Err(_) => format!("'{name}' is no method: expected {}, …", KNOWN.join(", ")),
        };
        Err(wrong("method", message))
    }

    fn version(&self, request: &RequestHeader) -> Result<Version, QuestionError> {
        let kind = request.headers.get(header::CONTENT_TYPE);
        let grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        match self.http_version.as_deref() {
            None if grpc => Ok(Version::HTTP_2),
            None | Some("1.1") => Ok(Version::HTTP_11),
            Some("1.0") => Ok(Version::HTTP_10),
            Some("2" | "2.0") => Ok(Version::HTTP_2),
            Some(_) => Err(wrong("http_version", "expected one of: 1.0, 1.1, 2")),
        }
    }

    /// Name and value of each header.
    fn headers(&self) -> Result<Vec<(String, String)>, QuestionError> {
        const SHAPE: &str = "expected a map, or a list of 'Name: value'";
        let text = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(flag) => Ok(flag.to_string()),
            _ => Err(wrong("headers", SHAPE)),
        };
        match &self.headers {
            Value::Null => Ok(Vec::new()),
            Value::Object(map) => of_map(map, &text),
            Value::Array(list) => list
                .iter()
                .map(|item| match item {
                    Value::String(line) => {
                        let (name, value) = line
                            .split_once(':')
                            .ok_or_else(|| wrong("headers", format!("'{line}' has no colon")))?;
                        Ok((name.trim().to_owned(), value.trim().to_owned()))
                    }
                    Value::Array(pair) if pair.len() == 2 => Ok((text(&pair[0])?, text(&pair[1])?)),
                    _ => Err(wrong("headers", SHAPE)),
                })
                .collect(),
            _ => Err(wrong("headers", SHAPE)),
        }
    }
}

fn of_map(
    map: &Map<String, Value>,
    text: &dyn Fn(&Value) -> Result<String, QuestionError>,
) -> Result<Vec<(String, String)>, QuestionError> {
    let mut all = Vec::new();
    for (name, value) in map {
        let values = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            all.push((name.clone(), text(value)?));
        }
    }
    Ok(all)
}
