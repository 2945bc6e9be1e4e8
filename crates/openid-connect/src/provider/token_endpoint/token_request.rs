//! What the token endpoint is asked.

use std::sync::Arc;

use http::HeaderMap;

use crate::decide::refusal::Refusal;
use crate::login::CodeClaim;
use crate::provider::client::EndpointRequest;
use crate::provider::client_auth::Client;
use crate::provider::endpoints::Endpoint;
use crate::provider::introspection::{RequestContext, request_digest};
use crate::provider::single_flight::{Digest, digest_of};
use crate::provider::token_endpoint::password_refusals::Password;
use crate::provider::token_endpoint::{GrantType, TokenClient, Tokens, read};
use doorward_core::model::secret::Secret;
use doorward_oidc_client::client_auth::{Proof, authenticate};

/// What is asked.
pub(crate) struct TokenRequest<'a> {
    pub(crate) grant: GrantType,
    pub(crate) form: &'a [(&'a str, &'a str)],
    /// Who asks, if that is not the gateway.
    pub(crate) caller: Option<(&'a str, &'a Secret)>,
    /// The password, where that may be a client's secret as well.
    pub(crate) password: Option<Password>,
    /// For so long the answer is there, from before the question is over on:
    /// whoever comes in between must not ask again.
    pub(crate) late_ms: Option<i64>,
    /// The login that the code is of.
    pub(crate) claim: Option<CodeClaim>,
}

/// For whom is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// Whoever shows credentials.
    Stranger,
    /// A user who signs in.
    Login,
    /// A user who has.
    Session,
}

impl<'a> TokenRequest<'a> {
    pub(crate) fn new(grant: GrantType, form: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            grant,
            form,
            caller: None,
            password: None,
            late_ms: None,
            claim: None,
        }
    }

    pub(crate) fn requester(&self) -> Requester {
        match self.late_ms {
            Some(_) => Requester::Session,
            None if self.grant == GrantType::AuthorizationCode => Requester::Login,
            None => Requester::Stranger,
        }
    }

    /// Whether the configuration says for which scopes it is: a code and a
    /// refresh token bring theirs with them.
    pub(crate) fn is_by_scope(&self) -> bool {
        matches!(
            self.grant,
            GrantType::Password | GrantType::ClientCredentials
        )
    }
}

/// A question that is ready to be asked.
pub(crate) struct PreparedRequest {
    pub(crate) about: Digest,
    endpoint_request: EndpointRequest,
    /// The scopes that it is for, as far as the configuration alone says so.
    granted: Option<String>,
}

impl TokenClient {
    /// What the provider gets to read, and what makes the question another one.
    pub(crate) async fn prepare(
        &self,
        request: &TokenRequest<'_>,
        context: &RequestContext<'_>,
    ) -> Result<PreparedRequest, Refusal> {
        let (grants, grant) = (&self.grants, request.grant);
        let mut sent = vec![("grant_type".to_owned(), grant.name().to_owned())];
        let form = request.form.iter();
        sent.extend(form.map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        if request.is_by_scope() {
            let audience = grants.audience.iter();
            sent.extend(audience.map(|one| ("audience".to_owned(), one.clone())));
            let scope = grants.scope.iter();
            sent.extend(scope.map(|scope| ("scope".to_owned(), scope.clone())));
        }
        // A code and a refresh token may be good once: whoever comes with one asks
        // for the same, whatever else is sent with it.
        let once = (!request.is_by_scope()).then(|| sent.clone());
        let extras = &grants.extras;
        sent = extras.join(sent, context.headers, context.arguments);
        let mut headers = extras.headers(context.headers);
        let client = match request.caller {
            None => context.client.cloned(),
            Some(caller) => {
                self.as_caller(caller, context.client, &mut sent, &mut headers)
                    .await?;
                None
            }
        };
        let mut about = match &once {
            // At whichever plugin of the issuer.
            Some(form) => {
                let endpoint = self.provider_client.url(Endpoint::Token).await.ok();
                let endpoint = endpoint.as_ref().map_or("", url::Url::as_str);
                let post = request_digest(client.as_deref(), form, &HeaderMap::new());
                digest_of([&post[..], endpoint.as_bytes()])
            }
            None => request_digest(client.as_deref(), &sent, &headers),
        };
        let granted = grants.scope.clone();
        let granted = granted.filter(|_| request.is_by_scope() && !extras.may_set("scope"));
        if grant == GrantType::Password
            && let Some(from) = context.from
            && self.provider_client.token_status().await.is_some()
        {
            // A provider in this process may let users in from some addresses
            // only: what it gave to one is not for another.
            about = digest_of([&about[..], from.to_string().as_bytes()]);
        }
        let endpoint_request = EndpointRequest {
            from: context.from,
            endpoint: Endpoint::Token,
            client,
            form: sent,
            headers,
        };
        Ok(PreparedRequest {
            about,
            endpoint_request,
            granted,
        })
    }

    /// The question, which may outlive who asks it.
    pub(crate) fn post_request(
        &self,
        request: &TokenRequest<'_>,
        prepared_request: PreparedRequest,
    ) -> impl Future<Output = Result<Arc<Tokens>, Refusal>> + Send + use<> {
        let (grant, late_ms, password) = (request.grant, request.late_ms, request.password);
        let caller = request
            .caller
            .map(|(id, secret)| (id.to_owned(), secret.clone()));
        let replay = self.grants.replay.clone();
        let refused_ms = self.grants.lifetimes.refused();
        let (provider_client, refusals) = (
            Arc::clone(&self.provider_client),
            Arc::clone(&self.refusals),
        );
        let cache = Arc::clone(self.cache_of(grant));
        async move {
            let about = prepared_request.about;
            // The last answer may have come between the look and the question: a
            // refresh token must not be shown again.
            let now_ms = provider_client.clock.now_ms();
            if let Some((tokens, until)) = cache.get(&about)
                && now_ms < until
            {
                return Ok(tokens);
            }
            let answer = provider_client
                .post(prepared_request.endpoint_request)
                .await?;
            let now_ms = provider_client.clock.now_ms();
            if let Some(password) = &password {
                refusals.record(&answer, password, now_ms, refused_ms);
            }
            let mut tokens = read(&answer, caller.is_none(), now_ms)?;
            tokens.caller = caller;
            tokens.replayed = replay.of(grant.name(), &answer.headers);
            // RFC 6749 §5.1: what was asked for, if it is not named.
            tokens.scope = tokens.scope.or(prepared_request.granted);
            let tokens = Arc::new(tokens);
            if let Some(late_ms) = late_ms {
                let until = now_ms.saturating_add(late_ms);
                let until = tokens.ends_at.map_or(until, |end| end.min(until));
                cache.insert(about, (Arc::clone(&tokens), until));
            }
            Ok(tokens)
        }
    }

    /// Asks as the caller, whose credentials are in the request.
    async fn as_caller(
        &self,
        (id, secret): (&str, &Secret),
        own: Option<&Arc<Client>>,
        form: &mut Vec<(String, String)>,
        headers: &mut HeaderMap,
    ) -> Result<(), Refusal> {
        let own = own.map(Arc::as_ref);
        let in_form = self
            .provider_client
            .posts_secrets(Endpoint::Token, own)
            .await?;
        let proof = if in_form {
            Proof::Post(secret)
        } else {
            Proof::Basic(secret)
        };
        authenticate(id, proof, form, headers).map_err(|_| Refusal::MalformedCredentials)
    }
}
