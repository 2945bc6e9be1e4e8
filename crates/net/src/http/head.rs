//! Heads of messages by their parts: the engine lets nobody change the fields of a head
//! but one by one, and copies and reads the name of each anew.

use std::ops::Deref;

use http::{HeaderMap, HeaderName, Request, Response, request, response};
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

/// The head of a request on its way to an upstream, which many change one after the
/// other. It is in the form that the last of them asked for: to give it another form
/// costs as much as to set several fields. How names were spelt is forgotten: names are
/// compared without case (RFC 9110 §5.1).
#[derive(Debug)]
pub struct UpstreamRequest<'a> {
    head: &'a mut RequestHeader,
    /// The parts of the head, while it is in this form.
    parts: Option<request::Parts>,
    /// What the head said before.
    send_end_stream: Option<bool>,
}

impl<'a> UpstreamRequest<'a> {
    /// This head, which has all changes when they are done.
    pub fn new(head: &'a mut RequestHeader) -> Self {
        let send_end_stream = head.send_end_stream();
        Self {
            parts: Some(take_request(head)),
            head,
            send_end_stream,
        }
    }

    /// Method, target and fields, to be changed.
    pub fn parts_mut(&mut self) -> &mut request::Parts {
        self.parts.get_or_insert_with(|| take_request(self.head))
    }

    /// The fields, to be changed.
    pub fn fields(&mut self) -> &mut HeaderMap {
        &mut self.parts_mut().headers
    }

    /// Removes all fields of a name. The head keeps its form.
    pub fn remove(&mut self, name: &HeaderName) {
        match &mut self.parts {
            Some(parts) => drop(parts.headers.remove(name)),
            None => drop(self.head.remove_header(name)),
        }
    }

    /// The head in the engine's form, to be changed.
    pub fn head_mut(&mut self) -> &mut RequestHeader {
        if let Some(parts) = self.parts.take() {
            put_request(self.head, parts, self.send_end_stream);
        }
        self.head
    }
}

impl Deref for UpstreamRequest<'_> {
    type Target = request::Parts;

    fn deref(&self) -> &request::Parts {
        self.parts.as_ref().unwrap_or(self.head)
    }
}

impl Drop for UpstreamRequest<'_> {
    fn drop(&mut self) {
        self.head_mut();
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Version};

    use super::*;

    #[test]
    fn changes_in_either_form_leave_the_rest_of_a_head() {
        let mut request = RequestHeader::build("POST", b"/a?b", None).expect("a head");
        request.insert_header("X-One", "1").expect("a field");
        request.set_version(Version::HTTP_2);
        request.set_send_end_stream(false);
        let mut changed = UpstreamRequest::new(&mut request);
        changed
            .fields()
            .insert("x-two", HeaderValue::from_static("2"));
        let head = changed.head_mut();
        head.insert_header("X-Three", "3").expect("a field");
        assert_eq!(changed.headers.len(), 3);
        changed
            .fields()
            .insert("x-four", HeaderValue::from_static("4"));
        assert_eq!(changed.headers.len(), 4);
        changed.remove(&HeaderName::from_static("x-one"));
        changed.head_mut();
        changed.remove(&HeaderName::from_static("x-three"));
        drop(changed);
        assert_eq!(
            (request.method.as_str(), request.raw_path()),
            ("POST", &b"/a?b"[..])
        );
        let fields = request.headers.iter();
        let fields: Vec<_> = fields
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 2] = [("x-four", b"4"), ("x-two", b"2")];
        assert_eq!(fields, expected);
        assert_eq!(request.send_end_stream(), Some(false));
    }
}
