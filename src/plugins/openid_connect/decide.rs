//! What has to wait: bodies that are searched, and answers of the provider.

use std::sync::Arc;

use bytes::Bytes;
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use serde_json::{Map, Value};

use super::OpenIdConnect;
use super::arguments::Arguments;
use super::bearer::body;
use super::cache::Verified;
use super::grants::{Given, TokenDesk, Tokens};
use super::refusal::{Class, Refusal};
use super::told::Asking;
use super::verifier::Checked;
use super::word::Word;
use crate::filter::{Exchange, Flow};

impl OpenIdConnect {
    /// Whether the request may bring a credential that is no token.
    pub(super) fn may_show_credentials(&self, request: &RequestHeader) -> bool {
        let search = &self.settings().search;
        search.may_be_in_head(request)
            || (search.looks_into_bodies() && body::is_searchable(request))
    }

    /// Decides by the first credential that is found: a token, or else what
    /// the provider gives tokens for.
    pub(super) async fn decide(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Flow, Refusal> {
        let request = session.req_header();
        let places = &self.settings().places;
        let mut found = None;
        if self.takes_tokens() {
            found = places.find(request)?.map(|found| found.into_owned());
        }
        if found.is_none() && self.may_be_in_body(request) && exchange.body.is_none() {
            exchange.body = Some(body::read(session).await?);
        }
        let request = session.req_header();
        let sent = exchange.body.clone();
        if found.is_none() && self.takes_tokens() {
            found = places.find_in_read_body(request, sent.as_deref())?;
        }
        let parameters = sent.as_deref().unwrap_or_default();
        let parameters = body::parameters_of(&request.headers, parameters);
        let arguments = Arguments::new(request.uri.query(), parameters);
        let asking = Asking {
            client: self.settings().clients.chosen(&request.headers, &arguments),
            headers: &request.headers,
            arguments: &arguments,
        };
        if let Some(found) = found {
            let verified = self.judge_patiently(&found.token, &asking).await?;
            return Ok(self.accept(&verified, request, found.in_query, exchange));
        }
        let desk = self.desk.as_ref().ok_or(Refusal::NoToken)?;
        let shown = self.settings().search.find(&request.headers, &arguments)?;
        let shown = shown.ok_or(Refusal::NoToken)?;
        let verified = self.redeem(desk, &shown.credential, &asking).await?;
        if self.settings().hide_credentials {
            let form = sent.filter(|_| body::is_form(&request.headers));
            let left = shown.hide(session.req_header_mut(), form.as_deref());
            if let Some(left) = left {
                exchange.replacement = Some(Bytes::from(left));
            }
        }
        Ok(self.accept(&verified, session.req_header(), false, exchange))
    }

    fn may_be_in_body(&self, request: &RequestHeader) -> bool {
        let tokens = self.takes_tokens() && self.settings().places.may_be_in_body(request);
        let others = self.desk.is_some() && self.settings().search.looks_into_bodies();
        tokens || (others && body::is_searchable(request))
    }

    /// Judges a token by the provider's keys or by its word.
    async fn judge_patiently(
        &self,
        token: &str,
        asking: &Asking<'_>,
    ) -> Result<Arc<Verified>, Refusal> {
        let settings = self.settings();
        let mut refusal = Refusal::NoEndpoint;
        if settings.bearer && !settings.asks_about_all {
            match self.verifier.judge_patiently(token).await {
                Err(unread) if unread.is_unread() => refusal = unread,
                outcome => return outcome,
            }
        }
        let told = match &self.asker {
            Some(asker) => asker.ask(token, asking).await?,
            None => None,
        };
        told.ok_or(refusal)
    }

    /// The token for a credential, and what is believed of it.
    async fn redeem(
        &self,
        desk: &TokenDesk,
        credential: &super::credentials::Credential,
        asking: &Asking<'_>,
    ) -> Result<Arc<Verified>, Refusal> {
        let given = desk.exchange(credential, asking).await?;
        match self.believe(&given, asking).await {
            // Keys may be gone since, or the token revoked.
            Err(refusal) if given.remembered && refusal.class() == Class::BadToken => {
                desk.forget(&given);
                let given = desk.exchange(credential, asking).await?;
                self.believe(&given, asking).await
            }
            outcome => outcome,
        }
    }

    /// What is believed of a token that the token endpoint gave: what it says
    /// itself, what the provider says of it, or what came with it.
    async fn believe(&self, given: &Given, asking: &Asking<'_>) -> Result<Arc<Verified>, Refusal> {
        let token = given.tokens.access.expose();
        if !self.settings().asks_about_all {
            match self.verifier.judge_patiently(token).await {
                Err(unread) if unread.is_unread() => {}
                outcome => return outcome,
            }
        }
        let told = match &self.asker {
            Some(asker) => asker.ask(token, asking).await?,
            None => None,
        };
        match told {
            Some(verified) => Ok(verified),
            None => self.trust(&given.tokens),
        }
    }

    fn trust(&self, tokens: &Tokens) -> Result<Arc<Verified>, Refusal> {
        let mut claims = Map::new();
        if let Some(scope) = &tokens.scope {
            claims.insert("scope".to_owned(), Value::from(scope.as_str()));
        }
        let rules = &self.settings().rules;
        rules.check_told(&claims, "", 0)?;
        let end = tokens.ends_at;
        let checked = Checked {
            scopes: rules.scopes(&claims),
            expires_at: end.map(|end| end.div_euclid(1000)),
            ends_at: end.unwrap_or(i64::MAX),
            ends_for_good: end.is_some(),
            claims,
        };
        Ok(checked.verified(tokens.access.expose(), 0, 0, Word::default()))
    }
}
