//! Every endpoint of the provider: one row holds all that makes it.

use std::future::Future;
use std::pin::Pin;

use axum::response::Response;
use futures_util::FutureExt as _;
use http::Method;

use super::audit::AuditRule;
use super::cors::Sharing;
use super::error::{OAuthError, ScimError};
use super::{
    Call, account, authenticate, authorize, device, discovery, federation, id_token_info,
    introspect, json_users, logout, operations, pages, par, password_reset, register, revoke, scim,
    serve, sessions, token, tokeninfo, userinfo,
};
use doorward_core::model::audit::Kind;
use doorward_core::openapi::Operation;

/// A family of endpoints that share a path prefix and a shape of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    /// `/oauth2[/realms/…]/…`: OAuth 2.0 and OpenID Connect.
    OAuth2,
    /// `/json[/realms/…]/…`: authentication.
    Json,
    /// `/v1/…` and `/scim/v2/…`: users and groups; the realm is the access
    /// token's, and names have no case.
    V1,
}

impl Surface {
    /// Where the root realm's endpoints are, and what the description calls them.
    pub(super) fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::OAuth2 => ("/oauth2", "oauth2"),
            Self::Json => ("/json", "json"),
            Self::V1 => ("/v1", "scim"),
        }
    }
}

/// What an endpoint's function gives: its response, when that is ready.
type Answer<'a> = Pin<Box<dyn Future<Output = Response> + Send + 'a>>;

/// An endpoint.
pub(super) struct Endpoint {
    /// The family that the endpoint belongs to.
    pub(super) surface: Surface,
    /// The rest of the path after the realm; `{id}` stands for one open part.
    pub(super) path: &'static str,
    pub(super) methods: &'static [Method],
    /// What the description of the provider says of a method.
    pub(super) describe: fn(&str) -> Operation,
    /// Answers a request.
    pub(super) handler: fn(&Call) -> Answer<'_>,
    /// What the end of a request adds to the audit log.
    pub(super) audit: AuditRule,
    /// The origins whose pages may read answers (CORS).
    pub(super) sharing: Sharing,
    /// Whether browsers show the endpoint to people: errors are pages, too.
    pub(super) is_page: bool,
    /// Whether GET does more than show something: it may sign in or out, make a
    /// code or lead to another provider. HEAD asks for nothing of that.
    pub(super) acts_on_get: bool,
    /// Whether the path holds a secret, which no log may have.
    pub(super) has_secret_path: bool,
    /// Whether `_fields` may cut answers down: a protocol's answers are whole.
    pub(super) takes_fields: bool,
}

impl Endpoint {
    const fn audits(self, audit: AuditRule) -> Self {
        Self { audit, ..self }
    }

    const fn refuses(self, kind: Kind) -> Self {
        self.audits(AuditRule::Refusal(kind))
    }

    const fn shared(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    const fn page(self) -> Self {
        Self {
            is_page: true,
            ..self
        }
    }

    const fn acts_on_get(self) -> Self {
        Self {
            acts_on_get: true,
            ..self
        }
    }

    const fn secret_path(self) -> Self {
        Self {
            has_secret_path: true,
            ..self
        }
    }

    const fn whole(self) -> Self {
        Self {
            takes_fields: false,
            ..self
        }
    }
}

const fn on(
    surface: Surface,
    path: &'static str,
    methods: &'static [Method],
    describe: fn(&str) -> Operation,
    handler: fn(&Call) -> Answer<'_>,
) -> Endpoint {
    Endpoint {
        surface,
        path,
        methods,
        describe,
        handler,
        audit: AuditRule::Silent,
        sharing: Sharing::Nobody,
        is_page: false,
        acts_on_get: false,
        has_secret_path: false,
        takes_fields: true,
    }
}

const fn oauth2(
    path: &'static str,
    methods: &'static [Method],
    describe: fn(&str) -> Operation,
    handler: fn(&Call) -> Answer<'_>,
) -> Endpoint {
    on(Surface::OAuth2, path, methods, describe, handler)
}

const fn json(
    path: &'static str,
    methods: &'static [Method],
    describe: fn(&str) -> Operation,
    handler: fn(&Call) -> Answer<'_>,
) -> Endpoint {
    on(Surface::Json, path, methods, describe, handler)
}

const fn v1(
    path: &'static str,
    methods: &'static [Method],
    describe: fn(&str) -> Operation,
    handler: fn(&Call) -> Answer<'_>,
) -> Endpoint {
    on(Surface::V1, path, methods, describe, handler)
}

/// The answer of a function whose errors are those of OAuth 2.0.
fn or_error<'a>(
    answer: impl Future<Output = Result<Response, OAuthError>> + Send + 'a,
) -> Answer<'a> {
    // An `async` block would hold the function's future twice, and move both.
    Box::pin(answer.map(|answer| answer.unwrap_or_else(OAuthError::response)))
}

/// The answer of a function of SCIM.
fn scim_answer<'a>(
    call: &'a Call,
    answer: impl Future<Output = Result<Response, ScimError>> + Send + 'a,
) -> Answer<'a> {
    Box::pin(scim::answer(call, answer))
}

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const BOTH: &[Method] = &[Method::GET, Method::POST];
const RECORD: &[Method] = &[Method::GET, Method::PUT, Method::PATCH, Method::DELETE];
const REGISTER: &[Method] = &[Method::GET, Method::POST, Method::PUT, Method::DELETE];

/// Every endpoint.
#[rustfmt::skip]
pub(super) static ENDPOINTS: &[Endpoint] = &[
    oauth2("access_token", POST, operations::oauth::token, |call| or_error(token::post(call)))
        .audits(AuditRule::Outcome(Kind::TokenIssue)).shared(Sharing::Clients),
    oauth2("tokeninfo", GET, operations::oauth::tokeninfo, |call| or_error(tokeninfo::get(call))).shared(Sharing::Clients),
    oauth2("idtokeninfo", POST, operations::oauth::id_token_info, |call| or_error(id_token_info::post(call))),
    oauth2("introspect", POST, operations::oauth::introspect, |call| or_error(introspect::post(call))).refuses(Kind::ClientRefuse),
    oauth2("token/revoke", POST, operations::oauth::revoke, |call| or_error(revoke::post(call)))
        .refuses(Kind::TokenRevoke).shared(Sharing::Clients),
    oauth2("userinfo", BOTH, operations::oauth::userinfo, |call| or_error(userinfo::answer(call)))
        .refuses(Kind::TokenRefuse).shared(Sharing::Clients),
    oauth2("device/code", POST, operations::oauth::device_code, |call| or_error(device::authorize(call)))
        .refuses(Kind::DeviceBegin).shared(Sharing::Clients),
    oauth2("device/user", BOTH, operations::pages::device, |call| Box::pin(device::page(call)))
        .refuses(Kind::DeviceDecide).page().acts_on_get(),
    oauth2("theme/{id}", GET, operations::pages::theme, |call| Box::pin(async move { serve::theme_file(call) })),
    oauth2("passkey.js", GET, operations::pages::script, |_| Box::pin(async move { pages::passkey_script() })),
    oauth2("account", BOTH, operations::pages::account, |call| Box::pin(account::answer(call)))
        .refuses(Kind::SessionBegin).page().acts_on_get(),
    oauth2("authorize", BOTH, operations::pages::authorize, |call| Box::pin(authorize::answer(call)))
        .refuses(Kind::CodeIssue).page().acts_on_get(),
    oauth2("par", POST, operations::oauth::pushed_request, |call| or_error(par::post(call)))
        .refuses(Kind::ClientRefuse).shared(Sharing::Clients),
    oauth2("authorize/login", BOTH, operations::pages::sign_in, |call| Box::pin(authorize::sign_in(call)))
        .refuses(Kind::SessionBegin).page().acts_on_get(),
    oauth2("federation/{id}", GET, operations::pages::federation, |call| Box::pin(federation::start(call))).page().acts_on_get(),
    oauth2("federation/{id}/callback", BOTH, operations::pages::federation_callback, |call| Box::pin(federation::callback(call)))
        .refuses(Kind::SessionBegin).page().acts_on_get(),
    oauth2("connect/endSession", BOTH, operations::pages::end_session, |call| Box::pin(logout::answer(call)))
        .refuses(Kind::SessionBegin).page().acts_on_get(),
    oauth2("password/forgot", BOTH, operations::pages::forgot, |call| Box::pin(password_reset::forgot(call)))
        .refuses(Kind::PasswordReset).page(),
    oauth2("password/reset", BOTH, operations::pages::reset, |call| Box::pin(password_reset::reset(call)))
        .refuses(Kind::PasswordReset).page(),
    oauth2("connect/register", REGISTER, operations::oauth::register, |call| or_error(register::answer(call)))
        .audits(AuditRule::RefusalOf(register_kind)).shared(Sharing::Registrants),
    oauth2(".well-known/openid-configuration", GET, operations::oauth::metadata, |call| Box::pin(async move { discovery::metadata(call) }))
        .shared(Sharing::Everybody),
    oauth2("connect/jwk_uri", GET, operations::oauth::keys, |call| or_error(discovery::keys(call))).shared(Sharing::Everybody),
    json("authenticate", POST, operations::json::authenticate, |call| Box::pin(authenticate::post(call)))
        .refuses(Kind::SessionBegin).whole(),
    json("sessions", POST, operations::json::sessions, |call| Box::pin(sessions::post(call, None))).refuses(Kind::SessionEnd),
    json("users", POST, operations::json::users, |call| Box::pin(json_users::post(call, None))),
    json("users/{id}", BOTH, operations::json::user, |call| Box::pin(json_users::one(call)))
        .audits(AuditRule::RefusalOf(|method| (method == Method::POST).then_some(Kind::PasswordChange))),
    json("sessions/{id}", POST, operations::json::session, |call| Box::pin(sessions::post(call, Some(call.last_segment()))))
        .refuses(Kind::SessionEnd).secret_path(),
    json("serverinfo/{id}", GET, operations::json::server_info, |call| Box::pin(sessions::server_info(call))),
    v1("users", BOTH, operations::scim::users, |call| scim_answer(call, scim::users::collection(call))).audits(AuditRule::RefusalOf(user_kind)),
    v1("users/.search", POST, operations::scim::users_search, |call| scim_answer(call, scim::users::search(call))).refuses(Kind::TokenRefuse),
    v1("users/{id}", RECORD, operations::scim::user, |call| scim_answer(call, scim::users::one(call, call.last_segment())))
        .audits(AuditRule::RefusalOf(user_kind)),
    v1("groups", BOTH, operations::scim::groups, |call| scim_answer(call, scim::groups::collection(call))).audits(AuditRule::RefusalOf(group_kind)),
    v1("groups/.search", POST, operations::scim::groups_search, |call| scim_answer(call, scim::groups::search(call))).refuses(Kind::TokenRefuse),
    v1("groups/{id}", RECORD, operations::scim::group, |call| scim_answer(call, scim::groups::one(call, call.last_segment())))
        .audits(AuditRule::RefusalOf(group_kind)),
    v1(".search", POST, operations::scim::search, |call| scim_answer(call, scim::search::post(call))).refuses(Kind::TokenRefuse),
    v1("Me", RECORD, operations::scim::me, |call| scim_answer(call, scim::me::answer(call))).audits(AuditRule::RefusalOf(user_kind)),
    v1("Bulk", POST, operations::scim::bulk, |call| scim_answer(call, scim::bulk::post(call))).refuses(Kind::TokenRefuse),
    v1("Schemas", GET, operations::scim::definitions, |call| scim_answer(call, async move { scim::discovery::schemas(call) })),
    v1("Schemas/{id}", GET, operations::scim::definition, |call| scim_answer(call, async move { scim::discovery::schema(call) })),
    v1("ResourceTypes", GET, operations::scim::definitions, |call| scim_answer(call, async move { scim::discovery::resource_types(call) })),
    v1("ResourceTypes/{id}", GET, operations::scim::definition, |call| scim_answer(call, async move { scim::discovery::resource_type(call) })),
    v1("ServiceProviderConfig", GET, operations::scim::definition, |call| scim_answer(call, async move { scim::discovery::provider_config(call) })),
];

/// The event of a refused change to a client that registers itself.
fn register_kind(method: &Method) -> Option<Kind> {
    Some(match method.as_str() {
        "POST" => Kind::ClientCreate,
        "PUT" => Kind::ClientUpdate,
        "DELETE" => Kind::ClientDelete,
        _ => Kind::TokenRefuse,
    })
}

/// The event of a refused request to users.
fn user_kind(method: &Method) -> Option<Kind> {
    Some(match method.as_str() {
        "POST" => Kind::UserCreate,
        "PUT" | "PATCH" => Kind::UserUpdate,
        "DELETE" => Kind::UserDelete,
        _ => Kind::TokenRefuse,
    })
}

/// The event of a refused request to groups.
fn group_kind(method: &Method) -> Option<Kind> {
    Some(match method.as_str() {
        "POST" => Kind::GroupCreate,
        "PUT" | "PATCH" => Kind::GroupUpdate,
        "DELETE" => Kind::GroupDelete,
        _ => Kind::TokenRefuse,
    })
}
