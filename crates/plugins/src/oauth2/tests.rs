//! What is decided without the store.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use serde_json::json;

use super::parameters::Parameters;
use super::*;
use crate::authentication::testing::{Outcome, ask, ask_as, entry, filter, parts_with};
use crate::testing::plugin;
use doorward_core::model::credential::OAuth2 as Record;
use doorward_net::http::reply::ReplyBody;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded";

fn oauth2(config: &Value) -> Arc<dyn Filter> {
    let parts = parts_with(|directory| {
        let record = json!({"name": "app", "client_id": "app", "client_secret": "right",
            "redirect_uris": ["https://app.test/back"], "client_type": "confidential"});
        let record: Record = serde_json::from_value(record).expect("a record");
        directory
            .clients
            .put((*b"app").into(), entry(Client::new(&record)));
    });
    let mut all = json!({"enable_client_credentials": true, "enable_authorization_code": true,
        "accept_http_if_already_terminated": true, "provision_key": "door"});
    let fields = config.as_object().expect("fields").clone();
    all.as_object_mut().expect("fields").extend(fields);
    filter(&KIND, &all, &parts)
}

/// Sends a form as a trusted proxy does that has ended the TLS of its client.
async fn post(filter: &dyn Filter, path: &str, header: &str, form: &str) -> Outcome {
    let exchange = Exchange {
        client: SocketAddr::new(IpAddr::from([192, 0, 2, 1]), 1),
        secure: true,
        trusted: true,
        service: Some(Uuid::nil()),
        body: Some(form.to_owned().into()),
        ..Exchange::default()
    };
    let lines = format!("POST {path} HTTP/1.1\r\n{FORM}{header}");
    ask_as(filter, &lines, exchange).await
}

fn answer(outcome: &Outcome) -> (u16, Value) {
    let reply = outcome.reply.as_ref().expect("an answer");
    let ReplyBody::Own(body) = &reply.body else {
        panic!("no JSON: {reply:?}");
    };
    let body = serde_json::from_slice(body).expect("JSON");
    (reply.status.as_u16(), body)
}

#[test]
fn only_the_last_parts_of_a_path_make_an_endpoint() {
    for (path, endpoint) in [
        ("/api/oauth2/token", Some(Endpoint::Token)),
        ("/oauth2/token/", Some(Endpoint::Token)),
        ("/oauth2/authorize", Some(Endpoint::Authorize)),
        ("/oauth2/token/more", None),
        ("/oauth2/tokens", None),
        ("/xoauth2/token", None),
    ] {
        assert_eq!(Endpoint::of(path), endpoint, "{path}");
    }
}

#[test]
fn what_can_not_be_is_refused_when_it_is_loaded() {
    for (config, field) in [
        (json!({"provision_key": "k"}), "@entity"),
        (
            json!({"enable_password_grant": true, "mandatory_scope": true}),
            "scopes",
        ),
        (
            json!({"enable_password_grant": true, "refresh_token_ttl": 100_000_001}),
            "refresh_token_ttl",
        ),
        (
            json!({"enable_password_grant": true, "token_expiration": -1}),
            "token_expiration",
        ),
        (
            json!({"enable_password_grant": true, "pkce": "S256"}),
            "pkce",
        ),
        (
            json!({"enable_password_grant": true, "persistent_refresh_token": true}),
            "persistent_refresh_token",
        ),
    ] {
        let refused = plugin(&KIND, &config).err().expect("refused").to_string();
        assert!(refused.contains(field) || field == "@entity", "{refused}");
    }
}

#[tokio::test]
async fn a_request_without_a_token_is_told_so_in_json() {
    let filter = oauth2(&json!({"realm": "apps"}));
    for lines in ["GET / HTTP/1.1", "GET /?access_token= HTTP/1.1"] {
        let outcome = ask(&*filter, lines).await;
        let (status, body) = answer(&outcome);
        assert_eq!(status, 401);
        let wanted = json!({"error": "invalid_request",
            "error_description": "The access token is missing"});
        assert_eq!(body, wanted);
        assert_eq!(outcome.challenge(), Some("Bearer realm=\"apps\""));
    }
}

#[tokio::test]
async fn without_https_nobody_gets_anything_however_loudly_a_client_claims_it() {
    let filter = oauth2(&json!({}));
    for (trusted, secure) in [(false, false), (true, false), (false, true)] {
        let exchange = Exchange {
            trusted,
            secure,
            ..Exchange::default()
        };
        let lines = "POST /oauth2/token HTTP/1.1\r\nX-Forwarded-Proto: https";
        let (status, body) = answer(&ask_as(&*filter, lines, exchange).await);
        assert_eq!((status, &body["error"]), (400, &json!("access_denied")));
        assert_eq!(body["error_description"], "You must use HTTPS");
    }
}

#[tokio::test]
async fn each_refusal_of_the_token_endpoint_has_its_words() {
    let filter = oauth2(&json!({"scopes": ["read"], "mandatory_scope": true}));
    let app = "client_id=app&client_secret=right";
    for (form, error, description) in [
        (
            format!("{app}&grant_type=password"),
            "unsupported_grant_type",
            "Invalid grant_type",
        ),
        (
            format!("{app}&grant_type=client_credentials"),
            "invalid_scope",
            "You must specify a scope",
        ),
        (
            format!("{app}&grant_type=client_credentials&scope=read+write"),
            "invalid_scope",
            "\"write\" is an invalid scope",
        ),
        (
            format!("{app}&grant_type=client_credentials&scope=read&authenticated_userid=x"),
            "invalid_provision_key",
            "Invalid provision_key",
        ),
        (
            format!("{app}&grant_type=authorization_code&redirect_uri=https://evil.test"),
            "invalid_request",
            "Invalid redirect_uri that does not match with any redirect_uri created with the \
             application",
        ),
        (
            "client_id=app&client_secret=wrong&grant_type=client_credentials".to_owned(),
            "invalid_client",
            "Invalid client authentication",
        ),
        // Which of two is meant is anyone's guess.
        (
            format!("{app}&client_id=app&grant_type=client_credentials"),
            "invalid_client",
            "Invalid client authentication",
        ),
    ] {
        let (status, body) = answer(&post(&*filter, "/oauth2/token", "", &form).await);
        assert_eq!(status, 400, "{form}");
        let wanted = json!({"error": error, "error_description": description});
        assert_eq!(body, wanted, "{form}");
    }
    let outcome = ask(&*filter, "GET /oauth2/token HTTP/1.1").await;
    let (status, body) = answer(&outcome);
    assert_eq!((status, &body["error"]), (405, &json!("invalid_method")));
}

#[tokio::test]
async fn a_client_that_names_itself_in_a_header_is_refused_there_too() {
    let filter = oauth2(&json!({}));
    let header = "\r\nAuthorization: Basic YXBwOndyb25n";
    let form = "grant_type=client_credentials";
    let outcome = post(&*filter, "/oauth2/token", header, form).await;
    assert_eq!(answer(&outcome).0, 401);
    assert_eq!(outcome.challenge(), Some("Basic realm=\"OAuth2.0\""));
}

#[tokio::test]
async fn guesses_of_a_secret_and_of_the_provision_key_are_braked() {
    let filter = oauth2(&json!({}));
    let token = "client_id=app&client_secret=wrong&grant_type=client_credentials";
    let authorize = "provision_key=wrong&client_id=app";
    for (path, form, right) in [
        (
            "/oauth2/token",
            token,
            "client_id=app&client_secret=right&grant_type=password",
        ),
        ("/oauth2/authorize", authorize, "provision_key=door"),
    ] {
        for _ in 0..30 {
            assert_eq!(answer(&post(&*filter, path, "", form).await).0, 400);
        }
        // Nobody learns any more what is right.
        for form in [form, right] {
            let (status, body) = answer(&post(&*filter, path, "", form).await);
            assert_eq!((status, &body["error"]), (429, &json!("access_denied")));
        }
    }
}

#[test]
fn parameters_that_are_there_twice_say_nothing_and_the_body_counts() {
    let request = |target: &str, kind: &str| {
        let mut head = RequestHeader::build("POST", target.as_bytes(), None).expect("a head");
        head.insert_header("content-type", kind).expect("a header");
        head
    };
    let form = "application/x-www-form-urlencoded";
    let body = Bytes::from_static(b"a=3&b=4&b=4");
    let all = Parameters::read(&request("/?a=1&c=2&c=2", form), Some(&body));
    assert_eq!(
        (all.get("a"), all.get("b"), all.get("c")),
        (Some("3"), None, None)
    );
    assert!(all.has("b") && !all.has("d"));
    let body = Bytes::from_static(br#"{"a": "x", "b": {"c": 1}}"#);
    let all = Parameters::read(&request("/?b=1", "application/json"), Some(&body));
    assert_eq!((all.get("a"), all.get("b")), (Some("x"), None));
    let parts = |names: &[&str], end: &str| {
        let part = |name: &&str| {
            format!("--x\r\nContent-Disposition: form-data; name={name}\r\n\r\nof {name}{end}")
        };
        let parts: String = names.iter().map(part).collect();
        Bytes::from(format!("{parts}--x--\r\n"))
    };
    let kind = "multipart/form-data; boundary=x";
    let read = |body: &Bytes| Parameters::read(&request("/?a=1", kind), Some(body));
    let all = read(&parts(&["a", "b", "b", "c"], "\r\n"));
    assert_eq!(
        (all.get("a"), all.get("b"), all.get("c")),
        (Some("of a"), None, Some("of c"))
    );
    let may_be_there = |length: &str| {
        let mut head = request("/", kind);
        head.insert_header("content-length", length)
            .expect("a header");
        may_be_in_body(&head)
    };
    assert!(
        may_be_there("65536") && !may_be_there("65537") && !may_be_in_body(&request("/", kind))
    );
    // Readers differ on where these parts end.
    assert_eq!(read(&parts(&["a"], "\n")).get("a"), Some("1"));
}
