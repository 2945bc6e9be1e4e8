//! A token, taken apart; nothing of it is believed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::json;
use doorward_core::jose::verify::TOKEN_MAX;

/// The parts of a token.
pub(super) struct Token<'a> {
    /// Header and payload as they are signed.
    pub(super) signed: &'a str,
    header: Map<String, Value>,
    pub(super) claims: Map<String, Value>,
    pub(super) signature: Vec<u8>,
    pub(super) algorithm: Algorithm,
}

impl<'a> Token<'a> {
    /// Takes a compact token apart.
    ///
    /// # Errors
    /// The message for the client.
    pub(super) fn read(text: &'a str) -> Result<Self, &'static str> {
        const NO_JSON: &str = "Bad token; invalid JSON";
        if text.len() > TOKEN_MAX {
            return Err(NO_JSON);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(NO_JSON)?;
        let (header, payload) = signed.split_once('.').ok_or(NO_JSON)?;
        let header = object(header).ok_or(NO_JSON)?;
        // What a token demands to be understood is not (RFC 7515 §4.1.11).
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(NO_JSON);
        }
        let algorithm = header.get("alg").and_then(Value::as_str);
        let algorithm = algorithm.and_then(Algorithm::named);
        Ok(Self {
            signed,
            algorithm: algorithm.ok_or("Bad token; invalid alg")?,
            claims: object(payload).ok_or("Bad token; invalid claims")?,
            signature: URL_SAFE_NO_PAD
                .decode(signature)
                .map_err(|_| "Bad token; invalid signature")?,
            header,
        })
    }

    /// A text of the payload, or else of the header.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let of_payload = self.claims.get(name).filter(|value| !value.is_null());
        of_payload.or_else(|| self.header.get(name))?.as_str()
    }
}

fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    json::object(&bytes).ok()
}
