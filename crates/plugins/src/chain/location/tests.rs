//! The filter as configured, on answers.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{chain_filter, parts, session};

fn filter(config: Value) -> Result<Arc<dyn Filter>, ConfigError> {
    chain_filter(&parts(), "LocationHeaderFilter", &config, &|_| None)
}

#[tokio::test]
async fn a_redirect_of_the_upstream_to_itself_leads_to_the_gateway() {
    let (session, _client) = session("GET /a HTTP/1.1\r\nHost: public:8443\r\n\r\n").await;
    let exchange = Exchange {
        upstream: Some("app".parse().unwrap()),
        secure: true,
        ..Exchange::default()
    };
    let own = json!({});
    let given = json!({"baseURI": "https://www.example.com/ignored"});
    for (config, said, wanted) in [
        (&own, "http://app/b?c#d", "https://public:8443/b?c#d"),
        (&own, "http://app:80/b", "https://public:8443/b"),
        (&own, "http://APP", "https://public:8443/"),
        (&own, "http://app:8081/b", "http://app:8081/b"),
        (&own, "http://other/b", "http://other/b"),
        (&own, "/b", "/b"),
        (&given, "http://app/b", "https://www.example.com/b"),
        (&given, "https://public:8443/b", "https://www.example.com/b"),
        (&given, "https://app.evil/b", "https://app.evil/b"),
    ] {
        let mut response = ResponseHeader::build(302, None).unwrap();
        response.insert_header(LOCATION, said).unwrap();
        let filter = filter(config.clone()).unwrap();
        filter.on_response_to(session.req_header(), &exchange, &mut response);
        assert_eq!(response.headers.get(LOCATION).unwrap(), wanted, "{said}");
    }
}

#[test]
fn a_base_that_is_no_url_is_refused() {
    for base in ["public", "ftp://public", "/a"] {
        let error = filter(json!({"baseURI": base})).err().unwrap();
        assert_eq!(error.field, "baseURI", "{base}");
    }
}
