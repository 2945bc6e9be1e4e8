//! Changing a user: what the new record may be, and writing it, or nothing.

use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::Kind;
use super::{body, me, record};
use crate::bearer::ValidToken;
use crate::error::ScimError;
use crate::password::NewPasswordError;
use crate::password_policy::{own_texts, refusal_text};
use crate::{Call, audit, records};
use doorward_core::model::audit::{Detail, Event, Kind as Told, PendingAudit};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::schema::RecordError;
use doorward_core::model::user::{Owner, User, fold};
use doorward_store::StoreError;

/// How often a change is tried again whose record was changed meanwhile.
pub(super) const TRIES: usize = 8;

/// Longest record, in bytes: as much as one body can bring.
const RECORD_MAX: usize = super::BODY_MAX;

/// A change of one user.
pub(super) struct Change<'c> {
    pub(super) token: &'c ValidToken,
    pub(super) id: Uuid,
    pub(super) password: Option<Secret>,
    /// Whether users change themselves, and only what is theirs.
    pub(super) own: bool,
}

impl Change<'_> {
    /// Makes of the user what `make` makes of its record; returns the user as
    /// it is then. Who names a version changes that one or nothing.
    pub(super) async fn make(
        self,
        call: &Call,
        make: impl Fn(&User) -> Result<Map<String, Value>, ScimError> + Send + Sync,
    ) -> Result<User, ScimError> {
        let store = &call.state.store;
        let mut hash = None;
        for _ in 0..TRIES {
            let old = store.user(&self.token.realm.path, self.id).await?;
            let old = old.ok_or_else(|| Kind::User.missing())?;
            body::check_version(call.headers(), &record::version(old.version))?;
            if old.owner == Owner::File {
                return Err(failed(call, StoreError::FileOwned(old.user_name)));
            }
            let mut new = remade(&old, &make(&old)?)?;
            if write_len(&new) > RECORD_MAX {
                let text = "the record would be longer than 1 MiB";
                return Err(ScimError::bad("invalidValue", text));
            }
            if self.own {
                me::check(&old, &new)?;
                me::mark_unverified(&old, &mut new);
            }
            if let (Some(password), None) = (&self.password, &hash) {
                hash = Some(self::hash(call, self.token, &new, password).await?);
            }
            if hash.is_none() && is_same(&old, &new) {
                return Ok(old);
            }
            let new = User {
                version: old.version + 1,
                updated_ms: call.now_ms.max(old.updated_ms),
                ..new
            };
            let write = async |audit: Option<&PendingAudit>| match &hash {
                Some(hash) => store.update_user_and_password(&new, hash, audit).await,
                None => store.update_user(&new, audit).await,
            };
            let about = |event: Event| {
                let event = event.user(new.id, &new.user_name);
                event.with(
                    "changed",
                    changed(&old, &new, hash.is_some())
                        .into_iter()
                        .collect::<Detail>(),
                )
            };
            let written = audit::with(&call.state, Told::UserUpdate, about, write).await;
            match written {
                Ok(()) => {
                    if hash.is_some() || (old.active && !new.active) {
                        ended(call).await?;
                    }
                    return Ok(new);
                }
                // Somebody was faster, or the user is gone: look again.
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(failed(call, error)),
            }
        }
        Err(contended())
    }
}

/// The answer where others were faster each time.
pub(super) fn contended() -> ScimError {
    let text = "The record is being changed by others; try again.";
    ScimError::new(StatusCode::CONFLICT, text)
}

fn write_len(user: &User) -> usize {
    serde_json::to_string(&user.profile).map_or(usize::MAX, |text| text.len())
}

/// The names of what is another than before; values are nobody's business.
pub(crate) fn changed<'u>(old: &'u User, new: &'u User, password: bool) -> Vec<&'u str> {
    let mut names = Vec::new();
    if old.user_name != new.user_name {
        names.push("userName");
    }
    if old.active != new.active {
        names.push("accountStatus");
    }
    if password {
        names.push("password");
    }
    let all = old.profile.iter().chain(&new.profile);
    for (name, _) in all {
        let other = old.profile.get(name) != new.profile.get(name);
        if other && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn is_same(old: &User, new: &User) -> bool {
    old.user_name == new.user_name && old.active == new.active && old.profile == new.profile
}

/// What can be changed of a user, as one record.
pub(super) fn record(user: &User) -> Map<String, Value> {
    let mut record = user.profile.clone();
    let status = if user.active { "Active" } else { "Deactivated" };
    record.insert("userName".to_owned(), json!(user.user_name));
    record.insert("accountStatus".to_owned(), json!(status));
    record
}

/// The record that a user gets by PUT. Of what is left out, the state stays:
/// nobody is let in by omission; and so do what applications noted and what is
/// known of addresses that stay.
pub(super) fn replaced(old: &User, sent: &Map<String, Value>) -> Map<String, Value> {
    let mut record = sent.clone();
    let named = |name: &str| {
        sent.iter()
            .any(|(known, value)| bare(known).eq_ignore_ascii_case(name) && !value.is_null())
    };
    if !named("accountStatus") && !named("active") {
        let status = if old.active { "Active" } else { "Deactivated" };
        record.insert("accountStatus".to_owned(), json!(status));
    }
    if let Some(noted) = old
        .profile
        .get("preferences")
        .filter(|_| !named("preferences"))
    {
        record.insert("preferences".to_owned(), noted.clone());
    }
    let emails = record
        .iter_mut()
        .find(|(name, _)| name.eq_ignore_ascii_case("emails"));
    if let (Some((_, Value::Array(new))), Some(Value::Array(known))) =
        (emails, old.profile.get("emails"))
    {
        keep_verified(known, new);
    }
    record
}

/// Addresses that were verified still are, unless the new values say of that.
pub(super) fn keep_verified(known: &[Value], new: &mut [Value]) {
    let address = |email: &Value| email.get("value").and_then(Value::as_str).map(fold);
    let verified: Vec<_> = known
        .iter()
        .filter(|email| email.get("verified") == Some(&Value::Bool(true)))
        .filter_map(address)
        .collect();
    for email in new {
        let stays = address(email).is_some_and(|address| verified.contains(&address));
        if let Some(members) = email.as_object_mut()
            && stays
            && !members
                .keys()
                .any(|name| name.eq_ignore_ascii_case("verified"))
        {
            members.insert("verified".to_owned(), Value::Bool(true));
        }
    }
}

/// The user that has this record.
fn remade(old: &User, record: &Map<String, Value>) -> Result<User, ScimError> {
    with_record(old, record).map_err(refused)
}

fn with_record(old: &User, record: &Map<String, Value>) -> Result<User, RecordError> {
    let mut record = record.clone();
    record.retain(|name, _| !name.eq_ignore_ascii_case("id"));
    let new = records::new_user(&old.realm, &record)?;
    Ok(User {
        id: old.id,
        name_reused: old.name_reused,
        password_hash: old.password_hash.clone(),
        owner: old.owner,
        version: old.version,
        created_ms: old.created_ms,
        updated_ms: old.updated_ms,
        ..new
    })
}

/// The user with these attributes in the place of those of the same names; null
/// removes one. What is known of e-mail addresses that stay is kept.
///
/// # Errors
/// The first attribute that can't be.
pub(crate) fn merged(old: &User, sent: &Map<String, Value>) -> Result<User, RecordError> {
    let mut record = record(old);
    // The two names of the state may come together: then they have to agree.
    if sent.keys().any(|name| name.eq_ignore_ascii_case("active")) {
        record.remove("accountStatus");
    }
    for (name, value) in sent {
        record.retain(|known, _| !known.eq_ignore_ascii_case(name));
        let mut value = value.clone();
        if let (true, Some(Value::Array(known)), Value::Array(new)) = (
            name.eq_ignore_ascii_case("emails"),
            old.profile.get("emails"),
            &mut value,
        ) {
            keep_verified(known, new);
        }
        if !value.is_null() {
            record.insert(name.clone(), value);
        }
    }
    let new = with_record(old, &record)?;
    if write_len(&new) > RECORD_MAX {
        return Err(RecordError::new(
            "",
            "the record would be longer than 1 MiB",
        ));
    }
    Ok(new)
}

/// The answer to a record that can't be.
pub(super) fn refused(error: RecordError) -> ScimError {
    let kind = if error.is_unknown() {
        "invalidSyntax"
    } else {
        "invalidValue"
    };
    ScimError::bad(kind, error.to_string())
}

/// The answer to a write that the store refused.
pub(super) fn failed(call: &Call, error: StoreError) -> ScimError {
    let conflict = |scim_type, detail: String| ScimError {
        scim_type,
        ..ScimError::new(StatusCode::CONFLICT, detail)
    };
    match error {
        StoreError::Taken(name) => {
            conflict(Some("uniqueness"), format!("{name} is taken already."))
        }
        StoreError::FileOwned(name) => {
            let live = &call.live;
            let file = live.config.file.as_ref();
            let file = file.map_or("the configuration file".into(), |file| {
                file.display().to_string()
            });
            let text = format!("{name} is declared in {file}; change it there.");
            conflict(Some("mutability"), text)
        }
        StoreError::Unfit => ScimError::bad("invalidValue", "a text holds U+0000, or is too long"),
        error => error.into(),
    }
}

/// Takes the password out of a record that was sent.
pub(super) fn take_password(sent: &mut Map<String, Value>) -> Result<Option<Secret>, ScimError> {
    let names: Vec<String> = sent.keys().cloned().collect();
    let is_password = |name: &&String| bare(name).eq_ignore_ascii_case("password");
    let mut found = None;
    for name in names.iter().filter(is_password) {
        match sent.remove(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if found.is_none() => found = Some(Secret::new(text)),
            Some(_) => {
                let text = "password: expected one string";
                return Err(ScimError::bad("invalidValue", text));
            }
        }
    }
    Ok(found)
}

/// The name without the URN of users.
fn bare(name: &str) -> &str {
    use doorward_core::model::user::schema::{USER_URN, strip_urn};
    strip_urn(name, USER_URN).unwrap_or(name)
}

/// Takes the password out of the operations of a PATCH; the last one counts.
pub(super) fn take_patched_password(
    sent: &mut Map<String, Value>,
) -> Result<Option<Secret>, ScimError> {
    let operations = sent
        .iter_mut()
        .find(|(name, _)| name.eq_ignore_ascii_case("operations"));
    let Some((_, Value::Array(operations))) = operations else {
        return Ok(None);
    };
    let mut found = None;
    let mut error = None;
    operations.retain_mut(|operation| {
        let Some(operation) = operation.as_object_mut() else {
            return true;
        };
        let of = |wanted: &str| {
            let mut members = operation.iter();
            members.find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let path = of("path").and_then(|(_, path)| path.as_str());
        let verb = of("op").and_then(|(_, verb)| verb.as_str());
        let verb = verb.unwrap_or_default().to_ascii_lowercase();
        match path {
            Some(path) if bare(path).eq_ignore_ascii_case("password") => {
                match (verb.as_str(), of("value").map(|(_, value)| value)) {
                    ("add" | "replace", Some(Value::String(text))) => {
                        found = Some(Secret::new(text.clone()));
                    }
                    _ => {
                        let text = "password can only be set, to a string";
                        error = Some(ScimError::bad("invalidValue", text));
                    }
                }
                false
            }
            Some(path) if !path.is_empty() => true,
            _ => {
                let mut members = operation.iter_mut();
                let value = members.find(|(name, _)| name.eq_ignore_ascii_case("value"));
                let Some((_, Value::Object(value))) = value else {
                    return true;
                };
                let before = value.len();
                match take_password(value) {
                    Ok(None) => true,
                    Ok(password) => {
                        found = password;
                        before > 1
                    }
                    Err(wrong) => {
                        error = Some(wrong);
                        true
                    }
                }
            }
        }
    });
    match error {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

/// The hash of a new password, if the realm's rules allow it.
pub(super) async fn hash(
    call: &Call,
    token: &ValidToken,
    user: &User,
    password: &Secret,
) -> Result<Secret, ScimError> {
    let state = &call.state;
    let place = state.hasher.enter()?;
    let rules = token.realm.password_rules().clone();
    let hash = state
        .hasher
        .hash_new(&place, password, rules, own_texts(user));
    hash.await.map_err(|error| match error {
        NewPasswordError::Refused(wrong) => ScimError::bad("invalidValue", refusal_text(&wrong)),
        NewPasswordError::Busy(busy) => busy.into(),
    })
}

/// Logins have ended: every endpoint knows, and clients are told.
pub(super) async fn ended(call: &Call) -> Result<(), ScimError> {
    call.state.read_revocations().await?;
    call.state.backchannel_logout.wake();
    Ok(())
}
