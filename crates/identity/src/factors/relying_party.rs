//! Who asks for passkeys: the host that they are made for.

use url::{Host, Url};

use crate::IdentityError;

/// The relying party (Web Authentication §5.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelyingParty {
    pub(super) id: String,
    pub(super) origin: String,
}

impl RelyingParty {
    /// That of pages at `base_url`; `None`: browsers offer no passkeys there,
    /// because it is neither https nor this machine, or has no name.
    ///
    /// # Errors
    /// [`IdentityError::Config`] when `id` is not the host or a domain above it.
    pub(crate) fn of(base_url: &str, id: Option<&str>) -> Result<Option<Self>, IdentityError> {
        let wrong = |message: &str| IdentityError::in_section("passkeys", "rp_id", message.into());
        let url = Url::parse(base_url).ok();
        let host = url.as_ref().and_then(|url| match url.host()? {
            Host::Domain(name) => Some(name.to_owned()),
            _ => None,
        });
        let (Some(url), Some(host)) = (url, host) else {
            return match id {
                Some(_) => Err(wrong("needs a host name in base_url")),
                None => Ok(None),
            };
        };
        let id = id.unwrap_or(&host);
        let above = host
            .strip_suffix(id)
            .is_some_and(|rest| rest.ends_with('.'));
        let is_domain = id.contains('.') || id == "localhost";
        if id != host && !(above && is_domain) {
            return Err(wrong("must be the host of base_url, or a domain above it"));
        }
        let local = host == "localhost" || host.ends_with(".localhost");
        if url.scheme() != "https" && !local {
            return Ok(None);
        }
        Ok(Some(Self {
            id: id.to_owned(),
            origin: url.origin().ascii_serialization(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(base_url: &str, id: Option<&str>) -> Option<(String, String)> {
        let party = RelyingParty::of(base_url, id).expect("it can be");
        party.map(|party| (party.id, party.origin))
    }

    #[test]
    fn the_host_of_the_pages_is_the_relying_party() {
        let told = |id: &str, origin: &str| Some((id.to_owned(), origin.to_owned()));
        assert_eq!(
            of("https://id.example:8443/am", None),
            told("id.example", "https://id.example:8443")
        );
        assert_eq!(
            of("https://id.shop.example", Some("shop.example")),
            told("shop.example", "https://id.shop.example")
        );
        assert_eq!(
            of("http://localhost:8000", None),
            told("localhost", "http://localhost:8000")
        );
        for none in ["http://id.example", "https://127.0.0.1", "https://[::1]"] {
            assert_eq!(of(none, None), None, "{none}");
        }
    }

    #[test]
    fn a_relying_party_that_the_pages_are_not_of_is_refused() {
        for id in ["other.example", "d.example", "example", "", ".example"] {
            assert!(
                RelyingParty::of("https://id.example", Some(id)).is_err(),
                "{id}"
            );
        }
        assert!(RelyingParty::of("https://127.0.0.1", Some("x")).is_err());
    }
}
