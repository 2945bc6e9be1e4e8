//! Realms by host name.

use serde_json::json;

use crate::testing::{FORM, Provider, START_MS, config, request};
use doorward_core::jose::sign::Signer;
use doorward_core::model::client::SignAlg;

#[tokio::test]
async fn an_assertion_for_one_realm_is_none_for_another_on_its_host() {
    let mut config = config();
    let secret = "0123456789abcdef0123456789abcdef";
    for realm in ["/", "/alpha"] {
        let clients = config["realms"][realm]["clients"].as_array_mut();
        clients.expect("clients").push(json!({
            "client_id": "signer", "client_secret": secret, "scope": "a", "default_scope": "a",
            "token_endpoint_auth_method": "client_secret_jwt",
            "grant_types": ["client_credentials"],
        }));
    }
    config["realms"]["/alpha"]["hosts"] = json!(["alpha.example"]);
    let provider = Provider::with(config).await;
    let signer = Signer::from_secret(SignAlg::HS256, secret).expect("a signer");
    let ask = async |audience: &str, host: &str, id: &str| {
        let claims = json!({"iss": "signer", "sub": "signer", "aud": audience, "jti": id,
            "exp": START_MS / 1000 + 60});
        let assertion = signer.sign(&claims).expect("an assertion");
        let body = format!(
            "grant_type=client_credentials&client_assertion={assertion}&client_assertion_type=\
             urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer"
        );
        let headers = [FORM, ("host", host)];
        let sent = request("POST", "/oauth2/access_token", &headers, &body);
        provider.send(sent).await.status.as_u16()
    };
    let (top, alpha) = ("http://localhost:8000/oauth2", "/realms/root/realms/alpha");
    let (own, others) = (
        format!("{top}{alpha}/access_token"),
        format!("{top}/access_token"),
    );
    assert_eq!(ask(&others, "localhost:8000", "1").await, 200);
    assert_eq!(ask(&own, "alpha.example", "2").await, 200);
    assert_eq!(ask(&others, "alpha.example", "3").await, 401);
}
