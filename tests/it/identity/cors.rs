//! Scripts of pages at other origins.

use reqwest::Method;

use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      settings: {cors_origins: ["https://ops.example"]}
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - client_id: spa
          token_endpoint_auth_method: none
          grant_types: [authorization_code, password]
          redirect_uris: ["https://spa.example/cb", "com.example.app:/cb"]
          allowed_origins: ["http://localhost:5173"]
          scope: openid
          dpop_bound_access_tokens: true
    /alpha:
      settings: {cors_origins: []}
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients: []
"#;

const SPA: &str = "https://spa.example";

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

async fn from(door: &Door, origin: &str, method: Method, path: &str) -> Answer {
    let request = client().request(method, door.proxy_url(path));
    send(request.header("origin", origin)).await
}

async fn preflight(door: &Door, origin: &str, path: &str) -> Answer {
    let request = client()
        .request(Method::OPTIONS, door.proxy_url(path))
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,dpop");
    send(request).await
}

fn allowed(answer: &Answer) -> &str {
    // Never with cookies.
    assert_eq!(answer.header("access-control-allow-credentials"), "");
    answer.header("access-control-allow-origin")
}

/// What scripts of clients call.
const FOR_CLIENTS: [&str; 7] = [
    "/oauth2/access_token",
    "/oauth2/token/revoke",
    "/oauth2/userinfo",
    "/oauth2/tokeninfo",
    "/oauth2/device/code",
    "/oauth2/par",
    "/oauth2/connect/register",
];

#[tokio::test]
async fn scripts_of_clients_may_ask_and_read_what_they_are_told() {
    let door = door().await;
    for origin in [SPA, "http://localhost:5173", "https://ops.example"] {
        for path in FOR_CLIENTS {
            let answer = preflight(&door, origin, path).await.expect(204);
            assert_eq!(allowed(&answer), origin, "{path}");
            let headers = answer.header("access-control-allow-headers");
            for name in ["Authorization", "Content-Type", "DPoP"] {
                assert!(headers.contains(name), "{headers}");
            }
            assert!(!answer.header("access-control-allow-methods").is_empty());
            assert_eq!(answer.header("vary"), "Origin");
            assert!(answer.body.is_empty());
        }
    }
    // Errors are answers too, with what they ask for.
    let answer = from(&door, SPA, Method::GET, "/oauth2/userinfo").await;
    let answer = answer.expect(401);
    assert_eq!(allowed(&answer), SPA);
    let exposed = answer.header("access-control-expose-headers");
    assert!(exposed.contains("WWW-Authenticate") && exposed.contains("DPoP-Nonce"));
    let fields = [("grant_type", "authorization_code"), ("client_id", "spa")];
    let request = client().post(door.proxy_url("/oauth2/access_token"));
    let answer = send(request.header("origin", SPA).form(&fields)).await;
    assert_eq!(allowed(&answer.expect(400)), SPA);
    let large = "x".repeat(80_000);
    let request = client().post(door.proxy_url("/oauth2/access_token"));
    let answer = send(request.header("origin", SPA).body(large)).await;
    assert_eq!(allowed(&answer.expect(413)), SPA);
}

#[tokio::test]
async fn cors_with_a_foreign_origin() {
    let door = door().await;
    for origin in [
        "https://evil.example",
        "http://spa.example",
        "https://spa.example:8443",
        "https://spa.example.evil.example",
        "https://SPA.example",
        "https://spa.example/",
        "com.example.app://",
        "null",
        "*",
        "",
    ] {
        for path in FOR_CLIENTS {
            let answer = preflight(&door, origin, path).await.expect(204);
            assert_eq!(allowed(&answer), "", "{origin} {path}");
            assert_eq!(answer.header("access-control-allow-methods"), "");
        }
        let answer = from(&door, origin, Method::GET, "/oauth2/userinfo").await;
        assert_eq!(allowed(&answer.expect(401)), "", "{origin}");
    }
    // Another realm has other clients.
    let path = "/oauth2/realms/root/realms/alpha/access_token";
    assert_eq!(allowed(&preflight(&door, SPA, path).await), "");
}

#[tokio::test]
async fn what_is_public_is_everybodys() {
    let door = door().await;
    for path in [
        "/oauth2/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server/oauth2",
        "/oauth2/connect/jwk_uri",
        "/oauth2/realms/root/realms/alpha/connect/jwk_uri",
    ] {
        let answer = from(&door, "https://any.example", Method::GET, path).await;
        assert_eq!(allowed(&answer.expect(200)), "*", "{path}");
        let answer = send(client().get(door.proxy_url(path))).await.expect(200);
        // Caches may give the same answer to all.
        assert_eq!((allowed(&answer), answer.header("vary")), ("*", ""));
        let answer = preflight(&door, "https://any.example", path).await;
        assert_eq!(allowed(&answer.expect(204)), "*", "{path}");
    }
}

#[tokio::test]
async fn pages_and_what_lives_by_cookies_are_shared_with_nobody() {
    let door = door().await;
    for path in [
        "/oauth2/authorize?client_id=spa",
        "/oauth2/device/user",
        "/oauth2/connect/endSession",
        "/oauth2/introspect",
        "/json/authenticate",
        "/json/sessions?_action=validate",
        "/v1/users",
    ] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let answer = from(&door, SPA, method, path).await;
            assert_eq!(allowed(&answer), "", "{path}");
        }
        let answer = preflight(&door, SPA, path).await.expect(405);
        assert_eq!(allowed(&answer), "", "{path}");
    }
}

#[tokio::test]
async fn a_new_client_brings_its_origin_and_takes_it_along() {
    let door = door().await;
    let origin = "https://new.example";
    let path = "/oauth2/access_token";
    assert_eq!(allowed(&preflight(&door, origin, path).await), "");
    let client = "        - {client_id: new, token_endpoint_auth_method: none, \
                  redirect_uris: [\"https://new.example/cb\"], scope: openid}\n    /alpha:";
    door.edit("doorward.yaml", "    /alpha:", client);
    door.signal("HUP");
    crate::support::eventually("the origin to be known", || async {
        let answer = preflight(&door, origin, path).await;
        (allowed(&answer) == origin).then_some(())
    })
    .await;
    door.edit("doorward.yaml", client, "    /alpha:");
    door.signal("HUP");
    crate::support::eventually("the origin to be forgotten", || async {
        let answer = preflight(&door, origin, path).await;
        allowed(&answer).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn origins_that_are_none_are_refused_with_their_line() {
    for (from, to, told) in [
        (
            "https://ops.example",
            "ops.example",
            "cors_origins[0]: must be an origin",
        ),
        (
            "http://localhost:5173",
            "http://localhost:5173/",
            "allowed_origins[0]: must be an origin",
        ),
    ] {
        let door = Setup::new().identity(&IDENTITY.replace(from, to)).lay_out();
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(told), "{text}");
    }
}
