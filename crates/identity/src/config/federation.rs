//! The realm setting `federation`, as written: other OpenID providers that
//! users may sign in through.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use doorward_core::model::client::{AuthMethod, SignAlg};
use doorward_core::model::secret::Secret;

/// Another OpenID provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FederationProvider {
    /// Its name in addresses: letters, digits and `._~-`, unique in the realm.
    pub name: String,
    /// What the button on the sign-in page says; absent: the name.
    pub title: Option<String>,
    /// A picture for the button: `data:image/…`, or a path on this host.
    pub logo: Option<String>,
    /// Whether it is offered. What is linked to it stays linked.
    pub enabled: bool,
    /// Whether users are led there without seeing the sign-in page, where it is
    /// the only provider.
    pub auto_redirect: bool,
    /// Its issuer identifier: https, or http on this machine. Everything else
    /// is read from its metadata (OpenID Connect Discovery §4).
    pub issuer: String,
    /// Who we are to it.
    pub client_id: String,
    /// The secret that it gave us.
    #[serde(skip_serializing)]
    pub client_secret: Option<Secret>,
    /// How we prove who we are; absent: by the secret, as its metadata wants.
    /// `private_key_jwt` signs with the provider's own keys, which are
    /// published at `connect/jwk_uri` of the realm.
    pub token_endpoint_auth_method: Option<AuthMethod>,
    /// How our assertions are signed; absent: `ES256`, with a secret `HS256`.
    pub token_endpoint_auth_signing_alg: Option<SignAlg>,
    /// For whom our assertions are said to be.
    pub assertion_audience: AssertionAudience,
    /// The only algorithm of its ID tokens. Absent: each that its metadata
    /// names, but for those with a shared secret.
    pub id_token_signed_response_alg: Option<SignAlg>,
    /// What is asked for, separated by blanks.
    pub scope: String,
    /// How it answers.
    pub response_mode: ResponseMode,
    /// `prompt` of every request to it, unless the request here asks for more.
    pub prompt: Option<String>,
    /// `acr_values` of every request to it.
    pub acr_values: Option<String>,
    /// Sign-ins with another `acr` than one of these are refused; empty: all
    /// are taken.
    pub require_acr: Vec<String>,
    /// Whether its `amr` is believed: `mfa` there is a second factor here.
    pub trust_amr: bool,
    /// Further parameters of every request to it, such as `domain_hint`.
    pub parameters: BTreeMap<String, String>,
    /// Whether its user info is asked for what the ID token does not say.
    pub userinfo: bool,
    /// Whether it is believed that an address is the user's where it says
    /// `email_verified`.
    pub trust_email: bool,
    /// Whose account a sign-in leads to.
    pub link: LinkRules,
    /// Attributes of users by the claims that they are made from. Absent: the
    /// usual ones.
    pub map: Option<BTreeMap<String, String>>,
}

impl Default for FederationProvider {
    fn default() -> Self {
        Self {
            name: String::new(),
            title: None,
            logo: None,
            enabled: true,
            auto_redirect: false,
            issuer: String::new(),
            client_id: String::new(),
            client_secret: None,
            token_endpoint_auth_method: None,
            token_endpoint_auth_signing_alg: None,
            assertion_audience: AssertionAudience::Issuer,
            id_token_signed_response_alg: None,
            scope: "openid profile email".to_owned(),
            response_mode: ResponseMode::Query,
            prompt: None,
            acr_values: None,
            require_acr: Vec::new(),
            trust_amr: false,
            parameters: BTreeMap::new(),
            userinfo: true,
            trust_email: false,
            link: LinkRules::default(),
            map: None,
        }
    }
}

/// Whose account a sign-in at another provider leads to, when the two are not
/// linked yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkRules {
    /// Which accounts are linked without being asked.
    pub existing: LinkExisting,
    /// Whether a new account is made where there is none.
    pub create: bool,
    /// The name of a new account, with `{claim}` for what the provider says.
    pub user_name: String,
    /// Whether mapped attributes follow the provider at each sign-in.
    pub update: bool,
    /// Whether `amadmin` may be signed in by this provider.
    pub administrator: bool,
    /// Groups here that follow groups there at each sign-in, by their names there.
    pub groups: BTreeMap<String, String>,
    /// The claim that names the groups there.
    pub groups_claim: String,
}

impl Default for LinkRules {
    fn default() -> Self {
        Self {
            existing: LinkExisting::Never,
            create: false,
            user_name: "{preferred_username}".to_owned(),
            update: false,
            administrator: false,
            groups: BTreeMap::new(),
            groups_claim: "groups".to_owned(),
        }
    }
}

/// Which accounts are linked to a user of another provider by what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkExisting {
    /// None: the user signs in here first, and links then.
    #[default]
    Never,
    /// The only one that has the address as a verified one, if the provider is
    /// believed about addresses and says that it is verified.
    VerifiedEmail,
    /// The one of the name that a new account would have. Only for a provider
    /// that gives names out under the same authority.
    UserName,
}

/// For whom our assertions (RFC 7523 §3) are said to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionAudience {
    /// The issuer: nobody can make us sign for somebody else.
    #[default]
    Issuer,
    /// The token endpoint, for providers that know no better.
    TokenEndpoint,
}

/// How the other provider answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseMode {
    /// In the address.
    #[default]
    Query,
    /// In a form that the browser posts.
    FormPost,
}
