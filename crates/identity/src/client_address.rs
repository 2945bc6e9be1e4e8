//! Identifiers of clients that are the addresses of documents about them (Client ID
//! Metadata Documents), and whose documents count.

use url::Url;

use super::config::{ClientDocumentSettings, DocumentMode};
use doorward_core::model::client::Client;
use doorward_core::model::user::Owner;

/// Longest identifier, in bytes.
const ID_MAX: usize = 255;

/// How the description of an error begins that is for who has written the document.
pub(super) const UNUSABLE_DOCUMENT: &str = "The document of the client can't be used";

/// The address that an identifier is, if it can be that of a document: spelled as
/// every reader of addresses would spell it.
pub(super) fn address(id: &str) -> Option<Url> {
    if id.len() > ID_MAX || !(id.starts_with("https://") || id.starts_with("http://")) {
        return None;
    }
    let url = Url::parse(id).ok()?;
    let is_plain = url.as_str() == id
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && url.path() != "/";
    is_plain.then_some(url)
}

/// The host of an identifier that is the address of a document, as it is written there.
pub(super) fn host(id: &str) -> Option<&str> {
    address(id)?;
    let (_, rest) = id.split_once("://")?;
    rest.split(['/', '?']).next()
}

impl ClientDocumentSettings {
    /// Whether the documents of this host count.
    pub(super) fn admits(&self, url: &Url) -> bool {
        match self.mode {
            DocumentMode::Disabled => false,
            DocumentMode::Open => true,
            DocumentMode::Listed => {
                let host = url.host_str().unwrap_or_default();
                self.allowed_hosts.iter().any(|known| known == host)
            }
        }
    }

    /// Whether a client may be in use: one of a document is only while the realm takes
    /// such documents.
    pub(super) fn keeps(&self, client: &Client) -> bool {
        let of_document = client.owner == Owner::Client && client.registration.is_none();
        match address(&client.metadata.client_id).filter(|_| of_document) {
            Some(url) => self.admits(&url),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "https://app.test/client.json";

    #[test]
    fn only_an_address_that_everybody_spells_so_names_a_document() {
        assert!(address(ID).is_some());
        let long = format!("https://app.test/{}", "a".repeat(ID_MAX));
        for other in [
            "https://app.test",
            "https://app.test/",
            "https://APP.test/a",
            "https://app.test:443/a",
            "https://app.test/a/../b",
            "https://app.test/a#b",
            "https://u@app.test/a",
            "ftp://app.test/a",
            "javascript:alert(1)",
            &long,
        ] {
            assert!(address(other).is_none(), "{other}");
        }
    }
}
