//! The token broker: a token that is met again, one that has to be looked up,
//! and what looking up costs the more tokens are stored.
//!
//! `look-up/N` and `filter/not-cached` are with N tokens in the store: a
//! thousand, and a hundred thousand, or as many as `BROKER_TOKENS` says (ten
//! million take two gigabytes and some minutes in the directory for temporary
//! files).

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use doorward_audit::{Audit, AuditConfig};
use doorward_core::clock::Clock;
use doorward_core::model::broker::{StoredTokens, TokenFacts, TokenInsertion};
use doorward_core::model::grant::TokenHash;
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugins::token_broker::config::BrokerConfig;
use doorward_plugins::token_broker::{Broker, KIND};
use doorward_store::{self as store, Store};
use futures_util::future::join_all;
use pingora::protocols::http::ServerSession;
use serde_json::json;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

// The program's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tokens that are asked about: more than the cache holds.
const ASKED: usize = 60_000;
/// A day, in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// A store with tokens, and the broker on it.
struct World {
    _directory: TempDir,
    store: Arc<Store>,
    filter: Arc<dyn Filter>,
    /// Of those that are asked about.
    texts: Vec<String>,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

impl World {
    /// With `count` tokens besides the `asked` ones.
    async fn new(count: u64, asked: usize) -> Self {
        let directory = TempDir::new().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = store::open(&url).await.expect("a store");
        let config = json!({
            "products": [{"name": "p", "api_resources": ["/**"], "scopes": ["READ"]}],
            "developers": [{"email": "dev@bench.example"}],
            "applications": [{"name": "a", "developer": "dev@bench.example", "products": ["p"],
                              "consumer_key": "orders"}],
        });
        let config: BrokerConfig = serde_json::from_value(config).expect("a section");
        let (clock, metrics) = (Clock::system(), Arc::new(Metrics::default()));
        let audit = Audit::open(
            AuditConfig::default(),
            store.clone(),
            clock.clone(),
            &metrics,
        );
        let broker = Broker::open(
            &config,
            store.clone(),
            clock.clone(),
            metrics.clone(),
            audit.expect("an audit log"),
        )
        .await;
        let broker = broker.expect("a broker");
        let application = store.broker_client("orders").await.expect("an answer");
        let application = application.expect("it is there").application.id;
        let now_ms = clock.now_ms();
        let texts: Vec<String> = (0..asked).map(text).collect();
        for some in texts.chunks(500) {
            let tokens: Vec<_> = some
                .iter()
                .map(|text| tokens(text, &application, now_ms))
                .collect();
            let kept = join_all(tokens.iter().map(|one| store.keep_broker_tokens(one, None))).await;
            let both =
                |kept: Result<TokenInsertion, _>| kept.expect("an answer") == TokenInsertion::Both;
            assert!(kept.into_iter().all(both));
        }
        fill(&url, count, now_ms).await;
        let parts = Parts::new(clock, Arc::new(Outbound::new()), metrics);
        parts.slots.put(broker);
        let config = json!({
            "base_path": "/orders",
            "token_endpoint": "http://id.bench/token",
        });
        let filter = (KIND.build)(config.as_object().expect("an object"), &parts);
        Self {
            _directory: directory,
            store,
            filter: filter.expect("a filter"),
            texts,
        }
    }
}

/// A text as long as the tokens of the provider in the process.
fn text(index: usize) -> String {
    format!("{}.{index:012}", "x".repeat(800))
}

fn tokens(text: &str, application: &str, now_ms: i64) -> StoredTokens {
    StoredTokens {
        access: TokenHash::of(text),
        access_approved: true,
        expires_ms: now_ms + DAY_MS,
        refresh: None,
        refresh_approved: true,
        refresh_expires_ms: now_ms + DAY_MS,
        swept_ms: now_ms + 2 * DAY_MS,
        client_id: "orders".to_owned(),
        family: None,
        person: None,
        ended_ms: None,
        facts: TokenFacts {
            application: application.to_owned(),
            grant_type: "password".to_owned(),
            scopes: vec!["READ".to_owned()],
            issued_ms: now_ms + 1,
            ..TokenFacts::default()
        },
    }
}

/// Adds `count` tokens of nobody, evenly among all hashes.
async fn fill(url: &str, count: u64, now_ms: i64) {
    let mut database = SqliteConnection::connect(url).await.expect("the database");
    let insert = "INSERT INTO broker_tokens
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1)
        SELECT unhex(printf('%012X', i * ($2 / $1)) || hex(randomblob(26))), 1, $3, NULL, 1, $3, $3,
               'filler', '{}', NULL, NULL
          FROM n";
    let began = Instant::now();
    sqlx::query(insert)
        .bind(i64::try_from(count).expect("a number of tokens"))
        .bind(1_i64 << 48)
        .bind(now_ms + 2 * DAY_MS)
        .execute(&mut database)
        .await
        .expect("inserted");
    let _ = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(&mut database)
        .await;
    println!("{count} tokens stored in {:.1?}", began.elapsed());
}

/// How many tokens the large store has.
fn many() -> u64 {
    let wanted = std::env::var("BROKER_TOKENS").ok();
    wanted
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000)
        .max(1)
}

async fn session(text: &str) -> ServerSession {
    let (mut client, server) = tokio::io::duplex(16 * 1024);
    let head = format!(
        "GET /orders/1 HTTP/1.1\r\nHost: orders.localhost\r\nUser-Agent: wrk\r\n\
         Authorization: Bearer {text}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.expect("room");
    let mut session = ServerSession::new_http1(Box::new(server));
    assert!(session.read_request().await.expect("a request"));
    session
}

/// Whether a request passes, and whether it had to wait for that.
async fn passes(filter: &Arc<dyn Filter>, session: &mut ServerSession) -> (bool, bool) {
    let mut exchange = Exchange::default();
    match filter.on_request(session, &mut exchange) {
        Verdict::Now(flow) => (matches!(flow, Flow::Continue), false),
        Verdict::Wait => {
            let flow = filter.on_request_slow(session, &mut exchange).await;
            (matches!(flow, Flow::Continue), true)
        }
    }
}

fn bench(c: &mut Criterion) {
    let runtime = runtime();
    let asked = if many() < 10_000 { 2_000 } else { ASKED };
    for count in [1_000, many()] {
        let world = runtime.block_on(World::new(count, asked));
        let mut next = 0_usize;
        c.bench_function(&format!("look-up/{count}"), |b| {
            b.iter(|| {
                // A prime: neighbours are not asked about one after the other.
                next = (next + 7919) % world.texts.len();
                let hash = TokenHash::of(black_box(&world.texts[next]));
                let found = runtime.block_on(world.store.broker_tokens(hash));
                assert!(found.expect("an answer").is_some());
            });
        });
        c.bench_function(&format!("filter/not-cached/{count}"), |b| {
            b.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                let mut done = 0;
                // What happens to be cached still is not counted.
                for _ in 0..iterations.saturating_mul(20) {
                    next = (next + 7919) % world.texts.len();
                    let text = &world.texts[next];
                    spent += runtime.block_on(async {
                        let mut session = session(text).await;
                        let began = Instant::now();
                        let (passed, waited) = passes(&world.filter, &mut session).await;
                        let took = began.elapsed();
                        assert!(passed, "a good token is refused");
                        done += u64::from(waited);
                        if waited { took } else { Duration::ZERO }
                    });
                    if done == iterations {
                        return spent;
                    }
                }
                spent.mul_f64(iterations as f64 / done.max(1) as f64)
            });
        });
    }
    let world = runtime.block_on(World::new(1, 1));
    let mut known = runtime.block_on(session(&world.texts[0]));
    assert!(runtime.block_on(passes(&world.filter, &mut known)).0);
    let mut waited = 0_u64;
    c.bench_function("filter/cached", |b| {
        b.iter(|| {
            let mut exchange = Exchange::default();
            let verdict = world
                .filter
                .on_request(black_box(&mut known), &mut exchange);
            if let Verdict::Wait = verdict {
                // It looks again every few seconds.
                waited += 1;
                let slow = world.filter.on_request_slow(&mut known, &mut exchange);
                assert!(matches!(runtime.block_on(slow), Flow::Continue));
            }
            exchange
        });
    });
    println!("looked up again {waited} times meanwhile");
}

criterion_group!(benches, bench);
criterion_main!(benches);
