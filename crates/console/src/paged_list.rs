//! Lists that the Admin API gives in pages: narrowed down by filters, and shown with
//! what it says if it refuses.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::entities::ListPage;
use super::error::PageError;
use super::frame::{self, Frame};
use super::path;
use super::table::{Cell, Filter, Mark, Row, Table};
use super::visit::Visit;

/// Records of a page.
pub(crate) const SIZE: &str = "50";

/// A list, and how it is shown.
pub(crate) struct PagedList<'a> {
    pub(crate) title: &'static str,
    pub(crate) lead: &'static str,
    /// Where it is in the console.
    pub(crate) address: &'a str,
    /// Where it is in the Admin API.
    pub(crate) path: &'a str,
    /// What it is narrowed down by: parameters of both.
    pub(crate) filters: Vec<Filter>,
    pub(crate) columns: Vec<String>,
    /// What can be done beside it: text and page.
    pub(crate) links: Vec<(String, String)>,
}

impl PagedList<'_> {
    /// Shows the page of the list that `visit` asks for, each record as `row` makes it.
    ///
    /// # Errors
    /// If the Admin API's answer can't be read. A refusal is shown in the place of rows.
    pub(crate) async fn show(
        self,
        visit: &Visit,
        row: impl Fn(&Value) -> Row,
    ) -> Result<Response, PageError> {
        let t = visit.texts;
        let kept = || self.filters.iter().map(|one| (one.name, &*one.value));
        // Records with an owner are told where a file declares them.
        let has_owners = self.columns.iter().any(|column| column == "owner");
        let declared = if has_owners { "true" } else { "" };
        let query = [
            ("size", SIZE),
            ("offset", visit.query("offset")),
            ("declared", declared),
        ];
        let target = path::with_query(self.path, query.into_iter().chain(kept()));
        let answer = visit.api().send(Method::GET, &target, None).await?;
        let body = &answer.body;
        let next = body.get("offset").and_then(Value::as_str);
        let next =
            next.map(|offset| path::with_query(self.address, kept().chain([("offset", offset)])));
        let mut table = Table {
            caption: self.title.to_owned(),
            columns: self.columns,
            rows: Vec::new(),
            empty: t.nothing,
            next,
            links: self.links,
            ..Table::default()
        };
        let is_refused = !answer.status.is_success();
        if is_refused {
            let message = Cell::new(answer.message()).marked(Mark::Bad);
            table.columns = vec![t.error.to_owned()];
            table.rows = vec![Row::new(vec![message])];
        } else {
            let records = body["data"].as_array().into_iter().flatten();
            table.rows = records.map(row).collect();
        }
        let mut response = frame::show(&ListPage {
            frame: Frame::of(visit, self.title, self.address),
            lead: self.lead,
            filters: self.filters,
            tables: vec![table],
        })?;
        if is_refused {
            *response.status_mut() = answer.status;
        }
        Ok(response)
    }
}
