//! Signing users in: to the provider and back, and their sessions afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use serde_json::Value;

use super::OpenIdConnect;
use super::after::Action;
use super::arguments::{Arguments, Where};
use super::cache::Verified;
use super::endpoints::Endpoint;
use super::grants::Tokens;
use super::id_token::Expected;
use super::logins::{Begun, Logins, Wanted, token};
use super::refusal::{Class, Refusal};
use super::sessions::{LoginSession, Sessions, Shown};
use super::told::Asking;
use super::verifier::Judgement;
use crate::filter::{Exchange, Flow, Verdict};
use crate::http::reply::Reply;
use crate::jose::claims::same_issuer;
use crate::model::secret::Secret;

/// Where the provider's answer may be.
const ANSWER: Where = Where {
    header: false,
    query: true,
    body: true,
};

impl OpenIdConnect {
    /// Sends the browser to the provider.
    pub(super) async fn begin_login(
        &self,
        logins: &Logins,
        request: &RequestHeader,
        arguments: &Arguments,
        exchange: &mut Exchange,
    ) -> Result<Flow, Refusal> {
        let agent = &self.agent;
        let endpoint = agent.url(Endpoint::Authorization).await?;
        let clients = &self.settings().clients;
        let client = clients.chosen(&request.headers, arguments);
        let client = client.and_then(|client| clients.named(&client.id));
        let (client, index) = client.ok_or(Refusal::NoToken)?;
        let wanted = Wanted {
            request,
            arguments,
            secure: exchange.secure,
            now_ms: agent.clock.now_ms(),
        };
        let fields = &mut exchange.response_headers;
        let address = logins.begin(&endpoint, (client, index), wanted, fields)?;
        self.logins_begun.inc();
        exchange.refusal = Some(Cow::Borrowed("login"));
        redirect(&address)
    }

    /// Ends the login that the provider's answer in a request belongs to.
    pub(super) async fn end_login(
        &self,
        logins: &Logins,
        session: &mut Session,
        arguments: &Arguments,
        exchange: &mut Exchange,
    ) -> Result<Flow, Refusal> {
        let answer = |name| {
            let found = arguments.only(name, ANSWER);
            found.map_err(|_| Refusal::MalformedCallback)
        };
        let state = answer("state")?.ok_or(Refusal::MalformedCallback)?;
        let begun = logins.find(state)?;
        let request = session.req_header();
        let now_ms = self.agent.clock.now_ms();
        // Whoever is in already goes on, however late or often this comes.
        if let Some(sessions) = &self.sessions
            && let Shown::Live(..) = sessions.shown(&request.headers, now_ms)
        {
            return redirect(&begun.address());
        }
        logins.check(&begun, state, &request.headers, now_ms)?;
        self.check_sender(answer("iss")?).await?;
        if let Some(error) = answer("error")? {
            let error: String = error.chars().take(64).collect();
            tracing::info!(error = ?error, "the provider refused a login");
            logins.end(state);
            return Err(Refusal::LoginRefused);
        }
        let code = answer("code")?.ok_or(Refusal::MalformedCallback)?;
        let login = self
            .redeem_code(logins, &begun, code, request, arguments)
            .await;
        logins.end(state);
        let (login, verified) = login?;
        self.let_in(login, &verified, &begun, session, exchange)
    }

    /// RFC 9207: the answer must be of the provider that was asked.
    async fn check_sender(&self, issuer: Option<&str>) -> Result<(), Refusal> {
        let known = self.agent.known().await?;
        let promised = known.member("authorization_response_iss_parameter_supported");
        match issuer {
            Some(issuer) if same_issuer(issuer, &known.issuer) => Ok(()),
            None if promised != Some(&Value::Bool(true)) => Ok(()),
            _ => Err(Refusal::MixedUp),
        }
    }

    async fn redeem_code(
        &self,
        logins: &Logins,
        begun: &Begun,
        code: &str,
        request: &RequestHeader,
        arguments: &Arguments,
    ) -> Result<(LoginSession, Arc<Verified>), Refusal> {
        let desk = self.desk.as_ref().ok_or(Refusal::NoEndpoint)?;
        let client = self.settings().clients.named(&begun.client);
        let (client, _) = client.ok_or(Refusal::ForgedState)?;
        let asking = Asking {
            from: None,
            client: Some(client),
            headers: &request.headers,
            arguments,
        };
        let form = [
            ("code", code),
            ("redirect_uri", &begun.redirect_uri),
            ("code_verifier", &begun.verifier),
        ];
        let tokens = desk.redeem(&form, &asking).await?;
        match &tokens.id {
            Some(id) => {
                self.verify_id_token(id, &tokens, &begun.client, Some(&begun.nonce))
                    .await?;
            }
            None if logins.wants_id_token() => return Err(Refusal::NoIdToken),
            None => {}
        }
        let now_ms = self.agent.clock.now_ms();
        let login = LoginSession {
            id: token::<16>(),
            client: begun.client.clone(),
            access: tokens.access.expose().to_owned(),
            id_token: tokens.id.as_ref().map(|id| id.expose().to_owned()),
            refresh: tokens.refresh.as_ref().map(|one| one.expose().to_owned()),
            scope: tokens.scope.clone(),
            ends_at: tokens.ends_at,
            started: now_ms,
            renewed: now_ms,
        };
        let verified = self.judge_session(&login).await?;
        Ok((login, verified))
    }

    /// The subject of a verified ID token.
    async fn verify_id_token(
        &self,
        id: &Secret,
        tokens: &Tokens,
        client: &str,
        nonce: Option<&str>,
    ) -> Result<Option<String>, Refusal> {
        let expected = Expected {
            client,
            nonce,
            access: tokens.access.expose(),
            now: self.agent.clock.now_secs(),
        };
        for last in [false, true] {
            let known = self.agent.known().await?;
            let claims = self
                .settings()
                .id_tokens
                .verify(id.expose(), &known, &expected)?;
            if let Some(claims) = claims {
                let subject = claims.get("sub").and_then(Value::as_str);
                return Ok(subject.map(str::to_owned));
            }
            if !last {
                self.agent.wait_for_newer_keys().await;
            }
        }
        Err(Refusal::UnknownKey)
    }

    /// Gives the browser its session, and the user what was asked for.
    fn let_in(
        &self,
        mut login: LoginSession,
        verified: &Arc<Verified>,
        begun: &Begun,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Flow, Refusal> {
        let flow = self.accept(verified, session.req_header(), false, exchange);
        if let Flow::Respond(_) = flow {
            return Ok(flow);
        }
        if let Some(sessions) = &self.sessions {
            let now_ms = self.agent.clock.now_ms();
            let (headers, secure) = (&session.req_header().headers, exchange.secure);
            let fields = &mut exchange.response_headers;
            sessions.keep(&mut login, headers, secure, now_ms, fields)?;
        }
        let after = &self.settings().after;
        match after.action {
            Action::Upstream if begun.is_at(session.req_header(), exchange.secure) => {
                restore(begun, session, exchange)?;
                Ok(Flow::Continue)
            }
            Action::Upstream => redirect(&begun.address()),
            Action::Response => Ok(Flow::Respond(after.response(&login))),
            Action::Redirect => {
                let index = self.settings().clients.named(&begun.client);
                let address = begun.address();
                redirect(&after.address(&login, index.map_or(0, |(_, index)| index), &address))
            }
        }
    }

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
                .verify_id_token(id, &tokens, &login.client, None)
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
    async fn judge_session(&self, login: &LoginSession) -> Result<Arc<Verified>, Refusal> {
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
        let flow = self.accept(verified, request, false, exchange);
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

impl Begun {
    /// Where the login leads back to: always to where it began.
    pub(super) fn address(&self) -> String {
        format!("{}{}", self.origin, self.target)
    }

    /// Whether a request goes to the path where the login began.
    fn is_at(&self, request: &RequestHeader, secure: bool) -> bool {
        let path = self.target.split('?').next();
        path == Some(request.uri.path())
            && super::logins::origin(request, secure).as_deref() == Some(&self.origin)
    }
}

/// Makes the request the one that wanted the login.
fn restore(begun: &Begun, session: &mut Session, exchange: &mut Exchange) -> Result<(), Refusal> {
    let uri = begun
        .target
        .parse()
        .map_err(|_| Refusal::MalformedCallback)?;
    let request = session.req_header_mut();
    request.set_uri(uri);
    if request.method == Method::POST {
        request.set_method(Method::GET);
        request.remove_header(&CONTENT_TYPE);
        request.remove_header(&CONTENT_LENGTH);
        exchange.replacement = Some(Bytes::new());
    }
    Ok(())
}

/// Sends the browser to an address, of which nothing may be remembered.
pub(super) fn redirect(address: &str) -> Result<Flow, Refusal> {
    let address = HeaderValue::from_str(address).map_err(|_| Refusal::MalformedCallback)?;
    Ok(Flow::Respond(
        Reply::empty(StatusCode::FOUND)
            .header(LOCATION, address)
            .header(CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ))
}
