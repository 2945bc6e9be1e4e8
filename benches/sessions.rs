//! The whole decision on a request that repeats: with a bearer token, with the
//! handle of a session in the store, with a session sealed in a cookie of about
//! 2 KB. `request` is what there is without the plugin.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Form, Json, Router};
use criterion::{Criterion, criterion_group, criterion_main};
use doorward_core::clock::Clock;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::Metrics;
use doorward_openid_connect as openid_connect;
use doorward_openid_connect::Storages;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use pingora::protocols::http::ServerSession;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;
use url::Url;

const ISSUER: &str = "http://id.bench/oauth2";

struct Signer {
    key: EncodingKey,
    jwk: Jwk,
}

impl Signer {
    fn new() -> Self {
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        let rng = aws_lc_rs::rand::SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng);
        let key = EncodingKey::from_ec_der(pkcs8.expect("a key").as_ref());
        let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).expect("a public key");
        jwk.common.key_id = Some("k".into());
        Self { key, jwk }
    }

    fn token(&self, more: &Value) -> String {
        let now = Clock::system().now_secs();
        let mut claims = json!({"iss": ISSUER, "sub": "anna", "aud": "gateway", "iat": now,
            "exp": now + 86_400, "scope": "openid profile", "jti": "hU1mXjQ3b2xkX2p0aV9pbl9i"});
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        let header = Header {
            kid: Some("k".into()),
            ..Header::new(Algorithm::ES256)
        };
        jsonwebtoken::encode(&header, &claims, &self.key).expect("a token")
    }
}

/// A provider whose codes are the nonces.
fn provider(signer: &Arc<Signer>) -> Router {
    let jwks = json!({"keys": [signer.jwk]});
    let discovery = json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys"),
        "token_endpoint": format!("{ISSUER}/token"),
        "authorization_endpoint": format!("{ISSUER}/authorize")});
    let signer = Arc::clone(signer);
    let token = async move |Form(form): Form<HashMap<String, String>>| {
        let id = json!({"nonce": form["code"], "name": "Anna", "email": "anna@example.com"});
        Json(
            json!({"access_token": signer.token(&json!({})), "token_type": "Bearer",
            "expires_in": 86_400, "id_token": signer.token(&id), "refresh_token": "r".repeat(40)}),
        )
    };
    Router::new()
        .route(
            "/oauth2/.well-known/openid-configuration",
            get(async || Json(discovery)),
        )
        .route("/oauth2/keys", get(async || Json(jwks)))
        .route("/oauth2/token", post(token))
}

async fn request(target: &str, headers: &str) -> ServerSession {
    let (mut client, server) = tokio::io::duplex(32 * 1024);
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: orders.localhost\r\nUser-Agent: wrk\r\n{headers}\r\n"
    );
    client.write_all(head.as_bytes()).await.expect("room");
    let mut session = ServerSession::new_http1(Box::new(server));
    assert!(session.read_request().await.expect("a request"));
    session
}

async fn decide(filter: &dyn Filter, session: &mut ServerSession, exchange: &mut Exchange) -> Flow {
    match filter.on_request(session, exchange) {
        Verdict::Now(flow) => flow,
        Verdict::Wait => filter.on_request_slow(session, exchange).await,
    }
}

/// The cookies that an exchange gave.
fn cookies(exchange: &Exchange) -> String {
    let fields = exchange.response_headers.iter();
    let pairs = fields.filter(|(name, _)| name == "set-cookie");
    let pairs = pairs.map(|(_, value)| {
        let value = value.to_str().expect("text");
        value.split(';').next().expect("a pair").to_owned()
    });
    pairs.collect::<Vec<_>>().join("; ")
}

/// Signs a browser in; its cookies.
async fn sign_in(filter: &dyn Filter) -> String {
    let mut exchange = Exchange::default();
    let mut session = request("/orders", "").await;
    let Flow::Respond(reply) = decide(filter, &mut session, &mut exchange).await else {
        panic!("nobody is in yet");
    };
    let location = reply.headers.iter().find(|(name, _)| name == "location");
    let location = location.expect("an address").1.to_str().expect("text");
    let address = Url::parse(location).expect("a URL");
    let query: HashMap<_, _> = address.query_pairs().into_owned().collect();
    let back = format!("/orders?code={}&state={}", query["nonce"], query["state"]);
    let headers = format!("Cookie: {}\r\n", cookies(&exchange));
    let mut exchange = Exchange::default();
    let mut session = request(&back, &headers).await;
    let flow = decide(filter, &mut session, &mut exchange).await;
    assert!(matches!(flow, Flow::Continue), "{:?}", exchange.refusal);
    cookies(&exchange)
}

fn measure(c: &mut Criterion, runtime: &Runtime, name: &str, filter: &dyn Filter, headers: &str) {
    let mut known = runtime.block_on(request("/orders", headers));
    c.bench_function(name, |b| {
        b.iter(|| {
            let mut exchange = Exchange::default();
            let verdict = filter.on_request(black_box(&mut known), &mut exchange);
            if let Verdict::Wait = verdict {
                // What was read of a session is good for a while only.
                let flow = runtime.block_on(filter.on_request_slow(&mut known, &mut exchange));
                assert!(matches!(flow, Flow::Continue));
            }
            let mut upstream = known.req_header().clone();
            filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
            upstream
        });
    });
}

fn sessions(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let signer = Arc::new(Signer::new());
    let outbound = Arc::new(Outbound::new());
    let base = Url::parse("http://id.bench").expect("a URL");
    outbound.register_local(&base, provider(&signer));
    let directory = tempfile::tempdir().expect("a directory");
    let parts = Parts::new(Clock::system(), outbound, Arc::new(Metrics::default()));
    let url = format!("sqlite:{}", directory.path().join("db").display());
    parts.slots.put(runtime.block_on(async {
        let store = doorward_store::open(&url).await.expect("a store");
        Storages::on(store, Clock::system()).await
    }));
    let build = |storage: &str| {
        let config = json!({"issuer": ISSUER, "client_id": ["gateway"], "client_secret": ["s"],
            "session_secret": "bench", "session_storage": storage,
            "auth_methods": ["session", "bearer", "authorization_code"]});
        (openid_connect::KIND.build)(config.as_object().expect("an object"), &parts)
            .expect("a filter")
    };
    let mut bare = runtime.block_on(request("/orders", ""));
    c.bench_function("session/request", |b| {
        b.iter(|| black_box(&mut bare).req_header().clone());
    });
    let filter = build("cookie");
    let bearer = format!("Authorization: Bearer {}\r\n", signer.token(&json!({})));
    measure(c, &runtime, "session/bearer", &*filter, &bearer);
    for (name, storage) in [("session/handle", "store"), ("session/sealed-2k", "cookie")] {
        let filter = build(storage);
        let cookies = runtime.block_on(sign_in(&*filter));
        let headers = format!("Cookie: {cookies}\r\n");
        measure(c, &runtime, name, &*filter, &headers);
    }
}

criterion_group!(benches, sessions);
criterion_main!(benches);
