//! New clients of the identity provider: for the four usual kinds the form comes
//! filled in.

use askama::Template;
use axum::response::Response;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use doorward_identity::registry;

use super::accounts::has_identity;
use super::api::ApiAnswer;
use super::change::keep;
use super::difference::{self, Confirmation};
use super::entities::{self, ListPage};
use super::error::PageError;
use super::frame::{self, Frame};
use super::registry_change::RegistryChange;
use super::table::{Cell, Row, Table};
use super::texts::Texts;
use super::undo_log::change_id;
use super::visit::Visit;
use super::{path, record};

const LIST: &str = "/console/identity/clients";
const NEW: &str = "/console/identity/clients/new";
const APPLY: &str = "/console/identity/clients/apply";
/// What the seal of a new client is for.
const CONTEXT: &str = "clients";

/// Authentication at the token endpoint that needs no key of the client's.
const METHODS: [&str; 3] = ["client_secret_basic", "client_secret_post", "none"];

/// A usual kind of client.
struct ClientKind {
    /// In addresses.
    name: &'static str,
    title: fn(&Texts) -> &'static str,
    lead: fn(&Texts) -> &'static str,
    /// `application_type`, which decides about redirect URIs; "": it has none.
    application: &'static str,
    grants: &'static [&'static str],
    method: &'static str,
    scope: &'static str,
    /// What a redirect URI looks like.
    redirect: &'static str,
}

static KINDS: [ClientKind; 4] = [
    ClientKind {
        name: "web",
        title: |t| t.client_web,
        lead: |t| t.client_web_lead,
        application: "web",
        grants: &["authorization_code", "refresh_token"],
        method: "client_secret_basic",
        scope: "openid profile email",
        redirect: "https://app.example/callback",
    },
    ClientKind {
        name: "spa",
        title: |t| t.client_spa,
        lead: |t| t.client_spa_lead,
        application: "web",
        grants: &["authorization_code", "refresh_token"],
        method: "none",
        scope: "openid profile email",
        redirect: "https://app.example/",
    },
    ClientKind {
        name: "native",
        title: |t| t.client_native,
        lead: |t| t.client_native_lead,
        application: "native",
        grants: &["authorization_code", "refresh_token"],
        method: "none",
        scope: "openid profile email",
        redirect: "com.example.app:/callback",
    },
    ClientKind {
        name: "service",
        title: |t| t.client_service,
        lead: |t| t.client_service_lead,
        application: "",
        grants: &["client_credentials"],
        method: "client_secret_basic",
        scope: "",
        redirect: "",
    },
];

impl ClientKind {
    fn of(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    fn has_browser(&self) -> bool {
        !self.redirect.is_empty()
    }
}

/// How a field is filled in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Text,
    Lines,
    Choice,
    Switch,
}

struct ClientInput {
    name: &'static str,
    value: String,
    hint: &'static str,
    entry: Entry,
    choices: &'static [&'static str],
}

impl ClientInput {
    fn is_lines(&self) -> bool {
        self.entry == Entry::Lines
    }

    fn is_choice(&self) -> bool {
        self.entry == Entry::Choice
    }

    fn is_switch(&self) -> bool {
        self.entry == Entry::Switch
    }
}

#[derive(Template)]
#[template(path = "client_form.html")]
struct ClientFormPage {
    frame: Frame,
    lead: &'static str,
    address: &'static str,
    back: String,
    kind: &'static str,
    realm: String,
    inputs: Vec<ClientInput>,
    errors: Vec<(String, String)>,
}

/// A client that waits for a yes.
#[derive(Serialize, Deserialize)]
struct NewClient {
    kind: String,
    realm: String,
    body: Map<String, Value>,
}

/// `GET /identity/clients/new`: which kind it is, then its form.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let realm = visit.query("realm");
    match visit.query("kind") {
        "" => kinds(&visit, realm),
        name => {
            let kind = ClientKind::of(name).ok_or(PageError::NotFound)?;
            form(&visit, kind, realm, &filled(kind), Vec::new())
        }
    }
}

fn kinds(visit: &Visit, realm: &str) -> Result<Response, PageError> {
    let t = visit.texts;
    let rows = KINDS.iter().map(|kind| {
        let address = path::with_query(NEW, [("kind", kind.name), ("realm", realm)]);
        Row::new(vec![
            Cell::new((kind.title)(t)).to(address),
            Cell::new((kind.lead)(t)),
        ])
    });
    frame::show(&ListPage {
        frame: Frame::of(visit, t.new_client, LIST),
        lead: t.new_client_lead,
        filters: Vec::new(),
        tables: vec![Table {
            caption: t.new_client.to_owned(),
            columns: [t.kind, t.meaning].map(str::to_owned).to_vec(),
            rows: rows.collect(),
            empty: t.nothing,
            ..Table::default()
        }],
    })
}

/// What the form of a kind is filled with.
fn filled(kind: &ClientKind) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("grant_types", json!(kind.grants));
    set("token_endpoint_auth_method", kind.method.into());
    set("scope", kind.scope.into());
    if kind.has_browser() {
        set("require_pkce", true.into());
    }
    body
}

/// The form, with what `body` has.
fn form(
    visit: &Visit,
    kind: &'static ClientKind,
    realm: &str,
    body: &Map<String, Value>,
    errors: Vec<(String, String)>,
) -> Result<Response, PageError> {
    let t = visit.texts;
    let text = |name: &str| match body.get(name) {
        Some(Value::Array(list)) => {
            let lines: Vec<_> = list.iter().map(record::text).collect();
            lines.join("\n")
        }
        None | Some(Value::Null) => String::new(),
        Some(other) => record::text(other),
    };
    let input = |name, hint, entry| ClientInput {
        name,
        value: text(name),
        hint,
        entry,
        choices: &METHODS,
    };
    let mut inputs = vec![
        input("client_id", t.client_id_hint, Entry::Text),
        input("client_name", "", Entry::Text),
    ];
    if kind.has_browser() {
        inputs.push(input("redirect_uris", kind.redirect, Entry::Lines));
        inputs.push(input(
            "post_logout_redirect_uris",
            t.lines_hint,
            Entry::Lines,
        ));
    }
    inputs.push(input("scope", t.scope_hint, Entry::Text));
    inputs.push(input("grant_types", t.lines_hint, Entry::Lines));
    let method = input("token_endpoint_auth_method", "", Entry::Choice);
    inputs.push(method);
    if kind.has_browser() {
        inputs.push(input("require_pkce", t.pkce_hint, Entry::Switch));
    }
    let is_refused = !errors.is_empty();
    let title = format!("{}: {}", t.new_client, (kind.title)(t));
    let mut response = frame::show(&ClientFormPage {
        frame: Frame::of(visit, title, LIST),
        lead: (kind.lead)(t),
        address: NEW,
        back: path::with_query(NEW, [("realm", realm)]),
        kind: kind.name,
        realm: realm.to_owned(),
        inputs,
        errors,
    })?;
    if is_refused {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}

/// What was typed, as the metadata of a client.
fn typed(visit: &Visit, kind: &ClientKind) -> Map<String, Value> {
    let field = |name: &str| visit.field(&format!("f.{name}")).trim();
    let mut body = Map::new();
    for name in [
        "client_id",
        "client_name",
        "scope",
        "token_endpoint_auth_method",
    ] {
        if !field(name).is_empty() {
            body.insert(name.to_owned(), field(name).into());
        }
    }
    for name in ["grant_types", "redirect_uris", "post_logout_redirect_uris"] {
        let lines = field(name).lines().map(str::trim);
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        if !lines.is_empty() {
            body.insert(name.to_owned(), json!(lines));
        }
    }
    let is_code = field("grant_types").contains("authorization_code");
    if kind.has_browser() {
        body.insert("application_type".to_owned(), kind.application.into());
        body.insert(
            "require_pkce".to_owned(),
            (field("require_pkce") == "true").into(),
        );
    }
    let responses = if is_code { json!(["code"]) } else { json!([]) };
    body.insert("response_types".to_owned(), responses);
    body
}

/// What is wrong with a client of this kind.
fn violations(
    visit: &Visit,
    kind: &ClientKind,
    (realm, body): (&str, &Map<String, Value>),
) -> Vec<(String, String)> {
    let t = visit.texts;
    let mut wrong = Vec::new();
    let is_public = body.get("token_endpoint_auth_method") == Some(&json!("none"));
    let has_pkce = body.get("require_pkce") == Some(&json!(true));
    if kind.has_browser() && is_public && !has_pkce {
        wrong.push(("require_pkce".to_owned(), t.pkce_needed.to_owned()));
    }
    if !kind.has_browser() && is_public {
        let name = "token_endpoint_auth_method";
        wrong.push((name.to_owned(), t.secret_needed.to_owned()));
    }
    let realm = if realm.is_empty() { "/" } else { realm };
    let made = registry::create(realm, body.clone(), visit.now_ms());
    let checked = made.and_then(|made| doorward_identity::check_redirects(&made.client.metadata));
    if let Err(error) = checked {
        wrong.push((error.path, error.message));
    }
    wrong
}

/// `POST /identity/clients/new`: shows what will be made.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let kind = ClientKind::of(visit.field("kind")).ok_or(PageError::Form)?;
    let realm = visit.field("realm");
    let body = typed(&visit, kind);
    let wrong = violations(&visit, kind, (realm, &body));
    if !wrong.is_empty() {
        return form(&visit, kind, realm, &body, wrong);
    }
    ask(&visit, kind, (realm, body), None)
}

fn ask(
    visit: &Visit,
    kind: &ClientKind,
    (realm, body): (&str, Map<String, Value>),
    refusal: Option<&ApiAnswer>,
) -> Result<Response, PageError> {
    let shown = Value::Object(body.clone());
    let client = NewClient {
        kind: kind.name.to_owned(),
        realm: realm.to_owned(),
        body,
    };
    let confirmation = Confirmation {
        subject: (kind.title)(visit.texts).to_owned(),
        section: LIST.to_owned(),
        lines: difference::lines(&Value::Null, &shown),
        address: APPLY.to_owned(),
        context: CONTEXT.to_owned(),
        back: path::with_query(NEW, [("kind", kind.name), ("realm", realm)]),
        is_deletion: false,
        note: "",
        conflict: None,
    };
    confirmation.show(visit, &client, refusal)
}

/// `POST /identity/clients/apply`: makes the client, and shows its secret.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let client: NewClient = difference::confirmed(&visit, CONTEXT)?;
    let kind = ClientKind::of(&client.kind).ok_or(PageError::Stale)?;
    let realm = client.realm.as_str();
    let target = path::with_query("/identity/clients", [("realm", realm)]);
    let body = Value::Object(client.body.clone());
    let change = change_id();
    let api = visit.api_for(&change);
    let answer = api.send(Method::POST, &target, Some(&body)).await?;
    if answer.status == StatusCode::BAD_REQUEST || answer.status == StatusCode::CONFLICT {
        let mut wrong = answer.violations();
        if wrong.is_empty() {
            wrong.push((String::new(), answer.message().to_owned()));
        } else if answer.status == StatusCode::CONFLICT {
            wrong = vec![("client_id".to_owned(), visit.texts.name_taken.to_owned())];
        }
        return form(&visit, kind, realm, &client.body, wrong);
    }
    if !answer.status.is_success() {
        return ask(&visit, kind, (realm, client.body.clone()), Some(&answer));
    }
    let back = RegistryChange::end_of(realm, &answer.body);
    keep(&visit, change, &back).await;
    let id = record::text(&answer.body["client_id"]);
    let own = path::with_query(&path::join(LIST, [id.as_str()]), [("realm", realm)]);
    match answer.body["client_secret"].as_str() {
        Some(secret) => {
            let rows = [("client_id", id.as_str()), ("client_secret", secret)];
            entities::shown_once(&visit, LIST, &id, &rows, own)
        }
        None => Ok(frame::lead(&own)),
    }
}
