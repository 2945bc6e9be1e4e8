//! What upstreams are told of the client and of the way that a request came.

use crate::proxying::door_to;
use crate::support::raw::exchange;
use crate::support::{Setup, Upstream, http};

#[tokio::test]
async fn forwarded_headers_are_the_gateways_own() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let request = http::client()
        .get(door.proxy_url("/p"))
        .header("host", "a.test")
        .header("x-forwarded-for", "6.6.6.6")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "evil.test")
        .header("x-forwarded-port", "1")
        .header("x-real-ip", "6.6.6.6");
    http::send(request).await.expect(200);
    let seen = upstream.last();
    let port = door.proxy().split(':').nth(1).map(str::to_owned);
    assert_eq!(seen.header("x-forwarded-for"), Some("6.6.6.6, 127.0.0.1"));
    assert_eq!(seen.all("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.all("x-forwarded-host"), ["a.test"]);
    assert_eq!(seen.header("x-forwarded-port").map(str::to_owned), port);
    assert_eq!(seen.all("x-real-ip"), ["127.0.0.1"]);
}

#[tokio::test]
async fn a_trusted_proxy_is_believed() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let proxy = r#"{listen: ["@PROXY@"], trusted_ips: [127.0.0.0/8]}"#;
    let door = Setup::new().proxy(proxy).services(&service).start().await;
    let request = http::client()
        .get(door.proxy_url("/p"))
        .header("x-forwarded-for", "203.0.113.7")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "shop.test");
    http::send(request).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.test"));
    assert_eq!(seen.header("x-real-ip"), Some("203.0.113.7"));
}

#[tokio::test]
async fn a_trusted_proxy_may_name_the_client_in_x_real_ip() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{paths: [/]}}]}}\n",
        upstream.url("")
    );
    let proxy = |more: &str| format!("{{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.0/8]{more}}}");
    let seen = async |more: &str, headers: &[(&str, &str)]| {
        let door = Setup::new().proxy(&proxy(more)).services(&service);
        let door = door.start().await;
        let mut request = http::client().get(door.proxy_url("/"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        http::send(request).await.expect(200);
        upstream.last().header("x-real-ip").map(str::to_owned)
    };
    let real = ("x-real-ip", "203.0.113.7");
    let chain = ("x-forwarded-for", "203.0.113.8");
    let is = |address: &str| Some(address.to_owned());
    assert_eq!(seen("", &[real]).await, is("203.0.113.7"));
    // A chain says more than a header that the client may have made up.
    assert_eq!(seen("", &[real, chain]).await, is("203.0.113.8"));
    assert_eq!(seen("", &[real, real]).await, is("127.0.0.1"));
    let named = ", real_ip_header: X-Real-IP";
    assert_eq!(seen(named, &[real, chain]).await, is("203.0.113.7"));
    assert_eq!(seen(named, &[chain]).await, is("127.0.0.1"));
}

#[tokio::test]
async fn upstreams_learn_the_path_as_sent_and_the_bare_host() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let answer = exchange(
        &door.proxy(),
        b"GET /a/./b%41?q HTTP/1.1\r\nHost: Shop.Test:8000\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!(answer.map(|answer| answer.status), Some(200));
    let seen = upstream.last();
    assert_eq!(seen.header("x-forwarded-path"), Some("/a/./b%41"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.test"));
    assert_eq!(
        seen.header("via")
            .map(|via| via.starts_with("1.1 doorward/")),
        Some(true)
    );
}

#[tokio::test]
async fn via_names_the_version_that_a_message_came_in() {
    let upstream = Upstream::echo().await;
    let door = door_to(&upstream.url(""), "").await;
    let request = b"GET / HTTP/1.0\r\nHost: a\r\n\r\n";
    let answer = exchange(&door.proxy(), request).await.expect("an answer");
    assert_eq!(answer.status, 200);
    let via = upstream.last().header("via").map(str::to_owned);
    let via = via.expect("a header");
    assert!(via.starts_with("1.0 doorward/"), "{via}");
}
