//! Requests for logins that are pushed to the provider before the browser goes
//! there (RFC 9126). Anybody can have that done, so only so many are under way at
//! once, and a provider that says nothing is left alone for a moment.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::decide::refusal::Refusal;
use crate::provider::client::{EndpointRequest, ProviderClient, object};
use crate::provider::client_auth::Client;
use crate::provider::endpoints::Endpoint;
use crate::provider::extras::Parameters;
use crate::provider::single_flight::{REFUSED_MS, SingleFlight, digest_of};
use doorward_net::http::outbound::Answer;
use doorward_net::http::provider_error::describe;

/// For how long a provider that says nothing is not asked, in milliseconds: short,
/// since every login is refused meanwhile.
const SILENT_MS: i64 = 1_000;
/// How often in a row it must have said nothing: now and then that happens to all.
const SILENT_TIMES: u32 = 8;

/// Pushes requests.
pub(crate) struct ParClient {
    /// No two requests are the same: of use for their bounds.
    flights: SingleFlight<Arc<str>>,
    outage: Arc<Outage>,
}

/// Whether the provider says nothing.
struct Outage {
    /// How often in a row it has said nothing.
    times: AtomicU32,
    /// Until when it is not asked.
    until: AtomicI64,
}

impl Outage {
    fn is_at(&self, now_ms: i64) -> bool {
        now_ms < self.until.load(Ordering::Relaxed)
    }

    fn note(&self, is_silent: bool, now_ms: i64) {
        if !is_silent {
            self.times.store(0, Ordering::Relaxed);
        } else if self.times.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT_TIMES {
            let until = now_ms.saturating_add(SILENT_MS);
            self.until.store(until, Ordering::Relaxed);
        }
    }
}

impl ParClient {
    /// Pushes that find no place wait for one no longer than `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            flights: SingleFlight::new(REFUSED_MS, patience),
            outage: Arc::new(Outage {
                times: AtomicU32::new(0),
                until: AtomicI64::new(i64::MIN),
            }),
        }
    }

    /// The parameters that name a request which was pushed for a browser at this
    /// address.
    ///
    /// # Errors
    /// [`Refusal::ProviderUnavailable`] where too many wait, or the provider has
    /// just said nothing; why it does not take the request.
    pub(crate) async fn push(
        &self,
        provider_client: &Arc<ProviderClient>,
        client: &Arc<Client>,
        parameters: Parameters,
        from: IpAddr,
    ) -> Result<Parameters, Refusal> {
        let texts = parameters.iter();
        let texts = texts.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        let about = digest_of(texts);
        let outage = Arc::clone(&self.outage);
        let (shared_client, oauth_client) = (Arc::clone(provider_client), Arc::clone(client));
        let question = || async move {
            let now_ms = shared_client.clock.now_ms();
            // Also for those who have waited for a place.
            if outage.is_at(now_ms) {
                return Err(Refusal::ProviderUnavailable);
            }
            let pushed = push_request(&shared_client, &oauth_client, parameters, from).await;
            let is_silent = pushed.as_ref().is_err_and(|refusal| refusal.is_silence());
            outage.note(is_silent, shared_client.clock.now_ms());
            pushed
        };
        let clock = provider_client.clock.clone();
        let uri = self.flights.ask(about, question, move || clock.now_ms());
        Ok(vec![
            ("client_id".to_owned(), client.id.clone()),
            ("request_uri".to_owned(), uri.await?.as_ref().to_owned()),
        ])
    }
}

/// What the provider calls a request that it is given.
async fn push_request(
    provider_client: &ProviderClient,
    client: &Arc<Client>,
    mut parameters: Parameters,
    from: IpAddr,
) -> Result<Arc<str>, Refusal> {
    // How the client proves itself says who it is.
    parameters.retain(|(name, _)| name != "client_id");
    if provider_client
        .names_itself_otherwise(Endpoint::PushedRequest, client)
        .await?
    {
        parameters.push(("client_id".to_owned(), client.id.clone()));
    }
    let answer = provider_client
        .post(EndpointRequest {
            endpoint: Endpoint::PushedRequest,
            client: Some(client.clone()),
            form: parameters,
            headers: HeaderMap::new(),
            from: Some(from),
        })
        .await?;
    read(&answer)
}

fn read(answer: &Answer) -> Result<Arc<str>, Refusal> {
    let body = object(answer);
    let text = |name: &str| body.as_ref()?.get(name)?.as_str();
    match (answer.status, text("request_uri")) {
        (StatusCode::CREATED | StatusCode::OK, Some(uri)) if !uri.is_empty() => Ok(uri.into()),
        (status, _) if status.is_client_error() => {
            let error = text("error").unwrap_or_default();
            let error = describe(error, text("error_description"));
            doorward_net::telemetry::warn_limited!(error, %status, "the provider does not take a pushed request");
            Err(Refusal::ProviderRefuses)
        }
        _ => Err(Refusal::ProviderMalformed),
    }
}
