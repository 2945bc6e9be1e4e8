//! The durable store behind one trait.
//!
//! Its one invariant: each method is one atomic, durable promise. There is no
//! check-then-act from outside. Start at [`open`].

mod audit;
mod shared_secret;
mod sql;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::watch;
use uuid::Uuid;

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

pub use audit::{Beside, beside, complete};
pub use shared_secret::{SharedSecretError, shared_secret};
pub use sql::{Finding, Rows, SqlStore, TransferError};

/// Why the store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused or did not answer.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// A unique name is taken.
    #[error("{0} is taken")]
    Taken(String),
    /// What is stored can't be read back.
    #[error("stored record is damaged: {0}")]
    Damaged(String),
    /// The address of the store can't be used.
    #[error("store address {0}")]
    Address(String),
    /// The record is owned by the configuration file.
    #[error("{0} is declared in the configuration file; change it there")]
    FileOwned(String),
    /// A text holds U+0000, or is longer than an index takes: not every database
    /// keeps it.
    #[error("a text holds the character U+0000, or is too long for an index")]
    Unfit,
    /// The record changed, or went, since it was read.
    #[error("{0} was changed by somebody else")]
    Conflict(String),
    /// What was asked for takes longer to find than it may.
    #[error("what is asked for takes too long to find")]
    TooLong,
    /// No connection for lists came free in time.
    #[error("too many lists are being read at once")]
    Crowded,
    /// What a record refers to is not there: its kind, its name.
    #[error("there is no {0} {1}")]
    Absent(&'static str, String),
}

impl StoreError {
    /// Whether the same may succeed later, though nobody changes anything.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::TooLong | Self::Crowded)
    }
}

/// A gateway entity as the store keeps it: opaque but for its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntity {
    /// `services`, `routes`, `plugins`, …
    pub kind: &'static str,
    /// Its identifier.
    pub id: Uuid,
    /// Its unique name within the kind, if any.
    pub key: Option<String>,
    /// The record.
    pub doc: Map<String, Value>,
}

/// One step of a change to the gateway's entities.
#[derive(Clone, Debug, PartialEq)]
pub enum EntityWrite {
    /// Creates or replaces.
    Put(StoredEntity),
    /// Removes; nothing happens if it is absent.
    Delete(&'static str, Uuid),
}

/// One page of users.
#[derive(Clone, Debug)]
pub struct UserPage {
    /// The users, by ascending folded name.
    pub users: Vec<User>,
    /// How many satisfy the filter in all.
    pub total: u64,
    /// Whether others follow.
    pub more: bool,
}

/// One page of groups, by ascending folded name.
#[derive(Clone, Debug)]
pub struct GroupPage {
    /// The groups.
    pub groups: Vec<Group>,
    /// How many satisfy the filter in all.
    pub total: u64,
    /// Whether others follow.
    pub more: bool,
}

/// A change of one group: what is absent stays.
#[derive(Clone, Debug)]
pub struct GroupChange {
    /// Path of the group's realm.
    pub realm: String,
    /// Its identifier.
    pub id: Uuid,
    /// The version that is meant; none: whichever there is.
    pub seen: Option<i64>,
    /// The new name.
    pub name: Option<String>,
    /// The new external identifier, or none.
    pub external_id: Option<Option<String>>,
    /// Who comes and goes.
    pub members: MemberChange,
    /// Now, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// What became of a write of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOutcome {
    /// It is done; the group as it is now, or was before it went.
    Done(Group),
    /// There is no such group in the realm.
    Missing,
    /// It has another version than was meant: this one.
    Stale(i64),
    /// This is no user of the realm; nothing was written.
    NoUser(Uuid),
}

/// What the configuration file declares of the identity provider.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Paths of the realms.
    pub realms: Vec<String>,
    /// Users, without password hashes; their ids are used for new ones.
    pub users: Vec<User>,
    /// Clients, without secrets.
    pub clients: Vec<Client>,
}

/// Everything the process keeps.
///
/// Every method is one atomic, durable promise: when it returns `Ok`, a
/// `kill -9` loses nothing of it. Times are milliseconds since the epoch, and
/// always the caller's.
///
/// # Errors
/// Every method fails with [`StoreError::Unavailable`] when the database does
/// not answer, and with [`StoreError::Damaged`] when a record can't be read.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Asks the database for nothing in particular.
    async fn answers(&self) -> Result<(), StoreError>;

    /// Why the last write failed, if it did.
    fn failing_writes(&self) -> Option<String>;

    /// All gateway entities.
    async fn entities(&self) -> Result<Vec<(String, Uuid, Map<String, Value>)>, StoreError>;

    /// Applies all of `writes` in one transaction, or none; returns the new
    /// revision. Who names the one that was `seen` writes if it is still that.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when two records of a kind would share a name, and
    /// [`StoreError::Conflict`] for another revision.
    async fn write_entities(
        &self,
        writes: Vec<EntityWrite>,
        seen: Option<i64>,
    ) -> Result<i64, StoreError>;

    /// A number that each write of entities changes, by whatever process.
    async fn entities_revision(&self) -> Result<i64, StoreError>;

    /// A number that changes when another process has changed what the identity
    /// provider holds in memory: realms, users, clients, keys, revocations.
    async fn data_version(&self) -> Result<i64, StoreError>;

    /// A number that changes when another process has changed the gateway's
    /// entities, or perhaps something else.
    async fn entities_version(&self) -> Result<i64, StoreError>;

    /// Tells when the versions may be others now, as far as the database says so
    /// by itself; not every one does, nor at all times.
    fn changes(&self) -> watch::Receiver<()>;

    /// A number that grows with every change of users and clients that is made
    /// through this very value: what is held of them is then stale.
    fn generation(&self) -> u64;

    /// A number that grows with every client that registers itself through this
    /// very value. [`Store::generation`] does not: nobody holds anything of it.
    fn registrations(&self) -> u64;

    /// All realms, in ascending order of their paths.
    async fn realms(&self) -> Result<Vec<StoredRealm>, StoreError>;

    /// Adds a realm.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when there is one of this path.
    async fn insert_realm(&self, realm: &StoredRealm) -> Result<(), StoreError>;

    /// Replaces the settings of a realm made in the store, if they are still
    /// `seen`; `None`: whatever they are.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a realm that the file declares;
    /// [`StoreError::Conflict`] when they are others, or it is gone.
    async fn update_realm(
        &self,
        realm: &StoredRealm,
        seen: Option<&Map<String, Value>>,
    ) -> Result<(), StoreError>;

    /// Removes a realm in which nothing is left.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a realm that the file declares.
    async fn delete_realm(&self, path: &str) -> Result<RealmRemoval, StoreError>;

    /// Makes the store hold exactly these records owned by the file: new ones
    /// are added, changed ones changed, those no longer declared removed with
    /// all that hangs on them. Unchanged ones are not touched.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when a name belongs to a record of the store.
    async fn sync_declared(&self, declared: Declared, now_ms: i64) -> Result<(), StoreError>;

    /// The user of this id.
    async fn user(&self, realm: &str, id: Uuid) -> Result<Option<User>, StoreError>;

    /// The user of this name, whatever its case.
    async fn user_by_name(&self, realm: &str, name: &str) -> Result<Option<User>, StoreError>;

    /// The users that satisfy a query.
    ///
    /// # Errors
    /// [`StoreError::TooLong`] when so much must be read for it that it was given
    /// up, and [`StoreError::Crowded`] when too many lists are read already.
    async fn users(&self, realm: &str, query: &UserQuery) -> Result<UserPage, StoreError>;

    /// Adds a user.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the name is another user's.
    async fn insert_user(&self, user: &User) -> Result<(), StoreError>;

    /// Adds users of one realm, all in one transaction: whoever can't be added
    /// keeps no other from it. Names what became of each. With `dry` it says
    /// what would, and nothing is changed.
    async fn import_users(
        &self,
        users: &[Import],
        existing: Existing,
        dry: bool,
        now_ms: i64,
    ) -> Result<Vec<Imported>, StoreError>;

    /// Replaces a user whose version is one less than `user.version`. What one
    /// has begun who is no longer active ends.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it is not, or the user is gone;
    /// [`StoreError::Taken`] when the new name is another user's.
    async fn update_user(&self, user: &User) -> Result<(), StoreError>;

    /// As [`Store::update_user`], with a new password hash: refresh tokens and
    /// sessions of the user end.
    async fn update_user_and_password(&self, user: &User, hash: &Secret) -> Result<(), StoreError>;

    /// Sets the password hash of a user made in the store; its refresh tokens
    /// and sessions end. Who names the hash that was `seen` sets it in the place
    /// of that one or not at all.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a user that the file declares;
    /// [`StoreError::Conflict`] when the user is gone, or has another hash.
    async fn set_password(
        &self,
        id: Uuid,
        hash: &Secret,
        seen: Option<&Secret>,
        now_ms: i64,
    ) -> Result<(), StoreError>;

    /// Puts the password hash `new` in the place of `old`, if that is the
    /// user's still; says whether it was. With `ends`, refresh tokens and
    /// sessions of the user end.
    async fn replace_hash(
        &self,
        id: Uuid,
        old: Option<&Secret>,
        new: Option<&Secret>,
        ends: bool,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Removes a user with its tokens and sessions; says whether it was there.
    /// Who names the version that was `seen` removes that one or nothing.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a user that the file declares, and
    /// [`StoreError::Conflict`] for another version.
    async fn delete_user(
        &self,
        id: Uuid,
        seen: Option<i64>,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Who at another provider is a user here: the link and the user.
    async fn federated_user(
        &self,
        realm: &str,
        issuer: &str,
        subject: &str,
    ) -> Result<Option<(FederatedIdentity, User)>, StoreError>;

    /// Links a user to somebody at another provider; with `seen`, only if that
    /// is the user's version still.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when that one is linked already;
    /// [`StoreError::Conflict`] when the user is gone, or has changed.
    async fn link_identity(
        &self,
        identity: &FederatedIdentity,
        seen: Option<i64>,
    ) -> Result<(), StoreError>;

    /// Adds a user who is linked to somebody at another provider.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the name is another user's, or that one is
    /// linked already.
    async fn insert_federated_user(
        &self,
        user: &User,
        identity: &FederatedIdentity,
    ) -> Result<(), StoreError>;

    /// Notes that a link was used, and what its provider says now.
    async fn touch_identity(&self, identity: &FederatedIdentity) -> Result<(), StoreError>;

    /// The links of a user, in the order in which they were made.
    async fn identities(&self, user_id: Uuid) -> Result<Vec<FederatedIdentity>, StoreError>;

    /// Removes a link of a user, whose refresh tokens and sessions end: one of
    /// them may have begun with it. Says whether it was there.
    async fn unlink_identity(
        &self,
        user_id: Uuid,
        id: Uuid,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// The group of this id.
    async fn group(&self, realm: &str, id: Uuid) -> Result<Option<Group>, StoreError>;

    /// The groups that satisfy a query.
    ///
    /// # Errors
    /// As [`Store::users`].
    async fn groups(&self, realm: &str, query: &UserQuery) -> Result<GroupPage, StoreError>;

    /// Members of a group by ascending identifier: those after `after`, at most
    /// `limit`.
    async fn members(
        &self,
        group: Uuid,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<Membership>, StoreError>;

    /// The groups of these users, by user and ascending name: at most 20,000.
    async fn memberships(&self, users: &[Uuid]) -> Result<Vec<(Uuid, Membership)>, StoreError>;

    /// Adds a group with its members.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the name is another group's.
    async fn insert_group(
        &self,
        group: &Group,
        members: &MemberChange,
    ) -> Result<GroupOutcome, StoreError>;

    /// Changes a group. Its version grows, unless everything was so already.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the new name is another group's.
    async fn change_group(&self, change: &GroupChange) -> Result<GroupOutcome, StoreError>;

    /// Removes a group, of this version if one is named.
    async fn delete_group(
        &self,
        realm: &str,
        id: Uuid,
        seen: Option<i64>,
    ) -> Result<GroupOutcome, StoreError>;

    /// Keeps a link by which a user chooses a new password; the user's oldest
    /// ones beyond `most` are good no more.
    async fn insert_reset(&self, reset: &StoredReset, most: u32) -> Result<(), StoreError>;

    /// The link of this token hash, good or not.
    async fn reset(&self, hash: TokenHash) -> Result<Option<StoredReset>, StoreError>;

    /// Spends a link for a new password hash: once, and only while the password
    /// in force is the one from when it was made. Every other link of the user
    /// goes, and sessions and refresh tokens end. Says whose it was.
    async fn reset_password(
        &self,
        hash: TokenHash,
        password: &Secret,
        now_ms: i64,
    ) -> Result<Option<Uuid>, StoreError>;

    /// Keeps a lock after wrong passwords, or its end, unless a later word of it
    /// is known.
    async fn put_lock(&self, lock: &StoredLock) -> Result<(), StoreError>;

    /// The locks that were set or lifted since `since_ms`, and still matter.
    async fn locks(&self, since_ms: i64, now_ms: i64) -> Result<Vec<StoredLock>, StoreError>;

    /// The client of this identifier (exact).
    async fn client(&self, realm: &str, client_id: &str) -> Result<Option<Client>, StoreError>;

    /// All clients of a realm, by ascending identifier.
    async fn clients(&self, realm: &str) -> Result<Vec<Client>, StoreError>;

    /// The clients of a realm that fit a query.
    async fn find_clients(
        &self,
        realm: &str,
        query: &ClientQuery,
    ) -> Result<Vec<Client>, StoreError>;

    /// Replaces metadata and secret of a client that was last changed at
    /// `seen_ms`; `client.updated_ms` must be greater.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a client that the file declares;
    /// [`StoreError::Conflict`] when it was changed meanwhile, or is gone.
    async fn update_client(&self, client: &Client, seen_ms: i64) -> Result<(), StoreError>;

    /// Adds a client that registers itself, unless its realm has `most` of them
    /// already, and spends one use of the initial access token `token`, if one
    /// is needed.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the identifier is another client's.
    async fn register_client(
        &self,
        client: &Client,
        most: u32,
        token: Option<TokenHash>,
    ) -> Result<Registered, StoreError>;

    /// Notes that clients (realm and identifier) were used.
    async fn touch_clients(&self, used: &[(String, String)], now_ms: i64)
    -> Result<(), StoreError>;

    /// Removes, with all that hangs on them, registered clients of a realm that
    /// were not used since `before_ms`, at most `limit`; says how many went.
    async fn sweep_unused_clients(
        &self,
        realm: &str,
        before_ms: i64,
        limit: u32,
    ) -> Result<u64, StoreError>;

    /// Adds an initial access token.
    async fn insert_initial_token(&self, token: &InitialToken) -> Result<(), StoreError>;

    /// The initial access tokens of a realm, in ascending order of their names.
    async fn initial_tokens(&self, realm: &str) -> Result<Vec<InitialToken>, StoreError>;

    /// Whether this is an initial access token of the realm that is good yet.
    async fn is_initial_token(
        &self,
        realm: &str,
        hash: TokenHash,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Removes an initial access token; says whether it was there.
    async fn delete_initial_token(&self, realm: &str, id: &str) -> Result<bool, StoreError>;

    /// The addresses at which clients of a realm live: where people may be sent
    /// back to, and what is allowed besides (`allowed_origins`).
    async fn client_addresses(&self, realm: &str) -> Result<Vec<String>, StoreError>;

    /// Adds a client.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the identifier is another client's.
    async fn insert_client(&self, client: &Client) -> Result<(), StoreError>;

    /// Removes a client and revokes what was granted to it, also where others
    /// got tokens for its tokens. Names the grants that it revoked; `None`: there
    /// is no such client.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for a client that the file declares.
    async fn delete_client(
        &self,
        realm: &str,
        client_id: &str,
    ) -> Result<Option<Vec<String>>, StoreError>;

    /// All signing keys.
    async fn signing_keys(&self) -> Result<Vec<StoredKey>, StoreError>;

    /// Adds a signing key, unless there is one of its algorithm that becomes
    /// active at its time or later; with `displaces`, those leave the published
    /// set instead. The older ones of its algorithm leave it at
    /// `others_expire_ms`. Says whether it was added.
    async fn add_signing_key(
        &self,
        key: &StoredKey,
        others_expire_ms: i64,
        displaces: bool,
    ) -> Result<bool, StoreError>;

    /// Puts the private key `new` in the place of `old`, if that is what the
    /// store has for `kid`.
    async fn replace_private_key(
        &self,
        kid: &str,
        old: &Secret,
        new: &Secret,
    ) -> Result<(), StoreError>;

    /// The secret of this name: `made`, if there was none.
    async fn secret(&self, name: &str, made: &Secret) -> Result<Secret, StoreError>;

    /// Puts the secret `new` in the place of `old`, if that is what the store
    /// has of this name.
    async fn replace_secret(
        &self,
        name: &str,
        old: &Secret,
        new: &Secret,
    ) -> Result<(), StoreError>;

    /// Keeps what was issued: a refresh token, an opaque access token, or both.
    async fn record_tokens(
        &self,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
    ) -> Result<(), StoreError>;

    /// The refresh tokens of this family, unless their grant is gone.
    async fn refresh_tokens(&self, family: TokenHash) -> Result<Option<StoredRefresh>, StoreError>;

    /// Exchanges a refresh token for its successor, and keeps `access`: once,
    /// and never again. A second exchange revokes the grant instead, unless it
    /// comes within the time of grace and the successor was not used yet.
    async fn exchange_refresh_token(
        &self,
        exchange: Exchange,
        access: Option<&StoredAccess>,
    ) -> Result<Rotation, StoreError>;

    /// Revokes every token of a grant; `until_ms` is when the last would die.
    async fn revoke_grant(&self, grant_id: &str, until_ms: i64) -> Result<(), StoreError>;

    /// Revokes one access token: by its identifier, and by its hash in case it
    /// is kept; `until_ms` is when it would die.
    async fn revoke_access_token(
        &self,
        hash: TokenHash,
        token_id: &str,
        until_ms: i64,
    ) -> Result<(), StoreError>;

    /// Everything that is revoked, and until when that matters.
    async fn revocations(&self) -> Result<Vec<(Revocation, i64)>, StoreError>;

    /// The opaque access token of this hash.
    async fn access_token(&self, hash: TokenHash) -> Result<Option<StoredAccess>, StoreError>;

    /// Remembers `what` until `until_ms`; says whether it was new. Of two who
    /// bring the same at once, one is told yes.
    async fn remember(
        &self,
        what: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Whether `what` is remembered at `now_ms`.
    async fn has_seen(&self, what: TokenHash, now_ms: i64) -> Result<bool, StoreError>;

    /// Keeps a session; the user's oldest ones beyond `quota` end: those.
    async fn insert_session(
        &self,
        session: &StoredSession,
        quota: u32,
    ) -> Result<Vec<EndedSession>, StoreError>;

    /// Keeps a session in the place of the one of hash `old`, if that is there:
    /// nobody who holds the old token has the new one's rights. Unless both have
    /// one name, the old one ends. Names the sessions that ended.
    async fn replace_session(
        &self,
        old: TokenHash,
        session: &StoredSession,
        quota: u32,
    ) -> Result<Vec<EndedSession>, StoreError>;

    /// The session of this token hash.
    async fn session(&self, hash: TokenHash) -> Result<Option<StoredSession>, StoreError>;

    /// Notes that a session was used.
    async fn touch_session(&self, hash: TokenHash, now_ms: i64) -> Result<(), StoreError>;

    /// The session that ID tokens of the realm call `sid`, lapsed or not.
    async fn session_named(
        &self,
        realm: &str,
        sid: &str,
    ) -> Result<Option<SessionRecord>, StoreError>;

    /// At most `limit` sessions that fit, in the order of their names, from the
    /// one after `after` on.
    async fn sessions(
        &self,
        query: &SessionQuery,
        after: Option<&str>,
        limit: u32,
    ) -> Result<SessionPage, StoreError>;

    /// Ends the sessions that `which` means: revokes every grant that was given
    /// in them and has no `offline_access`, and puts down the clients that are
    /// to be told. Names what has ended.
    async fn end_sessions(
        &self,
        which: &Ending,
        now_ms: i64,
    ) -> Result<Vec<EndedSession>, StoreError>;

    /// Notes that `grant` was given in its session; says whether that is still
    /// there. With a code, [`Store::insert_code`] does it.
    async fn begin_grant(&self, grant: &Grant, now_ms: i64) -> Result<bool, StoreError>;

    /// Takes at most `limit` logouts that are due, but none of the clients in
    /// `busy` (realm and identifier): each is due again after a pause that grows,
    /// should its taker not settle it. Says also when the next one is due.
    async fn take_logouts(
        &self,
        busy: &[(String, String)],
        now_ms: i64,
        limit: u32,
    ) -> Result<(Vec<Logout>, Option<i64>), StoreError>;

    /// Removes a logout: the client was told, or is told no more.
    async fn settle_logout(&self, id: i64) -> Result<(), StoreError>;

    /// Keeps an authorization code, and notes its grant; says whether the
    /// session that it was given in is still there. If not, nothing is kept.
    async fn insert_code(&self, code: &StoredCode) -> Result<bool, StoreError>;

    /// The authorization code of this hash, spent or not.
    async fn code(&self, hash: TokenHash) -> Result<Option<StoredCode>, StoreError>;

    /// Spends an authorization code and keeps what it gives: once, and never
    /// again. A second time revokes, until `revoked_until_ms`, what the first
    /// one gave.
    async fn redeem_code(
        &self,
        hash: TokenHash,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
        revoked_until_ms: i64,
    ) -> Result<Redemption, StoreError>;

    /// Keeps what a device asks for, unless its client has `most` such requests
    /// already that are still good; says whether it is kept.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the user code is another device's.
    async fn insert_device(
        &self,
        device: &StoredDevice,
        most: u32,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// The device's request of this device code, also a while after it expired.
    async fn device(&self, hash: TokenHash) -> Result<Option<StoredDevice>, StoreError>;

    /// The device's request of this user code, also a while after it expired.
    async fn device_of_user(
        &self,
        user_code: TokenHash,
    ) -> Result<Option<StoredDevice>, StoreError>;

    /// The retired names of a realm whose keys come behind `after`, in order.
    async fn retired_names(
        &self,
        realm: &str,
        after: &str,
        most: u32,
    ) -> Result<Vec<RetiredName>, StoreError>;

    /// Lets a retired name be the `sub` of whoever has it or gets it; says whether
    /// it was retired.
    async fn release_name(&self, realm: &str, name: &str) -> Result<bool, StoreError>;

    /// Notes that a device asks at `now_ms`, which may do so every `interval_s`
    /// seconds at first; says whether that is too soon. Then it has to wait
    /// longer from now on (RFC 8628 §3.5), at every node.
    async fn poll_device(
        &self,
        hash: TokenHash,
        interval_s: u32,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Keeps the user's verdict on a device's request, if it is the first one
    /// and in time; says whether it is. Of two at once, one counts.
    async fn decide_device(
        &self,
        user_code: TokenHash,
        verdict: &Verdict,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Forgets an approved device's request and keeps what it gives: once, and
    /// never again. Says whether this was the time.
    async fn redeem_device(
        &self,
        hash: TokenHash,
        refresh: Option<&StoredRefresh>,
        access: Option<&StoredAccess>,
    ) -> Result<bool, StoreError>;

    /// Keeps an authorization request, unless more than `most_bytes` would be
    /// kept for its client then, also of those that are over and were not swept
    /// yet; says whether it is kept. One that is kept already lasts as long as
    /// the new one would.
    async fn keep_request(
        &self,
        request: &StoredRequest,
        most_bytes: u32,
    ) -> Result<bool, StoreError>;

    /// The authorization request of this hash.
    async fn kept_request(&self, hash: TokenHash) -> Result<Option<StoredRequest>, StoreError>;

    /// Lets an authorization request last until `ends_ms` at least.
    async fn prolong_request(&self, hash: TokenHash, ends_ms: i64) -> Result<(), StoreError>;

    /// Removes an authorization request; says whether it was there. Of two who
    /// take it at once, one is told yes.
    async fn take_request(&self, hash: TokenHash) -> Result<bool, StoreError>;

    /// The scopes that a user let a client have.
    async fn consent(&self, user_id: Uuid, client_id: &str) -> Result<Vec<String>, StoreError>;

    /// Adds to the scopes that a user lets a client have.
    async fn add_consent(
        &self,
        realm: &str,
        user_id: Uuid,
        client_id: &str,
        scopes: &[String],
        now_ms: i64,
    ) -> Result<(), StoreError>;

    /// Keeps a login session of the gateway as a relying party.
    async fn insert_login(&self, login: &StoredLogin) -> Result<(), StoreError>;

    /// Keeps what is in a login session now and when it ends, and unlocks it if
    /// its lock is the one until `locked_ms`; says whether it is still there. If
    /// not, it stays away.
    async fn update_login(&self, login: &StoredLogin, locked_ms: i64) -> Result<bool, StoreError>;

    /// The login session of this key, over or not.
    async fn login(&self, key: TokenHash) -> Result<Option<StoredLogin>, StoreError>;

    /// At most `limit` login sessions that fit, in the order of their names, from
    /// the one after `after` on.
    async fn logins(
        &self,
        query: &LoginQuery,
        after: Option<&str>,
        limit: u32,
    ) -> Result<LoginPage, StoreError>;

    /// Locks a login session until it is updated or unlocked, or `until_ms`;
    /// says whether nobody else has locked it. A lock that takes the place of one
    /// that is late ends later, so its end tells whose it is.
    async fn lock_login(
        &self,
        key: TokenHash,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Unlocks a login session if its lock is the one until `locked_ms`.
    async fn unlock_login(&self, key: TokenHash, locked_ms: i64) -> Result<(), StoreError>;

    /// Removes login sessions that fit, a bounded number of them, and tells every
    /// node of those and of `marks`. Names the removed ones.
    async fn end_logins(
        &self,
        query: &LoginQuery,
        marks: &[EndMark],
        now_ms: i64,
    ) -> Result<Vec<String>, StoreError>;

    /// As [`Store::end_logins`] for marks alone: nothing is removed.
    async fn mark_logins(&self, marks: &[EndMark]) -> Result<(), StoreError>;

    /// At most `limit` marks of ended login sessions, in the order in which they
    /// were made, from the one after number `after` on.
    async fn login_marks(&self, after: i64, limit: u32) -> Result<Vec<(i64, EndMark)>, StoreError>;

    /// Appends records to the audit log. One that it has already is not there
    /// twice.
    async fn append_audit(&self, records: Vec<AuditRecord>) -> Result<(), StoreError>;

    /// The records of the audit log that fit, as they are shown: in the order of
    /// time, or the newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<Map<String, Value>>, StoreError>;

    /// Removes records of the audit log from before `before_ms`, at most `limit`;
    /// says how many went.
    async fn sweep_audit(&self, before_ms: i64, limit: u32) -> Result<u64, StoreError>;

    /// What a user agreed to, by client, in ascending order of clients: at most
    /// 500.
    async fn consents(&self, user_id: Uuid) -> Result<Vec<Consent>, StoreError>;

    /// Takes back what a user let a client have, and revokes every grant that the
    /// user gave it: those.
    async fn withdraw_consent(
        &self,
        realm: &str,
        user_id: Uuid,
        client_id: &str,
        now_ms: i64,
    ) -> Result<Vec<String>, StoreError>;

    /// The second factors of a user, the oldest first.
    async fn factors(&self, user_id: Uuid) -> Result<Vec<StoredFactor>, StoreError>;

    /// The passkey of this identifier (base64url).
    async fn factor_of_credential(
        &self,
        realm: &str,
        credential: &str,
    ) -> Result<Option<StoredFactor>, StoreError>;

    /// Adds a factor, unless its user has `most` of them, and these recovery
    /// codes, if the user has none.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when the passkey is known already;
    /// [`StoreError::Conflict`] when the user is gone.
    async fn insert_factor(
        &self,
        factor: &StoredFactor,
        most: u32,
        codes: &[TokenHash],
    ) -> Result<Enrolment, StoreError>;

    /// Spends a proof: notes that a factor was used, and `secret` if it is to be
    /// kept in another way, if `counter` is more than the last one, or both are
    /// 0. Says whether it was. Of two who bring the same proof, one is told yes.
    async fn use_factor(
        &self,
        id: Uuid,
        counter: i64,
        secret: Option<&Secret>,
        now_ms: i64,
    ) -> Result<bool, StoreError>;

    /// Calls a factor of a user otherwise; says whether it was there.
    async fn rename_factor(&self, user_id: Uuid, id: Uuid, name: &str) -> Result<bool, StoreError>;

    /// Removes a factor of a user, and with the last one the recovery codes; says
    /// whether it was there.
    async fn delete_factor(&self, user_id: Uuid, id: Uuid) -> Result<bool, StoreError>;

    /// Removes all factors and recovery codes of a user, whose sessions and
    /// refresh tokens end. Says how many factors went.
    async fn reset_factors(&self, user_id: Uuid, now_ms: i64) -> Result<u64, StoreError>;

    /// Puts these recovery codes in the place of a user's others.
    async fn replace_recovery_codes(
        &self,
        user_id: Uuid,
        codes: &[TokenHash],
    ) -> Result<(), StoreError>;

    /// Spends a recovery code of a user; says whether it was one. Of two who
    /// bring the same, one is told yes.
    async fn use_recovery_code(&self, user_id: Uuid, code: TokenHash) -> Result<bool, StoreError>;

    /// How many recovery codes a user has left.
    async fn recovery_codes_left(&self, user_id: Uuid) -> Result<u32, StoreError>;

    /// At most `limit` of the token broker's records of a kind, in ascending
    /// order of their identifiers, from the one after `after` on.
    async fn broker_records(
        &self,
        kind: Kind,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Record>, StoreError>;

    /// The token broker's record of this kind and identifier.
    async fn broker_record(&self, kind: Kind, id: &str) -> Result<Option<Record>, StoreError>;

    /// The application of this consumer key, with its developer and products.
    async fn broker_client(&self, key: &str) -> Result<Option<ClientRecords>, StoreError>;

    /// Adds a record of the token broker.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when its identifier or its key is another's;
    /// [`StoreError::Absent`] for an application without developer or product.
    async fn insert_broker_record(&self, record: &Record) -> Result<(), StoreError>;

    /// Replaces a record of the token broker that was last changed at `seen_ms`;
    /// `record.updated_ms` must be greater.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for one that the file declares;
    /// [`StoreError::Conflict`] when it was changed meanwhile, or is gone;
    /// [`StoreError::Taken`] when its key is another's; [`StoreError::Absent`] for
    /// an application that newly refers to what is not there.
    async fn update_broker_record(&self, record: &Record, seen_ms: i64) -> Result<(), StoreError>;

    /// Removes a record of the token broker; says whether it was there.
    ///
    /// # Errors
    /// [`StoreError::FileOwned`] for one that the file declares;
    /// [`StoreError::Conflict`] for a developer who has applications.
    async fn delete_broker_record(&self, kind: Kind, id: &str) -> Result<bool, StoreError>;

    /// Revokes all tokens that an application, by its identifier, got of the token
    /// broker up to now, whoever owns its record; says whether it was there.
    async fn revoke_broker_client(&self, id: &str, now_ms: i64) -> Result<bool, StoreError>;

    /// Makes the store hold exactly these of the token broker's records owned by
    /// the file. Tokens that were revoked stay so.
    ///
    /// # Errors
    /// [`StoreError::Taken`] when a name belongs to a record of the store.
    async fn sync_broker(&self, declared: Vec<Record>, now_ms: i64) -> Result<(), StoreError>;

    /// Keeps tokens that the broker gives out; those of the same access token
    /// and application give way, unless they are revoked. A refresh token that
    /// came with other ones of the application before leaves those.
    async fn keep_broker_tokens(&self, tokens: &StoredTokens) -> Result<Kept, StoreError>;

    /// Puts other tokens in the place of those of a refresh token, if that is
    /// good; says whether it was. Of two at once, one is told yes, unless the
    /// refresh token stays the same.
    async fn refresh_broker_tokens(&self, refresh: &Refresh) -> Result<bool, StoreError>;

    /// The broker's tokens that the access token of this hash belongs to.
    async fn broker_tokens(&self, access: TokenHash) -> Result<Option<StoredTokens>, StoreError>;

    /// The broker's tokens that a refresh token belongs to, or belonged to: those
    /// that it is in force for, of the family that it names, and of the one that
    /// it began.
    async fn broker_refresh(&self, shown: &ShownRefresh) -> Result<Vec<StoredTokens>, StoreError>;

    /// Revokes tokens of the broker, with `cascade` also the one that belongs to
    /// the one that is named; `None`: there is none of this hash, or the family
    /// was revoked before.
    async fn revoke_broker_token(
        &self,
        revoked: &Revoked,
        cascade: bool,
    ) -> Result<Option<StoredTokens>, StoreError>;

    /// Ends all tokens of the broker that came of sign-ins up to now with this
    /// name: at foreign providers, and as a user of any realm.
    async fn end_broker_person(&self, end_user: &str, now_ms: i64) -> Result<(), StoreError>;

    /// Removes what has expired, at most `limit` records of each kind; says
    /// how many went.
    async fn sweep(&self, now_ms: i64, limit: u32) -> Result<u64, StoreError>;
}

/// Opens the store at `url` and migrates it to this version: `sqlite:PATH`,
/// created when missing (directory with mode 0700, file with 0600), or
/// `postgres://…`.
///
/// # Errors
/// [`StoreError::Address`] for other addresses; [`StoreError::Unavailable`]
/// when the database can't be opened or was written by a newer version.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(open_whole(url).await?))
}

/// As [`open`], to export or import all of it.
///
/// # Errors
/// As [`open`].
pub async fn open_whole(url: &str) -> Result<SqlStore, StoreError> {
    match address(url)? {
        Address::Sqlite(path) => SqlStore::open_sqlite(path).await,
        Address::Postgres => SqlStore::open_postgres(url).await,
    }
}

/// As [`open`], for the server: a SQLite file has one at a time.
///
/// # Errors
/// As [`open`]; [`StoreError::Unavailable`] also when another server has it.
pub async fn open_for_server(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(match address(url)? {
        Address::Sqlite(path) => SqlStore::serve_sqlite(path).await?,
        Address::Postgres => SqlStore::open_postgres(url).await?,
    }))
}

/// Opens the store at `url` for reading, if there is one: nothing is created,
/// migrated or written.
///
/// # Errors
/// As [`open`]; also for a store that an older version wrote.
pub async fn open_existing(url: &str) -> Result<Option<Arc<dyn Store>>, StoreError> {
    let store = open_existing_whole(url).await?;
    Ok(store.map(|store| Arc::new(store) as Arc<dyn Store>))
}

/// As [`open_existing`], to export or check all of it.
///
/// # Errors
/// As [`open_existing`].
pub async fn open_existing_whole(url: &str) -> Result<Option<SqlStore>, StoreError> {
    match address(url)? {
        Address::Sqlite(path) if path.exists() => {
            SqlStore::open_existing_sqlite(path).await.map(Some)
        }
        Address::Sqlite(_) => Ok(None),
        Address::Postgres => SqlStore::open_existing_postgres(url).await,
    }
}

/// Which database an address means.
enum Address<'a> {
    Sqlite(&'a Path),
    Postgres,
}

/// What is wrong with an address does not repeat it: it may hold a password.
fn address(url: &str) -> Result<Address<'_>, StoreError> {
    match url.split_once(':') {
        Some(("sqlite", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            Ok(Address::Sqlite(Path::new(path)))
        }
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => Ok(Address::Postgres),
        _ => Err(StoreError::Address(
            "is neither of the form sqlite:PATH nor postgres://USER@HOST/DATABASE".to_owned(),
        )),
    }
}

/// Whether `url` is the address of a store, by its form.
///
/// # Errors
/// [`StoreError::Address`] with the forms that there are.
pub fn check_address(url: &str) -> Result<(), StoreError> {
    address(url).map(drop)
}
