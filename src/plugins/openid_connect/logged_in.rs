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
use super::sessions::{LoginSession, Sessions};
use super::told::Asking;
use super::verifier::Judgement;
use crate::filter::{Exchange, Flow, Verdict};

impl OpenIdConnect {
    /// Decides by a session with what is at hand.
    pub(super) fn judge_login(
        &self,
        sessions: &Sessions,
        login: Box<LoginSession>,
        due: bool,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Verdict {
        let now_ms = self.agent.clock.now_ms();
        if !sessions.is_fresh(&login, now_ms) {
            return Verdict::Wait;
        }
        let verified = match self.verifier.judge(&login.access) {
            Judgement::Pass(held) => sessions.with_id_token(&login, held),
            Judgement::Refuse(refusal) if refusal.is_unread() => {
                match sessions.trusted(&login, &self.settings().rules, now_ms) {
                    Ok(verified) => verified,
                    Err(refusal) => {
                        return Verdict::Now(
                            self.refuse_login(sessions, refusal, request, exchange),
                        );
                    }
                }
            }
            Judgement::Refuse(_) | Judgement::Wait => return Verdict::Wait,
        };
        let Some(verified) = self.complete_now(verified) else {
            return Verdict::Wait;
        };
        let flow = self.go_on(sessions, *login, due, &verified, request, exchange);
        Verdict::Now(flow)
    }

    /// Decides by a session, refreshing its tokens or asking for keys if need
    /// be.
    pub(super) async fn judge_login_patiently(
        &self,
        sessions: &Sessions,
        login: LoginSession,
        due: bool,
        asking: &Asking<'_>,
    ) -> Result<(LoginSession, bool, Arc<Verified>), Refusal> {
        let now_ms = self.agent.clock.now_ms();
        let mut current = login;
        let mut due = due;
        if !sessions.is_fresh(&current, now_ms) {
            match self.refresh(sessions, &current, asking).await {
                Ok(next) => (current, due) = (next, true),
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
                Ok((next, true, verified))
            }
            outcome => Ok((current, due, outcome?)),
        }
    }

    /// The session with its next tokens; one call for all requests that come
    /// with the same session at the same time.
    async fn refresh(
        &self,
        sessions: &Sessions,
        login: &LoginSession,
        asking: &Asking<'_>,
    ) -> Result<LoginSession, Refusal> {
        let over = Refusal::SessionOver;
        let desk = self.desk.as_ref().ok_or(over)?;
        let token = login.refresh.as_deref().filter(|_| sessions.refreshes);
        let token = token.ok_or(over)?;
        let (client, _) = self.settings().clients.named(&login.client).ok_or(over)?;
        let asking = Asking {
            client: Some(client),
            ..*asking
        };
        let tokens = desk.refresh(token, &asking).await?;
        let mut next = login.clone();
        if let Some(id) = &tokens.id {
            // OpenID Connect Core §12.2: of the same user.
            let subject = self
                .verify_id_token(
                    id,
                    tokens.access.expose(),
                    &login.client,
                    None,
                    Method::Session,
                )
                .await?;
            if let Some(before) = login.subject()
                && subject.as_deref() != Some(&before)
            {
                return Err(Refusal::WrongIdToken);
            }
            next.id_token = Some(id.expose().to_owned());
        }
        tokens.access.expose().clone_into(&mut next.access);
        if let Some(refresh) = &tokens.refresh {
            next.refresh = Some(refresh.expose().to_owned());
        }
        if tokens.scope.is_some() {
            next.scope.clone_from(&tokens.scope);
        }
        next.ends_at = tokens.ends_at;
        Ok(next)
    }

    /// What is known of a session's user.
    pub(super) async fn judge_session(
        &self,
        login: &LoginSession,
    ) -> Result<Arc<Verified>, Refusal> {
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
        sessions: &Sessions,
        mut login: LoginSession,
        due: bool,
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
        if let Flow::Respond(reply) = &flow {
            if sessions.ends_at_status(reply.status) {
                let secure = exchange.secure;
                sessions.forget(&request.headers, secure, &mut exchange.response_headers);
            }
            return flow;
        }
        if due {
            let now_ms = self.agent.clock.now_ms();
            let (headers, secure) = (&request.headers, exchange.secure);
            let fields = &mut exchange.response_headers;
            if let Err(refusal) = sessions.keep(&mut login, headers, secure, now_ms, fields) {
                return self.refuse(refusal, exchange);
            }
        }
        flow
    }

    /// Refuses a session's request, which may end the session.
    pub(super) fn refuse_login(
        &self,
        sessions: &Sessions,
        refusal: Refusal,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        if sessions.ends_at_status(refusal.class().status()) {
            let secure = exchange.secure;
            sessions.forget(&request.headers, secure, &mut exchange.response_headers);
        }
        self.refuse(refusal, exchange)
    }
}
