//! What the token broker knows: API products, developers and their
//! applications, and the tokens that it gave out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::client::ClientSecret;
use super::grant::TokenHash;
use super::secret::Secret;
use super::user::Owner;

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Product`], known by its name.
    Product,
    /// [`Developer`], known by the address.
    Developer,
    /// [`Application`], known by its identifier.
    Application,
}

impl Kind {
    /// The word that the store keeps, and that messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Developer => "developer",
            Self::Application => "application",
        }
    }
}

/// A record as the store keeps it: opaque but for its keys.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its kind.
    pub kind: Kind,
    /// What it is known by within the kind.
    pub id: String,
    /// Of an application: its consumer key, which no other one has.
    pub key: Option<String>,
    /// Of an application: the address of its developer.
    pub parent: Option<String>,
    /// Its members.
    pub doc: Map<String, Value>,
    /// Of an application: what is kept of its consumer secret.
    pub secret: ClientSecret,
    /// Who may change it.
    pub owner: Owner,
    /// Creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Last change, in milliseconds since the epoch.
    pub updated_ms: i64,
    /// Whether its identifier was made up just now.
    pub made_up: bool,
}

impl Record {
    /// Takes over what was made up for `old`, of which this is a newer version
    /// that names none of its own.
    pub fn keep_identifiers(&mut self, old: &Self) {
        let member = match self.kind {
            Kind::Product => return,
            Kind::Developer => "developer_id",
            Kind::Application => "id",
        };
        if self.made_up {
            if let Some(id) = old.doc.get(member) {
                self.doc.insert(member.to_owned(), id.clone());
            }
            if self.kind == Kind::Application {
                self.id.clone_from(&old.id);
            }
        }
    }
}

/// What applications may be allowed to call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Product {
    /// Its name.
    pub name: String,
    /// What it is called.
    #[serde(alias = "displayName")]
    pub display_name: String,
    /// What it is for.
    pub description: String,
    /// The broker's proxies that it covers; none: all.
    pub proxies: Vec<String>,
    /// The environments that it covers; none: all.
    pub environments: Vec<String>,
    /// Patterns of the paths that it covers, below a proxy's base path; none:
    /// all.
    #[serde(alias = "apiResources")]
    pub api_resources: Vec<String>,
    /// The scopes that its applications can have.
    pub scopes: Vec<String>,
    /// Requests of an application in each interval; `None`: any number.
    pub quota: Option<u64>,
    /// How many units an interval has.
    #[serde(alias = "quotaInterval")]
    pub quota_interval: u32,
    /// The unit.
    #[serde(alias = "quotaTimeUnit")]
    pub quota_time_unit: TimeUnit,
    /// Whatever the operator notes.
    pub attributes: BTreeMap<String, String>,
}

/// A unit of the interval of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// A second.
    Second,
    /// 60 seconds.
    #[default]
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 30 days.
    Month,
}

impl TimeUnit {
    /// Its length.
    pub fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Month => 30 * 86_400,
        }
    }
}

/// Who makes applications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Developer {
    /// The address, which is the developer's name.
    pub email: String,
    /// Identifier, made when absent.
    #[serde(alias = "developerId")]
    pub developer_id: String,
    /// Given name.
    #[serde(alias = "firstName")]
    pub first_name: String,
    /// Family name.
    #[serde(alias = "lastName")]
    pub last_name: String,
    /// Nick name.
    #[serde(alias = "userName")]
    pub user_name: String,
    /// Whether the developer's applications may do anything.
    pub status: DeveloperStatus,
    /// Whatever the operator notes.
    pub attributes: BTreeMap<String, String>,
}

/// Whether a developer's applications are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeveloperStatus {
    /// They are.
    #[default]
    Active,
    /// They are not.
    Inactive,
}

/// A client of the broker's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Application {
    /// Identifier (a UUID), made when absent.
    #[serde(alias = "appId")]
    pub id: String,
    /// What it is called.
    pub name: String,
    /// The address of its developer.
    pub developer: String,
    /// Its `client_id`, made when absent. The provider knows it by the same.
    #[serde(alias = "consumerKey")]
    pub consumer_key: String,
    /// Its `client_secret`, on input only: records keep a digest of it.
    #[serde(alias = "consumerSecret", skip_serializing)]
    pub consumer_secret: Option<Secret>,
    /// The names of its products, in order.
    #[serde(alias = "apiProducts")]
    pub products: Vec<String>,
    /// Whether it may do anything.
    pub status: ApplicationStatus,
    /// Where its users come back to; for the operator's information.
    #[serde(alias = "callbackUrl")]
    pub callback_url: String,
    /// Whatever the operator notes.
    pub attributes: BTreeMap<String, String>,
    /// Tokens that were issued up to then are refused; milliseconds since the
    /// epoch.
    pub tokens_revoked_ms: i64,
}

/// Whether an application is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplicationStatus {
    /// It is.
    #[default]
    Approved,
    /// Not yet.
    Pending,
    /// Not any more.
    Revoked,
}

/// Tokens that the broker gave out, as the store keeps them: an access token
/// and the refresh token that came with it, in one row.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTokens {
    /// Hash of the access token.
    pub access: TokenHash,
    /// Whether the access token was not revoked.
    pub access_approved: bool,
    /// When the access token ends, in milliseconds since the epoch.
    pub expires_ms: i64,
    /// Hash of the refresh token, if there is one.
    pub refresh: Option<TokenHash>,
    /// Whether the refresh token was not revoked.
    pub refresh_approved: bool,
    /// When the refresh token ends, in milliseconds since the epoch.
    pub refresh_expires_ms: i64,
    /// When nobody asks about either any more.
    pub swept_ms: i64,
    /// The consumer key of their application.
    pub client_id: String,
    /// What else is known.
    pub facts: TokenFacts,
}

/// What the broker knows of tokens besides who has them until when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenFacts {
    /// Identifier of the application.
    pub application: String,
    /// How they were asked for first.
    pub grant_type: String,
    /// The scopes, in the order of the request.
    pub scopes: Vec<String>,
    /// When the access token was issued, in milliseconds since the epoch.
    pub issued_ms: i64,
    /// When the refresh token was issued, in milliseconds since the epoch.
    pub refresh_issued_ms: i64,
    /// How often they were refreshed.
    pub refresh_count: u64,
    /// Who signed in, if anybody did.
    pub end_user: String,
    /// Attributes of the operation that issued them.
    pub attributes: BTreeMap<String, Attribute>,
}

/// An attribute of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its value.
    pub value: String,
    /// Whether the client is told.
    pub display: bool,
}

/// A refresh: the tokens of `presented` give way to others.
#[derive(Clone, Debug)]
pub struct Refresh {
    /// Hash of the refresh token that was shown.
    pub presented: TokenHash,
    /// What takes the place.
    pub tokens: StoredTokens,
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// Which of two tokens that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The access token.
    Access,
    /// The refresh token.
    Refresh,
}

/// What is known of the client of a token, in the store.
#[derive(Clone, Debug)]
pub struct ClientRecords {
    /// The application.
    pub application: Record,
    /// Its developer, if there is one.
    pub developer: Option<Record>,
    /// Those of its products that there are, in no order.
    pub products: Vec<Record>,
}
