//! The section `acme` of the configuration file.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::name;
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::Authorities;

/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Most names of a certificate: authorities take no more.
const NAMES_MAX: usize = 100;
/// Most certificates of the section.
const CERTIFICATES_MAX: usize = 1000;

/// Certificates from an authority, by ACME.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeConfig {
    /// Where the authority publishes its addresses.
    pub directory: String,
    /// Mailboxes that the authority may write to.
    pub contact: Vec<String>,
    /// Whether the operator agrees to the authority's terms of service.
    pub terms_agreed: bool,
    /// What certificates are for: a name each, or several names that share one.
    pub names: Vec<Names>,
    /// How the authority is shown that the names are ours.
    pub challenge: ChallengeKind,
    /// The program that sets and removes DNS records, for `dns-01`.
    pub dns_hook: Option<DnsHook>,
    /// The account that the operator has at the authority already.
    pub eab: Option<ExternalAccount>,
    /// PEM file of authorities that vouch for the directory's own server, besides the
    /// system's.
    pub ca: Option<PathBuf>,
    /// The authority's profile for certificates; absent: its default.
    pub profile: Option<String>,
    /// When certificates are renewed.
    pub renew: RenewalPolicy,
    /// Whether hosts of routes get certificates when the first client asks for them.
    pub on_demand: bool,
}

impl Default for AcmeConfig {
    fn default() -> Self {
        Self {
            directory: LETS_ENCRYPT.to_owned(),
            contact: Vec::new(),
            terms_agreed: false,
            names: Vec::new(),
            challenge: ChallengeKind::default(),
            dns_hook: None,
            eab: None,
            ca: None,
            profile: None,
            renew: RenewalPolicy::default(),
            on_demand: false,
        }
    }
}

/// How an authority is shown that a name is ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum ChallengeKind {
    /// A file over plain HTTP, port 80 (RFC 8555 §8.3).
    #[default]
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate in a TLS handshake, port 443 (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// A record in the DNS (RFC 8555 §8.4).
    #[serde(rename = "dns-01")]
    Dns01,
}

impl ChallengeKind {
    /// As the configuration writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Dns01 => "dns-01",
        }
    }
}

/// The names of one certificate, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Names(Vec<String>);

impl Names {
    /// Those of a certificate for one name.
    pub fn one(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// How the store knows the certificate.
    pub fn key(&self) -> String {
        let sorted: BTreeSet<&str> = self.iter().collect();
        sorted.into_iter().collect::<Vec<_>>().join(" ")
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name, or a list of names that share a certificate")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Names, E> {
        Ok(Names::one(name))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Names, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = items.next_element::<String>()? {
            names.push(name);
        }
        Ok(Names(names))
    }
}

/// A program that sets and removes DNS records.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DnsHook {
    /// The program and its first arguments. `present` or `cleanup`, the name of the
    /// record and its value follow.
    pub command: Vec<String>,
    /// Seconds for which the program may run.
    pub timeout_seconds: u64,
    /// Seconds until servers of the DNS know a new record.
    pub wait_seconds: u64,
}

impl Default for DnsHook {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            timeout_seconds: 120,
            wait_seconds: 30,
        }
    }
}

impl DnsHook {
    /// How long it may take to set the records of so many names.
    pub(crate) fn longest_seconds(&self, names: usize) -> u64 {
        let names = u64::try_from(names).unwrap_or(u64::MAX);
        let running = self.timeout_seconds.saturating_mul(names);
        running.saturating_add(self.wait_seconds)
    }
}

/// An account that the operator has at the authority already.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalAccount {
    /// What the authority calls the key.
    pub kid: String,
    /// The key in base64url.
    pub hmac_key: Secret,
}

impl ExternalAccount {
    /// The bytes of the key; nothing if it is not base64url.
    pub(crate) fn key(&self) -> Option<Vec<u8>> {
        let text = self.hmac_key.expose().trim_end_matches('=');
        let key = URL_SAFE_NO_PAD.decode(text).ok()?;
        (!key.is_empty()).then_some(key)
    }
}

/// When certificates are renewed.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RenewalPolicy {
    /// Whether the authority is asked when to renew (RFC 9773).
    pub ari: bool,
    /// The share of its lifetime, in percent, that a certificate has left when it is
    /// renewed, where the authority does not say.
    pub percent_left: u8,
}

impl Default for RenewalPolicy {
    fn default() -> Self {
        Self {
            ari: true,
            percent_left: 33,
        }
    }
}

impl AcmeConfig {
    /// What is wrong: keys below the section, and why.
    pub fn check(&self) -> Vec<(String, String)> {
        let mut findings = Vec::new();
        let mut at = |key: &str, message: &str| findings.push((key.to_owned(), message.to_owned()));
        let is_https =
            Url::parse(&self.directory).is_ok_and(|url| url.scheme() == "https" && url.has_host());
        if !is_https {
            at("directory", "expected an address that begins with https://");
        }
        if !self.terms_agreed {
            let message = "must be true: an authority gives certificates to those who agree to \
                           its terms of service, which its directory names";
            at("terms_agreed", message);
        }
        for (i, contact) in self.contact.iter().enumerate() {
            if mailbox(contact).is_none() {
                let message = format!("'{contact}' is not a mailbox, such as ops@example.com");
                at(&format!("contact.{i}"), &message);
            }
        }
        self.check_names(&mut at);
        self.check_hook(&mut at);
        if self.eab.as_ref().is_some_and(|eab| eab.kid.is_empty()) {
            at("eab.kid", "must not be empty");
        }
        if self.eab.as_ref().is_some_and(|eab| eab.key().is_none()) {
            at("eab.hmac_key", "must be a key in base64url");
        }
        if let Some(Err(error)) = self.ca.as_deref().map(Authorities::read) {
            at("ca", &error.to_string());
        }
        if self.profile.as_ref().is_some_and(String::is_empty) {
            at("profile", "must not be empty");
        }
        if !(5..=90).contains(&self.renew.percent_left) {
            at("renew.percent_left", "value should be between 5 and 90");
        }
        findings
    }

    /// Changes with each key of the section, secret ones too.
    pub fn fingerprint(&self) -> String {
        let key = self.eab.as_ref().map(|eab| eab.hmac_key.expose());
        let text = format!("{self:?} {key:?}");
        URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
    }

    fn check_names(&self, at: &mut impl FnMut(&str, &str)) {
        if self.names.is_empty() && !self.on_demand {
            at(
                "names",
                "names no certificate: list names, or set on_demand: true",
            );
        }
        if self.names.len() > CERTIFICATES_MAX {
            at(
                "names",
                &format!("must have at most {CERTIFICATES_MAX} items"),
            );
        }
        let mut seen = BTreeSet::new();
        for (i, names) in self.names.iter().enumerate() {
            let place = format!("names.{i}");
            if names.0.is_empty() || names.0.len() > NAMES_MAX {
                at(
                    &place,
                    &format!("must have between 1 and {NAMES_MAX} names"),
                );
            }
            for name in names.iter() {
                if let Err(why) = name::check(name) {
                    at(&place, &format!("'{name}' {why}"));
                } else if name::is_wildcard(name) && self.challenge != ChallengeKind::Dns01 {
                    at(&place, &format!("'{name}' needs challenge: dns-01"));
                } else if !seen.insert(name) {
                    at(&place, &format!("'{name}' is listed twice"));
                }
            }
        }
    }

    fn check_hook(&self, at: &mut impl FnMut(&str, &str)) {
        let is_dns = self.challenge == ChallengeKind::Dns01;
        let Some(hook) = &self.dns_hook else {
            if is_dns {
                at(
                    "challenge",
                    "dns-01 needs dns_hook, a program that sets DNS records",
                );
            }
            return;
        };
        if !is_dns {
            at("dns_hook", "has no effect without challenge: dns-01");
        }
        let Some(program) = hook.command.first() else {
            at("dns_hook.command", "must name a program");
            return;
        };
        if let Err(why) = check_program(Path::new(program)) {
            at("dns_hook.command", &format!("{program}: {why}"));
        }
        if !(1..=3600).contains(&hook.timeout_seconds) {
            at(
                "dns_hook.timeout_seconds",
                "value should be between 1 and 3600",
            );
        }
        if hook.wait_seconds > 3600 {
            at(
                "dns_hook.wait_seconds",
                "value should be between 0 and 3600",
            );
        }
    }

    /// The mailboxes as the authority wants them.
    pub(crate) fn contacts(&self) -> Vec<String> {
        self.contact
            .iter()
            .filter_map(|text| mailbox(text))
            .collect()
    }
}

/// The URI of a mailbox.
fn mailbox(text: &str) -> Option<String> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let (local, domain) = address.split_once('@')?;
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'?')
    };
    let is_good = is_plain(local) && is_plain(domain) && !domain.contains(['@', ',']);
    is_good.then(|| format!("mailto:{address}"))
}

fn check_program(program: &Path) -> Result<(), String> {
    if !program.is_absolute() {
        return Err("must be an absolute path".to_owned());
    }
    let facts = std::fs::metadata(program).map_err(|error| error.to_string())?;
    if !facts.is_file() || facts.permissions().mode() & 0o111 == 0 {
        return Err("is not a program that can be run".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(yaml: &str) -> Vec<String> {
        let config: AcmeConfig = serde_yaml::from_str(yaml).expect("a section");
        let found = config.check().into_iter();
        found
            .map(|(key, message)| format!("{key}: {message}"))
            .collect()
    }

    #[test]
    fn a_good_section_has_no_findings() {
        let good = "{terms_agreed: true, contact: [ops@a.test, 'mailto:b@a.test'], \
                    names: [a.test, [b.test, c.test]]}";
        assert_eq!(findings(good), Vec::<String>::new());
        let config: AcmeConfig = serde_yaml::from_str(good).expect("a section");
        assert_eq!(config.contacts(), ["mailto:ops@a.test", "mailto:b@a.test"]);
        assert_eq!(config.names[1].key(), "b.test c.test");
        let wild = "{terms_agreed: true, challenge: dns-01, names: ['*.a.test', a.test], \
                    dns_hook: {command: [/bin/sh, -c]}}";
        assert_eq!(findings(wild), Vec::<String>::new());
        assert_eq!(
            findings("{terms_agreed: true, on_demand: true}"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_finding_names_its_key() {
        for (yaml, key) in [
            ("{names: [a.test]}", "terms_agreed: must be true"),
            ("{terms_agreed: true}", "names: names no certificate"),
            (
                "{terms_agreed: true, names: [[]]}",
                "names.0: must have between 1",
            ),
            (
                "{terms_agreed: true, names: [A.test]}",
                "names.0: 'A.test' must be in lower case",
            ),
            (
                "{terms_agreed: true, names: ['*.a.test']}",
                "names.0: '*.a.test' needs challenge: dns-01",
            ),
            (
                "{terms_agreed: true, names: [a.test, [a.test]]}",
                "names.1: 'a.test' is listed twice",
            ),
            (
                "{terms_agreed: true, names: [a.test], directory: 'http://a.test/'}",
                "directory: expected",
            ),
            (
                "{terms_agreed: true, names: [a.test], contact: [nobody]}",
                "contact.0: 'nobody' is not a mailbox",
            ),
            (
                "{terms_agreed: true, names: [a.test], challenge: dns-01}",
                "challenge: dns-01 needs dns_hook",
            ),
            (
                "{terms_agreed: true, names: [a.test], dns_hook: {command: [/bin/sh]}}",
                "dns_hook: has no effect",
            ),
            (
                "{terms_agreed: true, names: [a.test], challenge: dns-01, dns_hook: {}}",
                "dns_hook.command: must name",
            ),
            (
                "{terms_agreed: true, names: [a.test], challenge: dns-01, dns_hook: {command: [x]}}",
                "dns_hook.command: x: must be an absolute path",
            ),
            (
                "{terms_agreed: true, names: [a.test], challenge: dns-01, dns_hook: {command: [/etc/passwd]}}",
                "dns_hook.command: /etc/passwd: is not a program",
            ),
            (
                "{terms_agreed: true, names: [a.test], eab: {kid: k, hmac_key: '%'}}",
                "eab.hmac_key: must be",
            ),
            (
                "{terms_agreed: true, names: [a.test], ca: /nowhere.pem}",
                "ca: /nowhere.pem",
            ),
            (
                "{terms_agreed: true, names: [a.test], renew: {percent_left: 1}}",
                "renew.percent_left: value should be",
            ),
        ] {
            let found = findings(yaml);
            assert_eq!(found.len(), 1, "{yaml}: {found:?}");
            assert!(found[0].starts_with(key), "{yaml}: {found:?}");
        }
    }

    #[test]
    fn secrets_do_not_show() {
        let yaml = "{eab: {kid: k, hmac_key: c2VjcmV0}}";
        let config: AcmeConfig = serde_yaml::from_str(yaml).expect("a section");
        assert!(!format!("{config:?}").contains("c2VjcmV0"));
        let other = yaml.replace("c2VjcmV0", "b3RoZXI");
        let other: AcmeConfig = serde_yaml::from_str(&other).expect("a section");
        assert_ne!(config.fingerprint(), other.fingerprint());
    }
}
