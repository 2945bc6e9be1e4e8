//! Each step of the ceremonies, and what happens when it fails.

use ciborium::Value as Cbor;
use serde_json::json;

use super::software_authenticator::{AuthenticatorBehaviour, SoftwareAuthenticator, object};
use super::*;

const ORIGIN: &str = "https://id.example";
const RP_ID: &str = "id.example";
const CHALLENGE: &[u8] = b"0123456789abcdef0123456789abcdef";

fn expected() -> CeremonyContext<'static> {
    CeremonyContext {
        challenge: CHALLENGE,
        origin: ORIGIN,
        rp_id: RP_ID,
        verified: true,
    }
}

fn behaviour() -> AuthenticatorBehaviour {
    AuthenticatorBehaviour::right(CHALLENGE, ORIGIN, RP_ID)
}

fn create(
    authenticator: &SoftwareAuthenticator,
    behaviour: &AuthenticatorBehaviour,
) -> Result<Registration, WebauthnError> {
    let (client_data, attestation) = authenticator.create(behaviour);
    verify_registration(&expected(), &client_data, &attestation)
}

fn get(
    authenticator: &SoftwareAuthenticator,
    behaviour: &AuthenticatorBehaviour,
) -> Result<AssertionResult, WebauthnError> {
    let key = create(authenticator, &super::tests::behaviour())
        .expect("a credential")
        .key;
    let (client_data, data, signature) = authenticator.get(behaviour);
    verify_assertion(&expected(), &key, &client_data, &data, &signature)
}

/// Both ceremonies fail alike with what `wrong` makes of a right one.
#[track_caller]
fn refused(wrong: impl Fn(&mut AuthenticatorBehaviour), error: WebauthnError) {
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let mut behaviour = behaviour();
    wrong(&mut behaviour);
    assert_eq!(create(&authenticator, &behaviour), Err(error));
    assert_eq!(get(&authenticator, &behaviour), Err(error));
}

#[test]
fn every_algorithm_goes_through_both_ceremonies() {
    for authenticator in [
        SoftwareAuthenticator::es256(b"one"),
        SoftwareAuthenticator::ed_dsa(b"two"),
        SoftwareAuthenticator::rs256(b"three"),
    ] {
        let made = create(&authenticator, &behaviour()).expect("a credential");
        assert_eq!(
            (made.credential_id, made.verified),
            (authenticator.id.clone(), true)
        );
        let kept = serde_json::to_string(&made.key).expect("JSON");
        let read: PublicKey = serde_json::from_str(&kept).expect("a key");
        assert_eq!(read, made.key);
        let counted = AuthenticatorBehaviour {
            count: 7,
            ..behaviour()
        };
        assert_eq!(get(&authenticator, &counted).expect("signed").sign_count, 7);
    }
}

#[test]
fn the_other_ceremony_is_refused() {
    refused(
        |behaviour| behaviour.kind = Some("webauthn.other"),
        WebauthnError::Type,
    );
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let mut wrong = behaviour();
    wrong.kind = Some("webauthn.get");
    assert_eq!(create(&authenticator, &wrong), Err(WebauthnError::Type));
    wrong.kind = Some("webauthn.create");
    assert_eq!(get(&authenticator, &wrong), Err(WebauthnError::Type));
}

#[test]
fn another_challenge_is_refused() {
    refused(
        |behaviour| behaviour.challenge[0] ^= 1,
        WebauthnError::Challenge,
    );
    refused(
        |behaviour| behaviour.challenge.clear(),
        WebauthnError::Challenge,
    );
}

#[test]
fn a_look_alike_origin_is_refused() {
    for origin in [
        "https://id.example.evil.test",
        "http://id.example",
        "https://id.example:8443",
        "https://ID.example",
        "https://id.example/",
        "",
    ] {
        refused(
            |behaviour| behaviour.origin = origin.to_owned(),
            WebauthnError::Origin,
        );
    }
}

#[test]
fn a_page_in_a_foreign_frame_is_refused() {
    for data in [
        json!({"crossOrigin": true}),
        json!({"crossOrigin": "false"}),
        json!({"topOrigin": "https://evil.test"}),
    ] {
        refused(
            |behaviour| behaviour.client_data = data.clone(),
            WebauthnError::CrossOrigin,
        );
    }
}

#[test]
fn a_credential_for_another_relying_party_is_refused() {
    refused(
        |behaviour| behaviour.rp_id = "example".to_owned(),
        WebauthnError::RelyingParty,
    );
}

#[test]
fn without_presence_it_is_refused() {
    refused(|behaviour| behaviour.flags = 0x04, WebauthnError::Presence);
}

#[test]
fn without_verification_it_is_refused_where_that_is_demanded() {
    refused(
        |behaviour| behaviour.flags = 0x01,
        WebauthnError::Verification,
    );
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let (client_data, attestation) = authenticator.create(&AuthenticatorBehaviour {
        flags: 1,
        ..behaviour()
    });
    let lenient = CeremonyContext {
        verified: false,
        ..expected()
    };
    let made = verify_registration(&lenient, &client_data, &attestation);
    assert!(!made.expect("a credential").verified);
}

#[test]
fn a_backup_of_what_cannot_be_backed_up_is_refused() {
    refused(|behaviour| behaviour.flags = 0x15, WebauthnError::Backup);
    let made = create(
        &SoftwareAuthenticator::es256(b"one"),
        &AuthenticatorBehaviour {
            flags: 0x1d,
            ..behaviour()
        },
    );
    let backup = made.expect("a credential").backup;
    assert!(backup.eligible && backup.done);
}

#[test]
fn bytes_after_the_end_are_refused() {
    let error = WebauthnError::Malformed("the authenticator data");
    refused(|behaviour| behaviour.trailer = vec![0], error);
}

#[test]
fn extensions_that_are_announced_must_be_there() {
    let error = WebauthnError::Malformed("the extensions");
    refused(|behaviour| behaviour.flags |= 0x80, error);
    let mut behaviour = behaviour();
    behaviour.flags |= 0x80;
    behaviour.trailer = vec![0xa0];
    assert!(create(&SoftwareAuthenticator::es256(b"one"), &behaviour).is_ok());
    assert!(get(&SoftwareAuthenticator::es256(b"one"), &behaviour).is_ok());
}

#[test]
fn truncated_authenticator_data_is_refused_at_every_length() {
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let key = create(&authenticator, &behaviour())
        .expect("a credential")
        .key;
    let (client_data, data, signature) = authenticator.get(&behaviour());
    for length in 0..data.len() {
        let result = verify_assertion(&expected(), &key, &client_data, &data[..length], &signature);
        assert!(
            matches!(result, Err(WebauthnError::Malformed(_))),
            "{length}"
        );
    }
    let (client_data, attestation) = authenticator.create(&behaviour());
    for length in 0..attestation.len() {
        assert!(verify_registration(&expected(), &client_data, &attestation[..length]).is_err());
    }
}

#[test]
fn a_flipped_bit_anywhere_breaks_the_signature() {
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let key = create(&authenticator, &behaviour())
        .expect("a credential")
        .key;
    let (client_data, data, signature) = authenticator.get(&behaviour());
    for at in 0..signature.len() {
        let mut wrong = signature.clone();
        wrong[at] ^= 1;
        let result = verify_assertion(&expected(), &key, &client_data, &data, &wrong);
        assert_eq!(result, Err(WebauthnError::Signature), "{at}");
    }
    let mut counted = data.clone();
    counted[36] ^= 1;
    let result = verify_assertion(&expected(), &key, &client_data, &counted, &signature);
    assert_eq!(result, Err(WebauthnError::Signature));
}

#[test]
fn another_credentials_signature_is_refused() {
    let key = create(&SoftwareAuthenticator::es256(b"one"), &behaviour())
        .expect("made")
        .key;
    let (client_data, data, signature) = SoftwareAuthenticator::es256(b"one").get(&behaviour());
    let result = verify_assertion(&expected(), &key, &client_data, &data, &signature);
    assert_eq!(result, Err(WebauthnError::Signature));
}

#[test]
fn algorithms_that_were_not_offered_are_refused() {
    let int = |n: i64| Cbor::Integer(n.into());
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let with = |at: usize, value: Cbor| {
        let mut key = authenticator.cose();
        key[at].1 = value;
        let (client_data, attestation) = authenticator.create_with(&behaviour(), &Cbor::Map(key));
        verify_registration(&expected(), &client_data, &attestation).err()
    };
    // ES384, and the deprecated SHA-1 with RSA.
    assert_eq!(with(1, int(-35)), Some(WebauthnError::Algorithm));
    assert_eq!(with(1, int(-65535)), Some(WebauthnError::Algorithm));
    assert_eq!(with(1, Cbor::Null), Some(WebauthnError::Algorithm));
    // One algorithm's name over another's key.
    assert_eq!(with(1, int(-8)), Some(WebauthnError::Key));
    assert_eq!(with(1, int(-257)), Some(WebauthnError::Key));
    // P-384, and a point that is not on the curve.
    assert_eq!(with(2, int(2)), Some(WebauthnError::Key));
    assert_eq!(with(4, Cbor::Bytes(vec![7; 32])), Some(WebauthnError::Key));
    assert_eq!(with(4, Cbor::Bytes(vec![7; 31])), Some(WebauthnError::Key));
}

#[test]
fn a_weak_rsa_key_is_refused() {
    let authenticator = SoftwareAuthenticator::rs256(b"one");
    let mut key = authenticator.cose();
    key[2].1 = Cbor::Bytes(vec![0xff; 128]);
    let (client_data, attestation) = authenticator.create_with(&behaviour(), &Cbor::Map(key));
    let result = verify_registration(&expected(), &client_data, &attestation);
    assert_eq!(result, Err(WebauthnError::Key));
}

#[test]
fn a_key_with_a_member_twice_is_refused() {
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let mut key = authenticator.cose();
    key.push(key[3].clone());
    let (client_data, attestation) = authenticator.create_with(&behaviour(), &Cbor::Map(key));
    let result = verify_registration(&expected(), &client_data, &attestation);
    assert_eq!(result, Err(WebauthnError::Malformed("the public key")));
}

#[test]
fn no_attestation_must_say_nothing_and_any_other_is_taken_without_trust() {
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let statement = Cbor::Map(vec![(Cbor::Text("sig".to_owned()), Cbor::Bytes(vec![1]))]);
    let none = AuthenticatorBehaviour {
        statement: statement.clone(),
        ..behaviour()
    };
    assert_eq!(create(&authenticator, &none), Err(WebauthnError::Statement));
    let packed = AuthenticatorBehaviour {
        statement,
        format: "packed",
        ..behaviour()
    };
    assert!(create(&authenticator, &packed).is_ok());
}

#[test]
fn an_attestation_object_of_another_shape_is_refused() {
    let (client_data, _) = SoftwareAuthenticator::es256(b"one").create(&behaviour());
    let deep: Vec<u8> = [vec![0x81; 10_000], vec![0]].concat();
    let huge = vec![0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let long = vec![0; 64 * 1024];
    for bad in [&b""[..], &[0xa0], &[0x80], &[0xff], &deep, &huge, &long] {
        let result = verify_registration(&expected(), &client_data, bad);
        let error = WebauthnError::Malformed("the attestation object");
        assert_eq!(result, Err(error));
    }
    // Data of a sign-in, in which there is no credential.
    let data = SoftwareAuthenticator::es256(b"one").get(&behaviour()).1;
    let result = verify_registration(&expected(), &client_data, &object(&behaviour(), data));
    assert_eq!(result, Err(WebauthnError::NoCredential));
}

#[test]
fn an_identifier_out_of_bounds_is_refused() {
    for id in [vec![], vec![1; CREDENTIAL_MAX + 1]] {
        let result = create(&SoftwareAuthenticator::es256(&id), &behaviour());
        assert_eq!(result, Err(WebauthnError::Identifier));
    }
    assert!(
        create(
            &SoftwareAuthenticator::es256(&[1; CREDENTIAL_MAX]),
            &behaviour()
        )
        .is_ok()
    );
}

#[test]
fn client_data_that_says_a_thing_twice_is_refused() {
    let authenticator = SoftwareAuthenticator::es256(b"one");
    let key = create(&authenticator, &behaviour()).expect("made").key;
    let (client_data, data, signature) = authenticator.get(&behaviour());
    let text = String::from_utf8(client_data).expect("JSON");
    let error = Err(WebauthnError::Malformed("the client data"));
    let twice = text.replacen('{', r#"{"origin":"https://id.example","#, 1);
    let blown = format!("{}{}", text, " ".repeat(5000));
    for bad in [twice.as_str(), blown.as_str(), "", "[]", "{", "null"] {
        let result = verify_assertion(&expected(), &key, bad.as_bytes(), &data, &signature);
        assert_eq!(result, error, "{bad}");
    }
}

#[test]
fn a_counter_that_goes_back_or_stands_still_is_noticed() {
    for (last, count, follows) in [
        (0, 0, true),
        (0, 1, true),
        (5, 6, true),
        (5, 5, false),
        (5, 4, false),
        (5, 0, false),
        (0, u32::MAX, true),
    ] {
        assert_eq!(may_follow(last, count), follows, "{last} {count}");
    }
}
