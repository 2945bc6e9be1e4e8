//! What browsers are shown when something is wrong, and how pages protect
//! themselves.

use reqwest::Method;

use super::authorize::browser::shown_error;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

async fn visit(door: &Door, method: Method, path: &str, accept: &str) -> Answer {
    let request = client().request(method, door.proxy_url(path));
    send(request.header("accept", accept)).await
}

const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

#[tokio::test]
async fn a_browser_that_went_astray_is_shown_a_page_and_a_program_is_told_json() {
    let door = Setup::new().start().await;
    let nowhere = "/oauth2/realms/root/realms/nowhere";
    for page in [
        "/authorize",
        "/authorize/login",
        "/device/user",
        "/connect/endSession",
    ] {
        for (method, path, status, error) in [
            (Method::GET, format!("{nowhere}{page}"), 404, "not_found"),
            (Method::POST, format!("{nowhere}{page}"), 404, "not_found"),
            (
                Method::PUT,
                format!("/oauth2{page}"),
                405,
                "method_not_allowed",
            ),
        ] {
            let answer = visit(&door, method.clone(), &path, BROWSER)
                .await
                .expect(status);
            assert!(
                answer.header("content-type").starts_with("text/html"),
                "{path}"
            );
            assert_eq!(shown_error(&answer), error, "{method} {path}");
            assert_protected(&answer);
            let answer = visit(&door, method, &path, "application/json").await;
            assert_eq!(answer.expect(status).json()["error"], error, "{path}");
        }
        let url = door.proxy_url(&format!("/oauth2{page}?ui_locales=de"));
        let large = client().post(url).header("accept", BROWSER);
        let large = send(large.body("x".repeat(80_000))).await.expect(413);
        assert_eq!(shown_error(&large), "invalid_request", "{page}");
        assert!(large.body.contains("<html lang=\"de\""), "{page}");
    }
    // Endpoints of programs tell a browser the same as everybody.
    let answer = visit(&door, Method::GET, "/oauth2/access_token", BROWSER).await;
    assert!(answer.expect(405).json()["error"].is_string());
}

#[track_caller]
fn assert_protected(page: &Answer) {
    assert_eq!(page.header("x-frame-options"), "DENY");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert_eq!(page.header("cache-control"), "no-store");
    let policy = page.header("content-security-policy");
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(page.header("permissions-policy").contains("geolocation=()"));
}

#[tokio::test]
async fn clickjacking_of_every_page() {
    let door = Setup::new().start().await;
    for path in [
        "/oauth2/authorize",
        "/oauth2/authorize?client_id=nobody",
        "/oauth2/authorize/login?client_id=nobody",
        "/oauth2/connect/endSession",
        "/oauth2/connect/endSession?id_token_hint=x",
        "/oauth2/device/user",
        "/oauth2/device/user?user_code=x",
    ] {
        let page = visit(&door, Method::GET, path, BROWSER).await;
        assert!(
            page.header("content-type").starts_with("text/html"),
            "{path}"
        );
        assert_protected(&page);
        // By plain http nobody is told to come by TLS only.
        assert_eq!(page.header("strict-transport-security"), "", "{path}");
    }
    // A guess of a media type makes a page of nothing else.
    let answer = visit(&door, Method::POST, "/oauth2/access_token", BROWSER).await;
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
}

#[tokio::test]
async fn pages_of_a_provider_behind_tls_ask_for_tls_always() {
    let identity = "\n  base_url: https://id.example\n  pages: {hsts_seconds: 600}\n";
    let door = Setup::new().identity(identity).start().await;
    let page = visit(&door, Method::GET, "/oauth2/device/user", BROWSER).await;
    let told = page.header("strict-transport-security").to_owned();
    assert_eq!(told, "max-age=600");
    let off = identity.replace("600", "0");
    let door = Setup::new().identity(&off).start().await;
    let page = visit(&door, Method::GET, "/oauth2/device/user", BROWSER).await;
    assert_eq!(page.header("strict-transport-security"), "");
}
