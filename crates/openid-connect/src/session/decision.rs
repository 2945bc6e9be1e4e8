//! Decisions by the session that a request shows, or that its browser is
//! remembered to have had.

use std::sync::Arc;

use pingora::http::RequestHeader;

use crate::OpenIdConnect;
use crate::authorize;
use crate::decide::refusal::Refusal;
use crate::provider::introspection::RequestContext;
use crate::provider::token_cache::VerifiedToken;
use crate::session::creation;
use crate::session::{Browser, OpenSession, SessionLookup, Sessions};
use doorward_plugin_api::filter::{Exchange, Flow};

/// The session that a request shows, or that its browser is remembered to have
/// had; the inner error is why there is none.
///
/// # Errors
/// When nobody can say whether there is one.
pub(crate) async fn session_of(
    plugin: &OpenIdConnect,
    sessions: &Sessions,
    request: &RequestHeader,
    exchange: &Exchange,
) -> Result<Result<RequestSession, Refusal>, Refusal> {
    let now_ms = plugin.provider_client.clock.now_ms();
    let shown = sessions.find(&request.headers, now_ms).await?;
    let (shown, recalled) = sessions
        .restore_remembered(shown, &request.headers, now_ms)
        .await?;
    Ok(match shown {
        SessionLookup::Absent | SessionLookup::NeedsLoad(_) => Err(Refusal::NoToken),
        SessionLookup::Invalid(refusal) => Err(refusal),
        SessionLookup::Active(login, _)
            if sessions.is_elsewhere(&login, &request.headers, exchange) =>
        {
            Err(Refusal::SessionElsewhere)
        }
        SessionLookup::Active(login, _) if !creation::accepts_session(plugin, &login) => {
            Err(Refusal::SessionUnfit)
        }
        SessionLookup::Active(login, _) if sessions.has_run_out(&login, now_ms) => {
            Err(Refusal::SessionOver)
        }
        SessionLookup::Active(login, due) => Ok(RequestSession {
            login,
            due,
            recalled,
        }),
    })
}

/// Decides by a session; the inner error is why there is none.
///
/// # Errors
/// When nobody can say whether there is one.
pub(crate) async fn decide_by_session(
    plugin: &OpenIdConnect,
    sessions: &Arc<Sessions>,
    context: &RequestContext<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<Result<Flow, Refusal>, Refusal> {
    let mut found = match session_of(plugin, sessions, request, exchange).await? {
        Ok(found) => found,
        Err(void) => return Ok(Err(void)),
    };
    if found.recalled {
        let now_ms = plugin.provider_client.clock.now_ms();
        let browser = Browser {
            headers: &request.headers,
            secure: exchange.secure,
            fields: &mut exchange.response_headers,
        };
        found.login = match sessions.resume(&found.login, browser, now_ms).await {
            Err(Refusal::SessionOver) => return Ok(Err(Refusal::SessionOver)),
            login => login?,
        };
        found.due = false;
    }
    let shown = (sessions, &found.login);
    let (login, judged) =
        verify_or_refresh_session(plugin, shown, context, request, exchange).await?;
    if found.recalled && matches!(judged, Err(Refusal::SessionOver)) {
        // Its tokens have ended, too: whoever comes back after days signs in.
        sessions
            .end(&login, plugin.provider_client.clock.now_ms())
            .await?;
        return Ok(Err(Refusal::SessionOver));
    }
    // A refresh has renewed it.
    let due = found.due && Arc::ptr_eq(&found.login, &login);
    let shown = (sessions, &login, due);
    let flow = conclude(plugin, shown, judged, request, exchange).await?;
    Ok(Ok(flow))
}

/// What is known of the user of a session, and the session that it is by then:
/// its tokens may have been refreshed, which the browser learns.
async fn verify_or_refresh_session(
    plugin: &OpenIdConnect,
    (sessions, shown): (&Arc<Sessions>, &Arc<OpenSession>),
    context: &RequestContext<'_>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<(Arc<OpenSession>, Result<Arc<VerifiedToken>, Refusal>), Refusal> {
    let mut login = Arc::clone(shown);
    let judged = plugin.authorize_session(sessions, &mut login, context);
    let judged = judged.await;
    if !Arc::ptr_eq(shown, &login) {
        // Whatever becomes of the request: the last tokens may be spent.
        plugin.set_session_cookie(sessions, &login, request, exchange)?;
    }
    Ok((login, judged))
}

/// Lets the request of a session pass, which is renewed if it is due, or refuses
/// it.
async fn conclude(
    plugin: &OpenIdConnect,
    (sessions, login, due): (&Arc<Sessions>, &Arc<OpenSession>, bool),
    judged: Result<Arc<VerifiedToken>, Refusal>,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<Flow, Refusal> {
    let verified = match judged {
        Ok(verified) => verified,
        Err(refusal) => {
            return Ok(plugin.refuse_session(sessions, login, refusal, request, exchange));
        }
    };
    let proven = match authorize::proof_of_session(plugin, &verified, request, exchange) {
        Ok(proof) => authorize::consume_proof(plugin, proof, &verified).await,
        Err(refusal) => Err(refusal),
    };
    let flow = plugin.continue_session((sessions, login), (&verified, proven), request, exchange);
    if due {
        plugin
            .renew((sessions, login), request, exchange, flow)
            .await
    } else {
        Ok(flow)
    }
}

/// A session that was found.
pub(crate) struct RequestSession {
    pub(crate) login: Arc<OpenSession>,
    /// Whether it shall be renewed.
    due: bool,
    /// Whether its own cookie is gone, and it has to be begun anew.
    recalled: bool,
}
