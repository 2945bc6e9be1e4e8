//! The schemas of consumers' credentials, a list of fields for each scheme.

use std::sync::LazyLock;

use serde_json::{Map, Value};
use url::Url;

use super::{checks, common};
use crate::entities::Scheme;
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::pem::PublicKey;
use doorward_core::model::credential::MASK;
use doorward_core::model::schema::{Field, Schema, Type, Violations};

/// Longest life of a key, in seconds.
pub const MAX_TTL: i64 = 100_000_000;

/// The algorithms of tokens; Ed448 is none of those that `EdDSA` stands for here.
const ALGORITHMS: &[&str] = &[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256",
    "PS384", "PS512", "EdDSA",
];

/// Whether an application can keep a secret.
const CLIENT_TYPES: &[&str] = &["confidential", "public"];

/// The fields of a credential.
pub fn credential(scheme: Scheme) -> &'static Schema {
    static SCHEMAS: LazyLock<[Schema; 6]> = LazyLock::new(|| {
        [
            of(key_auth()),
            of(vec![
                name("username").required().unique(),
                secret("password").required(),
            ]),
            of(jwt()).check(some_public_key),
            of(vec![
                name("username").required().unique(),
                secret("secret").auto(),
            ]),
            of(oauth2()),
            of(vec![name("group").required()]),
        ]
    });
    &SCHEMAS[scheme as usize]
}

fn of(own: Vec<Field>) -> Schema {
    let mut fields = common();
    fields.retain(|field| field.name != "updated_at");
    fields.push(Field::new("consumer", Type::Foreign("consumers")).required());
    fields.extend(own);
    Schema::new(fields)
}

fn name(name: &'static str) -> Field {
    Field::new(name, Type::checked(checks::some_text))
}

fn secret(name: &'static str) -> Field {
    Field::new(name, Type::checked(no_mask))
}

/// The mask in the place of a secret would be the secret.
fn no_mask(text: &str) -> Result<(), String> {
    if text == MASK {
        return Err(format!("'{MASK}' stands for a text that is not shown"));
    }
    checks::some_text(text)
}

fn key_auth() -> Vec<Field> {
    vec![
        secret("key").auto().unique(),
        Field::new("ttl", Type::Integer(0, MAX_TTL)),
        Field::new("expires_at", Type::Integer(0, i64::MAX)),
    ]
}

fn jwt() -> Vec<Field> {
    vec![
        name("key").auto().unique(),
        secret("secret").auto(),
        Field::new("rsa_public_key", Type::text()),
        Field::new("algorithm", Type::word(ALGORITHMS))
            .default("HS256")
            .required(),
    ]
}

fn oauth2() -> Vec<Field> {
    vec![
        name("name").required(),
        name("client_id").auto().unique(),
        Field::new("client_secret", Type::checked(some_secret)).auto(),
        Field::new("hash_secret", Type::Boolean)
            .default(false)
            .required(),
        Field::new("redirect_uris", Type::array(Type::checked(redirect_uri))),
        Field::new("client_type", Type::word(CLIENT_TYPES))
            .default("confidential")
            .required(),
    ]
}

/// A hash that the imitated gateway has made is of a kind that is not checked here.
fn some_secret(text: &str) -> Result<(), String> {
    if text.starts_with("$pbkdf2-") {
        return Err("is a hash of the imitated gateway: give the secret itself".to_owned());
    }
    no_mask(text)
}

fn redirect_uri(text: &str) -> Result<(), String> {
    let uri = Url::parse(text).ok().filter(Url::has_host);
    match uri {
        None => Err(format!("cannot parse '{text}'")),
        Some(uri) if uri.fragment().is_some() => Err(format!("fragment not allowed in '{text}'")),
        Some(_) => Ok(()),
    }
}

/// An algorithm with a public key needs one that can be read.
fn some_public_key(record: &Map<String, Value>, violations: &mut Violations) {
    let text = |field: &str| record.get(field).and_then(Value::as_str);
    let algorithm = text("algorithm").and_then(Algorithm::named);
    let Some(algorithm) = algorithm.filter(|algorithm| !algorithm.is_symmetric()) else {
        return;
    };
    match text("rsa_public_key") {
        None => violations.put("rsa_public_key", "required field missing"),
        Some(pem) if PublicKey::read(algorithm, pem).is_none() => {
            violations.put("rsa_public_key", "invalid key");
        }
        Some(_) => {}
    }
}
