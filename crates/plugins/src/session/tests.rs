use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::authentication::testing::{Outcome, ask, ask_as, caller, filter, parts_with};
use crate::testing::plugin;
use doorward_core::model::login::{LoginQuery, StoredLogin};
use doorward_net::http::head::UpstreamRequest;
use doorward_plugin_api::consumers::{Caller, Directory};
use doorward_store::Store;

/// The consumers in force: anna, or nobody.
struct Anna(bool);

impl Directory for Anna {
    fn find(&self, _: By, value: &str) -> Option<Caller> {
        let known = self.0 && value == Uuid::nil().to_string();
        known.then(|| Caller::clone(&caller("anna", &[])))
    }
}

fn world(config: Value) -> (Arc<dyn Filter>, Parts) {
    let parts = parts_with(|_| {});
    parts.consumers.publish(Box::new(Anna(true)));
    let mut config = config;
    config["secret"] = json!("a secret of some length");
    (filter(&KIND, &config, &parts), parts)
}

/// The cookies that an answer to this request sets.
async fn cookies(filter: &dyn Filter, outcome: &mut Outcome) -> Vec<String> {
    let mut response = ResponseHeader::build(200, None).expect("a head");
    let Outcome { head, exchange, .. } = outcome;
    if filter.sees_responses() {
        filter
            .on_upstream_response(head, exchange, &mut response)
            .await;
    }
    filter.on_response_to(&outcome.head, &outcome.exchange, &mut response);
    let cookies = response.headers.get_all(SET_COOKIE).iter();
    let text = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
    cookies.map(text).collect()
}

/// The cookie of a session of anna's.
async fn begin(filter: &dyn Filter) -> String {
    let known = Exchange {
        consumer: Some(caller("anna", &[])),
        credential: Some(Arc::new(identity::Credential::new(Uuid::from_u128(7), "k"))),
        ..Exchange::default()
    };
    let mut outcome = ask_as(filter, "GET / HTTP/1.1", known).await;
    let cookies = cookies(filter, &mut outcome).await;
    let [cookie] = cookies.as_slice() else {
        panic!("one cookie: {cookies:?}");
    };
    for attribute in ["; Path=/", "; SameSite=Strict", "; HttpOnly", "; Secure"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let (pair, _) = cookie.split_once(';').expect("attributes");
    pair.to_owned()
}

async fn show(filter: &dyn Filter, lines: &str, cookie: &str) -> Outcome {
    ask(filter, &format!("{lines}\r\nCookie: {cookie}")).await
}

#[tokio::test]
async fn a_session_stands_for_the_credential_that_began_it() {
    let (filter, parts) = world(json!({}));
    let cookie = begin(&*filter).await;
    let mut outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    let credential = outcome.exchange.credential.as_ref();
    assert_eq!(credential.map(|one| one.id), Some(Uuid::from_u128(7)));
    // It is young: nothing new is set.
    assert!(cookies(&*filter, &mut outcome).await.is_empty());
    let (name, value) = cookie.split_once('=').expect("a value");
    assert!(filter.owns_cookie(name, value) && !filter.owns_cookie("other", value));
    // Whoever is no consumer any more has no session.
    parts.consumers.publish(Box::new(Anna(false)));
    let mut outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
    let gone = cookies(&*filter, &mut outcome).await;
    assert!(
        gone.iter().all(|cookie| cookie.contains("Max-Age=0")),
        "{gone:?}"
    );
    assert_eq!(gone.len(), 1);
}

#[tokio::test]
async fn a_session_that_was_changed_or_made_for_others_is_none() {
    let (filter, _) = world(json!({}));
    let cookie = begin(&*filter).await;
    let (other, _) = world(json!({"audience": "others"}));
    let outcome = show(&*other, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
    let (begin, end) = cookie.split_at(40);
    let letter = if end.starts_with('A') { "B" } else { "A" };
    let forged = format!("{begin}{letter}{}", &end[1..]);
    for cookie in [forged.as_str(), "session=1", "session=", "session=1AAAA"] {
        let outcome = show(&*filter, "GET / HTTP/1.1", cookie).await;
        assert_eq!(outcome.consumer(), None, "{cookie}");
    }
}

#[tokio::test]
async fn a_session_ends_by_its_timers_and_lasts_with_use() {
    let (filter, parts) = world(json!({"absolute_timeout": 2000}));
    let mut cookie = begin(&*filter).await;
    for _ in 0..2 {
        parts.clock.advance(600_000);
        let mut outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
        assert_eq!(outcome.consumer(), Some("anna"));
        let renewed = cookies(&*filter, &mut outcome).await;
        let (pair, _) = renewed[0].split_once(';').expect("attributes");
        assert_ne!(pair, cookie);
        pair.clone_into(&mut cookie);
    }
    // However much it is used.
    parts.clock.advance(900_000);
    let outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
}

#[tokio::test]
async fn logout_ends_a_session_and_needs_one() {
    let (filter, _) = world(json!({}));
    let cookie = begin(&*filter).await;
    let outcome = show(&*filter, "POST /?session_logout HTTP/1.1", &cookie).await;
    let reply = outcome.reply.expect("an answer");
    assert_eq!(reply.status, StatusCode::OK);
    let (_, value) = reply.headers.first().expect("a cookie");
    assert!(value.to_str().is_ok_and(|text| text.contains("Max-Age=0")));
    let outcome = show(&*filter, "GET /?session_logout HTTP/1.1", &cookie).await;
    assert!(outcome.reply.is_none());
    let outcome = ask(&*filter, "POST /?session_logout HTTP/1.1").await;
    assert!(outcome.reply.is_none());
}

/// The cookies of anna's first answer: of the session and of the one that outlives it.
async fn remembered(filter: &dyn Filter) -> [String; 2] {
    let known = Exchange {
        consumer: Some(caller("anna", &[])),
        credential: Some(Arc::new(identity::Credential::new(Uuid::from_u128(7), "k"))),
        ..Exchange::default()
    };
    let mut outcome = ask_as(filter, "GET / HTTP/1.1", known).await;
    cookies(filter, &mut outcome)
        .await
        .try_into()
        .expect("two cookies")
}

fn pair(cookie: &str) -> &str {
    cookie.split(';').next().expect("a pair")
}

#[tokio::test]
async fn a_browser_is_remembered_beyond_its_session() {
    let config = json!({"remember": true, "remember_rolling_timeout": 7200,
        "remember_absolute_timeout": 10_000});
    let (filter, parts) = world(config);
    let [session, remember] = remembered(&*filter).await;
    let attributes: Vec<&str> = session.split("; ").skip(1).collect();
    let common = ["Path=/", "SameSite=Strict", "Secure", "HttpOnly"];
    assert_eq!(attributes, common);
    assert!(remember.starts_with("remember="), "{remember}");
    let attributes: Vec<&str> = remember.split("; ").skip(1).collect();
    assert_eq!(attributes[..4], common);
    assert!(attributes[4].starts_with("Expires=") && attributes[4].ends_with(" GMT"));
    assert_eq!(attributes[5], "Max-Age=7200");
    let (name, value) = pair(&remember).split_once('=').expect("a value");
    assert!(filter.owns_cookie(name, value) && filter.names_cookie(b"remember"));
    // The session has ended, or the browser has: a new one begins.
    parts.clock.advance(4_000_000);
    for shown in [
        pair(&remember).to_owned(),
        format!("{}; {}", pair(&session), pair(&remember)),
    ] {
        let mut outcome = show(&*filter, "GET / HTTP/1.1", &shown).await;
        assert_eq!(outcome.consumer(), Some("anna"));
        let given = cookies(&*filter, &mut outcome).await;
        assert_eq!(given.len(), 2, "{given:?}");
        let outcome = show(&*filter, "GET / HTTP/1.1", pair(&given[0])).await;
        assert_eq!(outcome.consumer(), Some("anna"));
    }
    // Not for ever, and not once the browser has signed out.
    let outcome = show(&*filter, "POST /?session_logout HTTP/1.1", pair(&remember)).await;
    let reply = outcome.reply.expect("an answer");
    let (_, value) = reply.headers.first().expect("a cookie");
    assert!(
        value
            .to_str()
            .is_ok_and(|text| text.starts_with("remember=;"))
    );
    parts.clock.advance(7_000_000);
    let outcome = show(&*filter, "GET / HTTP/1.1", pair(&remember)).await;
    assert_eq!(outcome.consumer(), None);
}

#[tokio::test]
async fn a_cookie_of_one_kind_under_the_name_of_the_other_is_none() {
    let (filter, _) = world(json!({"remember": true}));
    let [session, remember] = remembered(&*filter).await;
    let value = |cookie: &str| pair(cookie).split_once('=').expect("a value").1.to_owned();
    for swapped in [
        format!("session={}", value(&remember)),
        format!("remember={}", value(&session)),
    ] {
        let outcome = show(&*filter, "GET / HTTP/1.1", &swapped).await;
        assert_eq!(outcome.consumer(), None, "{swapped}");
    }
}

#[tokio::test]
async fn nobody_gets_no_session() {
    let (filter, _) = world(json!({}));
    let anonymous = Exchange {
        consumer: Some(caller("nobody", &[])),
        ..Exchange::default()
    };
    let mut outcome = ask_as(&*filter, "GET / HTTP/1.1", anonymous).await;
    assert!(cookies(&*filter, &mut outcome).await.is_empty());
}

#[test]
fn what_can_not_be_done_is_refused_with_what_can() {
    for (config, field) in [
        (
            json!({"remember": true, "remember_cookie_name": "session2"}),
            "remember_cookie_name: ",
        ),
        (
            json!({"response_headers": ["cookie"]}),
            "schema violation (response_headers.1: expected one of: id",
        ),
        (json!({"cookie_name": "a b"}), "cookie_name: "),
    ] {
        let refused = plugin(&KIND, &config).err().unwrap_or_default();
        assert!(refused.starts_with(field), "{refused}");
    }
}

/// The plugin without a secret, in a process whose store has this one.
fn with_common_secret(secret: &str) -> Arc<dyn Filter> {
    let parts = parts_with(|_| {});
    let providers = Providers::with_secret(secret.as_bytes().to_vec());
    parts.slots.put(Arc::new(providers));
    parts.consumers.publish(Box::new(Anna(true)));
    filter(&KIND, &json!({}), &parts)
}

#[tokio::test]
async fn without_a_secret_sessions_outlive_the_process_by_that_of_the_store() {
    let cookie = begin(&*with_common_secret("of the store")).await;
    let restarted = with_common_secret("of the store");
    let outcome = show(&*restarted, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    let other = with_common_secret("of another store");
    let outcome = show(&*other, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
}

#[tokio::test]
async fn upstream_and_client_are_told_of_a_session() {
    let (filter, parts) = world(json!({
        "request_headers": ["id", "subject", "absolute-timeout"],
        "response_headers": ["id", "audience", "timeout"], "idling_timeout": 0,
    }));
    let cookie = begin(&*filter).await;
    parts.clock.advance(60_000);
    let forged = format!("{cookie}\r\nSession-Id: forged");
    let outcome = show(&*filter, "GET / HTTP/1.1", &forged).await;
    let mut request = outcome.head.clone();
    filter.on_upstream_request(&outcome.exchange, &mut UpstreamRequest::new(&mut request));
    let mut response = ResponseHeader::build(200, None).expect("a head");
    filter.on_response_to(&outcome.head, &outcome.exchange, &mut response);
    let of = |headers: &http::HeaderMap, name: &str| {
        let value = headers.get(name)?;
        Some(value.to_str().expect("text").to_owned())
    };
    let id = of(&request.headers, "session-id").expect("a name");
    assert!(Uuid::try_parse(&id).is_ok(), "{id}");
    assert!(!cookie.contains(&id));
    let nil = Uuid::nil().to_string();
    assert_eq!(of(&request.headers, "session-subject"), Some(nil));
    let absolute = of(&request.headers, "session-absolute-timeout");
    assert_eq!(absolute.as_deref(), Some("86340"));
    assert_eq!(of(&response.headers, "session-id"), Some(id));
    let audience = of(&response.headers, "session-audience");
    assert_eq!(audience.as_deref(), Some("default"));
    let timeout = of(&response.headers, "session-timeout");
    assert_eq!(timeout.as_deref(), Some("3540"));
    // A client's own never reach the upstream.
    for name in ["session-id", "session-subject", "x-consumer-id"] {
        assert!(
            filter.owned_headers().iter().any(|own| own == name),
            "{name}"
        );
    }
}

/// The plugin of a node whose sessions are in this store.
fn stored(store: &Arc<Store>, config: Value) -> (Arc<dyn Filter>, Parts) {
    let parts = parts_with(|_| {});
    parts.consumers.publish(Box::new(Anna(true)));
    parts.slots.put(Arc::new(SessionStore::of(store.clone())));
    let mut config = config;
    config["secret"] = json!("a secret of some length");
    config["storage"] = json!("kong");
    (filter(&KIND, &config, &parts), parts)
}

async fn store() -> (Arc<Store>, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open_sqlite(&directory.path().join("db")).await;
    (Arc::new(store.expect("a store")), directory)
}

/// The sessions in a store, of which there are as many.
async fn sessions(store: &Store, count: usize) -> Vec<StoredLogin> {
    let page = store.logins(&LoginQuery::default(), None, 10).await;
    let logins = page.expect("an answer").logins;
    assert_eq!(logins.len(), count, "{logins:?}");
    logins
}

#[tokio::test]
async fn a_session_in_the_store_is_one_on_every_node_until_it_ends() {
    let (store, _directory) = store().await;
    let (here, _) = stored(&store, json!({}));
    let (there, clock) = stored(&store, json!({}));
    let cookie = begin(&*here).await;
    let kept = sessions(&store, 1).await;
    let [login] = kept.as_slice() else { panic!() };
    assert_eq!(login.subject, Some(Uuid::nil().to_string()));
    assert_eq!(
        login.ends_ms, 945_000,
        "idle for 900 seconds, and a twentieth"
    );
    assert!(!login.sealed.contains(&Uuid::nil().to_string()));
    for node in [&here, &there] {
        let outcome = show(&**node, "GET / HTTP/1.1", &cookie).await;
        assert_eq!(outcome.consumer(), Some("anna"));
        let (name, value) = cookie.split_once('=').expect("a value");
        assert!(node.owns_cookie(name, value));
    }
    // Signed out on one, it is over there at once, and a second later elsewhere.
    let outcome = show(&*here, "POST /?session_logout HTTP/1.1", &cookie).await;
    assert_eq!(outcome.reply.expect("an answer").status, StatusCode::OK);
    sessions(&store, 0).await;
    let outcome = show(&*here, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
    clock.clock.advance(1000);
    let mut outcome = show(&*there, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
    assert!(cookies(&*there, &mut outcome).await[0].contains("Max-Age=0"));
}

#[tokio::test]
async fn a_renewed_session_stays_in_its_place_and_an_ended_one_stays_away() {
    let (store, _directory) = store().await;
    let (filter, parts) = stored(&store, json!({}));
    let cookie = begin(&*filter).await;
    let before = sessions(&store, 1).await.remove(0);
    parts.clock.advance(600_000);
    let mut outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    assert_eq!(cookies(&*filter, &mut outcome).await.len(), 1);
    let after = sessions(&store, 1).await.remove(0);
    assert_eq!(after.used_ms, 600_000);
    assert_eq!((&after.key, &after.id), (&before.key, &before.id));
    assert_eq!(after.ends_ms, before.ends_ms + 600_000);
    // An operator ends it.
    let all = LoginQuery::default();
    let ended = store.end_logins(&all, &[], 600_000, None).await;
    assert_eq!(ended.expect("an answer"), [before.id]);
    parts.clock.advance(600_000);
    let outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), None);
}

#[tokio::test]
async fn what_a_cookie_holds_opens_no_session_of_another_kind_or_audience() {
    let (store, _directory) = store().await;
    let (filter, _) = stored(&store, json!({"remember": true}));
    let [session, remember] = remembered(&*filter).await;
    sessions(&store, 2).await;
    let value = |cookie: &str| pair(cookie).split_once('=').expect("a value").1.to_owned();
    let swapped = format!("session={}", value(&remember));
    let outcome = show(&*filter, "GET / HTTP/1.1", &swapped).await;
    assert_eq!(outcome.consumer(), None);
    let outcome = show(&*filter, "GET / HTTP/1.1", pair(&remember)).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    let (others, _) = stored(&store, json!({"audience": "others"}));
    let (in_cookies, _) = world(json!({}));
    for other in [others, in_cookies] {
        let outcome = show(&*other, "GET / HTTP/1.1", pair(&session)).await;
        assert_eq!(outcome.consumer(), None);
    }
}

#[tokio::test]
async fn a_session_is_stored_before_its_answer_goes() {
    let (store, _directory) = store().await;
    let (here, _) = stored(&store, json!({}));
    let (there, _) = stored(&store, json!({}));
    let cookie = begin(&*here).await;
    sessions(&store, 1).await;
    // So the next request finds it, on whatever node.
    let outcome = show(&*there, "GET / HTTP/1.1", &cookie).await;
    assert_eq!(outcome.consumer(), Some("anna"));
}

#[tokio::test]
async fn an_answer_that_takes_the_place_of_another_begins_no_second_session() {
    let (store, _directory) = store().await;
    let (filter, _) = stored(&store, json!({}));
    let known = Exchange {
        consumer: Some(caller("anna", &[])),
        credential: Some(Arc::new(identity::Credential::new(Uuid::from_u128(7), "k"))),
        ..Exchange::default()
    };
    let mut outcome = ask_as(&*filter, "GET / HTTP/1.1", known).await;
    let first = cookies(&*filter, &mut outcome).await;
    let mut response = ResponseHeader::build(200, None).expect("a head");
    let Outcome { head, exchange, .. } = &mut outcome;
    filter.before_own_response(head, exchange, &response).await;
    filter.on_own_response(head, exchange, &mut response);
    assert_eq!(response.headers[SET_COOKIE], first[0]);
    sessions(&store, 1).await;
}

#[tokio::test]
async fn a_remembered_browser_has_a_session_for_each_cookie_and_signs_out_of_both() {
    let (store, _directory) = store().await;
    let config = json!({"remember": true});
    let (filter, parts) = stored(&store, config);
    let [session, remember] = remembered(&*filter).await;
    let first: Vec<String> = sessions(&store, 2)
        .await
        .into_iter()
        .map(|it| it.id)
        .collect();
    // The session is over. The other cookie begins one, and stays what it is.
    parts.clock.advance(4_000_000);
    let both = format!("{}; {}", pair(&session), pair(&remember));
    let mut outcome = show(&*filter, "GET / HTTP/1.1", &both).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    let given = cookies(&*filter, &mut outcome).await;
    let now = sessions(&store, 3).await;
    let new = now.iter().filter(|login| !first.contains(&login.id));
    assert_eq!(new.count(), 1);
    let both = format!("{}; {}", pair(&given[0]), pair(&given[1]));
    let outcome = show(&*filter, "POST /?session_logout HTTP/1.1", &both).await;
    assert_eq!(outcome.reply.expect("an answer").status, StatusCode::OK);
    let left = sessions(&store, 1).await.remove(0);
    assert!(left.ends_ms < 4_000_000, "the one whose time is up");
}

#[tokio::test]
async fn a_remembered_session_that_has_ended_meanwhile_begins_none_and_leaves_nothing() {
    let (store, _directory) = store().await;
    let (filter, _) = stored(&store, json!({"remember": true}));
    let [_, remember] = remembered(&*filter).await;
    sessions(&store, 2).await;
    // The browser was closed. While the upstream answers, an operator ends it all.
    let mut outcome = show(&*filter, "GET / HTTP/1.1", pair(&remember)).await;
    assert_eq!(outcome.consumer(), Some("anna"));
    let ended = store.end_logins(&LoginQuery::default(), &[], 0, None).await;
    assert_eq!(ended.expect("an answer").len(), 2);
    assert!(cookies(&*filter, &mut outcome).await.is_empty());
    sessions(&store, 0).await;
}

#[tokio::test]
async fn a_head_on_the_way_to_the_answer_says_nothing_of_a_session() {
    let (filter, _) = world(json!({}));
    let known = Exchange {
        consumer: Some(caller("anna", &[])),
        credential: Some(Arc::new(identity::Credential::new(Uuid::from_u128(7), "k"))),
        ..Exchange::default()
    };
    let outcome = ask_as(&*filter, "GET / HTTP/1.1", known).await;
    for (status, begins) in [(103, false), (101, true), (200, true)] {
        let mut response = ResponseHeader::build(status, None).expect("a head");
        filter.on_response_to(&outcome.head, &outcome.exchange, &mut response);
        let told = response.headers.contains_key(SET_COOKIE);
        assert_eq!(told, begins, "{status}");
    }
}

#[tokio::test]
async fn a_flood_of_refusals_begins_no_session_in_the_store() {
    let (store, _directory) = store().await;
    let (filter, _) = stored(&store, json!({}));
    let known = Exchange {
        consumer: Some(caller("anna", &[])),
        credential: Some(Arc::new(identity::Credential::new(Uuid::from_u128(7), "k"))),
        ..Exchange::default()
    };
    let mut outcome = ask_as(&*filter, "GET / HTTP/1.1", known).await;
    for (status, begins) in [(429, false), (403, false), (200, true)] {
        let mut response = ResponseHeader::build(status, None).expect("a head");
        let Outcome { head, exchange, .. } = &mut outcome;
        filter.before_own_response(head, exchange, &response).await;
        filter.on_own_response(head, exchange, &mut response);
        assert_eq!(
            response.headers.contains_key(SET_COOKIE),
            begins,
            "{status}"
        );
    }
    sessions(&store, 1).await;
}

#[tokio::test]
async fn the_upstream_hears_of_no_session_that_another_credential_has_displaced() {
    let (filter, _) = world(json!({"request_headers": ["subject"]}));
    let cookie = begin(&*filter).await;
    let mut outcome = show(&*filter, "GET / HTTP/1.1", &cookie).await;
    let told = |outcome: &Outcome| {
        let mut request = outcome.head.clone();
        filter.on_upstream_request(&outcome.exchange, &mut UpstreamRequest::new(&mut request));
        request.headers.contains_key("session-subject")
    };
    assert!(told(&outcome));
    let other = identity::Credential::new(Uuid::from_u128(8), "other");
    outcome.exchange.credential = Some(Arc::new(other));
    assert!(!told(&outcome));
}
