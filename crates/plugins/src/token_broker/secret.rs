//! Checking what applications prove themselves with, and the brake on guesses of
//! it; see [`doorward_net::http::guess_limit`].

use super::broker::Broker;
use super::client::Client;
use super::fault::Fault;
use super::issue::ClientCredentials;
use super::variable::Facts;
use doorward_net::http::guess_limit::TooManyGuesses;

/// Refuses whoever does not know the secret of `client`, if it has one.
pub(super) async fn check_secret(
    broker: &Broker,
    client: &Client,
    credentials: &ClientCredentials<'_>,
    facts: &Facts<'_>,
    short: bool,
) -> Result<(), Fault> {
    let config = broker.names().secret_guesses;
    let brake = &broker.secrets;
    let pair = brake.pair("", &credentials.id, facts.client);
    let look = brake.look(config, Some(pair), facts.now_ms);
    let look = look.map_err(|TooManyGuesses| Fault::too_many_secrets())?;
    if client.is_shown_by(credentials.secret.as_deref()) {
        look.right();
        return Ok(());
    }
    let wrong = look.wrong(facts.now_ms);
    if wrong.begun_ms.is_some() {
        broker.metrics().locks("application").inc();
        doorward_net::telemetry::warn_limited!(
            client_id = %credentials.id,
            address = %facts.client,
            "guesses of an application's secret are slowed down"
        );
    }
    let braked = wrong.braked;
    wrong.pause().await;
    Err(if braked {
        Fault::too_many_secrets()
    } else {
        Fault::unknown_client(short)
    })
}
