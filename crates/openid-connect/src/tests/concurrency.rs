//! Many who ask at the same time.

use std::collections::HashMap;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::sync::Semaphore;
use url::form_urlencoded::parse;

use super::browser::{self, Browser, Provider};
use super::*;

/// A provider that takes its time for one grant.
#[derive(Clone)]
struct Slow {
    grant: &'static str,
    gate: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Slow {
    fn new(grant: &'static str, world: &World, provider: &Provider) -> Self {
        let slowly = Self {
            grant,
            gate: Arc::new(Semaphore::new(0)),
            waiting: Arc::default(),
        };
        let router = world.issuer.router().merge(provider.router());
        let router = router.layer(from_fn_with_state(slowly.clone(), slow));
        let base = Url::parse("http://id.test").unwrap();
        world.parts.outbound.register_local(&base, router);
        slowly
    }

    /// Waits until so many are being asked.
    async fn asked(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

async fn slow(State(slow): State<Slow>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 64 * 1024).await.unwrap();
    let form: HashMap<_, _> = parse(&body).into_owned().collect();
    if form.get("grant_type").is_some_and(|one| one == slow.grant) {
        slow.waiting.fetch_add(1, Ordering::SeqCst);
        drop(slow.gate.acquire().await);
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

#[tokio::test]
async fn strangers_with_passwords_keep_nobody_from_signing_in() {
    let (world, provider) = browser::world(json!({}));
    let slowly = Slow::new("password", &world, &provider);
    let strangers = (0..300).map(|n| {
        let query = format!("/orders?username=u{n}&password=p");
        let request = get_with("X: y").replace("/orders", &query);
        let world = &world;
        async move { world.ask(&request).await.code().0 }
    });
    let strangers = futures_util::future::join_all(strangers);
    let user = async {
        slowly.asked(256).await;
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

/// A world that pushes requests to a provider of this status.
fn pushing(status: StatusCode) -> (World, Slow) {
    let (world, _) = browser::world(json!({
        "require_pushed_authorization_requests": true,
        "pushed_authorization_request_endpoint": "http://id.test/oauth2/par",
    }));
    let slowly = Slow {
        grant: "",
        gate: Arc::new(Semaphore::new(0)),
        waiting: Arc::default(),
    };
    let noted = slowly.clone();
    let push = move || async move {
        noted.waiting.fetch_add(1, Ordering::SeqCst);
        drop(noted.gate.acquire().await);
        (status, Json(json!({"request_uri": "urn:x:1"})))
    };
    let router = Router::new().route("/oauth2/par", axum::routing::post(push));
    let base = Url::parse("http://id.test").unwrap();
    let router = world.issuer.router().merge(router);
    world.parts.outbound.register_local(&base, router);
    (world, slowly)
}

#[tokio::test]
async fn strangers_have_only_so_many_requests_pushed_at_once() {
    let (world, slowly) = pushing(StatusCode::CREATED);
    let begins = (0..300).map(|_| async {
        let outcome = Browser::default().get(&world, "/orders").await;
        outcome.reply.expect("an answer").status
    });
    let opens = async {
        slowly.asked(256).await;
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(slowly.waiting.load(Ordering::SeqCst), 256);
        slowly.gate.close();
    };
    let (statuses, ()) = tokio::join!(futures_util::future::join_all(begins), opens);
    // Those who found no place at once have waited for one.
    assert!(statuses.iter().all(|status| *status == 302));
    assert_eq!(slowly.waiting.load(Ordering::SeqCst), 300);
}

#[tokio::test]
async fn a_provider_that_takes_no_pushed_request_is_left_alone_for_a_moment() {
    let (world, slowly) = pushing(StatusCode::SERVICE_UNAVAILABLE);
    slowly.gate.close();
    let begin = async || Browser::default().get(&world, "/orders").await;
    // Once or twice is nothing: others may be let in between.
    for _ in 0..8 {
        assert_eq!(begin().await.code(), (500, "provider_error"));
    }
    for _ in 0..20 {
        assert_eq!(begin().await.code(), (500, "provider_unavailable"));
    }
    assert_eq!(slowly.waiting.load(Ordering::SeqCst), 8);
    world.clock.advance(1_000);
    assert_eq!(begin().await.code(), (500, "provider_error"));
    assert_eq!(slowly.waiting.load(Ordering::SeqCst), 9);
}

/// The provider's answer with another code.
fn with_code(back: &str, code: &str) -> String {
    let (path, query) = back.split_once('?').unwrap();
    let (_, state) = query.split_once('&').unwrap();
    format!("{path}?code={code}&{state}")
}

#[tokio::test]
async fn a_login_that_has_begun_has_the_provider_asked_about_one_code_at_a_time() {
    let (world, provider) = browser::world(json!({}));
    let slowly = Slow::new("authorization_code", &world, &provider);
    let mut stranger = Browser::default();
    let back = stranger.begin(&world, "/orders").await;
    let first = stranger.request(&with_code(&back, "z.z"));
    let first = world.ask(&first);
    let flood = async {
        slowly.asked(1).await;
        for n in 0..300 {
            let target = with_code(&back, &format!("z{n}.z"));
            let outcome = stranger.clone().get(&world, &target).await;
            assert_eq!(outcome.code(), (401, "login_repeated"));
        }
        assert_eq!(slowly.waiting.load(Ordering::SeqCst), 1);
        slowly.gate.close();
    };
    let (outcome, ()) = tokio::join!(first, flood);
    assert_eq!(outcome.code(), (401, "code_refused"));
    let outcome = stranger.get(&world, &back).await;
    assert_eq!(outcome.code(), (401, "login_repeated"), "it is over");
}

#[tokio::test]
async fn who_hangs_up_has_no_other_code_asked_about() {
    let (world, provider) = browser::world(json!({}));
    let slowly = Slow::new("authorization_code", &world, &provider);
    let mut stranger = Browser::default();
    let back = stranger.begin(&world, "/orders").await;
    let first = stranger.request(&with_code(&back, "z.z"));
    tokio::select! {
        _ = world.ask(&first) => panic!("an answer"),
        () = slowly.asked(1) => {}
    }
    let outcome = stranger.clone().get(&world, &back).await;
    assert_eq!(outcome.code(), (401, "login_repeated"));
    // Whoever only comes again waits for the answer.
    let (outcome, ()) = tokio::join!(world.ask(&first), async { slowly.gate.close() });
    assert_eq!(outcome.code(), (401, "code_refused"));
    assert_eq!(provider.asked("authorization_code"), 1);
}

#[tokio::test]
async fn an_answer_that_is_loaded_again_meanwhile_gets_in_by_the_same_question() {
    let (world, provider) = browser::world(json!({}));
    let slowly = Slow::new("authorization_code", &world, &provider);
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let request = browser.request(&back);
    let asks = (0..20).map(|_| world.ask(&request));
    let opens = async {
        slowly.asked(1).await;
        slowly.gate.close();
    };
    let (outcomes, ()) = tokio::join!(futures_util::future::join_all(asks), opens);
    for outcome in outcomes {
        assert_eq!(outcome.code(), (200, "pass"));
    }
    assert_eq!(provider.asked("authorization_code"), 1);
}

#[tokio::test]
async fn an_answer_gets_in_when_it_comes_again_after_the_provider_was_silent() {
    let (world, provider) = browser::world(json!({}));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let base = Url::parse("http://id.test").unwrap();
    let outbound = &world.parts.outbound;
    let down = || async { StatusCode::SERVICE_UNAVAILABLE };
    let router = Router::new().route("/oauth2/token", axum::routing::post(down));
    outbound.register_local(&base, world.issuer.router().merge(router));
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (500, "provider_error"));
    outbound.register_local(&base, world.issuer.router().merge(provider.router()));
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (200, "pass"));
}

#[tokio::test]
async fn strangers_with_logins_of_their_own_keep_no_session_from_its_next_tokens() {
    let (world, provider) = browser::world(json!({}));
    let mut user = Browser::signed_in(&world).await;
    let slowly = Slow::new("authorization_code", &world, &provider);
    world.clock.advance(301_000);
    let strangers = (0..260).map(|n| {
        let world = &world;
        async move {
            let mut stranger = Browser::default();
            let back = stranger.begin(world, "/orders").await;
            let back = with_code(&back, &format!("z{n}.z"));
            stranger.get(world, &back).await.code().0
        }
    });
    let user = async {
        slowly.asked(256).await;
        let refreshed = user.get(&world, "/orders").await;
        assert_eq!(refreshed.code(), (200, "pass"));
        assert_eq!(slowly.waiting.load(Ordering::SeqCst), 256);
        slowly.gate.close();
    };
    let strangers = futures_util::future::join_all(strangers);
    let (codes, ()) = tokio::join!(strangers, user);
    assert!(codes.iter().all(|code| *code == 401), "{codes:?}");
}
