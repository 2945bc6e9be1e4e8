//! The filter as configured, on requests and answers.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{chain_filter, decide, parts, session};

fn filter(mappings: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = json!({"mappings": mappings});
    chain_filter(&parts(), "UriPathRewriteFilter", &config, &|_| None)
}

#[tokio::test]
async fn the_beginning_of_a_path_is_another_one_at_the_upstream() {
    let filter = filter(json!({"/a": "/x/y", "/a/deep/": "/", "/b/": "/a", "/root": "/"})).unwrap();
    for (asked, wanted) in [
        ("/a", "/x/y"),
        ("/a/", "/x/y/"),
        ("/a/b%2Fc?q=/a", "/x/y/b%2Fc?q=/a"),
        ("/a/deep/er", "/er"),
        ("/b/1", "/a/1"),
        ("/root", "/"),
        ("/ab", "/ab"),
        ("/", "/"),
    ] {
        let (mut session, _client) =
            session(&format!("GET {asked} HTTP/1.1\r\nHost: h\r\n\r\n")).await;
        let mut exchange = Exchange::default();
        let reply = decide(&*filter, &mut session, &mut exchange).await;
        assert!(reply.is_none(), "{asked}");
        assert_eq!(session.req_header().uri, wanted, "{asked}");
        assert_eq!(exchange.original.is_some(), asked != wanted, "{asked}");
    }
}

#[tokio::test]
async fn redirects_of_the_upstream_lead_back() {
    let filter = filter(json!({"/a": "/x/y", "/b": "/x"})).unwrap();
    let (session, _client) = session("GET /x HTTP/1.1\r\nHost: public\r\n\r\n").await;
    let exchange = Exchange {
        upstream: Some("app:8081".parse().unwrap()),
        ..Exchange::default()
    };
    for (said, wanted) in [
        ("/x/y/login?next=/x/y#f", "/a/login?next=/x/y#f"),
        ("/x", "/b"),
        ("/xyz", "/xyz"),
        ("login", "login"),
        ("http://app:8081/x/1", "http://app:8081/b/1"),
        ("https://public/x/1?q", "https://public/b/1?q"),
        ("https://other/x/1", "https://other/x/1"),
        ("//other/x", "//other/x"),
    ] {
        let mut response = ResponseHeader::build(302, None).unwrap();
        for name in [LOCATION, CONTENT_LOCATION] {
            response.insert_header(name, said).unwrap();
        }
        filter.on_response_to(session.req_header(), &exchange, &mut response);
        for name in [LOCATION, CONTENT_LOCATION] {
            assert_eq!(response.headers.get(name).unwrap(), wanted, "{said}");
        }
    }
}

#[test]
fn what_is_no_path_is_refused() {
    for (mappings, field) in [
        (json!(null), "mappings"),
        (json!({}), "mappings"),
        (json!({"a": "/b"}), "mappings.a"),
        (json!({"/a": 1}), "mappings./a"),
        (json!({"/a": "//b"}), "mappings./a"),
        (json!({"/a": "/b?c"}), "mappings./a"),
        (json!({"/a": "/b c"}), "mappings./a"),
        (json!({"/a": "/b", "/a/": "/c"}), "mappings./a/"),
    ] {
        let error = filter(mappings.clone()).err().unwrap();
        assert_eq!(error.field, field, "{mappings}");
    }
}
