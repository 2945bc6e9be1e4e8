//! `HeaderFilter`: takes header fields out of requests or answers, then adds
//! others.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use super::ObjectLookup;
use super::field::{self, Source, is_gateways};
use super::object::{Object, TextLists, object};
use super::settings::{Reading, Settings};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

object! {
    struct Fields<'a> {
        message_type as "messageType": String,
        remove: Vec<String>,
        add: TextLists,
    }
    idle {}
}

/// Changes header fields.
struct HeaderFilter {
    of_request: bool,
    removed: Vec<HeaderName>,
    added: Vec<(HeaderName, Source)>,
    /// Those of `removed` and `added` that the gateway writes too.
    in_place: Vec<HeaderName>,
    /// Values that no header field can have: dropped.
    illegal: Counter,
    warnings: Vec<String>,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(
        config,
        |settings| HeaderFilter::read(settings, parts),
        |filter| &mut filter.warnings,
    )
}

impl HeaderFilter {
    fn read(settings: &Settings<'_>, parts: &Parts) -> Result<Self, ConfigError> {
        let fields = Fields::read(settings)?;
        let message_type = &fields.message_type;
        let of_request = match message_type.value.to_uppercase().as_str() {
            "REQUEST" => true,
            "RESPONSE" => false,
            _ => return Err(message_type.wrong("expected REQUEST or RESPONSE")),
        };
        let remove = &fields.remove;
        let removed = remove
            .value
            .iter()
            .map(|name| field::name(remove, name))
            .collect::<Result<Vec<_>, _>>()?;
        let added = field::sources(&fields.add, |name, given| {
            let unclear = of_request && *name == HOST && (given != 1 || !removed.contains(&HOST));
            unclear.then_some("a request has one Host: name it in `remove` too, and give one value")
        })?;
        if removed.is_empty() && added.is_empty() {
            fields
                .add
                .warn("and remove are empty: the filter does nothing");
        }
        let names = removed.iter().chain(added.iter().map(|(name, _)| name));
        let in_place = field::gateways_of(names.filter(|_| of_request));
        Ok(Self {
            of_request,
            removed,
            added,
            in_place,
            illegal: parts.metrics.decision("HeaderFilter", "illegal_value"),
            warnings: Vec::new(),
        })
    }

    fn change_request(&self, request: &mut RequestHeader, exchange: &mut Exchange) {
        for name in &self.removed {
            request.remove_header(name);
            if is_gateways(name) {
                field::put_in_place(exchange, name, None);
            }
        }
        self.remove_twins(request);
        for (name, source) in &self.added {
            let value = source.value(name, &exchange.scope(request));
            if let Some(value) = value.unwrap_or_else(|_| self.drop_illegal()) {
                field::add(request, exchange, name, value);
            }
        }
    }

    /// A client's `X_User` is `X-User` to many upstreams: what is taken out is
    /// taken out in both spellings.
    fn remove_twins(&self, request: &mut RequestHeader) {
        let twin = |name: &&HeaderName| name.as_str().as_bytes().contains(&b'_');
        if request.headers.keys().find(twin).is_none() {
            return;
        }
        let doomed: Vec<HeaderName> = request
            .headers
            .keys()
            .filter(twin)
            .filter(|name| {
                let dashed = name.as_str().replace('_', "-");
                self.removed.iter().any(|one| one.as_str() == dashed)
            })
            .cloned()
            .collect();
        for name in doomed {
            request.remove_header(&name);
        }
    }

    fn drop_illegal(&self) -> Option<HeaderValue> {
        self.illegal.inc();
        None
    }
}

impl Filter for HeaderFilter {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.of_request {
            self.change_request(session.req_header_mut(), exchange);
        }
        Verdict::Now(Flow::Continue)
    }

    fn needs_body(&self) -> bool {
        self.added.iter().any(|(_, source)| source.needs_body())
    }

    /// Puts what was given in place of the gateway's own fields there.
    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        field::write_in_place(&self.in_place, exchange, request.fields());
    }

    fn on_response_to(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        if self.of_request {
            return;
        }
        for name in &self.removed {
            response.remove_header(name);
        }
        for (name, source) in &self.added {
            let value = source.value(name, &exchange.scope_with_response(request, response));
            if let Some(value) = value.unwrap_or_else(|_| self.drop_illegal()) {
                let _ = response.append_header(name.clone(), value);
            }
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
