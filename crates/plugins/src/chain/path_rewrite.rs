//! `UriPathRewriteFilter`: the beginning of a path is another one at the
//! upstream, and back in its redirects.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::{CONTENT_LOCATION, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, Uri};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use super::object::{AnyValue, Object, object};
use super::settings::{Reading, Settings};
use super::{ObjectLookup, origin};
use doorward_net::http::path::with_path_and_query;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

/// Most mappings of a filter.
const MAX_MAPPINGS: usize = 1000;

object! {
    struct Fields<'a> {
        /// Paths to paths.
        mappings: AnyValue,
    }
    idle {
        "failureHandler": "every path that is rewritten is one",
    }
}

/// Rewrites paths.
struct PathRewrite {
    /// What a path begins with and what it begins with at the upstream, the
    /// longest first; none ends in `/`.
    there: Vec<(String, String)>,
    /// The other way round.
    back: Vec<(String, String)>,
    warnings: Vec<String>,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(config, PathRewrite::read, |filter| &mut filter.warnings)
}

impl PathRewrite {
    fn read(settings: &Settings<'_>) -> Result<Self, ConfigError> {
        let field = Fields::read(settings)?.mappings;
        let mappings = match field.value() {
            Some(Value::Object(mappings)) if !mappings.is_empty() => mappings,
            _ => return Err(field.wrong("is required: an object of paths")),
        };
        if mappings.len() > MAX_MAPPINGS {
            let message = format!("has more than {MAX_MAPPINGS} entries");
            return Err(field.wrong(message));
        }
        let mut there: Vec<(String, String)> = Vec::with_capacity(mappings.len());
        for (from, to) in mappings {
            let place = field.at(from);
            let path = |text: &str| {
                let text = place.evaluated(text)?;
                let good = text.starts_with('/')
                    && !text.starts_with("//")
                    && !text.contains(['?', '#'])
                    && PathAndQuery::try_from(text.as_str()).is_ok();
                if good {
                    Ok(text.trim_end_matches('/').to_owned())
                } else {
                    Err(place.wrong("must map a path to a path: `/a`: `/b`"))
                }
            };
            let from = path(from)?;
            let to = path(to.as_str().unwrap_or_default())?;
            if there.iter().any(|(known, _)| *known == from) {
                return Err(place.wrong("is the same path as one before it"));
            }
            there.push((from, to));
        }
        let swapped = there.iter().map(|(from, to)| (to.clone(), from.clone()));
        let mut back: Vec<(String, String)> = swapped.collect();
        for list in [&mut there, &mut back] {
            list.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        }
        Ok(Self {
            there,
            back,
            warnings: Vec::new(),
        })
    }

    /// What a redirect of the upstream says to the client; `None`: the same.
    fn returned(
        &self,
        value: &HeaderValue,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> Option<HeaderValue> {
        let text = value.to_str().ok()?;
        let said = if text.starts_with('/') && !text.starts_with("//") {
            let end = text.find(['?', '#']).unwrap_or(text.len());
            let (path, rest) = text.split_at(end);
            format!("{}{rest}", rewritten(&self.back, path)?)
        } else {
            let mut url = origin::http_url(text)?;
            if !origin::is_own(&url, request, exchange) {
                return None;
            }
            let path = rewritten(&self.back, url.path())?;
            url.set_path(&path);
            url.into()
        };
        HeaderValue::try_from(said).ok()
    }
}

/// The path that takes the place of `path`; `None`: no mapping is about it.
fn rewritten(mappings: &[(String, String)], path: &str) -> Option<String> {
    mappings.iter().find_map(|(from, to)| {
        let rest = path.strip_prefix(from.as_str())?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return None;
        }
        if to.is_empty() && rest.is_empty() {
            Some("/".to_owned())
        } else {
            Some(format!("{to}{rest}"))
        }
    })
}

/// `uri` with another path.
pub(super) fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    with_path_and_query(uri, &target)
}

impl Filter for PathRewrite {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header_mut();
        let Some(path) = rewritten(&self.there, request.uri.path()) else {
            return Verdict::Now(Flow::Continue);
        };
        let Some(uri) = with_path(&request.uri, &path) else {
            // What was left of the path would begin a host, `//`.
            exchange.refusal = Some("bad_path".into());
            return Verdict::Now(Flow::Respond(Reply::empty(StatusCode::BAD_REQUEST)));
        };
        exchange.keep_original(request);
        request.set_uri(uri);
        Verdict::Now(Flow::Continue)
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let value = response.headers.get(&name);
            if let Some(value) = value.and_then(|value| self.returned(value, request, exchange)) {
                let _ = response.insert_header(name, value);
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
