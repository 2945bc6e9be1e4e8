//! A provider that misbehaves on purpose, and clients that attack logins, with
//! the openid-connect plugin of the real program between them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::http::{client, send};
use crate::support::issuer::forge;
use crate::support::{Answer, Door, Issuer, Reply, Setup, Upstream};

/// What the token endpoint answers, made of the nonce of the login.
type Answering = Arc<Mutex<Box<dyn Fn(&Issuer, &str) -> Reply + Send>>>;

/// A door with `api.test` behind the plugin, and a provider whose token endpoint
/// does as it is told.
struct Stage {
    door: Door,
    issuer: Arc<Issuer>,
    upstream: Upstream,
    answering: Answering,
    nonce: Arc<Mutex<String>>,
    _rogue: Upstream,
}

impl Stage {
    async fn set(config: &str) -> Self {
        let issuer = Arc::new(Issuer::start().await);
        let answering: Answering = Arc::new(Mutex::new(Box::new(|_, _| Reply::Close)));
        let nonce = Arc::new(Mutex::new(String::new()));
        let (told, signing, of) = (answering.clone(), issuer.clone(), nonce.clone());
        let rogue = Upstream::start(move |_| {
            let nonce = of.lock().expect("not poisoned").clone();
            told.lock().expect("not poisoned")(&signing, &nonce)
        })
        .await;
        let upstream = Upstream::echo().await;
        let service = format!(
            "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
             - {{name: openid-connect, config: {{issuer: '{}', client_id: gateway, \
             client_secret: a-secret-of-thirty-two-characters, timeout: 2000, \
             session_secret: s, display_errors: true, token_endpoint: '{}'{config}}}}}\n",
            upstream.url(""),
            issuer.url(),
            rogue.url("/token"),
        );
        let door = Setup::new().services(&service).start().await;
        Self {
            door,
            issuer,
            upstream,
            answering,
            nonce,
            _rogue: rogue,
        }
    }

    fn answer(&self, with: impl Fn(&Issuer, &str) -> Reply + Send + 'static) {
        *self.answering.lock().expect("not poisoned") = Box::new(with);
    }

    /// Begins a login: the cookie and the parameters for the provider.
    async fn begin(&self, target: &str) -> (String, Vec<(String, String)>) {
        let answer = self.door.get("api.test", target).await.expect(302);
        let cookie = answer.header("set-cookie");
        let cookie = cookie.split(';').next().expect("a pair").to_owned();
        let url = url::Url::parse(answer.header("location")).expect("a URL");
        (cookie, url.query_pairs().into_owned().collect())
    }

    /// Comes back with a code, as the provider leads a browser.
    async fn login(&self) -> Answer {
        let (cookie, asked) = self.begin("/orders").await;
        *self.nonce.lock().expect("not poisoned") = member(&asked, "nonce").to_owned();
        let state = member(&asked, "state");
        self.get(&format!("/orders?code=c&state={state}"), &cookie)
            .await
    }

    async fn get(&self, target: &str, cookie: &str) -> Answer {
        let request = client().get(self.door.proxy_url(target));
        send(request.header("host", "api.test").header("cookie", cookie)).await
    }

    async fn counted(&self, code: &str) -> bool {
        let metrics = self.door.admin_get("/metrics").await.expect(200).body;
        metrics.contains(&format!(
            "doorward_plugin_decisions_total{{plugin=\"openid-connect\",decision=\"{code}\"}} 1"
        ))
    }
}

fn member<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    let found = pairs.iter().find(|(key, _)| key == name);
    found.map_or("", |(_, value)| value)
}

/// Claims of a good ID token with changes.
fn id_claims(issuer: &Issuer, nonce: &str, changes: &Value) -> Value {
    let mut claims = issuer.claims_with(json!({"scope": null, "aud": "gateway", "nonce": nonce}));
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

fn tokens(issuer: &Issuer, id_token: &str) -> Value {
    json!({"access_token": issuer.token(), "token_type": "Bearer", "expires_in": 60,
        "id_token": id_token})
}

#[tokio::test]
async fn each_wrong_id_token_of_a_provider_is_refused_by_its_own_name() {
    let stage = Stage::set("").await;
    for (changes, status, code) in [
        (json!({"iss": "http://evil.test"}), 401, "wrong_issuer"),
        (json!({"aud": "another"}), 403, "wrong_audience"),
        (json!({"nonce": "another"}), 401, "wrong_nonce"),
        (json!({"at_hash": "AAAA"}), 401, "wrong_at_hash"),
        (json!({"exp": 1}), 401, "token_expired"),
        (json!({"sub": ""}), 401, "wrong_id_token"),
    ] {
        stage.answer(move |issuer, nonce| {
            let id_token = issuer.sign(&id_claims(issuer, nonce, &changes));
            Reply::Json(200, tokens(issuer, &id_token))
        });
        let answer = stage.login().await.expect(status);
        assert!(
            !answer.headers.contains_key("set-cookie")
                || !answer.header("set-cookie").contains("session=ey")
        );
        assert!(stage.counted(code).await, "{code}: {}", answer.body);
    }
    stage.answer(|issuer, nonce| {
        let id_token = issuer.sign(&id_claims(issuer, nonce, &json!({})));
        Reply::Json(200, tokens(issuer, &id_token))
    });
    stage.login().await.expect(200);
}

#[tokio::test]
async fn id_tokens_that_are_not_signed_by_the_provider_are_refused_by_name() {
    let stage = Stage::set("").await;
    let public = stage.issuer.public_key();
    for (header, code) in [
        (json!({"alg": "none"}), "unsupported_alg"),
        (json!({"alg": "ES256", "kid": "first"}), "bad_signature"),
        (json!({"alg": "ES256", "kid": "another"}), "unknown_key"),
    ] {
        stage.answer(move |issuer, nonce| {
            let id_token = forge(&header, &id_claims(issuer, nonce, &json!({})), &[1; 64]);
            Reply::Json(200, tokens(issuer, &id_token))
        });
        let answer = stage.login().await.expect(401);
        assert!(stage.counted(code).await, "{code}: {}", answer.body);
    }
    // The public key as the secret of an HMAC.
    stage.answer(move |issuer, nonce| {
        let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
        header.kid = Some("first".to_owned());
        let x = public["x"].as_str().expect("a coordinate");
        let secret = URL_SAFE_NO_PAD.decode(x).expect("base64url");
        let key = jsonwebtoken::EncodingKey::from_secret(&secret);
        let claims = id_claims(issuer, nonce, &json!({"exp": 4_000_000_000_u32}));
        let id_token = jsonwebtoken::encode(&header, &claims, &key).expect("a token");
        Reply::Json(200, tokens(issuer, &id_token))
    });
    let answer = stage.login().await.expect(401);
    let metrics = stage.door.admin_get("/metrics").await.body;
    assert!(
        metrics.contains("decision=\"unsupported_alg\"} 2"),
        "{} {metrics}",
        answer.body
    );
}

#[tokio::test]
async fn each_way_to_fail_of_a_token_endpoint_has_its_name() {
    let stage = Stage::set("").await;
    let raw = |text: &str| text.as_bytes().to_vec();
    let html = raw(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<h1>hello</h1>\n",
    );
    let cut = raw(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"access_token\":",
    );
    let broken = raw(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"access",
    );
    let away =
        raw("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    let ways: Vec<(Box<dyn Fn() -> Reply + Send>, &str)> = vec![
        (Box::new(|| Reply::Json(500, json!({}))), "provider_error"),
        (
            Box::new(move || Reply::Raw(html.clone())),
            "provider_malformed",
        ),
        (
            Box::new(move || Reply::Raw(away.clone())),
            "provider_redirects",
        ),
        (
            Box::new(|| Reply::Stream {
                length: 10 * 1024 * 1024,
                chunked: true,
            }),
            "provider_answer_too_long",
        ),
        (Box::new(|| Reply::Hang), "provider_timeout"),
        (Box::new(|| Reply::Close), "provider_unavailable"),
        (
            Box::new(|| Reply::Json(200, json!({}))),
            "provider_malformed",
        ),
        (
            Box::new(move || Reply::Raw(cut.clone())),
            "provider_malformed",
        ),
        (
            Box::new(|| Reply::Json(400, json!({"error": "invalid_client"}))),
            "provider_refuses",
        ),
    ];
    for (way, code) in ways {
        let before = refused(&stage.door, code).await;
        stage.answer(move |_, _| way());
        let answer = stage.login().await.expect(500);
        assert_eq!(
            refused(&stage.door, code).await,
            before + 1,
            "{code}: {}",
            answer.body
        );
    }
    stage.answer(move |_, _| Reply::Raw(broken.clone()));
    stage.login().await.expect(500);
    let late = Duration::from_millis(50);
    stage.answer(move |issuer, nonce| {
        let id_token = issuer.sign(&id_claims(issuer, nonce, &json!({})));
        Reply::Later(late, Box::new(Reply::Json(200, tokens(issuer, &id_token))))
    });
    stage.login().await.expect(200);
    let log = stage.door.log_text();
    assert!(!log.contains("a-secret-of"), "{log}");
    assert!(!log.contains("code=c"), "{log}");
}

async fn refused(door: &Door, code: &str) -> u64 {
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    let line = format!("decision=\"{code}\"}} ");
    let found = metrics.lines().find_map(|text| text.split(&line).nth(1));
    found.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_door_starts_without_its_provider_and_shows_how_that_is_doing() {
    let port = crate::support::ports::Port::reserve();
    let address = port.authority();
    let upstream = Upstream::echo().await;
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://{address}', auth_methods: [bearer]}}}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let issuers = || async {
        door.admin_get("/openid-connect/issuers")
            .await
            .expect(200)
            .json()
    };
    assert_eq!(issuers().await["data"][0]["health"]["state"], "unknown");
    let token = {
        let elsewhere = Issuer::start().await;
        elsewhere.token()
    };
    door.get_as(&token, "api.test", "/").await.expect(500);
    let shown = issuers().await;
    let one = &shown["data"][0];
    assert_eq!(one["health"]["state"], "down");
    assert!(one["health"]["last_error"].as_str().is_some());
    let metrics = door.admin_get("/metrics").await.body;
    let gauge = format!("doorward_openid_issuer_up{{issuer=\"http://{address}/\"}} 0");
    assert!(metrics.contains(&gauge), "{metrics}");
    let issuer = Issuer::at(&address).await;
    let token = issuer.token();
    crate::support::eventually("the provider to be found", || async {
        let answer = door.get_as(&token, "api.test", "/").await;
        (answer.status == 200).then_some(())
    })
    .await;
    let shown = issuers().await;
    let one = &shown["data"][0];
    assert_eq!(one["health"]["state"], "up");
    assert_eq!(one["keys"][0]["kid"], "first");
    assert!(one["keys"][0].get("d").is_none());
    assert_eq!(one["configuration"]["issuer"], issuer.url());
    let path = format!(
        "/openid-connect/issuers/{}",
        one["id"].as_str().expect("an id")
    );
    door.admin_get(&path).await.expect(200);
    // What was fetched last stays in force.
    drop(issuer);
    door.get_as(&token, "api.test", "/").await.expect(200);
    door.admin_delete(&path).await.expect(204);
    door.get_as(&token, "api.test", "/").await.expect(500);
    door.admin_get("/openid-connect/issuers/nobody")
        .await
        .expect(404);
}

/// Every spelling of a header that upstreams might take for the gateway's word.
fn spellings(name: &str) -> Vec<String> {
    vec![
        name.to_owned(),
        name.to_lowercase(),
        name.to_uppercase(),
        name.replace('-', "_"),
        name.to_lowercase().replace('-', "_"),
        name.replacen('-', "_", 1),
    ]
}

const FORGED: [&str; 8] = [
    "X-Consumer-ID",
    "X-Consumer-Username",
    "X-Consumer-Custom-ID",
    "X-Anonymous-Consumer",
    "X-Credential-Identifier",
    "X-Authenticated-Groups",
    "X-User-Mail",
    "X-ID-Token",
];

const TELLS: &str = ", auth_methods: [bearer], upstream_headers_claims: [email], \
    upstream_headers_names: [X-User-Mail], upstream_id_token_header: x_id_token";

#[tokio::test]
async fn forged_identity_headers_in_every_spelling_on_every_path() {
    let preflight = format!("{TELLS}, run_on_preflight: false");
    let stage = Stage::set(&preflight).await;
    let token = stage.issuer.token();
    for (method, authorization) in [
        ("GET", Some(&token)),
        ("OPTIONS", None),
        ("POST", Some(&token)),
    ] {
        for name in FORGED {
            for spelling in spellings(name) {
                let method = method.parse().expect("a method");
                let mut request = client().request(method, stage.door.proxy_url("/orders"));
                request = request.header("host", "api.test");
                // Twice, and nominated as of this hop alone.
                request = request.header(&spelling, "admin").header(&spelling, "root");
                request = request.header("connection", format!("close, {name}"));
                if let Some(token) = authorization {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                send(request).await.expect(200);
                let seen = stage.upstream.last();
                let wanted = name.to_lowercase();
                for (key, value) in &seen.headers {
                    let same = key.replace('_', "-") == wanted;
                    let forged = value.contains("admin") || value.contains("root");
                    assert!(!(same && forged), "{spelling}: {key}: {value}");
                }
            }
        }
    }
}

#[tokio::test]
async fn forged_identity_headers_of_the_anonymous_consumer() {
    let config = format!("{TELLS}, anonymous: guest");
    let stage = Stage::set(&config).await;
    let guest = json!({"username": "guest"});
    stage
        .door
        .admin_post("/consumers", &guest)
        .await
        .expect(201);
    for name in FORGED {
        for spelling in spellings(name) {
            let request = client().get(stage.door.proxy_url("/orders"));
            let request = request
                .header("host", "api.test")
                .header(&spelling, "admin");
            send(request).await.expect(200);
            let seen = stage.upstream.last();
            assert_eq!(seen.header("x-consumer-username"), Some("guest"));
            assert_eq!(seen.header("x-anonymous-consumer"), Some("true"));
            let forged = seen.headers.iter().find(|(_, value)| value == "admin");
            assert_eq!(forged, None, "{spelling}");
        }
    }
}

#[tokio::test]
async fn open_redirects_by_what_a_login_leads_back_to() {
    let stage = Stage::set(", redirect_uri: ['http://api.test/callback']").await;
    stage.answer(|issuer, nonce| {
        let id_token = issuer.sign(&id_claims(issuer, nonce, &json!({})));
        Reply::Json(200, tokens(issuer, &id_token))
    });
    for target in [
        "//evil.test/",
        "///evil.test/",
        "/%5cevil.test/",
        "/%5c%5cevil.test",
        "/@evil.test/",
        "/x@evil.test",
        "/%09/evil.test",
        "/%0d%0aLocation:%20http://evil.test/",
        "/.evil.test",
        "/orders?next=https://evil.test/",
        "/javascript:alert(1)",
        "/http://evil.test/",
    ] {
        let answer = stage.door.get("api.test", target).await;
        if answer.status == 400 {
            continue; // not even looked at
        }
        let answer = answer.expect(302);
        let cookie = answer
            .header("set-cookie")
            .split(';')
            .next()
            .expect("a pair")
            .to_owned();
        let url = url::Url::parse(answer.header("location")).expect("a URL");
        assert_eq!(format!("http://{}", url.authority()), stage.issuer.url());
        let asked: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        assert_eq!(member(&asked, "redirect_uri"), "http://api.test/callback");
        *stage.nonce.lock().expect("not poisoned") = member(&asked, "nonce").to_owned();
        let back = format!("/callback?code=c&state={}", member(&asked, "state"));
        let answer = stage.get(&back, &cookie).await.expect(302);
        let location = answer.header("location");
        assert!(
            location.starts_with("http://api.test/"),
            "{target}: {location}"
        );
        let url = url::Url::parse(location).expect("a URL");
        assert_eq!(url.host_str(), Some("api.test"), "{target}: {location}");
    }
}

#[tokio::test]
async fn a_login_is_asked_for_at_another_host_than_the_request_names() {
    let stage = Stage::set("").await;
    for host in [
        "api.test@evil.test",
        "api.test/evil",
        "api.test\\evil.test",
        "evil.test#api.test",
    ] {
        let request = client().get(stage.door.proxy_url("/orders"));
        let answer = send(request.header("host", host)).await;
        assert!(
            matches!(answer.status, 400 | 404),
            "{host}: {}",
            answer.status
        );
    }
    let request = client().get(stage.door.proxy_url("/orders"));
    let request = request
        .header("host", "api.test")
        .header("x-forwarded-host", "evil.test");
    let answer = send(request.header("forwarded", "host=evil.test"))
        .await
        .expect(302);
    assert!(!answer.header("location").contains("evil.test"));
}

#[tokio::test]
async fn duplicated_parameters_of_a_callback() {
    let stage = Stage::set("").await;
    let (cookie, asked) = stage.begin("/orders").await;
    let state = member(&asked, "state");
    for (query, status, code) in [
        (
            format!("code=a&code=b&state={state}"),
            400,
            "malformed_callback",
        ),
        (
            format!("code=a&state={state}&state={state}"),
            400,
            "malformed_callback",
        ),
        (
            format!("code=a&state={state}&iss=a&iss=b"),
            400,
            "malformed_callback",
        ),
        (
            format!("code=a&state={state}&iss=http://evil.test"),
            401,
            "mixed_up_issuer",
        ),
        (
            format!("error=x&error=y&state={state}"),
            400,
            "malformed_callback",
        ),
        (format!("code=&state={state}"), 400, "malformed_callback"),
    ] {
        let before = refused(&stage.door, code).await;
        stage
            .get(&format!("/orders?{query}"), &cookie)
            .await
            .expect(status);
        assert_eq!(refused(&stage.door, code).await, before + 1, "{query}");
    }
    let log = stage.door.log_text();
    assert!(!log.contains(state), "nothing that could be used: {log}");
}

#[tokio::test]
async fn a_code_of_another_login_is_injected() {
    let stage = Stage::set("").await;
    // The provider binds the code to the other login's nonce.
    stage.answer(|issuer, _| {
        let id_token = issuer.sign(&id_claims(issuer, "nonce-of-the-attacker", &json!({})));
        Reply::Json(200, tokens(issuer, &id_token))
    });
    stage.login().await.expect(401);
    assert!(stage.counted("wrong_nonce").await);
}

#[tokio::test]
async fn a_state_of_another_browser_and_two_cookies_of_one_name() {
    let stage = Stage::set("").await;
    let (mine, asked) = stage.begin("/orders").await;
    let (other, _) = stage.begin("/orders").await;
    let back = format!("/orders?code=c&state={}", member(&asked, "state"));
    stage.get(&back, &other).await.expect(401);
    assert!(stage.counted("foreign_login").await);
    // Whoever plants a second cookie decides nothing.
    let answer = stage.get(&back, &format!("{other}; {mine}")).await;
    assert_ne!(answer.status, 200);
    stage.get(&back, "").await.expect(401);
}
