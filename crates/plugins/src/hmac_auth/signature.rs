//! Signatures of requests, as clients write them.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Version};
use pingora::http::RequestHeader;

use crate::authentication::after_scheme;
use doorward_core::model::secret::Secret;
use doorward_plugin_api::words;

/// Names of headers that a signature may list.
const HEADERS_MAX: usize = 64;

words! {
    /// A hash that signatures are made with.
    pub(super) enum Hash {
        Sha1 = "hmac-sha1",
        Sha256 = "hmac-sha256",
        Sha384 = "hmac-sha384",
        Sha512 = "hmac-sha512",
    }
}

impl Hash {
    const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// A secret, ready for each hash.
pub struct SigningKeys(Option<[hmac::Key; 4]>);

impl SigningKeys {
    /// The keys of a credential; an empty secret is none.
    pub fn new(secret: Option<&Secret>) -> Self {
        let secret = secret.map(|secret| secret.expose().as_bytes());
        let secret = secret.filter(|bytes| !bytes.is_empty());
        Self(secret.map(|bytes| Hash::ALL.map(|hash| hmac::Key::new(hash.algorithm(), bytes))))
    }

    /// Whether their owner has made this signature of a request.
    pub(super) fn have_signed(
        &self,
        signature: &Signature<'_>,
        hash: Hash,
        request: &RequestHeader,
    ) -> bool {
        let (Some(keys), Ok(bytes)) = (&self.0, STANDARD.decode(signature.bytes)) else {
            return false;
        };
        let text = signature.text(request);
        hmac::verify(&keys[hash as usize], &text, &bytes).is_ok()
    }
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKeys")
    }
}

/// A signature and what it says about itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signature<'a> {
    pub(super) username: &'a str,
    pub(super) algorithm: &'a str,
    headers: &'a str,
    bytes: &'a str,
}

impl<'a> Signature<'a> {
    /// Reads a header's value: the parameters come in one order.
    pub(super) fn read(value: &'a HeaderValue) -> Option<Self> {
        let mut rest = after_scheme(value, "hmac")?;
        let mut parameter = |name: &str, first: bool| {
            let text = rest.trim_start();
            let text = if first {
                text
            } else {
                text.strip_prefix(',')?.trim_start()
            };
            let text = text.strip_prefix(name)?.strip_prefix("=\"")?;
            let (value, after) = text.split_once('"')?;
            rest = after;
            Some(value)
        };
        let signature = Self {
            username: parameter("username", true)?,
            algorithm: parameter("algorithm", false)?,
            headers: parameter("headers", false)?,
            bytes: parameter("signature", false)?,
        };
        let sound = !signature.username.is_empty()
            && !signature.bytes.is_empty()
            && signature.headers().count() <= HEADERS_MAX
            && rest.trim().is_empty();
        sound.then_some(signature)
    }

    /// The names of what is signed, as the client writes them.
    pub(super) fn headers(&self) -> impl Iterator<Item = &'a str> {
        self.headers.split(' ').filter(|name| !name.is_empty())
    }

    /// What is signed: a line for each name.
    fn text(&self, request: &RequestHeader) -> Vec<u8> {
        let mut text = Vec::with_capacity(256);
        for (position, name) in self.headers().enumerate() {
            if position > 0 {
                text.push(b'\n');
            }
            line(&mut text, name, request);
        }
        text
    }
}

fn line(text: &mut Vec<u8>, name: &str, request: &RequestHeader) {
    let target = request.uri.path_and_query();
    let target = target.map_or("/", |target| target.as_str());
    let header = HeaderName::try_from(name).ok();
    let value = header
        .as_ref()
        .and_then(|header| request.headers.get(header));
    let host = || {
        let authority = request
            .uri
            .authority()
            .filter(|_| header == Some(http::header::HOST));
        authority.map(|authority| authority.as_str().as_bytes())
    };
    if let Some(value) = value.map(HeaderValue::as_bytes).or_else(host) {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        return;
    }
    match name {
        "request-line" => {
            let version = match request.version {
                Version::HTTP_2 => "HTTP/2.0",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            };
            let line = format!("{} {target} {version}", request.method);
            text.extend_from_slice(line.as_bytes());
        }
        "@request-target" => {
            let method = request.method.as_str().to_ascii_lowercase();
            let line = format!("@request-target: {method} {target}");
            text.extend_from_slice(line.as_bytes());
        }
        absent => {
            text.extend_from_slice(absent.as_bytes());
            text.push(b':');
        }
    }
}
