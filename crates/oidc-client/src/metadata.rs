//! What a provider says of itself (OpenID Connect Discovery §4, RFC 8414).

use serde_json::{Map, Value};
use url::Url;

const OPENID: &str = "/.well-known/openid-configuration";
const OAUTH: &str = "/.well-known/oauth-authorization-server";

/// Why something that a provider says of itself can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The document names no issuer.
    #[error("it names no issuer")]
    NoIssuer,
    /// The document names another issuer than it was found at.
    #[error("it is of another issuer")]
    Issuer,
    /// No address, or none that a client goes to.
    #[error("it is no usable address")]
    Address,
    /// A provider on https names an address on http: anyone on the way could be in
    /// its place.
    #[error("it is an http address of an https provider")]
    Downgrade,
}

/// Where the OpenID Connect document of an issuer is (Discovery §4.1).
pub fn openid_url(issuer: &Url) -> Url {
    let mut url = base(issuer);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{path}{OPENID}"));
    url
}

/// Where the discovery document may be, likeliest first.
pub fn discovery_urls(issuer: &Url) -> Vec<Url> {
    let mut urls = Vec::new();
    if issuer.path().contains("/.well-known/") {
        urls.push(issuer.clone());
    }
    let base = base(issuer);
    let path = base.path().trim_end_matches('/').to_owned();
    let oauth = [format!("{OAUTH}{path}"), format!("{path}{OAUTH}")];
    let oauth = oauth.into_iter().map(|well_known| {
        let mut url = base.clone();
        url.set_path(&well_known);
        url
    });
    for url in std::iter::once(openid_url(issuer)).chain(oauth) {
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    urls
}

/// The issuer without a well-known part, query and fragment.
fn base(issuer: &Url) -> Url {
    let mut base = issuer.clone();
    base.set_query(None);
    base.set_fragment(None);
    for well_known in [OPENID, OAUTH] {
        if let Some((before, after)) = issuer.path().split_once(well_known) {
            base.set_path(&format!("{before}{after}"));
        }
    }
    base
}

/// The issuer that a URL names, as tokens write it or as its discovery document
/// is found.
pub fn issuer_of(url: &Url) -> String {
    let base = base(url);
    base.as_str().trim_end_matches('/').to_owned()
}

/// The issuer that a document names, if that counts (OpenID Connect Discovery
/// §4.3, RFC 8414 §3.3).
///
/// # Errors
/// [`MetadataError::NoIssuer`] or [`MetadataError::Issuer`].
pub fn issuer(
    document: &Map<String, Value>,
    counts: impl Fn(&str) -> bool,
) -> Result<&str, MetadataError> {
    let named = document.get("issuer").and_then(Value::as_str);
    let named = named.ok_or(MetadataError::NoIssuer)?;
    if counts(named) {
        Ok(named)
    } else {
        Err(MetadataError::Issuer)
    }
}

/// The address that a member names; `None`: it is absent or null. `is_secure`:
/// the provider itself is on https.
///
/// # Errors
/// As [`check_address`]; [`MetadataError::Address`] also for what is no address.
pub fn address(member: Option<&Value>, is_secure: bool) -> Result<Option<Url>, MetadataError> {
    let Some(member) = member.filter(|member| !member.is_null()) else {
        return Ok(None);
    };
    let url = member.as_str().and_then(|text| Url::parse(text).ok());
    let url = url.ok_or(MetadataError::Address)?;
    check_address(&url, is_secure)?;
    Ok(Some(url))
}

/// Checks an address that a provider sends its client to. `is_secure`: the
/// provider itself is on https.
///
/// # Errors
/// [`MetadataError::Downgrade`] for http where the provider is on https.
/// [`MetadataError::Address`] for another scheme, and for an address with
/// credentials or a fragment (RFC 6749 §3.1).
pub fn check_address(url: &Url, is_secure: bool) -> Result<(), MetadataError> {
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
        && url.has_host();
    match url.scheme() {
        "https" | "http" if !is_plain => Err(MetadataError::Address),
        "http" if is_secure => Err(MetadataError::Downgrade),
        "https" | "http" => Ok(()),
        _ => Err(MetadataError::Address),
    }
}

/// Whether a member is true.
pub fn is_true(member: Option<&Value>) -> bool {
    member == Some(&Value::Bool(true))
}

/// The names in a member that lists some; `None`: it is absent, or no list.
pub fn names(member: Option<&Value>) -> Option<impl Iterator<Item = &str>> {
    let names = member.and_then(Value::as_array)?;
    Some(names.iter().filter_map(Value::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_of_an_issuer_that_counts() {
        let named = |document: Value| {
            let document = document.as_object().cloned().expect("an object");
            issuer(&document, |named| named == "https://id").map(str::to_owned)
        };
        assert_eq!(
            named(json!({"issuer": "https://id"})).as_deref(),
            Ok("https://id")
        );
        let other = named(json!({"issuer": "https://id/"}));
        assert_eq!(other, Err(MetadataError::Issuer));
        for other in [
            json!({}),
            json!({"issuer": null}),
            json!({"issuer": ["https://id"]}),
        ] {
            let outcome = named(other.clone());
            assert_eq!(outcome, Err(MetadataError::NoIssuer), "{other}");
        }
    }

    #[test]
    fn addresses_that_are_not_safe_are_refused() {
        for (member, is_secure, outcome) in [
            (json!("https://id/token?tenant=1"), true, Ok(true)),
            (json!("https://id/token"), false, Ok(true)),
            (json!("http://id/token"), false, Ok(true)),
            (json!(null), true, Ok(false)),
            (
                json!("http://id/token"),
                true,
                Err(MetadataError::Downgrade),
            ),
            (json!(5), true, Err(MetadataError::Address)),
            (json!(["https://id"]), true, Err(MetadataError::Address)),
            (json!("/token"), true, Err(MetadataError::Address)),
            (
                json!("file:///etc/passwd"),
                false,
                Err(MetadataError::Address),
            ),
            (
                json!("javascript:alert(1)"),
                true,
                Err(MetadataError::Address),
            ),
            (
                json!("https://me:pw@id/"),
                true,
                Err(MetadataError::Address),
            ),
            (json!("https://me@id/"), true, Err(MetadataError::Address)),
            (json!("https://id/#a"), true, Err(MetadataError::Address)),
        ] {
            let found = address(Some(&member), is_secure).map(|url| url.is_some());
            assert_eq!(found, outcome, "{member}");
        }
        assert_eq!(address(None, true), Ok(None));
    }

    #[test]
    fn the_document_of_an_issuer_is_below_it() {
        for issuer in ["https://h/a", "https://h/a/", "https://h/a?x=1"] {
            let issuer = Url::parse(issuer).expect("a URL");
            let url = openid_url(&issuer);
            assert_eq!(url.as_str(), "https://h/a/.well-known/openid-configuration");
        }
    }

    fn urls(issuer: &str) -> Vec<String> {
        let issuer = Url::parse(issuer).expect("a URL");
        discovery_urls(&issuer).iter().map(Url::to_string).collect()
    }

    #[test]
    fn documents_are_looked_for_where_the_specifications_say() {
        let wanted = [
            "https://h/a/.well-known/openid-configuration",
            "https://h/.well-known/oauth-authorization-server/a",
            "https://h/a/.well-known/oauth-authorization-server",
        ];
        for issuer in [
            "https://h/a",
            "https://h/a/",
            "https://h/a/.well-known/openid-configuration",
        ] {
            assert_eq!(urls(issuer), wanted, "{issuer}");
        }
        assert_eq!(urls("https://h").len(), 2);
    }

    #[test]
    fn a_full_document_url_is_tried_first_as_it_is() {
        let exact = "https://h/a/.well-known/openid-configuration?p=policy";
        assert_eq!(urls(exact)[0], exact);
        let exact = "https://h/.well-known/oauth-authorization-server/a";
        assert_eq!(urls(exact)[0], exact);
        assert_eq!(
            urls(exact)[1],
            "https://h/a/.well-known/openid-configuration"
        );
    }
}
