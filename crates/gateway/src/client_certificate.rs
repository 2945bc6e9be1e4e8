//! Certificates of clients: what upstreams are told of them, and which
//! requests may not come over a connection that was made for another name.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::certificates::Certificates;
use doorward_plugin_api::filter::Exchange;

/// The whole certificate (RFC 9440).
const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// The rest of the chain, which is not told.
const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
const X_CLIENT_CERT_DN: HeaderName = HeaderName::from_static("x-client-cert-dn");
const X_CLIENT_CERT_SAN: HeaderName = HeaderName::from_static("x-client-cert-san");
const OWNED: [HeaderName; 4] = [
    CLIENT_CERT,
    CLIENT_CERT_CHAIN,
    X_CLIENT_CERT_DN,
    X_CLIENT_CERT_SAN,
];

/// Removes what the client sent under the names, with `-` or `_`, that speak of
/// its certificate.
pub(super) fn strip(fields: &mut HeaderMap) {
    let names = fields.keys();
    let spoofed: Vec<HeaderName> = names.filter(|name| is_owned(name)).cloned().collect();
    for name in spoofed {
        fields.remove(name);
    }
}

/// Tells the upstream of the client's verified certificate, and of none but
/// that.
pub(super) fn forward(exchange: &Exchange, fields: &mut HeaderMap) {
    strip(fields);
    let Some(certificate) = exchange.client_certificate() else {
        return;
    };
    fields.insert(CLIENT_CERT, certificate.header.clone());
    let mut tell = |name, text: &str| {
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes())
            && !text.is_empty()
        {
            fields.insert(name, value);
        }
    };
    tell(X_CLIENT_CERT_DN, &certificate.subject);
    tell(X_CLIENT_CERT_SAN, &certificate.joined_names);
}

fn is_owned(name: &HeaderName) -> bool {
    let name = name.as_str();
    OWNED.iter().any(|own| {
        let own = own.as_str();
        let same = |(a, b): (u8, u8)| a == b || (a == b'-' && b == b'_');
        own.len() == name.len() && own.bytes().zip(name.bytes()).all(same)
    })
}

/// Whether a request for `host` has to come over a connection of its own: the
/// handshake's name has another certificate (RFC 9110 §15.5.20). Browsers send
/// requests for several hosts over one connection of HTTP/2.
pub(super) fn is_misdirected(exchange: &Exchange, host: &str, all: &Certificates) -> bool {
    let Some(name) = exchange.server_name() else {
        return false;
    };
    if host.eq_ignore_ascii_case(name) {
        return false;
    }
    match (all.find(name), all.find(host)) {
        (Some(one), Some(other)) => !Arc::ptr_eq(one, other),
        (None, None) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_claim_a_certificate_in_any_spelling() {
        let mut fields = HeaderMap::new();
        for name in [
            "Client-Cert",
            "client_cert",
            "Client-Cert-Chain",
            "X-Client-Cert-Dn",
            "X_Client-Cert_DN",
            "X-Client-Cert-San",
        ] {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            fields.append(name, HeaderValue::from_static("forged"));
        }
        fields.append("x-client", HeaderValue::from_static("kept"));
        forward(&Exchange::default(), &mut fields);
        let left: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-client"]);
    }
}
