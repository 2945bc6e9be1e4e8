//! How a client proves who it is at an endpoint of its provider (RFC 6749 §2.3,
//! RFC 7523 §2.2, OpenID Connect Core §9).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use doorward_core::clock::random_bytes;
use doorward_core::jose::keys::KeyError;
use doorward_core::jose::sign::Signer;
use doorward_core::model::secret::Secret;

/// Life of an assertion, in seconds.
const ASSERTION_LIFE: i64 = 60;
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What a client proves itself with.
#[derive(Clone, Copy)]
pub enum Proof<'a> {
    /// Its secret, in a header (`client_secret_basic`).
    Basic(&'a Secret),
    /// Its secret, in the form (`client_secret_post`).
    Post(&'a Secret),
    /// A token that its secret or a key of its own signs (`client_secret_jwt`,
    /// `private_key_jwt`).
    Assertion {
        /// What signs it.
        signer: &'a Signer,
        /// Whom it is for.
        audience: &'a str,
        /// When it is made, in seconds.
        now: i64,
    },
    /// Nothing in the request: it is a public client (`none`), or its connection
    /// proves it (`tls_client_auth`).
    Name,
}

/// Adds what proves the client to a request.
///
/// # Errors
/// The assertion can't be signed.
pub fn authenticate(
    client_id: &str,
    proof: Proof<'_>,
    form: &mut Vec<(String, String)>,
    headers: &mut HeaderMap,
) -> Result<(), KeyError> {
    match proof {
        // The header says who it is.
        Proof::Basic(secret) => {
            headers.insert(AUTHORIZATION, basic(client_id, secret.expose()));
            return Ok(());
        }
        Proof::Post(secret) => set(form, "client_secret", secret.expose()),
        Proof::Assertion {
            signer,
            audience,
            now,
        } => {
            let assertion = signer.sign(&assertion(client_id, audience, now))?;
            set(form, "client_assertion_type", ASSERTION_TYPE);
            set(form, "client_assertion", &assertion);
        }
        Proof::Name => {}
    }
    set(form, "client_id", client_id);
    Ok(())
}

/// Says something in a form that nothing else says there, whatever it had.
fn set(form: &mut Vec<(String, String)>, name: &str, value: &str) {
    form.retain(|(one, _)| one != name);
    form.push((name.to_owned(), value.to_owned()));
}

/// A value of `Authorization` with both halves form-encoded before they are joined
/// (RFC 6749 §2.3.1).
pub fn basic(client_id: &str, secret: &str) -> HeaderValue {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = STANDARD.encode(format!("{}:{}", encode(client_id), encode(secret)));
    let value = HeaderValue::try_from(format!("Basic {pair}"));
    let mut value = value.expect("base64 is visible ASCII");
    value.set_sensitive(true);
    value
}

fn assertion(client_id: &str, audience: &str, now: i64) -> Value {
    json!({
        "iss": client_id, "sub": client_id, "aud": audience,
        "iat": now, "exp": now + ASSERTION_LIFE,
        "jti": URL_SAFE_NO_PAD.encode(random_bytes::<16>()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::jose::verify::Unverified;
    use doorward_core::model::client::SignAlg;

    /// What a request says of the client, to which somebody had added a secret.
    fn sent(proof: Proof<'_>) -> (Vec<(String, String)>, HeaderMap) {
        let mut form = vec![("client_secret".to_owned(), "other".to_owned())];
        let mut headers = HeaderMap::new();
        authenticate("app", proof, &mut form, &mut headers).expect("signed");
        (form, headers)
    }

    fn names(form: &[(String, String)]) -> Vec<&str> {
        form.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_secret_is_in_one_place() {
        let secret = Secret::new("hush");
        let (form, headers) = sent(Proof::Post(&secret));
        let pairs = [("client_secret", "hush"), ("client_id", "app")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(form, pairs);
        assert!(headers.is_empty());
        let (_, headers) = sent(Proof::Basic(&secret));
        assert_eq!(headers[AUTHORIZATION], basic("app", "hush"));
    }

    #[test]
    fn names_and_secrets_with_any_character_are_joined_unambiguously() {
        let value = basic("a:b", "ü +/%");
        let text = value.to_str().expect("ASCII").strip_prefix("Basic ");
        let text = STANDARD.decode(text.expect("the scheme")).expect("base64");
        assert_eq!(text, b"a%3Ab:%C3%BC+%2B%2F%25");
        assert!(value.is_sensitive());
    }

    #[test]
    fn an_assertion_is_of_the_client_for_a_minute() {
        let secret = "0123456789abcdef0123456789abcdef";
        let signer = Signer::from_secret(SignAlg::HS256, secret).expect("a signer");
        let proof = Proof::Assertion {
            signer: &signer,
            audience: "https://id",
            now: 100,
        };
        let (form, headers) = sent(proof);
        assert!(headers.is_empty());
        let said = ["client_secret", "client_assertion_type", "client_assertion"];
        assert_eq!(names(&form)[..3], said);
        assert_eq!(form[1].1, ASSERTION_TYPE);
        let parsed = Unverified::parse(&form[2].1).expect("a token");
        let claims = parsed.verify_hmac(secret.as_bytes()).expect("signed");
        assert!(claims["jti"].as_str().is_some_and(|id| id.len() == 22));
        for (name, value) in [
            ("iss", json!("app")),
            ("sub", json!("app")),
            ("aud", json!("https://id")),
            ("iat", json!(100)),
            ("exp", json!(160)),
        ] {
            assert_eq!(claims[name], value, "{name}");
        }
    }

    #[test]
    fn a_client_without_a_proof_says_its_name() {
        let (form, headers) = sent(Proof::Name);
        assert_eq!(names(&form), ["client_secret", "client_id"]);
        assert!(headers.is_empty());
    }
}
