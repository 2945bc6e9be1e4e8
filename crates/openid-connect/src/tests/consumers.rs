//! Tokens that stand for consumers, and requests that stand for nobody.

use uuid::Uuid;

use super::*;
use doorward_core::model::consumer::Consumer;
use doorward_plugin_api::consumers::{By, Caller, Directory};
use doorward_plugin_api::identity::Credential;

/// A directory of some consumers: username and custom id.
pub(super) struct People(Vec<Consumer>);

pub(super) fn people(names: &[(&str, &str)]) -> Box<People> {
    let consumer = |(index, (username, custom_id)): (usize, &(&str, &str))| Consumer {
        id: Uuid::from_u128(index as u128 + 1),
        username: Some((*username).to_owned()),
        custom_id: Some((*custom_id).to_owned()),
        tags: None,
        created_at: 0,
        updated_at: 0,
    };
    Box::new(People(names.iter().enumerate().map(consumer).collect()))
}

impl Directory for People {
    fn find(&self, by: By, value: &str) -> Option<Caller> {
        let is = |field: &Option<String>| field.as_deref() == Some(value);
        let found = |consumer: &&Consumer| match by {
            By::Id => consumer.id.to_string() == value,
            By::Username => is(&consumer.username),
            By::UsernameIgnoringCase => {
                let name = consumer.username.as_deref();
                name.is_some_and(|name| name.eq_ignore_ascii_case(value))
            }
            By::CustomId => is(&consumer.custom_id),
        };
        self.0.iter().find(found).cloned().map(Caller::from)
    }
}

fn world(config: Value) -> World {
    let world = World::new(config);
    let directory = people(&[("anna", "a-1"), ("bob", "7"), ("guest", "g")]);
    world.parts.consumers.publish(directory);
    world
}

/// The name of the consumer that the filter found.
pub(super) fn consumer(outcome: &Outcome) -> Option<&str> {
    let consumer = outcome.exchange.consumer.as_ref()?;
    consumer.username.as_deref()
}

#[tokio::test]
async fn a_claim_names_the_consumer_and_the_upstream_is_told() {
    let world = world(json!({"consumer_claim": ["sub"]}));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(consumer(&outcome), Some("anna"));
    let id = Uuid::from_u128(1).to_string();
    for (name, value) in [
        ("x-consumer-id", Some(id.as_str())),
        ("x-consumer-username", Some("anna")),
        ("x-consumer-custom-id", Some("a-1")),
        ("x-credential-identifier", None),
        ("x-anonymous-consumer", None),
    ] {
        assert_eq!(outcome.upstream(name), value, "{name}");
    }
}

#[tokio::test]
async fn a_token_that_maps_nobody_is_not_of_whom_another_credential_named() {
    let world = world(json!({}));
    let (mut session, _client) = session(&get_with(&format!(
        "Authorization: Bearer {}",
        world.token(json!({}))
    )))
    .await;
    let named = json!({"id": Uuid::nil(), "username": "other", "created_at": 0});
    let named: Consumer = serde_json::from_value(named).unwrap();
    let credential = Credential::new(Uuid::nil(), "key");
    let mut exchange = Exchange {
        consumer: Some(Arc::new(named.into())),
        credential: Some(Arc::new(credential)),
        authenticated_groups: Some(["of-other".into()].into()),
        ..Exchange::default()
    };
    let reply = decide(&*world.filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    assert!(exchange.consumer.is_none() && exchange.credential.is_none());
    assert!(exchange.authenticated_groups.is_none());
    let mut upstream = session.req_header().clone();
    world
        .filter
        .on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
    assert!(!upstream.headers.contains_key("x-consumer-username"));
    assert_eq!(upstream.headers["x-credential-identifier"], "anna");
}

#[tokio::test]
async fn consumers_are_found_by_the_configured_fields_only() {
    let id = Uuid::from_u128(2).to_string();
    for (config, claim, found) in [
        (json!({}), json!("bob"), Some("bob")),
        (json!({}), json!("7"), Some("bob")),
        (json!({}), json!(7), Some("bob")),
        (json!({}), json!(id), None),
        (json!({}), json!("BOB"), None),
        (json!({}), json!(""), None),
        (json!({}), json!(["bob"]), None),
        (json!({}), json!(null), None),
        (json!({"consumer_by": ["id"]}), json!(id), Some("bob")),
        (json!({"consumer_by": ["custom_id"]}), json!("bob"), None),
        (
            json!({"by_username_ignore_case": true}),
            json!("BOB"),
            Some("bob"),
        ),
    ] {
        let mut config = config;
        config["consumer_claim"] = json!(["who", "name"]);
        let world = world(config.clone());
        let token = world.token(json!({"who": {"name": claim}}));
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(consumer(&outcome), found, "{config} {claim}");
        let code = found.map_or((403, "no_consumer"), |_| (200, "pass"));
        assert_eq!(outcome.code(), code, "{config} {claim}");
    }
}

#[tokio::test]
async fn the_first_claim_that_names_one_counts() {
    let world = world(json!({"consumer_claims": [["email"], ["sub"]]}));
    let outcome = world
        .ask_bearer(&world.token(json!({"email": "x@y"})))
        .await;
    assert_eq!(consumer(&outcome), Some("anna"));
    let outcome = world
        .ask_bearer(&world.token(json!({"email": "bob"})))
        .await;
    assert_eq!(consumer(&outcome), Some("bob"));
}

#[tokio::test]
async fn a_token_of_nobody_passes_only_where_consumers_are_optional() {
    let world = world(json!({"consumer_claim": ["sub"], "consumer_optional": true}));
    let outcome = world.ask_bearer(&world.token(json!({"sub": "eve"}))).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert!(outcome.exchange.consumer.is_none());
    assert_eq!(outcome.upstream("x-credential-identifier"), Some("eve"));
    assert_eq!(outcome.upstream("x-consumer-id"), None);
}

#[tokio::test]
async fn a_consumer_that_is_gone_is_noticed_though_its_token_is_remembered() {
    let world = world(json!({"consumer_claim": ["sub"]}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    world.parts.consumers.publish(people(&[("bob", "7")]));
    assert_eq!(world.ask_bearer(&token).await.code(), (403, "no_consumer"));
    world
        .parts
        .consumers
        .publish(people(&[("x", "y"), ("anna", "2")]));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.upstream("x-consumer-custom-id"), Some("2"));
}

#[tokio::test]
async fn who_is_not_let_in_is_the_anonymous_consumer() {
    let guest = Uuid::from_u128(3).to_string();
    for anonymous in ["guest", &guest] {
        let world = world(json!({
            "consumer_claim": ["sub"], "anonymous": anonymous, "scopes_required": ["openid"],
        }));
        let no_scope = world.token(json!({"scope": "other"}));
        let nobody = world.token(json!({"sub": "eve"}));
        for header in [
            "X-Nothing: 1".to_owned(),
            "Authorization: Bearer junk".to_owned(),
            format!("Authorization: Bearer {no_scope}"),
            format!("Authorization: Bearer {nobody}"),
        ] {
            let outcome = world.ask(&get_with(&header)).await;
            assert_eq!(outcome.code(), (200, "pass"), "{header}");
            assert_eq!(consumer(&outcome), Some("guest"));
            assert!(outcome.exchange.token.is_none());
            assert_eq!(outcome.upstream("x-anonymous-consumer"), Some("true"));
            assert_eq!(outcome.upstream("x-consumer-username"), Some("guest"));
            assert_eq!(outcome.upstream("x-credential-identifier"), None);
            assert_eq!(outcome.upstream("authorization"), None, "{header}");
        }
        let anna = world.ask_bearer(&world.token(json!({}))).await;
        assert_eq!(consumer(&anna), Some("anna"));
        assert_eq!(anna.upstream("x-anonymous-consumer"), None);
        assert_eq!(world.metric("anonymous"), 4);
    }
}

#[tokio::test]
async fn nobody_passes_off_a_token_as_verified_by_being_anonymous() {
    for (config, header, seen) in [
        (json!({}), "Authorization: DPoP junk", None),
        (json!({}), "Authorization: bearer  junk", None),
        (json!({}), "Authorization: Bearer", None),
        (json!({}), "X-Access-Token: junk", None),
        (json!({}), "Access-Token: junk", None),
        // What the filter does not read is the upstream's affair.
        (json!({}), "Authorization: Basic eDp5", Some("Basic eDp5")),
        (
            json!({"bearer_token_param_type": ["query"]}),
            "Authorization: Bearer junk",
            None,
        ),
        (
            json!({"bearer_token_param_type": ["query"]}),
            "X-Access-Token: junk",
            Some("junk"),
        ),
        (
            json!({"upstream_access_token_header": "authorization"}),
            "Authorization: junk",
            None,
        ),
    ] {
        let mut config = config;
        config["anonymous"] = json!("guest");
        let world = world(config.clone());
        let outcome = world.ask(&get_with(header)).await;
        assert_eq!(outcome.code(), (200, "pass"), "{config} {header}");
        let name = header.split(':').next().unwrap().to_ascii_lowercase();
        assert_eq!(outcome.upstream(&name), seen, "{config} {header}");
    }
    let world = world(json!({"anonymous": "guest"}));
    let query = get_with("X: y").replace("/orders", "/orders?a=b&access_token=junk");
    let outcome = world.ask(&query).await;
    assert_eq!(outcome.upstream.uri.to_string(), "/orders?a=b");
}

#[tokio::test]
async fn an_anonymous_consumer_that_does_not_exist_lets_nobody_in() {
    let world = world(json!({"anonymous": "nobody", "scopes_required": ["openid"]}));
    let forbidden = world.token(json!({"scope": "none"}));
    for header in [
        "X-Nothing: 1".to_owned(),
        format!("Authorization: Bearer {forbidden}"),
    ] {
        let outcome = world.ask(&get_with(&header)).await;
        assert_eq!(outcome.code(), (401, "no_anonymous"), "{header}");
        assert_eq!(outcome.message(), "Unauthorized");
    }
}

#[tokio::test]
async fn ambiguous_requests_are_not_anonymous_ones() {
    let world = world(json!({"anonymous": "guest"}));
    let token = world.token(json!({}));
    let twice = format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}");
    let outcome = world.ask(&get_with(&twice)).await;
    assert_eq!(outcome.code(), (400, "repeated_token"));
}
