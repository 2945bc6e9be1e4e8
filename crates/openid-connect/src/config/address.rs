//! Addresses of the gateway that others know by their text.

use url::Url;

/// An address as its operator wrote it: providers compare what they are sent with
/// what was registered with them character by character (RFC 9700 §2.1).
#[derive(Clone, Debug)]
pub(crate) struct Address {
    text: String,
    url: Url,
}

impl Address {
    /// `text` parses as `url`. What can't be in an address as it is, such as a
    /// space, is written as the parser does.
    pub(crate) fn new(text: &str, url: Url) -> Self {
        let text = if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            text.to_owned()
        } else {
            url.as_str().to_owned()
        };
        Self { text, url }
    }

    /// What is sent: as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Its host.
    pub(crate) fn host(&self) -> Option<&str> {
        self.url.host_str()
    }

    /// Its path, as requests come to it.
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_sent_as_it_was_written() {
        for (text, sent, path) in [
            ("https://app.example.com", "https://app.example.com", "/"),
            (
                "https://App.Example.com:443/A",
                "https://App.Example.com:443/A",
                "/A",
            ),
            ("https://app.test/a b", "https://app.test/a%20b", "/a%20b"),
            (" https://app.test/ü", "https://app.test/%C3%BC", "/%C3%BC"),
        ] {
            let address = Address::new(text, Url::parse(text).expect("an address"));
            assert_eq!((address.as_str(), address.path()), (sent, path));
        }
    }
}
