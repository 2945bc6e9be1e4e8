//! The path of a request as its browser knows it: a proxy before the gateway may
//! have taken off the beginning.

use std::borrow::Cow;

use pingora::http::RequestHeader;

use doorward_plugin_api::filter::Exchange;

/// The path that the browser asked for, or what a trusted proxy says of it:
/// the whole path, or what it has taken off.
pub(crate) fn path<'a>(request: &'a RequestHeader, exchange: &Exchange) -> Cow<'a, str> {
    let own = request.uri.path();
    // `OPTIONS *` has a target that no address ends with.
    let own = if own.starts_with('/') { own } else { "/" };
    if let Some(whole) = told(request, exchange, "x-forwarded-path") {
        return Cow::Borrowed(whole);
    }
    let prefix = told(request, exchange, "x-forwarded-prefix");
    match prefix.map(|prefix| prefix.trim_end_matches('/')) {
        None | Some("") => Cow::Borrowed(own),
        Some(prefix) => Cow::Owned(format!("{prefix}{own}")),
    }
}

/// A path that a trusted proxy tells; of a chain, it speaks last.
fn told<'a>(request: &'a RequestHeader, exchange: &Exchange, name: &str) -> Option<&'a str> {
    if !exchange.trusted {
        return None;
    }
    let value = request.headers.get(name)?;
    let path = value.to_str().ok()?.rsplit(',').next()?.trim();
    let odd = |c: char| c.is_whitespace() || matches!(c, '?' | '#' | '\\');
    (path.starts_with('/') && !path.contains(odd)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_a_trusted_proxy_says_of_it() {
        for (name, value, wanted) in [
            ("x-forwarded-prefix", "/shop", "/shop/orders"),
            ("x-forwarded-prefix", "/shop/", "/shop/orders"),
            ("x-forwarded-prefix", "/a, /shop", "/shop/orders"),
            ("x-forwarded-prefix", "/", "/orders"),
            ("x-forwarded-prefix", "", "/orders"),
            ("x-forwarded-prefix", "shop", "/orders"),
            ("x-forwarded-prefix", "/a?b", "/orders"),
            ("x-forwarded-path", "/shop/orders", "/shop/orders"),
            ("x-forwarded-path", "https://evil.test/", "/orders"),
            ("x-other", "/shop", "/orders"),
        ] {
            let mut request = RequestHeader::build("GET", b"/orders?x", None).expect("a request");
            request.insert_header(name, value).expect("a field");
            let mut exchange = Exchange::default();
            assert_eq!(
                path(&request, &exchange),
                "/orders",
                "{value} of a stranger"
            );
            exchange.trusted = true;
            assert_eq!(path(&request, &exchange), wanted, "{name}: {value}");
        }
    }
}
