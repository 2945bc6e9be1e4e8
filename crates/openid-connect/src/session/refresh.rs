//! Refreshing the tokens of sessions: one call, however many requests and nodes
//! want it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

use crate::OpenIdConnect;
use crate::credentials::arguments::Arguments;
use crate::decide::refusal::Refusal;
use crate::logout;
use crate::logout::Hint;
use crate::provider::client_auth::Client;
use crate::provider::id_token_verification::verify_id_token;
use crate::provider::introspection::RequestContext;
use crate::provider::single_flight::digest_of;
use crate::session::storage::Lock;
use crate::session::{Handle, LoginSession, OpenSession, SessionLookup, Sessions};

/// How often is looked whether another node has the next tokens.
const LOOK: Duration = Duration::from_millis(100);

/// As [`RequestContext`], for what outlives the request.
struct Owned {
    from: Option<std::net::IpAddr>,
    client: Option<Arc<Client>>,
    headers: HeaderMap,
    arguments: Arguments,
}

/// The session with its next tokens; one call for all requests that come
/// with the same session at the same time.
///
/// # Errors
/// [`Refusal::SessionOver`] where it is no longer kept, and why else there are
/// no next tokens.
pub(crate) async fn refresh(
    plugin: &OpenIdConnect,
    sessions: &Arc<Sessions>,
    login: &Arc<OpenSession>,
    context: &RequestContext<'_>,
) -> Result<Arc<OpenSession>, Refusal> {
    let Some(handle) = &login.handle else {
        let next = next_tokens(plugin, sessions, login, context).await?;
        return Ok(Arc::new(OpenSession::fresh(next)));
    };
    if login.refresh.is_none() || !sessions.refreshes {
        return Err(Refusal::WrongCredentials);
    }
    let this = plugin.me.upgrade().ok_or(Refusal::ProviderUnavailable)?;
    let owned = Owned {
        from: context.from,
        client: context.client.cloned(),
        headers: context.headers.clone(),
        arguments: context.arguments.clone(),
    };
    let about = digest_of([&handle.key.0[..], login.access.as_bytes()]);
    let (sessions, login) = (Arc::clone(sessions), Arc::clone(login));
    let (handle, clock) = (handle.clone(), plugin.provider_client.clock.clone());
    // In a task of its own: who hangs up between the call and the saving
    // would lose tokens that are good only once.
    let question = || async move { refresh_kept(&this, &sessions, &login, &handle, &owned).await };
    let asked = plugin
        .refreshes
        .ask(about, question, move || clock.now_ms());
    asked.await
}

/// Refreshes a session that other nodes may be refreshing.
async fn refresh_kept(
    plugin: &OpenIdConnect,
    sessions: &Sessions,
    login: &OpenSession,
    handle: &Handle,
    owned: &Owned,
) -> Result<Arc<OpenSession>, Refusal> {
    let context = RequestContext {
        from: owned.from,
        client: owned.client.as_ref(),
        headers: &owned.headers,
        arguments: &owned.arguments,
    };
    let clock = &plugin.provider_client.clock;
    // Whoever has locked it and does not come back is waited for no longer.
    let until_ms = clock.now_ms().saturating_add(sessions.lock_ms());
    loop {
        let now_ms = clock.now_ms();
        let current = live(sessions.read(handle, now_ms).await?)?;
        if current.access != login.access {
            return Ok(current);
        }
        if let Some(lock) = sessions.lock(handle, now_ms).await? {
            let of = (handle, lock);
            return refresh_locked(plugin, sessions, login, of, &context).await;
        }
        if now_ms >= until_ms {
            return Err(Refusal::ProviderUnavailable);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn refresh_locked(
    plugin: &OpenIdConnect,
    sessions: &Sessions,
    login: &OpenSession,
    (handle, lock): (&Handle, Lock),
    context: &RequestContext<'_>,
) -> Result<Arc<OpenSession>, Refusal> {
    let clock = &plugin.provider_client.clock;
    let next = async {
        // Another node may have done it just before.
        let current = live(sessions.read(handle, clock.now_ms()).await?)?;
        if current.access != login.access {
            return Ok(Err(current));
        }
        let next = next_tokens(plugin, sessions, &current, context).await?;
        Ok(Ok(next))
    };
    let outcome = match next.await {
        Ok(Ok(next)) => {
            let of = (handle, lock);
            let saved = sessions.save(next.clone(), of, clock.now_ms()).await;
            if let (Err(Refusal::SessionOver), Some(logout)) = (&saved, &plugin.logout) {
                // Who has ended it meanwhile knew the last tokens alone.
                logout::revoke(
                    plugin.config(),
                    &plugin.provider_client,
                    logout,
                    (&next, context.from),
                    &Hint::ALL,
                )
                .await;
            }
            return saved;
        }
        Ok(Err(current)) => Ok(current),
        // Somebody may have been first after all, whose lock was over.
        Err(Refusal::WrongCredentials) => {
            let read = sessions.read(handle, clock.now_ms()).await;
            match read.and_then(live) {
                Ok(current) if current.access == login.access => Err(Refusal::WrongCredentials),
                read => read,
            }
        }
        Err(refusal) => Err(refusal),
    };
    sessions.unlock(handle, lock).await;
    outcome
}

/// A session with the tokens that the provider gives for its refresh token.
async fn next_tokens(
    plugin: &OpenIdConnect,
    sessions: &Sessions,
    login: &LoginSession,
    context: &RequestContext<'_>,
) -> Result<LoginSession, Refusal> {
    let none = Refusal::WrongCredentials;
    let token_client = plugin.token_client.as_ref().ok_or(none)?;
    let token = login.refresh.as_deref().filter(|_| sessions.refreshes);
    let token = token.ok_or(none)?;
    let (client, _) = plugin.config().clients.named(&login.client).ok_or(none)?;
    let context = RequestContext {
        client: Some(client),
        ..*context
    };
    let tokens = token_client
        .refresh(token, &context)
        .await
        .map_err(refused)?;
    let mut next = login.clone();
    if let Some(id) = &tokens.id {
        let by = plugin.vouched_by(login);
        // OpenID Connect Core §12.2: of the same user.
        let claims = verify_id_token(
            plugin.config(),
            &plugin.provider_client,
            id.expose(),
            tokens.access.expose(),
            (&login.client, None),
            None,
            by,
        )
        .await?;
        if let Some(before) = login.subject()
            && claims.get("sub") != Some(&Value::from(before))
        {
            return Err(Refusal::WrongIdToken);
        }
        next.take_id_token(id.expose());
        next.unverified |= !plugin.config().verifies_id_tokens(by);
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

fn live(shown: SessionLookup) -> Result<Arc<OpenSession>, Refusal> {
    match shown {
        SessionLookup::Active(current, _) => Ok(current),
        SessionLookup::Invalid(_) | SessionLookup::Absent | SessionLookup::NeedsLoad(_) => {
            Err(Refusal::SessionOver)
        }
    }
}

/// What a refusal means to a session: a no, whatever it says, unless it is about the
/// client that asks.
fn refused(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::ProviderRefuses => Refusal::WrongCredentials,
        other => other,
    }
}
