//! The context of a trace, and the headers in which it travels.
//!
//! A header that is not of its format is treated as absent: it comes from anybody.

use http::{HeaderMap, HeaderName, HeaderValue};

use doorward_core::hex;
use doorward_plugin_api::words;

words! {
    /// A format of headers.
    pub(super) enum Format {
        /// `traceparent` and `tracestate`.
        W3c = "w3c",
        /// Datadog's own headers.
        Datadog = "datadog",
        /// Headers of Zipkin, one for each part.
        B3 = "b3",
        /// Google's own header.
        Gcp = "gcp",
        /// The one header `b3` of Zipkin.
        B3Single = "b3-single",
        /// `uber-trace-id`.
        Jaeger = "jaeger",
        /// Amazon's own header.
        Aws = "aws",
        /// Headers of OpenTracing.
        Ot = "ot",
    }
}

/// What is known of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TraceContext {
    /// The id, filled with zeros on the left, and how many bytes of it were given.
    pub(super) trace_id: Option<([u8; 16], usize)>,
    /// The caller's span.
    pub(super) span_id: Option<[u8; 8]>,
    /// What that one is below, where the format names it. In such a format both sides of
    /// a request may have one span.
    pub(super) parent_id: Option<[u8; 8]>,
    /// Whether it is such a format.
    pub(super) shares_span: bool,
    /// What the caller or somebody before has decided.
    pub(super) sampled: Option<bool>,
    /// Whether the decision was made for debugging.
    pub(super) debug: bool,
    /// The format that it came in.
    pub(super) format: Option<Format>,
}

/// The spans that an outgoing header names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) span: [u8; 8],
    pub(super) parent: [u8; 8],
    pub(super) sampled: bool,
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const B3: HeaderName = HeaderName::from_static("b3");
const B3_TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
const B3_SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
const B3_PARENT: HeaderName = HeaderName::from_static("x-b3-parentspanid");
const B3_SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
const B3_FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");
const JAEGER: HeaderName = HeaderName::from_static("uber-trace-id");
const OT_TRACE: HeaderName = HeaderName::from_static("ot-tracer-traceid");
const OT_SPAN: HeaderName = HeaderName::from_static("ot-tracer-spanid");
const OT_SAMPLED: HeaderName = HeaderName::from_static("ot-tracer-sampled");
const DATADOG_TRACE: HeaderName = HeaderName::from_static("x-datadog-trace-id");
const DATADOG_PARENT: HeaderName = HeaderName::from_static("x-datadog-parent-id");
const DATADOG_SAMPLED: HeaderName = HeaderName::from_static("x-datadog-sampling-priority");
const AWS: HeaderName = HeaderName::from_static("x-amzn-trace-id");
const GCP: HeaderName = HeaderName::from_static("x-cloud-trace-context");

/// Whether a header of this name belongs to a format.
pub(super) fn is_of_trace(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Most headers end here.
    if !matches!(
        name.as_bytes().first(),
        Some(b't' | b'b' | b'x' | b'u' | b'o')
    ) {
        return false;
    }
    matches!(
        name,
        "traceparent"
            | "tracestate"
            | "b3"
            | "x-b3-traceid"
            | "x-b3-spanid"
            | "x-b3-parentspanid"
            | "x-b3-sampled"
            | "x-b3-flags"
            | "uber-trace-id"
            | "ot-tracer-traceid"
            | "ot-tracer-spanid"
            | "ot-tracer-sampled"
            | "x-datadog-trace-id"
            | "x-datadog-parent-id"
            | "x-datadog-sampling-priority"
            | "x-amzn-trace-id"
            | "x-cloud-trace-context"
    )
}

/// Hexadecimal digits as bytes, with zeros on the left; at least `least` digits.
fn bytes<const N: usize>(text: &str, least: usize) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() < least || digits.len() > 2 * N || digits.is_empty() {
        return None;
    }
    let mut all = [0; N];
    for (i, digit) in digits.iter().rev().enumerate() {
        let value = char::from(*digit).to_digit(16)?;
        let value = u8::try_from(value).ok()?;
        all[N - 1 - i / 2] |= value << (4 * (i % 2));
    }
    all.iter().any(|byte| *byte != 0).then_some(all)
}

/// The id of a trace: exactly 16 or 32 digits.
fn trace_id(text: &str) -> Option<([u8; 16], usize)> {
    match text.len() {
        16 | 32 => Some((bytes(text, 16)?, text.len() / 2)),
        _ => None,
    }
}

/// The id of a span: exactly 16 digits.
fn span_id(text: &str) -> Option<[u8; 8]> {
    bytes(text, 16)
}

fn decision(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

impl Format {
    /// What log records call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::W3c => "w3c",
            Self::B3 | Self::B3Single => "b3",
            Self::Jaeger => "jaeger",
            Self::Ot => "ot",
            Self::Datadog => "datadog",
            Self::Aws => "aws",
            Self::Gcp => "gcp",
        }
    }

    /// What these headers say in this format.
    pub(super) fn extract(self, headers: &HeaderMap) -> Option<TraceContext> {
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
        let context = match self {
            Self::W3c => w3c(text(&TRACEPARENT)?),
            Self::B3 | Self::B3Single => return b3(headers),
            Self::Jaeger => jaeger(&text(&JAEGER)?.replace("%3A", ":").replace("%3a", ":")),
            Self::Ot => Some(TraceContext {
                trace_id: Some(trace_id(text(&OT_TRACE)?)?),
                span_id: Some(span_id(text(&OT_SPAN)?)?),
                sampled: text(&OT_SAMPLED).and_then(decision),
                ..TraceContext::default()
            }),
            Self::Datadog => {
                let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n != 0);
                let trace = number(text(&DATADOG_TRACE)?)?;
                let priority = text(&DATADOG_SAMPLED).and_then(|text| text.parse::<i8>().ok());
                Some(TraceContext {
                    trace_id: Some((u128::from(trace).to_be_bytes(), 8)),
                    span_id: text(&DATADOG_PARENT).and_then(number).map(u64::to_be_bytes),
                    sampled: priority.map(|priority| priority > 0),
                    ..TraceContext::default()
                })
            }
            Self::Aws => aws(text(&AWS)?),
            Self::Gcp => gcp(text(&GCP)?),
        };
        let format = Some(self);
        context.map(|context| TraceContext { format, ..context })
    }

    /// Writes the context in this format.
    pub(super) fn inject(self, context: &TraceContext, out: Outgoing, headers: &mut HeaderMap) {
        let Some((id, _)) = context.trace_id else {
            return;
        };
        // Names and values of a message.
        let mut put = |name: &HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name.clone(), value);
            }
        };
        let sized = || context.id_text(self);
        let (span, parent) = (|| hex::encode(out.span), || hex::encode(out.parent));
        let bit = u8::from(out.sampled);
        let span_number = u64::from_be_bytes(out.span);
        match self {
            Self::W3c => {
                headers.insert(TRACEPARENT, traceparent(&id, out));
            }
            Self::B3 => {
                put(&B3_TRACE, sized());
                put(&B3_SPAN, span());
                put(&B3_PARENT, parent());
                if context.debug {
                    put(&B3_FLAGS, "1".to_owned());
                } else {
                    put(&B3_SAMPLED, bit.to_string());
                }
            }
            Self::B3Single => {
                let state = if context.debug {
                    "d".to_owned()
                } else {
                    bit.to_string()
                };
                put(&B3, format!("{}-{}-{state}-{}", sized(), span(), parent()));
            }
            Self::Jaeger => put(
                &JAEGER,
                format!("{}:{}:{}:0{bit}", sized(), span(), parent()),
            ),
            Self::Ot => {
                put(&OT_TRACE, sized());
                put(&OT_SPAN, span());
                put(&OT_SAMPLED, bit.to_string());
            }
            Self::Datadog => {
                put(&DATADOG_TRACE, sized());
                put(&DATADOG_PARENT, span_number.to_string());
                put(&DATADOG_SAMPLED, bit.to_string());
            }
            Self::Aws => put(&AWS, format!("{};Parent={};Sampled={bit}", sized(), span())),
            Self::Gcp => put(&GCP, format!("{}/{span_number};o={bit}", sized())),
        }
    }
}

impl TraceContext {
    /// Begins a trace with this id, of which so many bytes count; what was decided stays.
    pub(super) fn begin(&mut self, mut id: [u8; 16], size: usize) {
        if size < 16 {
            id[..8].fill(0);
        }
        self.trace_id = Some((id, size));
        self.span_id = None;
        self.shares_span = false;
    }

    /// The id as this format writes it.
    pub(super) fn id_text(&self, format: Format) -> String {
        let Some((id, size)) = self.trace_id else {
            return String::new();
        };
        let whole = hex::encode(id);
        match format {
            Format::W3c | Format::Gcp => whole,
            Format::B3 | Format::B3Single | Format::Jaeger | Format::Ot => {
                hex::encode(&id[16 - size.clamp(8, 16)..])
            }
            Format::Datadog => {
                let [.., a, b, c, d, e, f, g, h] = id;
                u64::from_be_bytes([a, b, c, d, e, f, g, h]).to_string()
            }
            Format::Aws => format!("Root=1-{}-{}", &whole[..8], &whole[8..]),
        }
    }
}

/// `00-TRACE-SPAN-FLAGS` (Trace Context, §3.2).
fn w3c(text: &str) -> Option<TraceContext> {
    let mut parts = text.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let flags = parts.next()?;
    if version != "00" || trace.len() != 32 || flags.len() != 2 || parts.next().is_some() {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some(TraceContext {
        trace_id: Some(trace_id(trace)?),
        span_id: Some(span_id(span)?),
        sampled: Some(flags & 1 == 1),
        ..TraceContext::default()
    })
}

/// The same, as it goes on. It is written in place, since each request has one.
fn traceparent(id: &[u8; 16], out: Outgoing) -> HeaderValue {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    hex::write(id, &mut text[3..35]);
    hex::write(&out.span, &mut text[36..52]);
    text[54] = b'0' + u8::from(out.sampled);
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// One header, the member of a `tracestate`, or a header for each value.
fn b3(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let member = || {
        let members = text(&TRACESTATE)?.split(',');
        members
            .filter_map(|one| one.trim().strip_prefix("b3="))
            .next()
    };
    if let Some(context) = text(&B3).or_else(member).and_then(b3_single) {
        return Some(context);
    }
    let debug = text(&B3_FLAGS) == Some("1");
    let sampled = text(&B3_SAMPLED).and_then(decision);
    let sampled = sampled.or(debug.then_some(true));
    let trace = text(&B3_TRACE).and_then(trace_id);
    let span = text(&B3_SPAN).and_then(span_id);
    let parent = text(&B3_PARENT).and_then(span_id);
    if trace.is_none() && sampled.is_none() {
        return None;
    }
    Some(TraceContext {
        trace_id: trace,
        span_id: span.filter(|_| trace.is_some()),
        parent_id: parent,
        shares_span: true,
        sampled,
        debug,
        format: Some(Format::B3),
    })
}

/// `TRACE-SPAN[-STATE[-PARENT]]`, or `STATE` alone.
fn b3_single(text: &str) -> Option<TraceContext> {
    let state = |text: &str| match text {
        "0" => Some((false, false)),
        "1" => Some((true, false)),
        "d" => Some((true, true)),
        _ => None,
    };
    let format = Some(Format::B3Single);
    if let Some((sampled, debug)) = state(text) {
        return Some(TraceContext {
            sampled: Some(sampled),
            debug,
            format,
            ..TraceContext::default()
        });
    }
    let mut parts = text.split('-');
    let (trace, span) = (trace_id(parts.next()?)?, span_id(parts.next()?)?);
    let state = parts.next().map(|text| state(text).ok_or(()));
    let state = state.transpose().ok()?;
    let parent_id = match parts.next() {
        Some(parent) => Some(span_id(parent)?),
        None => None,
    };
    if parts.next().is_some() {
        return None;
    }
    Some(TraceContext {
        trace_id: Some(trace),
        span_id: Some(span),
        parent_id,
        shares_span: true,
        sampled: state.map(|(sampled, _)| sampled),
        debug: state.is_some_and(|(_, debug)| debug),
        format,
    })
}

/// `TRACE:SPAN:PARENT:FLAGS`.
fn jaeger(text: &str) -> Option<TraceContext> {
    let mut parts = text.split(':');
    let (trace, span) = (parts.next()?, parts.next()?);
    let (parent, flags) = (parts.next()?, parts.next()?);
    if parts.next().is_some() || flags.len() > 2 {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    let size = if trace.len() <= 16 { 8 } else { 16 };
    Some(TraceContext {
        trace_id: Some((bytes(trace, 1)?, size)),
        span_id: Some(bytes(span, 1)?),
        // The first span of a trace writes 0.
        parent_id: bytes(parent, 1),
        shares_span: true,
        sampled: Some(flags & 1 == 1),
        debug: flags & 2 == 2,
        ..TraceContext::default()
    })
}

/// `Root=1-EPOCH-REST;Parent=SPAN;Sampled=0`.
fn aws(text: &str) -> Option<TraceContext> {
    let mut context = TraceContext::default();
    for part in text.split(';') {
        match part.trim().split_once('=')? {
            ("Root", root) => {
                let (epoch, rest) = root.strip_prefix("1-")?.split_once('-')?;
                let whole =
                    (epoch.len() == 8 && rest.len() == 24).then(|| format!("{epoch}{rest}"));
                context.trace_id = Some(trace_id(&whole?)?);
            }
            ("Parent", parent) => context.span_id = Some(span_id(parent)?),
            ("Sampled", sampled) => context.sampled = decision(sampled),
            _ => {}
        }
    }
    context.trace_id.is_some().then_some(context)
}

/// `TRACE/SPAN;o=1`, with a decimal span.
fn gcp(text: &str) -> Option<TraceContext> {
    let (ids, options) = text.split_once(';').unwrap_or((text, ""));
    let (trace, span) = ids.split_once('/').unwrap_or((ids, ""));
    let trace = (trace.len() == 32).then(|| trace_id(trace))??;
    let span = span.parse::<u64>().ok().filter(|span| *span != 0);
    Some(TraceContext {
        trace_id: Some(trace),
        span_id: span.map(u64::to_be_bytes),
        sampled: options.strip_prefix("o=").and_then(decision),
        ..TraceContext::default()
    })
}
