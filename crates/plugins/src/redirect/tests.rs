#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

async fn led(config: &Value, target: &str) -> (u16, String) {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let (mut session, _client) = session(&request).await;
    let reply = decide(&*filter, &mut session, &mut Exchange::default()).await;
    let reply = reply.unwrap();
    assert!(matches!(&reply.body, ReplyBody::Own(body) if body == "redirecting"));
    let (name, value) = &reply.headers[0];
    assert_eq!(name, LOCATION);
    (reply.status.as_u16(), value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_location_is_told_as_it_stands() {
    let config = json!({"location": "https://b.test/x?y=1#z"});
    let told = (301, "https://b.test/x?y=1#z".to_owned());
    assert_eq!(led(&config, "/a?b").await, told);
    let config = json!({"location": "https://b.test", "status_code": 308});
    assert_eq!(led(&config, "/").await, (308, "https://b.test".to_owned()));
}

#[tokio::test]
async fn path_and_query_of_the_request_can_take_the_place_of_its_own() {
    let config = json!({"location": "https://b.test:8443/x?y=1", "keep_incoming_path": true});
    for (target, location) in [
        ("/a/b?c=d", "https://b.test:8443/a/b?c=d"),
        ("/", "https://b.test:8443/"),
        ("/a/../b", "https://b.test:8443/b"),
    ] {
        assert_eq!(led(&config, target).await, (301, location.to_owned()));
    }
}

#[tokio::test]
async fn no_target_leads_to_another_host() {
    let config = json!({"location": "https://b.test", "keep_incoming_path": true});
    for target in ["//evil.test/", "/@evil.test", "/\\evil.test", "/.evil.test"] {
        let (_, location) = led(&config, target).await;
        assert!(location.starts_with("https://b.test/"), "{location}");
    }
}

#[test]
fn a_location_without_a_host_and_an_informational_status_are_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    assert!(refused(json!({})).contains("location: required field missing"));
    for location in ["/a", "mailto:a@b.test", "b.test"] {
        assert!(refused(json!({ "location": location })).contains("missing host in url"));
    }
    let config = json!({"location": "https://b.test", "status_code": 103});
    assert!(refused(config).contains("informational"));
}
