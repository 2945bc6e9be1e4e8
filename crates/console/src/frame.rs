//! What all pages have in common: head, navigation, language, and what browsers
//! are told about them.

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::error::PageError;
use super::texts::Texts;
use super::visit::Visit;
use super::{assets, kinds, path};

/// What a page may load and do: its own files, its own forms, no frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What all pages have in common.
pub(crate) struct Frame {
    pub(crate) t: &'static Texts,
    pub(crate) title: String,
    pub(crate) style: String,
    pub(crate) script: String,
    pub(crate) form_token: String,
    /// Whether somebody is signed in.
    pub(crate) session: bool,
    /// Whether the session can be ended: without a token there is nothing to end.
    pub(crate) can_leave: bool,
    /// The name and the role of whom the provider has signed in; "" for others.
    pub(crate) person: String,
    pub(crate) navigation: Vec<NavigationGroup>,
    /// The other language: its tag, its name in itself, and the way to it.
    pub(crate) language: (&'static str, &'static str, String),
}

/// Pages that belong together.
pub(crate) struct NavigationGroup {
    pub(crate) label: &'static str,
    pub(crate) links: Vec<NavigationLink>,
}

/// A page of the navigation.
pub(crate) struct NavigationLink {
    pub(crate) label: &'static str,
    pub(crate) address: String,
    pub(crate) current: bool,
}

impl Frame {
    /// The frame of a page with this title; `section` is the address of its entry in
    /// the navigation.
    pub(crate) fn of(visit: &Visit, title: impl Into<String>, section: &str) -> Self {
        let [style, script] = assets::addresses();
        let session = visit.session();
        let other = visit.texts.other();
        let lead = path::with_query(
            "/console/language",
            [("to", other.lang), ("back", visit.address.as_str())],
        );
        Self {
            t: visit.texts,
            title: title.into(),
            style,
            script,
            form_token: session.map_or_else(String::new, |session| session.form_token.clone()),
            session: session.is_some(),
            can_leave: session.is_some() && !visit.parts().is_open(),
            person: person(visit),
            navigation: if session.is_some() {
                navigation(visit, section)
            } else {
                Vec::new()
            },
            language: (other.lang, other.language, lead),
        }
    }
}

fn person(visit: &Visit) -> String {
    match (visit.person(), visit.session()) {
        (Some(person), Some(session)) => {
            format!("{} · {}", person.name, session.role.text(visit.texts))
        }
        _ => String::new(),
    }
}

fn navigation(visit: &Visit, section: &str) -> Vec<NavigationGroup> {
    let t = visit.texts;
    let link = |label, address: &str| NavigationLink {
        label,
        address: address.to_owned(),
        current: address == section,
    };
    let gateway = kinds::KINDS
        .iter()
        .filter(|kind| kind.parent.is_none())
        .map(|kind| link((kind.title)(t), &kind.address()));
    let gateway: Vec<_> = gateway.collect();
    let mut groups = vec![
        NavigationGroup {
            label: t.nav_traffic,
            links: vec![
                link(t.overview, "/console"),
                link(t.refusals, "/console/refusals"),
                link(t.explain, "/console/explain"),
                link(t.throttling, "/console/throttling"),
                link(t.route_files, "/console/route-files"),
            ],
        },
        NavigationGroup {
            label: t.nav_gateway,
            links: gateway,
        },
    ];
    if visit.parts().admin.has_identity() {
        groups.push(NavigationGroup {
            label: t.nav_identity,
            links: vec![
                link(t.realms, "/console/identity/realms"),
                link(t.users, "/console/identity/users"),
                link(t.groups, "/console/identity/groups"),
                link(t.clients, "/console/identity/clients"),
                link(t.sessions, "/console/identity/sessions"),
                link(t.keys, "/console/identity/keys"),
                link(t.lockouts, "/console/identity/lockouts"),
            ],
        });
    }
    let broker = [
        (t.products, "products"),
        (t.developers, "developers"),
        (t.applications, "applications"),
    ];
    groups.push(NavigationGroup {
        label: t.nav_broker,
        links: broker
            .map(|(label, plural)| link(label, &format!("/console/broker/{plural}")))
            .into(),
    });
    groups.push(NavigationGroup {
        label: t.nav_system,
        links: vec![link(t.audit_log, "/console/audit")],
    });
    groups
}

/// The page as an answer.
pub(crate) fn show(page: &impl Template) -> Result<Response, PageError> {
    let html = page.render().map_err(|error| {
        tracing::error!(%error, "a page of the console can't be made");
        PageError::Unreadable
    })?;
    let mut response = Response::new(Body::from(html));
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// An answer that leads the browser to another page of the console.
pub(crate) fn lead(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/console"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// Tells browsers what an answer may do. Nothing of it is kept, unless it says so
/// itself.
pub(crate) fn guard(headers: &mut HeaderMap) {
    let set = |headers: &mut HeaderMap, name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    set(headers, header::X_FRAME_OPTIONS, "DENY");
    set(headers, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, header::REFERRER_POLICY, "same-origin");
    set(headers, OPENER_POLICY, "same-origin");
    set(headers, RESOURCE_POLICY, "same-origin");
    if !headers.contains_key(header::CACHE_CONTROL) {
        set(headers, header::CACHE_CONTROL, "no-store");
        set(headers, header::VARY, "Accept-Language, Cookie");
    }
}
