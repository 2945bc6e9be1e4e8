//! Resource indicators (RFC 8707): whom an access token is for.

use url::Url;

use super::clients::LiveClient;
use super::error::OAuthError;
use super::form::Form;
use super::realm::Realm;

/// Most resources of one request.
const MAX: usize = 16;

fn invalid_target(text: &str) -> OAuthError {
    OAuthError::bad("invalid_target", text)
}

/// The resources that the request names, all of them registered for the
/// client or open to the clients of its realm; none: the token is for the client.
pub(super) fn requested(
    form: &Form<'_>,
    client: &LiveClient,
    realm: &Realm,
) -> Result<Vec<String>, OAuthError> {
    registered(form.all("resource"), client, realm)
}

/// These resources, if all of them are registered for the client or open to the
/// clients of its realm.
pub(super) fn registered<'f>(
    requested: impl Iterator<Item = &'f str>,
    client: &LiveClient,
    realm: &Realm,
) -> Result<Vec<String>, OAuthError> {
    named(requested, &allowed(client, realm))
}

fn named<'f>(
    requested: impl Iterator<Item = &'f str>,
    allowed: &[&str],
) -> Result<Vec<String>, OAuthError> {
    let mut all = Vec::new();
    for resource in requested {
        let absolute = Url::parse(resource).is_ok_and(|url| url.fragment().is_none());
        if !absolute {
            let text = "A resource is an absolute URI without fragment";
            return Err(invalid_target(text));
        }
        add(resource, allowed, &mut all)?;
    }
    Ok(all)
}

/// What a client of this realm may ask for.
fn allowed<'c>(client: &'c LiveClient, realm: &'c Realm) -> Vec<&'c str> {
    let of_realm = realm.settings.resources.iter().map(String::as_str);
    own(client).chain(of_realm).collect()
}

/// The resources of the client's own record.
fn own(client: &LiveClient) -> impl Iterator<Item = &str> {
    let own = client.client.metadata.resources.iter();
    own.map(String::as_str)
}

/// The resources and the logical names of `audience` (RFC 8693 §2.1) that a token is
/// exchanged for, all of them of the client's own record. What is open to the clients
/// of the realm is for users to agree to, and they agreed to the first token alone.
pub(super) fn targets(form: &Form<'_>, client: &LiveClient) -> Result<Vec<String>, OAuthError> {
    let allowed: Vec<&str> = own(client).collect();
    let mut all = named(form.all("resource"), &allowed)?;
    for audience in form.all("audience") {
        // It may always ask for itself, and then only for itself.
        if audience == client.id() && all.is_empty() {
            continue;
        }
        add(audience, &allowed, &mut all)?;
    }
    Ok(all)
}

/// The resources of a refreshed token: those of the grant, or fewer.
pub(super) fn narrowed(form: &Form<'_>, granted: &[String]) -> Result<Vec<String>, OAuthError> {
    among(form.all("resource"), granted)
}

/// As [`narrowed`], also by the names of `audience` (RFC 8693 §2.1).
pub(super) fn narrowed_targets(
    form: &Form<'_>,
    granted: &[String],
) -> Result<Vec<String>, OAuthError> {
    among(form.all("resource").chain(form.all("audience")), granted)
}

fn among<'f>(
    requested: impl Iterator<Item = &'f str>,
    granted: &[String],
) -> Result<Vec<String>, OAuthError> {
    let allowed: Vec<&str> = granted.iter().map(String::as_str).collect();
    let mut all = Vec::new();
    for one in requested {
        add(one, &allowed, &mut all)?;
    }
    Ok(if all.is_empty() {
        granted.to_vec()
    } else {
        all
    })
}

/// Adds the one that `one` means, as it is spelled among the allowed ones.
fn add(one: &str, allowed: &[&str], all: &mut Vec<String>) -> Result<(), OAuthError> {
    let asked = plain(one);
    let is_same = |known: &&&str| **known == one || (asked.is_some() && plain(known) == asked);
    let Some(known) = allowed.iter().find(is_same) else {
        return Err(invalid_target(
            "The requested resource is invalid or unknown",
        ));
    };
    if !all.iter().any(|other| other == known) {
        all.push((*known).to_owned());
    }
    if all.len() > MAX {
        Err(invalid_target("Too many resources"))
    } else {
        Ok(())
    }
}

/// The spelling that all identifiers of one resource share: they may differ in the
/// case of scheme and host, in a default port, and in a path that is a sole slash
/// (RFC 3986 §6.2.2 and §6.2.3). Clients take a URL apart and put it together.
fn plain(resource: &str) -> Option<String> {
    let url = Url::parse(resource).ok()?;
    let text = url.as_str();
    let sole = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let text = if sole {
        text.trim_end_matches('/')
    } else {
        text
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_one_in_all_its_spellings() {
        let is_same = |known: &str, one| add(one, &[known], &mut Vec::new()).is_ok();
        let known = "https://mcp.example";
        for same in [
            "https://mcp.example/",
            "HTTPS://MCP.example",
            "https://mcp.example:443/",
        ] {
            assert!(is_same(known, same), "{same}");
        }
        for other in [
            "http://mcp.example",
            "https://mcp.example/mcp",
            "https://mcp.example:444",
            "https://mcp.example/?a",
            "https://mcp.example.evil.example",
            "https://mcp.example@evil.example",
        ] {
            assert!(!is_same(known, other), "{other}");
        }
        assert!(!is_same("https://a.example/mcp", "https://a.example/mcp/"));
        assert!(is_same("urn:api:orders", "urn:api:orders"));
    }

    #[test]
    fn an_audience_has_the_spelling_of_the_operator() {
        let mut all = Vec::new();
        let known = ["https://mcp.example"];
        assert!(add("https://MCP.example/", &known, &mut all).is_ok());
        assert!(add("https://mcp.example:443", &known, &mut all).is_ok());
        assert_eq!(all, known);
        assert!(add("https://other.example", &known, &mut all).is_err());
    }
}
