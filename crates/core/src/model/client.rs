//! OAuth clients.

mod language_tags;
mod secret;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grant::TokenHash;
use super::secret::Secret;
use super::user::Owner;

pub use language_tags::{is_tagged, member_names};
pub use secret::ClientSecret;

/// A client's metadata: names of RFC 7591 §2, then Doorward's own.
///
/// What it is called and its links may be there in several languages, as
/// members like `client_name#de` (RFC 7591 §2.2).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ClientMetadata {
    /// Its identifier, unique in the realm.
    pub client_id: String,
    /// Its secret, on input only: records keep it elsewhere.
    #[serde(default, skip_serializing)]
    pub client_secret: Option<Secret>,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// The grants it may use; `password` also allows to refresh what it gave.
    #[serde(default = "authorization_code_only")]
    pub grant_types: Vec<String>,
    /// Response types of the authorization endpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_types: Vec<String>,
    /// The scopes it may ask for, separated by blanks.
    #[serde(default)]
    pub scope: String,
    /// Where the authorization endpoint may send people back to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirect_uris: Vec<String>,
    /// Where a logout may send people to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post_logout_redirect_uris: Vec<String>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_type: Option<ApplicationType>,
    /// Where the redirect URIs of all clients are listed that belong together
    /// with it (OpenID Connect Registration §5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_identifier_uri: Option<String>,
    /// Where others send people who are to sign in there (OpenID Connect Core
    /// §4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiate_login_uri: Option<String>,
    /// Whether its ID tokens must say when their user signed in: they all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_auth_time: Option<bool>,
    /// The classes of authentication that it wishes for, unless a request says
    /// otherwise; the dearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub default_acr_values: Vec<String>,
    /// Where it is told that a session of its has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backchannel_logout_uri: Option<String>,
    /// Whether it must be told which session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backchannel_logout_session_required: bool,
    /// What browsers load where a session has ended in which it was signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontchannel_logout_uri: Option<String>,
    /// Whether that must name issuer and session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frontchannel_logout_session_required: bool,
    /// How it authenticates; absent: by Basic or by form, as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_method: Option<AuthMethod>,
    /// How the assertions are signed that it authenticates with; absent: any
    /// algorithm that fits its method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_signing_alg: Option<SignAlg>,
    /// Its home page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_uri: Option<String>,
    /// Its picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logo_uri: Option<String>,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<String>,
    /// Its terms of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tos_uri: Option<String>,
    /// Its privacy policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_uri: Option<String>,
    /// Its own keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<Value>,
    /// Where its own keys are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// Which software it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software_id: Option<String>,
    /// Which version of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software_version: Option<String>,
    /// How its ID tokens are signed; default RS256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token_signed_response_alg: Option<SignAlg>,
    /// How its answers of the userinfo endpoint are signed; absent: plain JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub userinfo_signed_response_alg: Option<SignAlg>,
    /// Whether its access tokens are always bound to a key (RFC 9449 §5.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dpop_bound_access_tokens: bool,
    /// Whether its authorization requests must be pushed (RFC 9126 §6).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_pushed_authorization_requests: bool,
    /// Whether it must send signed request objects (RFC 9101 §10.5).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_signed_request_object: bool,
    /// How its request objects are signed; absent: with any algorithm that its
    /// keys can be used with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_object_signing_alg: Option<RequestAlg>,
    /// Where it may have request objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request_uris: Vec<String>,
    /// Whether others know its users by the same `sub`; absent: they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_type: Option<SubjectType>,
    /// Own: the set of rules that it obeys as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Own: the resources that it may ask tokens for (RFC 8707); of those that
    /// are no URIs, by the parameter `audience` of a token exchange.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Own: the audiences that it is, besides its identifier: it may ask about
    /// tokens for them, and exchange them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audiences: Vec<String>,
    /// Own: the origins of its pages whose scripts may read answers of the
    /// provider, besides those of its redirect URIs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// Seconds after which its users have to sign in again, unless a request
    /// says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_max_age: Option<u32>,
    /// Own: whether its users are asked what it may have; absent: they are.
    /// False is for clients of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_consent: Option<bool>,
    /// Own: whether its users need a second factor, whatever the realm asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_second_factor: Option<bool>,
    /// Own: whether it must send a code challenge; absent: a public one must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_pkce: Option<bool>,
    /// Own: what is granted when it asks for no scope, separated by blanks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_scope: Option<String>,
    /// Own: the form of its access tokens; default: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token_format: Option<TokenFormat>,
    /// Own: how its JWT access tokens are signed; default: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token_signed_response_alg: Option<SignAlg>,
    /// Own: seconds an access token lives; 0 or absent: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_token_lifetime: Option<u32>,
    /// Own: seconds a refresh token lives; 0 or absent: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token_lifetime: Option<u32>,
    /// Own: seconds that a grant can be refreshed; 0 or absent: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_lifetime: Option<u32>,
    /// Own: whether each use of a refresh token gives another one; absent: the
    /// realm's. Those of public clients always do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token_rotation: Option<bool>,
    /// Own: seconds in which a spent refresh token gives the same successor
    /// again; absent: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token_grace: Option<u32>,
    /// Own: seconds an ID token lives; 0 or absent: the realm's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_token_lifetime: Option<u32>,
    /// Members in other languages, by their whole name: `client_name#de`.
    #[serde(skip)]
    pub localized: BTreeMap<String, String>,
}

fn authorization_code_only() -> Vec<String> {
    vec!["authorization_code".to_owned()]
}

/// Where a client runs (OpenID Connect Registration §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApplicationType {
    /// On a server, or in browsers.
    #[default]
    Web,
    /// On its user's device.
    Native,
}

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// HTTP Basic.
    ClientSecretBasic,
    /// Form fields.
    ClientSecretPost,
    /// An assertion signed with the secret (RFC 7523 §2.2).
    ClientSecretJwt,
    /// An assertion signed with a key of its own (RFC 7523 §2.2).
    PrivateKeyJwt,
    /// Not at all: a public client.
    None,
}

impl ClientMetadata {
    /// Whether the secret itself is needed, and not only a digest of it: to
    /// sign with it, or to verify what the client signs with it.
    pub fn needs_plain_secret(&self) -> bool {
        self.shared_algs().next().is_some()
            || self.token_endpoint_auth_method == Some(AuthMethod::ClientSecretJwt)
            || self.request_secret_alg().is_some()
    }

    /// The algorithms by which tokens for it are signed with its secret.
    pub fn shared_algs(&self) -> impl Iterator<Item = SignAlg> {
        let algs = [
            self.id_token_signed_response_alg,
            self.userinfo_signed_response_alg,
        ];
        algs.into_iter().flatten().filter(|alg| alg.is_shared())
    }

    /// The algorithms that its record names for tokens which the provider signs
    /// with keys of its own.
    pub fn own_algs(&self) -> impl Iterator<Item = SignAlg> {
        let algs = [
            self.access_token_signed_response_alg,
            self.id_token_signed_response_alg,
            self.userinfo_signed_response_alg,
        ];
        // The profile has an algorithm of its own where the realm's is too weak.
        let profile = self.profile.map(|_| SignAlg::ES256);
        let algs = algs.into_iter().flatten().chain(profile);
        algs.filter(|alg| !alg.is_shared())
    }

    /// Whether there is anything to do with a secret of it.
    pub fn has_use_for_secret(&self) -> bool {
        self.authenticates_by_secret() || self.needs_plain_secret()
    }

    /// The algorithm by which it signs its request objects with its secret, if
    /// it does.
    pub fn request_secret_alg(&self) -> Option<SignAlg> {
        match self.request_object_signing_alg {
            Some(RequestAlg::Signed(alg)) if alg.is_shared() => Some(alg),
            Some(RequestAlg::Signed(_) | RequestAlg::None) | None => None,
        }
    }

    /// The fewest bytes of a secret that is the key of every MAC which its record
    /// names (RFC 7518 §3.2); 0: it is the key of none.
    pub fn key_bytes(&self) -> usize {
        let asserts = self.token_endpoint_auth_method == Some(AuthMethod::ClientSecretJwt);
        // Where no algorithm is named, the shortest must do.
        let asserted = self.token_endpoint_auth_signing_alg;
        let asserted = asserts.then(|| asserted.unwrap_or(SignAlg::HS256));
        let all = self.shared_algs().chain(self.request_secret_alg());
        all.chain(asserted)
            .map(SignAlg::mac_bytes)
            .max()
            .unwrap_or(0)
    }

    /// Whether its secret is what it authenticates with.
    pub fn authenticates_by_secret(&self) -> bool {
        !matches!(
            self.token_endpoint_auth_method,
            Some(AuthMethod::None | AuthMethod::PrivateKeyJwt)
        )
    }
}

/// The form of an access token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenFormat {
    /// A signed JWT: nothing is stored when it is issued.
    #[default]
    Jwt,
    /// The same as RFC 9068 has it: with a media type of its own, `client_id`, and
    /// `scope` as a text.
    #[serde(rename = "at+jwt")]
    AtJwt,
    /// A random handle; its claims are in the store.
    Opaque,
}

/// A signature algorithm of tokens (RFC 7518 §3.1, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SignAlg {
    /// RSA PKCS#1 v1.5 with SHA-256.
    RS256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    RS384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    RS512,
    /// RSA PSS with SHA-256.
    PS256,
    /// RSA PSS with SHA-384.
    PS384,
    /// RSA PSS with SHA-512.
    PS512,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// ECDSA on P-384 with SHA-384.
    ES384,
    /// ECDSA on P-521 with SHA-512.
    ES512,
    /// Ed25519.
    EdDSA,
    /// HMAC with SHA-256; the key is the client's secret.
    HS256,
    /// HMAC with SHA-384; the key is the client's secret.
    HS384,
    /// HMAC with SHA-512; the key is the client's secret.
    HS512,
}

impl SignAlg {
    /// Those whose keys are the provider's own.
    pub const OWN: [Self; 10] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::ES512,
        Self::EdDSA,
    ];

    /// Those whose key is the client's secret.
    pub const SHARED: [Self; 3] = [Self::HS256, Self::HS384, Self::HS512];

    /// Those that FAPI 2.0 allows (Security Profile §5.4.1).
    pub const FAPI2: [Self; 3] = [Self::PS256, Self::ES256, Self::EdDSA];

    /// Its `alg` name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::ES512 => "ES512",
            Self::EdDSA => "EdDSA",
            Self::HS256 => "HS256",
            Self::HS384 => "HS384",
            Self::HS512 => "HS512",
        }
    }

    /// The algorithm of this `alg` name, if it is one of ours.
    pub fn parse(name: &str) -> Option<Self> {
        Self::OWN
            .into_iter()
            .chain(Self::SHARED)
            .find(|alg| alg.as_str() == name)
    }

    /// Whether its key is the client's secret.
    pub fn is_shared(self) -> bool {
        Self::SHARED.contains(&self)
    }

    /// The length of a MAC in bytes, which its key has at least; 0: it makes none.
    fn mac_bytes(self) -> usize {
        match self {
            Self::HS256 => 32,
            Self::HS384 => 48,
            Self::HS512 => 64,
            _ => 0,
        }
    }
}

/// Who knows users by the same `sub` (OpenID Connect Core §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectType {
    /// Every client.
    Public,
    /// The clients of one sector.
    Pairwise,
}

/// A set of rules that a client obeys as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The FAPI 2.0 Security Profile: pushed requests, `private_key_jwt`, PKCE,
    /// tokens bound by DPoP.
    Fapi2,
}

/// How a client signs its request objects (OpenID Connect Registration §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RequestAlg {
    /// Not at all: `none`.
    None,
    /// With this algorithm.
    Signed(SignAlg),
}

impl TryFrom<String> for RequestAlg {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match SignAlg::parse(&name) {
            Some(alg) => Ok(Self::Signed(alg)),
            None if name == "none" => Ok(Self::None),
            None => Err(format!("unknown signature algorithm `{name}`")),
        }
    }
}

impl From<RequestAlg> for String {
    fn from(alg: RequestAlg) -> Self {
        match alg {
            RequestAlg::None => "none".to_owned(),
            RequestAlg::Signed(alg) => alg.as_str().to_owned(),
        }
    }
}

/// A client of a realm.
#[derive(Clone, Debug)]
pub struct Client {
    /// Path of its realm.
    pub realm: String,
    /// Its metadata.
    pub metadata: ClientMetadata,
    /// Its secret.
    pub secret: ClientSecret,
    /// Who may change it.
    pub owner: Owner,
    /// What it shows to change itself (RFC 7592), if it registered itself.
    pub registration: Option<TokenHash>,
    /// Creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Last change, in milliseconds since the epoch.
    pub updated_ms: i64,
}

impl Client {
    /// Whether it has no secret to authenticate with.
    pub fn is_public(&self) -> bool {
        self.metadata.token_endpoint_auth_method == Some(AuthMethod::None)
    }
}
