//! What upstreams are told of who is calling. All plugins that authenticate write
//! the same headers, and clients send none of them.

use http::{HeaderName, HeaderValue};
use uuid::Uuid;

use crate::consumers::header_value;
use crate::filter::Exchange;
use doorward_net::http::head::UpstreamRequest;

const CONSUMER_ID: HeaderName = HeaderName::from_static("x-consumer-id");
const CONSUMER_CUSTOM_ID: HeaderName = HeaderName::from_static("x-consumer-custom-id");
const CONSUMER_USERNAME: HeaderName = HeaderName::from_static("x-consumer-username");
const CREDENTIAL_IDENTIFIER: HeaderName = HeaderName::from_static("x-credential-identifier");
const ANONYMOUS_CONSUMER: HeaderName = HeaderName::from_static("x-anonymous-consumer");
/// `X-Consumer-Groups`.
pub const CONSUMER_GROUPS: HeaderName = HeaderName::from_static("x-consumer-groups");
/// `X-Authenticated-Groups`.
pub const AUTHENTICATED_GROUPS: HeaderName = HeaderName::from_static("x-authenticated-groups");

/// Headers that upstreams take for the gateway's word on who is calling: a
/// client's own are never passed on, whether or not a filter sets them.
pub static HEADERS: [HeaderName; 9] = [
    CONSUMER_ID,
    CONSUMER_CUSTOM_ID,
    CONSUMER_USERNAME,
    CREDENTIAL_IDENTIFIER,
    ANONYMOUS_CONSUMER,
    CONSUMER_GROUPS,
    AUTHENTICATED_GROUPS,
    HeaderName::from_static("x-authenticated-scope"),
    HeaderName::from_static("x-authenticated-userid"),
];

/// What a request has proved itself by, when that is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// What tells it from all others.
    pub id: Uuid,
    identifier: Option<HeaderValue>,
}

impl Credential {
    /// A credential that upstreams are told of by this name.
    pub fn new(id: Uuid, identifier: &str) -> Self {
        Self {
            id,
            identifier: header_value(identifier),
        }
    }
}

/// Tells the upstream whom the request comes from.
pub fn write(exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
    if exchange.consumer.is_none() && exchange.credential.is_none() {
        return;
    }
    let headers = request.fields();
    let mut set = |name: HeaderName, value: Option<&HeaderValue>| {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    };
    if let Some(consumer) = &exchange.consumer {
        let told = &consumer.headers;
        set(CONSUMER_ID, told.id.as_ref());
        set(CONSUMER_CUSTOM_ID, told.custom_id.as_ref());
        set(CONSUMER_USERNAME, told.username.as_ref());
        if exchange.credential.is_none() && exchange.token.is_none() {
            let yes = HeaderValue::from_static("true");
            set(ANONYMOUS_CONSUMER, Some(&yes));
        }
    }
    if let Some(credential) = &exchange.credential {
        set(CREDENTIAL_IDENTIFIER, credential.identifier.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use doorward_core::model::consumer::Consumer;
    use pingora::http::RequestHeader;

    fn written(exchange: &Exchange) -> Vec<(String, String)> {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        write(exchange, &mut UpstreamRequest::new(&mut request));
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = request.headers.iter();
        let mut all: Vec<_> = headers
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_consumer_without_a_credential_is_anonymous() {
        let consumer = json!({"id": Uuid::nil(), "username": "anna", "created_at": 0});
        let consumer: Consumer = serde_json::from_value(consumer).expect("a consumer");
        let mut exchange = Exchange {
            consumer: Some(Arc::new(consumer.into())),
            ..Exchange::default()
        };
        let id = ("x-consumer-id".to_owned(), Uuid::nil().to_string());
        let name = ("x-consumer-username".to_owned(), "anna".to_owned());
        let anonymous = ("x-anonymous-consumer".to_owned(), "true".to_owned());
        assert_eq!(written(&exchange), [anonymous, id.clone(), name.clone()]);
        exchange.credential = Some(Arc::new(Credential::new(Uuid::nil(), "key 7")));
        let credential = ("x-credential-identifier".to_owned(), "key 7".to_owned());
        assert_eq!(written(&exchange), [id, name, credential]);
    }

    #[test]
    fn a_name_with_control_characters_is_not_told() {
        let credential = Credential::new(Uuid::nil(), "a\r\nx-admin: 1");
        let exchange = Exchange {
            credential: Some(Arc::new(credential)),
            ..Exchange::default()
        };
        assert!(written(&exchange).is_empty());
    }
}
