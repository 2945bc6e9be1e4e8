//! What a client wants, and how much (RFC 9110 §12).

use http::{HeaderMap, HeaderValue, header};

/// The media type of streams of events (WHATWG HTML §9.2).
const EVENT_STREAM: &[u8] = b"text/event-stream";
/// Where the slash is in it.
const SLASH: usize = 4;

/// Whether a client takes a stream of events for an answer.
pub fn accepts_events(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(names_events)
}

/// Whether an `Accept` names the media type of streams of events.
pub fn names_events(accept: &HeaderValue) -> bool {
    let accept = accept.as_bytes();
    memchr::memchr_iter(b'/', accept).any(|slash| {
        let start = slash.checked_sub(SLASH);
        let part = start.and_then(|start| accept.get(start..start + EVENT_STREAM.len()));
        part.is_some_and(is_event_stream)
    })
}

fn is_event_stream(media_type: &[u8]) -> bool {
    // Most others begin with another letter, and nearly all clients write small ones.
    matches!(media_type, [b't' | b'T', ..])
        && (media_type == EVENT_STREAM || media_type.eq_ignore_ascii_case(EVENT_STREAM))
}

/// The weight among the `parameters` of an item, in thousandths; 1000 without one, 0
/// for one that is no number.
pub fn weight<'a>(parameters: impl Iterator<Item = &'a str>) -> u16 {
    let mut parameters = parameters.map(str::trim);
    let weight = parameters.find_map(|parameter| parameter.strip_prefix("q="));
    let weight = weight.map_or(Some(1.0), |text| text.parse::<f32>().ok());
    (weight.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_accepted_in_any_case_and_place() {
        let accepts = |text: &'static str| {
            let accept = HeaderValue::from_static(text);
            accepts_events(&HeaderMap::from_iter([(header::ACCEPT, accept)]))
        };
        assert!(accepts("application/json, Text/Event-Stream;q=0.5"));
        assert!(!accepts("text/event"));
        assert!(!accepts_events(&HeaderMap::new()));
    }

    #[test]
    fn a_weight_is_a_number_up_to_one() {
        let of = |text: &str| weight(text.split(';'));
        assert_eq!(of(""), 1000);
        assert_eq!(of(" q=0.25"), 250);
        assert_eq!(of("level=1; q=0"), 0);
        for (text, weight) in [
            ("q=", 0),
            ("q=x", 0),
            ("q=nan", 0),
            ("q=-1", 0),
            ("q=9", 1000),
        ] {
            assert_eq!(of(text), weight, "{text}");
        }
    }
}
