//! Whose account a sign-in at another provider leads to.
//!
//! Once linked, the provider's name for the user decides alone: addresses and
//! names change hands, that one never does. Before that an account is linked
//! or made only as the rules of the provider say, and none that somebody else
//! could have claimed by what they can make the provider say.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::mapping::MappedAttributes;
use super::refusal::{AccountError, Refusal};
use super::{Provider, Subject};
use crate::audit;
use crate::config::LinkExisting;
use crate::login::is_admin_name;
use crate::{Call, records, sessions};
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::query::{Filter, Op, Operand, UserQuery};
use doorward_core::model::user::schema::find;
use doorward_core::model::user::{Owner, User, fold};
use doorward_store::StoreError;

/// Accounts with one address that are looked at.
const SAME_ADDRESS_MAX: u32 = 20;

/// The user whom a subject is here, and how that came about.
pub(super) async fn of(
    call: &Call,
    provider: &Arc<Provider>,
    subject: &Subject,
    link: Option<Uuid>,
) -> Result<(User, &'static str), Refusal> {
    let realm = call.realm.path.as_str();
    let resolution = AccountResolution {
        call,
        provider,
        subject,
        // The claim about verification speaks of the claim `email` alone.
        mapped: provider.mapping.read(&subject.claims, &|claim| {
            claim == ["email"] && is_verified(provider, subject)
        }),
    };
    let known = call
        .state
        .store
        .federated_user(realm, &subject.issuer, &subject.subject);
    let known = known.await?;
    if let Some(wanted) = link {
        let user = resolution
            .link_to(wanted, known.map(|(_, user)| user))
            .await?;
        return Ok((user, "linked"));
    }
    if let Some((identity, user)) = known {
        resolution.may_be(&user)?;
        return Ok((resolution.seen(&identity, user).await?, "signed_in"));
    }
    if let Some(user) = resolution.existing().await? {
        resolution.may_be(&user)?;
        resolution.link(&user).await?;
        return Ok((user, "linked"));
    }
    if !provider.rules().create {
        return Err(AccountError::Unlinked.into());
    }
    Ok((resolution.create().await?, "created"))
}

/// How the user has signed in (RFC 8176): elsewhere, and as the provider says
/// if that is believed.
pub(super) fn methods(provider: &Provider, subject: &Subject) -> Vec<String> {
    let mut methods = vec!["fed".to_owned()];
    let amr = subject.claims.get("amr").and_then(Value::as_array);
    let amr = amr.into_iter().flatten().filter_map(Value::as_str);
    if provider.written.trust_amr && amr.clone().any(|method| method == "mfa") {
        methods.push("mfa".to_owned());
    }
    methods
}

/// Whether the provider says that the address is the user's, and is believed.
fn is_verified(provider: &Provider, subject: &Subject) -> bool {
    // Some write it as a text.
    let claim = subject.claims.get("email_verified");
    let verified = claim == Some(&json!(true)) || claim == Some(&json!("true"));
    verified && provider.written.trust_email
}

struct AccountResolution<'a> {
    call: &'a Call,
    provider: &'a Provider,
    subject: &'a Subject,
    mapped: MappedAttributes,
}

impl AccountResolution<'_> {
    /// Whether this provider may sign this user in.
    fn may_be(&self, user: &User) -> Result<(), AccountError> {
        if user.owner == Owner::File {
            return Err(AccountError::FileOwned);
        }
        self.may_be_called(&user.user_name)?;
        if user.active {
            Ok(())
        } else {
            Err(AccountError::Deactivated)
        }
    }

    fn may_be_called(&self, name: &str) -> Result<(), AccountError> {
        if is_admin_name(name) && !self.provider.rules().administrator {
            Err(AccountError::Administrator)
        } else {
            Ok(())
        }
    }

    /// Links the user who asked for it, and is signed in still.
    async fn link_to(&self, wanted: Uuid, known: Option<User>) -> Result<User, Refusal> {
        let session = sessions::of_browser(self.call).await?;
        let user = session.map(|(_, user)| user);
        let user = user.filter(|user| user.id == wanted);
        let user = user.ok_or(AccountError::OtherUser)?;
        self.may_be(&user)?;
        match known {
            None => self.link(&user).await?,
            Some(known) if known.id == user.id => {}
            Some(_) => return Err(AccountError::LinkedElsewhere.into()),
        }
        Ok(user)
    }

    /// The account that the rules say is this subject's.
    async fn existing(&self) -> Result<Option<User>, Refusal> {
        match self.provider.rules().existing {
            LinkExisting::Never => Ok(None),
            LinkExisting::VerifiedEmail => self.by_address().await,
            LinkExisting::UserName => self.by_name().await,
        }
    }

    async fn by_name(&self) -> Result<Option<User>, Refusal> {
        let Some(name) = self.provider.user_name.fill(&self.subject.claims) else {
            return Ok(None);
        };
        let realm = &self.call.realm.path;
        let found = self.call.state.store.user_by_name(realm, &name).await?;
        Ok(found.filter(|user| is_same(&user.user_name, &name)))
    }

    /// The only account whose verified address this is.
    async fn by_address(&self) -> Result<Option<User>, Refusal> {
        let address = self.subject.claims.get("email").and_then(Value::as_str);
        let address = address.filter(|address| address.is_ascii());
        let Some(address) = address.filter(|_| is_verified(self.provider, self.subject)) else {
            return Ok(None);
        };
        let Some(emails) = find("emails.value") else {
            return Ok(None);
        };
        let query = UserQuery {
            filter: Filter::Compare(emails, Op::Equal, Operand::Text(fold(address))),
            sort: Vec::new(),
            after: None,
            skip: 0,
            limit: SAME_ADDRESS_MAX,
        };
        let realm = &self.call.realm.path;
        let page = self.call.state.store.users(realm, &query).await?;
        if page.more {
            return Err(AccountError::Ambiguous.into());
        }
        let has = |user: &User| has_verified(&user.profile, address);
        let mut fitting = page.users.into_iter().filter(has);
        match (fitting.next(), fitting.next()) {
            (_, Some(_)) => Err(AccountError::Ambiguous.into()),
            (only, None) => Ok(only),
        }
    }

    fn identity(&self, user_id: Uuid) -> FederatedIdentity {
        FederatedIdentity {
            id: random_uuid(),
            realm: self.call.realm.path.clone(),
            user_id,
            issuer: self.subject.issuer.clone(),
            subject: self.subject.subject.clone(),
            provider: self.provider.name().to_owned(),
            email: self.mapped.email().map(str::to_owned),
            created_ms: self.call.now_ms,
            used_ms: self.call.now_ms,
        }
    }

    /// Links an account as it was read: one that changed meanwhile may be
    /// somebody else's by now.
    async fn link(&self, user: &User) -> Result<(), Refusal> {
        let identity = self.identity(user.id);
        let state = &self.call.state;
        let write = async |audit: Option<&PendingAudit>| {
            let store = &state.store;
            store
                .link_identity(&identity, Some(user.version), audit)
                .await
        };
        audit::user(user);
        let told = |event: Event| self.facts(event);
        match audit::with(state, Kind::LinkCreate, told, write).await {
            Ok(()) => {
                self.note(
                    "an account was linked to a user of another provider",
                    user.id,
                );
                Ok(())
            }
            Err(StoreError::Taken(_)) => Err(AccountError::LinkedElsewhere.into()),
            Err(StoreError::Conflict(_)) => Err(AccountError::Unlinked.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// What the audit log is told of a link.
    fn facts(&self, event: Event) -> Event {
        let event = event.with("issuer", self.subject.issuer.as_str());
        event.with("subject", self.subject.subject.as_str())
    }

    fn note(&self, what: &str, user_id: Uuid) {
        let (realm, provider) = (&self.call.realm.path, self.provider.name());
        tracing::info!(realm, provider, %user_id, "{what}");
    }

    /// Makes an account.
    async fn create(&self) -> Result<User, Refusal> {
        let name = self.provider.user_name.fill(&self.subject.claims);
        let name = name.ok_or(AccountError::Unfit)?;
        self.may_be_called(&name)?;
        let mut record = Map::new();
        self.mapped.apply(&mut record, None);
        record.insert("userName".to_owned(), json!(name));
        let realm = &self.call.realm.path;
        let user = records::new_user(realm, &record).map_err(|_| AccountError::Unfit)?;
        let user = User {
            created_ms: self.call.now_ms,
            updated_ms: self.call.now_ms,
            ..user
        };
        let identity = self.identity(user.id);
        let state = &self.call.state;
        let write = async |audit: Option<&PendingAudit>| {
            let store = &state.store;
            store.insert_federated_user(&user, &identity, audit).await
        };
        audit::user(&user);
        let told = |event: Event| self.facts(event);
        match audit::with(state, Kind::UserCreate, told, write).await {
            Ok(()) => {
                self.call.state.forget();
                self.note(
                    "an account was made for a user of another provider",
                    user.id,
                );
                Ok(user)
            }
            Err(StoreError::Taken(_)) => self.made_meanwhile().await,
            Err(error) => Err(error.into()),
        }
    }

    /// The account that the same user made in another tab just now; otherwise
    /// the name is somebody else's, and stays so.
    async fn made_meanwhile(&self) -> Result<User, Refusal> {
        let (issuer, subject) = (&self.subject.issuer, &self.subject.subject);
        let store = &self.call.state.store;
        let found = store
            .federated_user(&self.call.realm.path, issuer, subject)
            .await?;
        let (_, user) = found.ok_or(AccountError::Taken)?;
        self.may_be(&user)?;
        Ok(user)
    }

    /// Notes that a link was used, and takes over what the provider says.
    async fn seen(&self, identity: &FederatedIdentity, user: User) -> Result<User, Refusal> {
        let store = &self.call.state.store;
        let used = FederatedIdentity {
            provider: self.provider.name().to_owned(),
            email: self.mapped.email().map(str::to_owned),
            used_ms: self.call.now_ms,
            ..identity.clone()
        };
        store.touch_identity(&used).await?;
        if !self.provider.rules().update {
            return Ok(user);
        }
        let mut profile = user.profile.clone();
        self.mapped.apply(&mut profile, identity.email.as_deref());
        if profile == user.profile {
            return Ok(user);
        }
        let changed = User {
            profile,
            version: user.version + 1,
            updated_ms: self.call.now_ms,
            ..user.clone()
        };
        match store.update_user(&changed, None).await {
            Ok(()) => {
                self.call.state.forget();
                Ok(changed)
            }
            // Somebody changes it just now: the next time, then.
            Err(StoreError::Conflict(_)) => {
                let found = store.user(&user.realm, user.id).await?;
                let found = found.ok_or(AccountError::Deactivated)?;
                self.may_be(&found)?;
                Ok(found)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether two names are one: letters that only look alike, or that become the
/// same when their case is changed, are not.
fn is_same(one: &str, other: &str) -> bool {
    one == other || (one.is_ascii() && one.eq_ignore_ascii_case(other))
}

/// Whether a record has this address as a verified one.
fn has_verified(profile: &Map<String, Value>, address: &str) -> bool {
    let all = profile.get("emails").and_then(Value::as_array);
    all.into_iter().flatten().any(|email| {
        let value = email.get("value").and_then(Value::as_str);
        email.get("verified") == Some(&json!(true)) && value.is_some_and(|v| is_same(v, address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homoglyphs_and_other_cases_of_other_alphabets_are_other_names() {
        assert!(is_same("Admin@x.example", "aDMIN@X.example"));
        assert!(is_same("müller", "müller"));
        for other in [
            "аdmin@x.example",
            "admın@x.example",
            "admin@x.example ",
            "ADMİN@x.example",
        ] {
            assert!(!is_same("admin@x.example", other), "{other}");
        }
        assert!(!is_same("straße", "STRASSE"));
        // The Kelvin sign becomes a k in lower case.
        assert!(!is_same("kim", "\u{212a}im"));
    }

    #[test]
    fn unverified_address_is_nobodys() {
        let profile = json!({"emails": [{"value": "a@x.example"},
            {"value": "b@x.example", "verified": false}, {"value": "C@x.example", "verified": true}]});
        let profile = profile.as_object().expect("an object");
        assert!(!has_verified(profile, "a@x.example"));
        assert!(!has_verified(profile, "b@x.example"));
        assert!(has_verified(profile, "c@x.example"));
    }
}
