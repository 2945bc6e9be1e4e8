use std::sync::Arc;

use serde_json::json;

use crate::provider::proof_of_possession::*;
use doorward_core::clock::Clock;
use doorward_core::jose::testing::TestKey;
use doorward_net::http::outbound::Outbound;
use doorward_net::telemetry::Metrics;

const NOW: i64 = 1_700_000_000;

/// The parts of a process without a store.
fn parts() -> Parts {
    let (clock, outbound) = (Clock::manual(NOW * 1000), Arc::new(Outbound::new()));
    Parts::new(clock, outbound, Arc::new(Metrics::default()))
}
const TOKEN: &str = "a.token";

fn proofs(mut config: Value) -> Proofs {
    config["issuer"] = json!("https://id");
    config["auth_methods"] = json!(["bearer"]);
    let proofs = Proofs::new(&Fields::of(&config).expect("valid"), &parts()).expect("valid");
    proofs.expect("they are asked for")
}

fn strict() -> Proofs {
    proofs(json!({"proof_of_possession_dpop": "strict"}))
}

/// A proof for `GET http://api.test/orders` with other claims.
fn proof(key: &TestKey, changes: &Value) -> String {
    let ath = URL_SAFE_NO_PAD.encode(digest(&SHA256, TOKEN.as_bytes()));
    let mut claims = json!({"jti": "1", "htm": "GET", "htu": "http://api.test/orders",
        "iat": NOW, "ath": ath});
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    let header = json!({"typ": "dpop+jwt", "alg": key.alg(), "jwk": key.jwk()});
    key.sign(&header.to_string(), &claims.to_string())
}

fn thumbprint(key: &TestKey) -> String {
    dpop::read(&proof(key, &json!({})))
        .expect("a proof")
        .thumbprint
}

fn check(
    proofs: &Proofs,
    shown: bool,
    cnf: &Value,
    sent: &[String],
    now: i64,
) -> (Result<(), Refusal>, Exchange) {
    let mut request = RequestHeader::build("GET", b"/orders?a=b", None).expect("a request");
    request.insert_header("host", "api.test").expect("a field");
    for proof in sent {
        request.append_header("DPoP", proof).expect("a field");
    }
    let mut exchange = Exchange::default();
    let claims = json!({ "cnf": cnf });
    let claims = claims.as_object().expect("an object");
    let outcome = proofs.check((TOKEN, shown), claims, &request, &mut exchange, (None, now));
    let settle = |proof: &ValidProof| {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let settled = proofs.consume(proof, claims, (None, now));
        runtime.expect("a runtime").block_on(settled).map(drop)
    };
    let outcome = outcome.and_then(|proof| proof.as_ref().map_or(Ok(()), settle));
    (outcome, exchange)
}

#[test]
fn a_proof_of_this_request_and_token_passes_once() {
    let (proofs, key) = (strict(), TestKey::es256("k"));
    let cnf = json!({"jkt": thumbprint(&key)});
    let good = [proof(&key, &json!({}))];
    assert_eq!(check(&proofs, true, &cnf, &good, NOW).0, Ok(()));
    let again = check(&proofs, true, &cnf, &good, NOW).0;
    assert_eq!(again, Err(Refusal::ProofRepeated));
}

#[test]
fn a_proof_by_an_algorithm_that_is_not_listed_is_refused() {
    let keys = [TestKey::rsa("k", false), TestKey::es256("k")];
    let wrong = Err(Refusal::WrongProof);
    for (algs, outcomes) in [
        (json!(null), [Ok(()), Ok(())]),
        (json!(["PS256", "ES256", "EdDSA"]), [wrong, Ok(())]),
        (json!(["RS256"]), [Ok(()), wrong]),
    ] {
        let config = json!({"proof_of_possession_dpop": "strict", "dpop_signing_algs": algs});
        let proofs = proofs(config);
        for (key, outcome) in keys.iter().zip(outcomes) {
            let cnf = json!({"jkt": thumbprint(key)});
            let sent = [proof(key, &json!({}))];
            let found = check(&proofs, true, &cnf, &sent, NOW).0;
            assert_eq!(found, outcome, "{} {algs}", key.alg());
        }
    }
}

#[test]
fn a_proof_is_as_old_as_is_configured_at_most() {
    let key = TestKey::es256("k");
    let cnf = json!({"jkt": thumbprint(&key)});
    for (seconds, outcome) in [(59, Ok(())), (60, Err(Refusal::WrongProof))] {
        let config = json!({"proof_of_possession_dpop": "strict", "dpop_proof_lifetime": 60});
        let sent = [proof(&key, &json!({"iat": NOW - seconds}))];
        let found = check(&proofs(config), true, &cnf, &sent, NOW).0;
        assert_eq!(found, outcome, "{seconds}");
    }
}

#[test]
fn what_does_not_prove_this_request_is_refused() {
    let (key, other) = (TestKey::es256("k"), TestKey::es256("k"));
    let cnf = json!({"jkt": thumbprint(&key)});
    for changes in [
        json!({"htm": "POST"}),
        json!({"htu": "http://api.test/other"}),
        json!({"htu": "https://api.test/orders"}),
        json!({"htu": "http://evil.test/orders"}),
        json!({"htu": null}),
        json!({"ath": "AAAA"}),
        json!({"ath": null}),
        json!({"iat": NOW - 300}),
        json!({"iat": NOW + 11}),
        json!({"exp": NOW - 10}),
        json!({"nbf": NOW + 11}),
        json!({"exp": "never"}),
        json!({"iat": null}),
        json!({"jti": null}),
        json!({"jti": ""}),
        json!({"jti": "x".repeat(300)}),
    ] {
        let sent = [proof(&key, &changes)];
        let outcome = check(&strict(), true, &cnf, &sent, NOW).0;
        assert_eq!(outcome, Err(Refusal::WrongProof), "{changes}");
    }
    let good = proof(&key, &json!({}));
    for (sent, shown, refusal) in [
        (vec![proof(&other, &json!({}))], true, Refusal::WrongProof),
        (vec![good.clone(), good.clone()], true, Refusal::WrongProof),
        (vec!["x".to_owned()], true, Refusal::WrongProof),
        (vec![], true, Refusal::MissingProof),
        (vec![good.clone()], false, Refusal::UnprovenToken),
    ] {
        let outcome = check(&strict(), shown, &cnf, &sent, NOW).0;
        assert_eq!(outcome, Err(refusal), "{sent:?} {shown}");
    }
    for fine in [
        json!({"htu": "HTTP://API.test:80/orders"}),
        json!({"htu": "http://api.test/orders?x#y"}),
        json!({"iat": NOW + 10}),
        json!({"nbf": NOW + 10, "exp": NOW - 9}),
        json!({"iat": NOW - 299}),
    ] {
        let sent = [proof(&key, &fine)];
        assert_eq!(check(&strict(), true, &cnf, &sent, NOW).0, Ok(()), "{fine}");
    }
}

#[test]
fn tokens_that_are_not_bound_pass_unless_that_is_demanded() {
    let none = json!({});
    let optional = proofs(json!({"proof_of_possession_dpop": "optional"}));
    assert_eq!(check(&optional, false, &none, &[], NOW).0, Ok(()));
    let unproven = Err(Refusal::UnprovenToken);
    assert_eq!(check(&optional, true, &none, &[], NOW).0, unproven);
    assert_eq!(check(&strict(), false, &none, &[], NOW).0, unproven);
    let bound = json!({"jkt": "AAAA"});
    assert_eq!(check(&optional, false, &bound, &[], NOW).0, unproven);
    let mtls = proofs(json!({"proof_of_possession_mtls": "optional"}));
    assert_eq!(check(&mtls, false, &none, &[], NOW).0, Ok(()));
    let bound = json!({"x5t#S256": "AAAA"});
    let outcome = check(&mtls, false, &bound, &[], NOW).0;
    assert_eq!(outcome, Err(Refusal::WrongCertificate));
}

#[test]
fn a_nonce_of_the_gateway_is_demanded_and_gets_old() {
    let config = json!({"proof_of_possession_dpop": "strict", "dpop_use_nonce": true});
    let (proofs, key) = (proofs(config), TestKey::es256("k"));
    let cnf = json!({"jkt": thumbprint(&key)});
    let (outcome, exchange) = check(&proofs, true, &cnf, &[proof(&key, &json!({}))], NOW);
    assert_eq!(outcome, Err(Refusal::ProofNonce));
    let (name, nonce) = &exchange.response_headers[0];
    assert_eq!(name, "dpop-nonce");
    let nonce = nonce.to_str().expect("text");
    let with = |id: &str, now: i64| {
        let changes = json!({"nonce": nonce, "jti": id, "iat": now});
        check(&proofs, true, &cnf, &[proof(&key, &changes)], now).0
    };
    assert_eq!(with("a", NOW), Ok(()));
    assert_eq!(with("b", NOW + 299), Ok(()));
    assert_eq!(with("c", NOW + 300), Err(Refusal::ProofNonce));
    let forged = [proof(&key, &json!({"nonce": "AAAA", "jti": "d"}))];
    let outcome = check(&proofs, true, &cnf, &forged, NOW).0;
    assert_eq!(outcome, Err(Refusal::ProofNonce));
}

#[test]
fn methods_that_prove_nothing_are_refused_beside_proofs() {
    let config = json!({"proof_of_possession_dpop": "strict"});
    let refused = Proofs::new(&Fields::of(&config).expect("valid"), &parts()).map(|_| ());
    assert_eq!(refused.expect_err("refused").field, "auth_methods");
}
