//! The plugins that trace: requests carry a trace's context on, and spans go to
//! Zipkin (`zipkin`) or over OTLP (`opentelemetry`).
//!
//! `context` has the formats of headers, `propagation` which of them are read and
//! written.

mod context;
mod ids;
pub(crate) mod opentelemetry;
mod propagation;
mod spans;
#[cfg(test)]
mod tests;
pub(crate) mod zipkin;

use std::borrow::Cow;

use http::HeaderMap;
use pingora::http::RequestHeader;

use context::{Format, TraceContext};
use doorward_core::hex;
use doorward_core::model::schema::Type;
use doorward_plugin_api::filter::Exchange;
use ids::random_ids;
use propagation::{Formats, Propagation};

/// The trace of a request, as one plugin sees it.
#[derive(Debug)]
pub(crate) struct Trace {
    plugin: &'static str,
    context: TraceContext,
    /// Whether spans of it are kept.
    sampled: bool,
    /// The span of the request here.
    root: [u8; 8],
    /// What that one is below.
    parent: Option<[u8; 8]>,
    /// The span of the request to the upstream.
    proxy: [u8; 8],
    /// The formats that it goes on in.
    formats: Formats,
}

impl Trace {
    /// The names of formats, and the trace's id in each.
    pub(crate) fn ids(&self) -> Vec<(&'static str, String)> {
        let formats = self.formats.iter();
        formats
            .map(|format| (format.name(), self.context.id_text(*format)))
            .collect()
    }
}

/// What a timeout in milliseconds may be.
const MILLIS: Type = Type::Integer(0, 2_147_483_646);

/// How new traces begin.
#[derive(Debug, Clone, Copy)]
struct Beginning {
    /// Bytes of new ids.
    id_size: usize,
    /// The share of requests that are sampled, where nobody has decided.
    ratio: f64,
    /// Whether a caller who samples decides for all; one who does not always does.
    is_final: bool,
    /// Whether the request has the caller's span, where the format allows it.
    shares_spans: bool,
}

/// Takes up the trace of a request, or begins one.
fn begin(
    plugin: &'static str,
    propagation: &Propagation,
    beginning: Beginning,
    request: &RequestHeader,
) -> Trace {
    begin_from(plugin, propagation, beginning, &request.headers)
}

/// The same, of a request's headers.
fn begin_from(
    plugin: &'static str,
    propagation: &Propagation,
    beginning: Beginning,
    headers: &HeaderMap,
) -> Trace {
    let mut context = propagation.extract(headers).unwrap_or_default();
    // Drawn at once, also where the trace has its id.
    let (id, own, proxy) = random_ids();
    if context.trace_id.is_none() {
        context.begin(id, beginning.id_size);
    }
    let (root, parent) = match context.span_id {
        Some(span) if beginning.shares_spans && context.shares_span => (span, context.parent_id),
        span => (own, span),
    };
    let chosen = || share(&context) < beginning.ratio;
    let sampled = match context.sampled {
        Some(true) if beginning.is_final => true,
        Some(false) => false,
        _ => chosen(),
    };
    Trace {
        plugin,
        sampled,
        root,
        parent,
        proxy,
        formats: propagation.formats(&context),
        context,
    }
}

/// A number from 0 up to 1 that is the same for all requests of a trace.
fn share(context: &TraceContext) -> f64 {
    let id = context.trace_id.map_or([0; 16], |(id, _)| id);
    let [.., a, b, c, d] = id;
    f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
}

/// The trace that a plugin has noted.
fn noted<'a>(plugin: &'static str, exchange: &'a Exchange) -> Option<&'a Trace> {
    traces(exchange).find(|trace| trace.plugin == plugin)
}

/// The identifier of the trace that a request belongs to, for the access log: what a
/// plugin has noted, else what `traceparent` names (W3C Trace Context §3.2).
pub fn trace_id<'a>(exchange: &'a Exchange, headers: &HeaderMap) -> Option<Cow<'a, str>> {
    let noted = traces(exchange).find_map(|trace| trace.context.trace_id);
    let id = noted.or_else(|| Format::W3c.extract(headers)?.trace_id);
    id.map(|(id, _)| hex::encode(id).into())
}

/// The traces of all plugins.
pub(crate) fn traces(exchange: &Exchange) -> impl Iterator<Item = &Trace> {
    let notes = exchange.notes.iter();
    notes.filter_map(|note| note.downcast_ref::<Trace>())
}
