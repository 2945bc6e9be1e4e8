//! The identity provider where nothing that an operator has declared leads to it.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use super::handler::{BaseUri, Declared, FileRoute, Handler, ProxySettings, Routes};
use doorward_expr::Expression;
use doorward_net::telemetry::traffic::Traffic;

/// The router of this process that is mounted.
pub(super) const PROVIDER: &str = "identity";
/// What the provider's endpoints begin with, behind the path of its address.
const PATHS: [&str; 5] = ["/oauth2", "/json", "/v1", "/scim/v2", "/.well-known"];
/// Names of this machine, which browsers and programs use for one another.
const LOOPBACK: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "::1"];
/// What operators are told in the place of a file.
const ORIGIN: &str = "mounted by default (identity.mount)";

/// A route to the provider for requests to the host and the paths of `base_url`.
/// `None`: there is no such route for this address.
pub fn mount(base_url: &Url, traffic: &Traffic) -> Option<Arc<Routes>> {
    let condition = Expression::compile(&condition(base_url)?).ok()?;
    let target = Expression::compile(&format!("internal://{PROVIDER}")).ok()?;
    let handler = Handler::Rebased {
        base: BaseUri::new(target).ok()?,
        handler: Arc::new(Handler::Proxy(Arc::new(ProxySettings::default()))),
    };
    let declared = Declared {
        id: PROVIDER.to_owned(),
        name: PROVIDER.to_owned(),
        file: PathBuf::from(ORIGIN),
        condition: Some(condition),
        handler: Arc::new(handler),
    };
    let route = Arc::new(FileRoute::new(declared, traffic));
    Some(Arc::new(Routes::new(vec![route], None)))
}

fn condition(base_url: &Url) -> Option<String> {
    let host = base_url.host_str()?.to_ascii_lowercase();
    let prefix = base_url.path().trim_end_matches('/');
    // Whatever would have a meaning in an expression, or another one decoded.
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
    let is_plain = |c: char| plain(c) || matches!(c, '[' | ']' | ':');
    if !prefix.chars().all(plain) || !host.chars().all(is_plain) {
        return None;
    }
    let hosts = if LOOPBACK.contains(&host.as_str()) {
        LOOPBACK.to_vec()
    } else {
        vec![host.as_str()]
    };
    let hosts = hosts.iter();
    let hosts: Vec<_> = hosts
        .map(|host| format!("toLowerCase(request.uri.host) == '{host}'"))
        .collect();
    let paths = PATHS.iter().flat_map(|path| {
        let whole = format!("{prefix}{path}");
        [
            format!("request.uri.path == '{whole}'"),
            format!("request.uri.path.startsWith('{whole}/')"),
        ]
    });
    let paths: Vec<_> = paths.collect();
    Some(format!(
        "${{({}) && ({})}}",
        hosts.join(" || "),
        paths.join(" || ")
    ))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use doorward_expr::Scope;

    fn takes(base_url: &str, host: &str, path: &str) -> bool {
        let base_url = base_url.parse().expect("an address");
        let routes = mount(&base_url, &Traffic::default()).expect("a route");
        let request = Request::builder().uri(path).header("host", host);
        let request = request.body(()).expect("a request").into_parts().0;
        let client = "127.0.0.1:1".parse().expect("an address");
        routes
            .taking(&Scope::new(&request, client))
            .expect("a decision")
            .is_some()
    }

    #[test]
    fn the_provider_is_at_its_own_host_and_paths_alone() {
        let id = "https://ID.example.com";
        for (host, path, taken) in [
            ("id.example.com", "/oauth2/authorize", true),
            (
                "ID.example.com:443",
                "/.well-known/openid-configuration",
                true,
            ),
            ("id.example.com", "/v1", true),
            ("id.example.com", "/v1x", false),
            ("id.example.com", "/", false),
            ("api.example.com", "/oauth2/authorize", false),
        ] {
            assert_eq!(takes(id, host, path), taken, "{host}{path}");
        }
        assert!(takes("http://localhost:8000", "127.0.0.1:8000", "/json/x"));
        assert!(takes("http://localhost:8000", "[::1]:8000", "/json/x"));
        let below = "https://example.com/auth/";
        assert!(takes(below, "example.com", "/auth/oauth2/x"));
        assert!(!takes(below, "example.com", "/oauth2/x"));
    }

    #[test]
    fn an_address_that_an_expression_could_misread_is_not_mounted() {
        for base_url in ["https://example.com/a'b", "https://example.com/a%20b"] {
            let base_url = base_url.parse().expect("an address");
            assert!(mount(&base_url, &Traffic::default()).is_none());
        }
    }
}
