//! Whether the authority can be reached, for `check --online`.

use std::time::Duration;

use serde_json::Value;
use url::Url;

use crate::config::AcmeConfig;
use doorward_net::http::outbound::{Authorities, Options, Outbound};

/// How long the authority may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the authority for its directory: below which key, and what came of it.
pub async fn probe(config: &AcmeConfig) -> (&'static str, Result<String, String>) {
    let authorities = config.ca.as_deref().map(Authorities::read);
    let authorities = match authorities.transpose() {
        Ok(authorities) => authorities.unwrap_or_default(),
        Err(error) => return ("ca", Err(error.to_string())),
    };
    let directory = match fetch(config, authorities).await {
        Ok(directory) => directory,
        Err(why) => return ("directory", Err(why)),
    };
    if let Some(missing) = ["newNonce", "newAccount", "newOrder"]
        .into_iter()
        .find(|key| directory.get(key).and_then(Value::as_str).is_none())
    {
        return (
            "directory",
            Err(format!("is no ACME directory: it has no {missing}")),
        );
    }
    let meta = directory.get("meta");
    let needs_account = meta.and_then(|meta| meta.get("externalAccountRequired"));
    if needs_account == Some(&Value::Bool(true)) && config.eab.is_none() {
        let message = "the authority takes nobody without eab, an account that it knows";
        return ("directory", Err(message.to_owned()));
    }
    if let Some(profile) = &config.profile {
        let profiles = meta.and_then(|meta| meta.get("profiles")?.as_object());
        if !profiles.is_some_and(|all| all.contains_key(profile)) {
            return (
                "profile",
                Err(format!("the authority has no profile '{profile}'")),
            );
        }
    }
    let says_when = directory.get("renewalInfo").is_some();
    let renewal = if says_when {
        "suggests"
    } else {
        "does not suggest"
    };
    (
        "directory",
        Ok(format!("answers, and {renewal} when to renew")),
    )
}

async fn fetch(config: &AcmeConfig, authorities: Authorities) -> Result<Value, String> {
    let url = Url::parse(&config.directory).map_err(|error| error.to_string())?;
    let options = Options {
        timeout: PATIENCE,
        ..Options::default()
    };
    let fetched = Outbound::trusting(authorities)
        .get_json(&url, options)
        .await;
    fetched.map_err(|error| error.to_string())
}
