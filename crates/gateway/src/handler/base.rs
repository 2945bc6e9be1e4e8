//! Base URIs: what takes the place of a request's scheme, host and port.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{Uri, uri};
use url::Url;

use super::HandlerError;
use super::destination::Bound;
use doorward_expr::{Expression, Value};

/// Scheme of a [`BaseUri`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// A router inside this process.
    Internal,
}

/// An origin, ready to be put into requests.
pub struct Base {
    origin: Origin,
    scheme: uri::Scheme,
    authority: uri::Authority,
    /// How it is spoken to, as of the last request that came to it.
    pub(super) bound: ArcSwapOption<Bound>,
}

/// Scheme, host and port of where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// In lower case; IPv6 addresses in brackets.
    pub host: Box<str>,
    /// The port, also where it is the usual one; 0 for [`Scheme::Internal`].
    pub port: u16,
}

/// What takes the place of scheme, host and port.
pub enum BaseUri {
    /// The same for every request.
    Fixed(Arc<Base>),
    /// Evaluated for each request; null answers with 500.
    Dynamic(Expression),
}

impl Scheme {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Internal => "internal",
        }
    }

    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
            Scheme::Internal => 0,
        }
    }
}

/// Routers of this process that a base URI can name.
pub(crate) const INTERNALS: [&str; 2] = ["identity", "echo"];

impl Origin {
    /// Scheme, host and port of `text`; the rest of it is ignored.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text.trim()).map_err(|error| format!("'{text}': {error}"))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "internal" => Scheme::Internal,
            other => {
                return Err(format!(
                    "scheme '{other}': expected one of: http, https, internal"
                ));
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("user information is not allowed".to_owned());
        }
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        if host.is_empty() {
            return Err(format!("'{text}' names no host"));
        }
        if scheme == Scheme::Internal && !INTERNALS.contains(&&*host) {
            return Err(format!(
                "internal://{host}: expected one of: {}",
                INTERNALS
                    .map(|name| format!("internal://{name}"))
                    .join(", ")
            ));
        }
        let port = match scheme {
            Scheme::Internal => 0,
            _ => url.port().unwrap_or(scheme.port()),
        };
        Ok(Self {
            scheme,
            host: host.into(),
            port,
        })
    }

    /// Host, and the port where it is not the usual one.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

impl Base {
    /// The origin that `text` names.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let origin = Origin::parse(text)?;
        let authority = uri::Authority::try_from(origin.authority())
            .map_err(|error| format!("'{text}': {error}"))?;
        let scheme = match origin.scheme {
            Scheme::Https => uri::Scheme::HTTPS,
            Scheme::Http | Scheme::Internal => uri::Scheme::HTTP,
        };
        Ok(Self {
            origin,
            scheme,
            authority,
            bound: ArcSwapOption::empty(),
        })
    }

    /// Where requests go.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The target `uri` with this scheme, host and port in place of its own.
    pub(super) fn rebase(&self, uri: &Uri) -> Uri {
        let mut parts = uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        let target = uri.path_and_query().cloned();
        parts.path_and_query = target.or_else(|| Some(uri::PathAndQuery::from_static("/")));
        // All three are there, and were valid before.
        Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
    }

    /// Whether `uri` still has this scheme, host and port.
    pub(super) fn matches(&self, uri: &Uri) -> bool {
        uri.authority() == Some(&self.authority) && uri.scheme() == Some(&self.scheme)
    }
}

impl BaseUri {
    /// The base URI that `expression` gives.
    ///
    /// # Errors
    /// [`HandlerError`] if it gives the same for every request, and that is
    /// not the URI of an upstream.
    pub fn new(expression: Expression) -> Result<Self, HandlerError> {
        let fixed = match expression.constant() {
            None => None,
            Some(Value::Text(text)) => Some(Base::parse(&text)),
            Some(_) => Some(Err(
                "expected a URI, for instance http://app:8080".to_owned()
            )),
        };
        match fixed {
            None => Ok(Self::Dynamic(expression)),
            Some(base) => base
                .map(|base| Self::Fixed(Arc::new(base)))
                .map_err(|message| HandlerError::new("baseURI", message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_host_and_port_of_a_base_uri_count() {
        let origin = Origin::parse("HTTP://App.Example:8081/ignored?too#this").expect("an origin");
        assert_eq!(origin.to_string(), "http://app.example:8081");
        let origin = Origin::parse("https://app.example").expect("an origin");
        assert_eq!((origin.port, &*origin.authority()), (443, "app.example"));
        let origin = Origin::parse("http://[::1]:80/").expect("an origin");
        assert_eq!(origin.to_string(), "http://[::1]");
        let origin = Origin::parse("internal://identity").expect("an origin");
        assert_eq!(origin.to_string(), "internal://identity");
    }

    #[test]
    fn what_is_no_upstream_is_refused() {
        for bad in [
            "",
            "app:8080",
            "/path",
            "ftp://app",
            "internal://other",
            "http://user:pw@app",
            "http://",
            "http://a b",
            "http://app:99999",
        ] {
            Origin::parse(bad).expect_err(bad);
        }
    }
}
