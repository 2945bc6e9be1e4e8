//! The clients that the gateway is at the provider, and how they prove it
//! (RFC 6749 §2.3, RFC 7523 §2.2).

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use crate::config::fields::client::ClientAuthName;
use crate::config::fields::types::Jwk;
use crate::config::fields::{Fields, header_name, header_names, wrong};
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::Refusal;
use crate::provider::mutual_tls;
use crate::provider::signing_algs::{check_profile, is_fapi2};
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::sign::Signer;
use doorward_core::model::client::SignAlg;
use doorward_core::model::secret::Secret;
use doorward_oidc_client::client_auth::{self, Proof};
use doorward_oidc_client::metadata::names;
use doorward_plugin_api::ConfigError;

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAuthMethod {
    Basic,
    Post,
    SecretJwt,
    PrivateKeyJwt,
    /// By the certificate of its connection (RFC 8705 §2).
    Tls,
    /// It only says its name.
    None,
}

impl ClientAuthMethod {
    fn parse(text: &str) -> Option<Self> {
        ClientAuthName::named(text).map(Self::from)
    }

    /// How a secret that a caller brings is shown: as `named`, if that is a way
    /// to show secrets, else in the first such way that the provider names.
    pub(crate) fn of_secrets(named: Option<Self>, offered: Option<&Value>) -> Self {
        let shows = |proof: &Self| matches!(proof, Self::Basic | Self::Post);
        let offered = names(offered).into_iter().flatten();
        let mut offered = offered.filter_map(Self::parse);
        let named = named.filter(shows).or_else(|| offered.find(shows));
        named.unwrap_or(Self::Basic)
    }
}

impl From<ClientAuthName> for ClientAuthMethod {
    fn from(name: ClientAuthName) -> Self {
        match name {
            ClientAuthName::ClientSecretBasic => Self::Basic,
            ClientAuthName::ClientSecretPost => Self::Post,
            ClientAuthName::ClientSecretJwt => Self::SecretJwt,
            ClientAuthName::PrivateKeyJwt => Self::PrivateKeyJwt,
            ClientAuthName::TlsClientAuth | ClientAuthName::SelfSignedTlsClientAuth => Self::Tls,
            ClientAuthName::None => Self::None,
        }
    }
}

/// A client of the provider.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: String,
    secret: Option<Secret>,
    proof: Option<ClientAuthMethod>,
    /// Of assertions made with the secret.
    hmac: Option<Signer>,
    /// Of assertions made with a key of its own.
    signer: Option<Signer>,
    /// Whether there is a certificate.
    certified: bool,
}

/// The clients of a plugin; the first one unless a request names another.
#[derive(Debug)]
pub(crate) struct Clients {
    argument: String,
    headers: Vec<HeaderName>,
    all: Vec<Arc<Client>>,
}

impl Clients {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let argument = fields.places.client_arg.0.clone();
        let headers = if argument.is_empty() {
            Vec::new()
        } else {
            let mut names = vec![header_name("client_arg", &format!("x-{argument}"))?];
            names.extend(header_names("client_arg", &argument)?);
            names
        };
        let all = fields.provider.client_id.iter().enumerate();
        let all = all.map(|(index, id)| Client::new(fields, index, id).map(Arc::new));
        Ok(Self {
            argument,
            headers,
            all: all.collect::<Result<_, _>>()?,
        })
    }

    /// The client that a request chooses, by its identifier or its number, or
    /// else the first.
    pub(crate) fn chosen(
        &self,
        headers: &HeaderMap,
        arguments: &Arguments,
    ) -> Option<&Arc<Client>> {
        if let [only] = &*self.all {
            return Some(only);
        }
        let mut named = self.headers.iter().filter_map(|name| headers.get(name));
        let named = match named.next() {
            Some(value) => value.to_str().ok(),
            None => arguments.first(&self.argument),
        };
        let by_name = |name: &str| {
            let by_id = self.all.iter().find(|client| client.id == name);
            let number = || name.parse::<usize>().ok()?.checked_sub(1);
            by_id.or_else(|| self.all.get(number()?))
        };
        named.and_then(by_name).or_else(|| self.all.first())
    }

    /// The place of the client that a request chooses.
    pub(crate) fn chosen_index(&self, headers: &HeaderMap, arguments: &Arguments) -> usize {
        // Several may have the same identifier.
        let place = |chosen: &Arc<Client>| self.all.iter().position(|one| Arc::ptr_eq(one, chosen));
        let chosen = self.chosen(headers, arguments);
        chosen.and_then(place).unwrap_or(0)
    }

    /// Whether all of them can sign.
    pub(crate) fn all_sign(&self) -> bool {
        let mut all = self.all.iter();
        all.all(|client| client.signs_requests().is_some())
    }

    /// The first client, and its place.
    pub(crate) fn first(&self) -> Option<(&Arc<Client>, usize)> {
        self.all.first().map(|client| (client, 0))
    }

    /// The client with this identifier, and its place.
    pub(crate) fn named(&self, id: &str) -> Option<(&Arc<Client>, usize)> {
        let mut all = self.all.iter().enumerate();
        let found = all.find(|(_, client)| client.id == id);
        found.map(|(index, client)| (client, index))
    }
}

/// The item of a list that belongs to a client: its own, or else the first.
pub(crate) fn nth<T>(items: &[T], index: usize) -> Option<&T> {
    items.get(index).or_else(|| items.first())
}

impl Client {
    fn new(fields: &Fields, index: usize, id: &str) -> Result<Self, ConfigError> {
        let secret = nth(&fields.provider.client_secret, index).filter(|secret| !secret.is_empty());
        let method = nth(&fields.client.client_auth, index).copied();
        let proof = method.map(ClientAuthMethod::from);
        let algorithm = nth(&fields.client.client_alg, index).map(|alg| alg.0.as_sign_alg());
        let hmac = algorithm.unwrap_or(SignAlg::HS256);
        let signer = nth(&fields.client.client_jwk, index)
            .map(|jwk| private_key(fields, algorithm, jwk))
            .transpose()?;
        if let Some(ClientAuthMethod::SecretJwt) = proof {
            check_profile(fields, "client_alg", hmac)?;
        }
        let client = Self {
            id: id.to_owned(),
            hmac: secret.and_then(|secret| Signer::from_secret(hmac, secret)),
            secret: secret.map(Secret::new),
            proof,
            signer,
            certified: mutual_tls::certificate(fields).is_some(),
        };
        if let (Some(method), Some(ClientAuthMethod::Tls)) = (method, client.proof) {
            mutual_tls::needs_certificate(fields, method)?;
        }
        client.check()?;
        Ok(client)
    }

    fn check(&self) -> Result<(), ConfigError> {
        match self.proof {
            Some(ClientAuthMethod::PrivateKeyJwt) if self.signer.is_none() => {
                Err(wrong("client_jwk", "private_key_jwt needs a private key"))
            }
            Some(ClientAuthMethod::SecretJwt) if self.hmac.is_none() => Err(wrong(
                "client_secret",
                "client_secret_jwt needs a secret and an HS algorithm",
            )),
            Some(ClientAuthMethod::Basic | ClientAuthMethod::Post) if self.secret.is_none() => {
                Err(wrong("client_secret", "client_auth needs a secret"))
            }
            _ => Ok(()),
        }
    }

    /// The method to use where the endpoint has none of its own: the client's,
    /// or else the first that the provider names and the client can do.
    pub(crate) fn proof(&self, offered: Option<&Value>) -> ClientAuthMethod {
        let can = |proof: &ClientAuthMethod| match proof {
            ClientAuthMethod::Basic | ClientAuthMethod::Post => self.secret.is_some(),
            ClientAuthMethod::SecretJwt => self.hmac.is_some(),
            ClientAuthMethod::PrivateKeyJwt => self.signer.is_some(),
            ClientAuthMethod::Tls => self.certified,
            ClientAuthMethod::None => {
                self.secret.is_none() && self.signer.is_none() && !self.certified
            }
        };
        let offered = names(offered).into_iter().flatten();
        let offered = offered.filter_map(ClientAuthMethod::parse);
        let mut offered = offered.filter(can).peekable();
        let first = offered.peek().copied();
        // Beside a secret, a key is there to sign requests.
        let by_secret = |proof: &ClientAuthMethod| *proof != ClientAuthMethod::PrivateKeyJwt;
        let usual = if self.secret.is_some() {
            offered.find(by_secret).or(first)
        } else {
            first
        };
        self.proof
            .or(usual)
            .unwrap_or(match (self.secret.is_some(), self.signer.is_some()) {
                (true, _) => ClientAuthMethod::Basic,
                (false, true) => ClientAuthMethod::PrivateKeyJwt,
                (false, false) if self.certified => ClientAuthMethod::Tls,
                (false, false) => ClientAuthMethod::None,
            })
    }

    /// What requests for a login are signed with: a key of its own, or the
    /// secret.
    pub(crate) fn signs_requests(&self) -> Option<&Signer> {
        self.signer.as_ref().or(self.hmac.as_ref())
    }

    /// The method that the configuration names.
    pub(crate) fn configured_method(&self) -> Option<ClientAuthMethod> {
        self.proof
    }

    /// Adds the proof to a request for `audience` at `now` (seconds).
    ///
    /// # Errors
    /// [`Refusal::ClientRefused`] where the client has not got what the
    /// method takes.
    pub(crate) fn authenticate(
        &self,
        method: ClientAuthMethod,
        audience: &str,
        now: i64,
        form: &mut Vec<(String, String)>,
        headers: &mut HeaderMap,
    ) -> Result<(), Refusal> {
        let secret = || self.secret.as_ref().ok_or(Refusal::ClientRefused);
        let signer = match method {
            ClientAuthMethod::SecretJwt => self.hmac.as_ref(),
            _ => self.signer.as_ref(),
        };
        let proof = match method {
            // The certificate is shown by the connection.
            ClientAuthMethod::None | ClientAuthMethod::Tls => Proof::Name,
            ClientAuthMethod::Post => Proof::Post(secret()?),
            ClientAuthMethod::Basic => Proof::Basic(secret()?),
            ClientAuthMethod::SecretJwt | ClientAuthMethod::PrivateKeyJwt => Proof::Assertion {
                signer: signer.ok_or(Refusal::ClientRefused)?,
                audience,
                now,
            },
        };
        client_auth::authenticate(&self.id, proof, form, headers)
            .map_err(|_| Refusal::ClientRefused)
    }
}

fn private_key(
    fields: &Fields,
    algorithm: Option<SignAlg>,
    jwk: &Jwk,
) -> Result<Signer, ConfigError> {
    let member = |name: &str| jwk.member(name);
    let named = member("alg").and_then(Algorithm::named);
    let is_fapi2 = is_fapi2(fields);
    let by_kind = || match (member("kty")?, member("crv")) {
        ("RSA", _) if is_fapi2 => Some(SignAlg::PS256),
        ("RSA", _) => Some(SignAlg::RS256),
        ("EC", Some("P-256")) => Some(SignAlg::ES256),
        ("EC", Some("P-384")) => Some(SignAlg::ES384),
        ("EC", Some("P-521")) => Some(SignAlg::ES512),
        ("OKP", Some("Ed25519")) => Some(SignAlg::EdDSA),
        _ => None,
    };
    let algorithm = algorithm
        .or_else(|| named.map(Algorithm::as_sign_alg))
        .or_else(by_kind)
        .ok_or_else(|| wrong("client_jwk", "expected an RSA, EC or Ed25519 key"))?;
    check_profile(fields, "client_alg", algorithm)?;
    Signer::from_jwk(algorithm, member)
        .map_err(|_| wrong("client_jwk", "expected a whole private key of client_alg"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn clients(config: Value) -> Result<Clients, ConfigError> {
        Clients::new(&Fields::of(&config)?)
    }

    fn chosen(clients: &Clients, query: &str, header: Option<(&'static str, &str)>) -> String {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let arguments = Arguments::new(Some(query), Vec::new());
        let client = clients.chosen(&headers, &arguments);
        client.expect("a client").id.clone()
    }

    #[test]
    fn a_request_chooses_its_client_by_identifier_or_number() {
        let clients = clients(json!({"client_id": ["a", "b"]})).expect("valid");
        for (query, header, wanted) in [
            ("", None, "a"),
            ("client_id=b", None, "b"),
            ("client_id=2", None, "b"),
            ("client_id=3", None, "a"),
            ("client_id=0", None, "a"),
            ("client_id=x", None, "a"),
            ("", Some(("x-client-id", "b")), "b"),
            ("", Some(("client-id", "2")), "b"),
            ("client_id=b", Some(("client-id", "a")), "a"),
        ] {
            assert_eq!(
                chosen(&clients, query, header),
                wanted,
                "{query} {header:?}"
            );
        }
    }

    #[test]
    fn clients_of_one_identifier_have_places_of_their_own() {
        let clients = clients(json!({"client_id": ["a", "a"]})).expect("valid");
        for (query, place) in [("client_id=2", 1), ("client_id=a", 0), ("", 0)] {
            let arguments = Arguments::new(Some(query), Vec::new());
            let index = clients.chosen_index(&HeaderMap::new(), &arguments);
            assert_eq!(index, place, "{query}");
        }
    }

    #[test]
    fn clients_have_their_own_items_or_the_first() {
        let clients = clients(json!({
            "client_id": ["a", "b"], "client_secret": ["s1", "s2"],
            "client_auth": ["client_secret_post"],
        }))
        .expect("valid");
        let (mut form, mut headers) = (Vec::new(), HeaderMap::new());
        let client = &clients.all[1];
        let proof = client.proof(None);
        assert_eq!(proof, ClientAuthMethod::Post);
        client
            .authenticate(proof, "https://id/token", 0, &mut form, &mut headers)
            .expect("proven");
        let form: Vec<_> = form.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(form, [("client_secret", "s2"), ("client_id", "b")]);
    }

    #[test]
    fn the_method_is_one_that_both_sides_can_do() {
        let with_secret = clients(json!({"client_id": ["a"], "client_secret": ["s"]}));
        let with_secret = &with_secret.expect("valid").all[0];
        let bare = clients(json!({"client_id": ["a"]})).expect("valid");
        let offered = json!(["private_key_jwt", "client_secret_post", "none"]);
        assert_eq!(with_secret.proof(Some(&offered)), ClientAuthMethod::Post);
        assert_eq!(with_secret.proof(None), ClientAuthMethod::Basic);
        assert_eq!(bare.all[0].proof(Some(&offered)), ClientAuthMethod::None);
    }

    #[test]
    fn a_key_that_signs_requests_is_no_proof_beside_a_secret() {
        // That of RFC 7515, A.3.
        let key = json!({"kty": "EC", "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
            "d": "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"});
        let both =
            clients(json!({"client_id": ["a"], "client_secret": ["s"], "client_jwk": [key]}));
        let both = &both.expect("valid").all[0];
        let alone = clients(json!({"client_id": ["a"], "client_jwk": [key]}));
        let alone = &alone.expect("valid").all[0];
        let usual = json!([
            "private_key_jwt",
            "client_secret_post",
            "client_secret_basic"
        ]);
        assert_eq!(both.proof(Some(&usual)), ClientAuthMethod::Post);
        assert_eq!(alone.proof(Some(&usual)), ClientAuthMethod::PrivateKeyJwt);
        let strict = json!(["private_key_jwt"]);
        assert_eq!(both.proof(Some(&strict)), ClientAuthMethod::PrivateKeyJwt);
        assert_eq!(both.proof(None), ClientAuthMethod::Basic);
        assert!(both.signs_requests().is_some());
    }

    #[test]
    fn a_callers_secret_is_shown_as_configured_or_as_the_provider_takes_it() {
        let post = json!([
            "private_key_jwt",
            "client_secret_post",
            "client_secret_basic"
        ]);
        let basic = json!(["client_secret_basic", "client_secret_post"]);
        for (named, offered, wanted) in [
            (None, None, ClientAuthMethod::Basic),
            (None, Some(&post), ClientAuthMethod::Post),
            (None, Some(&basic), ClientAuthMethod::Basic),
            (
                Some(ClientAuthMethod::Post),
                Some(&basic),
                ClientAuthMethod::Post,
            ),
            (
                Some(ClientAuthMethod::Basic),
                Some(&post),
                ClientAuthMethod::Basic,
            ),
            (
                Some(ClientAuthMethod::PrivateKeyJwt),
                Some(&post),
                ClientAuthMethod::Post,
            ),
            (Some(ClientAuthMethod::None), None, ClientAuthMethod::Basic),
        ] {
            assert_eq!(
                ClientAuthMethod::of_secrets(named, offered),
                wanted,
                "{named:?}"
            );
        }
    }

    #[test]
    fn what_a_method_takes_must_be_there() {
        for config in [
            json!({"client_id": ["a"], "client_auth": ["private_key_jwt"]}),
            json!({"client_id": ["a"], "client_auth": ["client_secret_jwt"]}),
            json!({"client_id": ["a"], "client_auth": ["client_secret_post"]}),
            json!({"client_id": ["a"], "client_auth": ["tls_client_auth"]}),
            json!({"client_id": ["a"], "client_jwk": [{"kty": "RSA"}]}),
        ] {
            assert!(clients(config.clone()).is_err(), "{config}");
        }
    }
}
