use aws_lc_rs::hmac;
use serde_json::json;

use super::*;
use crate::authentication::testing::{Outcome, ask, ask_as, entry, filter, parts_with};
use crate::testing::plugin;
use doorward_core::model::secret::Secret;

/// The clock of the tests stands at the epoch.
const NOW: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

fn hmac_auth(config: &Value) -> Arc<dyn Filter> {
    let parts = parts_with(|directory| {
        let mut put = |name: &str, secret: Option<&str>| {
            let secret = secret.map(Secret::new);
            let keys = SigningKeys::new(secret.as_ref());
            directory
                .signatures
                .put(name.as_bytes().into(), entry(keys));
        };
        put("anna", Some("secret"));
        put("bert", None);
        put("carl", Some(""));
    });
    filter(&KIND, config, &parts)
}

fn sign(algorithm: hmac::Algorithm, text: &str) -> String {
    let key = hmac::Key::new(algorithm, b"secret");
    STANDARD.encode(hmac::sign(&key, text.as_bytes()))
}

fn header(user: &str, algorithm: &str, headers: &str, signature: &str) -> String {
    format!(
        "Authorization: hmac username=\"{user}\", algorithm=\"{algorithm}\", \
         headers=\"{headers}\", signature=\"{signature}\""
    )
}

async fn send(filter: &dyn Filter, date: &str, authorization: &str) -> Outcome {
    let lines = format!("GET /a?b=c HTTP/1.1\r\nX-Date: {date}\r\n{authorization}");
    ask(filter, &lines).await
}

#[tokio::test]
async fn each_algorithm_signs_each_kind_of_line() {
    let filter = hmac_auth(&json!({}));
    for (name, algorithm) in [
        ("hmac-sha1", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        ("hmac-sha256", hmac::HMAC_SHA256),
        ("hmac-sha384", hmac::HMAC_SHA384),
        ("hmac-sha512", hmac::HMAC_SHA512),
    ] {
        for (headers, text) in [
            ("x-date", format!("x-date: {NOW}")),
            ("X-Date host", format!("X-Date: {NOW}\nhost: a.test")),
            ("request-line", "GET /a?b=c HTTP/1.1".to_owned()),
            ("@request-target", "@request-target: get /a?b=c".to_owned()),
            ("x-absent x-date", format!("x-absent:\nx-date: {NOW}")),
        ] {
            let value = header("anna", name, headers, &sign(algorithm, &text));
            let outcome = send(&*filter, NOW, &value).await;
            assert!(outcome.reply.is_none(), "{name} {headers}");
            assert_eq!(outcome.consumer(), Some("anna"));
        }
    }
}

#[tokio::test]
async fn each_refusal_has_its_words() {
    let config = json!({"enforce_headers": ["x-date"], "algorithms": ["hmac-sha256"]});
    let filter = hmac_auth(&config);
    let good = sign(hmac::HMAC_SHA256, &format!("x-date: {NOW}"));
    let right = header("anna", "hmac-sha256", "x-date", &good);
    assert!(send(&*filter, NOW, &right).await.reply.is_none());
    for (date, value, message) in [
        (NOW, String::new(), "Unauthorized"),
        ("Thu, 01 Jan 1970 00:05:01 GMT", right.clone(), SKEWED),
        ("yesterday", right.clone(), SKEWED),
        (NOW, "Authorization: hmac x".to_owned(), NOT_VERIFIED),
        (
            NOW,
            header("bo", "hmac-sha256", "x-date", &good),
            NOT_VERIFIED,
        ),
        (
            NOW,
            header("anna", "hmac-sha1", "x-date", &good),
            NOT_VERIFIED,
        ),
        (NOW, header("anna", "none", "x-date", &good), NOT_VERIFIED),
        (
            NOW,
            header("anna", "hmac-sha256", "host", &good),
            NOT_VERIFIED,
        ),
        (
            NOW,
            header("anna", "hmac-sha256", "X-Date", &good),
            NOT_VERIFIED,
        ),
        (NOW, header("anna", "hmac-sha256", "x-date", "!"), NO_MATCH),
        (
            NOW,
            header("anna", "hmac-sha256", "x-date", "eA=="),
            NO_MATCH,
        ),
    ] {
        let outcome = send(&*filter, date, &value).await;
        assert_eq!(outcome.message().as_deref(), Some(message), "{value}");
        assert_eq!(outcome.challenge(), Some("hmac"));
    }
}

#[tokio::test]
async fn a_credential_without_a_secret_lets_nobody_in() {
    let filter = hmac_auth(&json!({}));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"");
    let text = format!("x-date: {NOW}");
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    for user in ["bert", "carl"] {
        let value = header(user, "hmac-sha256", "x-date", &signature);
        let outcome = send(&*filter, NOW, &value).await;
        assert_eq!(outcome.message().as_deref(), Some(NO_MATCH), "{user}");
    }
}

#[tokio::test]
async fn a_body_is_the_one_that_its_digest_names() {
    let filter = hmac_auth(&json!({"validate_request_body": true}));
    assert!(filter.needs_body());
    let signature = sign(hmac::HMAC_SHA256, &format!("x-date: {NOW}"));
    let value = header("anna", "hmac-sha256", "x-date", &signature);
    let made = STANDARD.encode(digest(&SHA256, b"body"));
    for (body, digest, passes) in [
        ("body", format!("Digest: SHA-256={made}"), true),
        ("other", format!("Digest: SHA-256={made}"), false),
        ("body", format!("Digest: SHA-512={made}"), false),
        ("body", "X-None: 1".to_owned(), false),
        ("", "X-None: 1".to_owned(), true),
    ] {
        let exchange = Exchange {
            body: Some(Bytes::from(body)),
            ..Exchange::default()
        };
        let lines = format!("POST / HTTP/1.1\r\nX-Date: {NOW}\r\n{digest}\r\n{value}");
        let outcome = ask_as(&*filter, &lines, exchange).await;
        assert_eq!(outcome.reply.is_none(), passes, "{body} {digest}");
    }
}

#[test]
fn an_unsigned_date_is_warned_of() {
    let warnings = |config: Value| hmac_auth(&config).warnings().len();
    assert_eq!(warnings(json!({})), 1);
    assert_eq!(warnings(json!({"enforce_headers": ["date"]})), 0);
    let refused = plugin(&KIND, &json!({"clock_skew": 0})).err();
    assert!(refused.is_some_and(|told| told.contains("greater than 0")));
}
