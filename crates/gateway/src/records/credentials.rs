//! Credentials: what is made up for them, and how much of them is shown.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Resource;
use crate::entities::{Entities, Record, Scheme, SchemeFields};
use crate::schemas;
use doorward_core::clock::random_bytes;
use doorward_core::model::credential::{Credential, MASK, is_key_digest};
use doorward_core::model::schema::{Schema, Violations};
use doorward_plugins::basic_auth;

/// How much of records is shown, and when.
#[derive(Clone, Copy, Debug)]
pub struct Disclosure {
    /// Now, in milliseconds since the epoch.
    pub now_ms: i64,
    /// Whether the secrets of credentials are shown.
    pub secrets: bool,
}

/// Letters and digits of what is generated: 190 bits.
const LENGTH: usize = 32;
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

impl<S: SchemeFields + DeserializeOwned> Resource for Credential<S> {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::credential(S::SCHEME))
    }

    /// There is no such field.
    fn update_time(_: i64) -> Value {
        Value::Null
    }

    fn settle(record: &mut Map<String, Value>, now_ms: i64) {
        let generated: &[&str] = match S::SCHEME {
            Scheme::KeyAuth => &["key"],
            Scheme::Jwt => &["key", "secret"],
            Scheme::HmacAuth => &["secret"],
            Scheme::OAuth2 => &["client_id", "client_secret"],
            Scheme::BasicAuth | Scheme::Acl => &[],
        };
        for field in generated {
            // A null that was given stays one.
            record.entry(*field).or_insert_with(|| random_text().into());
        }
        if S::SCHEME == Scheme::KeyAuth {
            settle_ttl(record, now_ms);
        }
    }

    fn show(record: &Record<Self>, _: &Entities, disclosure: Disclosure) -> Map<String, Value> {
        let mut doc = record.doc();
        if let Some(field) = S::SCHEME.secret()
            && let Some(Value::String(text)) = doc.get_mut(field)
            && !(disclosure.secrets && is_showable(S::SCHEME, text))
        {
            *text = MASK.to_owned();
        }
        if let Some(end) = record.value.scheme.expires_at() {
            let left = end - disclosure.now_ms.div_euclid(1000);
            doc.insert("ttl".to_owned(), left.max(0).into());
        }
        doc
    }

    fn is_over(&self, now_ms: i64) -> bool {
        let end = self.scheme.expires_at();
        end.is_some_and(|end| end <= now_ms.div_euclid(1000))
    }
}

/// A hash is no key, and a password that a file declares is nobody's business.
fn is_showable(scheme: Scheme, text: &str) -> bool {
    match scheme {
        Scheme::KeyAuth | Scheme::OAuth2 => !is_key_digest(text),
        Scheme::BasicAuth => basic_auth::is_hash(text),
        _ => true,
    }
}

/// A time to live is kept as the time of the end.
fn settle_ttl(record: &mut Map<String, Value>, now_ms: i64) {
    let ttl = record.get("ttl").and_then(Value::as_i64);
    let Some(ttl) = ttl.filter(|ttl| (0..=schemas::MAX_TTL).contains(ttl)) else {
        return;
    };
    let end = match ttl {
        0 => Value::Null,
        ttl => (now_ms.div_euclid(1000) + ttl).into(),
    };
    record.insert("expires_at".to_owned(), end);
    record.insert("ttl".to_owned(), Value::Null);
}

/// A text that nobody guesses.
pub(super) fn random_text() -> String {
    let mut text = String::with_capacity(LENGTH);
    while text.len() < LENGTH {
        for byte in random_bytes::<LENGTH>() {
            // The last bytes would make the first letters likelier.
            let letter = LETTERS.get(usize::from(byte) & 63);
            if text.len() < LENGTH {
                text.extend(letter.map(|letter| char::from(*letter)));
            }
        }
    }
    text
}
