//! Many who ask at the same time.

use std::collections::HashMap;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::sync::Semaphore;
use url::form_urlencoded::parse;

use super::browsing::{self, Browser};
use super::*;

/// A provider that takes its time for passwords.
#[derive(Clone)]
struct Slow {
    gate: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

async fn slow(State(slow): State<Slow>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 * 1024).await.unwrap();
    let form: HashMap<_, _> = parse(&body).into_owned().collect();
    if form.get("grant_type").is_some_and(|one| one == "password") {
        slow.waiting.fetch_add(1, Ordering::SeqCst);
        drop(slow.gate.acquire().await);
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

#[tokio::test]
async fn strangers_with_passwords_keep_nobody_from_signing_in() {
    let (world, provider) = browsing::world(json!({}));
    let slowly = Slow {
        gate: Arc::new(Semaphore::new(0)),
        waiting: Arc::default(),
    };
    let router = world.issuer.router().merge(provider.router());
    let router = router.layer(from_fn_with_state(slowly.clone(), slow));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    let strangers = (0..300).map(|n| {
        let query = format!("/orders?username=u{n}&password=p");
        let request = get_with("X: y").replace("/orders", &query);
        let world = &world;
        async move { world.ask(&request).await.code().0 }
    });
    let strangers = futures_util::future::join_all(strangers);
    let user = async {
        while slowly.waiting.load(Ordering::SeqCst) < 256 {
            tokio::task::yield_now().await;
        }
        let mut browser = Browser::signed_in(&world).await;
        world.clock.advance(301_000);
        let refreshed = browser.get(&world, "/orders").await;
        assert_eq!(refreshed.code(), (200, "pass"));
        assert_eq!(slowly.waiting.load(Ordering::SeqCst), 256);
        slowly.gate.close();
    };
    let (codes, ()) = tokio::join!(strangers, user);
    // Those who found no place at once have waited for one.
    assert!(codes.iter().all(|code| *code == 200), "{codes:?}");
}
