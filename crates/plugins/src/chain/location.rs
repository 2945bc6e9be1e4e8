//! `LocationHeaderFilter`: redirects of an upstream to itself lead to the
//! gateway.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderValue;
use http::header::{HOST, LOCATION};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use url::{Position, Url};

use super::object::{Object, object};
use super::settings::{Reading, Settings};
use super::{ObjectLookup, origin};
use doorward_expr::Expression;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

object! {
    struct Fields<'a> {
        base_uri as "baseURI": Option<Expression>,
    }
    idle {}
}

/// Rewrites redirects.
struct LocationHeader {
    /// Where the gateway is; `None`: where the client asked.
    base: Option<Expression>,
    warnings: Vec<String>,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(config, LocationHeader::read, |filter| &mut filter.warnings)
}

impl LocationHeader {
    fn read(settings: &Settings<'_>) -> Result<Self, ConfigError> {
        let base = Fields::read(settings)?.base_uri;
        if let Some(fixed) = base.value.as_ref().and_then(Expression::constant)
            && !matches!(&fixed, doorward_expr::Value::Text(text) if origin::http_url(text).is_some())
        {
            return Err(base.wrong("must be an http or https URL"));
        }
        Ok(Self {
            base: base.value,
            warnings: Vec::new(),
        })
    }

    /// Scheme, host and port that take the place of the upstream's.
    fn base(&self, request: &RequestHeader, exchange: &Exchange) -> Option<Url> {
        if let Some(base) = &self.base {
            return origin::http_url(&base.text(&exchange.scope(request))?);
        }
        let original = exchange.original.as_ref();
        let authority = original.and_then(|original| original.uri.authority());
        let host = match authority {
            Some(authority) => authority.as_str(),
            None => request.headers.get(HOST)?.to_str().ok()?,
        };
        let scheme = if exchange.secure { "https" } else { "http" };
        origin::http_url(&format!("{scheme}://{host}/"))
    }

    fn said(
        &self,
        value: &HeaderValue,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> Option<HeaderValue> {
        let url = origin::http_url(value.to_str().ok()?)?;
        if !origin::is_own(&url, request, exchange) {
            return None;
        }
        let base = self.base(request, exchange)?;
        let text = format!(
            "{}{}",
            &base[..Position::BeforePath],
            &url[Position::BeforePath..]
        );
        HeaderValue::try_from(text).ok()
    }
}

impl Filter for LocationHeader {
    fn on_request(&self, _session: &mut Session, _exchange: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    fn needs_body(&self) -> bool {
        self.base.as_ref().is_some_and(Expression::needs_body)
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        let value = response.headers.get(LOCATION);
        if let Some(value) = value.and_then(|value| self.said(value, request, exchange)) {
            let _ = response.insert_header(LOCATION, value);
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
