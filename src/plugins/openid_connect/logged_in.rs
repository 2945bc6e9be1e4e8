//! Users who have signed in: their sessions' tokens judged, refreshed, and
//! passed on.

use std::sync::Arc;

use pingora::http::RequestHeader;

use super::OpenIdConnect;
use super::beside::Beside;
use super::cache::Verified;
use super::methods::Method;
use super::pass::Passing;
use super::refusal::{Class, Refusal};
use super::sessions::{Browser, Held, Sessions};
use super::told::Asking;
use super::verifier::Judgement;
use crate::filter::{Exchange, Flow, Verdict};

impl OpenIdConnect {
    /// Decides by a session with what is at hand.
    pub(super) fn judge_login(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<Held>,
        due: bool,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Verdict {
        let now_ms = self.agent.clock.now_ms();
        if !sessions.is_fresh(login, now_ms) || (due && sessions.is_kept()) {
            return Verdict::Wait;
        }
        let verified = match self.verifier.judge(&login.access) {
            Judgement::Pass(held) => sessions.with_id_token(login, held),
            Judgement::Refuse(refusal) if refusal.is_unread() => {
                match sessions.trusted(login, &self.settings().rules, now_ms) {
                    Ok(verified) => verified,
                    Err(refusal) => {
                        return Verdict::Now(
                            self.refuse_login(sessions, login, refusal, request, exchange),
                        );
                    }
                }
            }
            Judgement::Refuse(_) | Judgement::Wait => return Verdict::Wait,
        };
        let Some(verified) = self.complete_now(verified) else {
            return Verdict::Wait;
        };
        let flow = self.go_on(sessions, login, &verified, request, exchange);
        if due && matches!(flow, Flow::Continue) {
            let browser = Browser {
                headers: &request.headers,
                secure: exchange.secure,
                fields: &mut exchange.response_headers,
            };
            if let Err(refusal) = sessions.seal(login, browser, now_ms) {
                return Verdict::Now(self.refuse(refusal, exchange));
            }
        }
        Verdict::Now(flow)
    }

    /// Decides by a session, refreshing its tokens or asking for keys if need
    /// be.
    pub(super) async fn judge_login_patiently(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<Held>,
        due: bool,
        asking: &Asking<'_>,
    ) -> Result<(Arc<Held>, bool, Arc<Verified>), Refusal> {
        let now_ms = self.agent.clock.now_ms();
        let mut current = Arc::clone(login);
        let mut due = due;
        if !sessions.is_fresh(&current, now_ms) {
            match self.refresh(sessions, &current, asking).await {
                Ok(next) => (current, due) = (next, !sessions.is_kept()),
                // What it has is still good for a moment.
                Err(_) if current.ends_at.is_none_or(|end| now_ms < end) => {}
                Err(refusal) if refusal.class() == Class::Broken => return Err(refusal),
                Err(_) => return Err(Refusal::SessionOver),
            }
        }
        match self.judge_session(&current).await {
            // The provider's clock is ahead, or did not tell the end.
            Err(Refusal::TokenExpired) if !due || sessions.is_fresh(&current, now_ms) => {
                let next = self.refresh(sessions, &current, asking).await;
                let next = next.map_err(|refusal| match refusal.class() {
                    Class::Broken => refusal,
                    _ => Refusal::SessionOver,
                })?;
                let verified = self.judge_session(&next).await?;
                Ok((next, !sessions.is_kept(), verified))
            }
            outcome => Ok((current, due, outcome?)),
        }
    }

    /// What is known of a session's user.
    pub(super) async fn judge_session(&self, login: &Held) -> Result<Arc<Verified>, Refusal> {
        if self.settings().exempt.has(Method::Session) {
            return self.judge_exempt(login).await;
        }
        let judged = self.verifier.judge_patiently(&login.access).await;
        let sessions = self.sessions.as_ref();
        match (judged, sessions) {
            (Ok(verified), Some(sessions)) => Ok(sessions.with_id_token(login, verified)),
            (Err(unread), Some(sessions)) if unread.is_unread() => {
                let now_ms = self.agent.clock.now_ms();
                sessions.trusted(login, &self.settings().rules, now_ms)
            }
            (outcome, _) => outcome,
        }
    }

    /// Lets a session's request pass.
    pub(super) fn go_on(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<Held>,
        verified: &Arc<Verified>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        let flow = match self.prove_session(verified, request, exchange) {
            Ok(()) => {
                let beside = Beside {
                    id_token: login.id_token.as_deref(),
                    refresh_token: login.refresh.as_deref(),
                    session_id: Some(&login.id),
                    scope: login.scope.as_deref(),
                    replayed: &[],
                };
                let passing = Passing {
                    verified,
                    beside,
                    method: Method::Session,
                    in_query: false,
                };
                self.accept(passing, request, exchange)
            }
            Err(refusal) => self.refuse(refusal, exchange),
        };
        self.bound(verified, Some((sessions, login)), exchange);
        sessions.tell(login, self.agent.clock.now_ms(), exchange);
        if let Flow::Respond(reply) = &flow
            && sessions.ends_at_status(reply.status)
        {
            self.end_here(sessions, login, request, exchange);
        }
        flow
    }

    /// Renews a session that is due, if its request may go on.
    pub(super) async fn renew(
        &self,
        (sessions, login): (&Sessions, &Held),
        request: &RequestHeader,
        exchange: &mut Exchange,
        flow: Flow,
    ) -> Result<Flow, Refusal> {
        if !matches!(flow, Flow::Continue) {
            return Ok(flow);
        }
        let now_ms = self.agent.clock.now_ms();
        if sessions.is_kept() {
            sessions.renew(login, now_ms).await;
            return Ok(flow);
        }
        let browser = Browser {
            headers: &request.headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        };
        sessions.seal(login, browser, now_ms)?;
        Ok(flow)
    }

    /// Refuses a session's request, which may end the session.
    pub(super) fn refuse_login(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<Held>,
        refusal: Refusal,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        if sessions.ends_at_status(refusal.class().status()) {
            self.end_here(sessions, login, request, exchange);
        }
        self.refuse(refusal, exchange)
    }

    fn end_here(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<Held>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) {
        sessions.forget(Browser {
            headers: &request.headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        });
        sessions.end_soon(login, self.agent.clock.now_ms());
    }
}
