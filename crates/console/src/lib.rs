//! The console: the gateway in a browser, below `/console` of the admin listener.
//!
//! Every page is in [`PAGES`], with the role that may see it. Pages are made on
//! the server and work without a script. What they show and change passes the
//! Admin API ([`api`]): validation, refusals and audit records are the same.

mod account_change;
mod account_form;
mod account_outlook;
mod accounts;
mod api;
mod assets;
mod audit_log;
mod broker;
mod broker_change;
mod broker_form;
mod change;
mod client_page;
mod client_wizard;
mod config;
mod difference;
mod edit;
mod entities;
mod error;
mod explain;
mod fact_table;
mod fields;
mod form;
mod form_base;
mod frame;
mod groups;
mod identity;
mod kinds;
mod live;
mod overview;
mod paged_list;
mod path;
mod probes;
mod provider;
mod realm_page;
mod record;
mod registry_change;
mod route_files;
mod session;
mod setting_fields;
mod sign_in;
mod signing_keys;
mod table;
mod texts;
mod throttling;
mod trail;
mod undo;
mod undo_log;
mod user_form;
mod users;
mod visit;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode, header, request};
use tokio::sync::watch;

use doorward_admin::AdminService;
use doorward_core::clock::Clock;
use doorward_core::model::audit::Actor;
use doorward_net::http::ClientInfo;
use doorward_net::http::guess_limit::GuessLimiter;
use doorward_net::http::listener::Gate;
use doorward_net::session::seal::SealError;
use doorward_net::telemetry::Telemetry;

use accounts::ACCOUNTS_CHANGED_BY;
use broker_change::BROKER_CHANGED_BY;
use error::PageError;
use kinds::Place;
use live::Live;
use provider::Provider;
use registry_change::REGISTRY_CHANGED_BY;
use session::{Role, Session, Sessions};
use undo_log::UndoLog;
use visit::Visit;

pub use config::{ConsoleConfig, ConsoleSettings, Listeners, RoleGroups};
pub use provider::ProviderParts;

/// Where the console is on the admin listener.
const PREFIX: &str = "/console";
/// Where people sign in.
const SIGN_IN: &str = "/console/sign-in";
/// Where the identity provider sends browsers back to.
const CALLBACK: &str = "/console/sign-in/callback";
/// Longest body of a form, in bytes.
const FORM_MAX: usize = 1 << 20;
/// Longest body of a sign-in, which anybody may send.
const SIGN_IN_MAX: usize = 8 << 10;

/// What the console works on.
pub struct ConsoleState {
    /// The Admin API: every read and write goes through it.
    pub admin: AdminService,
    /// The counters of the live charts.
    pub telemetry: Telemetry,
    /// Wall time.
    pub clock: Clock,
    /// Turns true when the process stops: event streams end then.
    pub stopping: watch::Receiver<bool>,
    /// What is sealed with it that undoes changes.
    pub undo_secret: Vec<u8>,
    /// The port of the listener. Cookies ignore ports: it tells those of several
    /// processes on one machine apart.
    pub port: u16,
    /// The identity provider whose users sign in; `None`: none.
    pub provider: Option<ProviderParts>,
    /// Whether the admin token signs in.
    pub token: bool,
}

/// The console of this process.
#[derive(Clone)]
pub struct Console(Arc<Parts>);

struct Parts {
    admin: AdminService,
    telemetry: Telemetry,
    clock: Clock,
    sessions: Sessions,
    provider: Option<Provider>,
    token: bool,
    guesses: GuessLimiter,
    live: Live,
    undo: UndoLog,
}

impl Parts {
    /// Whether nobody signs in: whoever reaches the listener may do all that the
    /// Admin API offers.
    fn is_open(&self) -> bool {
        self.provider.is_none() && !self.admin.has_token()
    }

    /// Whether the admin token signs in.
    fn takes_token(&self) -> bool {
        self.token && self.admin.has_token()
    }
}

type Answer = BoxFuture<'static, Result<Response, PageError>>;

/// A method of a path, and who may use it.
struct Page {
    method: &'static str,
    /// Below [`PREFIX`]. `{}` is an open part, `{*}` at the end stands for all that
    /// follow.
    path: &'static str,
    access: Access,
    handler: fn(Visit) -> Answer,
}

/// Who may use a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Whoever reaches the listener.
    Everybody,
    /// Who has this role, or a higher one.
    Role(Role),
    /// Who may change records of the kind that the path names ([`kinds::Kind`]).
    Change,
}

const fn page(
    method: &'static str,
    path: &'static str,
    role: Role,
    handler: fn(Visit) -> Answer,
) -> Page {
    Page {
        method,
        path,
        access: Access::Role(role),
        handler,
    }
}

const fn change(method: &'static str, path: &'static str, handler: fn(Visit) -> Answer) -> Page {
    Page {
        method,
        path,
        access: Access::Change,
        handler,
    }
}

const fn public(method: &'static str, path: &'static str, handler: fn(Visit) -> Answer) -> Page {
    Page {
        method,
        path,
        access: Access::Everybody,
        handler,
    }
}

/// Every page.
#[rustfmt::skip]
static PAGES: &[Page] = &[
    public("GET", "/sign-in", |visit| Box::pin(sign_in::show(visit))),
    public("POST", "/sign-in", |visit| Box::pin(sign_in::submit(visit))),
    public("GET", "/language", |visit| Box::pin(sign_in::language(visit))),
    public("GET", "/sign-in/provider", |visit| Box::pin(sign_in::depart(visit))),
    public("GET", "/sign-in/callback", |visit| Box::pin(sign_in::arrive(visit))),
    public("GET", "/signed-out", |visit| Box::pin(sign_in::signed_out(visit))),
    page("POST", "/sign-out", Role::Viewer, |visit| Box::pin(sign_in::sign_out(visit))),
    page("GET", "/", Role::Viewer, |visit| Box::pin(overview::show(visit))),
    page("GET", "/refusals", Role::Viewer, |visit| Box::pin(overview::refusals(visit))),
    page("GET", "/events", Role::Viewer, |visit| Box::pin(live::events(visit))),
    page("GET", "/gateway/{*}", Role::Viewer, |visit| Box::pin(entities::show(visit))),
    change("GET", "/new/{*}", |visit| Box::pin(edit::new(visit))),
    change("GET", "/edit/{*}", |visit| Box::pin(edit::edit(visit))),
    change("POST", "/preview/{*}", |visit| Box::pin(edit::preview(visit))),
    change("POST", "/apply/{*}", |visit| Box::pin(edit::apply(visit))),
    page("GET", "/explain", Role::Viewer, |visit| Box::pin(explain::form(visit))),
    page("POST", "/explain", Role::Viewer, |visit| Box::pin(explain::answer(visit))),
    page("GET", "/throttling", Role::Viewer, |visit| Box::pin(throttling::list(visit))),
    page("GET", "/throttling/{}", Role::Viewer, |visit| Box::pin(throttling::show(visit))),
    page("POST", "/throttling/{}/reset", Role::Operator, |visit| Box::pin(throttling::reset(visit))),
    page("GET", "/route-files", Role::Viewer, |visit| Box::pin(route_files::list(visit))),
    page("GET", "/route-files/{}", Role::Viewer, |visit| Box::pin(route_files::show(visit))),
    page("GET", "/broker/{}", Role::Viewer, |visit| Box::pin(broker::list(visit))),
    page("GET", "/broker/{}/{}", Role::Viewer, |visit| Box::pin(broker::show(visit))),
    page("POST", "/broker/applications/{}/revoke", Role::Operator, |visit| Box::pin(broker::revoke(visit))),
    page("GET", "/broker-form/{}", BROKER_CHANGED_BY, |visit| Box::pin(broker_form::new(visit))),
    page("POST", "/broker-form/{}", BROKER_CHANGED_BY, |visit| Box::pin(broker_form::create(visit))),
    page("GET", "/broker-form/{}/{}", BROKER_CHANGED_BY, |visit| Box::pin(broker_form::edit(visit))),
    page("POST", "/broker-form/{}/{}", BROKER_CHANGED_BY, |visit| Box::pin(broker_form::preview(visit))),
    page("POST", "/broker-delete/{}/{}", BROKER_CHANGED_BY, |visit| Box::pin(broker_form::delete(visit))),
    page("POST", "/broker-secret/{}/{}", BROKER_CHANGED_BY, |visit| Box::pin(broker_form::rotate(visit))),
    page("POST", "/broker-apply", BROKER_CHANGED_BY, |visit| Box::pin(broker_change::apply(visit))),
    page("GET", "/audit", Role::Viewer, |visit| Box::pin(audit_log::show(visit))),
    page("GET", "/audit/export", Role::Viewer, |visit| Box::pin(audit_log::export(visit))),
    page("GET", "/identity/users", Role::Viewer, |visit| Box::pin(users::list(visit))),
    page("GET", "/identity/users/new", ACCOUNTS_CHANGED_BY, |visit| Box::pin(user_form::new(visit))),
    page("POST", "/identity/users/new", ACCOUNTS_CHANGED_BY, |visit| Box::pin(user_form::create(visit))),
    page("GET", "/identity/users/{}/edit", ACCOUNTS_CHANGED_BY, |visit| Box::pin(user_form::edit(visit))),
    page("POST", "/identity/users/{}/edit", ACCOUNTS_CHANGED_BY, |visit| Box::pin(user_form::preview(visit))),
    page("GET", "/identity/groups", Role::Viewer, |visit| Box::pin(groups::list(visit))),
    page("GET", "/identity/groups/new", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::new(visit))),
    page("POST", "/identity/groups/new", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::create(visit))),
    page("GET", "/identity/groups/{}/edit", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::edit(visit))),
    page("POST", "/identity/groups/{}/edit", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::preview(visit))),
    page("POST", "/identity/groups/{}/delete", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::delete(visit))),
    page("GET", "/identity/groups/{}", Role::Viewer, |visit| Box::pin(groups::show(visit))),
    page("POST", "/identity/groups/{}/add", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::add(visit))),
    page("POST", "/identity/groups/{}/remove", ACCOUNTS_CHANGED_BY, |visit| Box::pin(groups::remove(visit))),
    page("GET", "/identity/users/{}", Role::Viewer, |visit| Box::pin(users::show(visit))),
    page("POST", "/identity/users/{}/session", Role::Operator, |visit| Box::pin(users::end_session(visit))),
    page("POST", "/identity/users/{}/end-sessions", Role::Operator, |visit| Box::pin(users::end_sessions(visit))),
    page("POST", "/identity/users/{}/consent", Role::Operator, |visit| Box::pin(users::withdraw_consent(visit))),
    page("POST", "/identity/users/{}/unlock", Role::Operator, |visit| Box::pin(users::unlock(visit))),
    page("POST", "/identity/users/{}/reset", Role::Operator, |visit| Box::pin(users::send_letter(visit))),
    page("POST", "/identity/users/{}/reset-factors", ACCOUNTS_CHANGED_BY, |visit| Box::pin(users::reset_factors(visit))),
    page("POST", "/identity/users/{}/switch", ACCOUNTS_CHANGED_BY, |visit| Box::pin(users::switch(visit))),
    page("POST", "/identity/users/{}/delete", ACCOUNTS_CHANGED_BY, |visit| Box::pin(users::delete(visit))),
    page("POST", "/identity/apply", ACCOUNTS_CHANGED_BY, |visit| Box::pin(account_change::apply(visit))),
    page("POST", "/undo/{}", Role::Operator, |visit| Box::pin(undo::ask(visit))),
    page("GET", "/identity/keys", Role::Viewer, |visit| Box::pin(signing_keys::list(visit))),
    page("POST", "/identity/keys/rotate", signing_keys::KEYS_CHANGED_BY, |visit| Box::pin(signing_keys::ask(visit))),
    page("POST", "/identity/keys/apply", signing_keys::KEYS_CHANGED_BY, |visit| Box::pin(signing_keys::apply(visit))),
    page("GET", "/identity/probes", Role::Viewer, |visit| Box::pin(probes::show(visit))),
    page("POST", "/identity/probes", probes::TESTED_BY, |visit| Box::pin(probes::test(visit))),
    page("GET", "/identity/clients/new", REGISTRY_CHANGED_BY, |visit| Box::pin(client_wizard::new(visit))),
    page("POST", "/identity/clients/new", REGISTRY_CHANGED_BY, |visit| Box::pin(client_wizard::preview(visit))),
    page("POST", "/identity/clients/apply", REGISTRY_CHANGED_BY, |visit| Box::pin(client_wizard::apply(visit))),
    page("GET", "/identity/clients/{}", Role::Viewer, |visit| Box::pin(client_page::show(visit))),
    page("GET", "/identity/clients/{}/edit", REGISTRY_CHANGED_BY, |visit| Box::pin(client_page::edit(visit))),
    page("POST", "/identity/clients/{}/edit", REGISTRY_CHANGED_BY, |visit| Box::pin(client_page::preview(visit))),
    page("POST", "/identity/clients/{}/delete", REGISTRY_CHANGED_BY, |visit| Box::pin(client_page::delete(visit))),
    page("POST", "/identity/clients/{}/secret", REGISTRY_CHANGED_BY, |visit| Box::pin(client_page::rotate(visit))),
    page("GET", "/identity/settings", REGISTRY_CHANGED_BY, |visit| Box::pin(realm_page::edit(visit))),
    page("POST", "/identity/settings", REGISTRY_CHANGED_BY, |visit| Box::pin(realm_page::preview(visit))),
    page("POST", "/identity/settings/delete", REGISTRY_CHANGED_BY, |visit| Box::pin(realm_page::delete(visit))),
    page("GET", "/identity/new-realm", REGISTRY_CHANGED_BY, |visit| Box::pin(realm_page::new(visit))),
    page("POST", "/identity/new-realm", REGISTRY_CHANGED_BY, |visit| Box::pin(realm_page::create(visit))),
    page("POST", "/identity/change", REGISTRY_CHANGED_BY, |visit| Box::pin(registry_change::apply(visit))),
    page("GET", "/identity/realms/{*}", Role::Viewer, |visit| Box::pin(realm_page::show(visit))),
    page("GET", "/identity/{}", Role::Viewer, |visit| Box::pin(identity::list(visit))),
    page("POST", "/end/{}/{}", Role::Operator, |visit| Box::pin(identity::end(visit))),
];

/// The paths below `/console` that answer to `GET`: open parts are `{}`. Entities have
/// those of each kind.
pub fn page_paths() -> Vec<String> {
    let pages = PAGES.iter().filter(|page| page.method == "GET");
    let paths = pages.flat_map(|page| match page.path.strip_suffix("/{*}") {
        Some(prefix) if prefix != "/identity/realms" => paths_of_kinds(prefix),
        Some(prefix) => vec![format!("{prefix}/{{}}")],
        None => vec![page.path.to_owned()],
    });
    paths.collect()
}

/// The paths below `/console` that answer to `POST`, each with the role that it needs, if
/// any: open parts are `{}`. Entities have those of each kind.
pub fn form_paths() -> Vec<(String, Option<&'static str>)> {
    let pages = PAGES.iter().filter(|page| page.method == "POST");
    let paths = pages.flat_map(|page| match (page.path.strip_suffix("/{*}"), page.access) {
        (Some(prefix), Access::Change) => {
            let of_kind = |kind| {
                let paths = paths_of_kind(prefix, kind).into_iter();
                paths.map(|path| (path, Some(kind.changed_by.name())))
            };
            kinds::KINDS.iter().flat_map(of_kind).collect()
        }
        (_, Access::Role(role)) => vec![(page.path.to_owned(), Some(role.name()))],
        _ => vec![(page.path.to_owned(), None)],
    });
    paths.collect()
}

/// The paths of lists and records of entities below `prefix`.
fn paths_of_kinds(prefix: &str) -> Vec<String> {
    let kinds = kinds::KINDS.iter();
    kinds.flat_map(|kind| paths_of_kind(prefix, kind)).collect()
}

fn paths_of_kind(prefix: &str, kind: &kinds::Kind) -> Vec<String> {
    let list = match kind.parent {
        Some(parent) => format!("{prefix}/{parent}/{{}}/{}", kind.plural),
        None => format!("{prefix}/{}", kind.plural),
    };
    let record = format!("{list}/{{}}");
    match prefix {
        "/new" => vec![list],
        "/edit" => vec![record],
        _ => vec![list, record],
    }
}

impl Console {
    /// The console.
    ///
    /// # Errors
    /// If no key for its cookies can be made.
    pub fn new(state: ConsoleState) -> Result<Self, SealError> {
        let live = Live::new(state.telemetry.clone(), state.clock.clone(), state.stopping);
        Ok(Self(Arc::new(Parts {
            sessions: Sessions::new(state.port)?,
            provider: match state.provider {
                Some(provider) => Some(Provider::new(provider, state.port)?),
                None => None,
            },
            token: state.token,
            telemetry: state.telemetry,
            clock: state.clock,
            guesses: GuessLimiter::default(),
            live,
            undo: UndoLog::new(state.admin.clone(), &state.undo_secret)?,
            admin: state.admin,
        })))
    }

    /// What the admin listener serves below `/console`.
    pub fn router(&self) -> Router {
        let handler = |console: Self| move |request: Request| answer(console, request);
        let mut router = Router::new();
        for path in [PREFIX, "/console/", "/console/{*path}"] {
            router = router.route(path, axum::routing::any(handler(self.clone())));
        }
        router
    }

    /// Whether a request's body is read: of requests for the console by what is
    /// said here, of all others by `rest`.
    pub fn gate(&self, rest: Gate) -> Gate {
        let console = self.clone();
        Arc::new(move |head| {
            let path = head.uri.path();
            let is_console = path == PREFIX || path.starts_with("/console/");
            if is_console {
                console.admits_body(head)
            } else {
                rest(head)
            }
        })
    }

    /// Forms are short, say how long they are, and come from a page of this
    /// console in a session, but for that of the sign-in.
    fn admits_body(&self, head: &request::Parts) -> bool {
        let length = head.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let checked = self
            .0
            .admin
            .check_page(&head.method, &head.uri, &head.headers);
        let signs_in = path::segments(head.uri.path()) == ["sign-in"];
        let most = if signs_in {
            SIGN_IN_MAX
        } else if self.session(&head.headers).is_some() {
            FORM_MAX
        } else {
            0
        };
        checked.is_ok() && length.unwrap_or(0) <= most && (length.is_some() || most > 0)
    }

    fn session(&self, headers: &http::HeaderMap) -> Option<Session> {
        self.0.sessions.read(headers, self.0.clock.now_ms())
    }
}

impl Page {
    /// The role that a request with these open parts needs; `None`: none.
    fn role(&self, params: &[String]) -> Option<Role> {
        match self.access {
            Access::Everybody => None,
            Access::Role(role) => Some(role),
            // Where the path names nothing there is nothing to change.
            Access::Change => {
                Some(Place::of(params).map_or(Role::Operator, |place| place.kind.changed_by))
            }
        }
    }

    /// The open parts of `segments`, if they are of this page.
    fn matches(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut own = self.path.split('/').filter(|part| !part.is_empty());
        let mut params = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            match own.next()? {
                "{*}" => {
                    params.extend_from_slice(&segments[index..]);
                    return Some(params);
                }
                "{}" => params.push(segment.clone()),
                part if part == segment => {}
                _ => return None,
            }
        }
        own.next().is_none().then_some(params)
    }
}

async fn answer(console: Console, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let client = head.extensions.get::<ClientInfo>().copied();
    let is_head = head.method == Method::HEAD;
    let mut response = match serve(&console, &head, body, client).await {
        Ok(response) => response,
        Err((mut error, visit)) => {
            if let (PageError::Changed(trail), Some(visit)) = (&mut error, &visit)
                && visit.may(Role::Viewer)
            {
                audit_log::follow(trail, visit).await;
            }
            error.response(visit.as_deref())
        }
    };
    frame::guard(response.headers_mut());
    if is_head {
        *response.body_mut() = axum::body::Body::empty();
    }
    response
}

/// A refusal, and for whom it is shown.
type Refusal = (PageError, Option<Box<Visit>>);

async fn serve(
    console: &Console,
    head: &request::Parts,
    body: axum::body::Body,
    client: Option<ClientInfo>,
) -> Result<Response, Refusal> {
    let admin = &console.0.admin;
    if let Err(message) = admin.check_page(&head.method, &head.uri, &head.headers) {
        admin.note_refusal(client, Actor::Anonymous, StatusCode::FORBIDDEN);
        return Err((PageError::Foreign(message), None));
    }
    let method = match head.method {
        Method::HEAD => Method::GET,
        ref method => method.clone(),
    };
    let segments = path::segments(head.uri.path());
    if let [folder, name] = segments.as_slice()
        && folder == "assets"
    {
        return assets::serve(&method, name).map_err(|error| (error, None));
    }
    let mut visit = Visit::new(console, head, client);
    let is_stream = segments == ["events"];
    let looked_up = visit.look_up(!is_stream).await;
    let refuse = |error, visit: Visit| Err((error, Some(Box::new(visit))));
    let fitting = PAGES
        .iter()
        .filter_map(|page| Some((page, page.matches(&segments)?)));
    let fitting: Vec<_> = fitting.collect();
    if fitting.is_empty() {
        return refuse(PageError::NotFound, visit);
    }
    let found = fitting
        .into_iter()
        .find(|(page, _)| page.method == method.as_str());
    let Some((page, params)) = found else {
        return refuse(PageError::Method, visit);
    };
    let role = page.role(&params);
    let mut visit = visit.with_params(params);
    if let Some(role) = role {
        if let Err(error) = looked_up {
            return refuse(error, visit);
        }
        match (visit.session(), visit.person()) {
            (None, Some(person)) => return refuse(PageError::NoGroup(person.clone()), visit),
            (None, None) if method == Method::GET => return Ok(sign_in::lead_to(&visit)),
            (None, None) => return refuse(PageError::NoSession, visit),
            (Some(session), _) if session.role < role => {
                let actor = visit.actor();
                admin.note_refusal(client, actor, StatusCode::FORBIDDEN);
                return refuse(PageError::Role, visit);
            }
            (Some(_), _) => {}
        }
        if role > Role::Viewer && visit.needs_step_up() {
            return match method {
                Method::GET => Ok(frame::lead(&provider::way(&visit.address, true))),
                _ => refuse(PageError::StepUp, visit),
            };
        }
    }
    if method == Method::POST {
        if let Err(error) = visit.read_form(body).await {
            return refuse(error, visit);
        }
        if role.is_some() && !visit.has_form_token() {
            return refuse(PageError::Stale, visit);
        }
    }
    let shown = visit.clone();
    let cookies = visit.take_cookies();
    match (page.handler)(visit).await {
        Ok(mut response) => {
            for field in cookies {
                response.headers_mut().append(header::SET_COOKIE, field);
            }
            Ok(response)
        }
        Err(error) => refuse(error, shown),
    }
}
