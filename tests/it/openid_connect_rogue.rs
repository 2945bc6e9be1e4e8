//! A provider that misbehaves on purpose, before the openid-connect plugin of the
//! real program.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::http::{client, send};
use crate::support::issuer::forge;
use crate::support::{Answer, Door, Issuer, Reply, Setup, Upstream, eventually};

/// What the token endpoint answers, made of the nonce of the login.
pub(crate) type Answering = Arc<Mutex<Box<dyn Fn(&Issuer, &str) -> Reply + Send>>>;

/// A door with `api.test` behind the plugin, and a provider whose token endpoint
/// does as it is told.
pub(crate) struct Stage {
    pub(crate) door: Door,
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) upstream: Upstream,
    pub(crate) answering: Answering,
    pub(crate) nonce: Arc<Mutex<String>>,
    _rogue: Upstream,
}

impl Stage {
    pub(crate) async fn set(config: &str) -> Self {
        Self::with_timeout(30_000, config).await
    }

    /// The plugin waits for the provider for so many milliseconds.
    async fn with_timeout(timeout: u32, config: &str) -> Self {
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
             client_secret: a-secret-of-thirty-two-characters, timeout: {timeout}, \
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

    pub(crate) fn answer(&self, with: impl Fn(&Issuer, &str) -> Reply + Send + 'static) {
        *self.answering.lock().expect("not poisoned") = Box::new(with);
    }

    /// Begins a login: the cookie and the parameters for the provider.
    pub(crate) async fn begin(&self, target: &str) -> (String, Vec<(String, String)>) {
        let answer = self.door.get("api.test", target).await.expect(302);
        let cookie = answer.header("set-cookie");
        let cookie = cookie.split(';').next().expect("a pair").to_owned();
        let url = url::Url::parse(answer.header("location")).expect("a URL");
        (cookie, url.query_pairs().into_owned().collect())
    }

    /// Comes back with a code, as the provider leads a browser.
    pub(crate) async fn login(&self) -> Answer {
        let (cookie, asked) = self.begin("/orders").await;
        *self.nonce.lock().expect("not poisoned") = member(&asked, "nonce").to_owned();
        let state = member(&asked, "state");
        self.get(&format!("/orders?code=c&state={state}"), &cookie)
            .await
    }

    pub(crate) async fn get(&self, target: &str, cookie: &str) -> Answer {
        let request = client().get(self.door.proxy_url(target));
        send(request.header("host", "api.test").header("cookie", cookie)).await
    }

    pub(crate) async fn counted(&self, code: &str) -> bool {
        let metrics = self.door.admin_get("/metrics").await.expect(200).body;
        metrics.contains(&format!(
            "doorward_plugin_decisions_total{{plugin=\"openid-connect\",decision=\"{code}\"}} 1"
        ))
    }
}

pub(crate) fn member<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    let found = pairs.iter().find(|(key, _)| key == name);
    found.map_or("", |(_, value)| value)
}

/// Claims of a good ID token with changes.
pub(crate) fn id_claims(issuer: &Issuer, nonce: &str, changes: &Value) -> Value {
    let mut claims = issuer.claims_with(json!({"scope": null, "aud": "gateway", "nonce": nonce}));
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

pub(crate) fn tokens(issuer: &Issuer, id_token: &str) -> Value {
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
        (json!({"exp": 1}), 401, "id_token_expired"),
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
        (json!({"alg": "none"}), "id_token_alg"),
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
        metrics.contains("decision=\"id_token_alg\"} 2"),
        "{} {metrics}",
        answer.body
    );
}

type Way = Box<dyn Fn() -> Reply + Send>;

/// A login fails and is counted as `code`, once.
#[tokio::test]
async fn a_provider_that_sends_no_state_back_does_not_lead_browsers_round_and_round() {
    let stage = Stage::set("").await;
    let first = stage.door.get("api.test", "/orders").await.expect(302);
    let cookies: Vec<_> = (first.headers.get_all("set-cookie").iter())
        .filter_map(|cookie| cookie.to_str().ok()?.split(';').next())
        .collect();
    let cookies = cookies.join("; ");
    for query in ["code=abc", "error=access_denied"] {
        let target = format!("/orders?{query}");
        let answer = stage.get(&target, &cookies).await.expect(400);
        assert!(
            answer.body.contains("malformed_callback"),
            "{}",
            answer.body
        );
    }
    assert!(stage.upstream.seen().is_empty());
    // Who has begun no login may ask for a page with such a parameter.
    stage.get("/orders?code=abc", "a=b").await.expect(302);
}

#[tokio::test]
async fn metadata_of_another_issuer_open_no_door() {
    let issuer = Issuer::start().await;
    let other = issuer.url();
    let impostor = Upstream::start(move |_| {
        let keys = format!("{other}/keys");
        Reply::Json(200, json!({"issuer": other, "jwks_uri": keys}))
    })
    .await;
    let upstream = Upstream::echo().await;
    let place = impostor.url("/a/rp/.well-known/openid-configuration");
    for (allowed, status) in [(String::new(), 500), (format!("'{}'", issuer.url()), 200)] {
        let service = format!(
            "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
             - {{name: openid-connect, config: {{issuer: '{place}', auth_methods: [bearer], \
             display_errors: true, issuers_allowed: [{allowed}]}}}}\n",
            upstream.url(""),
        );
        let door = Setup::new().services(&service).start().await;
        let answer = door.get_as(&issuer.token(), "api.test", "/x").await;
        let answer = answer.expect(status);
        if status == 500 {
            assert!(
                answer.body.contains("provider_malformed"),
                "{}",
                answer.body
            );
            door.wait_log("both issuers", |line| {
                line.contains("the metadata names the issuer") && line.contains("issuers_allowed")
            })
            .await;
        }
    }
}

async fn fails_as(stage: &Stage, way: Way, code: &str) {
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
    let ways: Vec<(Way, &str)> = vec![
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
            "client_refused",
        ),
    ];
    for (way, code) in ways {
        fails_as(&stage, way, code).await;
    }
    // Only for what never comes is the wait short.
    let hasty = Stage::with_timeout(2000, "").await;
    eventually("the provider to be found", || async {
        let answer = hasty.door.get("api.test", "/").await;
        (answer.status == 302).then_some(())
    })
    .await;
    fails_as(&hasty, Box::new(|| Reply::Hang), "provider_timeout").await;
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

pub(crate) async fn refused(door: &Door, code: &str) -> u64 {
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
    eventually("the provider to be found", || async {
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
