//! Variables of a request that passes the broker, by the names that flow
//! conditions use.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

use http::HeaderName;
use pingora::http::RequestHeader;

use super::client::Place;
use doorward_net::http::form::{self, Form};

/// Where the provider's access token is put.
pub(super) const EXTERNAL_ACCESS_TOKEN: &str = "forgerock_access_token";
/// Where the provider's refresh token is put.
pub(super) const EXTERNAL_REFRESH_TOKEN: &str = "forgerock_refresh_token";
/// Whether the provider has let the user in.
pub(super) const EXTERNAL_STATUS: &str = "oauth_external_authorization_status";

/// A variable, by what it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Variable {
    BasePath,
    PathSuffix,
    Path,
    Uri,
    Verb,
    Query(String),
    Form(String),
    Header(HeaderName),
    HeaderCount(HeaderName),
    Content,
    ClientIp,
    Timestamp,
    Organization,
    Environment,
    Proxy,
    /// One that an operation sets.
    Flow(String),
}

impl Variable {
    /// The variable of this name.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let header = |name: &str| {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            parsed.map_err(|_| format!("'{name}' is no name of a header field"))
        };
        Ok(match name {
            "proxy.basepath" => Self::BasePath,
            "proxy.pathsuffix" => Self::PathSuffix,
            "request.path" | "message.path" => Self::Path,
            "request.uri" | "message.uri" => Self::Uri,
            "request.verb" | "message.verb" => Self::Verb,
            "request.content" | "message.content" => Self::Content,
            "client.ip" => Self::ClientIp,
            "system.timestamp" => Self::Timestamp,
            "organization.name" => Self::Organization,
            "environment.name" => Self::Environment,
            "apiproxy.name" => Self::Proxy,
            other => {
                let part = |what: &str| {
                    let rest = other
                        .strip_prefix("request.")
                        .or_else(|| other.strip_prefix("message."));
                    rest.and_then(|rest| rest.strip_prefix(what))
                };
                if let Some(name) = part("queryparam.") {
                    Self::Query(name.to_owned())
                } else if let Some(name) = part("formparam.") {
                    Self::Form(name.to_owned())
                } else if let Some(name) = part("header.") {
                    match name.strip_suffix(".values.count") {
                        Some(name) => Self::HeaderCount(header(name)?),
                        None => Self::Header(header(name)?),
                    }
                } else if other.starts_with("response.") || other.starts_with("target.") {
                    return Err(format!("'{other}' is not known before the request is sent"));
                } else {
                    Self::Flow(other.to_owned())
                }
            }
        })
    }
}

/// What operations set.
pub(super) type Set = HashMap<String, String>;

/// What is known of a request.
pub(super) struct Facts<'a> {
    pub(super) request: &'a RequestHeader,
    pub(super) base: &'a str,
    /// The normal path below `base`, with a slash at its beginning.
    pub(super) suffix: &'a str,
    /// The body, if it was read.
    pub(super) body: Option<&'a [u8]>,
    /// Whether the body is known.
    pub(super) body_read: bool,
    /// The form in it, if it is a good one.
    pub(super) form: Option<&'a Form<'a>>,
    pub(super) client: IpAddr,
    pub(super) now_ms: i64,
    pub(super) organization: &'a str,
    pub(super) environment: &'a str,
    pub(super) proxy: &'a str,
    pub(super) set: Option<&'a Set>,
}

impl Facts<'_> {
    /// Where the request goes.
    pub(super) fn place(&self) -> Place<'_> {
        Place {
            proxy: self.proxy,
            environment: self.environment,
        }
    }

    /// Whether a variable is in a body that was not read.
    pub(super) fn is_unread(&self, variable: &Variable) -> bool {
        let here = match variable {
            Variable::Form(_) => form::is_form(&self.request.headers),
            Variable::Content => true,
            _ => false,
        };
        here && !self.body_read
    }

    /// The value of a variable; `None`: it is not set.
    pub(super) fn value(&self, variable: &Variable) -> Option<Cow<'_, str>> {
        let field = |name: &HeaderName| {
            let value = self.request.headers.get(name)?;
            value.to_str().ok().map(Cow::Borrowed)
        };
        match variable {
            Variable::BasePath => Some(self.base.into()),
            Variable::PathSuffix => Some(self.suffix.into()),
            Variable::Path => Some(match self.base {
                "/" => self.suffix.into(),
                base => format!("{base}{}", self.suffix).into(),
            }),
            Variable::Uri => {
                let target = self.request.uri.path_and_query();
                target.map(|target| target.as_str().into())
            }
            Variable::Verb => Some(self.request.method.as_str().into()),
            Variable::Query(name) => {
                let query = self.request.uri.query()?;
                form::first(query.as_bytes(), name)
            }
            Variable::Form(name) => self.form?.get(name).map(Cow::Borrowed),
            Variable::Header(name) => field(name),
            Variable::HeaderCount(name) => {
                let count = self.request.headers.get_all(name).iter().count();
                Some(count.to_string().into())
            }
            Variable::Content => self.body.map(String::from_utf8_lossy),
            Variable::ClientIp => Some(self.client.to_canonical().to_string().into()),
            Variable::Timestamp => Some(self.now_ms.to_string().into()),
            Variable::Organization => Some(self.organization.into()),
            Variable::Environment => Some(self.environment.into()),
            Variable::Proxy => Some(self.proxy.into()),
            Variable::Flow(name) => {
                let value = self.set?.get(name)?;
                Some(value.as_str().into())
            }
        }
    }
}
