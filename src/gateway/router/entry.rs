//! One way to match a route: its attributes with one of its paths.

use std::cmp::Ordering;

use http::{HeaderMap, HeaderName, Method};
use regex::{Regex, RegexBuilder};
use uuid::Uuid;

use super::{Query, RouteError};
use crate::model::route::Route;

/// A route with at most one of its paths.
#[derive(Debug)]
pub(super) struct Entry {
    /// Position of the route.
    pub(super) route: u32,
    /// Bits of [`known_method`]; 0: any method.
    methods: u16,
    path: PathRule,
    /// What few routes ask for.
    extra: Option<Box<Extra>>,
}

#[derive(Debug)]
enum PathRule {
    Any,
    Prefix(Box<str>),
    /// The expression, and the literal text that every match begins with.
    Regex(Box<(Regex, Box<str>)>),
}

#[derive(Debug, Default)]
struct Extra {
    methods: Box<[Method]>,
    headers: Box<[(HeaderName, HeaderRule)]>,
}

#[derive(Debug)]
enum HeaderRule {
    /// One of these, in lower case.
    OneOf(Box<[Box<str>]>),
    Regex(Regex),
}

/// An entry before it has its place in the order.
pub(super) struct Draft<'a> {
    pub(super) precedence: Precedence,
    pub(super) hosts: &'a [String],
    pub(super) entry: Entry,
}

/// Greater wins. The fields are compared in the order in which they stand
/// (gateway-admin-api, routing, `traditional_compatible`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence {
    kinds: u8,
    plain_hosts: bool,
    headers: usize,
    regex: bool,
    regex_priority: i64,
    path_length: usize,
    id: Uuid,
}

type Compile<'c> = dyn FnMut(&str) -> Result<Regex, String> + 'c;

/// Appends the entries of `route`: one for each path, or a single one.
pub(super) fn drafts<'a>(
    position: usize,
    route: &'a Route,
    compile: &mut Compile<'_>,
    out: &mut Vec<Draft<'a>>,
) -> Result<(), RouteError> {
    let error = |field: String, message: String| RouteError {
        route: position,
        field,
        message,
    };
    let paths = route.paths.as_deref().unwrap_or_default();
    let rules: Vec<PathRule> = match paths {
        [] => vec![PathRule::Any],
        paths => paths
            .iter()
            .enumerate()
            .map(|(i, path)| {
                path_rule(path, compile).map_err(|m| error(format!("paths.{}", i + 1), m))
            })
            .collect::<Result<_, _>>()?,
    };
    for path in rules {
        let extra = extra(route, compile).map_err(|(field, message)| error(field, message))?;
        out.push(Draft {
            precedence: precedence(route, &path),
            hosts: route.hosts.as_deref().unwrap_or_default(),
            entry: Entry {
                route: u32::try_from(position).expect("fewer than 2^32 routes"),
                methods: method_mask(route),
                path,
                extra,
            },
        });
    }
    Ok(())
}

fn precedence(route: &Route, path: &PathRule) -> Precedence {
    fn has<T>(list: Option<&[T]>) -> u8 {
        u8::from(list.is_some_and(|list| !list.is_empty()))
    }
    let hosts = route.hosts.as_deref().unwrap_or_default();
    let headers = route.headers.as_ref().map_or(0, |headers| headers.len());
    let regex = matches!(path, PathRule::Regex(_));
    Precedence {
        kinds: has(route.methods.as_deref())
            + has(route.hosts.as_deref())
            + u8::from(headers > 0)
            + has(route.paths.as_deref())
            + has(route.snis.as_deref()),
        plain_hosts: !hosts.is_empty() && !hosts.iter().any(|host| host.contains('*')),
        headers,
        regex,
        regex_priority: if regex { route.regex_priority } else { 0 },
        path_length: match path {
            PathRule::Prefix(prefix) => prefix.len(),
            _ => 0,
        },
        id: route.id,
    }
}

fn path_rule(path: &str, compile: &mut Compile<'_>) -> Result<PathRule, String> {
    match path.strip_prefix('~') {
        None => Ok(PathRule::Prefix(path.into())),
        Some(pattern) => Ok(PathRule::Regex(Box::new((
            compile(&format!("^(?:{pattern})"))?,
            literal_prefix(pattern).into(),
        )))),
    }
}

/// Compiles a pattern of a route, within bounds on its size.
pub(super) fn compile_regex(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .dfa_size_limit(1 << 20)
        .nest_limit(64)
        .build()
        .map_err(|e| format!("invalid regex: {}", last_line(&e.to_string())))
}

fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message).trim()
}

/// The text that every match of `pattern` begins with; may be empty.
fn literal_prefix(pattern: &str) -> &str {
    if pattern.contains('|') || pattern.contains("(?") {
        return "";
    }
    let end = pattern
        .find(|c: char| !(c.is_ascii_alphanumeric() || "/-_~%".contains(c)))
        .unwrap_or(pattern.len());
    match pattern[end..].chars().next() {
        // The last character may be repeated zero times.
        Some('?' | '*' | '{') => &pattern[..end.saturating_sub(1)],
        _ => &pattern[..end],
    }
}

fn extra(route: &Route, compile: &mut Compile<'_>) -> Result<Option<Box<Extra>>, (String, String)> {
    let mut extra = Extra::default();
    let unknown: Vec<Method> = route
        .methods
        .iter()
        .flatten()
        .filter(|method| known_method(method.as_bytes()) == 0)
        .filter_map(|method| Method::from_bytes(method.as_bytes()).ok())
        .collect();
    extra.methods = unknown.into();
    let mut headers = Vec::new();
    for (name, values) in route.headers.iter().flatten() {
        let field = || format!("headers.{name}");
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| (field(), "invalid header name".to_owned()))?;
        let rule = match values.as_slice() {
            [one] if one.starts_with("~*") => {
                HeaderRule::Regex(compile(&format!("(?i){}", &one[2..])).map_err(|m| (field(), m))?)
            }
            many => HeaderRule::OneOf(many.iter().map(|v| v.to_lowercase().into()).collect()),
        };
        headers.push((parsed, rule));
    }
    extra.headers = headers.into();
    if route.snis.as_ref().is_some_and(|snis| !snis.is_empty()) {
        let message = "matching by server name is not supported yet".to_owned();
        return Err(("snis".to_owned(), message));
    }
    let empty = extra.methods.is_empty() && extra.headers.is_empty();
    Ok((!empty).then(|| Box::new(extra)))
}

/// The bit of a method that has one, else 0.
fn known_method(method: &[u8]) -> u16 {
    match method {
        b"GET" => 1,
        b"POST" => 2,
        b"PUT" => 4,
        b"DELETE" => 8,
        b"PATCH" => 16,
        b"HEAD" => 32,
        b"OPTIONS" => 64,
        b"CONNECT" => 128,
        b"TRACE" => 256,
        _ => 0,
    }
}

/// All bits of the route's methods. A route with other methods only gets a
/// bit that no request has.
fn method_mask(route: &Route) -> u16 {
    let methods = route.methods.as_deref().unwrap_or_default();
    let mask = methods
        .iter()
        .fold(0, |mask, method| mask | known_method(method.as_bytes()));
    if mask == 0 && !methods.is_empty() {
        return 1 << 15;
    }
    mask
}

impl Entry {
    /// Where the tree keeps this entry: every path that can match begins so.
    pub(super) fn literal(&self) -> &str {
        match &self.path {
            PathRule::Any => "",
            PathRule::Prefix(prefix) => prefix,
            PathRule::Regex(regex) => &regex.1,
        }
    }

    /// The length of the matched path prefix, if all but the host matches.
    /// `walked`: the path is known to begin with [`Entry::literal`].
    pub(super) fn matches(&self, query: &Query<'_>, walked: bool) -> Option<usize> {
        let by_bit =
            self.methods == 0 || self.methods & known_method(query.method.as_str().as_bytes()) != 0;
        if !by_bit
            && self
                .extra
                .as_ref()
                .is_none_or(|e| !e.methods.contains(query.method))
        {
            return None;
        }
        let matched = match &self.path {
            PathRule::Any => 0,
            PathRule::Prefix(prefix) => {
                if !walked && !query.path.as_bytes().starts_with(prefix.as_bytes()) {
                    return None;
                }
                prefix.len()
            }
            PathRule::Regex(regex) => regex.0.find(query.path)?.end(),
        };
        match &self.extra {
            Some(extra) if !extra.matches(query) => None,
            _ => Some(matched),
        }
    }
}

impl Extra {
    fn matches(&self, query: &Query<'_>) -> bool {
        self.headers
            .iter()
            .all(|(name, rule)| rule.matches(query.headers, name))
    }
}

impl HeaderRule {
    fn matches(&self, headers: &HeaderMap, name: &HeaderName) -> bool {
        headers.get_all(name).iter().any(|value| {
            let Ok(value) = value.to_str() else {
                return false;
            };
            match self {
                HeaderRule::Regex(regex) => regex.is_match(value),
                HeaderRule::OneOf(values) => values
                    .iter()
                    .any(|own| own.as_ref().cmp(value.to_lowercase().as_str()) == Ordering::Equal),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::literal_prefix;

    #[test]
    fn the_literal_prefix_never_says_too_much() {
        assert_eq!(literal_prefix("/foo/bar$"), "/foo/bar");
        assert_eq!(literal_prefix("/foo?"), "/fo");
        assert_eq!(literal_prefix("/foo{2}"), "/fo");
        assert_eq!(literal_prefix("/foo(bar)?"), "/foo");
        assert_eq!(literal_prefix("/a|/b"), "");
        assert_eq!(literal_prefix("(?i)/a"), "");
        assert_eq!(literal_prefix("/a.b"), "/a");
        assert_eq!(literal_prefix("/a\\.b"), "/a");
        assert_eq!(literal_prefix(""), "");
    }
}
