//! Decisions that have to wait: bodies that are searched for credentials, and
//! answers of the provider. Refusals and their error responses are here, too.

pub(crate) mod cors;
pub(crate) mod error_responses;
pub mod refusal;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::OpenIdConnect;
use crate::authorize;
use crate::authorize::VerifiedRequest;
use crate::config::methods::Method;
use crate::credentials::arguments::Arguments;
use crate::credentials::bearer::{PARAMETER, body};
use crate::credentials::strip_credentials::strip_exchanged_token;
use crate::credentials::{Credential, PresentedCredential};
use crate::decide::refusal::{Class, Refusal};
use crate::login::flow;
use crate::login::page;
use crate::logout;
use crate::logout::channels::handle_provider_logout;
use crate::provider::id_token_verification::with_id_token;
use crate::provider::introspection::RequestContext;
use crate::provider::opaque_token::OpaqueToken;
use crate::provider::signature_exemptions::claims_without_signature;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::token_endpoint::id_token_identity::identity;
use crate::provider::token_endpoint::{TokenClient, TokenGrant, Tokens};
use crate::provider::token_exchange::{ExchangeDecision, TokenExchange};
use crate::session::Browser;
use crate::session::creation;
use crate::session::creation::{CredentialPlace, SessionSource};
use crate::session::decision;
use doorward_net::http::form::without;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Flow};

impl OpenIdConnect {
    /// Whether the request may bring a credential that is no token.
    pub(crate) fn may_have_credentials(&self, request: &RequestHeader) -> bool {
        let search = &self.config().search;
        search.may_be_in_head(request)
            || (search.looks_into_bodies() && body::is_searchable(request))
    }

    /// Whether the request asks for a logout, or may be the end of a login.
    pub(crate) fn is_of_login(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        (self.logout.as_ref()).is_some_and(|logout| {
            logout.is_asked_in_head(request, exchange) || logout.may_be_asked_in_body(request)
        }) || (self.logins.as_ref()).is_some_and(|logins| logins.may_be_callback(request))
            || (self.channels.as_ref()).is_some_and(|channels| channels.asked(request).is_some())
    }

    /// Decides by the first credential that is found: a session, a token, or
    /// else what the provider gives tokens for. Who brings none is sent to the
    /// provider to sign in, where that is on.
    pub(crate) async fn decide(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Flow, Refusal> {
        let request = session.req_header();
        let first = (self.is_of_login(request, exchange) && body::is_read_ahead(request))
            || self.config().search.may_bring_id_token_in_body(request);
        let mut given = self.arguments(session, exchange, first).await?;
        if let Some(flow) = self.decide_about_login(session, exchange, &given).await? {
            return Ok(flow);
        }
        let mut void = Refusal::NoToken;
        if let Some(sessions) = &self.sessions {
            let request = session.req_header();
            let context = self.request_context(request, &given, exchange.client.ip());
            let judged = decision::decide_by_session(self, sessions, &context, request, exchange);
            match judged.await? {
                Ok(flow) => return Ok(flow),
                Err(refusal) => void = refusal,
            }
        }
        let request = session.req_header();
        let places = &self.config().places;
        let mut found = None;
        let mut place = CredentialPlace::Head;
        if self.takes_tokens() {
            found = places.find(request)?.map(|found| found.into_owned());
        }
        if found.is_none() && self.may_be_in_body(request) {
            given = self.arguments(session, exchange, true).await?;
            let body = exchange.body.as_deref();
            if self.takes_tokens() {
                found = places.find_in_read_body(session.req_header(), body)?;
                place = CredentialPlace::Body;
            }
        }
        let request = session.req_header();
        let context = self.request_context(request, &given, exchange.client.ip());
        if let Some(found) = found {
            let (verified, method) = self.verify_exchanged(&found.token, &context).await?;
            let presented_id_token = self.config().search.id_token(&request.headers, &given)?;
            let (verified, id_token) = match presented_id_token
                .as_ref()
                .and_then(PresentedCredential::token)
            {
                Some(id_token) => {
                    let with = with_id_token(
                        self.config(),
                        &self.provider_client,
                        verified,
                        id_token,
                        &context,
                    )
                    .await?;
                    (with, Some(id_token))
                }
                None => (verified, None),
            };
            let verified = authorize::enrich(self, verified, &context).await?;
            let shown = (found.token.as_ref(), found.as_dpop);
            let proven = match authorize::proof_of(self, shown, &verified, request, exchange) {
                Ok(proof) => authorize::consume_proof(self, proof, &verified).await,
                Err(refusal) => Err(refusal),
            };
            let flow = match proven {
                Ok(proven) => {
                    let verified = (&verified, proven);
                    authorize::authorize_token(
                        self, verified, method, &found, id_token, request, exchange,
                    )
                }
                Err(refusal) => self.refuse(refusal, exchange),
            };
            let place = if found.in_query {
                CredentialPlace::Query
            } else {
                place
            };
            let client = context.client.cloned();
            let source = SessionSource::by_token((method, place), client, &verified, id_token);
            creation::create_session(self, source, request, exchange).await;
            if let Flow::Continue = flow {
                if let Some(presented_id_token) = &presented_id_token {
                    self.strip_presented(presented_id_token, session, exchange);
                }
                self.strip_token_from_form(session.req_header(), exchange);
                if self.token_exchange.is_some() {
                    let places = &self.config().places;
                    strip_exchanged_token(places, &found.token, session.req_header(), exchange)?;
                }
            }
            return Ok(flow);
        }
        let shown = match &self.token_client {
            Some(_) => self.config().search.find(&request.headers, &given)?,
            None => None,
        };
        match (shown, &self.token_client) {
            (Some(shown), Some(token_client)) => {
                let (verified, given) = self
                    .redeem(token_client, &shown.credential, &context)
                    .await?;
                let verified = authorize::enrich(self, verified, &context).await?;
                let place = shown.place(request);
                let client = context.client.cloned();
                self.strip_presented(&shown, session, exchange);
                let tokens = &given.tokens;
                let verified_request = VerifiedRequest {
                    verified: &verified,
                    token_set: tokens.token_set(),
                    method: given.method,
                    in_query: false,
                };
                let flow =
                    authorize::authorize(self, verified_request, session.req_header(), exchange);
                let source = SessionSource::by_grant(&given, place, client);
                creation::create_session(self, source, session.req_header(), exchange).await;
                Ok(flow)
            }
            _ => {
                self.begin_login_or_refuse(void, session, exchange, &given)
                    .await
            }
        }
    }

    /// Logouts, and ends of logins.
    async fn decide_about_login(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
        given: &Arguments,
    ) -> Result<Option<Flow>, Refusal> {
        let request = session.req_header();
        if let (Some(channels), Some(sessions)) = (&self.channels, &self.sessions)
            && let Some(channel) = channels.asked(request)
        {
            let asked = (channels, channel);
            let flow = handle_provider_logout(
                &self.provider_client,
                &self.metrics,
                asked,
                sessions,
                request,
                given,
                exchange,
            )
            .await?;
            return Ok(Some(flow));
        }
        if let (Some(logout), Some(sessions)) = (&self.logout, &self.sessions)
            && (logout.is_asked_in_head(request, exchange)
                || logout.is_asked_in_body(request, given))
        {
            let flow = logout::handle_logout(self, logout, sessions, request, exchange).await?;
            return Ok(Some(flow));
        }
        match &self.logins {
            // Of a browser that is in already, the page is of no use.
            Some(logins)
                if logins.is_landing(request) && !logins.is_callback(request, given, exchange) =>
            {
                Ok(Some(Flow::Respond(page::fragment())))
            }
            Some(logins) if logins.is_callback(request, given, exchange) => {
                // The query has the code: not for the log.
                exchange.token_in_query = true;
                let flow = flow::end_login(self, logins, session, given, exchange).await?;
                Ok(Some(flow))
            }
            _ => Ok(None),
        }
    }

    /// Who shows nothing signs in, or is refused: `void` is what is wrong with
    /// the session that was shown.
    async fn begin_login_or_refuse(
        &self,
        void: Refusal,
        session: &mut Session,
        exchange: &mut Exchange,
        given: &Arguments,
    ) -> Result<Flow, Refusal> {
        let request = session.req_header();
        if let Some(sessions) = &self.sessions
            && void != Refusal::NoToken
        {
            sessions.forget(Browser {
                headers: &request.headers,
                secure: exchange.secure,
                fields: &mut exchange.response_headers,
            });
        }
        match &self.logins {
            Some(logins) if logins.is_callback_without_state(request, given, exchange) => {
                // The query may have a code: not for the log.
                exchange.token_in_query = true;
                Err(Refusal::MalformedCallback)
            }
            Some(_) if (self.embedding.as_ref()).is_some_and(|one| one.passes(request)) => {
                Ok(Flow::Continue)
            }
            Some(_) if self.config().scripts && cors::is_script(&request.headers) => Err(void),
            Some(logins) => flow::begin_login(self, logins, session, given, exchange).await,
            None => Err(void),
        }
    }

    /// The parameters of a request: of its body only if `with_body`, which
    /// reads it.
    async fn arguments(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
        with_body: bool,
    ) -> Result<Arguments, Refusal> {
        if with_body && exchange.body.is_none() {
            exchange.body = Some(body::read(session).await?);
        }
        let request = session.req_header();
        let body = exchange.body.as_deref().unwrap_or_default();
        let parameters = body::parameters_of(&request.headers, body);
        Ok(Arguments::new(request.uri.query(), parameters))
    }

    pub(crate) fn request_context<'a>(
        &'a self,
        request: &'a RequestHeader,
        given: &'a Arguments,
        from: IpAddr,
    ) -> RequestContext<'a> {
        RequestContext {
            from: Some(from),
            client: self.config().clients.chosen(&request.headers, given),
            headers: &request.headers,
            arguments: given,
        }
    }

    /// Takes what was shown out of what the upstream gets.
    fn strip_presented(
        &self,
        shown: &PresentedCredential,
        session: &mut Session,
        exchange: &mut Exchange,
    ) {
        if !self.config().hide_credentials {
            return;
        }
        let form = exchange.body.as_ref();
        let form = form.filter(|_| body::is_form(&session.req_header().headers));
        if let Some(left) = shown.strip(session.req_header_mut(), form.map(|form| &form[..])) {
            exchange.replacement = Some(Bytes::from(left));
        }
    }

    /// Takes the access token out of the form that the upstream gets.
    fn strip_token_from_form(&self, request: &RequestHeader, exchange: &mut Exchange) {
        let config = self.config();
        if !config.hide_credentials
            || !config.places.may_be_in_body(request)
            || !body::is_form(&request.headers)
        {
            return;
        }
        let form = exchange.replacement.as_ref().or(exchange.body.as_ref());
        let form = form.and_then(|form| std::str::from_utf8(form).ok());
        if let Some(left) = form.and_then(|form| without(form, &[PARAMETER])) {
            exchange.replacement = Some(Bytes::from(left));
        }
    }

    pub(crate) fn may_be_in_body(&self, request: &RequestHeader) -> bool {
        let tokens = self.takes_tokens() && self.config().places.may_be_in_body(request);
        let others = self.token_client.is_some() && self.config().search.looks_into_bodies();
        tokens || (others && body::is_searchable(request))
    }

    /// What is to be done about a token, with what the head of its request says.
    pub(crate) fn exchange_decision(
        &self,
        exchange: &TokenExchange,
        token: &str,
        request: &RequestHeader,
        from: IpAddr,
    ) -> ExchangeDecision {
        let given = Arguments::new(request.uri.query(), Vec::new());
        let context = self.request_context(request, &given, from);
        exchange.decide(token, &context, self.verifier.metadata().as_deref())
    }

    /// Judges the token that is given for this one, or this one where none is.
    async fn verify_exchanged(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<(Arc<VerifiedToken>, Method), Refusal> {
        let Some(exchange) = &self.token_exchange else {
            return self.verify_or_fetch(token, context).await;
        };
        loop {
            let Some(given) = exchange.exchange(token, context).await? else {
                return self.verify_or_fetch(token, context).await;
            };
            let access = given.tokens.access.expose();
            match self.verify_or_fetch(access, context).await {
                // Nobody can say more about it than who gave it.
                Err(unread) if unread == Refusal::NoEndpoint || unread.is_unread() => {
                    let verified = self.trust(&given.tokens, Map::new())?;
                    return Ok((verified, Method::Bearer));
                }
                // Keys may be gone since, or the token revoked.
                Err(refusal) if given.remembered && refusal.class() == Class::BadToken => {
                    exchange.forget(&given);
                }
                outcome => return outcome,
            }
        }
    }

    /// Judges a token by the provider's keys or by its word.
    pub(crate) async fn verify_or_fetch(
        &self,
        token: &str,
        context: &RequestContext<'_>,
    ) -> Result<(Arc<VerifiedToken>, Method), Refusal> {
        let config = self.config();
        let mut refusal = Refusal::NoEndpoint;
        if config.bearer && !config.introspects_all {
            match self.verifier.verify_or_fetch(token).await {
                Err(unread) if unread.is_unread() => refusal = unread,
                outcome => return Ok((outcome?, Method::Bearer)),
            }
        }
        let told = match &self.introspector {
            Some(introspector) => introspector.query(token, context).await?,
            None => None,
        };
        told.ok_or(refusal)
    }

    /// The token for a credential, and what is believed of it.
    async fn redeem(
        &self,
        token_client: &TokenClient,
        credential: &Credential,
        context: &RequestContext<'_>,
    ) -> Result<(Arc<VerifiedToken>, TokenGrant), Refusal> {
        let given = token_client.exchange(credential, context).await?;
        match self.verify_grant(&given, context).await {
            // Keys may be gone since, or the token revoked.
            Err(refusal) if given.remembered && refusal.class() == Class::BadToken => {
                token_client.forget(&given);
                let given = token_client.exchange(credential, context).await?;
                Ok((self.verify_grant(&given, context).await?, given))
            }
            outcome => Ok((outcome?, given)),
        }
    }

    /// What is believed of a token that the token endpoint gave: what it says
    /// itself, what the provider says of it, or what came with it; and what the ID
    /// token says besides.
    async fn verify_grant(
        &self,
        given: &TokenGrant,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let identity = identity(self.config(), &self.provider_client, given, context).await?;
        let tokens = &given.tokens;
        let Some(verified) = self.verify_granted(given, context).await? else {
            return self.trust(tokens, identity.cloned().unwrap_or_default());
        };
        let (Some(identity), Some(id)) = (identity, &tokens.id) else {
            return Ok(verified);
        };
        let merged = &tokens.identity.merged;
        let with = merged.with(verified, || identity.clone(), id.expose().len());
        let now = self.provider_client.clock.now_secs();
        self.config().rules.check_age(&with.token.claims, now)?;
        Ok(with)
    }

    /// What is known of an access token that the token endpoint gave; `None`: nobody
    /// can tell.
    async fn verify_granted(
        &self,
        given: &TokenGrant,
        context: &RequestContext<'_>,
    ) -> Result<Option<Arc<VerifiedToken>>, Refusal> {
        let token = given.tokens.access.expose();
        if self.config().signature_exemptions.has(given.method) {
            let (client, rules) = (&self.provider_client, &self.config().rules);
            match claims_without_signature(client, rules, token).await {
                Err(unread) if unread.is_unread() => {}
                outcome => return outcome.map(Some),
            }
        }
        if !self.config().introspects_all {
            match self.verifier.verify_or_fetch(token).await {
                Err(unread) if unread.is_unread() => {}
                outcome => return outcome.map(Some),
            }
        }
        let told = match &self.introspector {
            Some(introspector) => introspector.query(token, context).await?,
            None => None,
        };
        Ok(told.map(|(verified, _)| verified))
    }

    fn trust(
        &self,
        tokens: &Tokens,
        identity: Map<String, Value>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let opaque = OpaqueToken {
            access: tokens.access.expose(),
            scope: tokens.scope.as_deref(),
            ends_at: tokens.ends_at,
        };
        opaque.trusted(
            identity,
            &self.config().rules,
            self.provider_client.clock.now_ms(),
        )
    }
}
