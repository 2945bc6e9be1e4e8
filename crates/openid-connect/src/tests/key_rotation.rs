//! Keys that change at the very moment at which they are needed or withdrawn.

use axum::extract::Request;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::sync::Semaphore;

use super::browser::{self, Browser};
use super::*;
use crate::provider::verifier::{CheckedClaims, TokenCheck, Verification, Verifier};
use crate::provider::{Provider, ProviderConfig};

/// A way from the provider on which answers may be held up.
#[derive(Clone)]
struct Way {
    open: Arc<Semaphore>,
    under_way: Arc<AtomicUsize>,
}

impl Way {
    /// The way to this world's provider, which is blocked.
    fn blocked(world: &World) -> Self {
        let way = Self {
            open: Arc::new(Semaphore::new(0)),
            under_way: Arc::default(),
        };
        let router = world.issuer.router();
        let router = router.layer(from_fn_with_state(way.clone(), travel));
        let base = Url::parse("http://id.test").unwrap();
        world.parts.outbound.register_local(&base, router);
        way
    }

    /// The way on which the keys as they are come by a refresh for their age, and a
    /// token that is good by them.
    async fn of_a_refresh(world: &World) -> (Self, String) {
        let token = world.token(json!({}));
        assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
        let way = Self::blocked(world);
        world.clock.advance(300_000);
        assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
        way.given(1).await;
        // That was the metadata.
        way.open.add_permits(1);
        way.given(2).await;
        (way, token)
    }

    /// What becomes of a token that is shown before the way is open.
    async fn ask(self, world: &World, token: &str) -> Outcome {
        let (outcome, ()) = tokio::join!(world.ask_bearer(token), async {
            tokio::task::yield_now().await;
            self.open.close();
        });
        outcome
    }

    /// Waits until so many answers have been given in all.
    async fn given(&self, count: usize) {
        while self.under_way.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

async fn travel(State(way): State<Way>, request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    way.under_way.fetch_add(1, Ordering::SeqCst);
    if let Ok(leave) = way.open.acquire().await {
        leave.forget();
    }
    answer
}

#[tokio::test]
async fn a_key_that_came_after_the_answer_to_a_refresh_is_asked_for_again() {
    let world = World::new(json!({"rediscovery_lifetime": 300}));
    let (way, _) = Way::of_a_refresh(&world).await;
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&world.key, &next]);
    let new = next.token(&claims(json!({})));
    assert_eq!(way.ask(&world, &new).await.code(), (200, "pass"));
    assert_eq!(world.issuer.key_fetches(), 3);
}

#[tokio::test]
async fn keys_that_are_forgotten_while_they_are_fetched_do_not_come_into_force() {
    let world = World::new(json!({"rediscovery_lifetime": 300}));
    let (way, old) = Way::of_a_refresh(&world).await;
    // The answer on its way has the key that is withdrawn.
    world.issuer.publish(&[&TestKey::es256("key-2")]);
    assert!(Providers::of(&world.parts).forget(None));
    assert_eq!(way.ask(&world, &old).await.code(), (401, "unknown_key"));
}

/// Has newer keys come at the moment at which it looks at the older ones.
struct Overtaken {
    provider: Arc<Provider>,
    once: AtomicBool,
}

impl TokenCheck for Overtaken {
    fn check(
        &self,
        parsed: &Unverified<'_>,
        known: Option<&crate::provider::ProviderMetadata>,
        now_ms: i64,
    ) -> Result<Option<CheckedClaims>, Refusal> {
        if !self.once.swap(true, Ordering::SeqCst) {
            let fetch = || {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                runtime.block_on(self.provider.wait_for_newer(now_ms))
            };
            std::thread::scope(|scope| scope.spawn(fetch).join().unwrap());
        }
        let claims = known.and_then(|known| parsed.verify(&known.keys).ok());
        Ok(claims.map(|claims| CheckedClaims {
            claims,
            scopes: Vec::new(),
            expires_at: None,
            ends_at: i64::MAX,
            ends_for_good: true,
        }))
    }

    fn remembers(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn nobody_is_refused_for_keys_that_have_come_meanwhile() {
    let world = World::new(json!({}));
    let options = doorward_net::http::outbound::Options::default();
    let config = ProviderConfig::discovered(Url::parse(ISSUER).unwrap(), options);
    let provider = Providers::of(&world.parts).provider(config.clone(), &world.parts);
    assert!(provider.metadata_or_fetch().await.is_some());
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&world.key, &next]);
    let check = Overtaken {
        provider,
        once: AtomicBool::new(false),
    };
    let verifier = Verifier::new(check, config, &world.parts);
    let token = next.token(&claims(json!({})));
    assert!(matches!(verifier.verify_now(&token), Verification::Pending));
    assert!(verifier.verify_or_fetch(&token).await.is_ok());
    assert_eq!(world.issuer.key_fetches(), 2);
}

#[tokio::test]
async fn a_session_outlives_a_rotation_that_strangers_hide() {
    let (world, provider) = browser::world(json!({}));
    let mut browser = Browser::signed_in(&world).await;
    world.clock.advance(300_500);
    // For a moment, nobody may ask for newer keys.
    let junk = TestKey::es256("junk").token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&junk).await.code(), (401, "unknown_key"));
    let key = TestKey::es256("key-2");
    world.issuer.publish(&[&key]);
    let rotated = browser::Provider { key, ..provider };
    let router = world.issuer.router().merge(rotated.router());
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    world.clock.advance(500);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (500, "provider_unavailable"));
    assert!(browser.0.contains_key("session"));
    world.clock.advance(1_000);
    assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
    // A refresh token may be good once.
    assert_eq!(rotated.asked("refresh_token"), 1);
}
