//! What the token broker knows: API products, developers and their
//! applications, and the tokens that it gave out.

pub mod refresh_token;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::client::ClientSecret;
use super::grant::TokenHash;
use super::secret::Secret;
use super::user::{Owner, name};

pub use refresh_token::PresentedRefreshToken;

/// Most characters of a name that tokens are known by as somebody's: an index
/// of PostgreSQL takes no more than 2,704 bytes.
const PERSON: usize = 400;

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

/// What became of the removal of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Done,
    /// There is no such record.
    Missing,
    /// It has another version than was meant.
    Stale,
    /// A developer has applications.
    InUse,
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
    /// The family that the refresh token names, by which it is found; `None`: it
    /// is found by itself.
    pub family: Option<TokenHash>,
    /// Whether the refresh token was not revoked.
    pub refresh_approved: bool,
    /// When the refresh token ends, in milliseconds since the epoch.
    pub refresh_expires_ms: i64,
    /// When nobody asks about either any more.
    pub swept_ms: i64,
    /// The consumer key of their application.
    pub client_id: String,
    /// Who signed in, as [`person`] or [`local_person`] says it; `None`: nobody,
    /// or it was not kept yet.
    pub person: Option<String>,
    /// When all was revoked that this person had begun, or the provider's token that
    /// they came of, in milliseconds since the epoch. The store tells it; it is not kept with the tokens.
    pub ended_ms: Option<i64>,
    /// What else is known.
    pub facts: TokenFacts,
}

impl StoredTokens {
    /// When the sign-in or request began that they came of, in milliseconds since
    /// the epoch: what is revoked since is not escaped by a refresh.
    pub fn begun_ms(&self) -> i64 {
        match self.facts.begun_ms {
            0 => self.facts.issued_ms,
            begun_ms => begun_ms,
        }
    }

    /// The user whom they are for, if it is one of the provider in this process.
    pub fn user(&self) -> Option<Uuid> {
        self.person.as_deref()?.parse().ok()
    }

    /// Whether all was revoked since that their person had begun.
    pub fn has_ended(&self) -> bool {
        self.ended_ms
            .is_some_and(|ended_ms| self.begun_ms() <= ended_ms)
    }
}

/// Who signed in at a foreign provider with this name.
pub fn person(end_user: &str) -> String {
    let key = name::key(end_user);
    let key = key.chars().filter(|c| *c != '\0').take(PERSON);
    "name:".chars().chain(key).collect()
}

/// The user of the provider in this process with this identifier.
pub fn local_person(id: Uuid) -> String {
    id.to_string()
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
    /// When somebody began to sign in for them, in milliseconds since the epoch; 0
    /// if nobody noted it. See [`StoredTokens::begun_ms`].
    pub begun_ms: i64,
    /// When the refresh token was issued, in milliseconds since the epoch.
    pub refresh_issued_ms: i64,
    /// How often they were refreshed.
    pub refresh_count: u64,
    /// Who signed in, if anybody did.
    pub end_user: String,
    /// Attributes of the operation that issued them.
    pub attributes: BTreeMap<String, Attribute>,
    /// What the provider in this process knows its own token by, of which these came
    /// first; `None`: they came of none of its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Map<String, Value>>,
}

impl TokenFacts {
    /// The names under which the end of the provider's token, and of its grant, is
    /// noted.
    pub fn origins(&self) -> [Option<String>; 2] {
        let text = |name: &str| self.origin.as_ref()?.get(name)?.as_str();
        [
            text("jti").map(origin_token),
            text("authGrantId").map(origin_grant),
        ]
    }
}

/// The access token of the provider in this process with this identifier, as
/// something that tokens came of.
pub fn origin_token(id: &str) -> String {
    format!("token:{id}")
}

/// The grant of the provider in this process with this identifier, as something that
/// tokens came of.
pub fn origin_grant(id: &str) -> String {
    format!("grant:{id}")
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
    /// What it was found by: its family, or itself.
    pub found_by: TokenHash,
    /// What takes the place.
    pub tokens: StoredTokens,
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
}

/// Which of two tokens that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// The access token.
    Access,
    /// The refresh token.
    Refresh,
}

/// What is to be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationTarget {
    /// The access token of this hash.
    Access(TokenHash),
    /// This refresh token, if it is in force.
    Refresh(PresentedRefreshToken),
    /// Both tokens of this family.
    Family(TokenHash),
}

impl RevocationTarget {
    /// The token of this text and kind.
    pub fn token(which: TokenKind, text: &str) -> Self {
        match which {
            TokenKind::Access => Self::Access(TokenHash::of(text)),
            TokenKind::Refresh => Self::Refresh(PresentedRefreshToken::of(text)),
        }
    }
}

/// What became of tokens that were to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenInsertion {
    /// They are.
    Both,
    /// The access token is; its refresh token was revoked before and stays so.
    AccessOnly,
    /// They are another application's, or the access token was revoked before.
    Neither,
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
