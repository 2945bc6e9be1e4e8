//! Metadata of protected resources (RFC 9728): what tells a client without a token
//! where to get one. They are served before a route is looked for, since the
//! well-known address is none of the resource's own paths.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW,
    CACHE_CONTROL,
};
use http::{HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;

use doorward_net::http::authority;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::filter::ProtectedResource;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
const HEADERS: HeaderValue =
    HeaderValue::from_static("Authorization, Content-Type, Accept, MCP-Protocol-Version");
const ANYBODY: HeaderValue = HeaderValue::from_static("*");
const FIVE_MINUTES: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The metadata of all resources, by host and path.
#[derive(Debug, Default)]
pub struct ResourceMetadata {
    hosts: HashMap<(String, Option<u16>), OfHost>,
}

/// The metadata of the resources of one host.
#[derive(Debug, Default)]
struct OfHost {
    by_path: Vec<(String, Bytes)>,
    /// The resources, by the path that each of them has first.
    resources: Vec<String>,
}

impl OfHost {
    fn at(&self, path: &str) -> Option<&Bytes> {
        let mut all = self.by_path.iter();
        let (_, metadata) = all.find(|(known, _)| known == path)?;
        Some(metadata)
    }
}

impl ResourceMetadata {
    /// The metadata of these resources, each of which may have several addresses. Of
    /// two with one address the first counts.
    pub(super) fn of<'r>(resources: impl Iterator<Item = &'r [ProtectedResource]>) -> Arc<Self> {
        let mut all = Self::default();
        for addresses in resources {
            let mut seen = Vec::new();
            for address in addresses {
                let host = (address.host.clone(), address.port);
                let of_host = all.hosts.entry(host.clone()).or_default();
                if of_host.at(&address.path).is_some() {
                    continue;
                }
                let entry = (address.path.clone(), address.metadata.clone());
                of_host.by_path.push(entry);
                if !seen.contains(&host) {
                    of_host.resources.push(address.path.clone());
                    seen.push(host);
                }
            }
        }
        Arc::new(all)
    }

    /// The answer to a request for metadata; `None`: it is none for a host with
    /// resources, and is routed as any other.
    pub(super) fn answer(&self, request: &RequestHeader) -> Option<Reply> {
        let path = request
            .uri
            .path()
            .strip_prefix(ProtectedResource::WELL_KNOWN)?;
        if self.hosts.is_empty() || !(path.is_empty() || path.starts_with('/')) {
            return None;
        }
        let (host, port) = authority::of(request)?;
        let place = (host.to_ascii_lowercase(), ProtectedResource::port(port));
        let of_host = self.hosts.get(&place)?;
        Some(match request.method {
            Method::GET | Method::HEAD => found(of_host, path),
            Method::OPTIONS => shared(StatusCode::NO_CONTENT)
                .header(ACCESS_CONTROL_ALLOW_METHODS, METHODS)
                .header(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
            _ => Reply::message(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
                .header(ALLOW, METHODS),
        })
    }
}

/// The metadata at `path`; those of the only resource of a host at the root, too,
/// where clients look that know no path.
fn found(of_host: &OfHost, path: &str) -> Reply {
    let only = match &*of_host.resources {
        [only] if path.is_empty() || path == "/" => of_host.at(only),
        _ => None,
    };
    let Some(metadata) = of_host.at(path).or(only) else {
        let message = "no protected resource has this address";
        return Reply::message(StatusCode::NOT_FOUND, message)
            .header(ACCESS_CONTROL_ALLOW_ORIGIN, ANYBODY);
    };
    let mut reply = shared(StatusCode::OK).header(CACHE_CONTROL, FIVE_MINUTES);
    reply.body = ReplyBody::Raw("application/json", metadata.clone());
    reply
}

/// An answer that pages of every origin may read.
fn shared(status: StatusCode) -> Reply {
    Reply::empty(status).header(ACCESS_CONTROL_ALLOW_ORIGIN, ANYBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(host: &str, port: Option<u16>, path: &str) -> ProtectedResource {
        ProtectedResource {
            host: host.to_owned(),
            port,
            path: path.to_owned(),
            origin: format!("https://{host}"),
            metadata: format!("{host}{path}").into(),
        }
    }

    fn told(all: &ResourceMetadata, method: &str, host: &str, path: &str) -> Option<(u16, String)> {
        let mut request = RequestHeader::build(method, path.as_bytes(), None).expect("a request");
        request.insert_header("host", host).expect("a header");
        let reply = all.answer(&request)?;
        let body = match reply.body {
            ReplyBody::Raw(_, body) => String::from_utf8_lossy(&body).into_owned(),
            _ => String::new(),
        };
        Some((reply.status.as_u16(), body))
    }

    #[test]
    fn metadata_are_at_the_path_of_the_resource_and_at_the_root_of_one_alone() {
        let resources = [
            resource("a.test", None, "/mcp"),
            resource("b.test", Some(8000), "/one"),
            resource("b.test", Some(8000), "/two"),
        ];
        let all = ResourceMetadata::of(resources.iter().map(std::slice::from_ref));
        let get = |host, path: &str| {
            told(
                &all,
                "GET",
                host,
                &format!("{}{path}", ProtectedResource::WELL_KNOWN),
            )
        };
        let found = |text: &str| Some((200, text.to_owned()));
        let missing = Some((404, String::new()));
        assert_eq!(get("a.test", "/mcp"), found("a.test/mcp"));
        assert_eq!(get("A.test:443", "/mcp"), found("a.test/mcp"));
        assert_eq!(get("a.test", ""), found("a.test/mcp"));
        assert_eq!(get("a.test", "/other"), missing);
        assert_eq!(get("a.test", "/mcp/"), missing);
        assert_eq!(get("b.test:8000", "/two"), found("b.test/two"));
        assert_eq!(get("b.test:8000", ""), missing);
        // Somebody else's host or path is routed.
        assert_eq!(get("b.test", "/two"), None);
        assert_eq!(get("a.test", "s"), None);
        assert_eq!(told(&all, "GET", "a.test", "/mcp"), None);
        let path = format!("{}/mcp", ProtectedResource::WELL_KNOWN);
        assert_eq!(
            told(&all, "OPTIONS", "a.test", &path),
            Some((204, String::new()))
        );
        assert_eq!(
            told(&all, "POST", "a.test", &path),
            Some((405, String::new()))
        );
    }

    #[test]
    fn a_resource_with_several_addresses_is_at_the_root_of_each_host() {
        let one = [
            resource("a.test", None, "/mcp"),
            resource("b.test", None, "/mcp"),
            resource("a.test", None, "/mcp/"),
            resource("c.test", None, "/one"),
        ];
        let two = [
            resource("a.test", None, "/mcp"),
            resource("c.test", None, "/two"),
        ];
        let all = ResourceMetadata::of([&one[..], &two].into_iter());
        let get = |host, path: &str| {
            let path = format!("{}{path}", ProtectedResource::WELL_KNOWN);
            told(&all, "GET", host, &path).map(|(_, text)| text)
        };
        let found = |text: &str| Some(text.to_owned());
        for (host, path, expected) in [
            ("a.test", "/mcp/", "a.test/mcp/"),
            ("a.test", "", "a.test/mcp"),
            ("b.test", "", "b.test/mcp"),
            ("c.test", "/two", "c.test/two"),
            ("c.test", "", ""),
        ] {
            assert_eq!(get(host, path), found(expected), "{host}{path}");
        }
    }
}
