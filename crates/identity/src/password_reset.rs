//! `/oauth2[/…]/password/forgot` and `…/password/reset`: people who forgot their
//! passwords choose new ones by a link that is sent to them.
//!
//! The first page answers everybody alike, at once: who is meant is looked up
//! behind it. A link is good once, for half an hour, and for the password in
//! force when it was made; asking for the page spends nothing, as programs look
//! at links in mail. Where links lead is made from `base_url` alone.

use std::sync::Arc;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::config::LockoutConfig;
use super::error::{Fault, OAuthError};
use super::form::{self, Form};
use super::login::is_confined;
use super::mail::{self, Letter};
use super::network::network;
use super::pages::{self, LetterTexts, ResetFailed};
use super::password::NewPasswordError;
use super::password_policy::own_texts;
use super::realm::Realm;
use super::{Call, State, audit, ldap, scim};
use doorward_core::clock::random_bytes;
use doorward_core::model::audit::{Actor, Kind, PendingAudit};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::lockout::LockKind;
use doorward_core::model::query::UserQuery;
use doorward_core::model::reset::{RESET_LIFE_MS, StoredReset};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::name_place::NamePlace;
use doorward_core::model::user::{Owner, User, fold, name as user_name};
use doorward_net::http::ClientInfo;

/// How often a link is sent to one user.
const OF_USER: LockoutConfig = LockoutConfig {
    failures: 4,
    window: 3600,
    duration: 900,
};

/// How often one is asked for from one address.
const OF_ADDRESS: LockoutConfig = LockoutConfig {
    failures: 30,
    window: 3600,
    duration: 300,
};

/// Links of a user that are good at once.
const LINKS: u32 = 3;

/// Accounts with one address that are looked at.
const SAME_ADDRESS_MAX: u32 = 20;

/// Longest name or address that is looked up, in bytes.
const TYPED_MAX: usize = 320;

/// The address of the page on which people ask for a link, where they can.
pub(super) fn address(call: &Call) -> Option<String> {
    let live = &call.live;
    let offered = call.realm.settings.password_reset && mail::is_set(&live.config.mail);
    offered.then(|| format!("{}/password/forgot", call.realm.issuer))
}

/// Answers with the page that asks who forgot, or takes the answer.
pub(super) async fn forgot(call: &Call) -> Response {
    let frame = call.frame(None);
    if address(call).is_none() {
        return pages::error(&frame, StatusCode::NOT_FOUND, "not_found", "");
    }
    if call.parts.method != Method::POST {
        return pages::forgot(&frame, false);
    }
    let typed = match from_here(call).and_then(|()| form::read_body(call)) {
        Ok(form) => form
            .get(NamePlace::Username.name())
            .unwrap_or_default()
            .trim()
            .to_owned(),
        Err(error) => return pages::error(&frame, error.status, error.error, &error.description),
    };
    if !typed.is_empty() && typed.len() <= TYPED_MAX && may_ask(call).await {
        let (realm, texts) = (Arc::clone(&call.realm), frame.letter_texts());
        let live = &call.live;
        let appearance = Arc::clone(&live.appearance);
        mail::send(&call.state, move |state| async move {
            let made = letter(&state, &realm, &typed, (&appearance, texts)).await;
            made.unwrap_or_else(|error| {
                tracing::error!(%error, "a link for a new password could not be made");
                None
            })
        });
    }
    pages::forgot(&frame, true)
}

/// Why there is no letter for a user.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The realm sends no letters, or there is no mail.
    NotOffered,
    /// A link can't give this user a password.
    NoPassword,
    /// The user has no address that is written to.
    NoAddress,
    /// Enough letters were sent to the user for now.
    TooMany,
    /// A failure inside.
    Fault(Fault),
}

impl<F: Into<Fault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// Sends `user` a link because an operator wants it. The operator does not see it.
///
/// # Errors
/// Why there is no letter.
pub(super) async fn send_to(
    state: &Arc<State>,
    realm: &Realm,
    user: &User,
    audit: Option<&PendingAudit>,
) -> Result<(), Refusal> {
    let live = state.live.load_full();
    if !realm.settings.password_reset || !mail::is_set(&live.config.mail) {
        return Err(Refusal::NotOffered);
    }
    if !may_reset(state, realm, user).await? {
        return Err(Refusal::NoPassword);
    }
    let texts = LetterTexts::unasked(&live.appearance);
    let letter = letter_to(state, realm, user, (&live.appearance, texts), audit).await?;
    mail::send(state, move |_| std::future::ready(Some(letter)));
    Ok(())
}

/// Whether another link may be asked for from this address.
async fn may_ask(call: &Call) -> bool {
    let info = call.parts.extensions.get::<ClientInfo>();
    let address = info.map_or_else(String::new, |info| network(info.addr.ip()));
    counts(&call.state, &OF_ADDRESS, "address", &address, call.now_ms).await
}

/// Counts, and says whether it was not too much.
async fn counts(state: &State, most: &LockoutConfig, kind: &str, key: &str, now_ms: i64) -> bool {
    match state.resets.begin(most, kind, key, now_ms).await {
        Ok(attempt) => {
            let _ = attempt.failed(most, now_ms);
            true
        }
        Err(_) => false,
    }
}

/// Another site's page can't make a browser ask.
fn from_here(call: &Call) -> Result<(), OAuthError> {
    let site = call.headers().get("sec-fetch-site");
    if site.is_none_or(|site| site == "same-origin" || site == "none") {
        Ok(())
    } else {
        Err(OAuthError::bad(
            "bad_request",
            "The form is of another site",
        ))
    }
}

/// The letter for whoever has this name, or alone this address.
async fn letter(
    state: &Arc<State>,
    realm: &Realm,
    typed: &str,
    (appearance, texts): (&pages::Appearance, LetterTexts),
) -> Result<Option<Letter>, Fault> {
    let Some(user) = user_of(state, realm, typed).await? else {
        return Ok(None);
    };
    let made = letter_to(state, realm, &user, (appearance, texts), None).await;
    match made {
        Ok(letter) => {
            audit::note(state, Kind::PasswordReset, |event| {
                let event = event.realm(&realm.path).user(user.id, &user.user_name);
                event.with("cause", "asked")
            });
            Ok(Some(letter))
        }
        Err(Refusal::NoAddress) => {
            doorward_net::telemetry::warn_limited!(user = %user.id, "a user without e-mail address asked for a new password");
            Ok(None)
        }
        Err(Refusal::Fault(fault)) => Err(fault),
        Err(Refusal::NotOffered | Refusal::NoPassword | Refusal::TooMany) => Ok(None),
    }
}

/// The letter for this user. Its link is in the store.
async fn letter_to(
    state: &State,
    realm: &Realm,
    user: &User,
    (appearance, texts): (&pages::Appearance, LetterTexts),
    audit: Option<&PendingAudit>,
) -> Result<Letter, Refusal> {
    let now_ms = state.clock.now_ms();
    let to = addresses(user).next().map(str::to_owned);
    let to = to.ok_or(Refusal::NoAddress)?;
    if !counts(state, &OF_USER, "user", &user.id.to_string(), now_ms).await {
        return Err(Refusal::TooMany);
    }
    let token = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
    let reset = StoredReset {
        hash: TokenHash::of(&token),
        realm: realm.path.clone(),
        user_id: user.id,
        bound: StoredReset::bound_to(user.password_hash.as_ref()),
        expires_ms: now_ms + RESET_LIFE_MS,
    };
    state.store.insert_reset(&reset, LINKS, audit).await?;
    let link = format!("{}/password/reset?token={token}", realm.issuer);
    let lang = ["preferredLanguage", "locale"]
        .iter()
        .find_map(|name| user.profile.get(*name)?.as_str());
    let minutes = RESET_LIFE_MS / 60_000;
    let (subject, text, lang) = texts.reset(appearance, lang, &user.user_name, &link, minutes);
    let told = json!({
        "event": "password.reset",
        "realm": realm.path,
        "user": {
            "id": user.id,
            "userName": user.user_name,
            "displayName": user.profile.get("displayName"),
            "email": to,
        },
        "language": lang,
        "subject": subject,
        "text": text,
        "link": link,
        "expires_at": reset.expires_ms / 1000,
    });
    Ok(Letter {
        to,
        subject,
        text,
        told,
    })
}

/// The user whom this name means, or this address alone, if a link may be sent.
async fn user_of(state: &State, realm: &Realm, typed: &str) -> Result<Option<User>, Fault> {
    let found = if typed.len() <= user_name::MAX {
        state.store.user_by_name(&realm.path, typed).await?
    } else {
        None
    };
    let found = match found {
        None if typed.contains('@') => by_address(state, realm, typed).await?,
        found => found,
    };
    match found {
        Some(user) if may_reset(state, realm, &user).await? => Ok(Some(user)),
        _ => Ok(None),
    }
}

/// The user of this e-mail address. One that several have is nobody's.
async fn by_address(state: &State, realm: &Realm, typed: &str) -> Result<Option<User>, Fault> {
    let filter = format!("emails.value eq {}", json!(typed));
    let Ok(filter) = scim::parse_filter(&filter) else {
        return Ok(None);
    };
    let query = UserQuery {
        filter,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: SAME_ADDRESS_MAX,
    };
    let mut page = state.store.users(&realm.path, &query).await?;
    let has = |user: &User| addresses(user).any(|address| fold(address) == fold(typed));
    page.users.retain(has);
    let only = page.users.pop();
    Ok(only.filter(|_| page.users.is_empty() && !page.more))
}

/// Whether a link may give `user` a new password: one who can sign in, with a
/// password that the store has and nobody else knows.
async fn may_reset(state: &State, realm: &Realm, user: &User) -> Result<bool, Fault> {
    let here = user.active && user.owner != Owner::File && user.password_hash.is_some();
    Ok(here && ldap::source(state, realm, Some(user)).await?.is_none())
}

/// The addresses that are written to, the primary one first. Those that are
/// said to be unverified are not: who finds a browser signed in, or a token,
/// must not get a password by it.
fn addresses(user: &User) -> impl Iterator<Item = &str> {
    let emails = user.profile.get("emails").and_then(Value::as_array);
    let mut emails: Vec<_> = emails.into_iter().flatten().collect();
    emails.retain(|email| email.get("verified") != Some(&json!(false)));
    emails.sort_by_key(|email| email.get("primary") != Some(&json!(true)));
    emails
        .into_iter()
        .filter_map(|email| email.get("value")?.as_str())
}

/// Answers with the page on which the holder of a link chooses a password, or
/// takes the password.
pub(super) async fn reset(call: &Call) -> Response {
    let frame = call.frame(None);
    let Some(again) = address(call) else {
        return pages::error(&frame, StatusCode::NOT_FOUND, "not_found", "");
    };
    let answer = if call.parts.method == Method::POST {
        set_password(call).await
    } else {
        reset_form(call).await
    };
    match answer {
        Ok(Outcome::Form(token, failed)) => pages::choose_password(&frame, &token, failed.as_ref()),
        Ok(Outcome::Gone) => pages::link_gone(&frame, &again),
        Ok(Outcome::Done) => pages::password_chosen(&frame),
        Err(error) => pages::error(&frame, error.status, error.error, &error.description),
    }
}

/// What the page shows.
enum Outcome {
    /// The form, with the token in it.
    Form(String, Option<ResetFailed>),
    /// That the link is good no more.
    Gone,
    /// That the password is another one now.
    Done,
}

async fn reset_form(call: &Call) -> Result<Outcome, OAuthError> {
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes());
    let query = query.map_err(|error| OAuthError::bad("invalid_request", error.to_string()))?;
    let Some(token) = query.get("token") else {
        return Ok(Outcome::Gone);
    };
    Ok(match good(call, token).await? {
        Some(_) => Outcome::Form(token.to_owned(), None),
        None => Outcome::Gone,
    })
}

/// The user of a link that is good.
async fn good(call: &Call, token: &str) -> Result<Option<User>, Fault> {
    let store = &call.state.store;
    let reset = store.reset(TokenHash::of(token)).await?;
    let reset =
        reset.filter(|reset| reset.realm == call.realm.path && call.now_ms < reset.expires_ms);
    let Some(reset) = reset else { return Ok(None) };
    let user = store.user(&reset.realm, reset.user_id).await?;
    let bound = |user: &User| StoredReset::bound_to(user.password_hash.as_ref()) == reset.bound;
    // A new password for the administrator is chosen where they may sign in.
    let user = user.filter(|user| !is_confined(call, &user.user_name));
    match user.filter(bound) {
        Some(user) if may_reset(&call.state, &call.realm, &user).await? => Ok(Some(user)),
        _ => Ok(None),
    }
}

async fn set_password(call: &Call) -> Result<Outcome, OAuthError> {
    let form = Form::parse(&call.body);
    let form = form.map_err(|error| OAuthError::bad("invalid_request", error.to_string()))?;
    let token = form.get("doorward_token").unwrap_or_default();
    let Some(user) = good(call, token).await? else {
        return Ok(Outcome::Gone);
    };
    let again = |failed| Ok(Outcome::Form(token.to_owned(), Some(failed)));
    let password = form.get("password").unwrap_or_default();
    if form.get("again").unwrap_or_default() != password {
        return again(ResetFailed::Differ);
    }
    let (state, realm) = (&call.state, &call.realm);
    let place = match state.hasher.enter() {
        Ok(place) => place,
        Err(_) => return again(ResetFailed::Busy),
    };
    let (password, rules) = (Secret::new(password), realm.password_rules().clone());
    let hash = state
        .hasher
        .hash_new(&place, &password, rules, own_texts(&user));
    let hash = match hash.await {
        Ok(hash) => hash,
        Err(NewPasswordError::Refused(wrong)) => return again(ResetFailed::Refused(wrong)),
        Err(NewPasswordError::Busy(_)) => return again(ResetFailed::Busy),
    };
    drop(place);
    audit::user(&user);
    audit::actor(Actor::User(user.id));
    let write = async |audit: Option<&PendingAudit>| {
        let (store, token) = (&state.store, TokenHash::of(token));
        store.reset_password(token, &hash, call.now_ms, audit).await
    };
    let reset = audit::with_if(
        state,
        Kind::PasswordReset,
        audit::as_it_is,
        write,
        Option::is_some,
    );
    if reset.await?.is_none() {
        return Ok(Outcome::Gone);
    }
    state.read_revocations().await?;
    state.backchannel_logout.wake();
    // Who can read the mail is not the one who guesses.
    let id = LockKind::Name.id(&realm.path, &user_name::key(&user.user_name));
    let mut locks = state.store.locks(0, call.now_ms).await?;
    locks.retain(|lock| lock.id == id && lock.until_ms > call.now_ms);
    state.lift_locks(&locks, call.now_ms, None).await?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::new_user;

    fn written_to(emails: Value) -> Vec<String> {
        let record = json!({"userName": "ann", "emails": emails});
        let user = new_user("/", record.as_object().expect("an object")).expect("a user");
        addresses(&user).map(str::to_owned).collect()
    }

    #[test]
    fn the_primary_address_is_written_to_first() {
        let all = json!([{"value": "a@x.example"}, {"value": "b@x.example", "primary": true}]);
        assert_eq!(written_to(all), ["b@x.example", "a@x.example"]);
        assert!(written_to(json!([])).is_empty());
    }

    #[test]
    fn takeover_by_an_address_that_a_stolen_token_has_added() {
        let all = json!([{"value": "thief@x.example", "verified": false, "primary": true},
            {"value": "a@x.example", "verified": true}]);
        assert_eq!(written_to(all), ["a@x.example"]);
    }
}
