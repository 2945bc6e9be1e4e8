//! Which groups ("curves") a TLS listener agrees on keys with.
//!
//! By default those of the library: X25519 with ML-KEM first, which no quantum
//! computer breaks, then X25519 and the curves of NIST.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::kx_group as group;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};

/// A group by its registered name.
struct Group {
    name: &'static str,
    group: &'static dyn SupportedKxGroup,
    /// Whether TLS 1.2 has it.
    is_of_12: bool,
}

const fn classic(name: &'static str, group: &'static dyn SupportedKxGroup) -> Group {
    Group {
        name,
        group,
        is_of_12: true,
    }
}

const fn post_quantum(name: &'static str, group: &'static dyn SupportedKxGroup) -> Group {
    Group {
        name,
        group,
        is_of_12: false,
    }
}

static GROUPS: [Group; 7] = [
    post_quantum("X25519MLKEM768", group::X25519MLKEM768),
    post_quantum("SecP256r1MLKEM768", group::SECP256R1MLKEM768),
    post_quantum("MLKEM768", group::MLKEM768),
    post_quantum("MLKEM1024", group::MLKEM1024),
    classic("x25519", group::X25519),
    classic("secp256r1", group::SECP256R1),
    classic("secp384r1", group::SECP384R1),
];

/// Programs spell the names in several ways.
fn find(name: &str) -> Option<&'static Group> {
    GROUPS
        .iter()
        .find(|one| one.name.eq_ignore_ascii_case(name))
}

/// `provider` with these groups, in this order; none: those that it has.
pub fn confine(provider: Arc<CryptoProvider>, names: &[String]) -> Arc<CryptoProvider> {
    if names.is_empty() {
        return provider;
    }
    let chosen = names.iter().filter_map(|name| find(name));
    Arc::new(CryptoProvider {
        kx_groups: chosen.map(|one| one.group).collect(),
        ..(*provider).clone()
    })
}

/// Checks a list of groups for a listener that speaks TLS 1.3 and, if `with_12`,
/// TLS 1.2.
///
/// # Errors
/// The place in the list, if one is wrong, and what is wrong.
pub fn check(names: &[String], with_12: bool) -> Result<(), (Option<usize>, String)> {
    let mut seen: Vec<&str> = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let Some(one) = find(name) else {
            let all = GROUPS.each_ref().map(|one| one.name).join(", ");
            return Err((Some(place), format!("'{name}' is none of {all}")));
        };
        if seen.contains(&one.name) {
            return Err((Some(place), format!("'{name}' stands there twice")));
        }
        seen.push(one.name);
    }
    let has_one_of_12 = names
        .iter()
        .filter_map(|name| find(name))
        .any(|one| one.is_of_12);
    if with_12 && !names.is_empty() && !has_one_of_12 {
        let message = "names no curve of TLS 1.2: add one, or set min_version to TLSv1.3";
        return Err((None, message.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_list_is_checked_curve_by_curve() {
        assert_eq!(check(&of(&[]), true), Ok(()));
        assert_eq!(check(&of(&["X25519", "secp384r1"]), true), Ok(()));
        assert_eq!(check(&of(&["MLKEM768"]), false), Ok(()));
        for (names, place) in [
            (of(&["x25519", "secp521r1"]), Some(1)),
            (of(&["x25519", "X25519"]), Some(1)),
            (of(&["X25519MLKEM768"]), None),
        ] {
            let wrong = check(&names, true).expect_err("refused");
            assert_eq!(wrong.0, place, "{names:?}: {}", wrong.1);
        }
        let (_, message) = check(&of(&["prime256v1"]), true).expect_err("refused");
        assert!(message.contains("secp256r1"), "{message}");
    }

    #[test]
    fn the_order_is_that_of_the_list() {
        let library = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let names = of(&["secp384r1", "x25519"]);
        let groups = confine(library.clone(), &names).kx_groups.clone();
        let names: Vec<_> = groups
            .iter()
            .map(|one| format!("{:?}", one.name()))
            .collect();
        assert_eq!(names, ["secp384r1", "X25519"]);
        assert_eq!(
            confine(library.clone(), &[]).kx_groups.len(),
            library.kx_groups.len()
        );
        // Whatever the library has, the table knows it.
        assert_eq!(rustls::crypto::aws_lc_rs::ALL_KX_GROUPS.len(), GROUPS.len());
    }
}
