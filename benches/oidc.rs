//! Tokens: verifying one, and meeting one again.
//!
//! `verify/*` is the first use of a token, next to what jsonwebtoken needs
//! for the signature alone (it parses the key each time); `filter/hit` is the
//! whole decision on a repeated request.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RsaKeyPair};
use axum::routing::get;
use axum::{Json, Router};
use criterion::{Criterion, criterion_group, criterion_main};
use doorward_core::clock::Clock;
use doorward_core::jose::jwks::KeySet;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::Metrics;
use doorward_openid_connect as openid_connect;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use pingora::protocols::http::ServerSession;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use url::Url;

const ISSUER: &str = "http://id.bench/oauth2";

struct Signer {
    alg: Algorithm,
    key: EncodingKey,
    jwk: Jwk,
}

impl Signer {
    fn new(alg: Algorithm) -> Self {
        let key = match alg {
            Algorithm::RS256 => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
                let pkcs8: aws_lc_rs::encoding::Pkcs8V1Der = pair.as_der().expect("a document");
                let pem = pem("PRIVATE KEY", pkcs8.as_ref());
                EncodingKey::from_rsa_pem(pem.as_bytes()).expect("a PEM")
            }
            _ => {
                let rng = aws_lc_rs::rand::SystemRandom::new();
                let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng);
                EncodingKey::from_ec_der(pkcs8.expect("a key").as_ref())
            }
        };
        let mut jwk = Jwk::from_encoding_key(&key, alg).expect("a public key");
        jwk.common.key_id = Some("k".into());
        Self { alg, key, jwk }
    }

    fn token(&self) -> String {
        let header = Header {
            kid: Some("k".into()),
            ..Header::new(self.alg)
        };
        jsonwebtoken::encode(&header, &claims(), &self.key).expect("a token")
    }

    fn jwks(&self) -> Value {
        json!({"keys": [self.jwk]})
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

/// The claims of interface 2.3.
fn claims() -> Value {
    let now = Clock::system().now_secs();
    json!({
        "sub": "anna", "cts": "OAUTH2_STATELESS_GRANT", "auth_level": 0,
        "auditTrackingId": "7c3ea7d2-7b44-4a4e-9d6c-0a5b9a6a6a11-1234", "iss": ISSUER,
        "tokenName": "access_token", "token_type": "Bearer",
        "authGrantId": "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6", "aud": "orders", "nbf": now,
        "grant_type": "client_credentials", "scope": ["openid", "profile"],
        "auth_time": now, "realm": "/", "exp": now + 86_400, "iat": now,
        "expires_in": 86_400, "jti": "hU1mXjQ3b2xkX2p0aV9pbl9iYXNl",
    })
}

fn verify(c: &mut Criterion) {
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    for (name, alg) in [("rs256", Algorithm::RS256), ("es256", Algorithm::ES256)] {
        let signer = Signer::new(alg);
        let token = signer.token();
        let keys = KeySet::parse(signer.jwks().to_string().as_bytes()).expect("a key set");
        c.bench_function(&format!("verify/{name}"), |b| {
            b.iter(|| {
                let token = Unverified::parse(black_box(&token)).expect("a token");
                token.verify(&keys).expect("it is genuine")
            });
        });
        let key = DecodingKey::from_jwk(&signer.jwk).expect("a key");
        let (message, signature) = token.rsplit_once('.').expect("a token");
        c.bench_function(&format!("verify/{name}/jsonwebtoken-signature-only"), |b| {
            b.iter(|| {
                jsonwebtoken::crypto::verify(signature, black_box(message.as_bytes()), &key, alg)
            });
        });
    }
}

fn filter(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let signer = Signer::new(Algorithm::ES256);
    let filter = build(&signer);
    let bearer = format!("Authorization: Bearer {}\r\n", signer.token());
    let mut known = runtime.block_on(known(&*filter, &bearer));
    c.bench_function("filter/hit", |b| {
        b.iter(|| {
            let mut exchange = Exchange::default();
            let verdict = filter.on_request(black_box(&mut known), &mut exchange);
            assert!(matches!(verdict, Verdict::Now(Flow::Continue)));
            exchange
        });
    });
    c.bench_function("filter/hit-with-upstream-headers", |b| {
        b.iter(|| {
            let mut exchange = Exchange::default();
            let verdict = filter.on_request(black_box(&mut known), &mut exchange);
            assert!(matches!(verdict, Verdict::Now(Flow::Continue)));
            let mut upstream = known.req_header().clone();
            filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
            upstream
        });
    });
    c.bench_function("filter/clone-of-the-request-alone", |b| {
        b.iter(|| black_box(&known).req_header().clone());
    });
    let mut bare = runtime.block_on(session(""));
    c.bench_function("filter/no-token", |b| {
        b.iter(|| {
            let mut exchange = Exchange::default();
            filter.on_request(black_box(&mut bare), &mut exchange)
        });
    });
}

/// One decision of each of several workers at once, on the same token. Two would take as
/// long as one on two cores if nothing that they share were written; what they take
/// longer is the price of that.
fn workers(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let signer = Signer::new(Algorithm::ES256);
    let filter = build(&signer);
    let bearer = format!("Authorization: Bearer {}\r\n", signer.token());
    for (name, workers) in [
        ("filter/hit-by-one-worker", 1),
        ("filter/hit-by-two-workers", 2),
    ] {
        let sessions = (0..workers).map(|_| runtime.block_on(known(&*filter, &bearer)));
        let mut sessions: Vec<_> = sessions.collect();
        c.bench_function(name, |b| {
            b.iter_custom(|rounds| at_once(&*filter, &mut sessions, rounds));
        });
    }
}

/// How long the slowest worker takes for so many decisions.
fn at_once(filter: &dyn Filter, sessions: &mut [ServerSession], rounds: u64) -> Duration {
    let start = Barrier::new(sessions.len());
    let worker = |session: &mut ServerSession| {
        start.wait();
        let began = Instant::now();
        for _ in 0..rounds {
            let mut exchange = Exchange::default();
            let verdict = filter.on_request(black_box(session), &mut exchange);
            assert!(matches!(verdict, Verdict::Now(Flow::Continue)));
            black_box(exchange);
        }
        began.elapsed()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = sessions
            .iter_mut()
            .map(|session| scope.spawn(|| worker(session)))
            .collect();
        let times = running.into_iter().map(|worker| worker.join());
        times.fold(Duration::ZERO, |most, time| {
            most.max(time.expect("no panic"))
        })
    })
}

fn build(signer: &Signer) -> Arc<dyn Filter> {
    let jwks = signer.jwks();
    let discovery = json!({"issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys")});
    let router = Router::new()
        .route(
            "/oauth2/.well-known/openid-configuration",
            get(async || Json(discovery)),
        )
        .route("/oauth2/keys", get(async || Json(jwks)));
    let outbound = Arc::new(Outbound::new());
    outbound.register_local(&Url::parse("http://id.bench").expect("a URL"), router);
    let parts = Parts::new(Clock::system(), outbound, Arc::new(Metrics::default()));
    let config = json!({"issuer": ISSUER, "scopes_required": ["openid"]});
    let config = config.as_object().expect("an object");
    (openid_connect::KIND.build)(config, &parts).expect("a filter")
}

/// A request with a token that the filter knows.
async fn known(filter: &dyn Filter, bearer: &str) -> ServerSession {
    let mut session = session(bearer).await;
    let mut exchange = Exchange::default();
    if let Verdict::Wait = filter.on_request(&mut session, &mut exchange) {
        filter.on_request_slow(&mut session, &mut exchange).await;
    }
    session
}

async fn session(headers: &str) -> ServerSession {
    let (mut client, server) = tokio::io::duplex(16 * 1024);
    let head = format!(
        "GET /orders HTTP/1.1\r\nHost: orders.localhost\r\nUser-Agent: wrk\r\n{headers}\r\n"
    );
    client.write_all(head.as_bytes()).await.expect("room");
    let mut session = ServerSession::new_http1(Box::new(server));
    assert!(session.read_request().await.expect("a request"));
    session
}

criterion_group!(benches, verify, filter, workers);
criterion_main!(benches);
