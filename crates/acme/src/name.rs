//! Host names that certificates can be ordered for.

/// The longest name (RFC 1035 §2.3.4).
const NAME_MAX: usize = 253;
/// The longest label.
const LABEL_MAX: usize = 63;

/// Why no certificate can be ordered for `name`, if so. Names are compared as they are
/// written: lower case, A-labels, no final dot.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    let bare = bare(name);
    let is_address = bare
        .split('.')
        .next_back()
        .is_some_and(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()));
    if is_address || bare.contains(':') {
        return Err("is an address: certificates are ordered for names");
    }
    if bare.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("must be in lower case");
    }
    if !bare.is_ascii() {
        return Err("must be written in its ASCII form (xn--…)");
    }
    if bare.len() > NAME_MAX || !bare.split('.').all(is_label) {
        return Err("is not a host name, such as www.example.com or *.example.com");
    }
    Ok(())
}

/// Whether the name stands for all names one label below another.
pub(crate) fn is_wildcard(name: &str) -> bool {
    name.starts_with("*.")
}

/// The name that is validated: that of a wildcard without its asterisk.
pub(crate) fn bare(name: &str) -> &str {
    name.strip_prefix("*.").unwrap_or(name)
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL_MAX).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_host_names_and_wildcards_of_them() {
        for name in [
            "a.test",
            "*.a.test",
            "xn--bcher-kva.test",
            "localhost",
            "a-1.b2.test",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "*",
            "A.test",
            "a..test",
            "a.test.",
            "-a.test",
            "a_b.test",
            "10.0.0.1",
            "::1",
            "bücher.test",
            "a.*.test",
            "www.*",
            "a b.test",
            "a/b.test",
        ] {
            check(name).expect_err(name);
        }
        check(&format!("{}.test", "a".repeat(64))).expect_err("a long label");
    }
}
