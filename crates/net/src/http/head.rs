//! Heads of messages by their parts: the engine lets nobody change the fields of a head
//! but one by one, and copies and reads the name of each anew.

use http::{HeaderMap, Request, Response, request, response};
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

/// Has `change` change the fields of a request's head. How their names were spelt is
/// forgotten: names are compared without case (RFC 9110 §5.1).
pub fn change_request(head: &mut RequestHeader, change: impl FnOnce(&mut HeaderMap)) {
    let send_end_stream = head.send_end_stream();
    let mut parts = take_request(head);
    change(&mut parts.headers);
    put_request(head, parts, send_end_stream);
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Version};

    use super::*;

    #[test]
    fn a_change_of_fields_leaves_the_rest_of_a_head() {
        let mut request = RequestHeader::build("POST", b"/a?b", None).expect("a head");
        request.insert_header("X-One", "1").expect("a field");
        request.set_version(Version::HTTP_2);
        request.set_send_end_stream(false);
        change_request(&mut request, |headers| {
            headers.insert("x-two", HeaderValue::from_static("2"));
        });
        assert_eq!(
            (request.method.as_str(), request.raw_path()),
            ("POST", &b"/a?b"[..])
        );
        assert_eq!(
            (&request.headers["x-one"], &request.headers["x-two"]),
            (
                &HeaderValue::from_static("1"),
                &HeaderValue::from_static("2"),
            )
        );
        assert_eq!(request.send_end_stream(), Some(false));
    }
}
