//! The signature algorithms that a configuration allows: of what the provider
//! signs for its client, and of the DPoP proofs of clients.

use serde_json::Value;

use crate::config::fields::client::SecurityProfile;
use crate::config::fields::types::{ProofAlg, SigningAlg};
use crate::config::fields::{Fields, wrong};
use crate::decide::refusal::Refusal;
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::client::SignAlg;
use doorward_plugin_api::ConfigError;

/// Every algorithm of a signature.
pub(crate) const ALL: &[&str] = &[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
    "ES384", "ES512", "EdDSA",
];
/// Those that a DPoP proof may have: with a private key (RFC 9449 §4.2).
pub(crate) const OF_PROOFS: &[&str] = &[
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512", "EdDSA",
];

const RESPONSE: &str = "id_token_signed_response_alg";
const PROOF: &str = "dpop_signing_algs";
const PROFILE: &str = "security_profile";
/// What providers call the algorithms of proofs that they take (RFC 9449 §5.1).
pub(crate) const PROOFS_OFFERED: &str = "dpop_signing_alg_values_supported";

/// Whether the configuration obeys the FAPI 2.0 Security Profile: of signatures
/// those of §5.4.1 alone count.
pub(crate) fn is_fapi2(fields: &Fields) -> bool {
    fields.proofs.security_profile == Some(SecurityProfile::Fapi2)
}

/// Refuses an algorithm that the profile excludes.
///
/// # Errors
/// Names the field and what the profile allows.
pub(crate) fn check_profile(
    fields: &Fields,
    field: &str,
    algorithm: SignAlg,
) -> Result<(), ConfigError> {
    if !is_fapi2(fields) || SignAlg::FAPI2.contains(&algorithm) {
        return Ok(());
    }
    let named = algorithm.as_str();
    let message = format!(
        "{named} is not for {PROFILE} fapi2: expected one of {}",
        fapi2()
    );
    Err(wrong(field, &message))
}

/// The names of the algorithms of the profile.
fn fapi2() -> String {
    SignAlg::FAPI2.map(SignAlg::as_str).join(", ")
}

/// The algorithms of ID tokens (OpenID Connect Core §3.1.3.7), logout tokens,
/// signed userinfo and signed authorization responses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum ResponseAlg {
    /// Any for which the provider has a key.
    #[default]
    Any,
    /// That alone.
    Only(Algorithm),
    /// Those of FAPI 2.0.
    Fapi2,
}

impl ResponseAlg {
    /// # Errors
    /// The algorithm is none, or one of a secret where these are not allowed.
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let Some(SigningAlg(algorithm)) = fields.claims.id_token_signed_response_alg else {
            return Ok(if is_fapi2(fields) {
                Self::Fapi2
            } else {
                Self::Any
            });
        };
        let named = algorithm.as_sign_alg();
        if algorithm.is_symmetric() && !fields.claims.enable_hs_signatures {
            let name = named.as_str();
            let message = format!("{name} needs enable_hs_signatures");
            return Err(wrong(RESPONSE, &message));
        }
        check_profile(fields, RESPONSE, named)?;
        Ok(Self::Only(algorithm))
    }

    /// Checks the algorithm that a token names.
    ///
    /// # Errors
    /// [`Refusal::UnsupportedAlg`].
    pub(crate) fn check(self, parsed: &Unverified<'_>) -> Result<(), Refusal> {
        let used = parsed.algorithm();
        let counts = match self {
            Self::Any => true,
            Self::Only(only) => used == only,
            Self::Fapi2 => SignAlg::FAPI2.contains(&used.as_sign_alg()),
        };
        counts.then_some(()).ok_or(Refusal::UnsupportedAlg)
    }
}

/// The algorithms of DPoP proofs: those that are configured, or else those of the
/// profile, or else those that the provider names, or else all.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProofAlgs(Vec<Algorithm>);

impl ProofAlgs {
    /// # Errors
    /// One of them is none of a private key.
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let named = &fields.proofs.dpop_signing_algs;
        if named.is_empty() && is_fapi2(fields) {
            let all = SignAlg::FAPI2
                .iter()
                .filter_map(|alg| Algorithm::named(alg.as_str()));
            return Ok(Self(all.collect()));
        }
        let all = named.iter().map(|&ProofAlg(algorithm)| {
            check_profile(fields, PROOF, algorithm.as_sign_alg())?;
            Ok(algorithm)
        });
        Ok(Self(all.collect::<Result<_, _>>()?))
    }

    /// Whether a proof may be signed so, where the provider names `offered`.
    pub(crate) fn has(&self, algorithm: Algorithm, offered: Option<&Value>) -> bool {
        let offered = offered.and_then(Value::as_array);
        match (self.0.is_empty(), offered) {
            (false, _) => self.0.contains(&algorithm),
            (true, None) => true,
            (true, Some(offered)) => offered
                .iter()
                .filter_map(Value::as_str)
                .any(|name| Algorithm::named(name) == Some(algorithm)),
        }
    }

    /// Their names, for the `algs` of a challenge (RFC 9449 §7.1).
    pub(crate) fn names(&self) -> String {
        match self.0.as_slice() {
            [] => OF_PROOFS.join(" "),
            some => {
                let names = some.iter().map(|one| one.as_sign_alg().as_str());
                names.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response_alg(config: &Value) -> Result<ResponseAlg, ConfigError> {
        ResponseAlg::new(&Fields::of(config)?)
    }

    fn proof_algs(config: &Value) -> Result<ProofAlgs, ConfigError> {
        ProofAlgs::new(&Fields::of(config)?)
    }

    #[test]
    fn an_algorithm_that_cannot_be_pinned_is_refused_with_those_that_can() {
        for (config, told) in [
            (json!({RESPONSE: "none"}), "expected one of: HS256"),
            (json!({RESPONSE: "rs256"}), "expected one of: HS256"),
            (json!({RESPONSE: ["RS256"]}), "expected one of: HS256"),
            (
                json!({RESPONSE: "HS256"}),
                "HS256 needs enable_hs_signatures",
            ),
        ] {
            let error = response_alg(&config).expect_err("refused");
            assert!(
                error.field == RESPONSE && error.message.contains(told),
                "{error}"
            );
        }
        assert!(response_alg(&json!({RESPONSE: "HS256", "enable_hs_signatures": true})).is_ok());
        for name in ["HS256", "x"] {
            let error = proof_algs(&json!({PROOF: ["ES256", name]})).expect_err("refused");
            assert_eq!(error.field, format!("{PROOF}.2"));
            assert!(
                error.message.starts_with("expected one of: ES256"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_fapi2_profile_allows_its_algorithms_alone() {
        let profile = json!({PROFILE: "fapi2"});
        assert!(matches!(response_alg(&profile), Ok(ResponseAlg::Fapi2)));
        let algs = proof_algs(&profile).expect("valid");
        assert_eq!(algs.names(), "PS256 ES256 EdDSA");
        let offered = json!(["RS256", "ES256"]);
        assert!(!algs.has(Algorithm::Rs256, Some(&offered)));
        assert!(algs.has(Algorithm::Ps256, Some(&offered)));
        for (name, fits) in [
            ("RS256", false),
            ("ES512", false),
            ("PS256", true),
            ("EdDSA", true),
        ] {
            let pinned = response_alg(&json!({PROFILE: "fapi2", RESPONSE: name}));
            let listed = proof_algs(&json!({PROFILE: "fapi2", PROOF: ["ES256", name]}));
            assert_eq!((pinned.is_ok(), listed.is_ok()), (fits, fits), "{name}");
            for error in pinned.err().into_iter().chain(listed.err()) {
                assert!(
                    error
                        .message
                        .ends_with("expected one of PS256, ES256, EdDSA"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn proofs_may_be_signed_as_is_configured_or_as_the_provider_names() {
        let open = proof_algs(&json!({})).expect("valid");
        let own = proof_algs(&json!({PROOF: ["ES256", "PS256"]})).expect("valid");
        let offered = json!(["RS256", 5]);
        for (algs, offered, may) in [
            (&open, None, [true, true]),
            (&open, Some(&offered), [true, false]),
            (&own, None, [false, true]),
            (&own, Some(&offered), [false, true]),
        ] {
            let has = [Algorithm::Rs256, Algorithm::Es256].map(|one| algs.has(one, offered));
            assert_eq!(has, may, "{algs:?} {offered:?}");
        }
        assert_eq!(own.names(), "ES256 PS256");
        assert!(open.names().contains("RS256"));
    }
}
