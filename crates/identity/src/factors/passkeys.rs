//! Passkeys: what browsers are asked for, and what is made of their answers.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::webauthn::{
    self, ALGORITHMS, CHALLENGE_BYTES, CREDENTIAL_MAX, CeremonyContext, PublicKey, WebauthnError,
};
use super::{EnrolmentResult, FactorProof, NewFactor, RelyingParty, issuer_name, keep, new_id};
use crate::authorize::SHOWN_MS;
use crate::context::{DEVICE_KEY, KEY, PRESENCE, SEVERAL, SOFT_KEY};
use crate::error::Fault;
use crate::{Call, audit};
use doorward_core::clock::random_bytes;
use doorward_core::jose::json;
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::factor::{Kind, StoredFactor};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;

/// A challenge: random, in base64url.
pub(crate) fn new_challenge() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<CHALLENGE_BYTES>())
}

/// How long a browser may take, in milliseconds.
const CEREMONY_MS: i64 = 5 * 60 * 1000;

/// Longest answer of a browser that is read, in bytes.
const ANSWER_MAX: usize = 60 * 1024;

/// Most ways to reach an authenticator that are kept.
const TRANSPORTS_MAX: usize = 8;

/// What is kept of a passkey besides its identifier.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PasskeyRecord {
    key: PublicKey,
    /// What the authenticator calls its user: random, the same for all of them.
    handle: String,
    aaguid: Uuid,
    backup_eligible: bool,
    backed_up: bool,
    #[serde(default)]
    transports: Vec<String>,
}

impl PasskeyRecord {
    fn of(factor: &StoredFactor) -> Option<Self> {
        serde_json::from_str(factor.secret.expose()).ok()
    }

    fn text(&self) -> Secret {
        // Texts and numbers only.
        Secret::new(serde_json::to_string(self).unwrap_or_default())
    }
}

/// Whether a passkey is copied to other devices.
pub(crate) fn is_backed_up(factor: &StoredFactor) -> bool {
    factor.kind == Kind::Passkey && PasskeyRecord::of(factor).is_some_and(|kept| kept.backed_up)
}

/// What authenticators call the user who has these factors.
fn handle(factors: &[StoredFactor]) -> Option<String> {
    let known = factors.iter().filter(|factor| factor.kind == Kind::Passkey);
    known
        .filter_map(PasskeyRecord::of)
        .map(|kept| kept.handle)
        .next()
}

fn descriptors(factors: &[StoredFactor]) -> Vec<Value> {
    let descriptor = |factor: &StoredFactor| {
        let kept = PasskeyRecord::of(factor)?;
        Some(json!({
            "type": "public-key",
            "id": factor.credential.as_ref()?,
            "transports": kept.transports,
        }))
    };
    factors.iter().filter_map(descriptor).collect()
}

/// What a browser is to ask for a signature with: one of `factors`, or any
/// passkey that its user picks.
pub(crate) fn request(
    party: &RelyingParty,
    challenge: &str,
    factors: Option<&[StoredFactor]>,
) -> String {
    // Alone, a passkey must know its user.
    let verification = match factors {
        Some(_) => "preferred",
        None => "required",
    };
    json!({
        "challenge": challenge,
        "rpId": party.id,
        "timeout": CEREMONY_MS,
        "userVerification": verification,
        "allowCredentials": descriptors(factors.unwrap_or_default()),
    })
    .to_string()
}

/// What a browser is to make a new passkey with, and what authenticators are to
/// call its user.
pub(crate) fn creation(
    call: &Call,
    party: &RelyingParty,
    user: &User,
    challenge: &str,
    factors: &[StoredFactor],
) -> (String, String) {
    let handle = handle(factors);
    let handle = handle.unwrap_or_else(|| URL_SAFE_NO_PAD.encode(random_bytes::<32>()));
    let live = &call.live;
    let shown = user.profile.get("displayName").and_then(Value::as_str);
    let algs = ALGORITHMS.map(|alg| json!({"type": "public-key", "alg": alg}));
    let options = json!({
        "rp": {"id": party.id, "name": issuer_name(&live.config, &call.realm)},
        "user": {
            "id": handle,
            "name": user.user_name,
            "displayName": shown.unwrap_or(&user.user_name),
        },
        "challenge": challenge,
        "pubKeyCredParams": algs,
        "timeout": CEREMONY_MS,
        "excludeCredentials": descriptors(factors),
        "authenticatorSelection": {
            "residentKey": "preferred",
            "requireResidentKey": false,
            "userVerification": "preferred",
        },
        "attestation": "none",
    });
    (options.to_string(), handle)
}

/// What a browser answered, taken apart.
#[derive(Debug)]
pub(crate) struct Answer {
    id: Vec<u8>,
    client_data: Vec<u8>,
    attestation: Vec<u8>,
    authenticator_data: Vec<u8>,
    signature: Vec<u8>,
    user_handle: Option<String>,
    transports: Vec<String>,
}

impl Answer {
    /// Reads the answer; `None`: it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > ANSWER_MAX {
            return None;
        }
        let members = json::object(text.as_bytes()).ok()?;
        let bytes = |name: &str| match members.get(name) {
            None => Some(Vec::new()),
            Some(value) => URL_SAFE_NO_PAD.decode(value.as_str()?).ok(),
        };
        let id = bytes("id")?;
        if id.is_empty() || id.len() > CREDENTIAL_MAX {
            return None;
        }
        let known = ["usb", "nfc", "ble", "smart-card", "hybrid", "internal"];
        let transports = members.get("transports").and_then(Value::as_array);
        let transports = transports.into_iter().flatten().filter_map(Value::as_str);
        let transports = transports.filter(|one| known.contains(one));
        Some(Self {
            id,
            client_data: bytes("clientDataJSON")?,
            attestation: bytes("attestationObject")?,
            authenticator_data: bytes("authenticatorData")?,
            signature: bytes("signature")?,
            user_handle: members
                .get("userHandle")
                .and_then(Value::as_str)
                .map(str::to_owned),
            transports: transports.take(TRANSPORTS_MAX).map(str::to_owned).collect(),
        })
    }

    fn credential(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.id)
    }
}

/// Spends a challenge; says whether it was good. It is known to be spent for as
/// long as a page of this moment could bring it.
async fn spend(call: &Call, challenge: &str) -> Result<bool, Fault> {
    let what = TokenHash::of(&format!("webauthn challenge\n{challenge}"));
    let until_ms = call.now_ms + SHOWN_MS;
    let store = &call.state.store;
    Ok(store.remember(what, until_ms, call.now_ms).await?)
}

/// Checks an answer to [`request`]: of the user `of`, or of whoever has the
/// passkey. Gives the user too; `None`: it proves nothing.
pub(crate) async fn check_passkey(
    call: &Call,
    challenge: &str,
    answer: &Answer,
    of: Option<Uuid>,
) -> Result<Option<(User, FactorProof)>, Fault> {
    let live = &call.live;
    let Some(party) = &live.relying_party else {
        return Ok(None);
    };
    let store = &call.state.store;
    let credential = answer.credential();
    let found = store.factor_of_credential(&call.realm.path, &credential);
    let Some(factor) = found.await? else {
        tracing::info!("an unknown passkey was refused");
        return Ok(None);
    };
    let user = store.user(&call.realm.path, factor.user_id).await?;
    let Some(user) = user.filter(|user| user.active) else {
        return Ok(None);
    };
    audit::user(&user);
    let refused = |error: WebauthnError| {
        doorward_net::telemetry::warn_limited!(user_id = %factor.user_id, factor = %factor.id, %error, "a passkey was refused");
        super::refused(call, Some(factor.id), "wrong_passkey");
        Ok(None)
    };
    let Some(mut kept) = PasskeyRecord::of(&factor) else {
        return refused(WebauthnError::Malformed("what is kept of the passkey"));
    };
    // Who is not known yet must be named by the authenticator (§7.2, step 6).
    let named = answer.user_handle.as_deref();
    let is_theirs = match of {
        Some(id) => factor.user_id == id && named.is_none_or(|name| name == kept.handle),
        None => named == Some(&*kept.handle),
    };
    if !is_theirs {
        return refused(WebauthnError::Identifier);
    }
    let asserted = match signed(party, challenge, answer, &kept.key, of.is_none()) {
        Ok(asserted) if webauthn::may_follow(factor.counter, asserted.sign_count) => asserted,
        Ok(_) => return refused(WebauthnError::Counter),
        Err(error) => return refused(error),
    };
    // Whether it may be copied is settled when it is made (§7.2, step 19).
    if asserted.backup.eligible != kept.backup_eligible {
        return refused(WebauthnError::Backup);
    }
    if !spend(call, challenge).await? {
        return refused(WebauthnError::Challenge);
    }
    let changed = kept.backed_up != asserted.backup.done;
    kept.backed_up = asserted.backup.done;
    let text = changed.then(|| kept.text());
    let count = i64::from(asserted.sign_count);
    let write = async |audit: Option<&PendingAudit>| {
        let (id, text) = (factor.id, text.as_ref());
        store.use_factor(id, count, text, call.now_ms, audit).await
    };
    if !super::verified(call, Some(factor.id), write).await? {
        return refused(WebauthnError::Counter);
    }
    let shown = FactorProof {
        words: words(kept.backup_eligible, asserted.verified),
        factor: Some(factor.id),
    };
    Ok(Some((user, shown)))
}

/// The methods of a passkey: that it knew its user is a second factor by itself.
fn words(copied: bool, verified: bool) -> Vec<&'static str> {
    let kept_by = if copied { SOFT_KEY } else { DEVICE_KEY };
    let mut words = vec![KEY, kept_by, PRESENCE];
    if verified {
        words.push(SEVERAL);
    }
    words
}

fn signed(
    party: &RelyingParty,
    challenge: &str,
    answer: &Answer,
    key: &PublicKey,
    verified: bool,
) -> Result<webauthn::AssertionResult, WebauthnError> {
    let challenge = bytes_of(challenge)?;
    let expected = CeremonyContext {
        challenge: &challenge,
        origin: &party.origin,
        rp_id: &party.id,
        verified,
    };
    let (client_data, data) = (&answer.client_data, &answer.authenticator_data);
    webauthn::verify_assertion(&expected, key, client_data, data, &answer.signature)
}

fn bytes_of(challenge: &str) -> Result<Vec<u8>, WebauthnError> {
    let bytes = URL_SAFE_NO_PAD.decode(challenge);
    bytes.map_err(|_| WebauthnError::Challenge)
}

/// A passkey that a browser was asked to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPasskey<'a> {
    pub(crate) challenge: &'a str,
    /// What authenticators are to call the user.
    pub(crate) handle: &'a str,
    /// What its user calls it.
    pub(crate) name: &'a str,
    /// How many factors its user may have with it.
    pub(crate) most: u32,
}

impl NewPasskey<'_> {
    /// Enrols what the browser made.
    pub(crate) async fn enrol(
        self,
        call: &Call,
        user: &User,
        answer: &Answer,
    ) -> Result<EnrolmentResult, Fault> {
        let live = &call.live;
        let Some(party) = &live.relying_party else {
            return Ok(EnrolmentResult::Wrong);
        };
        let made = match self.made(party, answer) {
            Ok(made) => made,
            Err(error) => {
                doorward_net::telemetry::warn_limited!(user_id = %user.id, %error, "a new passkey was refused");
                return Ok(EnrolmentResult::Wrong);
            }
        };
        if !spend(call, self.challenge).await? {
            return Ok(EnrolmentResult::Wrong);
        }
        let words = words(made.backup.eligible, made.verified);
        let kept = PasskeyRecord {
            key: made.key,
            handle: self.handle.to_owned(),
            aaguid: Uuid::from_bytes(made.aaguid),
            backup_eligible: made.backup.eligible,
            backed_up: made.backup.done,
            transports: answer.transports.clone(),
        };
        let new = NewFactor {
            kind: Kind::Passkey,
            name: self.name,
            credential: Some(answer.credential()),
            secret: kept.text(),
            counter: i64::from(made.sign_count),
        };
        keep(call, user, (new_id(), self.most), new, words).await
    }

    fn made(
        self,
        party: &RelyingParty,
        answer: &Answer,
    ) -> Result<webauthn::Registration, WebauthnError> {
        let challenge = bytes_of(self.challenge)?;
        let expected = CeremonyContext {
            challenge: &challenge,
            origin: &party.origin,
            rp_id: &party.id,
            verified: false,
        };
        let made =
            webauthn::verify_registration(&expected, &answer.client_data, &answer.attestation)?;
        if made.credential_id == answer.id {
            Ok(made)
        } else {
            Err(WebauthnError::Identifier)
        }
    }
}
