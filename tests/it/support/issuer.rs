//! A foreign OpenID provider: discovery and keys over a real socket, and a
//! private key with which a test signs whatever it wants.

use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorward_core::clock::Clock;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{Reply, Upstream};

/// A key pair with its id.
struct Key {
    id: String,
    private: EncodingKey,
    public: Value,
}

impl Key {
    fn make(id: &str) -> Self {
        let rng = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng)
            .expect("a key pair");
        let private = EncodingKey::from_ec_der(der.as_ref());
        let jwk = Jwk::from_encoding_key(&private, Algorithm::ES256).expect("a public key");
        let mut public = serde_json::to_value(jwk).expect("a JWK is JSON");
        public["kid"] = Value::from(id);
        public["use"] = Value::from("sig");
        public["alg"] = Value::from("ES256");
        Self {
            id: id.to_owned(),
            private,
            public,
        }
    }
}

/// A provider of its own, with one signing key at a time.
pub(crate) struct Issuer {
    server: Upstream,
    key: Arc<Mutex<Key>>,
}

impl Issuer {
    /// Starts a provider.
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    /// Starts a provider on a given address.
    pub(crate) async fn at(address: &str) -> Self {
        let key = Arc::new(Mutex::new(Key::make("first")));
        let served = Arc::clone(&key);
        let server = Upstream::at(address, move |seen| {
            let host = seen.header("host").unwrap_or_default();
            match seen.target.as_str() {
                "/.well-known/openid-configuration" => Reply::Json(200, discovery(host)),
                "/keys" => {
                    let key = served.lock().expect("not poisoned");
                    Reply::Json(200, json!({"keys": [key.public]}))
                }
                _ => Reply::Json(404, json!({"error": "not_found"})),
            }
        })
        .await;
        Self { server, key }
    }

    /// The issuer's identifier.
    pub(crate) fn url(&self) -> String {
        self.server.url("")
    }

    /// How often its key set was fetched.
    pub(crate) fn key_fetches(&self) -> usize {
        let seen = self.server.seen();
        seen.iter()
            .filter(|request| request.target == "/keys")
            .count()
    }

    /// From now on there is another key, and only that.
    pub(crate) fn rotate(&self, id: &str) {
        *self.key.lock().expect("not poisoned") = Key::make(id);
    }

    /// Claims that pass: this issuer, an hour to live.
    pub(crate) fn claims(&self) -> Value {
        let now = Clock::system().now_secs();
        json!({"iss": self.url(), "sub": "ada", "aud": "api", "scope": "read write",
               "iat": now, "nbf": now, "exp": now + 3600})
    }

    /// [`Issuer::claims`] with some of them replaced; null removes.
    pub(crate) fn claims_with(&self, changes: Value) -> Value {
        let mut claims = self.claims();
        let fields = claims.as_object_mut().expect("an object");
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => fields.remove(name),
                other => fields.insert(name.clone(), other.clone()),
            };
        }
        claims
    }

    /// A token with these claims, signed with the current key.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let key = self.key.lock().expect("not poisoned");
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(key.id.clone());
        jsonwebtoken::encode(&header, claims, &key.private).expect("a signed token")
    }

    /// A token that passes.
    pub(crate) fn token(&self) -> String {
        self.sign(&self.claims())
    }

    /// The public key's JSON, as an attacker knows it.
    pub(crate) fn public_key(&self) -> Value {
        self.key.lock().expect("not poisoned").public.clone()
    }
}

fn discovery(host: &str) -> Value {
    let base = format!("http://{host}");
    json!({
        "issuer": base,
        "jwks_uri": format!("{base}/keys"),
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// A token of any header and claims with a signature of the test's choice.
pub(crate) fn forge(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!(
        "{}.{}.{}",
        part(header),
        part(claims),
        URL_SAFE_NO_PAD.encode(signature)
    )
}

/// The claims inside a token, unverified.
pub(crate) fn claims_of(token: &str) -> Value {
    let part = token.split('.').nth(1).expect("three parts");
    let bytes = URL_SAFE_NO_PAD.decode(part).expect("base64url");
    serde_json::from_slice(&bytes).expect("JSON claims")
}
