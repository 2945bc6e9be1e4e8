//! What the claims of a verified token have to say.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::config::fields::Fields;
use crate::decide::refusal::Refusal;
use crate::provider::distributed_claims::has_distributed_claims;
use crate::provider::issuers::AllowedIssuers;
use doorward_core::jose::claims::{check_start, check_times, find, place, time, words};

/// Types that an access token may give itself in its header.
const TYPES: &[&str] = &["jwt", "at+jwt"];
/// Types that tell in the claim `typ` of a token that it is another token.
const OTHER_TOKENS: &[&str] = &["ID", "Refresh", "Offline", "Logout"];
/// Claims of ID tokens only.
const HASHES: &[&str] = &["at_hash", "c_hash", "s_hash"];
/// Claims of access tokens only: what they grant, and to whom (RFC 9068 §2.2,
/// and as providers call them).
const OF_ACCESS: &[&str] = &["scope", "scp", "client_id", "cid", "appid", "cnf"];
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The rules of one plugin.
#[derive(Debug)]
pub(crate) struct Rules {
    verify_claims: bool,
    /// Whether ID tokens are taken for access tokens.
    id_tokens: bool,
    leeway: i64,
    max_age: Option<i64>,
    pub(crate) issuers: AllowedIssuers,
    domains: Vec<String>,
    audience: Required,
    /// Of `audience`, which also says for whom tokens are asked.
    meant_for: Required,
    scopes: Required,
    groups: Required,
    roles: Required,
    forbidden: Vec<String>,
    /// Tokens name no consumer groups, so a rule that asks for one is not met.
    needs_group: bool,
    /// Whether claims that are told elsewhere are asked for: what depends on
    /// them is checked when they are known.
    distributed: bool,
}

/// A claim that has to hold some words: one of `items`, and of that item all.
#[derive(Debug)]
struct Required {
    claim: Vec<String>,
    items: Vec<Vec<String>>,
    refusal: Refusal,
}

impl Rules {
    pub(crate) fn new(fields: &Fields) -> Self {
        let groups = !fields.claims.consumer_groups_claim.is_empty();
        let meant_for = fields.client.audience.iter();
        Self {
            verify_claims: fields.checks.verify_claims,
            id_tokens: fields.client.bearer_id_tokens,
            leeway: fields.checks.leeway.0,
            max_age: fields.claims.max_age.map(|age| age.0),
            issuers: AllowedIssuers::new(fields),
            domains: fields.claims.domains.to_vec(),
            audience: Required::new(
                &fields.subject.audience_claim,
                &fields.claims.audience_required,
                Refusal::WrongAudience,
            ),
            meant_for: Required {
                claim: fields.subject.audience_claim.to_vec(),
                items: meant_for.map(|one| vec![one.clone()]).collect(),
                refusal: Refusal::WrongAudience,
            },
            scopes: Required::new(
                &fields.subject.scopes_claim,
                &fields.claims.scopes_required,
                Refusal::MissingScope,
            ),
            groups: Required::new(
                &fields.claims.groups_claim,
                &fields.claims.groups_required,
                Refusal::MissingGroup,
            ),
            roles: Required::new(
                &fields.claims.roles_claim,
                &fields.claims.roles_required,
                Refusal::MissingRole,
            ),
            forbidden: fields.claims.claims_forbidden.to_vec(),
            needs_group: groups && !fields.claims.consumer_groups_optional,
            distributed: fields.claims.resolve_distributed_claims,
        }
    }

    /// Checks the claims of a token of the provider `issuer` at `now` and
    /// gives the second from which it must no longer pass, if there is one.
    ///
    /// What makes a token invalid comes first, what it may do afterwards.
    pub(crate) fn check(
        &self,
        typ: Option<&str>,
        claims: &Map<String, Value>,
        issuer: &str,
        now: i64,
    ) -> Result<Option<i64>, Refusal> {
        let of_login = !self.id_tokens && is_of_login(typ, claims);
        if of_login || !is_access_token(typ, claims, self.id_tokens) {
            return Err(Refusal::WrongType);
        }
        let mut end = None;
        if self.verify_claims {
            self.check_issuer(claims, issuer)?;
            end = Some(check_times(claims, now, self.leeway)?);
        }
        let too_old = self.login_ends(claims, now)?;
        self.meant_for.check(claims)?;
        self.check_known_permissions(claims)?;
        Ok(end.into_iter().chain(too_old).min())
    }

    /// Checks what the tokens of a login say of it together at `now`, the ID token
    /// above all: an access token may leave out when and of which domain the user
    /// signed in, a login may not.
    pub(crate) fn check_login(&self, claims: &Map<String, Value>, now: i64) -> Result<(), Refusal> {
        if self.max_age.is_some() && self.login_ends(claims, now)?.is_none() {
            return Err(Refusal::LoginTooOld);
        }
        self.require_domain(claims)
    }

    /// As [`Self::check_login`], of what was shown in place of a login: when that was
    /// counts where it is told.
    pub(crate) fn check_age(&self, claims: &Map<String, Value>, now: i64) -> Result<(), Refusal> {
        self.login_ends(claims, now).map(drop)
    }

    /// Checks of which domain the user is, by all that is known of them.
    pub(crate) fn require_domain(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        if !self.domains.is_empty() && !claims.contains_key("hd") {
            return Err(Refusal::WrongDomain);
        }
        self.check_domain(claims)
    }

    /// As [`Self::check_introspected`], of what came beside an opaque token of which
    /// nothing is told: for whom that is meant nobody but who asked can say.
    pub(crate) fn check_opaque(
        &self,
        claims: &Map<String, Value>,
        issuer: &str,
        now: i64,
    ) -> Result<Option<i64>, Refusal> {
        let end = self.check_said(claims, issuer, now)?;
        let too_old = self.login_ends(claims, now)?;
        self.check_known_permissions(claims)?;
        Ok(end.into_iter().chain(too_old).min())
    }

    /// As [`Self::check`], of claims that the provider itself has told: what
    /// they leave out is not held against the token. `all`: these, and what the
    /// token says itself where they say nothing.
    pub(crate) fn check_introspected(
        &self,
        told: &Map<String, Value>,
        all: &Map<String, Value>,
        issuer: &str,
        now: i64,
    ) -> Result<Option<i64>, Refusal> {
        let end = self.check_said(told, issuer, now)?;
        let too_old = self.login_ends(all, now)?;
        // Userinfo never says for whom a token is, introspection need not.
        if find(all, &self.meant_for.claim).is_some() {
            self.meant_for.check(all)?;
        }
        self.check_known_permissions(all)?;
        Ok(end.into_iter().chain(too_old).min())
    }

    /// When a token with these claims ends, in seconds, if they say so.
    pub(crate) fn end_of(&self, claims: &Map<String, Value>) -> Option<i64> {
        let end = time(claims, "exp").ok().flatten();
        end.map(|end| end.saturating_add(self.leeway))
    }

    /// Of which kind a token is, whose, and until when, by what is said of it.
    fn check_said(
        &self,
        claims: &Map<String, Value>,
        issuer: &str,
        now: i64,
    ) -> Result<Option<i64>, Refusal> {
        if !is_access_token(None, claims, self.id_tokens) || is_told_another(claims) {
            return Err(Refusal::WrongType);
        }
        let end = time(claims, "exp")?.map(|end| end.saturating_add(self.leeway));
        if !self.verify_claims {
            return Ok(end);
        }
        if claims.contains_key("iss") {
            self.check_issuer(claims, issuer)?;
        }
        match end {
            Some(_) => Ok(Some(check_times(claims, now, self.leeway)?)),
            None => {
                check_start(claims, now, self.leeway)?;
                Ok(None)
            }
        }
    }

    /// Whether something about these claims has still to be asked for.
    pub(crate) fn are_pending(&self, claims: &Map<String, Value>) -> bool {
        self.distributed && has_distributed_claims(claims)
    }

    fn check_known_permissions(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        if self.are_pending(claims) {
            Ok(())
        } else {
            self.check_permissions(claims)
        }
    }

    fn check_issuer(&self, claims: &Map<String, Value>, issuer: &str) -> Result<(), Refusal> {
        let allowed = self.issuers.fit(claims, issuer);
        allowed.then_some(()).ok_or(Refusal::WrongIssuer)
    }

    /// From when on the login is too old, if these claims tell when it was.
    ///
    /// # Errors
    /// [`Refusal::LoginTooOld`]: it is at `now`.
    fn login_ends(&self, claims: &Map<String, Value>, now: i64) -> Result<Option<i64>, Refusal> {
        let Some(max_age) = self.max_age.filter(|_| claims.contains_key("auth_time")) else {
            return Ok(None);
        };
        let login = time(claims, "auth_time")?.ok_or(Refusal::LoginTooOld)?;
        let age = max_age.saturating_add(self.leeway).saturating_add(1);
        let too_old = login.saturating_add(age);
        if now < too_old {
            Ok(Some(too_old))
        } else {
            Err(Refusal::LoginTooOld)
        }
    }

    /// The domain of the user, if these claims tell it.
    fn check_domain(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let Some(domain) = claims.get("hd").filter(|_| !self.domains.is_empty()) else {
            return Ok(());
        };
        let known = domain.as_str().is_some_and(|domain| {
            let same = |allowed: &String| allowed.eq_ignore_ascii_case(domain);
            self.domains.iter().any(same)
        });
        known.then_some(()).ok_or(Refusal::WrongDomain)
    }

    /// What a token may do, by all of its claims. For whom it is meant is none of
    /// those that are told elsewhere.
    pub(crate) fn check_permissions(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        self.check_domain(claims)?;
        for rule in [&self.audience, &self.scopes, &self.groups, &self.roles] {
            rule.check(claims)?;
        }
        if self.forbidden.iter().any(|name| claims.contains_key(name)) {
            return Err(Refusal::ForbiddenClaim);
        }
        if self.needs_group {
            Err(Refusal::NoConsumer)
        } else {
            Ok(())
        }
    }

    /// Notes the scopes that were granted with a token that does not tell them, also
    /// where they are looked for if nothing is there.
    pub(crate) fn grant(&self, scope: &str, claims: &mut Map<String, Value>) {
        claims.insert("scope".to_owned(), Value::from(scope));
        place(claims, &self.scopes.claim, Value::from(scope));
    }

    /// Names of the scopes that a token grants.
    pub(crate) fn scopes(&self, claims: &Map<String, Value>) -> Vec<String> {
        let claim = find(claims, &self.scopes.claim);
        let names = claim.map(words).unwrap_or_default();
        names.into_iter().map(Cow::into_owned).collect()
    }

    /// Scopes that would do, for the `scope` of a challenge.
    pub(crate) fn scopes_wanted(&self) -> Option<String> {
        self.scopes.items.first().map(|item| item.join(" "))
    }
}

impl Required {
    fn new(claim: &[String], items: &[String], refusal: Refusal) -> Self {
        let split = |item: &String| item.split_whitespace().map(str::to_owned).collect();
        Self {
            claim: claim.to_vec(),
            items: items.iter().map(split).collect(),
            refusal,
        }
    }

    fn check(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        if self.items.is_empty() {
            return Ok(());
        }
        let held = find(claims, &self.claim).map(words).unwrap_or_default();
        let holds = |word: &String| held.iter().any(|one| one == word);
        // An empty item would be met by every token: it never is.
        let met = |item: &Vec<String>| !item.is_empty() && item.iter().all(holds);
        if self.items.iter().any(met) {
            Ok(())
        } else {
            Err(self.refusal)
        }
    }
}

/// Whether nothing says that this is an ID token, refresh token or the like
/// (RFC 8725 §3.11): each issuer marks them in its own way, or not at all.
pub fn is_access_token(typ: Option<&str>, claims: &Map<String, Value>, id_tokens: bool) -> bool {
    let named = claims
        .get("tokenName")
        .is_none_or(|name| name == "access_token" || (id_tokens && name == "id_token"));
    let other = |value: &Value| {
        let kind = OTHER_TOKENS.iter().find(|typ| value == **typ);
        kind.is_some_and(|kind| !(id_tokens && *kind == "ID"))
    };
    let logout = |events: &Value| events.get(LOGOUT_EVENT).is_some();
    // Only ID tokens vouch for what was issued with them (OpenID Connect Core
    // §3.1.3.6, §3.3.2.11), unless the header says what it is (RFC 9068).
    let vouches = typ != Some("at+jwt") && HASHES.iter().any(|name| claims.contains_key(*name));
    typ.is_none_or(|typ| TYPES.contains(&typ))
        && named
        && !claims.get("typ").is_some_and(other)
        && !claims.get("events").is_some_and(logout)
        && (id_tokens || !vouches)
}

/// Whether a token is surely the ID token of a login although nothing names it
/// so: it repeats the nonce of a request, which is for ID tokens (OpenID Connect
/// Core §2), and nothing that providers put into access tokens alone. Some put
/// the nonce into these as well.
pub fn is_of_login(typ: Option<&str>, claims: &Map<String, Value>) -> bool {
    let is = |name: &str, value: &str| {
        let said = claims.get(name).and_then(Value::as_str);
        said.is_some_and(|said| said.eq_ignore_ascii_case(value))
    };
    let names_itself = typ == Some("at+jwt")
        || is("typ", "Bearer")
        || is("token_type", "Bearer")
        || is("token_use", "access")
        || is("tokenName", "access_token");
    let grants = OF_ACCESS.iter().any(|name| claims.contains_key(*name));
    is("token_use", "id") || (claims.contains_key("nonce") && !names_itself && !grants)
}

/// Whether a provider that answers with 200 says all the same that a token is not
/// good: by an `error`, or by an `active` other than true.
pub fn denies(claims: &Map<String, Value>) -> bool {
    let active = claims.get("active");
    claims.contains_key("error") || active.is_some_and(|active| active != &Value::Bool(true))
}

/// Whether the provider, which may know tokens of every kind, says that this is
/// one of another kind.
fn is_told_another(claims: &Map<String, Value>) -> bool {
    let kinds = ["token_type", "token_use"];
    let mut kinds = kinds.iter().filter_map(|name| claims.get(*name)?.as_str());
    kinds.any(|kind| {
        let others = ["refresh_token", "id_token", "refresh", "id"];
        others.iter().any(|other| kind.eq_ignore_ascii_case(other))
    })
}

#[cfg(test)]
mod tests;
