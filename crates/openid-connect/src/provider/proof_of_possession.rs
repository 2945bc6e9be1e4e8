//! Proofs of possession: that who shows a token holds the key (RFC 9449) or the
//! certificate (RFC 8705) that it is bound to.

mod replay_cache;
mod replay_guard;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};
use url::Url;

use crate::Providers;
use crate::config::fields::client::ProofRequirement;
use crate::config::fields::{Fields, wrong};
use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::login::{origin, path};
use crate::provider::ProviderMetadata;
use crate::provider::signing_algs::{PROOFS_OFFERED, ProofAlgs};
use crate::session::sealer;
use doorward_core::jose::claims::{CLOCK_SKEW, time};
use doorward_core::jose::dpop;
use doorward_net::session::seal::Sealer;
use doorward_plugin_api::filter::Exchange;
use doorward_plugin_api::{ConfigError, Parts};

use replay_guard::ReplayGuard;
pub(crate) use replay_guard::ValidProof;

pub(crate) const DPOP: HeaderName = HeaderName::from_static("dpop");
const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
/// Longest identifier of a proof, in bytes.
const JTI_MAX: usize = 256;
/// Purpose and context of sealed nonces.
const NONCE: &str = "dpop nonce";
/// The methods by which somebody may show a token of their own.
const METHODS: [Method; 3] = [Method::Bearer, Method::Introspection, Method::Session];

/// Checks proofs.
pub(crate) struct Proofs {
    pub(crate) dpop: ProofRequirement,
    mtls: ProofRequirement,
    lifetime: i64,
    algs: ProofAlgs,
    /// Makes and opens nonces, where they are asked for.
    nonces: Option<Sealer>,
    /// Whether sessions have to prove something too.
    pub(crate) of_sessions: bool,
    replay_guard: ReplayGuard,
}

/// What a request has to prove is proven, or nothing has to be.
#[derive(Debug)]
pub(crate) struct ProofSatisfied(());

impl ProofSatisfied {
    /// Of a request that needs no proof; `None`: it has one to be used up.
    pub(crate) fn without(proof: Option<&ValidProof>) -> Option<Self> {
        proof.is_none().then_some(Self(()))
    }
}

impl std::fmt::Debug for Proofs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proofs")
            .field("dpop", &self.dpop)
            .field("mtls", &self.mtls)
            .finish_non_exhaustive()
    }
}

impl Proofs {
    /// `None`: none are asked for.
    pub(crate) fn new(fields: &Fields, parts: &Parts) -> Result<Option<Self>, ConfigError> {
        let dpop = fields.proofs.proof_of_possession_dpop;
        let mtls = fields.proofs.proof_of_possession_mtls;
        if fields.proofs.proof_of_possession_mtls_from_header.is_some() {
            // Whoever writes the header would prove what they like.
            return Err(wrong(
                "proof_of_possession_mtls_from_header",
                "is not supported: let the gateway end TLS",
            ));
        }
        if (dpop, mtls) == (ProofRequirement::Off, ProofRequirement::Off) {
            return Ok(None);
        }
        check_methods(fields)?;
        let nonces = fields.proofs.dpop_use_nonce && dpop != ProofRequirement::Off;
        let lifetime = fields.proofs.dpop_proof_lifetime.0.max(1);
        Ok(Some(Self {
            dpop,
            mtls,
            lifetime,
            algs: ProofAlgs::new(fields)?,
            // Sealed so where the configuration names no secret.
            nonces: nonces
                .then(|| sealer(fields, NONCE, Providers::of(parts).secret()))
                .transpose()?,
            of_sessions: fields.proofs.proof_of_possession_auth_methods_validation,
            replay_guard: ReplayGuard::new(lifetime, parts),
        }))
    }

    /// Checks what a request proves about its token, whose claims are known; a
    /// proof that it needs has to be used up before it may pass. `shown`: the token,
    /// and whether it came as `Authorization: DPoP`. `metadata`: what the provider says
    /// of itself.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(crate) fn check(
        &self,
        shown: (&str, bool),
        claims: &Map<String, Value>,
        request: &RequestHeader,
        exchange: &mut Exchange,
        (metadata, now): (Option<&ProviderMetadata>, i64),
    ) -> Result<Option<ValidProof>, Refusal> {
        let (token, as_dpop) = shown;
        let bound = |name: &str| {
            let inside = claims.get("cnf").and_then(|cnf| cnf.get(name));
            inside.and_then(Value::as_str)
        };
        let (key, certificate) = (bound("jkt"), bound("x5t#S256"));
        match (self.mtls, certificate) {
            (ProofRequirement::Off, _) | (ProofRequirement::Optional, None) => {}
            (ProofRequirement::Strict, None) => return Err(Refusal::UnprovenToken),
            (_, Some(wanted)) => {
                let shown = exchange.client_certificate();
                if shown.is_none_or(|shown| shown.thumbprint != wanted) {
                    return Err(Refusal::WrongCertificate);
                }
            }
        }
        match (self.dpop, key) {
            (ProofRequirement::Off, _) => Ok(None),
            (ProofRequirement::Optional, None) if !as_dpop => Ok(None),
            // RFC 9449 §7.1: a bound token is not for `Bearer`, and another
            // one not for `DPoP`.
            (_, None) => Err(Refusal::UnprovenToken),
            (_, Some(_)) if !as_dpop => Err(Refusal::UnprovenToken),
            (_, Some(key)) => {
                let offered = metadata.and_then(|metadata| metadata.member(PROOFS_OFFERED));
                let proof = self.check_dpop(token, key, request, exchange, (offered, now))?;
                Ok(Some(proof))
            }
        }
    }

    /// RFC 9449 §4.3.
    fn check_dpop(
        &self,
        token: &str,
        key: &str,
        request: &RequestHeader,
        exchange: &mut Exchange,
        (offered, now): (Option<&Value>, i64),
    ) -> Result<ValidProof, Refusal> {
        let mut sent = request.headers.get_all(DPOP).iter();
        let proof = match (sent.next(), sent.next()) {
            (None, _) => return Err(Refusal::MissingProof),
            (Some(_), Some(_)) => return Err(Refusal::WrongProof),
            (Some(proof), None) => proof.to_str().map_err(|_| Refusal::WrongProof)?,
        };
        let proof = dpop::read(proof).map_err(|_| Refusal::WrongProof)?;
        let text = |name: &str| proof.claims.get(name).and_then(Value::as_str);
        let hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, token.as_bytes()));
        let made = time(&proof.claims, "iat").ok().flatten();
        let made = made.ok_or(Refusal::WrongProof)?;
        let here = origin(request, exchange);
        let here = here.map(|origin| format!("{origin}{}", path(request, exchange)));
        let good = proof.thumbprint == key
            && self.algs.has(proof.algorithm, offered)
            && text("ath") == Some(&hash)
            && text("htm") == Some(request.method.as_str())
            && text("htu")
                .zip(here)
                .is_some_and(|(one, here)| same(one, &here))
            && made <= now.saturating_add(CLOCK_SKEW)
            && made > now.saturating_sub(self.lifetime)
            && proof.is_within_its_bounds(now);
        let id = text("jti").filter(|id| (1..=JTI_MAX).contains(&id.len()));
        let id = id.filter(|_| good).ok_or(Refusal::WrongProof)?;
        if let Some(nonces) = &self.nonces {
            let fresh = text("nonce").is_some_and(|nonce| self.is_fresh(nonces, nonce, now));
            if !fresh {
                self.set_nonce(nonces, exchange, now);
                return Err(Refusal::ProofNonce);
            }
        }
        Ok(ValidProof {
            key: key.to_owned(),
            id: id.to_owned(),
            algorithm: proof.algorithm,
            until: made.saturating_add(self.lifetime),
        })
    }

    /// Uses up the proof of a request for the token of these claims.
    ///
    /// # Errors
    /// That it was used before, that its algorithm does not count for the client,
    /// or that nobody can tell.
    pub(crate) async fn consume(
        &self,
        proof: &ValidProof,
        claims: &Map<String, Value>,
        (metadata, now): (Option<&ProviderMetadata>, i64),
    ) -> Result<ProofSatisfied, Refusal> {
        if let Some(provider) = metadata.and_then(|metadata| metadata.token_status.as_deref()) {
            let counts = provider.accepts_proofs_by(claims, proof.algorithm).await;
            if !counts.map_err(|_| Refusal::ProviderUnavailable)? {
                return Err(Refusal::WrongProof);
            }
        }
        self.replay_guard.use_up(proof, now).await?;
        Ok(ProofSatisfied(()))
    }

    fn is_fresh(&self, nonces: &Sealer, nonce: &str, now: i64) -> bool {
        let made = nonces.open(NONCE.as_bytes(), nonce).ok();
        let made = made.and_then(|made| Some(i64::from_be_bytes(made.try_into().ok()?)));
        made.is_some_and(|made| made > now.saturating_sub(self.lifetime))
    }

    /// Tells the client the nonce for its next proof.
    fn set_nonce(&self, nonces: &Sealer, exchange: &mut Exchange, now: i64) {
        let nonce = nonces.seal(NONCE.as_bytes(), &now.to_be_bytes());
        let nonce = nonce
            .ok()
            .and_then(|nonce| HeaderValue::try_from(nonce).ok());
        if let Some(nonce) = nonce {
            exchange.response_headers.push((DPOP_NONCE, nonce));
        }
    }
}

/// `proof_of_possession_auth_methods_validation`: that no method is on by which
/// requests would pass without a proof.
fn check_methods(fields: &Fields) -> Result<(), ConfigError> {
    if !fields.proofs.proof_of_possession_auth_methods_validation {
        return Ok(());
    }
    let mut named = fields.login.auth_methods.iter();
    let other = named.find(|method| !METHODS.contains(method));
    match other {
        None => Ok(()),
        Some(other) => Err(wrong(
            "auth_methods",
            &format!(
                "{} proves no possession: leave it out, or set \
                 proof_of_possession_auth_methods_validation to false",
                other.name()
            ),
        )),
    }
}

/// Whether two addresses are the same but for query and fragment, once they
/// are normalised (RFC 3986 §6.2.2).
fn same(one: &str, other: &str) -> bool {
    let read = |text: &str| {
        let mut url = Url::parse(text).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        Some(url)
    };
    read(one)
        .zip(read(other))
        .is_some_and(|(one, other)| one == other)
}

#[cfg(test)]
mod tests;
