//! Codes that users type: of an app, or of the list that they keep.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{
    EnrolmentResult, FactorCheck, FactorProof, Factors, GUESSES, NewFactor, base32, keep, new_id,
    recovery, totp,
};
use crate::context::{CODE, SEVERAL};
use crate::error::Fault;
use crate::lockout::Attempt;
use crate::pages;
use crate::{Call, audit};
use doorward_core::clock::random_bytes;
use doorward_core::jose::keys::KeyError;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::factor::{Kind, StoredFactor};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;

/// What the vault calls secrets of apps.
const NAME: &str = "one-time codes";

impl Factors {
    /// The secret of a factor, and how it shall be kept from now on, if
    /// otherwise.
    fn secret(&self, factor: &StoredFactor) -> Result<(Vec<u8>, Option<Secret>), KeyError> {
        let owner = factor.id.to_string();
        let secret = self.vault.open_own(NAME, &owner, &factor.secret)?;
        Ok((secret, self.vault.seal_own(NAME, &owner, &factor.secret)?))
    }
}

/// Checks a code that `user` typed: of any app of theirs, or a recovery code.
/// Wrong ones are counted by user.
pub(crate) async fn check_code(
    call: &Call,
    user: &User,
    typed: &str,
) -> Result<FactorCheck, Fault> {
    audit::user(user);
    let Some(attempt) = attempt(call, user).await else {
        super::refused(call, None, "locked");
        return Ok(FactorCheck::Locked);
    };
    let found = match by_app(call, user, typed).await? {
        Some(shown) => Some(shown),
        None => by_list(call, user, typed).await?,
    };
    match found {
        Some(shown) => {
            attempt.succeeded();
            Ok(FactorCheck::Right(shown))
        }
        None => {
            attempt.failed(&GUESSES, call.now_ms);
            super::refused(call, None, "wrong_code");
            Ok(FactorCheck::Wrong)
        }
    }
}

/// Whether the user can show a code at all.
pub(crate) async fn has_codes(call: &Call, user: &User) -> Result<bool, Fault> {
    let store = &call.state.store;
    let factors = store.factors(user.id).await?;
    let apps = factors.iter().any(|factor| factor.kind == Kind::Totp);
    Ok(apps || (!factors.is_empty() && store.recovery_codes_left(user.id).await? > 0))
}

/// One of the tries of a user, if there is one left.
async fn attempt(call: &Call, user: &User) -> Option<Attempt> {
    let key = format!("factor {}", user.id);
    let guesses = &call.state.guesses;
    let begun = guesses.begin(&GUESSES, &call.realm.path, &key, call.now_ms);
    begun.await.ok()
}

async fn by_app(call: &Call, user: &User, typed: &str) -> Result<Option<FactorProof>, Fault> {
    let store = &call.state.store;
    let factors = store.factors(user.id).await?;
    for factor in factors.iter().filter(|factor| factor.kind == Kind::Totp) {
        let (secret, sealed) = match call.state.factors.secret(factor) {
            Ok(opened) => opened,
            Err(error) => {
                // The user may have others.
                tracing::error!(factor = %factor.id, %error, "a factor can't be used");
                continue;
            }
        };
        let step = totp::step_of(&secret, typed, call.now_ms, factor.counter);
        let Some(step) = step else { continue };
        let write = async |audit: Option<&PendingAudit>| {
            let (id, sealed) = (factor.id, sealed.as_ref());
            store.use_factor(id, step, sealed, call.now_ms, audit).await
        };
        if super::verified(call, Some(factor.id), write).await? {
            return Ok(Some(FactorProof {
                words: vec![CODE],
                factor: Some(factor.id),
            }));
        }
        doorward_net::telemetry::warn_limited!(user_id = %user.id, "a one-time code was used twice");
    }
    Ok(None)
}

async fn by_list(call: &Call, user: &User, typed: &str) -> Result<Option<FactorProof>, Fault> {
    let Some(hash) = recovery::hash(user.id, typed) else {
        return Ok(None);
    };
    let write = async |audit: Option<&PendingAudit>| {
        let store = &call.state.store;
        store.use_recovery_code(user.id, hash, audit).await
    };
    if !super::verified(call, None, write).await? {
        return Ok(None);
    }
    tracing::info!(user_id = %user.id, "a recovery code was used");
    Ok(Some(FactorProof {
        words: vec![CODE],
        factor: None,
    }))
}

/// A secret that an app is to take over; nothing of it is kept before it has
/// made a code.
#[derive(Clone, Debug)]
pub(crate) struct NewSecret(Vec<u8>);

impl NewSecret {
    pub(crate) fn make() -> Self {
        Self(random_bytes::<{ totp::SECRET_BYTES }>().to_vec())
    }

    /// The one that [`NewSecret::text`] told.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let secret = base32::decode(text)?;
        (secret.len() == totp::SECRET_BYTES).then_some(Self(secret))
    }

    /// In base32.
    pub(crate) fn text(&self) -> String {
        base32::encode(&self.0)
    }

    /// What a page shows of it, with the form that carries `step`.
    pub(crate) fn shown(&self, call: &Call, user: &User, step: String) -> pages::NewTotp {
        let live = &call.live;
        let issuer = super::issuer_name(&live.config, &call.realm);
        pages::NewTotp {
            address: totp::address(&issuer, &user.user_name, &self.0),
            key: self.text(),
            step,
        }
    }

    /// Enrols the app as `name`, if this is a code that it makes now, and its
    /// user has fewer than `most` factors.
    pub(crate) async fn enrol(
        &self,
        call: &Call,
        user: &User,
        (name, most): (&str, u32),
        typed: &str,
    ) -> Result<EnrolmentResult, Fault> {
        let Some(attempt) = attempt(call, user).await else {
            return Ok(EnrolmentResult::Locked);
        };
        let Some(step) = totp::step_of(&self.0, typed, call.now_ms, 0) else {
            attempt.failed(&GUESSES, call.now_ms);
            return Ok(EnrolmentResult::Wrong);
        };
        attempt.succeeded();
        let id = new_id();
        let plain = Secret::new(STANDARD.encode(&self.0));
        let vault = &call.state.factors.vault;
        let sealed = vault.seal_own(NAME, &id.to_string(), &plain)?;
        let new = NewFactor {
            kind: Kind::Totp,
            name,
            credential: None,
            secret: sealed.unwrap_or(plain),
            counter: step,
        };
        keep(call, user, (id, most), new, vec![CODE, SEVERAL]).await
    }
}
