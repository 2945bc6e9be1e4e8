//! Which redirect URIs a client may register for itself (OpenID Connect
//! Registration §2, RFC 8252 §7 and §8.4, RFC 9700 §2.1).

use url::{Host, Url};

use doorward_core::model::client::{ApplicationType, ClientMetadata};
use doorward_core::model::user::schema::RecordError;

/// Refuses redirect URIs that would carry codes and tokens over an open line, or to
/// whoever takes a name that belongs to nobody (OpenID Connect Registration section 2,
/// RFC 8252 section 7, RFC 9700 section 2.1).
///
/// # Errors
/// The first that is refused.
pub fn check(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let grants = &metadata.grant_types;
    let redirects = |grant: &String| matches!(grant.as_str(), "authorization_code" | "implicit");
    if metadata.redirect_uris.is_empty() && grants.iter().any(redirects) {
        return Err(RecordError::new("redirect_uris", "must name one or more"));
    }
    let kind = metadata.application_type.unwrap_or_default();
    let implicit = grants.iter().any(|grant| grant == "implicit");
    let lists = [
        ("redirect_uris", &metadata.redirect_uris, implicit),
        (
            "post_logout_redirect_uris",
            &metadata.post_logout_redirect_uris,
            false,
        ),
    ];
    for (name, uris, implicit) in lists {
        for (index, uri) in uris.iter().enumerate() {
            check_one(uri, kind, implicit)
                .map_err(|text| RecordError::new(format!("{name}[{index}]"), text))?;
        }
    }
    Ok(())
}

fn check_one(uri: &str, kind: ApplicationType, implicit: bool) -> Result<(), &'static str> {
    let url = Url::parse(uri).map_err(|_| "is no absolute URI")?;
    if uri.contains('#') {
        return Err("must have no fragment");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must have no user and password");
    }
    let local = is_local(&url);
    match (url.scheme(), kind) {
        ("https", ApplicationType::Web) if implicit && local => {
            Err("must not be localhost for a web client with the implicit grant")
        }
        ("https", _) => Ok(()),
        ("http", ApplicationType::Web) if implicit => {
            Err("must be https for a web client with the implicit grant")
        }
        ("http", _) if local => Ok(()),
        ("http", _) => Err("must be https, or http on this machine"),
        (_, ApplicationType::Web) => Err("must be https for a web client"),
        (scheme, ApplicationType::Native) if is_private_use(scheme) => Ok(()),
        (_, ApplicationType::Native) => {
            Err("a scheme of one's own must be a domain name in reverse, with a dot")
        }
    }
}

/// Schemes without a dot that well-known programs of developers have registered
/// with the systems that they run on. Codes that come there need PKCE, as those of
/// every public client.
const KNOWN_SCHEMES: [&str; 5] = ["cursor", "vscode", "vscode-insiders", "windsurf", "zed"];

/// Whether a program may take this scheme for itself (RFC 8252 §7.1).
fn is_private_use(scheme: &str) -> bool {
    scheme.contains('.') || KNOWN_SCHEMES.contains(&scheme)
}

/// What a client is that does not say: a program of the user's machine if it has
/// an address that only such a program can have, and no implicit grant, for which
/// the default decides what is refused (OpenID Connect Registration §2).
pub(super) fn kind_of(redirect_uris: &[String], grants: &[String]) -> ApplicationType {
    let is_native = |uri: &String| {
        Url::parse(uri).is_ok_and(|url| match url.scheme() {
            "https" => false,
            "http" => is_local(&url),
            scheme => is_private_use(scheme),
        })
    };
    let implicit = grants.iter().any(|grant| grant == "implicit");
    if !implicit && redirect_uris.iter().any(is_native) {
        ApplicationType::Native
    } else {
        ApplicationType::Web
    }
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_clients_have_https_or_loopback() {
        let web = |uri| check_one(uri, ApplicationType::Web, false).is_ok();
        for good in [
            "https://app.example/cb?a=1",
            "http://localhost:8080/cb",
            "http://127.0.0.1/cb",
            "http://[::1]:5/cb",
        ] {
            assert!(web(good), "{good}");
        }
        for bad in [
            "http://app.example/cb",
            "https://app.example/cb#x",
            "https://app.example/cb#",
            "https://me@app.example/cb",
            "http://localhost.evil.example/cb",
            "com.example.app:/cb",
            "javascript:alert(1)",
            "data:text/html,x",
            "/cb",
            "",
        ] {
            assert!(!web(bad), "{bad}");
        }
    }

    #[test]
    fn implicit_web_clients_have_https_elsewhere() {
        let implicit = |uri| check_one(uri, ApplicationType::Web, true).is_ok();
        assert!(implicit("https://app.example/cb"));
        for bad in [
            "http://localhost/cb",
            "https://localhost/cb",
            "http://127.0.0.1/cb",
        ] {
            assert!(!implicit(bad), "{bad}");
        }
        let native = |uri| check_one(uri, ApplicationType::Native, true).is_ok();
        assert!(native("http://localhost/cb"));
    }

    #[test]
    fn native_clients_have_schemes_that_are_theirs() {
        let native = |uri| check_one(uri, ApplicationType::Native, false).is_ok();
        for good in [
            "com.example.app:/cb",
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "http://127.0.0.1:0/cb",
            "https://app.example/cb",
        ] {
            assert!(native(good), "{good}");
        }
        for bad in [
            "myapp:/cb",
            "javascript:x",
            "http://app.example/cb",
            "file:///cb",
        ] {
            assert!(!native(bad), "{bad}");
        }
    }

    #[test]
    fn a_client_that_does_not_say_what_it_is_is_told_by_its_addresses() {
        let kind = |uris: &[&str], grants: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
            kind_of(&owned(uris), &owned(grants))
        };
        let code = &["authorization_code"][..];
        let mixed = [
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ];
        assert_eq!(kind(&mixed, code), ApplicationType::Native);
        assert_eq!(kind(&mixed[1..2], code), ApplicationType::Web);
        assert_eq!(kind(&mixed[2..], code), ApplicationType::Native);
        assert_eq!(kind(&mixed[2..], &["implicit"]), ApplicationType::Web);
        assert_eq!(kind(&["javascript:alert(1)"], code), ApplicationType::Web);
        assert_eq!(kind(&[], code), ApplicationType::Web);
    }
}
