//! What users prove besides, or instead of, the password: codes by the clock,
//! recovery codes and passkeys.
//!
//! Each proof counts once. That is the store's promise: the step of a code, a
//! recovery code and the count of a passkey are spent in one statement.

mod base32;
mod codes;
mod passkeys;
mod recovery;
mod relying_party;
mod totp;
mod webauthn;

use uuid::Uuid;

use super::config::{IdentityConfig, LockoutConfig};
use super::context::Methods;
use super::error::Fault;
use super::realm::Realm;
use super::{Call, audit, context};
pub(super) use codes::{NewSecret, check_code, has_codes};
use doorward_core::clock::random_uuid;
use doorward_core::jose::vault::Vault;
use doorward_core::model::audit::{Event, Kind as Audited, PendingAudit};
use doorward_core::model::factor::{Enrolment, FACTORS_MAX, Kind, StoredFactor};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;
use doorward_store::StoreError;
pub(super) use passkeys::{
    Answer, NewPasskey, check_passkey, creation, is_backed_up, new_challenge, request,
};
pub(super) use relying_party::RelyingParty;

#[cfg(test)]
pub(super) use {totp::code_at, webauthn::software_authenticator};

/// Wrong codes of a user, whatever the browser.
const GUESSES: LockoutConfig = LockoutConfig {
    failures: 5,
    window: 900,
    duration: 60,
};

/// Longest name of a factor, in characters.
pub(super) const NAME_MAX: usize = 64;

/// What the secrets of factors are sealed with.
#[derive(Debug)]
pub(super) struct Factors {
    vault: Vault,
}

impl Factors {
    pub(super) fn new(vault: Vault) -> Self {
        Self { vault }
    }
}

/// What a user has shown just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FactorProof {
    /// By which methods (RFC 8176).
    pub(super) words: Vec<&'static str>,
    /// With which factor; none: a recovery code.
    pub(super) factor: Option<Uuid>,
}

/// What came of checking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FactorCheck {
    Right(FactorProof),
    Wrong,
    /// It was not looked at: there were too many wrong ones.
    Locked,
}

/// The methods that a factor of this kind may add.
pub(super) fn gives(kind: Kind) -> &'static [&'static str] {
    use context::{CODE, DEVICE_KEY, KEY, PRESENCE, SEVERAL, SOFT_KEY};
    match kind {
        Kind::Totp => &[CODE, SEVERAL],
        Kind::Passkey => &[KEY, DEVICE_KEY, SOFT_KEY, PRESENCE, SEVERAL],
    }
}

/// The kinds that can be used at all: passkeys need a page that browsers trust.
pub(super) fn usable(call: &Call) -> Vec<Kind> {
    let live = &call.live;
    let possible = |kind: &Kind| *kind != Kind::Passkey || live.relying_party.is_some();
    let kinds = [Kind::Totp, Kind::Passkey].into_iter();
    kinds.filter(possible).collect()
}

/// Those of them that users of the realm may enrol.
pub(super) fn kinds(call: &Call) -> Vec<Kind> {
    let usable = usable(call);
    let kinds = call.realm.settings.factors.kinds.iter().copied();
    kinds.filter(|kind| usable.contains(kind)).collect()
}

/// What came of enrolling a factor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EnrolmentResult {
    /// It counts from now on; with recovery codes, if the user had none.
    Done(FactorProof, Option<Vec<String>>),
    /// What should prove it does not.
    Wrong,
    /// There were too many wrong tries.
    Locked,
    /// The user has as many as there may be.
    Full,
}

/// A factor that is about to be kept.
struct NewFactor<'n> {
    kind: Kind,
    name: &'n str,
    credential: Option<String>,
    secret: Secret,
    counter: i64,
}

/// How many factors a user may come to have who adds one after showing
/// `methods`: who knows the password alone must not add what lets them in beside
/// what is there, whatever was there when they were offered it.
pub(super) fn room(methods: &Methods) -> u32 {
    if methods.has(context::SEVERAL) {
        FACTORS_MAX
    } else {
        1
    }
}

/// Keeps a new factor, unless its user has `most`, and recovery codes with the
/// first one.
async fn keep(
    call: &Call,
    user: &User,
    (id, most): (Uuid, u32),
    new: NewFactor<'_>,
    words: Vec<&'static str>,
) -> Result<EnrolmentResult, Fault> {
    let factor = StoredFactor {
        id,
        realm: call.realm.path.clone(),
        user_id: user.id,
        kind: new.kind,
        name: new.name.to_owned(),
        credential: new.credential,
        secret: new.secret,
        counter: new.counter,
        created_ms: call.now_ms,
        used_ms: None,
    };
    let codes = recovery::new();
    let hashes = codes
        .iter()
        .filter_map(|code| recovery::hash(user.id, code));
    let hashes: Vec<_> = hashes.collect();
    let store = &call.state.store;
    let told = |event: Event| {
        let event = event
            .user(user.id, &user.user_name)
            .target(&format!("factors/{id}"));
        event.with("kind", new.kind.as_str())
    };
    let insert = async |audit: Option<&PendingAudit>| {
        store.insert_factor(&factor, most, &hashes, audit).await
    };
    let is_kept = |kept: &Enrolment| *kept != Enrolment::Full;
    let kind = Audited::FactorCreate;
    let kept = audit::with_if(&call.state, kind, told, insert, is_kept).await;
    let codes = match kept {
        Ok(Enrolment::Kept { with_codes }) => with_codes.then_some(codes),
        Ok(Enrolment::Full) => return Ok(EnrolmentResult::Full),
        Err(StoreError::Taken(_)) => return Ok(EnrolmentResult::Wrong),
        Err(error) => return Err(error.into()),
    };
    tracing::info!(user_id = %user.id, kind = new.kind.as_str(), "a factor was enrolled");
    let shown = FactorProof {
        words,
        factor: Some(id),
    };
    Ok(EnrolmentResult::Done(shown, codes))
}

/// Spends a proof, and has the audit log tell of it.
async fn verified(
    call: &Call,
    factor: Option<Uuid>,
    write: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<bool, StoreError>,
) -> Result<bool, Fault> {
    let told = |event: Event| about(event, factor);
    let kind = Audited::FactorVerify;
    Ok(audit::with_if(&call.state, kind, told, write, |spent| *spent).await?)
}

/// Has the audit log tell of a proof that was none.
fn refused(call: &Call, factor: Option<Uuid>, why: &'static str) {
    audit::note(&call.state, Audited::FactorVerify, |event| {
        about(event, factor).failed(why)
    });
}

fn about(event: Event, factor: Option<Uuid>) -> Event {
    match factor {
        Some(id) => event.target(&format!("factors/{id}")),
        None => event,
    }
}

/// New recovery codes in the place of all others.
pub(super) async fn new_codes(call: &Call, user: &User) -> Result<Vec<String>, Fault> {
    let codes = recovery::new();
    let hashes = codes
        .iter()
        .filter_map(|code| recovery::hash(user.id, code));
    let hashes: Vec<_> = hashes.collect();
    let write = async |audit: Option<&PendingAudit>| {
        let store = &call.state.store;
        store.replace_recovery_codes(user.id, &hashes, audit).await
    };
    let told = |event: Event| {
        event
            .user(user.id, &user.user_name)
            .with("kind", "recovery")
    };
    audit::with(&call.state, Audited::FactorCreate, told, write).await?;
    Ok(codes)
}

/// What a user calls a factor, without what pages and logs can't show.
pub(super) fn name(typed: Option<&str>, usual: &str) -> String {
    let typed = typed.unwrap_or_default().trim();
    let shown = typed.chars().filter(|c| !c.is_control());
    let name: String = shown.take(NAME_MAX).collect();
    if name.is_empty() {
        usual.to_owned()
    } else {
        name
    }
}

/// What apps call the provider of a realm.
fn issuer_name(config: &IdentityConfig, realm: &Realm) -> String {
    let issuer = &realm.settings.factors.issuer;
    if !issuer.is_empty() {
        return issuer.clone();
    }
    let url = url::Url::parse(&config.base_url).ok();
    let host = url.and_then(|url| url.host_str().map(str::to_owned));
    host.unwrap_or_else(|| "Doorward".to_owned())
}

fn new_id() -> Uuid {
    random_uuid()
}
