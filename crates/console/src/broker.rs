//! The token broker: its products, developers and applications.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::accounts::RecordPage;
use super::broker_change::BROKER_CHANGED_BY;
use super::error::PageError;
use super::fact_table::{self, list_cell};
use super::frame::{self, Frame};
use super::paged_list::PagedList;
use super::registry_change::version_of;
use super::session::Role;
use super::table::{Button, Row};
use super::texts::Texts;
use super::visit::Visit;
use super::{broker_form, path, record};

/// Records of the token broker that are of one kind.
pub(crate) struct BrokerKind {
    /// Its part of the Admin API's paths below `/broker`.
    pub(crate) plural: &'static str,
    /// Where its list is.
    pub(crate) section: &'static str,
    title: fn(&Texts) -> &'static str,
    pub(crate) new_title: fn(&Texts) -> &'static str,
    /// The member that names a record.
    pub(crate) key: &'static str,
    pub(crate) columns: &'static [&'static str],
}

static KINDS: [BrokerKind; 3] = [
    BrokerKind {
        plural: "products",
        section: "/console/broker/products",
        title: |t| t.products,
        new_title: |t| t.new_product,
        key: "name",
        columns: &["name", "display_name", "scopes", "quota", "owner"],
    },
    BrokerKind {
        plural: "developers",
        section: "/console/broker/developers",
        title: |t| t.developers,
        new_title: |t| t.new_developer,
        key: "email",
        columns: &["email", "first_name", "last_name", "status", "owner"],
    },
    BrokerKind {
        plural: "applications",
        section: "/console/broker/applications",
        title: |t| t.applications,
        new_title: |t| t.new_application,
        key: "id",
        columns: &["name", "developer", "products", "status", "owner"],
    },
];

impl BrokerKind {
    pub(crate) fn of(visit: &Visit) -> Result<&'static Self, PageError> {
        Self::named(visit.param(0))
    }

    pub(crate) fn named(plural: &str) -> Result<&'static Self, PageError> {
        let found = KINDS.iter().find(|kind| kind.plural == plural);
        found.ok_or(PageError::NotFound)
    }

    fn address(&self) -> String {
        address(self.plural)
    }

    /// The Admin API's path of its records.
    fn target(&self) -> String {
        path::join("/broker", [self.plural])
    }
}

/// The list of a kind.
pub(crate) fn address(plural: &str) -> String {
    path::join("/console/broker", [plural])
}

/// `GET /broker/{list}`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    let address = kind.address();
    let list = PagedList {
        title: (kind.title)(visit.texts),
        lead: visit.texts.broker_lead,
        address: &address,
        path: &kind.target(),
        filters: Vec::new(),
        columns: kind.columns.iter().map(|one| (*one).to_owned()).collect(),
        links: if visit.may(BROKER_CHANGED_BY) {
            vec![(
                visit.texts.create.to_owned(),
                broker_form::new_address(kind),
            )]
        } else {
            Vec::new()
        },
    };
    let row = |one: &Value| {
        let own = path::join(&address, [record::text(&one[kind.key]).as_str()]);
        let cells = kind.columns.iter().enumerate();
        let cells = cells.map(|(index, column)| match index {
            0 => list_cell(column, one).to(own.clone()),
            _ => list_cell(column, one),
        });
        Row::new(cells.collect())
    };
    list.show(&visit, row).await
}

/// The record that is known by `key`, with its file if one declares it.
pub(crate) async fn record(
    visit: &Visit,
    kind: &BrokerKind,
    key: &str,
) -> Result<Value, PageError> {
    let target = path::join(&kind.target(), [key]);
    let target = path::with_query(&target, [("declared", "true")]);
    visit.api().get(&target).await
}

/// `GET /broker/{list}/{record}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    let t = visit.texts;
    let found = record(&visit, kind, visit.param(1)).await?;
    let file = record::declared_in(&found);
    let shown = record::without_place(&record::masked(&found, false));
    let name = record::text(&shown[kind.columns[0]]);
    let editable = file.is_none() && visit.may(BROKER_CHANGED_BY);
    let edit = broker_form::address(kind, visit.param(1));
    frame::show(&RecordPage {
        frame: Frame::of(&visit, name.clone(), kind.section),
        list: ((kind.title)(t), kind.address()),
        links: if editable {
            vec![(t.edit.to_owned(), edit)]
        } else {
            Vec::new()
        },
        buttons: buttons(&visit, kind, &found, editable),
        done: if visit.query("done").is_empty() {
            ""
        } else {
            t.done
        },
        notes: file
            .map(|file| format!("{} {file}", t.file_owned))
            .into_iter()
            .collect(),
        ask: None,
        tables: vec![fact_table::fields(t, t.fields, &shown)],
    })
}

fn buttons(visit: &Visit, kind: &BrokerKind, found: &Value, editable: bool) -> Vec<Button> {
    let t = visit.texts;
    let name = record::text(&found[kind.columns[0]]);
    let button = |text: &str, address: String| Button {
        text: text.to_owned(),
        label: format!("{text}: {name}"),
        address,
        fields: vec![("version".to_owned(), version_of(found))],
        danger: true,
    };
    let own = |page: &str| path::join(page, [kind.plural, visit.param(1)]);
    let mut all = Vec::new();
    if kind.plural == "applications" {
        if visit.may(Role::Operator) {
            let revoke = path::join(&kind.address(), [visit.param(1), "revoke"]);
            all.push(button(t.revoke_tokens, revoke));
        }
        if editable {
            all.push(button(t.secret_rotate, own("/console/broker-secret")));
        }
    }
    if editable {
        all.push(button(t.delete, own("/console/broker-delete")));
    }
    all
}

/// `POST /broker/applications/{application}/revoke`: ends all tokens that it has got.
pub(crate) async fn revoke(visit: Visit) -> Result<Response, PageError> {
    let target = path::join("/broker/applications", [visit.param(0), "tokens"]);
    let answer = visit.api().send(Method::DELETE, &target, None).await?;
    if !answer.status.is_success() {
        return Err(PageError::Api(answer));
    }
    let page = path::join(&address("applications"), [visit.param(0)]);
    Ok(frame::lead(&format!("{page}?done=revoke")))
}
