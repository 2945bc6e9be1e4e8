//! Other proxies ask the gateway whether requests may pass.

use crate::openid_connect_login::{Browser, CLIENTS};
use crate::support::{Answer, Door, Setup, http};

const KEYS: &str = "
- name: gate
  protocol: internal
  host: forward-auth
  routes: [{name: gate, paths: [/gate]}]
  plugins:
  - {name: key-auth, config: {key_names: [apikey]}}
  - {name: request-termination, config: {status_code: 429, trigger: limit}}
consumers:
- username: anna
  keyauth_credentials: [{key: annas-key}]
";

/// The section of a door that believes this machine.
const TRUSTING: &str = "{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.1], forward_auth_hosts: [app.test, '*.apps.test']}";

async fn door() -> Door {
    Setup::new().proxy(TRUSTING).services(KEYS).start().await
}

async fn ask(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client().get(door.proxy_url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

#[tokio::test]
async fn each_dialect_gets_the_filters_decision_and_whom_it_is_about() {
    let door = door().await;
    let traefik = [
        ("x-forwarded-host", "app.test"),
        ("x-forwarded-uri", "/orders?b=1"),
    ];
    let nginx = [("x-original-url", "https://app.test/orders?b=1")];
    for (path, headers) in [
        ("/gate/forward-auth", &traefik[..]),
        ("/gate/auth-request", &nginx[..]),
        ("/gate/ext-authz/orders?b=1", &[][..]),
    ] {
        let refused = ask(&door, path, headers).await.expect(401);
        assert!(refused.body.contains("No API key found"), "{path}");
        let mut headers = headers.to_vec();
        // What the client says of itself is nobody's word.
        headers.extend([("x-consumer-username", "root"), ("apikey", "annas-key")]);
        let passed = ask(&door, path, &headers).await.expect(200);
        assert_eq!(passed.header("x-consumer-username"), "anna", "{path}");
        assert_eq!(passed.header("cache-control"), "no-store");
        assert_eq!(passed.body, "");
        assert_eq!(passed.header("apikey"), "");
    }
    // The original request's own query is looked at.
    let headers = [("x-original-url", "http://app.test/?apikey=annas-key")];
    let passed = ask(&door, "/gate/auth-request", &headers).await.expect(200);
    assert_eq!(passed.header("x-consumer-username"), "anna");
    // nginx knows 401 and 403 alone.
    let headers = [
        ("x-original-url", "http://app.test/?limit"),
        ("apikey", "annas-key"),
    ];
    ask(&door, "/gate/auth-request", &headers).await.expect(403);
    let headers = [("x-forwarded-uri", "/?limit"), ("apikey", "annas-key")];
    ask(&door, "/gate/forward-auth", &headers).await.expect(429);
}

#[tokio::test]
async fn strangers_other_hosts_and_sub_requests_about_nothing_are_refused() {
    let door = door().await;
    let key = ("apikey", "annas-key");
    for (path, headers, status) in [
        (
            "/gate/auth-request",
            vec![("x-original-url", "https://evil.test/")],
            403,
        ),
        (
            "/gate/forward-auth",
            vec![("x-forwarded-host", "evil.test"), ("x-forwarded-uri", "/")],
            403,
        ),
        (
            "/gate/forward-auth",
            vec![("x-forwarded-host", "app.test")],
            400,
        ),
        ("/gate/auth-request", vec![], 400),
        ("/gate/other", vec![], 404),
        ("/gate", vec![], 404),
        (
            "/gate/auth-request",
            vec![("x-original-url", "https://a.apps.test/")],
            200,
        ),
    ] {
        let headers = [&headers[..], &[key]].concat();
        ask(&door, path, &headers).await.expect(status);
    }
    let stranger = Setup::new().services(KEYS).start().await;
    let headers = [("x-forwarded-uri", "/"), key];
    let refused = ask(&stranger, "/gate/forward-auth", &headers)
        .await
        .expect(403);
    assert!(refused.body.contains("trusted proxies"), "{}", refused.body);
}

/// A door that signs browsers in with its own provider.
pub(crate) async fn signing_in() -> Door {
    let services = "
- name: gate
  protocol: internal
  host: forward-auth
  routes: [{name: gate, paths: [/gate]}]
  plugins:
  - name: openid-connect
    config:
      issuer: http://@PROXY@/oauth2
      client_id: gateway
      client_secret: g-secret
      session_secret: shared
      session_storage: store
      redirect_uri: ['http://api.test/callback']
";
    let proxy = "{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.1], forward_auth_hosts: [api.test]}";
    let setup = Setup::new()
        .proxy(proxy)
        .identity(CLIENTS)
        .services(services);
    setup.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_signs_in_and_comes_back_to_where_it_was() {
    let door = signing_in().await;
    let mut browser = Browser::at(&door);
    browser.through = Some("/gate/forward-auth");
    let answer = browser
        .sign_in("http://api.test/orders?a=%201")
        .await
        .expect(302);
    assert_eq!(answer.header("location"), "http://api.test/orders?a=%201");
    let passed = browser
        .get("http://api.test/orders?a=%201")
        .await
        .expect(200);
    assert_eq!(passed.header("x-credential-identifier"), "demo");
    assert!(passed.header("authorization").starts_with("Bearer ey"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_browsers_are_led_to_sign_in() {
    let door = signing_in().await;
    let html = ("accept", "text/html");
    let uri = [
        ("x-forwarded-host", "api.test"),
        ("x-forwarded-uri", "/orders"),
    ];
    let path = "/gate/forward-auth";
    ask(&door, path, &[&uri[..], &[html]].concat())
        .await
        .expect(302);
    let posted = [&uri[..], &[html, ("x-forwarded-method", "POST")]].concat();
    for headers in [uri.to_vec(), posted] {
        let refused = ask(&door, path, &headers).await.expect(401);
        assert_eq!(refused.header("location"), "");
    }
    let original = [("x-original-url", "http://api.test/orders"), html];
    let refused = ask(&door, "/gate/auth-request", &original)
        .await
        .expect(401);
    assert!(
        refused.header("location").contains("/oauth2/authorize"),
        "{:?}",
        refused.headers
    );
}
