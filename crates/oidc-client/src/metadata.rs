//! What a provider says of itself (OpenID Connect Discovery §4, RFC 8414).

use url::Url;

const OPENID: &str = "/.well-known/openid-configuration";
const OAUTH: &str = "/.well-known/oauth-authorization-server";

/// Where the discovery document may be, likeliest first.
pub fn discovery_urls(issuer: &Url) -> Vec<Url> {
    let mut urls = Vec::new();
    if issuer.path().contains("/.well-known/") {
        urls.push(issuer.clone());
    }
    let base = base(issuer);
    let path = base.path().trim_end_matches('/').to_owned();
    for well_known in [
        format!("{path}{OPENID}"),
        format!("{OAUTH}{path}"),
        format!("{path}{OAUTH}"),
    ] {
        let mut url = base.clone();
        url.set_path(&well_known);
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    urls
}

/// The issuer without a well-known part, query and fragment.
fn base(issuer: &Url) -> Url {
    let mut base = issuer.clone();
    base.set_query(None);
    base.set_fragment(None);
    for well_known in [OPENID, OAUTH] {
        if let Some((before, after)) = issuer.path().split_once(well_known) {
            base.set_path(&format!("{before}{after}"));
        }
    }
    base
}

/// The issuer that a URL names, as tokens write it or as its discovery document
/// is found.
pub fn issuer_of(url: &Url) -> String {
    let base = base(url);
    base.as_str().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(issuer: &str) -> Vec<String> {
        let issuer = Url::parse(issuer).expect("a URL");
        discovery_urls(&issuer).iter().map(Url::to_string).collect()
    }

    #[test]
    fn documents_are_looked_for_where_the_specifications_say() {
        let wanted = [
            "https://h/a/.well-known/openid-configuration",
            "https://h/.well-known/oauth-authorization-server/a",
            "https://h/a/.well-known/oauth-authorization-server",
        ];
        for issuer in [
            "https://h/a",
            "https://h/a/",
            "https://h/a/.well-known/openid-configuration",
        ] {
            assert_eq!(urls(issuer), wanted, "{issuer}");
        }
        assert_eq!(urls("https://h").len(), 2);
    }

    #[test]
    fn a_full_document_url_is_tried_first_as_it_is() {
        let exact = "https://h/a/.well-known/openid-configuration?p=policy";
        assert_eq!(urls(exact)[0], exact);
        let exact = "https://h/.well-known/oauth-authorization-server/a";
        assert_eq!(urls(exact)[0], exact);
        assert_eq!(
            urls(exact)[1],
            "https://h/a/.well-known/openid-configuration"
        );
    }
}
