//! As much of X.509 as tells a CA certificate (RFC 5280 §4.2.1.9).

/// Whether the certificate says that it is of an authority. What is no
/// certificate says nothing.
pub(super) fn is_authority(certificate: &[u8]) -> bool {
    constraints(certificate).unwrap_or(false)
}

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// `[3]`, in which a certificate has its extensions.
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.19.
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];

/// `cA` of the basic constraints; `None` if there are none.
fn constraints(certificate: &[u8]) -> Option<bool> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut to_be_signed, _) = element(certificate)?;
    let extensions = loop {
        let (tag, content, rest) = element(to_be_signed)?;
        if tag == EXTENSIONS {
            break content;
        }
        to_be_signed = rest;
    };
    let (_, mut list, _) = element(extensions)?;
    while !list.is_empty() {
        let (_, extension, rest) = element(list)?;
        list = rest;
        let (tag, id, mut value) = element(extension)?;
        if tag != OBJECT_ID || id != BASIC_CONSTRAINTS {
            continue;
        }
        // `critical` may stand before the value.
        let (mut tag, mut content, rest) = element(value)?;
        if tag == BOOLEAN {
            value = rest;
            (tag, content, _) = element(value)?;
        }
        if tag != OCTET_STRING {
            return None;
        }
        let (tag, fields, _) = element(content)?;
        if tag != SEQUENCE {
            return None;
        }
        let ca = element(fields).filter(|(tag, _, _)| *tag == BOOLEAN);
        return Some(ca.is_some_and(|(_, value, _)| value == [0xff]));
    }
    None
}

/// The first element: its tag, its content, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        let length = digits
            .iter()
            .fold(0_usize, |length, digit| length << 8 | usize::from(*digit));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;

    fn made(is_ca: IsCa) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("parameters");
        params.is_ca = is_ca;
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signs").der().to_vec()
    }

    #[test]
    fn an_authority_is_told_from_others() {
        assert!(is_authority(&made(IsCa::Ca(
            BasicConstraints::Unconstrained
        ))));
        assert!(is_authority(&made(IsCa::Ca(
            BasicConstraints::Constrained(3)
        ))));
        assert!(!is_authority(&made(IsCa::NoCa)));
        assert!(!is_authority(&made(IsCa::ExplicitNoCa)));
    }

    #[test]
    fn a_damaged_certificate_is_no_authority_and_no_panic() {
        let good = made(IsCa::Ca(BasicConstraints::Unconstrained));
        for end in 0..good.len() {
            assert!(!is_authority(&good[..end]), "cut at {end}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            is_authority(&bad);
        }
    }
}
