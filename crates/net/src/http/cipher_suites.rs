//! Which cipher suites a TLS listener offers.
//!
//! By default: all of TLS 1.3, and of TLS 1.2 those that the FAPI 2.0 Security
//! Profile (§5.2.1) and BCP 195 recommend, with AES-GCM. So no listener has to
//! know whether the provider has a client of that profile.

use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite as suite;

/// A suite by its registered name; the preferred ones first.
struct Suite {
    name: &'static str,
    suite: SupportedCipherSuite,
    by_default: bool,
}

const fn preferred(name: &'static str, suite: SupportedCipherSuite) -> Suite {
    Suite {
        name,
        suite,
        by_default: true,
    }
}

const fn on_request(name: &'static str, suite: SupportedCipherSuite) -> Suite {
    Suite {
        name,
        suite,
        by_default: false,
    }
}

#[rustfmt::skip]
static SUITES: [Suite; 9] = [
    preferred("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    preferred("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    preferred("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    preferred("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    preferred("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    preferred("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    preferred("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    on_request("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    on_request("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|one| one.name == name)
}

fn is_of_12(one: &Suite) -> bool {
    one.suite.version() == &rustls::version::TLS12
}

/// `provider` with these suites, in this order; none: the default ones.
pub fn confine(provider: &CryptoProvider, names: &[String]) -> Arc<CryptoProvider> {
    let chosen: Vec<&Suite> = match names {
        [] => SUITES.iter().filter(|one| one.by_default).collect(),
        names => names.iter().filter_map(|name| find(name)).collect(),
    };
    Arc::new(CryptoProvider {
        cipher_suites: chosen.into_iter().map(|one| one.suite).collect(),
        ..provider.clone()
    })
}

/// Checks a list of suites for a listener that speaks TLS 1.3 and, if `with_12`,
/// TLS 1.2.
///
/// # Errors
/// The place in the list, if one is wrong, and what is wrong.
pub fn check(names: &[String], with_12: bool) -> Result<(), (Option<usize>, String)> {
    if names.is_empty() {
        return Ok(());
    }
    let mut chosen = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let Some(one) = find(name) else {
            let all: Vec<_> = SUITES.iter().map(|one| one.name).collect();
            let message = format!("'{name}' is none of {}", all.join(", "));
            return Err((Some(place), message));
        };
        if names[..place].contains(name) {
            return Err((Some(place), format!("'{name}' stands there twice")));
        }
        if is_of_12(one) && !with_12 {
            let message = format!("'{name}' is for TLS 1.2, which min_version rules out");
            return Err((Some(place), message));
        }
        chosen.push(one);
    }
    if chosen.iter().all(|one| is_of_12(one)) {
        return Err((None, "names no suite of TLS 1.3".to_owned()));
    }
    if with_12 && !chosen.iter().any(|one| is_of_12(one)) {
        let message = "names no suite of TLS 1.2: add one, or set min_version to TLSv1.3";
        return Err((None, message.to_owned()));
    }
    Ok(())
}

/// The place of the first suite that the FAPI 2.0 Security Profile rules out.
pub fn unfit_for_fapi2(names: &[String]) -> Option<usize> {
    let is_unfit = |one: &Suite| is_of_12(one) && !one.by_default;
    names
        .iter()
        .position(|name| find(name).is_some_and(is_unfit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn by_default_tls_12_has_aes_gcm_alone() {
        let library = rustls::crypto::aws_lc_rs::default_provider();
        let provider = confine(&library, &[]);
        let offered: Vec<_> = provider.cipher_suites.iter().collect();
        assert_eq!(offered.len(), 7);
        let of_12 = offered
            .iter()
            .filter(|suite| suite.version() == &rustls::version::TLS12);
        for suite in of_12 {
            let name = format!("{:?}", suite.suite());
            assert!(name.contains("ECDHE") && name.contains("AES"), "{name}");
            assert!(name.contains("GCM"), "{name}");
        }
        // Whatever the library has, the table knows it.
        assert_eq!(library.cipher_suites.len(), SUITES.len());
    }

    #[test]
    fn a_list_is_checked_suite_by_suite() {
        let (new, old) = (
            "TLS_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        );
        let chacha = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";
        assert_eq!(check(&of(&[new, old, chacha]), true), Ok(()));
        assert_eq!(check(&of(&[new]), false), Ok(()));
        for (names, with_12, place) in [
            (of(&[new, "TLS_RSA_WITH_AES_128_CBC_SHA"]), true, Some(1)),
            (of(&[new, new, old]), true, Some(1)),
            (of(&[new, old]), false, Some(1)),
            (of(&[old]), true, None),
            (of(&[new]), true, None),
        ] {
            let wrong = check(&names, with_12).expect_err("refused");
            assert_eq!(wrong.0, place, "{names:?}: {}", wrong.1);
        }
        assert_eq!(unfit_for_fapi2(&of(&[new, old, chacha])), Some(2));
        assert_eq!(unfit_for_fapi2(&of(&[new, old])), None);
    }
}
