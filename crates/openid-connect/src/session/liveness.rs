//! How long answers may last: no longer than the session or the token of their
//! request (`end_with_session`).

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use http::HeaderMap;
use pingora::http::RequestHeader;

use crate::OpenIdConnect;
use crate::credentials::arguments::Arguments;
use crate::provider::client_auth::Client;
use crate::provider::introspection::RequestContext;
use crate::provider::revocation::Status;
use crate::provider::token_cache::VerifiedToken;
use crate::session::{OpenSession, Sessions};
use doorward_core::clock::Clock;
use doorward_plugin_api::filter::{Exchange, SessionLiveness};

/// What an answer must not outlast.
struct LoginSessionLiveness {
    clock: Clock,
    /// When the request came, in milliseconds: it used the session.
    since_ms: i64,
    token: Arc<VerifiedToken>,
    session: Option<(Arc<Sessions>, Arc<OpenSession>)>,
    /// Of a token that says nothing itself.
    questioner: Option<Questioner>,
}

/// Who asks the provider about an opaque token.
#[derive(Clone)]
struct Questioner {
    plugin: Weak<OpenIdConnect>,
    client: Option<Arc<Client>>,
    /// Where the request came from.
    from: IpAddr,
}

impl std::fmt::Debug for LoginSessionLiveness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bound")
    }
}

impl SessionLiveness for LoginSessionLiveness {
    fn is_over(&self) -> bool {
        let now_ms = self.clock.now_ms();
        let token_over = now_ms >= self.token.ends_at && self.token.ends_for_good;
        match &self.session {
            Some((sessions, held)) => {
                sessions.look_again(held, now_ms);
                sessions.is_over(held, self.since_ms, now_ms)
                    // Another request gets the next one.
                    || (token_over && held.refresh.is_none())
                    // Of one that is over nothing is asked any more.
                    || (!token_over && self.is_revoked())
            }
            None => token_over || self.is_revoked(),
        }
    }
}

impl LoginSessionLiveness {
    /// Whether the provider, if it is in this process, says that the token is
    /// void; a question is answered until the next look.
    fn is_revoked(&self) -> bool {
        match self.token.revocation.status() {
            Status::Active => false,
            Status::Revoked => true,
            Status::Unknown => {
                let token = Arc::clone(&self.token);
                let questioner = self.questioner.clone();
                tokio::spawn(async move {
                    // Without an answer it is asked again.
                    match questioner {
                        Some(questioner) => questioner.introspect_again(&token).await,
                        None => drop(token.revocation.check(&token.token.claims).await),
                    }
                });
                false
            }
        }
    }
}

/// Notes what the answer to a request with this token must not outlast.
pub(crate) fn limit_lifetime(
    plugin: &OpenIdConnect,
    token: &Arc<VerifiedToken>,
    session: Option<(&Arc<Sessions>, &Arc<OpenSession>)>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) {
    if !plugin.config().end_with_session {
        return;
    }
    // The holders of what all requests share are counted: only opaque tokens need it.
    let questioner = token.revocation.is_of_opaque_token().then(|| {
        let clients = &plugin.config().clients;
        let client = match session {
            Some((_, held)) => clients.named(&held.client).map(|(client, _)| client),
            None => {
                let arguments = Arguments::new(request.uri.query(), Vec::new());
                clients.chosen(&request.headers, &arguments)
            }
        };
        Questioner {
            plugin: plugin.me.clone(),
            client: client.cloned(),
            from: exchange.client.ip(),
        }
    });
    exchange.lasting = Some(Arc::new(LoginSessionLiveness {
        clock: plugin.provider_client.clock.clone(),
        since_ms: plugin.provider_client.clock.now_ms(),
        token: Arc::clone(token),
        session: session.map(|(sessions, held)| (Arc::clone(sessions), Arc::clone(held))),
        questioner,
    }));
}

impl Questioner {
    /// Asks the provider again about a token that says nothing itself.
    async fn introspect_again(&self, token: &VerifiedToken) {
        let Some(plugin) = self.plugin.upgrade() else {
            return;
        };
        let Some(introspector) = &plugin.introspector else {
            return;
        };
        let context = RequestContext {
            from: Some(self.from),
            client: self.client.as_ref(),
            headers: &HeaderMap::new(),
            arguments: &Arguments::default(),
        };
        // From before the question: what ends meanwhile is asked about again.
        let version = token.revocation.version();
        match introspector.query(&token.token.token, &context).await {
            // It may have been asked before, and the answer be older.
            Ok(Some((said, _))) => token.revocation.adopt(&said.revocation),
            Ok(None) => token.revocation.record(version, true),
            Err(refusal) if refusal.is_of_client() => token.revocation.record(version, false),
            Err(_) => {}
        }
    }
}
