//! What happens to a request, and why.

use askama::Template;
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::error::PageError;
use super::frame::{self, Frame};
use super::table::{Cell, Mark, Row, Table};
use super::visit::Visit;
use super::{path, record};
use doorward_net::telemetry::refused_requests::RefusedRequest;

/// A field of the question.
struct Question {
    name: &'static str,
    label: &'static str,
    value: String,
    hint: &'static str,
}

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    frame: Frame,
    questions: Vec<Question>,
    headers: String,
    error: String,
    verdict: Option<Cell>,
    facts: Vec<(&'static str, Cell)>,
    tables: Vec<Table>,
}

/// `GET /explain`: the form; a link may fill in method and address, and gets the
/// explanation then. Headers may be secrets, and are in no address.
pub(crate) async fn form(visit: Visit) -> Result<Response, PageError> {
    let given = |name: &str| match name {
        "headers" => String::new(),
        name => visit.query(name).to_owned(),
    };
    let page = page(&visit, &given);
    if given("url").is_empty() {
        return frame::show(&page);
    }
    explained(&visit, page, &given).await
}

/// The link to the explanation of a request that was refused.
pub(crate) fn address_of(refused: &RefusedRequest<String>) -> String {
    let scheme = if refused.https { "https" } else { "http" };
    let url = format!("{scheme}://{}{}", refused.host, refused.path);
    let query = [
        ("method", refused.method.as_str()),
        ("url", &url),
        ("client", &refused.client.to_string()),
    ];
    path::with_query("/console/explain", query)
}

fn page(visit: &Visit, given: &dyn Fn(&str) -> String) -> ExplainPage {
    let t = visit.texts;
    let question = |name, label, hint| Question {
        name,
        label,
        value: given(name),
        hint,
    };
    ExplainPage {
        frame: Frame::of(visit, t.explain, "/console/explain"),
        questions: vec![
            question("method", t.method, "GET"),
            question("url", t.url, t.url_hint),
            question("client", t.client_address, "127.0.0.1"),
            question("consumer", t.consumer, t.consumer_hint),
        ],
        headers: given("headers"),
        error: String::new(),
        verdict: None,
        facts: Vec::new(),
        tables: Vec::new(),
    }
}

/// `POST /explain`.
pub(crate) async fn answer(visit: Visit) -> Result<Response, PageError> {
    let given = |name: &str| visit.field(name).to_owned();
    let page = page(&visit, &given);
    explained(&visit, page, &given).await
}

/// The page with the explanation of what was given.
async fn explained(
    visit: &Visit,
    mut page: ExplainPage,
    given: &(dyn Fn(&str) -> String + Sync),
) -> Result<Response, PageError> {
    let headers = given("headers");
    let headers = headers.lines().map(str::trim);
    let headers: Vec<_> = headers.filter(|line| !line.is_empty()).collect();
    let mut question = json!({
        "method": given("method").trim(),
        "url": given("url").trim(),
        "headers": headers,
    });
    for name in ["client", "consumer"] {
        let value = given(name);
        if !value.trim().is_empty() {
            question[name] = value.trim().into();
        }
    }
    let answer = visit
        .api()
        .send(Method::POST, "/explain", Some(&question))
        .await?;
    if !answer.status.is_success() {
        let violations = answer.violations();
        let texts = violations
            .iter()
            .map(|(field, text)| format!("{field}: {text}"));
        let texts: Vec<_> = texts.collect();
        page.error = if texts.is_empty() {
            answer.message().to_owned()
        } else {
            texts.join("; ")
        };
        let mut response = frame::show(&page)?;
        *response.status_mut() = answer.status;
        return Ok(response);
    }
    fill(&mut page, visit, &answer.body);
    frame::show(&page)
}

/// The name of a thing, or its id, with the way to its page.
fn named(plural: &str, value: &Value, key: &str) -> Cell {
    let id = value[key].as_str().unwrap_or_default();
    let name = value["name"].as_str().unwrap_or(id);
    Cell::new(name).to(path::join("/console/gateway", [plural, id]))
}

fn fill(page: &mut ExplainPage, visit: &Visit, body: &Value) {
    let t = visit.texts;
    page.verdict = Some(verdict(visit, body));
    let request = &body["request"];
    let understood = format!(
        "{} {}://{}:{}{}",
        record::text(&request["method"]),
        record::text(&request["scheme"]),
        record::text(&request["host"]),
        record::text(&request["port"]),
        record::text(&request["path"]),
    );
    page.facts.push((t.understood, Cell::code(understood)));
    if body["route"].is_object() {
        page.facts
            .push((t.route, named("routes", &body["route"], "id")));
        let matched = body["route"]["matched"].as_array().into_iter().flatten();
        let matched = matched.map(|one| {
            let text = |name: &str| record::text(&one[name]);
            format!(
                "{} {} = {}",
                text("attribute"),
                text("wanted"),
                text("value")
            )
        });
        let matched: Vec<_> = matched.collect();
        page.facts.push((t.matched, Cell::new(matched.join("; "))));
    }
    if body["file_route"].is_object() {
        let file = &body["file_route"];
        page.facts
            .push((t.route_file, Cell::code(record::text(&file["file"]))));
        page.facts
            .push((t.steps, Cell::new(record::text(&file["steps"]))));
    }
    if body["upstream"].is_object() {
        let upstream = &body["upstream"];
        page.facts
            .push((t.service, named("services", upstream, "service")));
        let to = format!(
            "{}://{}{}",
            record::text(&upstream["protocol"]),
            record::text(&upstream["address"]),
            record::text(&upstream["path"]),
        );
        page.facts.push((t.goes_to, Cell::code(to)));
        page.facts
            .push((t.host_header, Cell::code(record::text(&upstream["host"]))));
    }
    page.tables = vec![
        filters_table(visit, body),
        misses_table(visit, body),
        targets_table(visit, body),
    ];
    page.tables
        .retain(|table| !table.rows.is_empty() || table.id == "filters");
}

/// What becomes of the request, in a sentence.
fn verdict(visit: &Visit, body: &Value) -> Cell {
    let t = visit.texts;
    let text = |value: &Value, name: &str| record::text(&value[name]);
    let (refusal, answered) = (&body["refusal"], &body["answered"]);
    if refusal.is_object() {
        let (status, reason) = (text(refusal, "status"), text(refusal, "reason"));
        return Cell::new(format!("{status}: {reason}")).marked(Mark::Bad);
    }
    if answered.is_object() {
        let parts = ["status", "filter", "code", "reason"].map(|name| text(answered, name));
        let [status, filter, code, reason] = parts;
        return Cell::new(format!("{status} {filter} ({code}): {reason}")).marked(Mark::Warning);
    }
    if body["route"].is_null() && body["file_route"].is_null() {
        return Cell::new(t.no_route).marked(Mark::Bad);
    }
    Cell::new(t.passes).marked(Mark::Good)
}

fn filters_table(visit: &Visit, body: &Value) -> Table {
    let t = visit.texts;
    let mut answered = false;
    let rows = body["filters"].as_array().into_iter().flatten().map(|one| {
        let outlook = &one["outlook"];
        let (text, mark) = match outlook["decision"].as_str() {
            Some("passes") => (t.decision_passes.to_owned(), Mark::Good),
            Some("answers") => {
                answered = true;
                let parts = ["status", "code"].map(|name| record::text(&outlook[name]));
                (parts.join(" "), Mark::Bad)
            }
            Some("depends") => (t.decision_depends.to_owned(), Mark::Warning),
            // Those that change a request and refuse none have nothing to say.
            _ if answered => (t.decision_none.to_owned(), Mark::Muted),
            _ => (t.decision_runs.to_owned(), Mark::Good),
        };
        Row::new(vec![
            named("plugins", one, "id"),
            Cell::new(record::text(&one["scope"])),
            Cell::new(text).marked(mark),
            Cell::new(outlook["reason"].as_str().unwrap_or_default()),
        ])
    });
    Table {
        caption: t.filters.to_owned(),
        columns: [t.plugin, t.scope, t.decision, t.reason]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        empty: t.no_filters,
        id: "filters",
        ..Table::default()
    }
}

fn misses_table(visit: &Visit, body: &Value) -> Table {
    let t = visit.texts;
    let rows = body["near_misses"].as_array().into_iter().flatten();
    let rows = rows.map(|one| {
        Row::new(vec![
            named("routes", one, "id"),
            Cell::new(record::text(&one["reasons"])),
        ])
    });
    Table {
        caption: t.near_misses.to_owned(),
        columns: [t.route, t.reason].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        ..Table::default()
    }
}

fn targets_table(visit: &Visit, body: &Value) -> Table {
    let t = visit.texts;
    let rows = body["upstream"]["targets"].as_array().into_iter().flatten();
    let rows = rows.map(|one| {
        let (text, mark) = if one["healthy"] == true {
            (t.healthy, Mark::Good)
        } else {
            (t.unhealthy, Mark::Bad)
        };
        Row::new(vec![
            Cell::code(record::text(&one["target"])),
            Cell::code(record::text(&one["address"])),
            Cell::new(record::text(&one["weight"])),
            Cell::new(text).marked(mark),
        ])
    });
    Table {
        caption: t.targets.to_owned(),
        columns: [t.target, t.address, t.weight, t.health]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        ..Table::default()
    }
}
