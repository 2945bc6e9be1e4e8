//! The openid-connect plugin in front of a real upstream.

use std::convert::Infallible;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};

use crate::support::issuer::forge;
use crate::support::{Answer, Door, Issuer, Setup, Upstream, eventually, http};

/// A door with the service `api` for host `api.test`, protected by the plugin;
/// `config` are further lines of its configuration in YAML flow style.
async fn protected(upstream: &Upstream, issuer: &str, config: &str) -> Door {
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: '{issuer}'{config}}}}}\n",
        upstream.url("")
    );
    Setup::new().services(&service).start().await
}

/// The plugin with a foreign provider.
async fn foreign(config: &str) -> (Door, Issuer, Upstream) {
    let upstream = Upstream::echo().await;
    let issuer = Issuer::start().await;
    let door = protected(&upstream, &issuer.url(), config).await;
    (door, issuer, upstream)
}

fn assert_refused(answer: Answer, status: u16, error: Option<&str>) {
    let answer = answer.expect(status);
    let message = if status == 401 {
        "Unauthorized"
    } else {
        "Forbidden"
    };
    assert_eq!(answer.json()["message"], message);
    let challenge = answer.header("www-authenticate");
    assert!(challenge.starts_with("Bearer realm="), "{challenge}");
    let wanted = error.map(|error| format!("error=\"{error}\""));
    match wanted {
        Some(wanted) => assert!(challenge.contains(&wanted), "{challenge}"),
        None => assert!(!challenge.contains("error="), "{challenge}"),
    }
}

#[tokio::test]
async fn a_token_of_the_embedded_provider_passes_and_reaches_the_upstream() {
    let upstream = Upstream::echo().await;
    let door = protected(&upstream, "http://@PROXY@/oauth2", "").await;
    assert_refused(door.get("api.test", "/").await, 401, None);
    assert!(upstream.seen().is_empty());
    let token = door.client_token("read").await;
    for _ in 0..3 {
        door.get_as(&token, "api.test", "/").await.expect(200);
        let sent = format!("Bearer {token}");
        assert_eq!(upstream.last().header("authorization"), Some(sent.as_str()));
    }
}

#[tokio::test]
async fn every_path_of_a_realm_of_this_process_leads_to_its_issuer() {
    let upstream = Upstream::echo().await;
    for path in [
        "/oauth2/realms/root",
        "/oauth2/realms/root/.well-known/openid-configuration",
    ] {
        let door = protected(&upstream, &format!("http://@PROXY@{path}"), "").await;
        let token = door.client_token("read").await;
        door.get_as(&token, "api.test", "/").await.expect(200);
    }
}

#[tokio::test]
async fn a_token_is_taken_from_header_query_and_form() {
    let (door, issuer, upstream) = foreign("").await;
    let token = issuer.token();
    door.get_as(&token, "api.test", "/").await.expect(200);
    door.get("api.test", &format!("/?access_token={token}&q=1"))
        .await
        .expect(200);
    let form = http::client()
        .post(door.proxy_url("/"))
        .header("host", "api.test");
    http::send(form.form(&[("access_token", &token)]))
        .await
        .expect(200);
    assert_eq!(
        upstream.last().body,
        format!("access_token={token}").into_bytes()
    );
    let json = http::client()
        .post(door.proxy_url("/"))
        .header("host", "api.test");
    http::send(json.json(&json!({"access_token": token})))
        .await
        .expect(200);
    let sent = format!("Bearer {token}");
    assert_eq!(upstream.last().header("authorization"), Some(sent.as_str()));
}

#[tokio::test]
async fn a_token_in_a_form_of_unknown_length_is_found_and_the_form_forwarded() {
    let (door, issuer, upstream) = foreign("").await;
    let body = format!("access_token={}&pad={}", issuer.token(), "x".repeat(30_000));
    let pieces = |body: &str| {
        let pieces = body.as_bytes().chunks(1000);
        let frames = pieces.map(|piece| Frame::data(Bytes::copy_from_slice(piece)));
        let frames: Vec<Result<_, Infallible>> = frames.map(Ok).collect();
        reqwest::Body::wrap(StreamBody::new(futures_util::stream::iter(frames)))
    };
    let address: std::net::SocketAddr = door.proxy().parse().expect("an address");
    let builder = || http::builder().resolve("api.test", address);
    let url = format!("http://api.test:{}/", address.port());
    for builder in [builder(), builder().http2_prior_knowledge()] {
        let client = builder.build().expect("a client");
        let post = |body| {
            let request = client.post(&url);
            http::send(
                request
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(body),
            )
        };
        post(pieces(&body)).await.expect(200);
        assert_eq!(upstream.last().body, body.as_bytes());
        let count = upstream.seen().len();
        assert_eq!(post(pieces("a=b")).await.status, 401);
        let long = format!("pad={}&{body}", "x".repeat(70_000));
        assert_eq!(post(pieces(&long)).await.status, 413);
        assert_eq!(upstream.seen().len(), count);
    }
}

#[tokio::test]
async fn only_the_configured_places_are_searched() {
    let (door, issuer, _upstream) = foreign(", bearer_token_param_type: [query]").await;
    let token = issuer.token();
    assert_refused(door.get_as(&token, "api.test", "/").await, 401, None);
    door.get("api.test", &format!("/?access_token={token}"))
        .await
        .expect(200);
}

#[tokio::test]
async fn broken_expired_and_early_tokens_are_refused() {
    let (door, issuer, upstream) = foreign("").await;
    door.get_as(&issuer.token(), "api.test", "/")
        .await
        .expect(200);
    let now = issuer.claims()["iat"].as_i64().expect("seconds");
    let good = issuer.token();
    let (signed, _) = good.rsplit_once('.').expect("three parts");
    let tokens = [
        "garbage".to_owned(),
        format!("{signed}.AAAA"),
        format!("{signed}."),
        format!("{good}x"),
        issuer.sign(&issuer.claims_with(json!({"exp": now - 1}))),
        issuer.sign(&issuer.claims_with(json!({"nbf": now + 600}))),
        issuer.sign(&issuer.claims_with(json!({"iss": "http://elsewhere.test"}))),
    ];
    let before = upstream.seen().len();
    for token in tokens {
        let answer = door.get_as(&token, "api.test", "/").await;
        assert_refused(answer, 401, Some("invalid_token"));
    }
    assert_eq!(upstream.seen().len(), before);
}

#[tokio::test]
async fn unsigned_tokens_and_key_confusion_are_refused() {
    let (door, issuer, _upstream) = foreign("").await;
    door.get_as(&issuer.token(), "api.test", "/")
        .await
        .expect(200);
    let claims = issuer.claims();
    let key = issuer.public_key();
    for alg in ["none", "None", "nOnE"] {
        let token = forge(&json!({"alg": alg, "typ": "JWT"}), &claims, b"");
        let answer = door.get_as(&token, "api.test", "/").await;
        assert_refused(answer, 401, Some("invalid_token"));
    }
    // The public key taken for a shared secret.
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
    header.kid = key["kid"].as_str().map(str::to_owned);
    for secret in [
        key.to_string(),
        key["x"].as_str().expect("a coordinate").to_owned(),
    ] {
        let secret = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        let token = jsonwebtoken::encode(&header, &claims, &secret).expect("a token");
        let answer = door.get_as(&token, "api.test", "/").await;
        assert_refused(answer, 401, Some("invalid_token"));
    }
    // A key that the token brings along.
    let stranger = Issuer::start().await;
    let (signed, signature) = {
        let token = stranger.sign(&claims);
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        (signed.to_owned(), signature.to_owned())
    };
    let answer = door
        .get_as(&format!("{signed}.{signature}"), "api.test", "/")
        .await;
    assert_refused(answer, 401, Some("invalid_token"));
}

#[tokio::test]
async fn a_missing_scope_or_audience_is_forbidden() {
    let config = ", scopes_required: ['read admin', 'write'], audience_required: [api]";
    let (door, issuer, upstream) = foreign(config).await;
    for (changes, status) in [
        (json!({"scope": "write"}), 200),
        (json!({"scope": "admin read"}), 200),
        (json!({"scope": ["write", "x"]}), 200),
        (json!({"scope": "write", "aud": ["other", "api"]}), 200),
        (json!({"scope": "read"}), 403),
        (json!({"scope": "writer"}), 403),
        (json!({"scope": null}), 403),
        (json!({"scope": "write", "aud": "other"}), 403),
        (json!({"scope": "write", "aud": null}), 403),
    ] {
        let token = issuer.sign(&issuer.claims_with(changes.clone()));
        let answer = door.get_as(&token, "api.test", "/").await;
        if status == 403 {
            assert_refused(answer, 403, Some("insufficient_scope"));
        } else {
            assert_eq!(answer.status, status, "{changes}");
        }
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn leeway_forgives_a_clock_that_is_behind() {
    let (door, issuer, _upstream) = foreign(", leeway: 60").await;
    let now = issuer.claims()["iat"].as_i64().expect("seconds");
    let token = issuer.sign(&issuer.claims_with(json!({"exp": now - 10})));
    door.get_as(&token, "api.test", "/").await.expect(200);
    let token = issuer.sign(&issuer.claims_with(json!({"exp": now - 120})));
    assert_refused(
        door.get_as(&token, "api.test", "/").await,
        401,
        Some("invalid_token"),
    );
}

#[tokio::test]
async fn a_token_that_expires_while_it_is_cached_is_refused_then() {
    let (door, issuer, _upstream) = foreign("").await;
    // What is fetched for the first token keeps no other waiting.
    door.get_as(&issuer.token(), "api.test", "/")
        .await
        .expect(200);
    let token = eventually("a token in time", || async {
        let now = issuer.claims()["iat"].as_i64().expect("seconds");
        let token = issuer.sign(&issuer.claims_with(json!({"exp": now + 3})));
        let answer = door.get_as(&token, "api.test", "/").await;
        (answer.status == 200).then_some(token)
    })
    .await;
    let refused = eventually("the token to expire", || async {
        let answer = door.get_as(&token, "api.test", "/").await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    assert_refused(refused, 401, Some("invalid_token"));
}

#[tokio::test]
async fn keys_are_fetched_once_and_again_when_they_rotate() {
    let (door, issuer, _upstream) = foreign(", rediscovery_lifetime: 0").await;
    let token = issuer.token();
    for _ in 0..10 {
        door.get_as(&token, "api.test", "/").await.expect(200);
    }
    assert_eq!(issuer.key_fetches(), 1);
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    for count in ["{result=\"hit\"} 9", "{result=\"miss\"} 1"] {
        let line = format!("doorward_token_cache_total{count}");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let old = issuer.sign(&issuer.claims_with(json!({"sub": "late"})));
    issuer.rotate("second");
    door.get_as(&issuer.token(), "api.test", "/")
        .await
        .expect(200);
    assert_eq!(issuer.key_fetches(), 2);
    assert_refused(
        door.get_as(&old, "api.test", "/").await,
        401,
        Some("invalid_token"),
    );
}

#[tokio::test]
async fn strangers_cannot_make_the_gateway_hammer_the_provider() {
    let (door, issuer, _upstream) = foreign("").await;
    door.get_as(&issuer.token(), "api.test", "/")
        .await
        .expect(200);
    for n in 0..20 {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": format!("made-up-{n}")});
        let token = forge(&header, &issuer.claims(), &[7; 64]);
        assert_refused(
            door.get_as(&token, "api.test", "/").await,
            401,
            Some("invalid_token"),
        );
    }
    assert!(issuer.key_fetches() <= 2, "{}", issuer.key_fetches());
}

#[tokio::test]
async fn the_gateway_starts_and_heals_without_its_provider() {
    let upstream = Upstream::echo().await;
    let nobody = crate::support::ports::Port::reserve();
    let url = format!("http://{}", nobody.authority());
    let door = protected(&upstream, &url, "").await;
    let stranger = Issuer::start().await;
    let answer = door.get_as(&stranger.token(), "api.test", "/").await;
    let answer = answer.expect(500).json();
    assert_eq!(answer["message"], "An unexpected error occurred");

    let issuer = Issuer::at(&nobody.authority()).await;
    eventually("the provider to be found", || async {
        let answer = door.get_as(&issuer.token(), "api.test", "/").await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_upstream_header_and_the_hiding_of_credentials_are_configurable() {
    let config = ", upstream_access_token_header: x-token, hide_credentials: true";
    let (door, issuer, upstream) = foreign(config).await;
    let token = issuer.token();
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("host", "api.test");
    let request = request.bearer_auth(&token).header("X_Token", "forged");
    http::send(request).await.expect(200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-token"), [token.as_str()]);
    assert_eq!(seen.header("x_token"), None, "a twin with an underscore");
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn own_messages_are_shown() {
    let config = ", unauthorized_error_message: Who is there?, forbidden_error_message: Not you, scopes_required: [admin]";
    let (door, issuer, _upstream) = foreign(config).await;
    let answer = door.get("api.test", "/").await.expect(401).json();
    assert_eq!(answer["message"], "Who is there?");
    let answer = door
        .get_as(&issuer.token(), "api.test", "/")
        .await
        .expect(403)
        .json();
    assert_eq!(answer["message"], "Not you");
}

#[tokio::test]
async fn methods_without_effect_are_announced_and_their_credentials_get_401() {
    let (door, _issuer, upstream) = foreign("").await;
    door.wait_log("the warning", |line| {
        line.contains("password") && line.contains("without effect")
    })
    .await;
    let request = http::client()
        .get(door.proxy_url("/"))
        .header("host", "api.test");
    let answer = http::send(request.basic_auth("demo", Some("Ch4ng31t-demo"))).await;
    assert_refused(answer, 401, None);
    assert!(upstream.seen().is_empty());
    let file = door.path("doorward.yaml");
    let check = door.run(&["check", "-c", file.to_str().expect("UTF-8")]);
    assert!(check.status.success());
    let said = String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr);
    assert!(said.contains("without effect"), "{said}");
}

#[tokio::test]
async fn preflights_pass_when_the_plugin_does_not_run_on_them() {
    let (door, _issuer, _upstream) = foreign(", run_on_preflight: false").await;
    let url = door.proxy_url("/");
    let request = http::client()
        .request(reqwest::Method::OPTIONS, url)
        .header("host", "api.test");
    http::send(request).await.expect(200);
    assert_refused(door.get("api.test", "/").await, 401, None);
}

#[tokio::test]
async fn a_web_socket_needs_a_token_as_well() {
    let (door, issuer, _upstream) = foreign("").await;
    for (token, status) in [(Value::Null, 401), (json!(issuer.token()), 200)] {
        let mut request = http::client()
            .get(door.proxy_url("/"))
            .header("host", "api.test")
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        if let Some(token) = token.as_str() {
            request = request.bearer_auth(token);
        }
        // The echo answers 200 instead of switching; the door does not mind.
        assert_eq!(http::send(request).await.status, status);
    }
}

#[tokio::test]
async fn tokens_are_never_printed() {
    let (door, issuer, _upstream) = foreign("").await;
    let token = issuer.token();
    door.get("api.test", &format!("/?access_token={token}"))
        .await
        .expect(200);
    door.wait_log("the access log", |line| line.contains("api.test"))
        .await;
    assert!(!door.log_text().contains(&token), "{}", door.log_text());
}

/// Clients of the embedded provider: one whose tokens are opaque, and the one
/// that the gateway is.
const CLIENTS: &str = "
  base_url: http://@PROXY@
  realms:
    /:
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - {client_id: opaque, client_secret: s, grant_types: [password], scope: openid read, access_token_format: opaque}
        - {client_id: batch, client_secret: b-secret, grant_types: [client_credentials], scope: openid read}
        - {client_id: gateway, client_secret: g-secret, grant_types: [password, refresh_token, client_credentials], scope: openid read am-introspect-all-tokens}
";

async fn as_client(config: &str) -> (Door, Upstream) {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2', \
         client_id: gateway, client_secret: g-secret{config}}}}}\n",
        upstream.url("")
    );
    let setup = Setup::new().identity(CLIENTS).services(&service);
    (setup.start().await, upstream)
}

#[tokio::test]
async fn opaque_tokens_of_the_embedded_provider_are_introspected_until_revoked() {
    let (door, upstream) = as_client("").await;
    let form = [
        ("grant_type", "password"),
        ("client_id", "opaque"),
        ("client_secret", "s"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "read"),
    ];
    let token = door.token_request(&form).await.expect(200).json();
    let token = token["access_token"].as_str().expect("a token");
    assert!(!token.contains('.'), "opaque");
    for _ in 0..3 {
        door.get_as(token, "api.test", "/").await.expect(200);
    }
    let user = upstream.last();
    assert_eq!(user.header("x-credential-identifier"), Some("demo"));
    assert_refused(
        door.get_as("unknown", "api.test", "/").await,
        401,
        Some("invalid_token"),
    );
    let revoke = http::client().post(door.proxy_url("/oauth2/token/revoke"));
    let form = [
        ("token", token),
        ("client_id", "opaque"),
        ("client_secret", "s"),
    ];
    http::send(revoke.form(&form)).await.expect(200);
    assert_refused(
        door.get_as(token, "api.test", "/").await,
        401,
        Some("invalid_token"),
    );
}

#[tokio::test]
async fn users_and_clients_of_the_embedded_provider_pass_with_basic_credentials() {
    let (door, upstream) = as_client("").await;
    let ask = |name: &'static str, secret: &'static str| {
        let request = http::client().get(door.proxy_url("/"));
        http::send(
            request
                .header("host", "api.test")
                .basic_auth(name, Some(secret)),
        )
    };
    for (name, secret) in [("demo", "Ch4ng31t-demo"), ("batch", "b-secret")] {
        for _ in 0..2 {
            ask(name, secret).await.expect(200);
            let sent = upstream.last();
            assert_eq!(sent.header("x-credential-identifier"), Some(name));
            let token = sent.header("authorization").expect("a token");
            assert!(token.starts_with("Bearer ey"), "{token}");
        }
        assert_refused(ask(name, "guess").await, 401, Some("invalid_token"));
    }
    assert!(!door.log_text().contains("Ch4ng31t-demo"));
}
