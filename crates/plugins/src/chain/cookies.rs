//! `CookieFilter`: which cookies pass between clients and upstreams.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderValue;
use http::header::{COOKIE, SET_COOKIE};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use super::ObjectLookup;
use super::object::{Field, Object, object};
use super::settings::{Reading, Settings};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

object! {
    struct Fields<'a> {
        managed: Vec<String>,
        default_action as "defaultAction": Option<String>,
        suppressed: Vec<String>,
        relayed: Vec<String>,
    }
    idle {}
}

/// Lets cookies pass or not.
struct Cookies {
    suppressed: Vec<String>,
    relayed: Vec<String>,
    /// Whether those pass that neither list names.
    relays: bool,
    warnings: Vec<String>,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(config, Cookies::read, |filter| &mut filter.warnings)
}

impl Cookies {
    fn read(settings: &Settings<'_>) -> Result<Self, ConfigError> {
        const KEEPS: &str = "would keep cookies in a session of the gateway, which keeps none";
        let fields = Fields::read(settings)?;
        let names = |field: &Field<'_, Vec<String>>| {
            let names = field.value.iter().map(|name| field.evaluated(name));
            names.collect::<Result<Vec<_>, _>>()
        };
        if !names(&fields.managed)?.is_empty() {
            let message = format!("{KEEPS}: name them in `relayed` or `suppressed`");
            return Err(fields.managed.wrong(message));
        }
        let action = &fields.default_action;
        let word = action.value.as_ref().map(|word| word.to_uppercase());
        let relays = match word.as_deref() {
            Some("RELAY") => true,
            Some("SUPPRESS") => false,
            None | Some("MANAGE") => {
                let message = format!("is MANAGE, which {KEEPS}: write RELAY or SUPPRESS");
                return Err(action.wrong(message));
            }
            Some(_) => return Err(action.wrong("expected RELAY or SUPPRESS")),
        };
        Ok(Self {
            suppressed: names(&fields.suppressed)?,
            relayed: names(&fields.relayed)?,
            relays,
            warnings: Vec::new(),
        })
    }

    /// Whether the cookie that this field begins with, or is, passes.
    fn passes(&self, cookie: &[u8]) -> bool {
        let name = cookie
            .split(|byte| *byte == b'=')
            .next()
            .unwrap_or_default();
        let name = name.trim_ascii();
        let has = |names: &[String]| {
            let mut names = names.iter();
            names.any(|one| one.as_bytes().eq_ignore_ascii_case(name))
        };
        !has(&self.suppressed) && (self.relays || has(&self.relayed))
    }
}

impl Filter for Cookies {
    fn on_request(&self, session: &mut Session, _exchange: &mut Exchange) -> Verdict {
        let request = session.req_header_mut();
        let mut changed = false;
        let mut kept = Vec::new();
        for value in request.headers.get_all(COOKIE) {
            let mut text = Vec::with_capacity(value.len());
            for cookie in value.as_bytes().split(|byte| *byte == b';') {
                let cookie = cookie.trim_ascii();
                if cookie.is_empty() {
                    continue;
                }
                if !self.passes(cookie) {
                    changed = true;
                    continue;
                }
                if !text.is_empty() {
                    text.extend_from_slice(b"; ");
                }
                text.extend_from_slice(cookie);
            }
            if !text.is_empty() {
                kept.extend(HeaderValue::from_bytes(&text));
            }
        }
        if changed {
            request.remove_header(&COOKIE);
            for value in kept {
                let _ = request.append_header(COOKIE, value);
            }
        }
        Verdict::Now(Flow::Continue)
    }

    fn on_response_to(
        &self,
        _request: &RequestHeader,
        _exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        let values = response.headers.get_all(SET_COOKIE).iter();
        let all: Vec<HeaderValue> = values.cloned().collect();
        if all.iter().all(|value| self.passes(value.as_bytes())) {
            return;
        }
        response.remove_header(&SET_COOKIE);
        for value in all.into_iter().filter(|one| self.passes(one.as_bytes())) {
            let _ = response.append_header(SET_COOKIE, value);
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
