//! Checking the settings of a directory.

use url::{Host, Url};

use crate::config::LdapConfig;
use doorward_core::model::user::schema::RecordError;

use super::directory::SERVERS_MAX;

/// Refuses what can't be.
pub(super) fn check(written: &LdapConfig) -> Result<(), RecordError> {
    let wrong = |name: &str, text: &str| Err(RecordError::new(name, text));
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if written.name.is_empty() || written.name.len() > 64 || !written.name.bytes().all(legal) {
        return wrong("name", "must have from 1 to 64 letters, digits and `._-`");
    }
    check_servers(written)?;
    match (&written.bind_dn, &written.bind_password) {
        (Some(dn), _) if dn.is_empty() => return wrong("bind_dn", "is empty"),
        // It would be one as nobody, and seem to work.
        (Some(_), None) => return wrong("bind_password", "is required with bind_dn"),
        (Some(_), Some(password)) if password.expose().is_empty() => {
            return wrong("bind_password", "is empty");
        }
        (None, Some(_)) => return wrong("bind_dn", "is required with bind_password"),
        _ => {}
    }
    match (&written.user_dn, &written.base_dn) {
        (None, None) => return wrong("base_dn", "or user_dn is required"),
        (Some(_), Some(_)) => return wrong("base_dn", "is not used with user_dn"),
        _ => {}
    }
    if !(1..=30).contains(&written.timeout) {
        return wrong("timeout", "must be from 1 to 30 seconds");
    }
    if !(1..=256).contains(&written.connections) {
        return wrong("connections", "must be from 1 to 256");
    }
    let attribute = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !attribute(&written.user_name_attribute) {
        return wrong("user_name_attribute", "must name an attribute");
    }
    match &written.id_attribute {
        Some(name) if !attribute(name) => wrong("id_attribute", "must name an attribute"),
        _ => Ok(()),
    }
}

fn check_servers(written: &LdapConfig) -> Result<(), RecordError> {
    if written.urls.is_empty() || written.urls.len() > SERVERS_MAX {
        let text = format!("must have from 1 to {SERVERS_MAX} servers");
        return Err(RecordError::new("urls", text));
    }
    for (index, text) in written.urls.iter().enumerate() {
        let url = Url::parse(text).ok();
        let usable = |url: &Url| {
            let plain = url.path().trim_matches('/').is_empty() && url.query().is_none();
            let scheme = matches!(url.scheme(), "ldap" | "ldaps");
            scheme && plain && url.username().is_empty() && url.host_str().is_some()
        };
        let Some(url) = url.filter(usable) else {
            let text = "must be ldaps://host or ldap://host, with a port if it is another";
            return Err(RecordError::new(format!("urls[{index}]"), text));
        };
        if url.scheme() == "ldaps" && written.starttls {
            let text = "is for ldap:// only: ldaps:// has TLS from the start";
            return Err(RecordError::new("starttls", text));
        }
    }
    Ok(())
}

/// Tells the operator what strangers on the way could do.
pub(super) fn warn(realm: &str, written: &LdapConfig) {
    let loopback = |url: &Url| match url.host() {
        // The library's addresses of such schemes are names.
        Some(Host::Domain(name)) => {
            let address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    for url in &written.urls {
        let parsed = Url::parse(url).ok();
        let local = parsed.as_ref().is_some_and(loopback);
        if url.starts_with("ldap:") && !written.starttls && !local {
            tracing::warn!(
                realm,
                directory = written.name,
                url,
                "PASSWORDS TRAVEL IN CLEAR TEXT: use ldaps:// or starttls"
            );
        }
    }
    if !written.tls_verify {
        tracing::warn!(
            realm,
            directory = written.name,
            "certificates of a directory are not checked (tls_verify): anybody on the way can \
             read passwords"
        );
    }
}
