//! The store in a database: one SQLite file, or PostgreSQL.
//!
//! Statements are written once, in words that both understand ([`statement`]);
//! where they differ, [`dialect`] has one function a difference. Its one
//! invariant: transactions that write follow one another, whichever database
//! and however many processes, so that none of them sees half of another.

mod audit;
mod batch;
mod broker;
mod broker_tokens;
mod check;
mod clients;
mod codes;
mod compare;
mod consents;
mod database;
mod devices;
mod dialect;
mod endings;
mod entities;
mod factors;
mod federation;
mod filter;
mod groups;
mod imports;
mod keys;
mod lease;
mod lockouts;
mod logins;
mod logouts;
mod migrate;
mod page;
mod place;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod plans;
mod postgres;
mod pulse;
mod realms;
mod registrations;
mod requests;
mod resets;
mod retired_names;
mod row;
mod secrets;
mod server_lock;
mod sessions;
mod sqlite;
mod statement;
mod sweep;
mod sync;
mod tokens;
mod transfer;
mod tx;
mod users;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

pub use check::Finding;
pub use transfer::{Rows, TransferError};

use batch::{Batch, told_if};
use database::Database;
use postgres::Server;
use row::Row;
use server_lock::ServerLock;
use statement::{Builder, On, sql};
use tx::Tx;

use super::{
    Beside, Declared, EntityWrite, GroupChange, GroupOutcome, GroupPage, Store, StoreError,
    UserPage, complete,
};
use doorward_core::model::audit::{AuditQuery, AuditRecord};
use doorward_core::model::authorization::{Redemption, StoredCode, StoredRequest};
use doorward_core::model::broker::{
    ClientRecords, Kept, Kind, Record, Refresh, Revoked, ShownRefresh, StoredTokens,
};
use doorward_core::model::client::Client;
use doorward_core::model::device::{StoredDevice, Verdict};
use doorward_core::model::factor::{Enrolment, StoredFactor};
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::grant::{
    Consent, Exchange, Grant, Revocation, Rotation, StoredAccess, StoredKey, StoredRefresh,
    StoredSession, TokenHash,
};
use doorward_core::model::group::{Group, MemberChange, Membership};
use doorward_core::model::lockout::StoredLock;
use doorward_core::model::login::{EndMark, LoginPage, LoginQuery, StoredLogin};
use doorward_core::model::query::UserQuery;
use doorward_core::model::registration::{
    ClientQuery, InitialToken, RealmRemoval, Registered, StoredRealm,
};
use doorward_core::model::reset::StoredReset;
use doorward_core::model::secret::Secret;
use doorward_core::model::session::{
    EndedSession, Ending, Logout, SessionPage, SessionQuery, SessionRecord,
};
use doorward_core::model::user::import::{Existing, Import, Imported};
use doorward_core::model::user::{RetiredName, User};

/// An import of more users than this is one of very many.
const MANY: usize = 1000;

/// The store in a database.
pub struct SqlStore {
    database: Database,
    batch: Batch,
    /// Told when the database says that another process changed something.
    changed_by_others: watch::Sender<()>,
    /// Changes of users and clients.
    changes: AtomicU64,
    /// Clients that registered themselves.
    registered: AtomicU64,
    /// That of the server, which no other one takes meanwhile.
    lock: Option<ServerLock>,
}

impl SqlStore {
    fn on(database: Database, changed_by_others: watch::Sender<()>) -> Self {
        Self {
            batch: Batch::start(database.clone()),
            database,
            changed_by_others,
            changes: AtomicU64::new(0),
            registered: AtomicU64::new(0),
            lock: None,
        }
    }

    /// Opens the PostgreSQL database at `url`, migrating it as needed.
    ///
    /// # Errors
    /// [`StoreError::Address`] when the address can't be read;
    /// [`StoreError::Unavailable`] when the server does not answer, refuses, or
    /// the database was written by a newer version.
    pub async fn open_postgres(url: &str) -> Result<Self, StoreError> {
        let (server, changes) = connect(url).await?;
        migrate::postgres(server.writer()).await?;
        Ok(Self::on(Database::Postgres(Arc::new(server)), changes))
    }

    /// Opens the PostgreSQL database at `url` without changing it; `None`: there
    /// is no store in it yet.
    ///
    /// # Errors
    /// As [`SqlStore::open_postgres`]; also when another version wrote it.
    pub async fn open_existing_postgres(url: &str) -> Result<Option<Self>, StoreError> {
        let (server, changes) = connect(url).await?;
        let mut connection = server.writer().acquire().await.map_err(unavailable)?;
        let version = timeout(postgres::ANSWER, migrate::postgres_version(&mut connection));
        let version = version.await.map_err(|_| silent())??;
        match version {
            None => return Ok(None),
            Some(version) if migrate::is_current(version) => {}
            Some(_) => {
                let reason = "the database was written by another version";
                return Err(StoreError::Unavailable(reason.to_owned()));
            }
        }
        drop(connection);
        let database = Database::Postgres(Arc::new(server));
        Ok(Some(Self::on(database, changes)))
    }

    /// The outcome of a change of users or clients. Counted when it is over,
    /// so that nobody reads the old record after the count.
    fn changed<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        self.changes.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    async fn begin(&self) -> Result<Tx, StoreError> {
        self.database.begin().await
    }
}

async fn connect(url: &str) -> Result<(Server, watch::Sender<()>), StoreError> {
    // No host is one for others, if `host` says where; not for the parser.
    let url = match url.split_once("@/") {
        Some((user, rest)) if rest.contains("host=") => format!("{user}@localhost/{rest}"),
        _ => url.to_owned(),
    };
    // What is wrong with it is said without what it holds: a password.
    let options = PgConnectOptions::from_str(&url);
    let options =
        options.map_err(|error| StoreError::Address(format!("can't be used: {error}")))?;
    let changes = watch::Sender::new(());
    let server = Server::connect(options, changes.clone()).await?;
    Ok((server, changes))
}

fn unavailable(error: sqlx::Error) -> StoreError {
    // PostgreSQL's `program_limit_exceeded`: a row is longer than its index takes.
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        Some("54000") => return StoreError::Unfit,
        // `SQLITE_INTERRUPT`, `query_canceled`: see `Database::listing`.
        Some("9" | "57014") => return StoreError::TooLong,
        _ => {}
    }
    StoreError::Unavailable(error.to_string())
}

fn silent() -> StoreError {
    StoreError::Unavailable("the database does not answer".to_owned())
}

fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(what.to_string())
}

/// A failed write: the name `what` is taken, or the database is ill.
fn taken(error: sqlx::Error, what: &str) -> StoreError {
    match error.as_database_error() {
        Some(refused) if refused.is_unique_violation() => StoreError::Taken(what.to_owned()),
        _ => unavailable(error),
    }
}

fn parse_id(text: &str) -> Result<Uuid, StoreError> {
    text.parse()
        .map_err(|_| damaged(format!("`{text}` is no UUID")))
}

fn parse_doc<T: serde::de::DeserializeOwned>(doc: &str) -> Result<T, StoreError> {
    serde_json::from_str(doc).map_err(damaged)
}

fn write_doc<T: serde::Serialize>(doc: &T) -> Result<String, StoreError> {
    serde_json::to_string(doc).map_err(damaged)
}

/// As [`write_doc`], for a record that statements look into: PostgreSQL takes no
/// JSON with U+0000 apart.
fn write_shown<T: serde::Serialize>(doc: &T) -> Result<String, StoreError> {
    let doc = write_doc(doc)?;
    // An even number of backslashes before it are characters of their own.
    let nul = doc.match_indices("\\u0000").any(|(at, _)| {
        let before = doc[..at].bytes().rev();
        before.take_while(|byte| *byte == b'\\').count() % 2 == 0
    });
    if nul {
        return Err(StoreError::Unfit);
    }
    Ok(doc)
}

#[async_trait]
impl Store for SqlStore {
    async fn answers(&self) -> Result<(), StoreError> {
        self.database.answers().await
    }

    fn failing_writes(&self) -> Option<String> {
        self.database.failing_writes()
    }

    async fn entities(&self) -> Result<Vec<(String, Uuid, Map<String, Value>)>, StoreError> {
        entities::all(&self.database).await
    }

    async fn write_entities(
        &self,
        writes: Vec<EntityWrite>,
        seen: Option<i64>,
    ) -> Result<i64, StoreError> {
        entities::write(self.begin().await?, writes, seen).await
    }

    async fn entities_revision(&self) -> Result<i64, StoreError> {
        entities::revision(&self.database).await
    }

    async fn data_version(&self) -> Result<i64, StoreError> {
        self.database.version("identity").await
    }

    async fn entities_version(&self) -> Result<i64, StoreError> {
        self.database.version("entities").await
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed_by_others.subscribe()
    }

    fn generation(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn registrations(&self) -> u64 {
        self.registered.load(Ordering::Acquire)
    }

    async fn realms(&self) -> Result<Vec<StoredRealm>, StoreError> {
        realms::all(&self.database).await
    }

    async fn insert_realm(&self, realm: &StoredRealm) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        realms::insert(&mut tx, realm).await?;
        tx.commit().await
    }

    async fn update_realm(
        &self,
        realm: &StoredRealm,
        seen: Option<&Map<String, Value>>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        realms::update(&mut tx, realm, seen).await?;
        tx.commit().await
    }

    async fn delete_realm(&self, path: &str) -> Result<RealmRemoval, StoreError> {
        let mut tx = self.begin().await?;
        let outcome = realms::delete(&mut tx, path).await?;
        Beside::only_if(outcome == RealmRemoval::Done);
        tx.commit().await?;
        Ok(outcome)
    }

    async fn sync_declared(&self, declared: Declared, now_ms: i64) -> Result<(), StoreError> {
        self.changed(sync::declared(self.begin().await?, declared, now_ms).await)
    }

    async fn user(&self, realm: &str, id: Uuid) -> Result<Option<User>, StoreError> {
        users::by_id(&self.database, realm, id).await
    }

    async fn user_by_name(&self, realm: &str, name: &str) -> Result<Option<User>, StoreError> {
        users::by_name(&self.database, realm, name).await
    }

    async fn users(&self, realm: &str, query: &UserQuery) -> Result<UserPage, StoreError> {
        users::page(&self.database, realm, query).await
    }

    async fn insert_user(&self, user: &User) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        users::insert(&mut tx, user).await?;
        self.changed(tx.commit().await)
    }

    async fn import_users(
        &self,
        users: &[Import],
        existing: Existing,
        dry: bool,
        now_ms: i64,
    ) -> Result<Vec<Imported>, StoreError> {
        let mut tx = if users.len() > MANY {
            self.database.begin_many().await?
        } else {
            self.begin().await?
        };
        let outcomes = imports::users(&mut tx, users, existing, now_ms).await?;
        if dry {
            return Ok(outcomes);
        }
        self.changed(tx.commit().await)?;
        Ok(outcomes)
    }

    async fn update_user(&self, user: &User) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        users::update(&mut tx, user).await?;
        self.changed(tx.commit().await)
    }

    async fn update_user_and_password(&self, user: &User, hash: &Secret) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        users::update(&mut tx, user).await?;
        users::update_password(&mut tx, user, hash).await?;
        self.changed(tx.commit().await)
    }

    async fn group(&self, realm: &str, id: Uuid) -> Result<Option<Group>, StoreError> {
        groups::by_id(&self.database, realm, id).await
    }

    async fn groups(&self, realm: &str, query: &UserQuery) -> Result<GroupPage, StoreError> {
        groups::page(&self.database, realm, query).await
    }

    async fn members(
        &self,
        group: Uuid,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Membership>, StoreError> {
        groups::members(&self.database, group, after, limit).await
    }

    async fn memberships(&self, users: &[Uuid]) -> Result<Vec<(Uuid, Membership)>, StoreError> {
        groups::of_users(&self.database, users).await
    }

    async fn insert_group(
        &self,
        group: &Group,
        members: &MemberChange,
    ) -> Result<GroupOutcome, StoreError> {
        groups::insert(self.begin().await?, group, members).await
    }

    async fn change_group(&self, change: &GroupChange) -> Result<GroupOutcome, StoreError> {
        groups::change(self.begin().await?, change).await
    }

    async fn delete_group(
        &self,
        realm: &str,
        id: Uuid,
        seen: Option<i64>,
    ) -> Result<GroupOutcome, StoreError> {
        groups::delete(self.begin().await?, realm, id, seen).await
    }

    async fn set_password(
        &self,
        id: Uuid,
        hash: &Secret,
        seen: Option<&Secret>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let tx = self.begin().await?;
        self.changed(users::set_password(tx, id, (seen, hash), now_ms).await)
    }

    async fn replace_hash(
        &self,
        id: Uuid,
        old: Option<&Secret>,
        new: Option<&Secret>,
        ends: bool,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let tx = self.begin().await?;
        let done = users::replace_hash(tx, id, (old, new), ends, now_ms).await;
        match ends {
            true => self.changed(done),
            false => done,
        }
    }

    async fn delete_user(
        &self,
        id: Uuid,
        seen: Option<i64>,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        self.changed(users::delete(self.begin().await?, id, seen, now_ms).await)
    }

    async fn federated_user(
        &self,
        realm: &str,
        issuer: &str,
        subject: &str,
    ) -> Result<Option<(FederatedIdentity, User)>, StoreError> {
        federation::user(&self.database, realm, issuer, subject).await
    }

    async fn link_identity(
        &self,
        identity: &FederatedIdentity,
        seen: Option<i64>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        federation::link(&mut tx, identity, seen).await?;
        tx.commit().await
    }

    async fn insert_federated_user(
        &self,
        user: &User,
        identity: &FederatedIdentity,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        users::insert(&mut tx, user).await?;
        federation::insert(&mut tx, identity).await?;
        self.changed(tx.commit().await)
    }

    async fn touch_identity(&self, identity: &FederatedIdentity) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        federation::touch(&mut tx, identity).await?;
        tx.commit().await
    }

    async fn identities(&self, user_id: Uuid) -> Result<Vec<FederatedIdentity>, StoreError> {
        federation::of_user(&self.database, user_id).await
    }

    async fn unlink_identity(
        &self,
        user_id: Uuid,
        id: Uuid,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let gone = federation::unlink(&mut tx, user_id, id, now_ms).await?;
        self.changed(tx.commit().await)?;
        Ok(gone)
    }

    async fn insert_reset(&self, reset: &StoredReset, most: u32) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        resets::insert(&mut tx, reset, most).await?;
        tx.commit().await
    }

    async fn reset(&self, hash: TokenHash) -> Result<Option<StoredReset>, StoreError> {
        resets::by_hash(&self.database, hash).await
    }

    async fn reset_password(
        &self,
        hash: TokenHash,
        password: &Secret,
        now_ms: i64,
    ) -> Result<Option<Uuid>, StoreError> {
        self.changed(resets::spend(self.begin().await?, hash, password, now_ms).await)
    }

    async fn put_lock(&self, lock: &StoredLock) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        lockouts::put(&mut tx, lock).await?;
        tx.commit().await
    }

    async fn locks(&self, since_ms: i64, now_ms: i64) -> Result<Vec<StoredLock>, StoreError> {
        lockouts::since(&self.database, since_ms, now_ms).await
    }

    async fn client(&self, realm: &str, client_id: &str) -> Result<Option<Client>, StoreError> {
        clients::by_id(&self.database, realm, client_id).await
    }

    async fn clients(&self, realm: &str) -> Result<Vec<Client>, StoreError> {
        clients::all(&self.database, realm).await
    }

    async fn find_clients(
        &self,
        realm: &str,
        query: &ClientQuery,
    ) -> Result<Vec<Client>, StoreError> {
        clients::find(&self.database, realm, query).await
    }

    async fn update_client(&self, client: &Client, seen_ms: i64) -> Result<(), StoreError> {
        self.changed(clients::update(self.begin().await?, client, seen_ms).await)
    }

    async fn register_client(
        &self,
        client: &Client,
        most: u32,
        token: Option<TokenHash>,
    ) -> Result<Registered, StoreError> {
        let mut tx = self.begin().await?;
        let outcome = registrations::register(&mut tx, client, most, token).await?;
        if outcome == Registered::Done {
            tx.commit().await?;
        }
        // A client that nobody knew before is held by nobody: caches stay.
        self.registered.fetch_add(1, Ordering::AcqRel);
        Ok(outcome)
    }

    async fn touch_clients(
        &self,
        used: &[(String, String)],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        registrations::touch(&mut tx, used, now_ms).await?;
        tx.commit().await
    }

    async fn sweep_unused_clients(
        &self,
        realm: &str,
        before_ms: i64,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let gone = registrations::sweep_unused(&mut tx, realm, before_ms, limit).await?;
        tx.commit().await?;
        if gone > 0 {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(gone)
    }

    async fn insert_initial_token(&self, token: &InitialToken) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        registrations::insert_token(&mut tx, token).await?;
        tx.commit().await
    }

    async fn initial_tokens(&self, realm: &str) -> Result<Vec<InitialToken>, StoreError> {
        registrations::tokens(&self.database, realm).await
    }

    async fn is_initial_token(
        &self,
        realm: &str,
        hash: TokenHash,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        registrations::is_good(&self.database, realm, hash, now_ms).await
    }

    async fn delete_initial_token(&self, realm: &str, id: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let gone = registrations::delete_token(&mut tx, realm, id).await?;
        Beside::only_if(gone);
        tx.commit().await?;
        Ok(gone)
    }

    async fn client_addresses(&self, realm: &str) -> Result<Vec<String>, StoreError> {
        clients::addresses(&self.database, realm).await
    }

    async fn insert_client(&self, client: &Client) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        clients::insert(&mut tx, client).await?;
        self.changed(tx.commit().await)
    }

    async fn delete_client(
        &self,
        realm: &str,
        client_id: &str,
    ) -> Result<Option<Vec<String>>, StoreError> {
        self.changed(clients::delete(self.begin().await?, realm, client_id).await)
    }

    async fn signing_keys(&self) -> Result<Vec<StoredKey>, StoreError> {
        keys::all(&self.database).await
    }

    async fn add_signing_key(
        &self,
        key: &StoredKey,
        others_expire_ms: i64,
        displaces: bool,
    ) -> Result<bool, StoreError> {
        keys::add(self.begin().await?, key, others_expire_ms, displaces).await
    }

    async fn replace_private_key(
        &self,
        kid: &str,
        old: &Secret,
        new: &Secret,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        keys::replace(&mut tx, kid, old, new).await?;
        tx.commit().await
    }

    async fn secret(&self, name: &str, made: &Secret) -> Result<Secret, StoreError> {
        if let Some(known) = secrets::known(&self.database, name).await? {
            return Ok(known);
        }
        let mut tx = self.begin().await?;
        let kept = secrets::kept(&mut tx, name, made).await?;
        tx.commit().await?;
        Ok(kept)
    }

    async fn replace_secret(
        &self,
        name: &str,
        old: &Secret,
        new: &Secret,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        secrets::replace(&mut tx, name, old, new).await?;
        tx.commit().await
    }

    async fn record_tokens(
        &self,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
    ) -> Result<(), StoreError> {
        let of = (refresh.cloned(), access.cloned());
        let write = self.batch.write(of, |tx, (refresh, access)| {
            Box::pin(tokens::insert(tx, refresh.as_ref(), access.as_ref()))
        });
        write.await
    }

    async fn refresh_tokens(&self, family: TokenHash) -> Result<Option<StoredRefresh>, StoreError> {
        tokens::refresh(&self.database, family).await
    }

    async fn exchange_refresh_token(
        &self,
        exchange: Exchange,
        access: Option<&StoredAccess>,
    ) -> Result<Rotation, StoreError> {
        let of = (exchange, access.cloned());
        let write = self.batch.write(of, |tx, (exchange, access)| {
            let exchanged = tokens::exchange(tx, exchange, access.as_ref());
            Box::pin(told_if(exchanged, |rotation| {
                matches!(rotation, Rotation::Done | Rotation::Again(_))
            }))
        });
        write.await
    }

    async fn revoke_grant(&self, grant_id: &str, until_ms: i64) -> Result<(), StoreError> {
        let of = (grant_id.to_owned(), until_ms);
        let write = self.batch.write(of, |tx, (grant_id, until_ms)| {
            Box::pin(tokens::revoke(tx, grant_id, *until_ms))
        });
        write.await
    }

    async fn revoke_access_token(
        &self,
        hash: TokenHash,
        token_id: &str,
        until_ms: i64,
    ) -> Result<(), StoreError> {
        let of = (hash, token_id.to_owned(), until_ms);
        let write = self.batch.write(of, |tx, (hash, token_id, until_ms)| {
            Box::pin(tokens::revoke_access(tx, *hash, token_id, *until_ms))
        });
        write.await
    }

    async fn revocations(&self) -> Result<Vec<(Revocation, i64)>, StoreError> {
        tokens::revocations(&self.database).await
    }

    async fn access_token(&self, hash: TokenHash) -> Result<Option<StoredAccess>, StoreError> {
        tokens::access(&self.database, hash).await
    }

    async fn remember(
        &self,
        what: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (what, until_ms, now_ms);
        let write = self.batch.aside(of, |tx, (what, until_ms, now_ms)| {
            Box::pin(tokens::remember(tx, *what, *until_ms, *now_ms))
        });
        write.await
    }

    async fn has_seen(&self, what: TokenHash, now_ms: i64) -> Result<bool, StoreError> {
        tokens::has_seen(&self.database, what, now_ms).await
    }

    async fn insert_session(
        &self,
        session: &StoredSession,
        quota: u32,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let of = (session.clone(), quota);
        let write = self.batch.write(of, |tx, (session, quota)| {
            Box::pin(sessions::insert(tx, None, session, *quota))
        });
        write.await
    }

    async fn replace_session(
        &self,
        old: TokenHash,
        session: &StoredSession,
        quota: u32,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let of = (old, session.clone(), quota);
        let write = self.batch.write(of, |tx, (old, session, quota)| {
            Box::pin(sessions::insert(tx, Some(*old), session, *quota))
        });
        write.await
    }

    async fn session(&self, hash: TokenHash) -> Result<Option<StoredSession>, StoreError> {
        sessions::by_hash(&self.database, hash).await
    }

    async fn touch_session(&self, hash: TokenHash, now_ms: i64) -> Result<(), StoreError> {
        let write = self.batch.aside((hash, now_ms), |tx, (hash, now_ms)| {
            Box::pin(sessions::touch(tx, *hash, *now_ms))
        });
        write.await
    }

    async fn session_named(
        &self,
        realm: &str,
        sid: &str,
    ) -> Result<Option<SessionRecord>, StoreError> {
        sessions::by_name(&self.database, realm, sid).await
    }

    async fn sessions(
        &self,
        query: &SessionQuery,
        after: Option<&str>,
        limit: u32,
    ) -> Result<SessionPage, StoreError> {
        sessions::page(&self.database, query, after, limit).await
    }

    async fn end_sessions(
        &self,
        which: &Ending,
        now_ms: i64,
    ) -> Result<Vec<EndedSession>, StoreError> {
        let mut tx = self.begin().await?;
        let ended = endings::end_all(&mut tx, which, now_ms).await?;
        tx.commit().await?;
        Ok(ended)
    }

    async fn begin_grant(&self, grant: &Grant, now_ms: i64) -> Result<bool, StoreError> {
        let of = (grant.clone(), now_ms);
        let write = self.batch.write(of, |tx, (grant, now_ms)| {
            Box::pin(told_if(sessions::note_grant(tx, grant, *now_ms), |noted| {
                *noted
            }))
        });
        write.await
    }

    async fn take_logouts(
        &self,
        busy: &[(String, String)],
        now_ms: i64,
        limit: u32,
    ) -> Result<(Vec<Logout>, Option<i64>), StoreError> {
        let mut tx = self.begin().await?;
        let taken = logouts::take(&mut tx, busy, now_ms, limit).await?;
        tx.commit().await?;
        Ok(taken)
    }

    async fn settle_logout(&self, id: i64) -> Result<(), StoreError> {
        let write = self
            .batch
            .aside(id, |tx, id| Box::pin(logouts::settle(tx, *id)));
        write.await
    }

    async fn insert_code(&self, code: &StoredCode) -> Result<bool, StoreError> {
        let write = self.batch.write(code.clone(), |tx, code| {
            Box::pin(told_if(codes::insert(tx, code), |kept| *kept))
        });
        write.await
    }

    async fn code(&self, hash: TokenHash) -> Result<Option<StoredCode>, StoreError> {
        codes::by_hash(&self.database, hash).await
    }

    async fn redeem_code(
        &self,
        hash: TokenHash,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
        revoked_until_ms: i64,
    ) -> Result<Redemption, StoreError> {
        let of = (hash, refresh.cloned(), access.cloned(), revoked_until_ms);
        let write = self
            .batch
            .write(of, |tx, (hash, refresh, access, until_ms)| {
                let (refresh, access) = (refresh.as_ref(), access.as_ref());
                let redeemed = codes::redeem(tx, *hash, refresh, access, *until_ms);
                Box::pin(told_if(redeemed, |outcome| *outcome == Redemption::Done))
            });
        write.await
    }

    async fn insert_device(
        &self,
        device: &StoredDevice,
        most: u32,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (device.clone(), most, now_ms);
        let write = self.batch.write(of, |tx, (device, most, now_ms)| {
            Box::pin(told_if(
                devices::insert(tx, device, *most, *now_ms),
                |fits| *fits,
            ))
        });
        write.await
    }

    async fn device(&self, hash: TokenHash) -> Result<Option<StoredDevice>, StoreError> {
        devices::by_hash(&self.database, hash).await
    }

    async fn device_of_user(
        &self,
        user_code: TokenHash,
    ) -> Result<Option<StoredDevice>, StoreError> {
        devices::by_user_code(&self.database, user_code).await
    }

    async fn retired_names(
        &self,
        realm: &str,
        after: &str,
        most: u32,
    ) -> Result<Vec<RetiredName>, StoreError> {
        retired_names::all(&self.database, realm, after, most).await
    }

    async fn release_name(&self, realm: &str, name: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let released = retired_names::release(&mut tx, realm, name).await?;
        self.changed(tx.commit().await)?;
        Ok(released)
    }

    async fn poll_device(
        &self,
        hash: TokenHash,
        interval_s: u32,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (hash, interval_s, now_ms);
        let write = self.batch.aside(of, |tx, (hash, interval_s, now_ms)| {
            Box::pin(devices::poll(tx, *hash, *interval_s, *now_ms))
        });
        write.await
    }

    async fn decide_device(
        &self,
        user_code: TokenHash,
        verdict: &Verdict,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (user_code, verdict.clone(), now_ms);
        let write = self.batch.write(of, |tx, (user_code, verdict, now_ms)| {
            let decided = devices::decide(tx, *user_code, verdict, *now_ms);
            Box::pin(told_if(decided, |decided| *decided))
        });
        write.await
    }

    async fn redeem_device(
        &self,
        hash: TokenHash,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
    ) -> Result<bool, StoreError> {
        let of = (hash, refresh.cloned(), access.cloned());
        let write = self.batch.write(of, |tx, (hash, refresh, access)| {
            let given = devices::redeem(tx, *hash, refresh.as_ref(), access.as_ref());
            Box::pin(told_if(given, |given| *given))
        });
        write.await
    }

    async fn keep_request(
        &self,
        request: &StoredRequest,
        most_bytes: u32,
    ) -> Result<bool, StoreError> {
        let of = (request.clone(), most_bytes);
        let write = self.batch.aside(of, |tx, (request, most_bytes)| {
            Box::pin(requests::keep(tx, request, *most_bytes))
        });
        write.await
    }

    async fn kept_request(&self, hash: TokenHash) -> Result<Option<StoredRequest>, StoreError> {
        requests::by_hash(&self.database, hash).await
    }

    async fn prolong_request(&self, hash: TokenHash, ends_ms: i64) -> Result<(), StoreError> {
        let write = self.batch.aside((hash, ends_ms), |tx, (hash, ends_ms)| {
            Box::pin(requests::prolong(tx, *hash, *ends_ms))
        });
        write.await
    }

    async fn take_request(&self, hash: TokenHash) -> Result<bool, StoreError> {
        let write = self
            .batch
            .aside(hash, |tx, hash| Box::pin(requests::take(tx, *hash)));
        write.await
    }

    async fn consent(&self, user_id: Uuid, client_id: &str) -> Result<Vec<String>, StoreError> {
        consents::scopes(&self.database, user_id, client_id).await
    }

    async fn add_consent(
        &self,
        realm: &str,
        user_id: Uuid,
        client_id: &str,
        scopes: &[String],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        consents::add(&mut tx, realm, user_id, client_id, scopes, now_ms).await?;
        tx.commit().await
    }

    async fn insert_login(&self, login: &StoredLogin) -> Result<(), StoreError> {
        let write = self.batch.aside(login.clone(), |tx, login| {
            Box::pin(logins::insert(tx, login))
        });
        write.await
    }

    async fn update_login(&self, login: &StoredLogin, locked_ms: i64) -> Result<bool, StoreError> {
        let of = (login.clone(), locked_ms);
        let write = self.batch.aside(of, |tx, (login, locked_ms)| {
            Box::pin(logins::update(tx, login, *locked_ms))
        });
        write.await
    }

    async fn login(&self, key: TokenHash) -> Result<Option<StoredLogin>, StoreError> {
        logins::by_key(&self.database, key).await
    }

    async fn logins(
        &self,
        query: &LoginQuery,
        after: Option<&str>,
        limit: u32,
    ) -> Result<LoginPage, StoreError> {
        logins::page(&self.database, query, after, limit).await
    }

    async fn lock_login(
        &self,
        key: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let of = (key, until_ms, now_ms);
        let write = self.batch.aside(of, |tx, (key, until_ms, now_ms)| {
            Box::pin(logins::lock(tx, *key, *until_ms, *now_ms))
        });
        write.await
    }

    async fn unlock_login(&self, key: TokenHash, locked_ms: i64) -> Result<(), StoreError> {
        let write = self.batch.aside((key, locked_ms), |tx, (key, locked_ms)| {
            Box::pin(logins::unlock(tx, *key, *locked_ms))
        });
        write.await
    }

    async fn end_logins(
        &self,
        query: &LoginQuery,
        marks: &[EndMark],
        now_ms: i64,
    ) -> Result<Vec<String>, StoreError> {
        let of = (query.clone(), marks.to_vec(), now_ms);
        let write = self.batch.write(of, |tx, (query, marks, now_ms)| {
            Box::pin(logins::end(tx, Some(query), marks, *now_ms))
        });
        write.await
    }

    async fn mark_logins(&self, marks: &[EndMark]) -> Result<(), StoreError> {
        let write = self.batch.write(marks.to_vec(), |tx, marks| {
            Box::pin(async { logins::end(tx, None, marks, 0).await.map(drop) })
        });
        write.await
    }

    async fn login_marks(&self, after: i64, limit: u32) -> Result<Vec<(i64, EndMark)>, StoreError> {
        logins::marks(&self.database, after, limit).await
    }

    async fn append_audit(&self, records: Vec<AuditRecord>) -> Result<(), StoreError> {
        let write = self.batch.aside(records, |tx, records| {
            Box::pin(audit::append_all(tx, records))
        });
        write.await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<Map<String, Value>>, StoreError> {
        audit::page(&self.database, query).await
    }

    async fn sweep_audit(&self, before_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let gone = audit::sweep(&mut tx, before_ms, limit).await?;
        tx.commit().await?;
        Ok(gone)
    }

    async fn consents(&self, user_id: Uuid) -> Result<Vec<Consent>, StoreError> {
        consents::of_user(&self.database, user_id).await
    }

    async fn withdraw_consent(
        &self,
        realm: &str,
        user_id: Uuid,
        client_id: &str,
        now_ms: i64,
    ) -> Result<Vec<String>, StoreError> {
        let mut tx = self.begin().await?;
        let grants = consents::withdraw(&mut tx, realm, user_id, client_id, now_ms).await?;
        tx.commit().await?;
        Ok(grants)
    }

    async fn factors(&self, user_id: Uuid) -> Result<Vec<StoredFactor>, StoreError> {
        factors::of_user(&self.database, user_id).await
    }

    async fn factor_of_credential(
        &self,
        realm: &str,
        credential: &str,
    ) -> Result<Option<StoredFactor>, StoreError> {
        factors::of_credential(&self.database, realm, credential).await
    }

    async fn insert_factor(
        &self,
        factor: &StoredFactor,
        most: u32,
        codes: &[TokenHash],
    ) -> Result<Enrolment, StoreError> {
        let mut tx = self.begin().await?;
        let kept = factors::insert(&mut tx, factor, most, codes).await?;
        tx.commit().await?;
        Ok(kept)
    }

    async fn use_factor(
        &self,
        id: Uuid,
        counter: i64,
        secret: Option<&Secret>,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let spent = factors::spend(&mut tx, id, counter, secret, now_ms).await?;
        tx.commit().await?;
        Ok(spent)
    }

    async fn rename_factor(&self, user_id: Uuid, id: Uuid, name: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let done = factors::rename(&mut tx, user_id, id, name).await?;
        tx.commit().await?;
        Ok(done)
    }

    async fn delete_factor(&self, user_id: Uuid, id: Uuid) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let done = factors::delete(&mut tx, user_id, id).await?;
        tx.commit().await?;
        Ok(done)
    }

    async fn reset_factors(&self, user_id: Uuid, now_ms: i64) -> Result<u64, StoreError> {
        let mut tx = self.begin().await?;
        let gone = factors::reset(&mut tx, user_id, now_ms).await?;
        self.changed(tx.commit().await)?;
        Ok(gone)
    }

    async fn replace_recovery_codes(
        &self,
        user_id: Uuid,
        codes: &[TokenHash],
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        factors::replace_codes(&mut tx, user_id, codes).await?;
        tx.commit().await
    }

    async fn use_recovery_code(&self, user_id: Uuid, code: TokenHash) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let used = factors::use_code(&mut tx, user_id, code).await?;
        tx.commit().await?;
        Ok(used)
    }

    async fn recovery_codes_left(&self, user_id: Uuid) -> Result<u32, StoreError> {
        factors::codes_left(&self.database, user_id).await
    }

    async fn broker_records(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError> {
        broker::page(&self.database, kind, after, limit).await
    }

    async fn broker_record(&self, kind: Kind, id: &str) -> Result<Option<Record>, StoreError> {
        broker::one(&self.database, kind, id).await
    }

    async fn broker_client(&self, key: &str) -> Result<Option<ClientRecords>, StoreError> {
        broker::client(&self.database, key).await
    }

    async fn insert_broker_record(&self, record: &Record) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        broker::insert(&mut tx, record).await?;
        tx.commit().await
    }

    async fn update_broker_record(&self, record: &Record, seen_ms: i64) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        broker::update(&mut tx, record, seen_ms).await?;
        tx.commit().await
    }

    async fn delete_broker_record(&self, kind: Kind, id: &str) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let gone = broker::delete(&mut tx, kind, id).await?;
        if gone {
            tx.commit().await?;
        }
        Ok(gone)
    }

    async fn revoke_broker_client(&self, id: &str, now_ms: i64) -> Result<bool, StoreError> {
        let mut tx = self.begin().await?;
        let there = broker::revoke_all(&mut tx, id, now_ms).await?;
        if there {
            tx.commit().await?;
        }
        Ok(there)
    }

    async fn sync_broker(&self, declared: Vec<Record>, now_ms: i64) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        broker::sync(&mut tx, declared, now_ms).await?;
        tx.commit().await
    }

    async fn keep_broker_tokens(&self, tokens: &StoredTokens) -> Result<Kept, StoreError> {
        let write = self.batch.write(tokens.clone(), |tx, tokens| {
            let kept = broker_tokens::insert(tx, tokens);
            Box::pin(told_if(kept, |kept| *kept != Kept::Neither))
        });
        write.await
    }

    async fn refresh_broker_tokens(&self, refresh: &Refresh) -> Result<bool, StoreError> {
        let write = self.batch.write(refresh.clone(), |tx, refresh| {
            Box::pin(told_if(broker_tokens::refresh(tx, refresh), |done| *done))
        });
        write.await
    }

    async fn broker_tokens(&self, access: TokenHash) -> Result<Option<StoredTokens>, StoreError> {
        broker_tokens::by_access(&self.database, access).await
    }

    async fn broker_refresh(&self, shown: &ShownRefresh) -> Result<Vec<StoredTokens>, StoreError> {
        broker_tokens::by_refresh(&self.database, shown).await
    }

    async fn revoke_broker_token(
        &self,
        revoked: &Revoked,
        cascade: bool,
    ) -> Result<Option<StoredTokens>, StoreError> {
        let mut tx = self.begin().await?;
        let revoked = broker_tokens::revoke(&mut tx, revoked, cascade).await?;
        // Where there is none, there is nothing to tell of either.
        if let Some(tokens) = &revoked {
            complete(|record| record.set_client(&tokens.client_id));
            tx.commit().await?;
        }
        Ok(revoked)
    }

    async fn end_broker_person(&self, end_user: &str, now_ms: i64) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        broker_tokens::end_named(&mut tx, end_user, now_ms).await?;
        self.changed(tx.commit().await)
    }

    async fn sweep(&self, now_ms: i64, limit: u32) -> Result<u64, StoreError> {
        let mut gone = 0;
        // Each kind is a write of its own: others come in between.
        for (delete, kept_ms) in sweep::EXPIRED {
            let of = (*delete, now_ms - kept_ms, limit);
            let write = self.batch.write(of, |tx, (delete, before_ms, limit)| {
                Box::pin(sweep::expired(tx, delete, *before_ms, *limit))
            });
            gone += write.await?;
        }
        Ok(gone)
    }
}
