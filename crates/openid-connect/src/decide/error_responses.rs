//! The answers to refused requests, made when the filter is built.

use http::header::{CACHE_CONTROL, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use url::Url;

use crate::config::address::Address;
use crate::config::fields::client::ProofRequirement;
use crate::config::fields::{Fields, wrong};
use crate::decide::refusal::{Class, Refusal};
use crate::provider::client_auth::nth;
use crate::provider::signing_algs::ProofAlgs;
use doorward_net::http::reply::Reply;
use doorward_plugin_api::ConfigError;

/// The answer to each refusal.
#[derive(Debug)]
pub(crate) struct ErrorResponses {
    /// In the order of [`Refusal::ALL`].
    replies: Vec<Reply>,
    /// Where browsers are sent instead, by client.
    unauthorized: Vec<HeaderValue>,
    forbidden: Vec<HeaderValue>,
    unexpected: Vec<HeaderValue>,
    explains: bool,
}

impl ErrorResponses {
    /// `scope` is what a token that lacks scopes would need.
    pub(crate) fn new(
        fields: &Fields,
        issuer: &Url,
        scope: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let writer = Writer {
            unauthorized: &fields.refusals.unauthorized_error_message,
            forbidden: &fields.refusals.forbidden_error_message,
            realm: issuer.host_str().unwrap_or_default(),
            scope: scope.filter(|scope| is_plain(scope)),
            expose_code: fields.responses.expose_error_code,
            explain: fields.responses.display_errors,
            schemes: schemes(fields.proofs.proof_of_possession_dpop),
            dpop_algs: ProofAlgs::new(fields)?.names(),
        };
        let replies = Refusal::ALL
            .iter()
            .map(|refusal| writer.answer(*refusal))
            .collect::<Option<Vec<Reply>>>();
        let unwritable = || wrong("issuer", "its host can't be written into a header");
        Ok(Self {
            replies: replies.ok_or_else(unwritable)?,
            unauthorized: addresses(
                "unauthorized_redirect_uri",
                &fields.responses.unauthorized_redirect_uri,
            )?,
            forbidden: addresses(
                "forbidden_redirect_uri",
                &fields.responses.forbidden_redirect_uri,
            )?,
            unexpected: addresses(
                "unexpected_redirect_uri",
                &fields.responses.unexpected_redirect_uri,
            )?,
            explains: fields.responses.display_errors,
        })
    }

    /// Whether clients are told what is wrong.
    pub(crate) fn explains(&self) -> bool {
        self.explains
    }

    /// The answer to `refusal` of a request of the client with this index.
    pub(crate) fn to(&self, refusal: Refusal, client: usize) -> Reply {
        match nth(self.addresses(refusal.class()), client) {
            Some(address) => Reply::empty(StatusCode::FOUND)
                .header(LOCATION, address.clone())
                .header(CACHE_CONTROL, HeaderValue::from_static("no-store")),
            None => self.replies[refusal as usize].clone(),
        }
    }

    /// The answer to `refusal` of what can't follow a redirect.
    pub(crate) fn plain(&self, refusal: Refusal) -> Reply {
        self.replies[refusal as usize].clone()
    }

    /// Whether the client that a request chooses makes a difference.
    pub(crate) fn differ_by_client(&self) -> bool {
        let mut all = [&self.unauthorized, &self.forbidden, &self.unexpected].into_iter();
        all.any(|addresses| addresses.len() > 1)
    }

    fn addresses(&self, class: Class) -> &[HeaderValue] {
        match class {
            Class::NoCredential | Class::BadToken => &self.unauthorized,
            Class::Forbidden => &self.forbidden,
            Class::Broken => &self.unexpected,
            Class::BadRequest | Class::Slow | Class::TooLong => &[],
        }
    }
}

/// The scheme of tokens that come with a proof (RFC 9449 §7.1).
const DPOP: &str = "DPoP";

/// The schemes by which tokens get in, where proofs are demanded so.
fn schemes(dpop: ProofRequirement) -> &'static [&'static str] {
    match dpop {
        ProofRequirement::Strict => &[DPOP],
        ProofRequirement::Optional => &["Bearer", DPOP],
        ProofRequirement::Off => &["Bearer"],
    }
}

struct Writer<'a> {
    unauthorized: &'a str,
    forbidden: &'a str,
    realm: &'a str,
    scope: Option<&'a str>,
    expose_code: bool,
    explain: bool,
    /// How tokens may be shown.
    schemes: &'static [&'static str],
    /// How proofs may be signed.
    dpop_algs: String,
}

impl Writer<'_> {
    fn answer(&self, refusal: Refusal) -> Option<Reply> {
        let class = refusal.class();
        let no_store = HeaderValue::from_static("no-store");
        let mut reply = Reply::message(class.status(), self.message(refusal, class))
            .header(CACHE_CONTROL, no_store);
        if !matches!(class, Class::Broken | Class::Slow | Class::TooLong) {
            // What a proof lacks helps nobody who shows a token without one.
            let is_of_proof = refusal.is_of_proof() && self.schemes.contains(&DPOP);
            let schemes = self.schemes.iter();
            for scheme in schemes.filter(|scheme| !is_of_proof || **scheme == DPOP) {
                let challenge = self.challenge(scheme, refusal);
                let challenge = HeaderValue::from_str(&challenge).ok()?;
                reply = reply.header(WWW_AUTHENTICATE, challenge);
            }
        }
        Some(reply)
    }

    fn message(&self, refusal: Refusal, class: Class) -> String {
        let message = match class {
            Class::NoCredential | Class::BadToken => self.unauthorized,
            Class::Forbidden => self.forbidden,
            Class::BadRequest => "Bad request",
            Class::Slow => "Request timeout",
            Class::TooLong => "Request body is too large",
            Class::Broken => "An unexpected error occurred",
        };
        if self.explain {
            let (code, sentence) = refusal.describe();
            format!("{message} ({code}: {sentence})")
        } else {
            message.to_owned()
        }
    }

    /// RFC 6750 §3: no error code when no token was presented.
    fn challenge(&self, scheme: &str, refusal: Refusal) -> String {
        let mut challenge = format!("{scheme} realm=\"{}\"", self.realm);
        if scheme == DPOP {
            challenge.push_str(&format!(", algs=\"{}\"", self.dpop_algs));
        }
        let Some(error) = refusal.error().filter(|_| self.expose_code) else {
            return challenge;
        };
        challenge.push_str(&format!(", error=\"{error}\""));
        if self.explain {
            challenge.push_str(&format!(", error_description=\"{}\"", refusal.describe().1));
        }
        if let (Refusal::MissingScope, Some(scope)) = (refusal, self.scope) {
            challenge.push_str(&format!(", scope=\"{scope}\""));
        }
        challenge
    }
}

/// Whether a text may stand between quotes as it is.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'))
}

fn addresses(name: &str, addresses: &[Address]) -> Result<Vec<HeaderValue>, ConfigError> {
    let value = |address: &Address| {
        HeaderValue::from_str(address.as_str())
            .map_err(|_| wrong(name, "can't be written into a header"))
    };
    addresses.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use doorward_net::http::reply::ReplyBody;

    fn answer(config: Value, refusal: Refusal) -> (u16, String, String) {
        let issuer = Url::parse("https://id.example.com:8443/oauth2").expect("a URL");
        let error_responses = ErrorResponses::new(
            &Fields::of(&config).expect("valid"),
            &issuer,
            Some("orders:read profile"),
        );
        let reply = error_responses.expect("they can be made").to(refusal, 0);
        let header = |name| {
            let found = reply.headers.iter().find(|(key, _)| key == name);
            found.map_or(String::new(), |(_, value)| {
                value.to_str().expect("text").to_owned()
            })
        };
        assert_eq!(header(CACHE_CONTROL), "no-store");
        let text = match &reply.body {
            ReplyBody::Message(message) => message.to_string(),
            _ => header(LOCATION),
        };
        (reply.status.as_u16(), text, header(WWW_AUTHENTICATE))
    }

    #[test]
    fn a_challenge_without_credentials_has_no_error_code() {
        assert_eq!(
            answer(json!({}), Refusal::NoToken),
            (
                401,
                "Unauthorized".into(),
                r#"Bearer realm="id.example.com""#.into()
            )
        );
    }

    #[test]
    fn a_challenge_names_no_scheme_by_which_no_token_gets_in() {
        let schemes = |how: &str, refusal: Refusal| {
            let config = json!({"proof_of_possession_dpop": how});
            let issuer = Url::parse("https://id.example.com").expect("a URL");
            let responses =
                ErrorResponses::new(&Fields::of(&config).expect("valid"), &issuer, None);
            let reply = responses.expect("they can be made").to(refusal, 0);
            let challenges = reply.headers.iter();
            let challenges = challenges.filter(|(name, _)| name == WWW_AUTHENTICATE);
            let schemes =
                challenges.filter_map(|(_, value)| value.to_str().ok()?.split(' ').next());
            schemes.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(schemes("off", Refusal::NoToken), "Bearer");
        assert_eq!(schemes("optional", Refusal::NoToken), "Bearer DPoP");
        assert_eq!(schemes("optional", Refusal::MissingProof), "DPoP");
        for refusal in [
            Refusal::NoToken,
            Refusal::TokenExpired,
            Refusal::UnprovenToken,
            Refusal::MissingScope,
        ] {
            assert_eq!(schemes("strict", refusal), "DPoP", "{refusal:?}");
        }
    }

    #[test]
    fn challenges_tell_the_error_of_rfc_6750() {
        for (refusal, status, error) in [
            (Refusal::TokenExpired, 401, "invalid_token"),
            (Refusal::RepeatedToken, 400, "invalid_request"),
            (Refusal::WrongAudience, 403, "insufficient_scope"),
        ] {
            let (got, _, challenge) = answer(json!({}), refusal);
            assert_eq!(got, status);
            let wanted = format!(r#"Bearer realm="id.example.com", error="{error}""#);
            assert_eq!(challenge, wanted);
        }
        let (_, message, challenge) = answer(json!({}), Refusal::MissingScope);
        assert_eq!(message, "Forbidden");
        assert!(challenge.ends_with(r#", scope="orders:read profile""#));
    }

    #[test]
    fn messages_and_details_are_configurable() {
        let config = json!({
            "unauthorized_error_message": "Who are you?",
            "forbidden_error_message": "No.",
            "expose_error_code": false,
        });
        let (_, message, challenge) = answer(config.clone(), Refusal::BadSignature);
        assert_eq!(message, "Who are you?");
        assert_eq!(challenge, r#"Bearer realm="id.example.com""#);
        assert_eq!(answer(config, Refusal::MissingRole).1, "No.");
        let config = json!({"display_errors": true});
        let (_, message, challenge) = answer(config, Refusal::TokenExpired);
        let wanted = "Unauthorized (token_expired: the access token has expired)";
        assert_eq!(message, wanted);
        assert!(challenge.contains("error_description=\"the access token has expired\""));
    }

    #[test]
    fn redirects_take_the_place_of_refusals() {
        let config = json!({
            "unauthorized_redirect_uri": ["https://a/in"],
            "forbidden_redirect_uri": ["https://a/no"],
            "unexpected_redirect_uri": ["https://a/oops"],
        });
        for (refusal, location) in [
            (Refusal::NoToken, "https://a/in"),
            (Refusal::TokenExpired, "https://a/in"),
            (Refusal::MissingScope, "https://a/no"),
            (Refusal::ProviderUnavailable, "https://a/oops"),
        ] {
            let (status, text, _) = answer(config.clone(), refusal);
            assert_eq!((status, text.as_str()), (302, location));
        }
        assert_eq!(answer(config, Refusal::RepeatedToken).0, 400);
    }

    #[test]
    fn a_broken_provider_is_an_unexpected_error() {
        let (status, message, challenge) = answer(json!({}), Refusal::ProviderUnavailable);
        assert_eq!((status, challenge.as_str()), (500, ""));
        assert_eq!(message, "An unexpected error occurred");
    }
}
