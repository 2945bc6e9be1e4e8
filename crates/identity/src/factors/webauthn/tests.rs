//! Each step of the ceremonies, and what happens when it fails.

use ciborium::Value as Cbor;
use serde_json::json;

use super::soft::{Says, Soft, object};
use super::*;

const ORIGIN: &str = "https://id.example";
const RP_ID: &str = "id.example";
const CHALLENGE: &[u8] = b"0123456789abcdef0123456789abcdef";

fn expected() -> Expected<'static> {
    Expected {
        challenge: CHALLENGE,
        origin: ORIGIN,
        rp_id: RP_ID,
        verified: true,
    }
}

fn says() -> Says {
    Says::right(CHALLENGE, ORIGIN, RP_ID)
}

fn create(soft: &Soft, says: &Says) -> Result<Registered, WebauthnError> {
    let (client_data, attestation) = soft.create(says);
    registered(&expected(), &client_data, &attestation)
}

fn get(soft: &Soft, says: &Says) -> Result<Asserted, WebauthnError> {
    let key = create(soft, &super::tests::says())
        .expect("a credential")
        .key;
    let (client_data, data, signature) = soft.get(says);
    asserted(&expected(), &key, &client_data, &data, &signature)
}

/// Both ceremonies fail alike with what `wrong` makes of a right one.
#[track_caller]
fn refused(wrong: impl Fn(&mut Says), error: WebauthnError) {
    let soft = Soft::es256(b"one");
    let mut says = says();
    wrong(&mut says);
    assert_eq!(create(&soft, &says), Err(error));
    assert_eq!(get(&soft, &says), Err(error));
}

#[test]
fn every_algorithm_goes_through_both_ceremonies() {
    for soft in [
        Soft::es256(b"one"),
        Soft::ed_dsa(b"two"),
        Soft::rs256(b"three"),
    ] {
        let made = create(&soft, &says()).expect("a credential");
        assert_eq!((made.credential_id, made.verified), (soft.id.clone(), true));
        let kept = serde_json::to_string(&made.key).expect("JSON");
        let read: PublicKey = serde_json::from_str(&kept).expect("a key");
        assert_eq!(read, made.key);
        let counted = Says { count: 7, ..says() };
        assert_eq!(get(&soft, &counted).expect("signed").sign_count, 7);
    }
}

#[test]
fn the_other_ceremony_is_refused() {
    refused(
        |says| says.kind = Some("webauthn.other"),
        WebauthnError::Type,
    );
    let soft = Soft::es256(b"one");
    let mut wrong = says();
    wrong.kind = Some("webauthn.get");
    assert_eq!(create(&soft, &wrong), Err(WebauthnError::Type));
    wrong.kind = Some("webauthn.create");
    assert_eq!(get(&soft, &wrong), Err(WebauthnError::Type));
}

#[test]
fn another_challenge_is_refused() {
    refused(|says| says.challenge[0] ^= 1, WebauthnError::Challenge);
    refused(|says| says.challenge.clear(), WebauthnError::Challenge);
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
            |says| says.origin = origin.to_owned(),
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
            |says| says.client_data = data.clone(),
            WebauthnError::CrossOrigin,
        );
    }
}

#[test]
fn a_credential_for_another_relying_party_is_refused() {
    refused(
        |says| says.rp_id = "example".to_owned(),
        WebauthnError::RelyingParty,
    );
}

#[test]
fn without_presence_it_is_refused() {
    refused(|says| says.flags = 0x04, WebauthnError::Presence);
}

#[test]
fn without_verification_it_is_refused_where_that_is_demanded() {
    refused(|says| says.flags = 0x01, WebauthnError::Verification);
    let soft = Soft::es256(b"one");
    let (client_data, attestation) = soft.create(&Says { flags: 1, ..says() });
    let lenient = Expected {
        verified: false,
        ..expected()
    };
    let made = registered(&lenient, &client_data, &attestation);
    assert!(!made.expect("a credential").verified);
}

#[test]
fn a_backup_of_what_cannot_be_backed_up_is_refused() {
    refused(|says| says.flags = 0x15, WebauthnError::Backup);
    let made = create(
        &Soft::es256(b"one"),
        &Says {
            flags: 0x1d,
            ..says()
        },
    );
    let backup = made.expect("a credential").backup;
    assert!(backup.eligible && backup.done);
}

#[test]
fn bytes_after_the_end_are_refused() {
    let error = WebauthnError::Malformed("the authenticator data");
    refused(|says| says.trailer = vec![0], error);
}

#[test]
fn extensions_that_are_announced_must_be_there() {
    let error = WebauthnError::Malformed("the extensions");
    refused(|says| says.flags |= 0x80, error);
    let mut says = says();
    says.flags |= 0x80;
    says.trailer = vec![0xa0];
    assert!(create(&Soft::es256(b"one"), &says).is_ok());
    assert!(get(&Soft::es256(b"one"), &says).is_ok());
}

#[test]
fn truncated_authenticator_data_is_refused_at_every_length() {
    let soft = Soft::es256(b"one");
    let key = create(&soft, &says()).expect("a credential").key;
    let (client_data, data, signature) = soft.get(&says());
    for length in 0..data.len() {
        let result = asserted(&expected(), &key, &client_data, &data[..length], &signature);
        assert!(
            matches!(result, Err(WebauthnError::Malformed(_))),
            "{length}"
        );
    }
    let (client_data, attestation) = soft.create(&says());
    for length in 0..attestation.len() {
        assert!(registered(&expected(), &client_data, &attestation[..length]).is_err());
    }
}

#[test]
fn a_flipped_bit_anywhere_breaks_the_signature() {
    let soft = Soft::es256(b"one");
    let key = create(&soft, &says()).expect("a credential").key;
    let (client_data, data, signature) = soft.get(&says());
    for at in 0..signature.len() {
        let mut wrong = signature.clone();
        wrong[at] ^= 1;
        let result = asserted(&expected(), &key, &client_data, &data, &wrong);
        assert_eq!(result, Err(WebauthnError::Signature), "{at}");
    }
    let mut counted = data.clone();
    counted[36] ^= 1;
    let result = asserted(&expected(), &key, &client_data, &counted, &signature);
    assert_eq!(result, Err(WebauthnError::Signature));
}

#[test]
fn another_credentials_signature_is_refused() {
    let key = create(&Soft::es256(b"one"), &says()).expect("made").key;
    let (client_data, data, signature) = Soft::es256(b"one").get(&says());
    let result = asserted(&expected(), &key, &client_data, &data, &signature);
    assert_eq!(result, Err(WebauthnError::Signature));
}

#[test]
fn algorithms_that_were_not_offered_are_refused() {
    let int = |n: i64| Cbor::Integer(n.into());
    let soft = Soft::es256(b"one");
    let with = |at: usize, value: Cbor| {
        let mut key = soft.cose();
        key[at].1 = value;
        let (client_data, attestation) = soft.create_with(&says(), &Cbor::Map(key));
        registered(&expected(), &client_data, &attestation).err()
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
    let soft = Soft::rs256(b"one");
    let mut key = soft.cose();
    key[2].1 = Cbor::Bytes(vec![0xff; 128]);
    let (client_data, attestation) = soft.create_with(&says(), &Cbor::Map(key));
    let result = registered(&expected(), &client_data, &attestation);
    assert_eq!(result, Err(WebauthnError::Key));
}

#[test]
fn a_key_with_a_member_twice_is_refused() {
    let soft = Soft::es256(b"one");
    let mut key = soft.cose();
    key.push(key[3].clone());
    let (client_data, attestation) = soft.create_with(&says(), &Cbor::Map(key));
    let result = registered(&expected(), &client_data, &attestation);
    assert_eq!(result, Err(WebauthnError::Malformed("the public key")));
}

#[test]
fn no_attestation_must_say_nothing_and_any_other_is_taken_without_trust() {
    let soft = Soft::es256(b"one");
    let statement = Cbor::Map(vec![(Cbor::Text("sig".to_owned()), Cbor::Bytes(vec![1]))]);
    let none = Says {
        statement: statement.clone(),
        ..says()
    };
    assert_eq!(create(&soft, &none), Err(WebauthnError::Statement));
    let packed = Says {
        statement,
        format: "packed",
        ..says()
    };
    assert!(create(&soft, &packed).is_ok());
}

#[test]
fn an_attestation_object_of_another_shape_is_refused() {
    let (client_data, _) = Soft::es256(b"one").create(&says());
    let deep: Vec<u8> = [vec![0x81; 10_000], vec![0]].concat();
    let huge = vec![0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let long = vec![0; 64 * 1024];
    for bad in [&b""[..], &[0xa0], &[0x80], &[0xff], &deep, &huge, &long] {
        let result = registered(&expected(), &client_data, bad);
        let error = WebauthnError::Malformed("the attestation object");
        assert_eq!(result, Err(error));
    }
    // Data of a sign-in, in which there is no credential.
    let data = Soft::es256(b"one").get(&says()).1;
    let result = registered(&expected(), &client_data, &object(&says(), data));
    assert_eq!(result, Err(WebauthnError::NoCredential));
}

#[test]
fn an_identifier_out_of_bounds_is_refused() {
    for id in [vec![], vec![1; CREDENTIAL_MAX + 1]] {
        let result = create(&Soft::es256(&id), &says());
        assert_eq!(result, Err(WebauthnError::Identifier));
    }
    assert!(create(&Soft::es256(&[1; CREDENTIAL_MAX]), &says()).is_ok());
}

#[test]
fn client_data_that_says_a_thing_twice_is_refused() {
    let soft = Soft::es256(b"one");
    let key = create(&soft, &says()).expect("made").key;
    let (client_data, data, signature) = soft.get(&says());
    let text = String::from_utf8(client_data).expect("JSON");
    let error = Err(WebauthnError::Malformed("the client data"));
    let twice = text.replacen('{', r#"{"origin":"https://id.example","#, 1);
    let blown = format!("{}{}", text, " ".repeat(5000));
    for bad in [twice.as_str(), blown.as_str(), "", "[]", "{", "null"] {
        let result = asserted(&expected(), &key, bad.as_bytes(), &data, &signature);
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
