//! `POST /json[/realms/…]/authenticate` (interface 4.4): a session for a user.

mod callback;
mod options;

use axum::response::Response;
use http::header::{CACHE_CONTROL, EXPIRES, PRAGMA};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;

use super::api_version::{Version, version};
use super::context::{Methods, SEVERAL};
use super::error::{Fault, JsonError};
use super::factors::{self, FactorCheck};
use super::forbidden_page::forbidden_page;
use super::login::{LoginError, is_confined, login, settle};
use super::sessions::{self, Upgrade};
use super::sign_in::{self, Proof};
use super::{Call, cookies, respond, rest};
use callback::{Credentials, PendingLogin, SecondFactorAnswer};
use doorward_core::model::user::name_place::NamePlace;
use doorward_core::model::user::{User, name as user_name};
use doorward_net::http::encoded_word;
use options::Options;

/// Versions of the endpoint. 1.x differs in the shape of errors.
const VERSIONS: &[Version] = &[version(1, 2), version(2, 1)];

/// Header names of the credentials: the neutral ones, then the imitated ones.
const PAIRS: [(NamePlace, &str); 2] = [
    (NamePlace::ServiceHeader, "x-service-password"),
    (NamePlace::OpenAmHeader, "x-openam-password"),
];

/// The response to right credentials (interface 2.4).
#[derive(Serialize)]
struct Success<'a> {
    #[serde(rename = "tokenId", skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    #[serde(rename = "successUrl")]
    success_url: &'a str,
    realm: &'a str,
}

/// Answers an authentication request.
pub(super) async fn post(call: &Call) -> Response {
    let chosen = match rest::version(call, VERSIONS) {
        Ok(chosen) => chosen,
        Err(refused) => {
            let mut refused = refused.response();
            never_cached(refused.headers_mut());
            return refused;
        }
    };
    let mut response = match answer(call).await {
        Ok(response) => response,
        Err(error) if chosen.resource.major == 1 => error.response_of_version_1(),
        Err(error) => error.response(),
    };
    never_cached(response.headers_mut());
    chosen.stamp(&mut response, "chf");
    response
}

fn never_cached(headers: &mut HeaderMap) {
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-store, must-revalidate"),
    );
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(EXPIRES, HeaderValue::from_static("0"));
}

async fn answer(call: &Call) -> Result<Response, JsonError> {
    let mut options = Options::of(call)?;
    let mut given = match rest::body(call)? {
        Some(body) => callback::submitted(call, &body, &mut options)?,
        None => from_headers(call)?,
    };
    if given.names().any(|name| is_confined(call, name)) {
        return Ok(forbidden_page());
    }
    if let Some(pending) = &given.pending {
        pending.check(call).await?;
    }
    if given.is_empty()
        && !options.force
        && let Some(response) = signed_in(call, &options).await?
    {
        return Ok(response);
    }
    let mut other = false;
    if let Some(user) = &options.user {
        other = given
            .name
            .as_ref()
            .is_some_and(|name| user_name::key(name.as_str()) != user_name::key(user.as_str()));
        given.name.get_or_insert_with(|| user.clone());
        if is_confined(call, user.as_str()) {
            return Ok(forbidden_page());
        }
    }
    if let Some(second) = &given.second {
        let outcome = by_code(call, second, (&options, given.pending.as_ref())).await;
        return outcome.map_err(|error| with_way_out(call, &options, error));
    }
    let (Some(name), Some(password)) = (&given.name, &given.password) else {
        return callback::ask(call, &given, &options).await;
    };
    let user = if other {
        Err(LoginError::Failed)
    } else {
        login(call, name, password).await
    };
    let outcome = match user {
        Ok(user) => by_password(call, &user, (&options, given.pending.as_ref())).await,
        Err(LoginError::Confined) => return Ok(forbidden_page()),
        Err(error) => Err(refused(error)),
    };
    outcome.map_err(|error| with_way_out(call, &options, error))
}

/// Adds where a user goes who could not sign in, if they asked.
fn with_way_out(call: &Call, options: &Options, error: JsonError) -> JsonError {
    JsonError {
        // The client is to blame, or the user, and not we.
        failure_url: (error.status == StatusCode::UNAUTHORIZED)
            .then(|| options.failure_url(call))
            .flatten(),
        ..error
    }
}

/// What follows for a user who has shown the password: a session, or the
/// question for a second factor, where that is a code.
async fn by_password(
    call: &Call,
    user: &User,
    (options, pending): (&Options, Option<&PendingLogin>),
) -> Result<Response, JsonError> {
    PendingLogin::spend(call, pending).await?;
    let methods = Methods::password();
    if !sign_in::requires_second_factor(call, user, &methods).await? {
        return begin_session(call, user, methods, options).await;
    }
    if factors::has_codes(call, user).await? {
        return callback::ask_code(call, user, options).await;
    }
    let text = "A second factor is needed, and codes are not set up";
    Err(JsonError::new(StatusCode::UNAUTHORIZED, text))
}

/// What follows on the code of the second factor.
async fn by_code(
    call: &Call,
    second: &SecondFactorAnswer,
    (options, pending): (&Options, Option<&PendingLogin>),
) -> Result<Response, JsonError> {
    let failed = || refused(LoginError::Failed);
    let (store, realm) = (&call.state.store, &call.realm);
    let found = store.user(&realm.path, second.user_id).await;
    let user = found.map_err(Fault::from)?.ok_or_else(failed)?;
    settle(&call.state, realm, &user).await?;
    let found = store.user(&realm.path, second.user_id).await;
    let found = found.map_err(Fault::from)?;
    // Nothing may have changed since the password was shown.
    let same = found.filter(|user| user.active && user.version == second.version);
    let user = same.ok_or_else(failed)?;
    match factors::check_code(call, &user, &second.code).await? {
        FactorCheck::Wrong => Err(failed()),
        FactorCheck::Locked => Err(refused(LoginError::Locked)),
        FactorCheck::Right(shown) => {
            PendingLogin::spend(call, pending).await?;
            let mut methods = Methods::password();
            methods.add(shown.words.into_iter().chain([SEVERAL]));
            begin_session(call, &user, methods, options).await
        }
    }
}

fn refused(error: LoginError) -> JsonError {
    let message = match error {
        LoginError::Failed => "Authentication Failed",
        LoginError::Locked => "Your account has been locked.",
        LoginError::Deactivated => "User not Active",
        LoginError::Confined => return rest::forbidden(),
        LoginError::Fault(fault) => return fault.into(),
    };
    JsonError::new(StatusCode::UNAUTHORIZED, message)
}

/// The answer to a caller who has a good session and asks for nothing else.
async fn signed_in(call: &Call, options: &Options) -> Result<Option<Response>, Fault> {
    let wanted = |user: &User| {
        let named = options.user.as_ref();
        named.is_none_or(|name| user_name::key(name.as_str()) == user_name::key(&user.user_name))
    };
    let found = sessions::of_caller(call, options.upgrade.as_deref()).await?;
    let Some((token, _)) = found.filter(|(_, user)| wanted(user)) else {
        return Ok(None);
    };
    // A page's script must not read what its browser keeps from it.
    let from_page = call.headers().contains_key("sec-fetch-site");
    let hidden = from_page && options.upgrade.is_none() && !sessions::is_in_header(call);
    let shown = Some(&*token).filter(|_| !options.no_session && !hidden);
    Ok(Some(success(call, options, shown)))
}

fn success(call: &Call, options: &Options, token: Option<&str>) -> Response {
    let body = Success {
        token_id: token,
        message: options.no_session.then_some("Authentication Successful"),
        success_url: options.success_url(call),
        realm: &call.realm.path,
    };
    respond::json(StatusCode::OK, &body)
}

/// The credentials in the headers. All user names that were sent are kept: the
/// rule for the administrator looks at each.
fn from_headers(call: &Call) -> Result<Credentials, JsonError> {
    let mut given = Credentials::default();
    for (place, password_header) in PAIRS {
        let name_header = place.name();
        let read = |header: &str| {
            let values = call.headers().get_all(header).iter();
            values
                .map(|value| encoded_word::text(value.as_bytes()))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| {
                    let text = format!("{header} is neither UTF-8 nor an encoded word");
                    JsonError::new(StatusCode::BAD_REQUEST, text)
                })
        };
        let (names, passwords) = (read(name_header)?, read(password_header)?);
        if names.len() > 1 || passwords.len() > 1 {
            let text = format!("{name_header} and {password_header} can be sent once");
            return Err(JsonError::new(StatusCode::BAD_REQUEST, text));
        }
        let name = names.into_iter().next().filter(|name| !name.is_empty());
        let name = name.map(|name| place.says(name));
        if given.name.is_none() {
            given.name = name;
            given.password = passwords.into_iter().next();
        } else {
            given.other_name = name;
        }
    }
    Ok(given)
}

async fn begin_session(
    call: &Call,
    user: &User,
    methods: Methods,
    options: &Options,
) -> Result<Response, JsonError> {
    if options.no_session {
        return Ok(success(call, options, None));
    }
    let proof = Proof::now(call, methods);
    let token = sessions::begin_upgrade(call, user, options.upgrade.as_deref(), &proof);
    let token = match token.await? {
        Upgrade::Done(token) => token,
        Upgrade::Outdated => return Err(refused(LoginError::Failed)),
        Upgrade::OtherUser => {
            let text = "The session is another user's";
            return Err(JsonError::new(StatusCode::UNAUTHORIZED, text));
        }
    };
    let mut response = success(call, options, Some(&token));
    sessions::set_cookie(call, &mut response, &token);
    let live = &call.live;
    cookies::set(&mut response, live, sessions::BALANCER, "01");
    Ok(response)
}
