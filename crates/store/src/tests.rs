//! The contract of [`Store`], run against every kind of database.

mod acme;
mod authorization;
mod broker;
mod broker_tokens;
mod changes;
mod entities;
mod factors;
mod federation;
mod imports;
mod lockouts;
mod logins;
mod node_list;
mod nodes;
mod oauth2;
mod operations;
mod postgres;
mod resets;
mod retired_names;
mod sessions;
mod shared_secrets;
mod tokens;
mod undos;
mod user_queries;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::*;
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{self, AuditQuery, AuditRecord, PendingAudit};
use doorward_core::model::authorization::{
    Authorization, CODE_KEPT_MS, Challenge, ChallengeMethod, Redemption, SavedRequest, StoredCode,
    StoredRequest,
};
use doorward_core::model::broker::{
    Kind, PresentedRefreshToken, Record, Refresh, Removal, RevocationTarget, StoredTokens,
    TokenInsertion,
};
use doorward_core::model::client::{ClientSecret, SignAlg};
use doorward_core::model::device::{DEVICE_KEPT_MS, DeviceRequest, StoredDevice, Verdict};
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::grant::{
    Exchange, Grant, Revocation, Rotation, StoredAccess, StoredKey, StoredRefresh, StoredSession,
    TokenHash,
};
use doorward_core::model::query::{Filter, Op, Operand, UserQuery};
use doorward_core::model::registration::{RealmRemoval, RegistrationOutcome, StoredRealm};
use doorward_core::model::secret::Secret;
use doorward_core::model::session::{Ending, SessionQuery};
use doorward_core::model::user::import::{ExistingUserPolicy, Import, ImportOutcome};
use doorward_core::model::user::{Owner, schema};

/// A store in a directory that goes with it.
struct Fixture {
    store: Arc<Store>,
    directory: tempfile::TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = open(&url(&directory)).await.expect("a new store opens");
        Self { store, directory }
    }

    async fn another(&self) -> Arc<Store> {
        open(&url(&self.directory))
            .await
            .expect("the store opens again")
    }
}

fn url(directory: &tempfile::TempDir) -> String {
    testing::url(directory.path())
}

fn user(name: &str, profile: Value) -> User {
    User {
        id: random_uuid(),
        realm: "/".to_owned(),
        user_name: name.to_owned(),
        name_reused: false,
        password_hash: None,
        active: true,
        owner: Owner::Store,
        version: 1,
        created_ms: 1000,
        updated_ms: 1000,
        profile: profile.as_object().cloned().expect("an object"),
    }
}

fn client(id: &str) -> Client {
    Client {
        realm: "/".to_owned(),
        metadata: serde_json::from_value(json!({"client_id": id})).expect("metadata"),
        secret: ClientSecret::None,
        owner: Owner::Store,
        registration: None,
        created_ms: 1000,
        updated_ms: 1000,
    }
}

fn refresh(token: &str, user_id: Uuid) -> StoredRefresh {
    StoredRefresh {
        family: TokenHash::of("family"),
        current: TokenHash::of(token),
        previous: None,
        grant: Grant {
            id: "grant".to_owned(),
            realm: "/".to_owned(),
            client_id: "app".to_owned(),
            user_id,
            scopes: vec!["openid".to_owned()],
            grant_type: "password".to_owned(),
            auth_time: 1,
            ends_ms: 90_000,
            sid: None,
            userinfo_claims: Vec::new(),
            id_claims: Vec::new(),
            resources: Vec::new(),
            bound_to: None,
            amr: Vec::new(),
            acr: None,
        },
        expires_ms: 50_000,
    }
}

/// The exchange of one token for another at a time, with some grace.
fn exchange(from: &str, to: &str, now_ms: i64, grace_ms: i64) -> Exchange {
    Exchange {
        family: TokenHash::of("family"),
        presented: TokenHash::of(from),
        successor: TokenHash::of(to),
        salt: TokenHash::of(to).0,
        expires_ms: 60_000,
        now_ms,
        grace_ms,
        revoked_until_ms: 99_000,
    }
}

/// A store with the refresh token `one` of some user.
async fn with_refresh_token() -> (Fixture, User) {
    let fixture = Fixture::new().await;
    let demo = user("demo", json!({}));
    fixture
        .store
        .insert_user(&demo, None)
        .await
        .expect("inserted");
    let one = refresh("one", demo.id);
    let recorded = fixture.store.record_tokens(Some(&one), None, None);
    recorded.await.expect("recorded");
    (fixture, demo)
}

fn entity(id: Uuid, key: &str) -> EntityWrite {
    EntityWrite::Put(StoredEntity {
        kind: "services",
        id,
        key: Some(key.to_owned()),
        doc: Map::from_iter([("name".to_owned(), json!(key))]),
    })
}

async fn realm_paths(store: &Arc<Store>) -> Vec<String> {
    let realms = store.realms().await.expect("realms");
    realms.into_iter().map(|realm| realm.path).collect()
}

async fn names(store: &Arc<Store>, filter: Filter) -> Vec<String> {
    let query = UserQuery {
        filter,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 100,
    };
    let page = store.users("/", &query).await.expect("a page");
    page.users.into_iter().map(|user| user.user_name).collect()
}

fn compare(path: &str, op: Op, text: &str) -> Filter {
    let attribute = schema::find(path).expect("an attribute");
    Filter::Compare(attribute, op, Operand::Text(text.to_owned()))
}

fn code(of: &User) -> StoredCode {
    StoredCode {
        hash: TokenHash::of("code"),
        authorization: Authorization {
            grant: refresh("one", of.id).grant,
            redirect_uri: Some("https://app.example/cb".to_owned()),
            challenge: Some(Challenge {
                method: ChallengeMethod::S256,
                value: "challenge".to_owned(),
            }),
            nonce: Some("nonce".to_owned()),
            id_claims: Map::new(),
            dpop_jkt: None,
        },
        expires_ms: 60_000,
        used: false,
    }
}

fn device(name: &str) -> StoredDevice {
    StoredDevice {
        hash: TokenHash::of(name),
        user_code: TokenHash::of(&format!("user code {name}")),
        realm: "/".to_owned(),
        client_id: "app".to_owned(),
        request: DeviceRequest {
            scopes: vec!["openid".to_owned()],
            resources: Vec::new(),
            challenge: None,
        },
        verdict: Verdict::Pending,
        expires_ms: 60_000,
    }
}

fn kept(name: &str, client_id: &str) -> StoredRequest {
    StoredRequest {
        hash: TokenHash::of(name),
        realm: "/".to_owned(),
        client_id: client_id.to_owned(),
        begins_ms: 1000,
        ends_ms: 1000,
        kept: SavedRequest {
            parameters: vec![("state".to_owned(), name.to_owned())],
            pushed: true,
            object: false,
        },
    }
}

#[tokio::test]
async fn the_state_is_private_to_its_owner() {
    if testing::is_postgres() {
        return;
    }
    let fixture = Fixture::new().await;
    let state = fixture.directory.path().join("state");
    let mode = |path: &std::path::Path| {
        let metadata = std::fs::metadata(path).expect("it exists");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&state), 0o700);
    fixture
        .store
        .insert_user(&user("demo", json!({})), None)
        .await
        .expect("inserted");
    for file in ["doorward.db", "doorward.db-wal"] {
        assert_eq!(mode(&state.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_change_by_another_process_changes_the_data_version() {
    let fixture = Fixture::new().await;
    let other = fixture.another().await;
    let before = fixture.store.data_version().await.expect("a version");
    fixture
        .store
        .insert_client(&client("own"), None)
        .await
        .expect("inserted");
    assert_eq!(
        fixture.store.data_version().await.expect("a version"),
        before
    );
    other
        .insert_client(&client("foreign"), None)
        .await
        .expect("inserted");
    assert_ne!(
        fixture.store.data_version().await.expect("a version"),
        before
    );
}

#[tokio::test]
async fn a_user_name_is_unique_whatever_its_case() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .insert_user(&user("Demo", json!({})), None)
        .await
        .expect("inserted");
    let refused = store.insert_user(&user("dEMO", json!({})), None).await;
    assert!(matches!(refused, Err(StoreError::Taken(_))));
    let found = store.user_by_name("/", "DEMO").await.expect("a lookup");
    assert_eq!(found.map(|user| user.user_name).as_deref(), Some("Demo"));
    assert!(
        store
            .user_by_name("/other", "demo")
            .await
            .expect("a lookup")
            .is_none()
    );
}

#[tokio::test]
async fn an_update_on_a_stale_version_is_refused() {
    let fixture = Fixture::new().await;
    let mut demo = user("demo", json!({"title": "Boss"}));
    fixture
        .store
        .insert_user(&demo, None)
        .await
        .expect("inserted");
    demo.version = 2;
    demo.profile = Map::new();
    fixture
        .store
        .update_user(&demo, None)
        .await
        .expect("updated");
    let again = fixture.store.update_user(&demo, None).await;
    assert!(matches!(again, Err(StoreError::Conflict(_))));
    assert!(
        names(&fixture.store, compare("title", Op::Equal, "boss"))
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn what_is_remembered_is_new_once_until_it_expires() {
    let fixture = Fixture::new().await;
    let once = TokenHash::of("once");
    let remember = |until, now| fixture.store.remember(once, until, now);
    let (left, right) = tokio::join!(remember(10, 1), remember(10, 1));
    assert_ne!(left.expect("an answer"), right.expect("an answer"));
    assert!(
        !fixture
            .another()
            .await
            .remember(once, 10, 9)
            .await
            .expect("an answer")
    );
    assert!(remember(20, 10).await.expect("an answer"));
}

#[tokio::test]
async fn a_revoked_token_is_gone_and_remembered() {
    let fixture = Fixture::new().await;
    let token = StoredAccess {
        hash: TokenHash::of("handle"),
        grant_id: "grant".to_owned(),
        claims: Map::new(),
        expires_ms: 50_000,
    };
    let store = fixture.another().await;
    store
        .record_tokens(None, Some(&token), None)
        .await
        .expect("recorded");
    store
        .revoke_access_token(token.hash, "id", 50_000, None)
        .await
        .expect("revoked");
    assert_eq!(
        store.access_token(token.hash).await.expect("a lookup"),
        None
    );
    let known = fixture.store.revocations().await.expect("a lookup");
    assert_eq!(known, [(Revocation::Token("id".to_owned()), 50_000)]);
    assert_eq!(store.sweep(50_000, 100).await.expect("swept"), 1);
    assert!(store.revocations().await.expect("a lookup").is_empty());
}

#[tokio::test]
async fn what_a_user_holds_goes_with_the_user() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let demo = user("demo", json!({"title": "x"}));
    store.insert_user(&demo, None).await.expect("inserted");
    store
        .record_tokens(Some(&refresh("one", demo.id)), None, None)
        .await
        .expect("recorded");
    let session = StoredSession {
        hash: TokenHash::of("session"),
        realm: "/".to_owned(),
        user_id: demo.id,
        created_ms: 1,
        used_ms: 1,
        ends_ms: 90_000,
        sid: "sid".to_owned(),
        auth_ms: 1,
        amr: vec!["pwd".to_owned(), "otp".to_owned()],
        agent: "a browser".to_owned(),
        address: "192.0.2.1".to_owned(),
    };
    store
        .insert_session(&session, 5, None)
        .await
        .expect("inserted");
    assert!(
        store
            .delete_user(demo.id, None, 2, None)
            .await
            .expect("deleted")
    );
    assert!(
        !store
            .delete_user(demo.id, None, 2, None)
            .await
            .expect("nothing to delete")
    );
    assert!(
        store
            .session(session.hash)
            .await
            .expect("a lookup")
            .is_none()
    );
    let found = store.refresh_tokens(TokenHash::of("family")).await;
    assert!(found.expect("a lookup").is_none());
}

fn declared(users: Vec<User>, clients: Vec<Client>) -> Declared {
    let file_owned = |mut user: User| {
        user.owner = Owner::File;
        user
    };
    Declared {
        realms: vec!["/".to_owned(), "/alpha".to_owned()],
        users: users.into_iter().map(file_owned).collect(),
        clients,
    }
}

#[tokio::test]
async fn what_the_file_declares_is_kept_until_it_no_longer_does() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let sync = |users, clients, now| store.sync_declared(declared(users, clients), now);
    let ann = || user("ann", json!({"title": "Boss"}));
    sync(vec![ann(), user("bob", json!({}))], vec![client("app")], 1)
        .await
        .expect("synced");
    let first = store
        .user_by_name("/", "ann")
        .await
        .expect("a lookup")
        .expect("ann");
    assert_eq!(realm_paths(store).await, ["/", "/alpha"]);

    sync(vec![ann()], vec![], 2).await.expect("synced");
    let again = store
        .user_by_name("/", "ann")
        .await
        .expect("a lookup")
        .expect("ann");
    assert_eq!(
        (again.id, again.version, again.updated_ms),
        (first.id, 1, 1)
    );
    assert!(
        store
            .user_by_name("/", "bob")
            .await
            .expect("a lookup")
            .is_none()
    );
    assert!(store.client("/", "app").await.expect("a lookup").is_none());

    sync(vec![user("Ann", json!({}))], vec![], 3)
        .await
        .expect("synced");
    let changed = store
        .user_by_name("/", "ann")
        .await
        .expect("a lookup")
        .expect("ann");
    assert_eq!(
        (changed.id, changed.version, changed.updated_ms),
        (first.id, 2, 3)
    );
    assert!(matches!(
        store.delete_user(first.id, None, 2, None).await,
        Err(StoreError::FileOwned(_))
    ));
}

#[tokio::test]
async fn a_declared_name_that_the_store_owns_is_refused() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .insert_user(&user("demo", json!({})), None)
        .await
        .expect("inserted");
    let refused = store
        .sync_declared(declared(vec![user("Demo", json!({}))], vec![]), 1)
        .await;
    assert!(matches!(refused, Err(StoreError::Taken(_))));
    assert_eq!(realm_paths(store).await, ["/"], "half a sync was kept");
}

#[tokio::test]
async fn two_processes_that_rotate_at_once_agree_on_one_key() {
    let fixture = Fixture::new().await;
    let key = |kid: &str, active_from_ms| StoredKey {
        kid: kid.to_owned(),
        alg: SignAlg::ES256,
        pkcs8: Secret::new("x"),
        created_ms: 1,
        active_from_ms,
        expires_ms: None,
    };
    let add = async |key: StoredKey, others| {
        fixture
            .store
            .add_signing_key(&key, others, false, None)
            .await
            .expect("an answer")
    };
    assert!(add(key("one", 10), 0).await);
    assert!(!add(key("rival", 10), 0).await);
    assert!(add(key("two", 20), 99).await);
    let keys = fixture.store.signing_keys().await.expect("keys");
    let expiries: Vec<_> = keys
        .iter()
        .map(|key| (key.kid.as_str(), key.expires_ms))
        .collect();
    assert_eq!(expiries, [("one", Some(99)), ("two", None)]);
}

#[tokio::test]
async fn expired_records_are_swept() {
    let fixture = Fixture::new().await;
    let demo = user("demo", json!({}));
    fixture
        .store
        .insert_user(&demo, None)
        .await
        .expect("inserted");
    fixture
        .store
        .record_tokens(Some(&refresh("one", demo.id)), None, None)
        .await
        .expect("recorded");
    fixture
        .store
        .revoke_grant("other", 10, None)
        .await
        .expect("revoked");
    assert_eq!(fixture.store.sweep(10, 100).await.expect("swept"), 1);
    assert_eq!(fixture.store.sweep(50_000, 100).await.expect("swept"), 1);
}

#[tokio::test]
async fn other_addresses_are_refused_with_their_form() {
    for bad in ["mysql://x", "doorward.db", "postgres:doorward"] {
        assert!(
            matches!(open(bad).await, Err(StoreError::Address(..))),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_names_the_cause_and_keeps_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    let url = format!("sqlite:{}/db", file.display());
    let refused = open(&url).await.map(drop).expect_err("no directory");
    let cause = std::error::Error::source(&refused).expect("a cause");
    let cause = cause
        .downcast_ref::<std::io::Error>()
        .expect("of the system");
    let text = refused.to_string();
    assert!(text.starts_with("store unavailable: can't open "), "{text}");
    assert!(text.ends_with(&cause.to_string()), "{text}");
}
