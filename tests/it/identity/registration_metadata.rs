//! What clients say of themselves when they register, and may not say.

use serde_json::json;

use super::assert_error;
use super::registration::{door, register, web};

#[tokio::test]
async fn wrong_metadata_are_refused_by_name() {
    let door = door().await;
    for (name, value, error, text) in [
        (
            "redirect_uris",
            json!([]),
            "invalid_redirect_uri",
            "redirect_uris: must name one or more",
        ),
        (
            "redirect_uris",
            json!("https://a.example/cb"),
            "invalid_redirect_uri",
            "",
        ),
        (
            "redirect_uris",
            json!(["https://a.example/cb#x"]),
            "invalid_redirect_uri",
            "redirect_uris[0]: must have no fragment",
        ),
        (
            "redirect_uris",
            json!(["https://ok.example/", "javascript:alert(1)"]),
            "invalid_redirect_uri",
            "redirect_uris[1]: must be https for a web client",
        ),
        (
            "redirect_uris",
            json!(["http://a.example/cb"]),
            "invalid_redirect_uri",
            "redirect_uris[0]: must be https, or http on this machine",
        ),
        (
            "post_logout_redirect_uris",
            json!(["ftp://a.example/"]),
            "invalid_client_metadata",
            "",
        ),
        (
            "grant_types",
            json!(["password"]),
            "invalid_client_metadata",
            "grant_types: password is not for registered clients",
        ),
        (
            "response_types",
            json!(["id_token"]),
            "invalid_client_metadata",
            "",
        ),
        (
            "response_types",
            json!(["code code"]),
            "invalid_client_metadata",
            "",
        ),
        (
            "response_types",
            json!(["surprise"]),
            "invalid_client_metadata",
            "",
        ),
        (
            "scope",
            json!("admin"),
            "invalid_client_metadata",
            "scope: is none that registered clients may have",
        ),
        (
            "initiate_login_uri",
            json!("http://app.example/login"),
            "invalid_client_metadata",
            "initiate_login_uri: must be an https URL without fragment",
        ),
        (
            "jwks_uri",
            json!("https://10.0.0.1/keys"),
            "invalid_client_metadata",
            "jwks_uri: must be an https URL of a public host",
        ),
        (
            "request_uris",
            json!(["https://169.254.169.254/latest/"]),
            "invalid_client_metadata",
            "request_uris: must be an https URL of a public host",
        ),
        (
            "backchannel_logout_uri",
            json!("http://192.168.0.1/"),
            "invalid_client_metadata",
            "",
        ),
        (
            "frontchannel_logout_uri",
            json!("https://other.example/"),
            "invalid_client_metadata",
            "",
        ),
        (
            "logo_uri",
            json!("javascript:alert(1)"),
            "invalid_client_metadata",
            "",
        ),
        (
            "tos_uri",
            json!("data:text/html,x"),
            "invalid_client_metadata",
            "",
        ),
        (
            "id_token_signed_response_alg",
            json!("none"),
            "invalid_client_metadata",
            "",
        ),
        (
            "id_token_encrypted_response_alg",
            json!("RSA-OAEP"),
            "invalid_client_metadata",
            "id_token_encrypted_response_alg: is not offered",
        ),
        (
            "authorization_signed_response_alg",
            json!("PS256"),
            "invalid_client_metadata",
            "authorization_signed_response_alg: is not offered",
        ),
        (
            "introspection_signed_response_alg",
            json!("PS256"),
            "invalid_client_metadata",
            "introspection_signed_response_alg: is not offered",
        ),
        (
            "token_endpoint_auth_method",
            json!("tls_client_auth"),
            "invalid_client_metadata",
            "",
        ),
        (
            "token_endpoint_auth_method",
            json!("private_key_jwt"),
            "invalid_client_metadata",
            "jwks: or jwks_uri is required for private_key_jwt",
        ),
        (
            "jwks",
            json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}),
            "invalid_client_metadata",
            "jwks: must hold public keys only",
        ),
        (
            "jwks",
            json!({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "p": "Aw"}]}),
            "invalid_client_metadata",
            "jwks: must hold public keys only",
        ),
        ("default_max_age", json!(-1), "invalid_client_metadata", ""),
        (
            "software_statement",
            json!("a.b.c"),
            "unapproved_software_statement",
            "No issuer of software statements is trusted",
        ),
        (
            "software_statement",
            json!(5),
            "invalid_software_statement",
            "",
        ),
        (
            "client_name",
            json!("x".repeat(3000)),
            "invalid_client_metadata",
            "client_name: is too long, or has control characters",
        ),
    ] {
        let mut members = web();
        members[name] = value;
        if name == "response_types" && members[name] == json!(["id_token"]) {
            members["grant_types"] = json!(["authorization_code"]);
        }
        let answer = register(&door, &members).await;
        assert!(answer.header("cache-control").contains("no-store"));
        let shown = answer.body.clone();
        assert_error(answer, 400, error, text);
        assert!(
            !text.is_empty() || shown.contains(name) || error.contains("statement"),
            "{name}: {shown}"
        );
    }
    let mut both = web();
    both["jwks_uri"] = json!("https://app.example/keys");
    both["jwks"] = json!({"keys": []});
    let text = "jwks: can't be given together with jwks_uri (RFC 7591 section 2)";
    let answer = register(&door, &both).await;
    assert_error(answer, 400, "invalid_client_metadata", text);
}
