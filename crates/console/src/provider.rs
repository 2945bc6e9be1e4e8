//! Signing in through the identity provider of this process: the authorization
//! code flow (OpenID Connect Core §3.1) with PKCE (RFC 7636), state and nonce.
//!
//! Between the two ends nothing is kept here. What must come back travels sealed
//! for the browser that was sent; nonce and verifier are derived from it.

use std::collections::HashMap;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use doorward_core::clock::random_bytes;
use doorward_core::model::audit::Person;
use doorward_identity::{CodeExchange, ExchangeError, Member, OwnClient, SignIn, SignInRequest};
use doorward_net::session::cookie::{SameSite, Style};
use doorward_net::session::seal::{SealError, Sealer};
use doorward_net::telemetry::warn_limited;

use super::config::RoleGroups;
use super::error::{PageError, SignInError};
use super::session::Role;
use super::visit::Visit;
use super::{CALLBACK, PREFIX, SIGN_IN, path};

/// How long a browser may be away, in milliseconds.
const AWAY_MS: i64 = 30 * 60 * 1000;
/// Longest address that a sign-in leads back to, in bytes.
const TO_MAX: usize = 1024;
/// Longest state that is opened, in bytes.
const STATE_MAX: usize = 4096;
/// Most spent states that are remembered. Beyond it the oldest are forgotten: their
/// codes are still good once.
const SPENT_MAX: usize = 10_000;
/// Length of a browser's key, in characters.
const KEY_LEN: usize = 43;

/// The provider, as pages need it.
pub struct ProviderParts {
    /// The console as its client.
    pub client: OwnClient,
    /// Who may do what.
    pub roles: RoleGroups,
    /// The origins under which people sign in ([`super::ConsoleSettings::origins`]).
    pub origins: Vec<String>,
    /// Whether the first origin is the console's address for all who came under
    /// another.
    pub has_address: bool,
    /// How long ago a person may have signed in who changes something, in seconds;
    /// `None`: as long as the session lasts.
    pub step_up_age: Option<u32>,
}

/// The provider whose users sign in.
pub(crate) struct Provider {
    parts: ProviderParts,
    states: Sealer,
    key: hmac::Key,
    style: Style,
    spent: Mutex<HashMap<String, i64>>,
}

/// A browser's way through the provider.
#[derive(Debug, Serialize, Deserialize)]
struct LoginState {
    id: String,
    /// Where it goes on.
    to: String,
    began_ms: i64,
    /// Under which address it came, and comes back.
    origin: String,
    /// Whether the person has to sign in anew.
    is_fresh: bool,
}

/// What a sign-in is good for now.
pub(crate) enum SignInStatus {
    /// It has ended.
    Ended,
    /// None of the person's groups has a role.
    NoRole(Person),
    /// The person, who is in these groups, has this role.
    Role(Member, Role),
}

/// Where a browser goes that is to sign in.
pub(crate) struct Departure {
    pub(crate) address: String,
    pub(crate) cookies: Vec<HeaderValue>,
}

/// A browser that came back with the provider's word.
pub(crate) struct Arrival {
    pub(crate) sign_in: SignIn,
    pub(crate) to: String,
}

/// Where the way through the provider begins that leads to `to`.
pub(crate) fn way(to: &str, is_fresh: bool) -> String {
    let fresh = if is_fresh { "1" } else { "" };
    path::with_query("/console/sign-in/provider", [("to", to), ("fresh", fresh)])
}

impl Provider {
    pub(crate) fn new(parts: ProviderParts, port: u16) -> Result<Self, SealError> {
        let (seal, derive) = (random_bytes::<32>(), random_bytes::<32>());
        let name = format!("doorward_console_sign_in_{port}");
        let style = Style::new(&name, PREFIX, None).map_err(|_| SealError)?;
        Ok(Self {
            parts,
            states: Sealer::new("console sign-in", [&seal[..]])?,
            key: hmac::Key::new(hmac::HMAC_SHA256, &derive),
            // The provider's site leads back here: `Strict` would leave it out.
            style: style.with(SameSite::Lax, true, None),
            spent: Mutex::default(),
        })
    }

    /// The key of the visitor's browser, which nobody else knows.
    fn key_of(&self, visit: &Visit) -> Option<String> {
        let key = self.style.read(&visit.headers)??;
        (key.len() == KEY_LEN).then(|| key.into_owned())
    }

    /// What only this process can say of a browser's state.
    fn derived(&self, what: &str, key: &str, state: &str) -> String {
        let text = format!("{what} {key} {state}");
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key, text.as_bytes()))
    }

    /// The origin under which the visitor came, if people sign in there.
    fn origin(&self, visit: &Visit) -> Option<&str> {
        let is_host = |origin: &&String| {
            let host = origin.split_once("://").map_or("", |(_, host)| host);
            host.eq_ignore_ascii_case(&visit.host)
        };
        let mut origins = self.parts.origins.iter();
        origins.find(is_host).map(String::as_str)
    }

    /// Whether a person has to sign in anew before changing something.
    pub(crate) fn needs_step_up(&self, sign_in: &SignIn, now_ms: i64) -> bool {
        let age = self.parts.step_up_age;
        age.is_some_and(|age| !sign_in.is_within(i64::from(age), now_ms))
    }

    /// Sends a browser to the provider; under an address to which nobody is sent
    /// back, to the console's own address first.
    pub(crate) fn depart(
        &self,
        visit: &Visit,
        to: &str,
        is_fresh: bool,
    ) -> Result<Departure, PageError> {
        let to = if to.len() > TO_MAX { PREFIX } else { to };
        let Some(origin) = self.origin(visit) else {
            let first = self.parts.origins.first();
            let first = first.filter(|_| self.parts.has_address);
            let first = first.ok_or(PageError::SignIn(SignInError::Address))?;
            let address = way(to, is_fresh);
            return Ok(Departure {
                address: format!("{first}{address}"),
                cookies: Vec::new(),
            });
        };
        let mut cookies = Vec::new();
        let key = match self.key_of(visit) {
            Some(key) => key,
            None => {
                let key = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
                let kept = self.style.keep(&key, &visit.headers, visit.is_secure());
                cookies = kept.map_err(|_| PageError::Unavailable)?;
                key
            }
        };
        let state = LoginState {
            id: URL_SAFE_NO_PAD.encode(random_bytes::<16>()),
            to: to.to_owned(),
            began_ms: visit.now_ms(),
            origin: origin.to_owned(),
            is_fresh,
        };
        let state = serde_json::to_vec(&state).map_err(|_| PageError::Unavailable)?;
        let state = self.states.seal(key.as_bytes(), &state);
        let state = state.map_err(|_| PageError::Unavailable)?;
        let address = self.parts.client.sign_in_address(&SignInRequest {
            redirect_uri: &format!("{origin}{CALLBACK}"),
            state: &state,
            nonce: &self.derived("nonce", &key, &state),
            verifier: &self.derived("verifier", &key, &state),
            language: visit.texts.lang,
            is_fresh,
        });
        Ok(Departure {
            address: address.ok_or(PageError::Unavailable)?,
            cookies,
        })
    }

    /// Takes a browser in that the provider sent back.
    pub(crate) async fn arrive(&self, visit: &Visit) -> Result<Arrival, PageError> {
        let refused = |error| PageError::SignIn(error);
        let sealed = visit.query("state");
        let (key, state) = self
            .open(visit, sealed)
            .ok_or(refused(SignInError::State))?;
        if !self.spend(&state.id, visit.now_ms()) {
            let to = path::own(&state.to).to_owned();
            return Err(refused(SignInError::Spent(to)));
        }
        // The provider names itself in every answer, errors too (RFC 9207 §2).
        if !self.parts.client.is_issuer(visit.query("iss")) {
            return Err(refused(SignInError::Answer));
        }
        let error = visit.query("error");
        if !error.is_empty() {
            let error: String = error.chars().take(100).collect();
            return Err(refused(SignInError::Refused(error)));
        }
        let exchange = CodeExchange {
            code: visit.query("code"),
            redirect_uri: &format!("{}{CALLBACK}", state.origin),
            nonce: &self.derived("nonce", &key, sealed),
            verifier: &self.derived("verifier", &key, sealed),
            signed_in_since: state.is_fresh.then(|| state.began_ms.div_euclid(1000)),
        };
        let exchanged = self.parts.client.exchange(&exchange, visit.client).await;
        let sign_in = exchanged.map_err(|error| {
            warn_limited!(%error, "a sign-in at the console failed");
            match error {
                ExchangeError::Unavailable => PageError::Unavailable,
                ExchangeError::Refused(_) | ExchangeError::Token(_) => refused(SignInError::Answer),
            }
        })?;
        Ok(Arrival {
            sign_in,
            to: path::own(&state.to).to_owned(),
        })
    }

    /// The state that this browser was sent away with, not too long ago.
    fn open(&self, visit: &Visit, sealed: &str) -> Option<(String, LoginState)> {
        if sealed.len() > STATE_MAX {
            return None;
        }
        let key = self.key_of(visit)?;
        let plain = self.states.open(key.as_bytes(), sealed).ok()?;
        let state: LoginState = serde_json::from_slice(&plain).ok()?;
        let age_ms = visit.now_ms() - state.began_ms;
        (0..AWAY_MS).contains(&age_ms).then_some((key, state))
    }

    /// Whether a state was not used before; from now on it was.
    fn spend(&self, id: &str, now_ms: i64) -> bool {
        let mut spent = self.spent.lock();
        spent.retain(|_, until_ms| now_ms < *until_ms);
        if spent.len() >= SPENT_MAX {
            let first = spent.iter().min_by_key(|(_, until_ms)| **until_ms);
            if let Some(first) = first.map(|(id, _)| id.clone()) {
                spent.remove(&first);
            }
        }
        spent.insert(id.to_owned(), now_ms + AWAY_MS).is_none()
    }

    /// What a sign-in is good for now. `used`: somebody does something with it.
    pub(crate) async fn status(
        &self,
        sign_in: &SignIn,
        used: bool,
    ) -> Result<SignInStatus, PageError> {
        let member = self.parts.client.member(sign_in, used).await;
        let member = member.map_err(|error| {
            warn_limited!(%error, "nobody knows whether a session of the console stands");
            PageError::Unavailable
        })?;
        Ok(match member {
            None => SignInStatus::Ended,
            Some(member) => match self.parts.roles.role_of(&member.groups) {
                None => SignInStatus::NoRole(member.person),
                Some(role) => SignInStatus::Role(member, role),
            },
        })
    }

    /// The role of a person who is in these groups.
    pub(crate) fn role_of(&self, groups: &[String]) -> Option<Role> {
        self.parts.roles.role_of(groups)
    }

    /// The console as a client.
    pub(crate) fn client(&self) -> &OwnClient {
        &self.parts.client
    }

    /// The address at which a browser ends its session at the provider, and comes
    /// back.
    pub(crate) fn sign_out_address(&self, visit: &Visit) -> Option<String> {
        let origin = self.origin(visit)?;
        let back = format!("{origin}{SIGN_IN}");
        self.parts.client.sign_out_address(&back)
    }
}
