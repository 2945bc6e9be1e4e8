//! Explanations, and the way to one from a refusal in the overview in one click.

use std::time::Duration;

use serde_json::json;

use crate::console::{Browser, attribute};
use crate::support::http::{client, send};
use crate::support::raw::Connection;
use crate::support::{Door, Setup, Upstream, eventually};

async fn door() -> (Door, Upstream) {
    let upstream = Upstream::echo().await;
    let door = Setup::new().start().await;
    door.expose("web", &upstream.url("/"), "web.example").await;
    let plugin = json!({"name": "key-auth"});
    let path = "/services/web/plugins";
    door.admin_post(path, &plugin).await.expect(201);
    (door, upstream)
}

/// A page of the console once it shows a text: a request is listed behind its answer.
async fn page_with(browser: &mut Browser<'_>, path: &str, text: &str) -> String {
    for _ in 0..600 {
        let page = browser.get(path).await.expect(200).body;
        if page.contains(text) {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} does not show {text}");
}

/// The address of the first explanation that a page links to.
fn explanation(page: &str) -> String {
    let table = page.split("id=\"latest\"").nth(1).expect("a table");
    let row = table.split("<tbody>").nth(1).expect("rows");
    let at = row.find("href=\"/console/explain").expect("a link");
    attribute(&row[at..], "", "href")
        .replace("&#38;", "&")
        .replace("&amp;", "&")
}

#[tokio::test]
async fn a_refused_request_is_explained_in_one_click_from_the_overview() {
    let (door, _upstream) = door().await;
    door.get("web.example", "/orders/7?apikey=a-secret-key")
        .await
        .expect(401);
    let mut browser = Browser::new(&door);
    for page in [
        "/console",
        "/console/refusals",
        "/console/refusals?code=unknown_credential",
    ] {
        let page = page_with(&mut browser, page, "web.example/orders/7<").await;
        let address = explanation(&page);
        let shown = browser.get(&address).await.expect(200).body;
        assert!(shown.contains("http://web.example/orders/7"), "{shown}");
        let table = shown.split("id=\"filters\"").nth(1).expect("a table");
        assert!(table.contains("401 no_credential"), "{table}");
    }
    let page = browser.get("/console/refusals?code=other_code").await;
    assert!(!page.expect(200).body.contains("/orders/7"));
    // What passes is not kept.
    let key = door
        .admin_post("/consumers", &json!({"username": "bob"}))
        .await;
    key.expect(201);
    let key = door
        .admin_post("/consumers/bob/key-auth", &json!({"key": "bobs"}))
        .await;
    key.expect(201);
    let request = client()
        .get(door.proxy_url("/passes"))
        .header("host", "web.example");
    send(request.header("apikey", "bobs")).await.expect(200);
    let page = browser.get("/console").await.expect(200).body;
    assert!(!page.contains("/passes"), "{page}");
}

#[tokio::test]
async fn no_secret_of_a_refused_request_is_kept() {
    let (door, _upstream) = door().await;
    let request = client()
        .get(door.proxy_url("/a?apikey=in-the-query&token=in-another"))
        .header("host", "web.example")
        .header("authorization", "Bearer in-the-header")
        .header("apikey", "in-the-key")
        .header("cookie", "session=in-the-cookie");
    send(request).await.expect(401);
    let mut browser = Browser::new(&door);
    let page = page_with(&mut browser, "/console", "web.example/a<").await;
    let shown = browser.get(&explanation(&page)).await.expect(200).body;
    for text in [&page, &shown] {
        for secret in ["in-the-", "in-another"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[tokio::test]
async fn a_name_and_a_password_before_the_host_are_neither_kept_nor_logged() {
    for head in [
        "GET /a HTTP/1.1\r\nHost: bob:sesame@web.example\r\n\r\n",
        "GET http://bob:sesame@web.example/a HTTP/1.1\r\nHost: web.example\r\n\r\n",
    ] {
        // Of two refusals with one code within a tenth of a second, one is kept.
        let (door, _upstream) = door().await;
        let mut connection = Connection::open(&door.proxy()).await;
        connection.send(head.as_bytes()).await;
        assert_eq!(connection.head().await.status, 400, "{head}");
        let mut browser = Browser::new(&door);
        let page = page_with(&mut browser, "/console/refusals", "malformed_request").await;
        let log = eventually("the line of the access log", || async {
            let log = door.log_text();
            log.contains("malformed_request").then_some(log)
        })
        .await;
        for text in [page, log] {
            assert!(!text.contains("sesame"), "{text}");
        }
    }
}

#[tokio::test]
async fn hostile_texts_of_refused_requests_are_shown_as_text() {
    let (door, _upstream) = door().await;
    let path = "/%3Cimg%20src=x%20onerror=alert(1)%3E'%22&method=DELETE";
    door.get("web.example", path).await.expect(401);
    let mut browser = Browser::new(&door);
    let page = page_with(&mut browser, "/console", "href=\"/console/explain?").await;
    assert!(!page.contains("<img"), "{page}");
    let address = explanation(&page);
    assert!(!address.contains("&method=DELETE"), "{address}");
    let shown = browser.get(&address).await.expect(200).body;
    assert!(!shown.contains("<img"), "{shown}");
    let method = attribute(&shown, "name=\"method\"", "value");
    assert_eq!(method, "GET");
    // An address that names headers has none of them explained.
    let with_headers = format!("{address}&headers=apikey%3A%20x");
    let shown = browser.get(&with_headers).await.expect(200).body;
    assert!(shown.contains("401 no_credential"), "{shown}");
}

#[tokio::test]
async fn an_explanation_shows_what_each_filter_decides() {
    let upstream = Upstream::echo().await;
    let door = Setup::new().start().await;
    door.expose("web", &upstream.url("/"), "web.example").await;
    for name in ["correlation-id", "key-auth", "acl"] {
        let config = match name {
            "acl" => json!({"allow": ["staff"]}),
            _ => json!({}),
        };
        let plugin = json!({"name": name, "config": config});
        let path = "/services/web/plugins";
        door.admin_post(path, &plugin).await.expect(201);
    }
    let asked = [("method", "GET"), ("url", "http://web.example/x")];
    let mut browser = Browser::new(&door);
    let answer = browser.post("/console/explain", &asked).await.expect(200);
    let table = answer.body.split("id=\"filters\"").nth(1).expect("a table");
    let decisions = ["runs", "401 no_credential", "not reached"];
    let places = decisions.map(|text| table.find(text).expect(text));
    assert!(places.is_sorted(), "{table}");
    assert!(table.contains("the request carries no key"), "{table}");
}
