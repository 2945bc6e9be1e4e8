//! Reading an authorization request (RFC 6749 §4.1.1, OpenID Connect Core
//! §3.1.2.1), in the order that says who may be told what is wrong.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::authorization_response::{AuthorizationError, Mode, RequestError, ResponseTarget};
use super::claims::ClaimsRequest;
use super::params::Params;
use super::redirect_uri::is_registered;
use super::resolve::ResolvedRequest;
use super::wanted_users::WantedUsers;
use crate::clients::LiveClient;
use crate::config::UnknownScope;
use crate::context::Demand;
use crate::error::OAuthError;
use crate::token::{others_than_offline, scopes_for, without_offline};
use crate::{Call, audit, consent_entry, resource};
use doorward_core::model::authorization::{Challenge, ChallengeMethod, StoredRequest};

/// What the client wants to be given: `response_type`, a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseTypes {
    pub(super) code: bool,
    pub(super) id_token: bool,
    pub(super) token: bool,
}

impl ResponseTypes {
    /// The set that these words name, in any order.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut response_types = Self::default();
        for word in text.split(' ') {
            let slot = match word {
                "code" => &mut response_types.code,
                "id_token" => &mut response_types.id_token,
                "token" => &mut response_types.token,
                _ => return None,
            };
            if std::mem::replace(slot, true) {
                return None;
            }
        }
        Some(response_types)
    }

    fn only_code(self) -> bool {
        !self.id_token && !self.token
    }

    /// Whether the client may ask for it: a code if it may exchange codes,
    /// anything else only as registered.
    fn is_allowed(self, client: &LiveClient) -> bool {
        let types = &client.client.metadata.response_types;
        let registered = types.iter().any(|text| Self::parse(text) == Some(self));
        registered || (self.only_code() && types.is_empty())
    }
}

/// `prompt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) none: bool,
    pub(super) login: bool,
    pub(super) consent: bool,
}

/// An authorization request that can be granted, if its user agrees.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: Arc<LiveClient>,
    pub(super) target: ResponseTarget,
    /// Whether the request named the redirect URI.
    pub(super) named_uri: bool,
    pub(super) response_types: ResponseTypes,
    pub(super) scopes: Vec<String>,
    /// What the user has to agree to: the scopes, and those of single claims; at
    /// the resources, if there are any.
    pub(super) consent_scopes: Vec<String>,
    pub(super) nonce: Option<String>,
    pub(super) challenge: Option<Challenge>,
    pub(super) prompt: Prompt,
    /// In seconds.
    pub(super) max_age: Option<i64>,
    /// The name to sign in with, as far as the request says it itself.
    pub(super) login_hint: Option<String>,
    /// Whom the client will have.
    pub(super) users: WantedUsers,
    pub(super) claims: ClaimsRequest,
    /// How the user has to have signed in.
    pub(super) demand: Demand,
    /// Whom access tokens shall be for; none: the client.
    pub(super) resources: Vec<String>,
    /// The key that must be proven to exchange the code.
    pub(super) dpop_jkt: Option<String>,
    /// The request, as an address carries it.
    pub(super) query: String,
    /// Its parameters, wherever they were.
    pub(super) parameters: Vec<(String, String)>,
    /// The record with them, if we keep them.
    pub(super) kept: Option<StoredRequest>,
    /// Whether they came in a request object.
    pub(super) object: bool,
}

impl Request {
    /// The same for these of its scopes alone, and without the claims of others: a wish
    /// gives nothing that the scopes would not.
    pub(super) fn confined_to(&self, permitted: Vec<String>) -> Self {
        let mut confined = self.clone();
        confined.scopes.retain(|scope| permitted.contains(scope));
        confined.claims.confine(&permitted);
        confined.consent_scopes = permitted;
        confined
    }

    /// What the user is told of the request: scopes, then resources.
    pub(super) fn shown(&self) -> Vec<String> {
        consent_entry::lines(&self.consent_scopes, &self.resources)
    }

    /// What the store keeps of a consent to the request.
    pub(super) fn consent_entries(&self) -> Vec<String> {
        consent_entry::entries(&self.consent_scopes, &self.resources)
    }

    /// Whether the answer can reach no program but the client's own, or is of no
    /// use to another one.
    ///
    /// Any program of a device can claim a private-use scheme or a loopback port
    /// and the identifier of a public client (RFC 8252 §8.6). An https address is
    /// its owner's alone, and a code of a confidential client needs its secret.
    pub(super) fn assures_client(&self) -> bool {
        let redirect = url::Url::parse(&self.target.redirect_uri);
        let is_claimed = redirect.is_ok_and(|uri| uri.scheme() == "https");
        is_claimed || (self.response_types.only_code() && !self.client.client.is_public())
    }
}

/// Checks the request.
pub(super) async fn read(call: &Call, resolved: ResolvedRequest) -> Result<Request, RequestError> {
    let ResolvedRequest {
        client,
        params,
        kept,
        object,
    } = resolved;
    audit::client(&client, false);
    let (mut target, response_types, named_uri) =
        response_target(call, &client, &params).map_err(RequestError::Local)?;
    match checked(call, &params, &client, &mut target, response_types).await {
        Ok(request) => Ok(Request {
            named_uri,
            kept,
            object,
            ..request
        }),
        Err(error) => Err(RequestError::Redirect(Box::new(target), error)),
    }
}

/// Tells the client, if these parameters say where it may be told.
pub(super) fn refused(
    call: &Call,
    client: &LiveClient,
    params: &Params,
    error: AuthorizationError,
) -> RequestError {
    match response_target(call, client, params) {
        Ok((mut target, ..)) => {
            // An unknown mode is not what is wrong here.
            let _: Result<(), AuthorizationError> = choose_mode(params, &mut target);
            RequestError::Redirect(Box::new(target), error)
        }
        Err(_) => RequestError::Local(OAuthError::bad(error.error, error.description)),
    }
}

/// Where the answer goes, what the client wants to be given, and whether the
/// request named the redirect URI.
fn response_target(
    call: &Call,
    client: &LiveClient,
    params: &Params,
) -> Result<(ResponseTarget, Option<ResponseTypes>, bool), OAuthError> {
    let (redirect_uri, named_uri) = redirect_uri(client, params)?;
    let response_types = params.get("response_type").and_then(ResponseTypes::parse);
    let mut target = ResponseTarget {
        redirect_uri,
        mode: match response_types {
            Some(response_types) if !response_types.only_code() => Mode::Fragment,
            _ => Mode::Query,
        },
        state: params.get("state").map(str::to_owned),
        frame: call.frame(params.get("ui_locales")),
    };
    target.frame = target.frame.clone().leading_to(&target.redirect_uri);
    Ok((target, response_types, named_uri))
}

/// The redirect URI, and whether the request named it.
fn redirect_uri(client: &LiveClient, params: &Params) -> Result<(String, bool), OAuthError> {
    let registered = &client.client.metadata.redirect_uris;
    let wrong = |text: &str| Err(OAuthError::bad("redirect_uri_mismatch", text));
    let is_openid = params
        .get("scope")
        .is_some_and(|scope| scope.split(' ').any(|scope| scope == "openid"));
    match (params.get("redirect_uri"), registered.as_slice()) {
        (Some(asked), _) if is_registered(asked, registered) => Ok((asked.to_owned(), true)),
        (Some(_), _) => {
            wrong("The redirection URI provided does not match a pre-registered value.")
        }
        (None, [only]) if !is_openid => Ok((only.clone(), false)),
        (None, _) => Err(OAuthError::bad(
            "invalid_request",
            "Missing parameter, 'redirect_uri'",
        )),
    }
}

/// What the client can be told is wrong.
async fn checked(
    call: &Call,
    params: &Params,
    client: &Arc<LiveClient>,
    target: &mut ResponseTarget,
    response_types: Option<ResponseTypes>,
) -> Result<Request, AuthorizationError> {
    let response_types = response_type(params, client, target, response_types)?;
    not_supported(params)?;
    let scopes = scopes(call, params, client, response_types)?;
    let is_openid = scopes.iter().any(|scope| scope == "openid");
    if response_types.id_token && !is_openid {
        let text = "Missing expected scope=openid from request";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    let nonce = params.get("nonce").map(str::to_owned);
    if response_types.id_token && nonce.is_none() {
        let text = "Missing required parameter nonce from request";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    let challenge = challenge(call, params, client, response_types)?;
    let prompt = prompt(params)?;
    let mut wanted = match params.get("claims") {
        Some(text) => ClaimsRequest::parse(text).ok_or_else(|| {
            AuthorizationError::new("invalid_request", "Malformed parameter, claims")
        })?,
        None => ClaimsRequest::default(),
    };
    let demand = demand(call, params, client, &wanted)?;
    wanted.confine(&client.scopes);
    let resources = resources(call, params, client)?;
    let mut consent_scopes = scopes.clone();
    for one in wanted.scopes() {
        if !consent_scopes.iter().any(|known| known == one) {
            consent_scopes.push(one.to_owned());
        }
    }
    let max_age = params.get("max_age").map(str::parse::<u32>).transpose();
    let max_age = max_age
        .map_err(|_| AuthorizationError::new("invalid_request", "Malformed parameter, max_age"))?;
    let dpop_jkt = params.get("dpop_jkt");
    if !dpop_jkt.is_none_or(is_digest) {
        // No proof could ever be of that key (RFC 9449 §10).
        let text = "Malformed parameter, dpop_jkt";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    let users = WantedUsers::of(call, params, client, &wanted).await?;
    let login_hint = params.get("login_hint").map(str::to_owned);
    Ok(Request {
        client: Arc::clone(client),
        target: target.clone(),
        named_uri: true,
        response_types,
        scopes,
        consent_scopes,
        nonce,
        challenge,
        prompt,
        max_age: max_age
            .or(client.client.metadata.default_max_age)
            .map(i64::from),
        login_hint: login_hint.or_else(|| users.said().map(str::to_owned)),
        users,
        claims: wanted,
        demand,
        resources,
        dpop_jkt: dpop_jkt.map(str::to_owned),
        query: params.carried().to_owned(),
        parameters: params.request().to_vec(),
        kept: None,
        object: false,
    })
}

/// How the user has to have signed in: as the client's record says, and what the
/// request adds (OpenID Connect Core §3.1.2.1, §5.5.1.1).
fn demand(
    call: &Call,
    params: &Params,
    client: &LiveClient,
    wanted: &ClaimsRequest,
) -> Result<Demand, AuthorizationError> {
    let settings = &call.realm.settings;
    let metadata = &client.client.metadata;
    let demand = Demand::second_factor(metadata.require_second_factor == Some(true));
    let (classes, essential) = wanted.classes();
    if essential {
        return demand.insist(settings, classes).map_err(|_| UNMET);
    }
    let asked = params.get("acr_values").unwrap_or_default().split(' ');
    let asked = classes
        .into_iter()
        .chain(asked.filter(|one| !one.is_empty()));
    let mut asked: Vec<_> = asked.take(ACR_VALUES_MAX).collect();
    if asked.is_empty() {
        let usual = metadata.default_acr_values.iter();
        asked.extend(usual.map(String::as_str).take(ACR_VALUES_MAX));
    }
    Ok(demand.wish(settings, asked))
}

/// Most classes of authentication that are looked at in a request.
const ACR_VALUES_MAX: usize = 50;

/// What was insisted on can't be had (OpenID Connect Unmet Authentication
/// Requirements 1.0 §2).
pub(super) const UNMET: AuthorizationError = AuthorizationError::new(
    "unmet_authentication_requirements",
    "The class of authentication is not available",
);

fn response_type(
    params: &Params,
    client: &LiveClient,
    target: &mut ResponseTarget,
    response_types: Option<ResponseTypes>,
) -> Result<ResponseTypes, AuthorizationError> {
    choose_mode(params, target)?;
    if params.get("response_type").is_none() {
        let text = "Missing parameter, response_type";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    let Some(response_types) = response_types else {
        let text = "Response type is not supported.";
        return Err(AuthorizationError::new("unsupported_response_type", text));
    };
    if !response_types.is_allowed(client) {
        let text = "Client does not support this response type.";
        return Err(AuthorizationError::new("unsupported_response_type", text));
    }
    if response_types.code && !client.may("authorization_code") {
        let text = "The client is not authorized to use this authorization grant type.";
        return Err(AuthorizationError::new("unauthorized_client", text));
    }
    if response_types.token && client.must_prove_possession() {
        let text = "The access tokens of the client are bound to keys";
        return Err(AuthorizationError::new("unauthorized_client", text));
    }
    Ok(response_types)
}

/// How the answer travels, if the request says.
fn choose_mode(params: &Params, target: &mut ResponseTarget) -> Result<(), AuthorizationError> {
    let Some(name) = params.get("response_mode") else {
        return Ok(());
    };
    match Mode::parse(name) {
        Some(mode) if !(mode == Mode::Query && target.mode == Mode::Fragment) => {
            target.mode = mode;
            Ok(())
        }
        _ => {
            let text = "The response_mode is unknown or unfit for the response_type";
            Err(AuthorizationError::new("invalid_request", text))
        }
    }
}

/// To ignore it would be to grant something else than was asked for.
fn not_supported(params: &Params) -> Result<(), AuthorizationError> {
    match params.get("registration") {
        Some(_) => Err(AuthorizationError::new(
            "registration_not_supported",
            "The parameter registration is not supported",
        )),
        None => Ok(()),
    }
}

/// The scopes to ask the user for. A client that may not ask for `openid` is told
/// so, whatever becomes of other scopes; lasting access is for codes alone
/// (OpenID Connect Core §11).
fn scopes(
    call: &Call,
    params: &Params,
    client: &LiveClient,
    response_types: ResponseTypes,
) -> Result<Vec<String>, AuthorizationError> {
    let asked = params
        .get("scope")
        .map(|asked| without_offline(call, client, asked));
    let asked = asked.as_deref();
    let invalid = || AuthorizationError::new("invalid_scope", "Unknown or invalid scope, or none");
    let is_openid = |scopes: &str| scopes.split(' ').any(|scope| scope == "openid");
    let asks_openid = asked.is_some_and(is_openid);
    if asks_openid && !client.scopes.iter().any(|scope| scope == "openid") {
        return Err(invalid());
    }
    // OpenID Connect Core §3.1.2.1.
    let by_default = if asks_openid {
        UnknownScope::Ignore
    } else {
        UnknownScope::Refuse
    };
    let scopes = scopes_for(call, client, asked, by_default);
    let mut scopes = scopes.map_err(|_| invalid())?;
    if !response_types.code || !client.gets_refresh_tokens(&call.realm) {
        // Nothing would last but the access token, past the end of its session.
        scopes = others_than_offline(scopes).ok_or_else(invalid)?;
    }
    Ok(scopes)
}

/// The resources that the request names (RFC 8707 §2.1).
fn resources(
    call: &Call,
    params: &Params,
    client: &LiveClient,
) -> Result<Vec<String>, AuthorizationError> {
    let invalid = AuthorizationError::new(
        "invalid_target",
        "The requested resource is invalid or unknown",
    );
    resource::registered(params.all("resource"), client, &call.realm).map_err(|_| invalid)
}

/// The code challenge. Public clients must have one; a method that is not
/// named means `plain` (RFC 7636 §4.3).
fn challenge(
    call: &Call,
    params: &Params,
    client: &LiveClient,
    response_types: ResponseTypes,
) -> Result<Option<Challenge>, AuthorizationError> {
    let wrong = |text| Err(AuthorizationError::new("invalid_request", text));
    let method = params.get("code_challenge_method");
    let Some(value) = params.get("code_challenge") else {
        let required = client.must_challenge();
        return match method {
            Some(_) => wrong("Missing parameter, code_challenge"),
            None if response_types.code && required => wrong("Missing parameter, code_challenge"),
            None => Ok(None),
        };
    };
    let method = match method {
        Some("S256") => ChallengeMethod::S256,
        Some("plain") | None if client.may_challenge_plainly(&call.realm) => ChallengeMethod::Plain,
        _ => return wrong("The code_challenge_method must be S256"),
    };
    if !is_challenge(method, value) {
        return wrong("Malformed parameter, code_challenge");
    }
    Ok(Some(Challenge {
        method,
        value: value.to_owned(),
    }))
}

/// Whether this can be a code verifier (RFC 7636 §4.1).
pub(crate) fn is_unreserved(text: &str) -> bool {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (43..=128).contains(&text.len()) && text.bytes().all(unreserved)
}

/// Whether a verifier can have this challenge (RFC 7636 §4.2): a code with another one
/// could never be exchanged.
pub(crate) fn is_challenge(method: ChallengeMethod, value: &str) -> bool {
    match method {
        ChallengeMethod::S256 => is_digest(value),
        ChallengeMethod::Plain => is_unreserved(value),
    }
}

/// Whether `text` may be a SHA-256 digest in base64url, as challenges (RFC 7636 §4.2)
/// and thumbprints of keys (RFC 7638 §3) are.
fn is_digest(text: &str) -> bool {
    let digest = URL_SAFE_NO_PAD.decode(text);
    digest.is_ok_and(|digest| digest.len() == 32)
}

fn prompt(params: &Params) -> Result<Prompt, AuthorizationError> {
    let mut prompt = Prompt::default();
    let words = params.get("prompt").unwrap_or_default();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        match word {
            "none" => prompt.none = true,
            // Another account is chosen by signing in with it.
            "login" | "select_account" => prompt.login = true,
            "consent" => prompt.consent = true,
            _ => return Err(AuthorizationError::new("invalid_request", "Unknown prompt")),
        }
    }
    if prompt.none && (prompt.login || prompt.consent) {
        let text = "The prompt none excludes all others";
        return Err(AuthorizationError::new("invalid_request", text));
    }
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_that_no_verifier_has_is_refused() {
        // That of RFC 7636, appendix B.
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert!(is_challenge(ChallengeMethod::S256, challenge));
        for bad in [
            &challenge[1..],
            &format!("{challenge}="),
            &format!("{challenge}A"),
            &"a".repeat(43),
            &"a".repeat(128),
            &challenge.replace('-', "."),
            &challenge.replace('-', "+"),
        ] {
            assert!(!is_challenge(ChallengeMethod::S256, bad), "{bad}");
        }
        assert!(is_challenge(ChallengeMethod::Plain, &"a".repeat(128)));
        assert!(!is_challenge(ChallengeMethod::Plain, &"a".repeat(129)));
    }

    #[test]
    fn a_response_type_is_a_set() {
        assert_eq!(
            ResponseTypes::parse("code id_token"),
            ResponseTypes::parse("id_token code")
        );
        for bad in [
            "",
            "code code",
            "code  id_token",
            "Code",
            "none",
            "code,token",
        ] {
            assert_eq!(ResponseTypes::parse(bad), None, "{bad}");
        }
    }
}
