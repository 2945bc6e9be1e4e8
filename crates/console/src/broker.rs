//! The token broker: its products, developers and applications.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::accounts::RecordPage;
use super::error::PageError;
use super::fact_table::{self, cell};
use super::frame::{self, Frame};
use super::paged_list::PagedList;
use super::session::Role;
use super::table::{Button, Row};
use super::texts::Texts;
use super::visit::Visit;
use super::{path, record};

/// Records of the token broker that are of one kind.
struct BrokerKind {
    /// Its part of the Admin API's paths below `/broker`.
    plural: &'static str,
    title: fn(&Texts) -> &'static str,
    /// The member that names a record.
    key: &'static str,
    columns: &'static [&'static str],
}

static KINDS: [BrokerKind; 3] = [
    BrokerKind {
        plural: "products",
        title: |t| t.products,
        key: "name",
        columns: &["name", "display_name", "scopes", "quota", "owner"],
    },
    BrokerKind {
        plural: "developers",
        title: |t| t.developers,
        key: "email",
        columns: &["email", "first_name", "last_name", "status", "owner"],
    },
    BrokerKind {
        plural: "applications",
        title: |t| t.applications,
        key: "id",
        columns: &["name", "developer", "products", "status", "owner"],
    },
];

impl BrokerKind {
    fn of(visit: &Visit) -> Result<&'static Self, PageError> {
        let found = KINDS.iter().find(|kind| kind.plural == visit.param(0));
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
        links: Vec::new(),
    };
    let row = |one: &Value| {
        let own = path::join(&address, [record::text(&one[kind.key]).as_str()]);
        let cells = kind.columns.iter().enumerate();
        let cells = cells.map(|(index, column)| match index {
            0 => cell(column, &one[column]).to(own.clone()),
            _ => cell(column, &one[column]),
        });
        Row::new(cells.collect())
    };
    list.show(&visit, row).await
}

/// `GET /broker/{list}/{record}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    let t = visit.texts;
    let target = path::join(&kind.target(), [visit.param(1)]);
    let found = visit.api().get(&target).await?;
    let shown = record::masked(&found, false);
    let name = record::text(&shown[kind.columns[0]]);
    let revoke = Button {
        text: t.revoke_tokens.to_owned(),
        label: format!("{}: {name}", t.revoke_tokens),
        address: path::join(&kind.address(), [visit.param(1), "revoke"]),
        fields: Vec::new(),
        danger: true,
    };
    let revokes = kind.plural == "applications" && visit.may(Role::Operator);
    frame::show(&RecordPage {
        frame: Frame::of(&visit, name, &kind.address()),
        list: ((kind.title)(t), kind.address()),
        links: Vec::new(),
        buttons: if revokes { vec![revoke] } else { Vec::new() },
        done: if visit.query("done").is_empty() {
            ""
        } else {
            t.done
        },
        notes: Vec::new(),
        ask: None,
        tables: vec![fact_table::fields(t, t.fields, &shown)],
    })
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
