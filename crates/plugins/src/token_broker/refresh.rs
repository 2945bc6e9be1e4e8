//! RefreshAccessToken: each refresh token is good once.
//!
//! One that was replaced before is shown by whoever took it, or by whoever it
//! was taken from: nobody can tell, so nobody keeps what came of it (RFC 9700
//! §4.14.2).

use super::TokenBroker;
use super::audit_events::RequestAudit;
use super::broker::{Broker, issuer_of_origin};
use super::client::Client;
use super::fault::Fault;
use super::flow::Refreshing;
use super::issue::{ACCESS, Issued, MAX_TOKEN, credentials, issued, posted, required, store};
use super::issue::{New, stored, swept};
use super::secret::check_secret;
use super::variable::Facts;
use doorward_core::clock::random_alphanumeric;
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::broker::refresh_token::{self, FAMILY, PresentedRefreshToken, SECRET};
use doorward_core::model::broker::{Refresh, RevocationTarget, StoredTokens, TokenFacts};
use doorward_core::model::grant::TokenHash;

/// A refresh token in force.
struct ActiveRefreshToken<'a> {
    presented: &'a str,
    tokens: StoredTokens,
    /// The family that its successor names.
    family: String,
}

impl TokenBroker {
    pub(super) async fn refresh(
        &self,
        broker: &Broker,
        refreshing: &Refreshing,
        facts: &Facts<'_>,
        audit: &mut RequestAudit<'_>,
    ) -> Result<Issued, Fault> {
        let short = refreshing.issue.short;
        let form = posted(facts, short)?;
        let grant_type = form
            .get("grant_type")
            .ok_or_else(|| Fault::no_grant_type(short))?;
        if grant_type != "refresh_token" {
            return Err(Fault::grant_type(grant_type, short));
        }
        let presented = required(form, "refresh_token", short)?;
        let credentials = credentials(form, &facts.request.headers, short)?;
        let client = self
            .client(broker, &credentials, facts, audit, short)
            .await?;
        check_secret(broker, &client, &credentials, facts, short).await?;
        let bad = || Fault::bad_refresh_token(short);
        let found = find(broker, presented, &credentials.id, audit).await?;
        let found = found.ok_or_else(bad)?;
        let old = &found.tokens;
        if !old.refresh_approved || old.has_ended() || !client.gave(old) {
            return Err(bad());
        }
        if !self.origin_stands(old).await? {
            return Err(bad());
        }
        let now_ms = broker.now_ms();
        let new = replaced(&found, &client, refreshing, now_ms);
        if old.refresh_expires_ms <= now_ms || new.tokens.refresh_expires_ms <= now_ms {
            return Err(Fault::refresh_token_expired(short));
        }
        let mut new = new;
        let scopes = narrowed(&new.tokens.facts.scopes, form.get("scope"));
        new.tokens.facts.scopes = scopes.ok_or_else(|| Fault::bad_scope(short))?;
        if !exchange(broker, &found, &new, now_ms, audit).await? {
            // Somebody was faster with the same token.
            find(broker, presented, &credentials.id, audit).await?;
            return Err(bad());
        }
        Ok(issued(facts, &client, &new))
    }

    /// Whether the provider's token, of which these came, was not revoked there.
    async fn origin_stands(&self, tokens: &StoredTokens) -> Result<bool, Fault> {
        let issuer = issuer_of_origin(tokens, &self.outbound);
        match (issuer, &tokens.facts.origin) {
            (Some(issuer), Some(claims)) => {
                issuer.is_active(claims).await.map_err(|_| Fault::store())
            }
            _ => Ok(true),
        }
    }
}

/// The tokens of this refresh token of an application; `None`: it is not in
/// force. If it was, all that came of it is revoked.
async fn find<'a>(
    broker: &Broker,
    presented: &'a str,
    client_id: &str,
    audit: &mut RequestAudit<'_>,
) -> Result<Option<ActiveRefreshToken<'a>>, Fault> {
    if presented.len() > MAX_TOKEN {
        return Ok(None);
    }
    let shown = PresentedRefreshToken::of(presented);
    let mut all = broker.refreshable(&shown).await.map_err(|e| store(&e))?;
    let is_begun = all.iter().any(|one| one.family == Some(shown.begun));
    // What another application holds is none of this one's business.
    all.retain(|one| one.client_id == client_id);
    let in_force = |one: &StoredTokens| one.refresh == Some(shown.token);
    let Some(at) = all.iter().position(in_force) else {
        for family in all.iter().filter_map(|one| one.family) {
            revoke_reused(broker, family, audit).await?;
        }
        return Ok(None);
    };
    let tokens = all.swap_remove(at);
    let family = match (tokens.family, refresh_token::family_of(presented)) {
        (Some(_), Some(name)) => name.to_owned(),
        // A provider has given it before, and it was replaced then, too.
        _ if is_begun => random_alphanumeric::<FAMILY>(),
        _ => refresh_token::begun(presented),
    };
    Ok(Some(ActiveRefreshToken {
        presented,
        tokens,
        family,
    }))
}

/// Two hold the token: nobody keeps what it gave.
async fn revoke_reused(
    broker: &Broker,
    family: TokenHash,
    audit: &mut RequestAudit<'_>,
) -> Result<(), Fault> {
    audit.because("refresh_token_reuse");
    let event = audit.revoke(Kind::GrantRevoke, "refresh_token_reuse");
    let family = RevocationTarget::Family(family);
    let write = async |audit: Option<&PendingAudit>| broker.revoke_one(&family, true, audit).await;
    let revoked = audit.with(event, write, Option::is_some).await;
    if let Some(tokens) = revoked.map_err(|e| store(&e))? {
        doorward_net::telemetry::warn_limited!(
            client_id = tokens.client_id,
            "refresh token used twice: all that came of it is revoked"
        );
    }
    Ok(())
}

/// Puts the new tokens in the place of the old ones; says whether they were
/// still there.
async fn exchange(
    broker: &Broker,
    found: &ActiveRefreshToken<'_>,
    new: &New,
    now_ms: i64,
    audit: &RequestAudit<'_>,
) -> Result<bool, Fault> {
    let old = &found.tokens;
    let presented = TokenHash::of(found.presented);
    let refresh = Refresh {
        presented,
        found_by: old.family.unwrap_or(presented),
        tokens: new.tokens.clone(),
        now_ms,
    };
    let facts = TokenFacts {
        grant_type: "refresh_token".to_owned(),
        ..new.tokens.facts.clone()
    };
    let event = audit.issue(&facts, old.user());
    let write = async |audit: Option<&PendingAudit>| broker.refresh(old, &refresh, audit).await;
    let done = audit.with(event, write, |done| *done);
    done.await.map_err(|e| store(&e))
}

/// The scopes of refreshed tokens that had `held`; `None`: more is wanted.
///
/// Where there are none a wish means nothing, as at the beginning.
fn narrowed(held: &[String], wanted: Option<&str>) -> Option<Vec<String>> {
    let wanted = wanted.unwrap_or_default();
    if held.is_empty() || wanted.trim().is_empty() {
        return Some(held.to_vec());
    }
    let all = wanted.split_ascii_whitespace();
    if !all.clone().all(|scope| held.iter().any(|one| one == scope)) {
        return None;
    }
    let kept = held
        .iter()
        .filter(|one| all.clone().any(|s| s == one.as_str()));
    Some(kept.cloned().collect())
}

/// What takes the place of tokens that were found.
fn replaced(
    found: &ActiveRefreshToken<'_>,
    client: &Client,
    refreshing: &Refreshing,
    now_ms: i64,
) -> New {
    let (old, issue) = (&found.tokens, &refreshing.issue);
    let access = random_alphanumeric::<ACCESS>();
    let mut about = TokenFacts {
        refresh_count: old.facts.refresh_count + 1,
        begun_ms: old.begun_ms(),
        ..old.facts.clone()
    };
    // What was taken from its products is gone from its old tokens.
    about.scopes.retain(|scope| client.has_scope(scope));
    about.attributes.extend(issue.attributes.clone());
    let mut tokens = stored(issue, issue.life_ms, &old.client_id, about, now_ms);
    tokens.access = TokenHash::of(&access);
    tokens.person.clone_from(&old.person);
    let refresh = if refreshing.reuse {
        tokens.refresh_expires_ms = tokens.refresh_expires_ms.min(old.refresh_expires_ms);
        tokens.facts.refresh_issued_ms = old.facts.refresh_issued_ms;
        tokens.family = old.family;
        found.presented.to_owned()
    } else {
        tokens.family = Some(refresh_token::family(&found.family));
        format!("{}{}", found.family, random_alphanumeric::<SECRET>())
    };
    tokens.refresh = Some(TokenHash::of(&refresh));
    New {
        tokens: swept(tokens),
        access,
        refresh: Some(refresh),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_narrows_scopes_and_never_widens_them() {
        let held = ["READ", "WRITE"].map(str::to_owned);
        let narrow = |wanted| narrowed(&held, wanted).map(|scopes| scopes.join(" "));
        assert_eq!(narrow(None).as_deref(), Some("READ WRITE"));
        assert_eq!(narrow(Some(" ")).as_deref(), Some("READ WRITE"));
        assert_eq!(narrow(Some("WRITE READ")).as_deref(), Some("READ WRITE"));
        assert_eq!(narrow(Some("WRITE WRITE")).as_deref(), Some("WRITE"));
        assert_eq!(narrow(Some("WRITE admin")), None);
        assert_eq!(narrow(Some("read")), None);
        assert_eq!(narrowed(&[], Some("openid")), Some(Vec::new()));
    }
}
