//! Asking another provider for what sign-ins need of it, and telling what it says.

use serde_json::Value;
use url::Url;

use super::metadata::{Metadata, fetch};
use crate::config::FederationProvider;
use crate::probe::Finding;
use doorward_core::jose::jwks::KeySet;
use doorward_core::model::client::AuthMethod;
use doorward_net::http::outbound::{Bounds, ChosenBy, GuardedClient};

/// What the provider publishes, beside what `written` wants of it.
pub(crate) async fn probe(outbound: &GuardedClient, written: &FederationProvider) -> Vec<Finding> {
    let issuer = &written.issuer;
    let key = format!("issuer {issuer}");
    let Ok(url) = Url::parse(issuer) else {
        return vec![Finding::new(key, Err("is no address".to_owned()))];
    };
    let metadata = match fetch(outbound, &url).await {
        Ok(metadata) => metadata,
        Err(error) => return vec![Finding::new(key, Err(error.to_string()))],
    };
    let mut findings = vec![Finding::new(key, Ok("publishes its metadata".to_owned()))];
    let keys = keys(outbound, &metadata.jwks_uri).await;
    findings.push(Finding::new(format!("keys {}", metadata.jwks_uri), keys));
    findings.extend(mismatches(&metadata, written));
    findings
}

/// The keys that are published there.
async fn keys(outbound: &GuardedClient, address: &Url) -> Result<String, String> {
    let document = outbound.document(address, ChosenBy::Operator, Bounds::default());
    let document = document.await.map_err(|error| error.to_string())?;
    let keys = KeySet::parse(&document).map_err(|error| error.to_string())?;
    let text = |name: &str, key: &serde_json::Map<String, Value>| {
        let text = key.get(name).and_then(Value::as_str).unwrap_or("–");
        text.chars().take(80).collect::<String>()
    };
    let named: Vec<_> = keys
        .published()
        .take(10)
        .map(|key| format!("{} {}", text("kty", key), text("kid", key)))
        .collect();
    match keys.len() {
        0 => Err("there is none that can be used".to_owned()),
        number => Ok(format!("{number}: {}", named.join(", "))),
    }
}

/// What the configuration wants and the provider does not offer.
fn mismatches(metadata: &Metadata, written: &FederationProvider) -> Vec<Finding> {
    let key = |field: &str| format!("federation {} {field}", written.name);
    let mut findings = Vec::new();
    if let Some(alg) = written.id_token_signed_response_alg {
        let offered = metadata.algorithms.iter();
        let is_offered = offered.map(|one| one.as_sign_alg()).any(|one| one == alg);
        if !is_offered {
            let text = format!("the provider does not name {} for ID tokens", alg.as_str());
            findings.push(Finding::new(key("id_token_signed_response_alg"), Err(text)));
        }
    } else if metadata.algorithms.iter().all(|one| one.is_symmetric()) {
        let text = "the provider signs ID tokens by no algorithm that is known here";
        findings.push(Finding::new(
            key("id_token_signing_alg"),
            Err(text.to_owned()),
        ));
    }
    let method = written.token_endpoint_auth_method;
    if let Some(method) = method.filter(|method| *method != AuthMethod::None)
        && !metadata.methods.contains(&method)
    {
        let text = "the provider does not name this way to prove who the client is";
        findings.push(Finding::new(
            key("token_endpoint_auth_method"),
            Err(text.to_owned()),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use doorward_core::jose::algorithm::Algorithm;

    fn told(change: Value) -> Vec<String> {
        let address = |path: &str| {
            let text = format!("https://login.example/{path}");
            Url::parse(&text).expect("an address")
        };
        let metadata = Metadata {
            issuer: "https://login.example".to_owned(),
            authorization_endpoint: address("authorize"),
            token_endpoint: address("token"),
            jwks_uri: address("keys"),
            userinfo_endpoint: None,
            names_itself: false,
            algorithms: vec![Algorithm::Rs256, Algorithm::Hs256],
            methods: vec![AuthMethod::ClientSecretPost],
        };
        let mut written = json!({
            "name": "corp", "issuer": "https://login.example", "client_id": "door",
        });
        for (name, value) in change.as_object().expect("an object") {
            written[name] = value.clone();
        }
        let written = serde_json::from_value(written).expect("a provider");
        let findings = mismatches(&metadata, &written).into_iter();
        findings.map(|finding| finding.key).collect()
    }

    #[test]
    fn what_is_wanted_and_not_offered_is_told() {
        assert!(told(json!({})).is_empty());
        let fits = json!({"id_token_signed_response_alg": "RS256",
            "token_endpoint_auth_method": "client_secret_post"});
        assert!(told(fits).is_empty());
        assert_eq!(
            told(json!({"id_token_signed_response_alg": "ES256"})),
            ["federation corp id_token_signed_response_alg"]
        );
        assert_eq!(
            told(json!({"token_endpoint_auth_method": "client_secret_basic"})),
            ["federation corp token_endpoint_auth_method"]
        );
    }
}
