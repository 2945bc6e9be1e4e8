//! The section `admin.console` of the configuration file, as written.

use std::fmt;
use std::net::SocketAddr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use url::Url;

use doorward_core::model::client::ClientMetadata;
use doorward_core::model::user::name;

use super::CALLBACK;
use super::session::Role;

/// What the console is to the provider unless the section says.
const CLIENT_ID: &str = "doorward-console";

/// The section: `true`, `false`, or settings.
#[derive(Clone, Debug)]
pub struct ConsoleConfig {
    /// Whether `/console` is served.
    pub is_on: bool,
    /// How people sign in.
    pub settings: ConsoleSettings,
}

/// How people sign in.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleSettings {
    /// The origin under which browsers find the console, besides loopback.
    pub address: Option<String>,
    /// The path of the realm whose users sign in; absent: `/`.
    pub realm: Option<String>,
    /// What the console is to the provider; absent: `doorward-console`.
    pub client_id: Option<String>,
    /// Who may do what, by groups of the realm; absent: the provider signs nobody
    /// in.
    pub roles: Option<RoleGroups>,
    /// Whether `admin.token` signs in, too.
    pub token: bool,
    /// How long ago a person may have signed in who changes something, in seconds;
    /// absent: as long as the session lasts.
    pub step_up_age: Option<u32>,
}

/// The groups whose members have a role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoleGroups {
    /// Those who see everything that is shown.
    pub viewer: Vec<String>,
    /// Those who change entities as well.
    pub operator: Vec<String>,
    /// Those who may do everything.
    pub owner: Vec<String>,
}

/// Where the console is, as its provider has to know.
#[derive(Clone, Debug, Default)]
pub struct Listeners<'a> {
    /// Addresses without TLS.
    pub plain: &'a [String],
    /// Addresses with TLS.
    pub tls: &'a [String],
    /// Host names besides those of the machine.
    pub hosts: &'a [String],
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self {
            is_on: true,
            settings: ConsoleSettings::default(),
        }
    }
}

impl Default for ConsoleSettings {
    fn default() -> Self {
        Self {
            address: None,
            realm: None,
            client_id: None,
            roles: None,
            token: true,
            step_up_age: None,
        }
    }
}

impl<'de> Deserialize<'de> for ConsoleConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SectionVisitor)
    }
}

struct SectionVisitor;

impl<'de> Visitor<'de> for SectionVisitor {
    type Value = ConsoleConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a mapping")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<ConsoleConfig, E> {
        Ok(ConsoleConfig {
            is_on,
            settings: ConsoleSettings::default(),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ConsoleConfig, A::Error> {
        Ok(ConsoleConfig {
            is_on: true,
            settings: ConsoleSettings::deserialize(MapAccessDeserializer::new(map))?,
        })
    }
}

impl ConsoleSettings {
    /// The path of the realm whose users sign in.
    pub fn realm(&self) -> &str {
        self.realm.as_deref().unwrap_or("/")
    }

    /// What the console is to the provider.
    pub fn client_id(&self) -> &str {
        self.client_id.as_deref().unwrap_or(CLIENT_ID)
    }

    /// The host name of `address`.
    pub fn host(&self) -> Option<String> {
        let address = Url::parse(self.address.as_deref()?).ok()?;
        address.host_str().map(str::to_owned)
    }

    /// What is wrong with the section: keys below it, and why. `realms`: the paths
    /// of the realms that the file has, if it has a provider.
    pub fn check(&self, has_token: bool, realms: Option<&[&str]>) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut at = |key, message: &str| wrong.push((key, message.to_owned()));
        if self.address.as_deref().is_some_and(|text| !is_origin(text)) {
            at(
                "address",
                "expected an origin such as https://admin.example",
            );
        }
        if self.step_up_age == Some(0) {
            at("step_up_age", "expected at least 1: seconds");
        }
        let Some(roles) = &self.roles else {
            for (key, is_set) in [
                ("address", self.address.is_some()),
                ("realm", self.realm.is_some()),
                ("client_id", self.client_id.is_some()),
                ("step_up_age", self.step_up_age.is_some()),
            ] {
                if is_set {
                    at(key, "has no effect without admin.console.roles");
                }
            }
            if !self.token {
                at("token", "needs admin.console.roles: nobody could sign in");
            }
            return wrong;
        };
        let groups = roles.groups();
        if groups.iter().all(|(_, groups)| groups.is_empty()) {
            at("roles", "names no group: nobody could sign in");
        }
        if groups
            .iter()
            .any(|(_, all)| all.iter().any(|one| one.trim().is_empty()))
        {
            at("roles", "a name of a group is empty");
        }
        if !has_token {
            let message = "needs admin.token: without it the Admin API beside the console is \
                           open to everybody who reaches the listener, whatever their role";
            at("roles", message);
        }
        match realms {
            None => at("roles", "needs the section identity: its users sign in"),
            Some(realms) if self.realm() != "/" && !realms.contains(&self.realm()) => {
                at("realm", "is no realm of identity.realms");
            }
            Some(_) => {}
        }
        wrong
    }

    /// The origins under which people sign in; the first one is for those who came
    /// under another.
    pub fn origins(&self, listeners: &Listeners<'_>) -> Vec<String> {
        let port = |address: &String| Some(address.parse::<SocketAddr>().ok()?.port());
        let mut all: Vec<String> = self.address.iter().cloned().collect();
        for port in listeners.plain.iter().filter_map(port) {
            let local = ["localhost", "127.0.0.1", "[::1]"];
            all.extend(local.map(|host| format!("http://{host}:{port}")));
        }
        for port in listeners.tls.iter().filter_map(port) {
            let local = ["localhost", "127.0.0.1", "[::1]"];
            let hosts = local
                .into_iter()
                .chain(listeners.hosts.iter().map(String::as_str));
            all.extend(hosts.map(|host| format!("https://{host}:{port}")));
        }
        let mut origins = Vec::new();
        for origin in all {
            // Browsers leave out the port that the scheme means anyway.
            let Ok(url) = Url::parse(&origin) else {
                continue;
            };
            let origin = url.origin().ascii_serialization();
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        origins
    }

    /// The client that the console is, unless the file declares one: public, by code
    /// and PKCE alone, sent back to these origins and nowhere else.
    pub fn client(&self, origins: &[String]) -> Option<ClientMetadata> {
        let below = |path: &str| -> Vec<String> {
            let all = origins.iter().map(|origin| format!("{origin}{path}"));
            all.collect()
        };
        let metadata = json!({
            "client_id": self.client_id(),
            "client_name": "Doorward console",
            "client_name#de": "Doorward-Konsole",
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code"],
            "response_types": ["code"],
            "scope": "openid",
            "redirect_uris": below(CALLBACK),
            "post_logout_redirect_uris": below(super::SIGN_IN),
            "require_pkce": true,
            "require_consent": false,
        });
        serde_json::from_value(metadata).ok()
    }
}

impl RoleGroups {
    fn groups(&self) -> [(Role, &[String]); 3] {
        [
            (Role::Owner, self.owner.as_slice()),
            (Role::Operator, self.operator.as_slice()),
            (Role::Viewer, self.viewer.as_slice()),
        ]
    }

    /// The highest role of somebody who is in `groups`.
    pub(crate) fn role_of(&self, groups: &[String]) -> Option<Role> {
        let keys: Vec<String> = groups.iter().map(|group| name::key(group)).collect();
        let has = |names: &[String]| names.iter().any(|one| keys.contains(&name::key(one)));
        let all = self.groups().into_iter();
        let mut fitting = all.filter(|(_, names)| has(names));
        fitting.next().map(|(role, _)| role)
    }
}

/// Whether this is an origin as browsers send it (RFC 6454 §6.2).
fn is_origin(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: serde_json::Value) -> Result<ConsoleConfig, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn settings(value: serde_json::Value) -> ConsoleSettings {
        read(value).expect("a section").settings
    }

    #[test]
    fn the_section_is_a_switch_or_settings() {
        assert!(read(json!(true)).expect("on").is_on);
        assert!(!read(json!(false)).expect("off").is_on);
        assert!(read(json!({})).expect("on").is_on);
        let text = read(json!("yes")).expect_err("refused");
        assert!(
            text.contains("expected true, false, or a mapping"),
            "{text}"
        );
        let text = read(json!({"role": {}})).expect_err("refused");
        assert!(text.contains("unknown field `role`"), "{text}");
        let text = read(json!({"roles": {"admin": []}})).expect_err("refused");
        assert!(text.contains("unknown field `admin`"), "{text}");
    }

    #[test]
    fn what_would_let_nobody_or_everybody_in_is_wrong() {
        let roles = json!({"owner": ["admins"]});
        let wrong = |section: serde_json::Value, has_token, realms: Option<&[&str]>| {
            let found = settings(section).check(has_token, realms);
            let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
            keys
        };
        let realms: Option<&[&str]> = Some(&["/staff"]);
        let good = json!({"roles": roles, "realm": "/staff", "token": false,
                          "address": "https://admin.example"});
        assert!(wrong(good, true, realms).is_empty());
        let good = json!({"roles": roles});
        assert!(wrong(good.clone(), true, Some(&[])).is_empty());
        assert_eq!(wrong(good.clone(), false, realms), ["roles"]);
        assert_eq!(wrong(good, true, None), ["roles"]);
        assert_eq!(wrong(json!({"roles": {}}), true, realms), ["roles"]);
        assert_eq!(wrong(json!({"token": false}), true, realms), ["token"]);
        assert_eq!(wrong(json!({"realm": "/staff"}), true, realms), ["realm"]);
        let other = json!({"roles": roles, "realm": "/other"});
        assert_eq!(wrong(other, true, realms), ["realm"]);
        for address in [
            "admin.example",
            "https://admin.example/",
            "ftp://a",
            "javascript:a",
        ] {
            let section = json!({"roles": roles, "address": address});
            assert_eq!(wrong(section, true, realms), ["address"], "{address}");
        }
    }

    #[test]
    fn the_highest_role_counts_and_no_group_is_none() {
        let roles = RoleGroups {
            viewer: vec!["Staff".to_owned()],
            operator: vec!["gateway".to_owned()],
            owner: vec!["admins".to_owned()],
        };
        let role = |groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(|&one| one.to_owned()).collect();
            roles.role_of(&groups)
        };
        assert_eq!(role(&["staff", "Gateway"]), Some(Role::Operator));
        assert_eq!(role(&["ADMINS", "staff"]), Some(Role::Owner));
        assert_eq!(role(&["staff"]), Some(Role::Viewer));
        assert_eq!(role(&["admin", "staff2", ""]), None);
        assert_eq!(role(&[]), None);
    }

    #[test]
    fn people_are_sent_back_to_the_address_and_to_loopback_alone() {
        let plain = ["127.0.0.1:8001".to_owned()];
        let tls = ["0.0.0.0:443".to_owned()];
        let hosts = ["gate.example".to_owned()];
        let listeners = Listeners {
            plain: &plain,
            tls: &tls,
            hosts: &hosts,
        };
        let section = settings(json!({"address": "https://admin.example"}));
        let origins = section.origins(&listeners);
        assert_eq!(
            origins,
            [
                "https://admin.example",
                "http://localhost:8001",
                "http://127.0.0.1:8001",
                "http://[::1]:8001",
                "https://localhost",
                "https://127.0.0.1",
                "https://[::1]",
                "https://gate.example",
            ]
        );
        let client = section.client(&origins).expect("a client");
        assert_eq!(client.redirect_uris.len(), 8);
        assert_eq!(
            client.redirect_uris[0],
            "https://admin.example/console/sign-in/callback"
        );
    }
}
