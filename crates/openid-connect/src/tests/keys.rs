//! Keys: fetched late, kept, rotated, lost and found again.

use super::*;

/// Tokens of the world's key are good, and a stranger's are not.
async fn only_its_key_counts(world: &World) {
    let stranger = TestKey::es256("key-9").token(&claims(json!({})));
    assert_eq!(
        world.ask_bearer(&stranger).await.code(),
        (401, "unknown_key")
    );
    let token = world.token(json!({"n": 2}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
}

#[tokio::test]
async fn nothing_is_fetched_before_traffic() {
    let world = World::new(json!({}));
    assert_eq!(world.ask(&get_with("X: y")).await.code(), (401, "no_token"));
    assert_eq!(world.issuer.discoveries(), 0);
}

#[tokio::test]
async fn a_new_key_is_found_by_its_kid() {
    let world = World::new(json!({}));
    let old = world.token(json!({}));
    assert_eq!(world.ask_bearer(&old).await.code(), (200, "pass"));
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&world.key, &next]);
    let new = next.token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&new).await.code(), (200, "pass"));
    assert_eq!(world.ask_bearer(&old).await.code(), (200, "pass"));
    // The old token needed no second check: its key is still there.
    assert_eq!(world.parts.metrics.token_cache("miss").get(), 2);
}

#[tokio::test]
async fn a_key_that_is_gone_takes_its_tokens_along() {
    let world = World::new(json!({}));
    let old = world.token(json!({}));
    assert_eq!(world.ask_bearer(&old).await.code(), (200, "pass"));
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&next]);
    let new = next.token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&new).await.code(), (200, "pass"));
    assert_eq!(world.ask_bearer(&old).await.code(), (401, "unknown_key"));
}

#[tokio::test]
async fn old_keys_are_refreshed_in_the_background() {
    let world = World::new(json!({"rediscovery_lifetime": 300}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    world.issuer.publish(&[&TestKey::es256("key-2")]);
    world.clock.advance(299_000);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!(world.issuer.key_fetches(), 1);
    world.clock.advance(1_000);
    // This one is still served from the cache and starts the refresh.
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    until(|| world.issuer.key_fetches() == 2).await;
    let mut code = 200;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        code = world.ask_bearer(&token).await.code().0;
    }
    assert_eq!(code, 401);
}

pub(super) async fn until(done: impl Fn() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came to that");
}

#[tokio::test]
async fn a_provider_that_is_down_at_start_heals_by_itself() {
    let world = World::new(json!({}));
    world.issuer.set_up(false);
    let token = world.token(json!({}));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (500, "provider_unavailable"));
    assert_eq!(outcome.message(), "An unexpected error occurred");
    let tried = world.issuer.discoveries();
    for _ in 0..100 {
        assert_eq!(world.ask_bearer(&token).await.code().0, 500);
    }
    assert_eq!(world.issuer.discoveries(), tried);
    world.issuer.set_up(true);
    world.clock.advance(5_000);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
}

#[tokio::test]
async fn keys_outlive_their_provider() {
    let world = World::new(json!({}));
    assert_eq!(
        world.ask_bearer(&world.token(json!({}))).await.code().0,
        200
    );
    world.issuer.set_up(false);
    let stranger = TestKey::es256("key-9").token(&claims(json!({})));
    assert_eq!(
        world.ask_bearer(&stranger).await.code(),
        (401, "unknown_key")
    );
    world.clock.advance(400_000);
    for n in 0..5 {
        let token = world.token(json!({"n": n}));
        assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    }
}

#[tokio::test]
async fn an_empty_key_set_does_not_replace_a_good_one() {
    let world = World::new(json!({}));
    assert_eq!(
        world.ask_bearer(&world.token(json!({}))).await.code().0,
        200
    );
    world.issuer.publish(&[]);
    only_its_key_counts(&world).await;
}

#[tokio::test]
async fn a_rotation_is_seen_after_the_pause() {
    let world = World::new(json!({}));
    assert_eq!(
        world.ask_bearer(&world.token(json!({}))).await.code().0,
        200
    );
    let junk = TestKey::es256("junk").token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&junk).await.code(), (401, "unknown_key"));
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&world.key, &next]);
    let new = next.token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&new).await.code(), (401, "unknown_key"));
    world.clock.advance(1_000); // the issuer is local
    assert_eq!(world.ask_bearer(&new).await.code(), (200, "pass"));
}

#[tokio::test]
async fn plugins_of_one_issuer_share_its_keys() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let other = World {
        filter: filter(&world.parts, json!({"scopes_required": ["openid"]})).unwrap(),
        ..world
    };
    assert_eq!(other.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!(other.issuer.key_fetches(), 1);
}

#[tokio::test]
async fn the_issuer_may_be_the_discovery_document() {
    let document = format!("{ISSUER}/.well-known/openid-configuration");
    let world = World::new(json!({ "issuer": document }));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (200, "pass"));
}

#[tokio::test]
async fn an_allowed_issuer_that_is_discovered_counts_for_more_than_its_address() {
    let world = World::new(json!({}));
    *world.issuer.0.name.lock().unwrap() = "http://id.test/oauth2".to_uppercase();
    let token = world.token(json!({"iss": "HTTP://ID.TEST/OAUTH2"}));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (500, "provider_malformed"));
    let config = json!({"jwks_endpoint": format!("{ISSUER}/keys"),
        "issuers_allowed": ["HTTP://ID.TEST/OAUTH2"]});
    let world = World {
        filter: filter(&world.parts, config).unwrap(),
        ..world
    };
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (401, "wrong_issuer"));
}

#[tokio::test]
async fn a_pseudo_issuer_is_never_asked() {
    let world = World::new(json!({
        "using_pseudo_issuer": true,
        "extra_jwks_uris": [format!("{ISSUER}/keys")],
    }));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(world.issuer.discoveries(), 0);
}

#[tokio::test]
async fn what_needs_no_key_works_without_a_discovery_document() {
    let (world, endpoints) = super::introspection::world(json!({}));
    world.issuer.set_up(false);
    let token = world.token(json!({}));
    for n in 0..3 {
        let opaque = format!("good-{n}");
        assert_eq!(world.ask_bearer(&opaque).await.code(), (200, "pass"));
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (500, "provider_unavailable"));
    }
    assert_eq!(endpoints.asked().len(), 3);
    // Nobody knows where logins would be.
    let outcome = world.ask(&get_with("X: y")).await;
    assert_eq!(outcome.code(), (500, "provider_unavailable"));
    world.issuer.set_up(true);
    world.clock.advance(5_000);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_provider_that_was_silent_is_asked_again_whatever_needs_no_key() {
    let (world, _) = super::introspection::world(json!({"auth_methods": ["introspection"]}));
    world.issuer.set_up(false);
    assert_eq!(world.ask_bearer("good-1").await.code(), (200, "pass"));
    let tried = world.issuer.discoveries();
    assert_eq!(world.ask_bearer("good-2").await.code(), (200, "pass"));
    assert_eq!(world.issuer.discoveries(), tried);
    world.clock.advance(5_000);
    assert_eq!(world.ask_bearer("good-3").await.code(), (200, "pass"));
    until(|| world.issuer.discoveries() > tried).await;
}

#[tokio::test]
async fn metadata_need_not_name_keys() {
    let (world, _) = super::introspection::world(json!({}));
    let document = json!({"issuer": ISSUER,
        "introspection_endpoint": "http://id.test/oauth2/introspect"});
    let document = move || async move { Json(document) };
    let introspected = json!({"active": true, "sub": "anna", "iss": ISSUER});
    let introspect = move || async move { Json(introspected) };
    let router = Router::new()
        .route("/oauth2/.well-known/openid-configuration", get(document))
        .route("/oauth2/introspect", axum::routing::post(introspect));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    let filter = filter(&world.parts, json!({"client_id": ["gateway"]})).unwrap();
    let world = World { filter, ..world };
    assert_eq!(world.ask_bearer("opaque").await.code(), (200, "pass"));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (500, "provider_unavailable"));
}

#[tokio::test]
async fn metadata_that_name_no_keys_any_more_do_not_take_them_away() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let document = || async { Json(json!({"issuer": ISSUER})) };
    let router = Router::new().route("/oauth2/.well-known/openid-configuration", get(document));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    world.clock.advance(400_000);
    only_its_key_counts(&world).await;
}

#[tokio::test]
async fn further_keys_make_up_for_a_lacking_discovery_document() {
    let issuer = "http://id.test/elsewhere";
    let keys = format!("{ISSUER}/keys");
    let world = World::new(json!({"issuer": issuer, "extra_jwks_uris": [keys]}));
    let token = world.token(json!({"iss": issuer}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let stranger = TestKey::es256("key-9").token(&claims(json!({"iss": issuer})));
    assert_eq!(
        world.ask_bearer(&stranger).await.code(),
        (401, "unknown_key")
    );
}

#[tokio::test]
async fn further_keys_do_not_make_up_for_metadata_that_can_not_be_had_now() {
    let further = format!("{ISSUER}/further");
    let world = World::new(json!({"extra_jwks_uris": [further]}));
    let set = jwks(&[&TestKey::es256("key-2")]);
    let answer = move || async move { Json(set) };
    let router = world.issuer.router();
    let router = router.route("/oauth2/further", get(answer));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    world.issuer.0.up.store(false, Ordering::SeqCst);
    let token = world.token(json!({}));
    let unavailable = (500, "provider_unavailable");
    assert_eq!(world.ask_bearer(&token).await.code(), unavailable);
    world.issuer.0.up.store(true, Ordering::SeqCst);
    world.clock.advance(6_000);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_guessed_issuer_refuses_no_token_while_the_metadata_are_not_there() {
    let world = World::new(json!({"auth_methods": ["introspection"],
        "client_id": ["gateway"], "client_secret": ["g-secret"],
        "introspection_endpoint": "http://id.test/told"}));
    let claims = json!({"active": true, "sub": "anna", "iss": "https://public.test",
        "exp": NOW + 600});
    let answer = move || async move { Json(claims) };
    let router = world.issuer.router();
    let router = router.route("/told", axum::routing::post(answer));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    world.issuer.0.up.store(false, Ordering::SeqCst);
    let unavailable = (500, "provider_unavailable");
    assert_eq!(world.ask_bearer("opaque").await.code(), unavailable);
    // Then it is no guess any more.
    world.issuer.0.up.store(true, Ordering::SeqCst);
    world.clock.advance(31_000);
    let wrong = (401, "wrong_issuer");
    assert_eq!(world.ask_bearer("opaque").await.code(), wrong);
}

#[tokio::test]
async fn a_provider_over_a_real_socket() {
    let key = TestKey::rsa("rsa", false);
    let issuer = Issuer::new(&[&key]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = format!("http://{}/oauth2", listener.local_addr().unwrap());
    *issuer.0.name.lock().unwrap() = name.clone();
    tokio::spawn(serve(listener, issuer.router()));
    let world = World::new(json!({ "issuer": name }));
    let token = key.token(&claims(json!({ "iss": name })));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!((issuer.discoveries(), issuer.key_fetches()), (1, 1));
    // Strangers cause a fetch once a second at most, and a second rotation is
    // seen as soon.
    let junk = TestKey::es256("junk").token(&claims(json!({})));
    for _ in 0..20 {
        assert_eq!(world.ask_bearer(&junk).await.code(), (401, "unknown_key"));
        world.clock.advance(100);
    }
    assert_eq!(issuer.key_fetches(), 3);
}

/// A server of a `Router` for requests without a body.
async fn serve(listener: tokio::net::TcpListener, router: Router) {
    use http_body_util::BodyExt;
    use tokio::io::AsyncReadExt;
    use tower::ServiceExt;
    while let Ok((mut socket, _)) = listener.accept().await {
        let router = router.clone();
        tokio::spawn(async move {
            let mut head = vec![0; 4096];
            let read = socket.read(&mut head).await.unwrap();
            let head = String::from_utf8(head[..read].to_vec()).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let request = http::Request::get(path).body(axum::body::Body::empty());
            let response = router.oneshot(request.unwrap()).await.unwrap();
            let status = response.status();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(&body).await.unwrap();
        });
    }
}
