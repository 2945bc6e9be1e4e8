//! Header fields that route files give and take, and their values.

use http::header::{CONNECTION, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use super::object::{Field, TextLists};
use super::settings::Place;
use doorward_expr::{Expression, Scope, Value};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::Exchange;

/// Fields that say where a message ends or belong to one connection: the
/// gateway writes them itself, and who else did could smuggle requests.
const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What the gateway writes into every request for an upstream.
const GATEWAYS: &[&str] = &[
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-kong-request-id",
    "x-real-ip",
];

/// The value of a header field.
#[derive(Debug)]
pub(super) enum Source {
    /// The same for every request, and checked.
    Fixed(HeaderValue),
    /// Of each request.
    Evaluated(Expression),
}

/// A value has characters that its field can't have: a line break would begin
/// another field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Illegal;

impl Source {
    /// Reads the value `text`, at `place`, of the field `name`; `None`: it is
    /// always null.
    fn read(place: &Place<'_>, name: &HeaderName, text: &str) -> Result<Option<Self>, ConfigError> {
        let expression = place.compile(text)?;
        let fixed = match expression.constant() {
            None => return Ok(Some(Self::Evaluated(expression))),
            Some(Value::Text(text)) => text.into_owned(),
            Some(_) => {
                place.warn("has a value that is never a text: nothing is added");
                return Ok(None);
            }
        };
        let message = if *name == HOST {
            "must be a host, with a port if need be"
        } else {
            "has a character that a header field can't have"
        };
        let value = legal(name, &fixed).map_err(|_| place.wrong(message))?;
        Ok(Some(Self::Fixed(value)))
    }

    /// The value of the field `name` for a request; `Ok(None)`: null.
    pub(super) fn value(
        &self,
        name: &HeaderName,
        scope: &Scope<'_>,
    ) -> Result<Option<HeaderValue>, Illegal> {
        match self {
            Self::Fixed(value) => Ok(Some(value.clone())),
            Self::Evaluated(expression) => {
                let text = expression.text(scope);
                text.map(|text| legal(name, &text)).transpose()
            }
        }
    }

    pub(super) fn needs_body(&self) -> bool {
        matches!(self, Self::Evaluated(expression) if expression.needs_body())
    }
}

/// The value, if the field can have it.
pub(super) fn legal(name: &HeaderName, text: &str) -> Result<HeaderValue, Illegal> {
    // A host with an optional port and nothing else.
    let host = || Authority::try_from(text).is_ok_and(|_| !text.contains('@'));
    if *name == HOST && !host() {
        return Err(Illegal);
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| Illegal)
}

/// A field name that route files may give or take, at `place`.
pub(super) fn name(place: &Place<'_>, name: &str) -> Result<HeaderName, ConfigError> {
    let name = place.evaluated(name)?;
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| place.wrong(format!("{name:?} is no name of a header field")))?;
    if FRAMING.contains(&parsed.as_str()) {
        let message = format!(
            "{name} belongs to the connection or says where a message ends: the gateway writes \
             it itself"
        );
        return Err(place.wrong(message));
    }
    Ok(parsed)
}

/// The fields with their values that `lists` gives, in its order. `objection` is
/// what is wrong with a field that is given so many values, if anything is.
pub(super) fn sources(
    lists: &Field<'_, TextLists>,
    objection: impl Fn(&HeaderName, usize) -> Option<&'static str>,
) -> Result<Vec<(HeaderName, Source)>, ConfigError> {
    let mut sources = Vec::new();
    for (given, texts) in &lists.value {
        let place = lists.at(given);
        let name = name(&place, given)?;
        if let Some(message) = objection(&name, texts.len()) {
            return Err(place.wrong(message));
        }
        for text in texts {
            let source = Source::read(&place, &name, text)?;
            sources.extend(source.map(|source| (name.clone(), source)));
        }
    }
    Ok(sources)
}

/// Whether the gateway writes this field into every request for an upstream.
pub(super) fn is_gateways(name: &HeaderName) -> bool {
    GATEWAYS.contains(&name.as_str())
}

/// Those of `names` that the gateway writes too, each once.
pub(super) fn gateways_of<'a>(names: impl Iterator<Item = &'a HeaderName>) -> Vec<HeaderName> {
    let mut names: Vec<_> = names.filter(|name| is_gateways(name)).cloned().collect();
    names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    names
}

/// Adds a field to a request.
pub(super) fn add(
    request: &mut RequestHeader,
    exchange: &mut Exchange,
    name: &HeaderName,
    value: HeaderValue,
) {
    if is_gateways(name) {
        put_in_place(exchange, name, Some(value.clone()));
        let of_name = exchange.in_place.iter().filter(|(of, _)| of == name);
        if of_name.count() == 1 {
            // The client's own word is none of the filter's.
            request.remove_header(name);
        }
    }
    keep(request, name);
    // There is room: the fields of a request are bounded, and so are the
    // configured ones.
    let _ = request.append_header(name.clone(), value);
}

/// Notes what stands in the place of the gateway's own field `name`: another
/// value, or none.
pub(super) fn put_in_place(exchange: &mut Exchange, name: &HeaderName, value: Option<HeaderValue>) {
    let one = value.is_none() || *name == HOST;
    exchange
        .in_place
        .retain(|(of, given)| of != name || !(one || given.is_none()));
    exchange.in_place.push((name.clone(), value));
}

/// Writes what was given in the place of the gateway's fields `names`.
pub(super) fn write_in_place(names: &[HeaderName], exchange: &Exchange, fields: &mut HeaderMap) {
    for name in names {
        let of_name = || exchange.in_place.iter().filter(|(of, _)| of == name);
        let given = || of_name().filter_map(|(_, value)| value.clone());
        // A request without a Host would be none.
        if of_name().next().is_none() || (*name == HOST && given().next().is_none()) {
            continue;
        }
        fields.remove(name);
        for value in given() {
            // There is room, as in [`add`].
            let _ = fields.try_append(name, value);
        }
    }
}

/// Sees to it that a field which is added reaches the upstream: a client's
/// `Connection` that names it would take it away (RFC 9110 §7.6.1).
fn keep(request: &mut RequestHeader, name: &HeaderName) {
    let nominates = |value: &HeaderValue| {
        let mut names = value.as_bytes().split(|byte| *byte == b',');
        names.any(|one| {
            one.trim_ascii()
                .eq_ignore_ascii_case(name.as_str().as_bytes())
        })
    };
    if !request.headers.get_all(CONNECTION).iter().any(nominates) {
        return;
    }
    let kept: Vec<String> = request
        .headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|one| !one.eq_ignore_ascii_case(name.as_str()))
        .map(str::to_owned)
        .collect();
    request.remove_header(&CONNECTION);
    if !kept.is_empty() {
        let _ = request.insert_header(CONNECTION, kept.join(", "));
    }
}
