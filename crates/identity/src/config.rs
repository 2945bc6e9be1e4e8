//! The `identity` section of the configuration file, as written.

mod factors;
mod federation;
mod ldap;
mod lockout;
mod mail;
mod password_policy;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::own_settings::OwnSettings;
use doorward_core::jose::keys::KeyError;
use doorward_core::jose::vault::Vault;
use doorward_core::model::client::{ClientMetadata, SignAlg, TokenFormat};
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::{Allow, Authorities};

pub use factors::{
    AuthenticationClass, FactorSettings, PasskeysConfig, SecondFactor, usual_classes,
};
pub use federation::{
    AssertionAudience, FederationProvider, LinkExisting, LinkRules, ResponseMode,
};
pub use ldap::{LdapConfig, SearchScope};
pub use lockout::{AddressLockout, LockoutConfig, LockoutSection};
pub use mail::{MailConfig, SmtpConfig, SmtpTls, WebhookConfig};
pub use password_policy::PasswordPolicy;

/// The identity provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// What clients see: issuers and links are made from it. Absolute, http or
    /// https, without query; a path becomes a prefix of every endpoint.
    pub base_url: String,
    /// Realms by path: `/`, `/alpha`, `/alpha/beta`. `/` always exists.
    pub realms: BTreeMap<String, RealmConfig>,
    /// What happens after repeated wrong passwords.
    pub lockout: LockoutSection,
    /// How people are written to who forgot their passwords.
    pub mail: MailConfig,
    /// How passwords are hashed.
    pub hashing: HashingConfig,
    /// How signing keys rotate.
    pub keys: KeysConfig,
    /// Sessions of `authenticate`.
    pub session: SessionConfig,
    /// Versions of the endpoints below `/json`.
    pub api: ApiConfig,
    /// Requests to addresses that others choose.
    pub outbound: OutboundConfig,
    /// The file that this was read from; operators are told of it.
    #[serde(skip)]
    pub file: Option<PathBuf>,
    /// Whether the provider answers below `base_url` what no route takes, where no
    /// service leads to it.
    pub mount: bool,
    /// What people see.
    pub pages: PagesConfig,
    /// Passkeys.
    pub passkeys: PasskeysConfig,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            base_url: "http://localhost:8000".to_owned(),
            realms: BTreeMap::new(),
            lockout: LockoutSection::default(),
            mail: MailConfig::default(),
            hashing: HashingConfig::default(),
            keys: KeysConfig::default(),
            session: SessionConfig::default(),
            api: ApiConfig::default(),
            outbound: OutboundConfig::default(),
            file: None,
            mount: true,
            pages: PagesConfig::default(),
            passkeys: PasskeysConfig::default(),
        }
    }
}

/// The pages for people.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PagesConfig {
    /// A directory with a stylesheet, pictures and texts of one's own.
    pub theme: Option<PathBuf>,
    /// Seconds for which browsers come by TLS only, once they have seen a page;
    /// 0: they are not told. Said only if `base_url` is https.
    pub hsts_seconds: u32,
    /// Whether pictures of clients (`logo_uri`) are loaded from where they are,
    /// by https. Others are shown only if they are part of their address or on
    /// the provider's own origin.
    pub remote_logos: bool,
}

impl PagesConfig {
    /// The files of the theme as they are now.
    pub fn files(&self) -> Vec<PathBuf> {
        let theme = self.theme.as_deref();
        theme.map(super::pages::theme_files).unwrap_or_default()
    }

    /// The directories of the theme.
    pub fn directories(&self) -> Vec<PathBuf> {
        let theme = self.theme.iter();
        let all = theme.flat_map(|theme| [theme.clone(), theme.join("texts")]);
        all.filter(|directory| directory.is_dir()).collect()
    }
}

impl Default for PagesConfig {
    fn default() -> Self {
        Self {
            theme: None,
            hsts_seconds: 365 * 24 * 3600,
            remote_logos: false,
        }
    }
}

/// Requests to addresses that others choose: keys and documents of clients,
/// their logout endpoints.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutboundConfig {
    /// Host names, addresses and networks that clients may name though they
    /// are not public; those also by plain http. What the operator wrote into
    /// a client's record is reached anyway.
    pub allow: Vec<String>,
    /// PEM file of authorities that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
}

impl OutboundConfig {
    /// The rules for requests.
    ///
    /// # Errors
    /// The name of the setting that is wrong, and why.
    pub fn read(&self) -> Result<(Allow, Authorities), (String, String)> {
        let allow = Allow::parse(&self.allow);
        let allow =
            allow.map_err(|error| (format!("allow[{}]", error.index), error.to_string()))?;
        let authorities = match &self.ca_file {
            Some(file) => Authorities::read(file),
            None => Ok(Authorities::default()),
        };
        let authorities = authorities.map_err(|error| ("ca_file".to_owned(), error.to_string()))?;
        Ok((allow, authorities))
    }
}

/// A realm: its declared users and clients, and its settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RealmConfig {
    /// Host names under which paths that name no realm mean this one. They say
    /// nothing about issuers and links: those are made from `base_url`.
    pub hosts: Vec<String>,
    /// Users by their SCIM record and a `password`.
    pub users: Vec<DeclaredUser>,
    /// Clients by RFC 7591 metadata names and `client_secret`.
    pub clients: Vec<ClientMetadata>,
    /// Settings; what is not set is as in the realm above.
    pub settings: OwnSettings,
}

/// A user as the file declares it.
#[derive(Clone, Debug, Deserialize)]
pub struct DeclaredUser {
    /// The password; only a hash of it enters the store.
    #[serde(default)]
    pub password: Option<Secret>,
    /// The record; its names are checked against the user schema.
    #[serde(flatten)]
    pub record: Map<String, Value>,
}

/// Settings of a realm. Lifetimes are in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RealmSettings {
    /// Life of an access token; at most 30 days.
    pub access_token_lifetime: u32,
    /// Life of a refresh token that is not used.
    pub refresh_token_lifetime: u32,
    /// Life of a grant, however often it is refreshed.
    pub grant_lifetime: u32,
    /// Whether each use of a refresh token gives another one, and the second use
    /// of one ends the grant. Those of public clients always rotate.
    pub refresh_token_rotation: bool,
    /// How long after its use a refresh token gives the same successor again:
    /// for clients that lost the answer. 0: not at all; at most 300.
    pub refresh_token_grace: u32,
    /// Whether proofs of possession (DPoP) must carry a nonce of the provider.
    pub dpop_nonce: bool,
    /// Whose signed statements about users are believed (grant `jwt-bearer`).
    pub trusted_issuers: Vec<TrustedIssuer>,
    /// Life of an ID token; at most 30 days.
    pub id_token_lifetime: u32,
    /// Life of an authorization code; at most 600.
    pub code_lifetime: u32,
    /// Life of a device's codes; from 60 to 1800.
    pub device_code_lifetime: u32,
    /// Seconds that a device waits between two polls; at most 60.
    pub device_polling_interval: u32,
    /// The address that devices show to people. Absent: the provider's page
    /// itself, to which another one must lead.
    pub device_verification_uri: Option<String>,
    /// Devices of a client that may wait for people at once.
    pub device_codes_per_client: u32,
    /// Seconds in which a browser may begin with a pushed authorization request
    /// (RFC 9126); at most 600.
    pub pushed_request_lifetime: u32,
    /// Whether all authorization requests must be pushed.
    pub require_pushed_authorization_requests: bool,
    /// Whether clients that registered no algorithm may send request objects
    /// that nobody signed (`none`). Those that registered `none` may in any case,
    /// and so may those that registered themselves.
    pub unsigned_request_objects: bool,
    /// Whether a code challenge may be the verifier itself. Without need, leave
    /// it off: who reads the request can then exchange the code.
    pub plain_pkce: bool,
    /// What `sub` says of users, unless the client's subjects are pairwise.
    pub subject: SubjectSource,
    /// The form of access tokens, unless the client's record names another.
    pub access_token_format: TokenFormat,
    /// How JWT access tokens are signed, unless the client's record says
    /// otherwise.
    pub access_token_signed_response_alg: SignAlg,
    /// How ID tokens are signed, unless the client's record says otherwise.
    pub id_token_signed_response_alg: SignAlg,
    /// Whether the `password` grant gives a refresh token.
    pub issue_refresh_token: bool,
    /// What is granted when neither request nor client names a scope,
    /// separated by blanks; empty: such requests are refused.
    pub default_scope: String,
    /// What a request gets that asks for a scope that the client does not have;
    /// unset: it is ignored at the authorization endpoint where `openid` is asked
    /// for, and refused elsewhere.
    pub unknown_scope: Option<UnknownScope>,
    /// Scopes that are granted to users of one of these groups alone.
    pub scope_groups: BTreeMap<String, Vec<String>>,
    /// Whether ID tokens have the claims that the imitated service adds
    /// (`auditTrackingId`, `realm`, `tokenName`, `tokenType`), and authorization
    /// answers `scope` and `client_id`. Those of profile `fapi2` never do.
    pub proprietary_claims: bool,
    /// The scope that a token needs to query users. Absent: every token of a
    /// client on its own behalf may, and a user's token sees that user only.
    pub users_scope: Option<String>,
    /// The scope that the token of a client on its own behalf needs to create,
    /// change and delete users. Empty: nobody may.
    pub users_write_scope: String,
    /// The scope that a token needs to query groups. Absent: every token of a
    /// client on its own behalf may, and a user's token sees that user's groups.
    pub groups_scope: Option<String>,
    /// As `users_write_scope`, for groups.
    pub groups_write_scope: String,
    /// The scope that a user's token needs to change that user's own profile.
    /// Empty: nobody may.
    pub me_write_scope: String,
    /// Origins whose scripts may read answers of the provider, besides those of
    /// the clients; `*`: all. Cookies are never read for them.
    pub cors_origins: Vec<String>,
    /// Resources that every client of the realm may ask tokens for (RFC 8707),
    /// besides those of its own record: at most 100 absolute URIs without
    /// fragment.
    pub resources: Vec<String>,
    /// `successUrl` of `authenticate`.
    pub success_url: String,
    /// Where `goto` and `gotoOnFail` may lead besides paths of the provider:
    /// `https://app.example/*`. `*` is anything but `?`, `-*-` one level.
    pub goto_urls: Vec<String>,
    /// Under which names clients may ask for the way to sign in
    /// (`authIndexType=service`).
    pub login_services: Vec<String>,
    /// Addresses or networks from which `amadmin` may authenticate. Absent:
    /// from everywhere.
    pub admin_addresses: Option<Vec<String>>,
    /// Clients that register themselves.
    pub registration: RegistrationSettings,
    /// Clients whose identifier is the address of a document about themselves.
    pub client_metadata_documents: ClientDocumentSettings,
    /// What new passwords must be like.
    pub password_policy: PasswordPolicy,
    /// Whether people who forgot their passwords may have links to choose new
    /// ones, where `identity.mail` says how they are written to.
    pub password_reset: bool,
    /// Other OpenID providers that users may sign in through.
    pub federation: Vec<FederationProvider>,
    /// Of whom a second factor is asked.
    pub second_factor: SecondFactor,
    /// Which factors there are.
    pub factors: FactorSettings,
    /// Classes of authentication, from the weakest to the strongest.
    pub acr_values: Vec<AuthenticationClass>,
    /// A directory whose users sign in with the passwords that it knows.
    pub ldap: Option<LdapConfig>,
}

/// Whose documents about clients count (Client ID Metadata Documents). Such clients may
/// be what clients that register themselves may be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientDocumentSettings {
    /// Whose documents count.
    pub mode: DocumentMode,
    /// The hosts of `listed`.
    pub allowed_hosts: Vec<String>,
}

/// Whose documents about clients count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DocumentMode {
    /// Nobody's: identifiers are those of registered clients.
    #[default]
    Disabled,
    /// Those of the hosts that are listed.
    Listed,
    /// Everybody's.
    Open,
}

/// What clients that register themselves (RFC 7591) may be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrationSettings {
    /// Who may register clients.
    pub mode: RegistrationMode,
    /// The grants that they may use.
    pub grant_types: Vec<String>,
    /// The scopes that they may have, separated by blanks.
    pub scope: String,
    /// How many of them there may be.
    pub max_clients: u32,
    /// How many strangers may register within a minute from one address (IPv6:
    /// network) where anybody may, and how often they may change their records;
    /// 0: any number.
    pub rate_per_minute: u32,
    /// Seconds after which one is removed that was not used; 0: never.
    pub unused_lifetime: u32,
}

impl Default for RegistrationSettings {
    fn default() -> Self {
        let grants = ["authorization_code", "implicit", "refresh_token"];
        Self {
            mode: RegistrationMode::Disabled,
            grant_types: grants.map(str::to_owned).to_vec(),
            scope: "openid profile email address phone offline_access".to_owned(),
            max_clients: 1000,
            rate_per_minute: 60,
            unused_lifetime: 30 * 24 * 3600,
        }
    }
}

/// What a request gets that asks for a scope that the client does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownScope {
    /// `invalid_scope` (RFC 6749 §3.3).
    Refuse,
    /// The other scopes (OpenID Connect Core §3.1.2.1); `invalid_scope` if there
    /// is none.
    Ignore,
}

/// What `sub` says of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubjectSource {
    /// The name; the identifier where the name was another user's before.
    #[default]
    Name,
    /// The identifier.
    Id,
}

/// Who may register clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistrationMode {
    /// Nobody: there is no such endpoint.
    #[default]
    Disabled,
    /// Who has an initial access token.
    Token,
    /// Anybody.
    Open,
}

/// An issuer of assertions (RFC 7523 §3): its subjects are user names.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedIssuer {
    /// What its assertions name as `iss`.
    pub issuer: String,
    /// Its public keys.
    #[serde(default)]
    pub jwks: Option<Value>,
    /// Or where they are: https, or http on this machine.
    #[serde(default)]
    pub jwks_uri: Option<String>,
}

impl Default for RealmSettings {
    fn default() -> Self {
        Self {
            access_token_lifetime: 3600,
            refresh_token_lifetime: 604_800,
            grant_lifetime: 30 * 24 * 3600,
            refresh_token_rotation: true,
            refresh_token_grace: 0,
            dpop_nonce: false,
            trusted_issuers: Vec::new(),
            id_token_lifetime: 3600,
            code_lifetime: 60,
            device_code_lifetime: 300,
            device_polling_interval: 5,
            device_verification_uri: None,
            device_codes_per_client: 10_000,
            pushed_request_lifetime: 90,
            require_pushed_authorization_requests: false,
            unsigned_request_objects: false,
            plain_pkce: false,
            subject: SubjectSource::Name,
            access_token_format: TokenFormat::Jwt,
            access_token_signed_response_alg: SignAlg::ES256,
            id_token_signed_response_alg: SignAlg::RS256,
            issue_refresh_token: true,
            default_scope: String::new(),
            unknown_scope: None,
            scope_groups: BTreeMap::new(),
            proprietary_claims: true,
            users_scope: None,
            users_write_scope: "scim:write".to_owned(),
            groups_scope: None,
            groups_write_scope: "scim:write".to_owned(),
            me_write_scope: "me:write".to_owned(),
            cors_origins: Vec::new(),
            resources: Vec::new(),
            success_url: "/".to_owned(),
            goto_urls: Vec::new(),
            login_services: vec!["ldapService".to_owned(), "Login".to_owned()],
            admin_addresses: None,
            registration: RegistrationSettings::default(),
            client_metadata_documents: ClientDocumentSettings::default(),
            password_policy: PasswordPolicy::default(),
            password_reset: true,
            federation: Vec::new(),
            second_factor: SecondFactor::default(),
            factors: FactorSettings::default(),
            acr_values: usual_classes(),
            ldap: None,
        }
    }
}

/// The cost of Argon2id, for new hashes, and how much of it is done at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HashingConfig {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
    /// Hashes made at once; 0: one a processor core.
    pub parallel: usize,
    /// Requests that may wait for each of them; the next get 503.
    pub queue: usize,
}

impl Default for HashingConfig {
    fn default() -> Self {
        Self {
            memory_kib: 19 * 1024,
            passes: 2,
            lanes: 1,
            parallel: 0,
            queue: 512,
        }
    }
}

/// Rotation of signing keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeysConfig {
    /// Days that a key signs; 0: until `doorward keys rotate`.
    pub rotate_days: u32,
    /// Hours that a key is published before it signs.
    pub publish_ahead_hours: u32,
    /// What private keys are encrypted with in the store: 32 random bytes or
    /// more, from the environment or a file. Absent: they are not.
    pub master_key: Option<Secret>,
    /// Earlier master keys: what they encrypted is encrypted anew at the start.
    pub previous_master_keys: Vec<Secret>,
}

impl KeysConfig {
    /// What private keys are sealed and opened with.
    ///
    /// # Errors
    /// [`KeyError::Master`] for a text that is too short.
    pub fn vault(&self) -> Result<Vault, KeyError> {
        Vault::new(self.master_key.iter().chain(&self.previous_master_keys))
    }
}

impl Default for KeysConfig {
    fn default() -> Self {
        Self {
            rotate_days: 90,
            publish_ahead_hours: 24,
            master_key: None,
            previous_master_keys: Vec::new(),
        }
    }
}

/// Which version of the endpoints below `/json` answers those who name none.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// The version.
    pub default_version: DefaultVersion,
    /// Whether they are told (header `Warning`) that they should name one.
    pub warnings: bool,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            default_version: DefaultVersion::Latest,
            warnings: true,
        }
    }
}

/// The version for requests without `Accept-API-Version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultVersion {
    /// The newest.
    Latest,
    /// The oldest.
    Oldest,
    /// None: such requests are refused.
    None,
}

/// Sessions of `authenticate`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionConfig {
    /// Name of the cookie, and of the header that carries the token.
    pub cookie_name: String,
    /// Minutes that a session lasts at most.
    pub max_minutes: u32,
    /// Minutes without use after which it ends.
    pub idle_minutes: u32,
    /// Sessions a user can have; the oldest end first.
    pub quota: u32,
    /// Whether clients are told (back-channel logout) of sessions that lapsed,
    /// too, and not only of those that somebody ended.
    pub backchannel_logout_on_expiry: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            cookie_name: "iPlanetDirectoryPro".to_owned(),
            max_minutes: 120,
            idle_minutes: 30,
            quota: 100,
            backchannel_logout_on_expiry: false,
        }
    }
}
