//! What the listeners ask: answers to challenges, and certificates on demand.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustls::ServerConfig;
use tokio::time::timeout;

use crate::challenges::{self, name_key};
use crate::config::ChallengeKind;
use crate::{Acme, name};
use doorward_net::http::challenges::{HandshakeGuide, HttpChallenges};
use doorward_net::http::server_name::normalised;

/// Most names that wait for their first order.
const REQUESTED_MAX: usize = 64;
/// How long a handshake waits for the first certificate of its name.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

impl Acme {
    /// Waits until there is a certificate for `name`, if one may be ordered.
    async fn on_demand(&self, name: &str) {
        let name = normalised(name).into_owned();
        let is_settled = self.find(&name).is_some() || name::check(&name).is_err();
        if !self.client.config.on_demand || is_settled || !(self.routed)(&name) {
            return;
        }
        // One that failed waits for its time.
        if self
            .known
            .lock()
            .get(&name)
            .is_some_and(|one| one.row.state.failures > 0)
        {
            return;
        }
        let Ok(_turn) = self.waiting.try_acquire() else {
            return;
        };
        let mut changes = self.issued.changes();
        {
            let mut requested = self.requested.lock();
            if requested.len() >= REQUESTED_MAX && !requested.contains(&name) {
                return;
            }
            requested.insert(name.clone());
        }
        self.wake.notify_one();
        let settled = async {
            while self.find(&name).is_none() && self.requested.lock().contains(&name) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // Too late: the handshake goes on with another certificate.
        let _ = timeout(HANDSHAKE_WAIT, settled).await;
    }
}

#[async_trait]
impl HttpChallenges for Acme {
    async fn answer(&self, token: &str) -> Option<String> {
        if self.client.config.challenge != ChallengeKind::Http01 {
            return None;
        }
        self.client.challenges.answer(token).await
    }
}

#[async_trait]
impl HandshakeGuide for Acme {
    async fn advise(&self, name: &str, is_challenge: bool) -> Option<Arc<ServerConfig>> {
        if !is_challenge {
            self.on_demand(name).await;
            return None;
        }
        if self.client.config.challenge != ChallengeKind::TlsAlpn01 {
            return None;
        }
        let name = normalised(name);
        let answer = self.client.challenges.answer(&name_key(&name)).await?;
        match challenges::handshake(&name, &answer) {
            Ok(config) => Some(config),
            Err(error) => {
                tracing::warn!(%error, "a challenge can't be answered");
                None
            }
        }
    }
}
