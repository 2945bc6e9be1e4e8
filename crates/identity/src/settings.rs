//! Checking the settings of a realm.

use std::collections::BTreeMap;

use ipnet::IpNet;
use url::Url;

use super::config::{
    ClientDocumentSettings, RealmSettings, RegistrationSettings, SecondFactor, TrustedIssuer,
};
use super::cors::is_origin;
use super::{context, discovery, records};
use doorward_core::jose::jwks::KeySet;
use doorward_core::model::grant::MAX_TOKEN_LIFE_MS;
use doorward_core::model::user::schema::RecordError;

/// Longest time in which a spent refresh token is good for a retry, in seconds.
pub(super) const GRACE_MAX: u32 = 300;

/// Refuses values out of bounds.
pub(super) fn check(settings: &RealmSettings) -> Result<(), RecordError> {
    let most = u32::try_from(MAX_TOKEN_LIFE_MS / 1000).unwrap_or(u32::MAX);
    for (name, value, most) in [
        (
            "access_token_lifetime",
            settings.access_token_lifetime,
            most,
        ),
        ("id_token_lifetime", settings.id_token_lifetime, most),
        ("code_lifetime", settings.code_lifetime, 600),
        (
            "pushed_request_lifetime",
            settings.pushed_request_lifetime,
            600,
        ),
        (
            "refresh_token_lifetime",
            settings.refresh_token_lifetime,
            u32::MAX,
        ),
        ("grant_lifetime", settings.grant_lifetime, u32::MAX),
    ] {
        if value == 0 || value > most {
            let text = format!("must be from 1 to {most} seconds");
            return Err(RecordError::new(name, text));
        }
    }
    if settings.refresh_token_grace > GRACE_MAX {
        let text = format!("must be at most {GRACE_MAX} seconds");
        return Err(RecordError::new("refresh_token_grace", text));
    }
    check_devices(settings)?;
    check_registration(&settings.registration)?;
    check_factors(settings)?;
    context::check(&settings.acr_values)?;
    let wrong = |one: &String| one != "*" && !is_origin(one);
    if let Some(index) = settings.cors_origins.iter().position(wrong) {
        let text = "must be an origin such as https://app.example, or *";
        return Err(RecordError::new(format!("cors_origins[{index}]"), text));
    }
    check_resources(&settings.resources)?;
    check_scope_groups(&settings.scope_groups)?;
    check_documents(&settings.client_metadata_documents)?;
    for (name, alg) in [
        (
            "access_token_signed_response_alg",
            settings.access_token_signed_response_alg,
        ),
        (
            "id_token_signed_response_alg",
            settings.id_token_signed_response_alg,
        ),
    ] {
        if alg.is_shared() {
            let text = "must be signed with a key of the provider: no HS256, HS384 or HS512";
            return Err(RecordError::new(name, text));
        }
    }
    Ok(())
}

/// Most clients that may register themselves in a realm.
const REGISTERED_MAX: u32 = 1_000_000;

fn check_registration(settings: &RegistrationSettings) -> Result<(), RecordError> {
    let wrong = |name: &str, text: &str| Err(RecordError::new(name, text).below("registration"));
    if !(1..=REGISTERED_MAX).contains(&settings.max_clients) {
        return wrong("max_clients", "must be from 1 to 1000000");
    }
    let unused = settings.unused_lifetime;
    if unused != 0 && unused < 3600 {
        return wrong("unused_lifetime", "must be 3600 seconds or more, or 0");
    }
    for (index, grant) in settings.grant_types.iter().enumerate() {
        if let Err(message) = discovery::check_grant(grant) {
            return wrong(&format!("grant_types[{index}]"), &message);
        }
    }
    Ok(())
}

/// Longest time that a browser is let go without the second factor, in days.
const REMEMBERED_MAX: u32 = 365;

fn check_factors(settings: &RealmSettings) -> Result<(), RecordError> {
    let factors = &settings.factors;
    let wrong = |name: &str, text: &str| Err(RecordError::new(name, text).below("factors"));
    if factors.remember_browser_days > REMEMBERED_MAX {
        return wrong("remember_browser_days", "must be at most 365");
    }
    if factors.issuer.len() > 64 || factors.issuer.contains(':') {
        return wrong("issuer", "must be at most 64 bytes, without a colon");
    }
    if factors.kinds.is_empty() && settings.second_factor == SecondFactor::Required {
        return wrong("kinds", "must name one where a second factor is required");
    }
    Ok(())
}

/// Most hosts whose documents about clients count.
const DOCUMENT_HOSTS_MAX: usize = 100;

/// Refuses what is no host as addresses spell it.
fn check_documents(settings: &ClientDocumentSettings) -> Result<(), RecordError> {
    let hosts = &settings.allowed_hosts;
    let is_host = |text: &String| {
        let url = Url::parse(&format!("https://{text}/"));
        url.is_ok_and(|url| url.host_str() == Some(text.as_str()))
    };
    if hosts.len() > DOCUMENT_HOSTS_MAX || !hosts.iter().all(is_host) {
        let text = "must be at most 100 names of hosts, in lower case, without a port";
        let error = RecordError::new("allowed_hosts", text);
        return Err(error.below("client_metadata_documents"));
    }
    Ok(())
}

/// Most resources that are open to a realm's clients.
const RESOURCES_MAX: usize = 100;

/// Refuses what no resource indicator can be (RFC 8707 §2).
fn check_resources(resources: &[String]) -> Result<(), RecordError> {
    if resources.len() > RESOURCES_MAX {
        let text = format!("must be at most {RESOURCES_MAX}");
        return Err(RecordError::new("resources", text));
    }
    let wrong = |one: &String| !url::Url::parse(one).is_ok_and(|url| url.fragment().is_none());
    match resources.iter().position(wrong) {
        Some(index) => {
            let text = "must be an absolute URI without fragment";
            Err(RecordError::new(format!("resources[{index}]"), text))
        }
        None => Ok(()),
    }
}

/// Most scopes that are for groups alone, and most groups of one.
const SCOPE_GROUPS_MAX: usize = 100;

fn check_scope_groups(all: &BTreeMap<String, Vec<String>>) -> Result<(), RecordError> {
    let wrong =
        |scope: &str, text: &str| Err(RecordError::new(format!("scope_groups.{scope}"), text));
    if all.len() > SCOPE_GROUPS_MAX {
        let text = format!("must be at most {SCOPE_GROUPS_MAX}");
        return Err(RecordError::new("scope_groups", text));
    }
    for (scope, groups) in all {
        let is_scope = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(is_scope) {
            return wrong(scope, "is no scope (RFC 6749 3.3)");
        }
        // Without these there is no user to ask for a group, or no grant that lasts.
        if ["openid", "offline_access"].contains(&scope.as_str()) {
            return wrong(scope, "can't be for groups alone");
        }
        if groups.is_empty() || groups.len() > SCOPE_GROUPS_MAX {
            return wrong(scope, "must name from 1 to 100 groups");
        }
        if groups.iter().any(String::is_empty) {
            return wrong(scope, "must name groups by their displayName");
        }
    }
    Ok(())
}

fn check_devices(settings: &RealmSettings) -> Result<(), RecordError> {
    let wrong = |name: &str, text: &str| Err(RecordError::new(name, text));
    if !(60..=1800).contains(&settings.device_code_lifetime) {
        return wrong("device_code_lifetime", "must be from 60 to 1800 seconds");
    }
    if !(1..=60).contains(&settings.device_polling_interval) {
        return wrong("device_polling_interval", "must be from 1 to 60 seconds");
    }
    let Some(address) = &settings.device_verification_uri else {
        return Ok(());
    };
    let visible = address.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
    let usable = Url::parse(address)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.fragment().is_none());
    if visible && usable {
        Ok(())
    } else {
        wrong(
            "device_verification_uri",
            "must be an absolute address that begins with http:// or https://, without fragment",
        )
    }
}

/// An issuer whose assertions are believed, ready for requests.
#[derive(Debug)]
pub(super) struct AssertionIssuer {
    pub(super) issuer: String,
    pub(super) keys: Option<KeySet>,
    pub(super) jwks_uri: Option<String>,
}

/// The issuers whose assertions are believed.
pub(super) fn trusted(settings: &RealmSettings) -> Result<Vec<AssertionIssuer>, RecordError> {
    let compile = |(index, one): (usize, &TrustedIssuer)| {
        let at = format!("trusted_issuers[{index}]");
        let keys = records::key_set(one.jwks.as_ref(), one.jwks_uri.as_deref());
        let keys = keys.map_err(|error| error.below(&at))?;
        if keys.is_none() && one.jwks_uri.is_none() {
            return Err(RecordError::new(at, "needs jwks or jwks_uri"));
        }
        Ok(AssertionIssuer {
            issuer: one.issuer.clone(),
            keys,
            jwks_uri: one.jwks_uri.clone(),
        })
    };
    let all = settings.trusted_issuers.iter().enumerate().map(compile);
    all.collect()
}

/// Where the administrator may sign in from, if that is restricted.
pub(super) fn networks(settings: &RealmSettings) -> Result<Option<Vec<IpNet>>, RecordError> {
    let Some(addresses) = &settings.admin_addresses else {
        return Ok(None);
    };
    let parse = |(index, text): (usize, &String)| {
        let address = text.parse::<std::net::IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).map_err(|_| {
            let at = format!("admin_addresses[{index}]");
            RecordError::new(at, "is no IP address or network")
        })
    };
    let networks = addresses.iter().enumerate().map(parse);
    networks.collect::<Result<_, _>>().map(Some)
}
