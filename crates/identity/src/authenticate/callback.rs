//! Sign-in by callbacks: the client is asked for name and password, and posts
//! the answers back with the `authId` it was given.
//!
//! The `authId` is signed and short-lived. Nothing is kept for it until it is
//! answered rightly: a guess costs a stranger the same with it as without. With
//! a right answer it is spent, on every node.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::error::{Fault, JsonError};
use super::super::{Call, respond};
use super::Options;
use doorward_core::clock::random_uuid;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::client::SignAlg;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::user::User;
use doorward_core::model::user::name_place::{NamePlace, SignInName};

/// Seconds to answer in.
const LIFE: i64 = 300;

/// How far apart the clocks of nodes may be, in seconds.
const SKEW: i64 = 60;

/// What a request says about who signs in.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) name: Option<SignInName>,
    pub(super) password: Option<String>,
    /// A second user name, which does not count.
    pub(super) other_name: Option<SignInName>,
    /// The code that was asked for after the password.
    pub(super) second: Option<SecondFactorAnswer>,
    /// The `authId` that these answer.
    pub(super) pending: Option<PendingLogin>,
}

/// A sign-in that an `authId` has begun: it ends once.
pub(super) struct PendingLogin {
    id: TokenHash,
    until_ms: i64,
}

impl PendingLogin {
    fn of(call: &Call, claims: &Map<String, Value>) -> Option<Self> {
        let id = claims.get("jti")?.as_str()?;
        let exp = claims.get("exp")?.as_i64()?;
        Some(Self {
            id: TokenHash::of(&format!("authId\n{}\n{id}", call.realm.issuer)),
            until_ms: exp.saturating_add(SKEW).saturating_mul(1000),
        })
    }

    /// Refuses a sign-in that has ended, before anything else is looked at.
    pub(super) async fn check(&self, call: &Call) -> Result<(), JsonError> {
        let seen = call.state.store.has_seen(self.id, call.now_ms).await;
        if seen.map_err(Fault::from)? {
            Err(timed_out())
        } else {
            Ok(())
        }
    }

    /// Ends the sign-in, if there is one that was begun before.
    ///
    /// # Errors
    /// It has ended already: as if its time were over.
    pub(super) async fn spend(call: &Call, pending: Option<&Self>) -> Result<(), JsonError> {
        let Some(Self { id, until_ms }) = pending else {
            return Ok(());
        };
        let store = &call.state.store;
        let first = store.remember(*id, *until_ms, call.now_ms).await;
        if first.map_err(Fault::from)? {
            Ok(())
        } else {
            Err(timed_out())
        }
    }
}

fn timed_out() -> JsonError {
    JsonError::new(StatusCode::REQUEST_TIMEOUT, "Session has timed out")
}

/// The answer to the question for a second factor.
pub(super) struct SecondFactorAnswer {
    /// Who has shown the password, and the version of their record then.
    pub(super) user_id: Uuid,
    pub(super) version: i64,
    /// The code.
    pub(super) code: String,
}

impl Credentials {
    /// Whether there is nothing to sign in with.
    pub(super) fn is_empty(&self) -> bool {
        self.names().next().is_none() && self.password.is_none()
    }

    /// Every user name that was sent.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        [&self.name, &self.other_name]
            .into_iter()
            .flatten()
            .map(SignInName::as_str)
    }
}

/// Asks for what is missing in `given`.
pub(super) async fn ask(
    call: &Call,
    given: &Credentials,
    options: &Options,
) -> Result<Response, JsonError> {
    let now = call.now_ms.div_euclid(1000);
    let mut claims = json!({
        "tokenName": "authId",
        "jti": random_uuid(),
        "iss": call.realm.issuer,
        "realm": call.realm.path,
        "iat": now,
        "exp": now + LIFE,
    });
    options.remember(&mut claims);
    let name = given.name.as_ref().map_or("", SignInName::as_str);
    let callbacks = [
        callback("NameCallback", "User Name:", "IDToken1", name),
        callback("PasswordCallback", "Password:", "IDToken2", ""),
    ];
    question(call, &claims, ("DataStore1", "Sign in"), &callbacks).await
}

/// Asks for the code of an app, or a recovery code, now that the password of
/// `user` was shown.
pub(super) async fn ask_code(
    call: &Call,
    user: &User,
    options: &Options,
) -> Result<Response, JsonError> {
    let now = call.now_ms.div_euclid(1000);
    let mut claims = json!({
        "tokenName": SECOND,
        "jti": random_uuid(),
        "iss": call.realm.issuer,
        "realm": call.realm.path,
        "name": user.user_name,
        "user": user.id,
        "version": user.version,
        "iat": now,
        "exp": now + LIFE,
    });
    options.remember(&mut claims);
    let callbacks = [callback(
        "PasswordCallback",
        "Verification code:",
        "IDToken1",
        "",
    )];
    question(call, &claims, ("TOTP2", "Verification code"), &callbacks).await
}

/// What `authId`s say they are that were given out after the password.
const SECOND: &str = "authId2";

async fn question(
    call: &Call,
    claims: &Value,
    (stage, header): (&str, &str),
    callbacks: &[Value],
) -> Result<Response, JsonError> {
    let signer = call.state.keys.signer(SignAlg::ES256).await?;
    let auth_id = signer.sign(claims).map_err(Fault::Key)?;
    let body = json!({
        "authId": auth_id,
        "template": "",
        "stage": stage,
        "header": header,
        "infoText": vec![""; callbacks.len()],
        "callbacks": callbacks,
    });
    Ok(respond::json(StatusCode::OK, &body))
}

fn callback(kind: &str, prompt: &str, input: &str, value: &str) -> Value {
    json!({
        "type": kind,
        "output": [{"name": "prompt", "value": prompt}],
        "input": [{"name": input, "value": value}],
    })
}

/// The credentials in a posted callback object; what the request that began it
/// asked for is added to `options`.
pub(super) fn submitted(
    call: &Call,
    body: &Map<String, Value>,
    options: &mut Options,
) -> Result<Credentials, JsonError> {
    let auth_id = body.get("authId").and_then(Value::as_str);
    let claims = auth_id.and_then(|auth_id| {
        let keys = call.state.keys.current();
        Unverified::parse(auth_id)
            .ok()?
            .verify(&keys.verifiers)
            .ok()
    });
    let refused = |status, text: &str| JsonError::new(status, text);
    let not_valid = || {
        let text = "The authId is missing or not valid";
        refused(StatusCode::BAD_REQUEST, text)
    };
    let is = |claims: &Map<String, Value>, name: &str, value: &str| {
        claims.get(name).and_then(Value::as_str) == Some(value)
    };
    let claims = claims
        .filter(|claims| is(claims, "tokenName", "authId") || is(claims, "tokenName", SECOND))
        .filter(|claims| is(claims, "iss", &call.realm.issuer))
        .ok_or_else(not_valid)?;
    let exp = claims
        .get("exp")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    if call.now_ms.div_euclid(1000) >= exp {
        return Err(timed_out());
    }
    options.recall(&claims);
    let pending = Some(PendingLogin::of(call, &claims).ok_or_else(not_valid)?);
    if is(&claims, "tokenName", SECOND) {
        let second = second(&claims, body)?;
        let known = claims.get("name").and_then(Value::as_str);
        return Ok(Credentials {
            name: known.map(SignInName::signed),
            second: Some(second),
            pending,
            ..Credentials::default()
        });
    }
    let [name, password] = answers(body, [&["NameCallback"], &["PasswordCallback"]])?;
    Ok(Credentials {
        name: Some(NamePlace::CallbackValue.says(name)),
        password: Some(password),
        pending,
        ..Credentials::default()
    })
}

/// The code in a posted callback object: clients know it by either callback.
fn second(
    claims: &Map<String, Value>,
    body: &Map<String, Value>,
) -> Result<SecondFactorAnswer, JsonError> {
    let [code] = answers(body, [&["PasswordCallback", "NameCallback"]])?;
    let user_id = claims.get("user").and_then(Value::as_str);
    let user_id = user_id.and_then(|id| Uuid::parse_str(id).ok());
    let version = claims.get("version").and_then(Value::as_i64);
    let (Some(user_id), Some(version)) = (user_id, version) else {
        return Err(other_callbacks());
    };
    Ok(SecondFactorAnswer {
        user_id,
        version,
        code,
    })
}

/// The answers to callbacks of these types: to as many as were sent, and in the
/// same order.
fn answers<const N: usize>(
    body: &Map<String, Value>,
    kinds: [&[&str]; N],
) -> Result<[String; N], JsonError> {
    let callbacks = body.get("callbacks").and_then(Value::as_array);
    let callbacks = callbacks.filter(|callbacks| callbacks.len() == N);
    let callbacks = callbacks.ok_or_else(other_callbacks)?;
    let answer = |(kinds, callback): (&&[&str], &Value)| {
        let kind = callback["type"].as_str()?;
        let typed = &callback["input"][0][NamePlace::CallbackValue.name()];
        let typed = typed.as_str().filter(|_| kinds.contains(&kind));
        typed.map(str::to_owned)
    };
    let all = kinds.iter().zip(callbacks).map(answer);
    let all: Option<Vec<String>> = all.collect();
    all.and_then(|all| all.try_into().ok())
        .ok_or_else(other_callbacks)
}

fn other_callbacks() -> JsonError {
    let text = "The callbacks are not those that were sent, or are in another order";
    JsonError::new(StatusCode::BAD_REQUEST, text)
}
