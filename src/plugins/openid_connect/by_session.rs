//! Decisions by the session that a request shows, or that its browser is
//! remembered to have had.

use std::sync::Arc;

use pingora::http::RequestHeader;

use super::OpenIdConnect;
use super::cache::Verified;
use super::refusal::Refusal;
use super::sessions::{Browser, Held, Sessions, Shown};
use super::told::Asking;
use crate::filter::{Exchange, Flow};

impl OpenIdConnect {
    /// Decides by a session; the inner error is why there is none.
    ///
    /// # Errors
    /// When nobody can say whether there is one.
    pub(super) async fn decide_by_session(
        &self,
        sessions: &Arc<Sessions>,
        asking: &Asking<'_>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<Result<Flow, Refusal>, Refusal> {
        let now_ms = self.agent.clock.now_ms();
        let shown = sessions.find(&request.headers, now_ms).await?;
        let (shown, recalled) = sessions.recall(shown, &request.headers, now_ms).await?;
        let (login, due) = match shown {
            Shown::Nothing | Shown::Away(_) => return Ok(Err(Refusal::NoToken)),
            Shown::Void(refusal) => return Ok(Err(refusal)),
            Shown::Live(login, _) if sessions.is_elsewhere(&login, &request.headers, exchange) => {
                return Ok(Err(Refusal::SessionElsewhere));
            }
            Shown::Live(login, _) if sessions.has_run_out(&login, now_ms) => {
                return Ok(Err(Refusal::SessionOver));
            }
            Shown::Live(login, due) => (login, due),
        };
        if !recalled {
            let shown = (sessions, &login, due);
            let (login, judged) = self.judge_shown(shown, asking, request, exchange).await?;
            return Ok(Ok(self
                .conclude(shown, (login, judged), request, exchange)
                .await?));
        }
        let browser = Browser {
            headers: &request.headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        };
        let login = match sessions.resume(&login, browser, now_ms).await {
            Err(Refusal::SessionOver) => return Ok(Err(Refusal::SessionOver)),
            login => login?,
        };
        let shown = (sessions, &login, false);
        let (login, judged) = self.judge_shown(shown, asking, request, exchange).await?;
        if matches!(judged, Err(Refusal::SessionOver)) {
            // Its tokens have ended, too: whoever comes back after days signs in.
            sessions.end(&login, now_ms).await?;
            return Ok(Err(Refusal::SessionOver));
        }
        Ok(Ok(self
            .conclude(shown, (login, judged), request, exchange)
            .await?))
    }

    /// What is known of the user of a session, and the session that it is by then:
    /// its tokens may have been refreshed, which the browser learns.
    async fn judge_shown(
        &self,
        (sessions, shown, _): (&Arc<Sessions>, &Arc<Held>, bool),
        asking: &Asking<'_>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<(Arc<Held>, Result<Arc<Verified>, Refusal>), Refusal> {
        let mut login = Arc::clone(shown);
        let judged = self.judge_login_patiently(sessions, &mut login, asking);
        let judged = judged.await;
        if !Arc::ptr_eq(shown, &login) {
            // Whatever becomes of the request: the last tokens may be spent.
            self.tell_browser(sessions, &login, request, exchange)?;
        }
        Ok((login, judged))
    }

    /// Lets the request of a session pass, or refuses it.
    async fn conclude(
        &self,
        (sessions, shown, due): (&Arc<Sessions>, &Arc<Held>, bool),
        (login, judged): (Arc<Held>, Result<Arc<Verified>, Refusal>),
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<Flow, Refusal> {
        let verified = match judged {
            Ok(verified) => verified,
            Err(refusal) => {
                return Ok(self.refuse_login(sessions, &login, refusal, request, exchange));
            }
        };
        let flow = self.go_on(sessions, &login, &verified, request, exchange);
        // A refresh has renewed it.
        match due && Arc::ptr_eq(shown, &login) {
            true => {
                self.renew((sessions, &login), request, exchange, flow)
                    .await
            }
            false => Ok(flow),
        }
    }
}
