//! The realm setting `ldap`, as written: a directory whose users sign in with
//! the passwords that it knows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use doorward_core::model::secret::Secret;

/// A directory (LDAP, RFC 4510).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LdapConfig {
    /// Its name in links and logs. Who has signed in keeps it: change it only
    /// for another directory.
    pub name: String,
    /// Its servers, `ldaps://host[:port]` or `ldap://…`: the first that
    /// answers.
    pub urls: Vec<String>,
    /// Whether connections to `ldap://` begin with StartTLS.
    pub starttls: bool,
    /// PEM file of the authorities of the servers; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Whether certificates are checked.
    pub tls_verify: bool,
    /// Who searches; absent: anybody may.
    pub bind_dn: Option<String>,
    /// The password of `bind_dn`.
    #[serde(skip_serializing)]
    pub bind_password: Option<Secret>,
    /// Where entries are searched.
    pub base_dn: Option<String>,
    /// What finds the entry of a user, with `{name}` for what was typed.
    pub filter: String,
    /// How deep is searched.
    pub scope: SearchScope,
    /// The name of the user's entry, with `{name}`: nothing is searched then.
    pub user_dn: Option<String>,
    /// Seconds that a sign-in waits for the directory; at most 30.
    pub timeout: u32,
    /// Connections at once; at most 256.
    pub connections: u32,
    /// The attribute that names an entry for ever; absent: the entry's name.
    pub id_attribute: Option<String>,
    /// The attribute with the name that users sign in with. Another name than
    /// the typed one is not let in.
    pub user_name_attribute: String,
    /// Whether users are made at their first sign-in.
    pub create: bool,
    /// Whether users of the same name and without a password are the
    /// directory's from their first sign-in on.
    pub link_existing: bool,
    /// Whether the directory decides also about its users that have a password
    /// here.
    pub over_local: bool,
    /// Whether mapped attributes follow the directory at each sign-in.
    pub update: bool,
    /// Whether addresses of the directory are verified ones.
    pub trust_email: bool,
    /// Whether `amadmin` may be signed in by the directory.
    pub administrator: bool,
    /// Attributes of users by those of entries. Absent: the usual ones.
    pub map: Option<BTreeMap<String, String>>,
}

impl Default for LdapConfig {
    fn default() -> Self {
        Self {
            name: "ldap".to_owned(),
            urls: Vec::new(),
            starttls: false,
            ca_file: None,
            tls_verify: true,
            bind_dn: None,
            bind_password: None,
            base_dn: None,
            filter: "(uid={name})".to_owned(),
            scope: SearchScope::Subtree,
            user_dn: None,
            timeout: 5,
            connections: 16,
            id_attribute: None,
            user_name_attribute: "uid".to_owned(),
            create: false,
            link_existing: false,
            over_local: false,
            update: false,
            trust_email: false,
            administrator: false,
            map: None,
        }
    }
}

/// How deep is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchScope {
    /// Everything below.
    #[default]
    Subtree,
    /// What is directly below.
    One,
}
