//! How long answers may last: no longer than the session or the token of their
//! request (`end_with_session`).

use std::sync::Arc;

use super::OpenIdConnect;
use super::cache::Verified;
use super::sessions::{Held, Sessions};
use super::word::Heard;
use crate::clock::Clock;
use crate::filter::{Exchange, Lasting};

/// What an answer must not outlast.
struct Bound {
    clock: Clock,
    /// When the request came, in milliseconds: it used the session.
    since_ms: i64,
    token: Arc<Verified>,
    session: Option<(Arc<Sessions>, Arc<Held>)>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bound")
    }
}

impl Lasting for Bound {
    fn is_over(&self) -> bool {
        let now_ms = self.clock.now_ms();
        let token_over = now_ms >= self.token.ends_at && self.token.ends_for_good;
        match &self.session {
            Some((sessions, held)) => {
                sessions.is_over(held, self.since_ms, now_ms)
                    // Another request gets the next one.
                    || (token_over && held.refresh.is_none())
            }
            None => token_over || self.fell(),
        }
    }
}

impl Bound {
    /// Whether the provider, if it is in this process, says that the token is
    /// void; a question is answered until the next look.
    fn fell(&self) -> bool {
        match self.token.word.heard() {
            Heard::Stands => false,
            Heard::Fell => true,
            Heard::Nothing => {
                let token = Arc::clone(&self.token);
                tokio::spawn(async move {
                    // Without an answer it is asked again.
                    let _ = token.word.ask(&token.token.claims).await;
                });
                false
            }
        }
    }
}

impl OpenIdConnect {
    /// Notes what the answer to a request with this token must not outlast.
    pub(super) fn bound(
        &self,
        token: &Arc<Verified>,
        session: Option<(&Arc<Sessions>, &Arc<Held>)>,
        exchange: &mut Exchange,
    ) {
        if !self.settings().end_with_session {
            return;
        }
        exchange.lasting = Some(Arc::new(Bound {
            clock: self.agent.clock.clone(),
            since_ms: self.agent.clock.now_ms(),
            token: Arc::clone(token),
            session: session.map(|(sessions, held)| (Arc::clone(sessions), Arc::clone(held))),
        }));
    }
}
