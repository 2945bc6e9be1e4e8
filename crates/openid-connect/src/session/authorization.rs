//! Users who have signed in: their sessions' tokens judged, refreshed, and
//! passed on.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use pingora::http::RequestHeader;

use crate::OpenIdConnect;
use crate::authorize;
use crate::authorize::VerifiedRequest;
use crate::config::methods::Method;
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::{Class, Refusal};
use crate::headers::token_set::TokenSet;
use crate::provider::introspection::{RequestContext, TokenIntrospector};
use crate::provider::proof_of_possession::ProofSatisfied;
use crate::provider::signature_exemptions::claims_without_signature;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::verifier::Verification;
use crate::session::liveness;
use crate::session::refresh;
use crate::session::{Browser, LoginSession, OpenSession, Sessions};
use doorward_core::calls;
use doorward_plugin_api::filter::{Exchange, Flow, Verdict};

impl OpenIdConnect {
    /// Decides by a session with what is at hand.
    pub(crate) fn authorize_session_now(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<OpenSession>,
        due: bool,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Verdict {
        let now_ms = self.provider_client.clock.now_ms();
        if !sessions.is_fresh(login, now_ms)
            || login.needs_introspection
            || (due && sessions.is_kept())
        {
            return Verdict::Wait;
        }
        let rules = &self.config().rules;
        let verification = match self.verifier.verify_now(&login.access) {
            Verification::Valid(held) => login.with_id_token(held, rules, now_ms),
            // Its provider is asked, or the last answer found.
            Verification::Refused(refusal)
                if refusal.is_unread() && self.may_introspect_sessions() =>
            {
                return Verdict::Wait;
            }
            Verification::Refused(refusal) if refusal.is_unread() => login.trusted(rules, now_ms),
            Verification::Refused(_) | Verification::Pending => return Verdict::Wait,
        };
        let verified = match verification {
            Ok(verified) => verified,
            Err(refusal) => {
                let flow = self.refuse_session(sessions, login, refusal, request, exchange);
                return Verdict::Now(flow);
            }
        };
        let Some(verified) = authorize::enrich_cached(self, verified) else {
            return Verdict::Wait;
        };
        let proven = match authorize::proof_of_session(self, &verified, request, exchange) {
            Ok(proof) => match ProofSatisfied::without(proof.as_ref()) {
                None => return Verdict::Wait,
                Some(proven) => Ok(proven),
            },
            Err(refusal) => Err(refusal),
        };
        let flow = self.continue_session((sessions, login), (&verified, proven), request, exchange);
        if due
            && matches!(flow, Flow::Continue)
            && let Err(refusal) = self.set_session_cookie(sessions, login, request, exchange)
        {
            return Verdict::Now(self.refuse(refusal, exchange));
        }
        Verdict::Now(flow)
    }

    /// What is known of the user of a session, which becomes the one with the next
    /// tokens where it is refreshed, also for those who are refused then.
    pub(crate) async fn authorize_session(
        &self,
        sessions: &Arc<Sessions>,
        login: &mut Arc<OpenSession>,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let now_ms = self.provider_client.clock.now_ms();
        let over = |refusal: Refusal| match refusal.class() {
            Class::Broken => refusal,
            _ => Refusal::SessionOver,
        };
        let mut may_refresh = true;
        if !sessions.is_fresh(login, now_ms) {
            may_refresh = false;
            match refresh::refresh(self, sessions, login, context).await {
                Ok(next) => *login = next,
                Err(Refusal::SessionOver) => return Err(Refusal::SessionOver),
                // What it has is still good for a moment.
                Err(_) if login.ends_at.is_none_or(|end| now_ms < end) => {}
                Err(refusal) => return Err(over(refusal)),
            }
        }
        let verified = match self.verify_session(login, context.from).await {
            // The provider's clock is ahead, or did not tell the end.
            Err(Refusal::TokenExpired) if may_refresh => {
                let next = refresh::refresh(self, sessions, login, context).await;
                *login = next.map_err(over)?;
                self.verify_session(login, context.from).await?
            }
            judged => judged?,
        };
        authorize::enrich(self, verified, context).await
    }

    /// What is known of a session's user.
    pub(crate) async fn verify_session(
        &self,
        login: &OpenSession,
        from: Option<IpAddr>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        if self
            .config()
            .signature_exemptions
            .has(self.vouched_by(login))
        {
            return self.verify_exempt_session(login, from).await;
        }
        if login.needs_introspection {
            return self.verify_opaque_session(login, from).await;
        }
        let judged = self.verifier.verify_or_fetch(&login.access).await;
        self.verified_session(login, judged, from).await
    }

    /// The method by whose exemption, if it has one, the tokens of a session count:
    /// that of all sessions, or else its own.
    pub(crate) fn vouched_by(&self, login: &LoginSession) -> Method {
        if login.by.is_of_token() || self.config().signature_exemptions.has(Method::Session) {
            Method::Session
        } else {
            login.by
        }
    }

    /// What is known of a session's user where no signature is asked for.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) async fn verify_exempt_session(
        &self,
        login: &OpenSession,
        from: Option<IpAddr>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let (client, rules) = (&self.provider_client, &self.config().rules);
        let judged = claims_without_signature(client, rules, &login.access).await;
        self.verified_session(login, judged, from).await
    }

    /// What is known of a session's user, whose token was judged so.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) async fn verified_session(
        &self,
        login: &OpenSession,
        judged: Result<Arc<VerifiedToken>, Refusal>,
        from: Option<IpAddr>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let (rules, now_ms) = (&self.config().rules, self.provider_client.clock.now_ms());
        let verified = match judged {
            Err(unread) if unread.is_unread() => {
                match self.introspect_opaque_session(login, from).await? {
                    Some(told) => told,
                    None => return login.trusted(rules, now_ms),
                }
            }
            judged => judged?,
        };
        login.with_id_token(verified, rules, now_ms)
    }

    /// What the provider says of the token of a session that began so; where it is
    /// not asked, what the token says itself, or else what came with it.
    async fn verify_opaque_session(
        &self,
        login: &OpenSession,
        from: Option<IpAddr>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let (rules, now_ms) = (&self.config().rules, self.provider_client.clock.now_ms());
        if let Some(told) = self.introspect_session(login, true, from).await? {
            return login.with_id_token(told, rules, now_ms);
        }
        match self.verifier.verify_or_fetch(&login.access).await {
            // Its caller may have made it up.
            Err(unread) if unread.is_unread() && login.by.is_of_token() => Err(Refusal::NoEndpoint),
            Err(unread) if unread.is_unread() => login.trusted(rules, now_ms),
            judged => login.with_id_token(judged?, rules, now_ms),
        }
    }

    /// What the provider says of a session's token, by introspection or, if `whole`,
    /// by userinfo otherwise; `None`: it is not asked.
    async fn introspect_session(
        &self,
        login: &OpenSession,
        whole: bool,
        from: Option<IpAddr>,
    ) -> Result<Option<Arc<VerifiedToken>>, Refusal> {
        let Some(introspector) = &self.introspector else {
            return Ok(None);
        };
        let client = self.config().clients.named(&login.client);
        let context = RequestContext {
            from,
            client: client.map(|(client, _)| client),
            headers: &HeaderMap::new(),
            arguments: &Arguments::default(),
        };
        if whole {
            Ok(introspector
                .query(&login.access, &context)
                .await?
                .map(|(told, _)| told))
        } else {
            introspector.introspect(&login.access, &context).await
        }
    }

    /// Whether the provider may have to be asked about the opaque token of a
    /// session: one in this process, which tells when it ends early. One
    /// elsewhere vouched for it until `expires_in`.
    fn may_introspect_sessions(&self) -> bool {
        let asks = self
            .introspector
            .as_ref()
            .is_some_and(TokenIntrospector::introspects);
        asks && self
            .verifier
            .metadata()
            .is_none_or(|metadata| metadata.token_status.is_some())
    }

    /// What the provider says of the opaque token of a session; `None`: it is not
    /// asked, or does not let this client ask.
    async fn introspect_opaque_session(
        &self,
        login: &OpenSession,
        from: Option<IpAddr>,
    ) -> Result<Option<Arc<VerifiedToken>>, Refusal> {
        let asks = self
            .introspector
            .as_ref()
            .is_some_and(TokenIntrospector::introspects);
        if !asks || self.provider_client.token_status().await.is_none() {
            return Ok(None);
        }
        match self.introspect_session(login, false, from).await {
            Err(Refusal::ProviderRefuses | Refusal::ClientRefused) => Ok(None),
            outcome => outcome,
        }
    }

    /// Lets a session's request pass that has proven what it has to.
    pub(crate) fn continue_session(
        &self,
        (sessions, login): (&Arc<Sessions>, &Arc<OpenSession>),
        (verified, proven): (&Arc<VerifiedToken>, Result<ProofSatisfied, Refusal>),
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        let flow = match proven {
            Ok(ProofSatisfied { .. }) => {
                let token_set = TokenSet {
                    id_token: login.id_token.as_deref(),
                    refresh_token: login.refresh.as_deref(),
                    session_id: Some(&login.id),
                    scope: login.scope.as_deref(),
                    replayed: &[],
                };
                let verified_request = VerifiedRequest {
                    verified,
                    token_set,
                    method: Method::Session,
                    in_query: false,
                };
                authorize::authorize(self, verified_request, request, exchange)
            }
            Err(refusal) => self.refuse(refusal, exchange),
        };
        liveness::limit_lifetime(self, verified, Some((sessions, login)), request, exchange);
        sessions.tell(login, self.provider_client.clock.now_ms(), exchange);
        // Not by the status of the answer, which may be a redirect in its place.
        if let Flow::Respond(_) = &flow
            && let Some(refusal) = exchange.refusal.as_deref().and_then(Refusal::named)
            && sessions.end_by(refusal)
        {
            self.end_here(sessions, login, request, exchange);
        }
        flow
    }

    /// Renews a session that is due, if its request may go on.
    pub(crate) async fn renew(
        &self,
        (sessions, login): (&Arc<Sessions>, &Arc<OpenSession>),
        request: &RequestHeader,
        exchange: &mut Exchange,
        flow: Flow,
    ) -> Result<Flow, Refusal> {
        if !matches!(flow, Flow::Continue) {
            return Ok(flow);
        }
        let now_ms = self.provider_client.clock.now_ms();
        if sessions.is_kept() {
            let (sessions, login) = (Arc::clone(sessions), Arc::clone(login));
            // In a task of its own: who hangs up would leave it locked.
            let renewal = async move { sessions.renew(&login, now_ms).await };
            let renewal = tokio::spawn(calls::carried(renewal));
            let _ = renewal.await;
        }
        self.set_session_cookie(sessions, login, request, exchange)?;
        Ok(flow)
    }

    /// Has the browser keep a session in its cookies, or remember it longer.
    pub(crate) fn set_session_cookie(
        &self,
        sessions: &Sessions,
        login: &OpenSession,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<(), Refusal> {
        let browser = Browser {
            headers: &request.headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        };
        if sessions.is_kept() {
            sessions.renew_remember_me(login, browser)
        } else {
            sessions.seal(login, browser, self.provider_client.clock.now_ms())
        }
    }

    /// Refuses a session's request, which may end the session.
    pub(crate) fn refuse_session(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<OpenSession>,
        refusal: Refusal,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        let refusal = self.provider_client.stale_keys_or(refusal, &login.access);
        if sessions.end_by(refusal) {
            self.end_here(sessions, login, request, exchange);
        }
        self.refuse(refusal, exchange)
    }

    fn end_here(
        &self,
        sessions: &Arc<Sessions>,
        login: &Arc<OpenSession>,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) {
        sessions.forget(Browser {
            headers: &request.headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        });
        sessions.end_soon(login, self.provider_client.clock.now_ms());
    }
}
