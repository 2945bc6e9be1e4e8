//! Heads of messages by their parts: the engine lets nobody change the fields of a head
//! but one by one, and copies and reads the name of each anew.

use http::{Request, Response, request, response};
use pingora::http::{RequestHeader, ResponseHeader};

/// The parts of `head`, which is left empty.
pub fn take_request(head: &mut RequestHeader) -> request::Parts {
    let nothing = RequestHeader::from(Request::new(()).into_parts().0);
    request::Parts::from(std::mem::replace(head, nothing))
}

/// Puts `parts` back; `send_end_stream` is what the head said before.
pub fn put_request(head: &mut RequestHeader, parts: request::Parts, send_end_stream: Option<bool>) {
    *head = RequestHeader::from(parts);
    if let Some(send_end_stream) = send_end_stream {
        head.set_send_end_stream(send_end_stream);
    }
}

/// The parts of `head`, which is left empty, and its reason phrase where it
/// is not the usual one.
pub fn take_response(head: &mut ResponseHeader) -> (response::Parts, Option<String>) {
    let usual = head.status.canonical_reason();
    let reason = head.get_reason_phrase();
    let reason = (reason != usual).then(|| reason.unwrap_or("").to_owned());
    let nothing = ResponseHeader::from(Response::new(()).into_parts().0);
    let parts = response::Parts::from(std::mem::replace(head, nothing));
    (parts, reason)
}
