//! The schemas of keys and key sets.

use std::sync::LazyLock;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::SigningKey;
use serde_json::{Map, Value, json};

use super::{checks, common};
use doorward_core::jose::jwks;
use doorward_core::model::credential::MASK;
use doorward_core::model::key::PRIVATE_MEMBERS;
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_core::model::vault::is_reference;

/// The fields of a key set.
pub fn key_set() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.push(Field::new("name", Type::checked(checks::some_text)).unique());
        Schema::new(fields)
    });
    &SCHEMA
}

/// The fields of a key.
pub fn key() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        let pem = Schema::new(vec![
            Field::new("private_key", Type::checked(private_key)).referenceable(),
            Field::new("public_key", Type::checked(public_key)).referenceable(),
        ]);
        fields.extend([
            Field::new("name", Type::checked(checks::some_text)).unique(),
            Field::new("kid", Type::checked(checks::some_text)).required(),
            Field::new("set", Type::Foreign("key_sets")),
            Field::new("jwk", Type::checked(jwk)).referenceable(),
            Field::new("pem", Type::Record(pem)),
        ]);
        Schema::new(fields)
            .check(one_form)
            .check(jwk_is_a_key)
            .check(halves_match)
    });
    &SCHEMA
}

/// The mask in the place of a secret would be the secret.
fn no_mask(text: &str) -> Result<(), String> {
    if text == MASK {
        return Err(format!("'{MASK}' stands for a text that is not shown"));
    }
    Ok(())
}

/// That no member is masked; what else is wrong is told of the whole record.
fn jwk(text: &str) -> Result<(), String> {
    let value: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    for member in PRIVATE_MEMBERS {
        value
            .get(member)
            .and_then(Value::as_str)
            .map_or(Ok(()), no_mask)?;
    }
    Ok(())
}

/// Whether the public half of a JWK is a key, whatever it is for.
fn has_public_key(jwk: Map<String, Value>) -> bool {
    let of_key = ["kty", "crv", "n", "e", "x", "y"];
    let public: Map<String, Value> = jwk
        .into_iter()
        .filter(|(name, _)| of_key.contains(&name.as_str()))
        .collect();
    let set = json!({"keys": [public]}).to_string();
    jwks::KeySet::parse(set.as_bytes()).is_ok_and(|set| !set.is_empty())
}

fn signing_key(pem: &str) -> Option<std::sync::Arc<dyn SigningKey>> {
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()?;
    rustls::crypto::aws_lc_rs::sign::any_supported_type(&der).ok()
}

fn private_key(pem: &str) -> Result<(), String> {
    no_mask(pem)?;
    let key = signing_key(pem);
    key.map(drop)
        .ok_or_else(|| "could not load private key".to_owned())
}

fn public_der(pem: &str) -> Option<SubjectPublicKeyInfoDer<'static>> {
    SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).ok()
}

fn public_key(pem: &str) -> Result<(), String> {
    let key = public_der(pem);
    key.map(drop)
        .ok_or_else(|| "could not load public key".to_owned())
}

fn text<'a>(record: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    record.get(field).and_then(Value::as_str)
}

fn one_form(record: &Map<String, Value>, violations: &mut Violations) {
    let is_set = |field: &str| record.get(field).is_some_and(|value| !value.is_null());
    match (is_set("jwk"), is_set("pem")) {
        (true, true) => {
            violations.put_entity("only one of these fields must be non-empty: 'jwk', 'pem'");
        }
        (false, false) => {
            violations.put_entity("at least one of these fields must be non-empty: 'jwk', 'pem'");
        }
        _ => {}
    }
}

/// The first thing that is wrong with a JWK is told.
fn jwk_is_a_key(record: &Map<String, Value>, violations: &mut Violations) {
    let Some(jwk) = text(record, "jwk").filter(|text| !is_reference(text)) else {
        return;
    };
    if violations.has("jwk") || violations.has("kid") {
        return;
    }
    let Ok(jwk) = serde_json::from_str::<Map<String, Value>>(jwk) else {
        violations.put_entity("could not json decode jwk string");
        return;
    };
    if jwk.get("kid").and_then(Value::as_str) != text(record, "kid") {
        violations.put_entity("kid in jwk.kid must be equal to keys.kid");
    } else if !has_public_key(jwk) {
        violations.put_entity("could not load JWK, likely not a valid key");
    }
}

fn halves_match(record: &Map<String, Value>, violations: &mut Violations) {
    let Some(pem) = record.get("pem").and_then(Value::as_object) else {
        return;
    };
    let (private, public) = (text(pem, "private_key"), text(pem, "public_key"));
    if private.is_none() && public.is_none() {
        violations.put(
            "pem",
            "at least one of these fields must be non-empty: 'private_key', 'public_key'",
        );
    }
    let (Some(private), Some(public)) = (private, public) else {
        return;
    };
    if let (Some(private), Some(public)) = (signing_key(private), public_der(public))
        && private.public_key().is_some_and(|own| own != public)
    {
        violations.put_entity("public key does not match private key");
    }
}
