//! Requests for a code, and whose the answers are (OpenID Connect Core §3.1.2, RFC
//! 7636, RFC 9207).

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What each request for a code says.
#[derive(Clone, Copy)]
pub struct AuthorizationRequest<'a> {
    /// The client that asks.
    pub client_id: &'a str,
    /// Where the browser is sent back to.
    pub redirect_uri: &'a str,
    /// Scopes, joined by spaces; empty: none is named.
    pub scope: &'a str,
    /// What comes back unchanged.
    pub state: &'a str,
    /// What the ID token must say.
    pub nonce: &'a str,
    /// The code verifier, of which only a digest is sent; `None`: the operator has
    /// turned it off.
    pub verifier: Option<&'a str>,
}

impl AuthorizationRequest<'_> {
    /// Its parameters.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let challenge = self.verifier.map(code_challenge);
        let method = challenge.as_ref().map(|_| "S256");
        let scope = Some(self.scope).filter(|scope| !scope.is_empty());
        let pairs = [
            ("response_type", Some("code")),
            ("client_id", Some(self.client_id)),
            ("redirect_uri", Some(self.redirect_uri)),
            ("scope", scope),
            ("state", Some(self.state)),
            ("nonce", Some(self.nonce)),
            ("code_challenge", challenge.as_deref()),
            ("code_challenge_method", method),
        ];
        let pairs = pairs.into_iter();
        let pairs = pairs.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        pairs.collect()
    }
}

/// The challenge by which a provider knows a verifier again (RFC 7636 §4.2, `S256`).
fn code_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Whether an answer with this `iss` is of the provider that was asked (RFC 9207
/// §2.4). `promises`: its metadata say that each answer has one.
pub fn is_from_provider(
    issuer: Option<&str>,
    promises: bool,
    is_own: impl FnOnce(&str) -> bool,
) -> bool {
    issuer.map_or(!promises, is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_the_digest_of_its_verifier_alone() {
        // That of RFC 7636, appendix B.
        let request = AuthorizationRequest {
            client_id: "app",
            redirect_uri: "https://app/back",
            scope: "openid email",
            state: "s",
            nonce: "n",
            verifier: Some("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
        };
        let parameters = request.parameters();
        let pairs: Vec<_> = parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let wanted = [
            ("response_type", "code"),
            ("client_id", "app"),
            ("redirect_uri", "https://app/back"),
            ("scope", "openid email"),
            ("state", "s"),
            ("nonce", "n"),
            (
                "code_challenge",
                "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
            ),
            ("code_challenge_method", "S256"),
        ];
        assert_eq!(pairs, wanted);
    }

    #[test]
    fn what_is_not_asked_for_is_not_said() {
        let request = AuthorizationRequest {
            client_id: "app",
            redirect_uri: "https://app/back",
            scope: "",
            state: "s",
            nonce: "n",
            verifier: None,
        };
        let parameters = request.parameters();
        let names: Vec<_> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = [
            "response_type",
            "client_id",
            "redirect_uri",
            "state",
            "nonce",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn an_answer_names_the_provider_where_that_is_promised() {
        let is_own = |issuer: &str| issuer == "https://id";
        for (issuer, promises, good) in [
            (Some("https://id"), true, true),
            (Some("https://id"), false, true),
            (Some("https://evil"), true, false),
            (Some("https://evil"), false, false),
            (None, true, false),
            (None, false, true),
        ] {
            let found = is_from_provider(issuer, promises, is_own);
            assert_eq!(found, good, "{issuer:?} {promises}");
        }
    }
}
