//! Browsers that a user let go without the second factor for some days, where
//! the realm allows that.
//!
//! The cookie names user and factor, and ends with either, and with the password:
//! removing the factor that was shown, or choosing another password, is enough to
//! be asked again everywhere. What was remembered is
//! no method: tokens do not say `mfa` for it.

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::error::Fault;
use crate::{Call, cookies};
use doorward_core::clock::random_bytes;
use doorward_core::model::factor::StoredFactor;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "doorward-trusted";

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Digest of what the cookie says, for the password that is in force.
fn mac(call: &Call, user: &User, secret: &str, said: &[&str]) -> String {
    let key = call.state.clients.browser_key(secret);
    let mut context = aws_lc_rs::hmac::Context::with_key(&key);
    let hash = user.password_hash.as_ref().map_or("", Secret::expose);
    for part in [&["trusted browser", &*call.realm.path, hash], said].concat() {
        context.update(&part.len().to_be_bytes());
        context.update(part.as_bytes());
    }
    URL_SAFE_NO_PAD.encode(context.sign())
}

/// Lets this browser go without a second factor, as its user wishes and the
/// realm allows.
pub(super) fn remember(call: &Call, response: &mut Response, user: &User, factor: Uuid) {
    let days = i64::from(call.realm.settings.factors.remember_browser_days);
    if days == 0 {
        return;
    }
    let secret = URL_SAFE_NO_PAD.encode(random_bytes::<24>());
    let until = (call.now_ms + days * DAY_MS).to_string();
    let said = [user.id.to_string(), factor.to_string(), until];
    let said: Vec<_> = said.iter().map(String::as_str).collect();
    let mac = mac(call, user, &secret, &said);
    let value = format!("{}.{secret}.{mac}", said.join("."));
    let live = &call.live;
    let name = cookies::name(live, COOKIE);
    cookies::set_for(response, live, &name, &value, days * 24 * 3600);
}

/// Whether this browser was let go without one of `factors`.
pub(super) async fn remembers(
    call: &Call,
    user: &User,
    factors: &[StoredFactor],
) -> Result<bool, Fault> {
    let days = i64::from(call.realm.settings.factors.remember_browser_days);
    let value = {
        let live = &call.live;
        cookies::value(call.headers(), &cookies::name(live, COOKIE)).map(str::to_owned)
    };
    let Some(value) = value.filter(|value| days > 0 && value.len() <= 512) else {
        return Ok(false);
    };
    let parts: Vec<_> = value.split('.').collect();
    let [user_id, factor, until, secret, given] = parts[..] else {
        return Ok(false);
    };
    // The password may be another one since the user was read: one that the
    // configuration file declares is hashed by its first use.
    let store = &call.state.store;
    let Some(user) = store.user(&call.realm.path, user.id).await? else {
        return Ok(false);
    };
    let right: bool = mac(call, &user, secret, &[user_id, factor, until])
        .as_bytes()
        .ct_eq(given.as_bytes())
        .into();
    let until: i64 = until.parse().unwrap_or_default();
    // Also not for longer than the realm allows by now.
    let in_time = call.now_ms < until && until <= call.now_ms + days * DAY_MS;
    let known = factors.iter().any(|known| known.id.to_string() == factor);
    Ok(right && in_time && known && user.id.to_string() == user_id)
}
