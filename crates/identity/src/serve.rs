//! From a request to its endpoint.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_LENGTH, ORIGIN};
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::endpoints::{ENDPOINTS, Endpoint, Surface};
use super::error::{JsonError, OAuthError, ScimError, allow, printable, wrong_method};
use super::form::Form;
use super::json_view::JsonView;
use super::pages::{self, Frame};
use super::realm::{Live, Realm, realm_of_path};
use super::request_path::below_base;
use super::{Call, RealmSource, State, audit, cors, hosts, scim};
use doorward_net::http::bridge::SecretPath;

/// Longest body, in bytes.
const BODY_MAX: usize = 64 * 1024;

/// Why a request reached no endpoint.
enum RoutingError {
    /// No such path.
    Path,
    /// No such realm.
    Realm {
        /// Its path.
        path: String,
        /// Whether the query names it, and not the path.
        by_query: bool,
    },
    /// The endpoint has other methods.
    Method(&'static [Method]),
    /// The body is longer than [`BODY_MAX`].
    TooLong,
    /// The body broke off.
    Body,
}

/// Answers any request.
pub(super) async fn serve(Shared(state): Shared<Arc<State>>, request: Request) -> Response {
    let live = state.live.load_full();
    let head = request.method() == Method::HEAD;
    let uri = request.uri().clone();
    let path = below_base(&live.base_path, uri.path());
    let cors_request = cors_request(&live, &path, &request);
    let response = match &cors_request {
        None => on_realm(&state, &live, &path, request).await,
        Some(cors_request) => match cors_request.preflight(&state).await {
            Some(response) => response,
            None => {
                let mut response = on_realm(&state, &live, &path, request).await;
                cors_request.share(&state, &mut response).await;
                response
            }
        },
    };
    if head {
        without_body(response).await
    } else {
        response
    }
}

/// What pages of other origins are to be let read of the answer.
fn cors_request(live: &Live, path: &str, request: &Request) -> Option<cors::CorsRequest> {
    let origin = request.headers().get(ORIGIN)?;
    let (surface, rest) = surface(path)?;
    if surface != Surface::OAuth2 {
        return None;
    }
    let (realm, endpoint) = endpoint(surface, rest)?;
    let realm = || resolve(live, surface, realm, request).ok();
    cors::CorsRequest::of(request, origin, (endpoint.sharing, endpoint.methods), realm)
}

/// A HEAD request gets the header fields of GET (RFC 9110 §9.3.2).
async fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Ok(body) = body.collect().await {
        let length = HeaderValue::from(body.to_bytes().len());
        parts.headers.insert(CONTENT_LENGTH, length);
    }
    Response::from_parts(parts, Body::empty())
}

async fn on_realm(state: &Arc<State>, live: &Arc<Live>, path: &str, request: Request) -> Response {
    let Some((surface, rest)) = surface(path) else {
        return JsonError::new(
            StatusCode::NOT_FOUND,
            format!("Resource '{path}' not found"),
        )
        .response();
    };
    let method = request.method().clone();
    let endpoint = endpoint(surface, rest).map(|(_, endpoint)| endpoint);
    let secret = endpoint.is_some_and(|endpoint| endpoint.has_secret_path);
    let takes_fields = endpoint.is_none_or(|endpoint| endpoint.takes_fields);
    let view = match surface {
        Surface::Json => JsonView::of(takes_fields, request.uri()),
        Surface::OAuth2 | Surface::V1 => None,
    };
    let frame = frame(live, surface, rest, &request);
    let mut response = match call(state, live, surface, rest, request).await {
        Ok((endpoint, call)) => {
            let answer = (endpoint.handler)(&call);
            audit::follow(endpoint.audit, &call, answer).await
        }
        Err(error) => match frame {
            Some(frame) => error_page(error, &frame, &method),
            None => error_response(error, surface, path, &method),
        },
    };
    if let Some(view) = view {
        response = view.apply(response).await;
    }
    if secret {
        response.extensions_mut().insert(SecretPath);
    }
    response
}

/// What pages for the sender of a request to this path have in common, if a
/// person sent it: a browser that shows what comes.
fn frame(live: &Live, surface: Surface, rest: &str, request: &Request) -> Option<Frame> {
    let accept = request.headers().get(ACCEPT)?.to_str().ok()?;
    if !accept.contains("text/html") {
        return None;
    }
    let (_, endpoint) = endpoint(surface, rest)?;
    if !endpoint.is_page {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let query = Form::parse(query.as_bytes()).unwrap_or_default();
    let locales = query.get("ui_locales");
    Some(Frame::of(&live.appearance, request.headers(), locales))
}

fn error_page(error: RoutingError, frame: &Frame, method: &Method) -> Response {
    let allowed = match error {
        RoutingError::Method(methods) => allow(methods),
        _ => None,
    };
    let error = oauth_error(error, method);
    let text = printable(&error.description);
    let mut response = pages::error(frame, error.status, error.error, &text);
    if let Some(allowed) = allowed {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

fn error_response(error: RoutingError, surface: Surface, path: &str, method: &Method) -> Response {
    let allowed = match error {
        RoutingError::Method(methods) => allow(methods),
        _ => None,
    };
    let mut response = match surface {
        Surface::OAuth2 => oauth_error(error, method).response(),
        Surface::Json => json_error(error, path).response(),
        Surface::V1 => scim_error(error),
    };
    if let Some(allowed) = allowed {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

fn surface(path: &str) -> Option<(Surface, &str)> {
    let below = |prefix: &str| {
        let rest = path.strip_prefix(prefix)?;
        rest.strip_prefix('/')
    };
    below("/oauth2")
        .map(|rest| (Surface::OAuth2, rest))
        .or_else(|| below("/json").map(|rest| (Surface::Json, rest)))
        .or_else(|| below("/v1").map(|rest| (Surface::V1, rest)))
        .or_else(|| below(scim::STANDARD).map(|rest| (Surface::V1, rest)))
}

async fn call(
    state: &Arc<State>,
    live: &Arc<Live>,
    surface: Surface,
    rest: &str,
    request: Request,
) -> Result<(&'static Endpoint, Call), RoutingError> {
    let (realm_part, endpoint) = endpoint(surface, rest).ok_or(RoutingError::Path)?;
    let realm = resolve(live, surface, realm_part, &request)?;
    let method = match request.method() {
        &Method::HEAD if !endpoint.acts_on_get => &Method::GET,
        method => method,
    };
    if !endpoint.methods.contains(method) {
        return Err(RoutingError::Method(endpoint.methods));
    }
    let (parts, body) = request.into_parts();
    let realm_source = if realm_of_query(surface, &parts.uri).is_some() {
        let endpoint = rest[realm_part.len()..].trim_start_matches('/');
        let root = realm.issuer.strip_prefix(&live.base_url);
        RealmSource::Query(format!("{}/{endpoint}", root.unwrap_or("/oauth2")))
    } else if realm_of_path(realm_part).is_some_and(|path| path == realm.path) {
        RealmSource::Path
    } else {
        RealmSource::Host
    };
    let call = Call {
        state: Arc::clone(state),
        live: Arc::clone(live),
        realm,
        parts,
        body: read(body, body_max(surface)).await?,
        now_ms: state.clock.now_ms(),
        realm_source,
    };
    Ok((endpoint, call))
}

/// The endpoint whose path ends `rest`, and the part before it, which names the
/// realm.
fn endpoint(surface: Surface, rest: &str) -> Option<(&str, &'static Endpoint)> {
    // Clients write `/json/sessions/?_action=…`: collections end so.
    let rest = match surface {
        Surface::OAuth2 => rest,
        Surface::Json | Surface::V1 => rest.strip_suffix('/').unwrap_or(rest),
    };
    ENDPOINTS.iter().find_map(|endpoint| {
        if endpoint.surface != surface {
            return None;
        }
        let (rest, suffix) = match endpoint.path.split_once("/{id}") {
            Some((before, after)) => {
                let rest = rest.strip_suffix(after)?;
                let (rest, id) = rest.rsplit_once('/')?;
                (Some(rest).filter(|_| !id.is_empty())?, before)
            }
            None => (rest, endpoint.path),
        };
        let realm = match surface {
            // Clients of other makers begin them with capitals.
            Surface::V1 => rest.eq_ignore_ascii_case(suffix).then_some("")?,
            _ => rest.strip_suffix(suffix)?,
        };
        let realm = match realm.strip_suffix('/') {
            Some(realm) if !realm.is_empty() => realm,
            None if realm.is_empty() => "",
            _ => return None,
        };
        Some((realm, endpoint))
    })
}

/// The realm: named by the query, or by the path, or else by the host.
fn resolve(
    live: &Live,
    surface: Surface,
    part: &str,
    request: &Request,
) -> Result<Arc<Realm>, RoutingError> {
    if let Some(path) = realm_of_query(surface, request.uri()) {
        let by_query = true;
        let realm = live.realm(&path).cloned();
        return realm.ok_or(RoutingError::Realm { path, by_query });
    }
    if part.is_empty()
        && !live.hosts.is_empty()
        && let Some(host) = hosts::of_request(request.uri(), request.headers())
        && let Some(path) = live.hosts.realm_of(&host)
        && let Some(realm) = live.realm(path)
    {
        return Ok(Arc::clone(realm));
    }
    let unknown = |path| RoutingError::Realm {
        path,
        by_query: false,
    };
    let path = realm_of_path(part).ok_or_else(|| unknown(format!("/{part}")))?;
    live.realm(&path).cloned().ok_or_else(|| unknown(path))
}

/// The realm that the query names, if it does: that counts for more than path
/// and host.
fn realm_of_query(surface: Surface, uri: &Uri) -> Option<String> {
    let query = uri.query().filter(|query| query.contains("realm="))?;
    if surface == Surface::V1 {
        return None;
    }
    let form = Form::parse(query.as_bytes()).ok()?;
    let name = form.get("realm")?;
    Some(match name.trim_matches('/') {
        "root" => "/".to_owned(),
        name => format!("/{name}"),
    })
}

/// Longest body of requests to a surface, in bytes.
fn body_max(surface: Surface) -> usize {
    match surface {
        Surface::V1 => scim::BODY_MAX,
        Surface::OAuth2 | Surface::Json => BODY_MAX,
    }
}

async fn read(body: Body, most: usize) -> Result<Bytes, RoutingError> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(RoutingError::TooLong),
        Err(_) => Err(RoutingError::Body),
    }
}

fn oauth_error(error: RoutingError, method: &Method) -> OAuthError {
    let with = |status, error, text: String| OAuthError {
        status,
        ..OAuthError::bad(error, text)
    };
    match error {
        RoutingError::Path => with(
            StatusCode::NOT_FOUND,
            "not_found",
            "Resource not found".to_owned(),
        ),
        RoutingError::Realm { path, .. } => {
            let name = path.trim_start_matches('/');
            with(
                StatusCode::NOT_FOUND,
                "not_found",
                format!("Invalid realm, {name}"),
            )
        }
        RoutingError::Method(allowed) => wrong_method(allowed, method),
        RoutingError::TooLong => {
            let text = format!("The body is longer than {BODY_MAX} bytes");
            with(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request", text)
        }
        RoutingError::Body => OAuthError::bad("invalid_request", "The body is incomplete"),
    }
}

fn json_error(error: RoutingError, path: &str) -> JsonError {
    match error {
        RoutingError::Path => JsonError::new(
            StatusCode::NOT_FOUND,
            format!("Resource '{path}' not found"),
        ),
        RoutingError::Realm {
            path,
            by_query: true,
        } => JsonError::new(StatusCode::BAD_REQUEST, format!("Invalid realm, {path}")),
        RoutingError::Realm { path, .. } => {
            let text = format!("Realm \"{path}\" not found");
            JsonError::new(StatusCode::NOT_FOUND, text)
        }
        RoutingError::Method(_) => {
            JsonError::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
        }
        RoutingError::TooLong => {
            JsonError::new(StatusCode::PAYLOAD_TOO_LARGE, "The body is too long")
        }
        RoutingError::Body => JsonError::new(StatusCode::BAD_REQUEST, "The body is incomplete"),
    }
}

fn scim_error(cause: RoutingError) -> Response {
    let error = |status, text: &str| ScimError::new(status, text);
    match cause {
        RoutingError::Path | RoutingError::Realm { .. } => {
            error(StatusCode::NOT_FOUND, "There is no such resource.").response()
        }
        RoutingError::Method(_) => {
            let text = "The resource does not have this method.";
            error(StatusCode::METHOD_NOT_ALLOWED, text).response()
        }
        RoutingError::TooLong => {
            error(StatusCode::PAYLOAD_TOO_LARGE, "The body is too long.").response()
        }
        RoutingError::Body => error(StatusCode::BAD_REQUEST, "The body is incomplete.").response(),
    }
}

/// A file of the theme: by its exact name, out of memory.
pub(super) fn theme_file(call: &Call) -> Response {
    let live = &call.live;
    let name = call.parts.uri.path().rsplit('/').next().unwrap_or_default();
    let query = call.parts.uri.query().unwrap_or_default();
    let file = live.appearance.theme();
    let file = file.and_then(|theme| theme.answer(name, query, call.headers()));
    file.unwrap_or_else(|| oauth_error(RoutingError::Path, &call.parts.method).response())
}
