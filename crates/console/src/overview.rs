//! The first page: what passes, what is refused, and what needs attention.

use askama::Template;
use axum::response::Response;
use http::Method;
use serde_json::Value;

use super::entities::ListPage;
use super::error::PageError;
use super::frame::{self, Frame};
use super::table::{Cell, Mark, Row, Table};
use super::texts::Texts;
use super::visit::Visit;
use super::{explain, live, path, record};
use doorward_core::model::audit::instant;
use doorward_net::telemetry::Telemetry;

/// Rows of a table of this page.
const ROWS: usize = 20;
/// Nodes that are shown.
const NODES: usize = 100;
/// Sessions that are counted.
const SESSIONS: &str = "1000";
/// Filters whose partitions are looked at.
const FILTERS: usize = 20;
/// Throttled partitions that are shown.
const THROTTLED: usize = 10;
/// When a certificate's end is near, in seconds.
const NEAR: i64 = 30 * 86_400;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    warnings: Vec<String>,
    facts: Vec<(&'static str, Cell)>,
    tables: Vec<Table>,
}

/// `GET /`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let api = visit.api();
    let (about, status) = (api.get("/").await?, api.get("/status").await?);
    let texts = |value: &Value| {
        let list = value.as_array().into_iter().flatten();
        list.map(record::text).collect::<Vec<_>>()
    };
    let telemetry = &visit.parts().telemetry;
    let mut refused = refusals_table(&visit).await?;
    refused.rows.retain(|row| row.cells[3].text != "0");
    refused.id = "refusals";
    refused.empty = t.no_refusals;
    frame::show(&OverviewPage {
        frame: Frame::of(&visit, t.overview, "/console"),
        warnings: texts(&status["configuration"]["errors"]),
        facts: facts(&visit, &about, &status).await,
        tables: vec![
            refused,
            latest_table(t, telemetry, ""),
            throttled_table(&visit).await?,
            warnings_table(&visit, &status["configuration"]).await?,
            targets_table(t, telemetry),
            certificates_table(t, telemetry),
            nodes_table(&visit).await?,
        ],
    })
}

async fn facts(visit: &Visit, about: &Value, status: &Value) -> Vec<(&'static str, Cell)> {
    let t = visit.texts;
    let store = &status["database"];
    let store = match (store["reachable"].as_bool(), store["error"].as_str()) {
        (Some(true), None) => Cell::new(t.reachable).marked(Mark::Good),
        (_, error) => Cell::new(error.unwrap_or(t.unreachable)).marked(Mark::Bad),
    };
    let current = if status["configuration"]["current"] == true {
        Cell::new(t.in_force).marked(Mark::Good)
    } else {
        Cell::new(t.not_in_force).marked(Mark::Bad)
    };
    let memory = status["memory"]["resident"].as_u64().unwrap_or_default() >> 20;
    let mut all = vec![
        (t.node, Cell::new(record::text(&about["hostname"]))),
        (
            t.version,
            Cell::new(record::text(&about["doorward_version"])),
        ),
        (t.store, store),
        (t.configuration, current),
        (t.memory, Cell::new(format!("{memory} MiB"))),
        (
            t.requests,
            Cell::new(record::text(&status["server"]["total_requests"])),
        ),
        (
            t.connections,
            Cell::new(record::text(&status["server"]["connections_active"])),
        ),
    ];
    let metrics = &visit.parts().telemetry.metrics;
    if let Some(up) = metrics.redis_is_up() {
        let redis = if up == 1 {
            Cell::new(t.in_use).marked(Mark::Good)
        } else {
            Cell::new(t.down).marked(Mark::Bad)
        };
        all.insert(3, ("Redis", redis));
    }
    if visit.parts().admin.has_identity() {
        let [checked, _] = metrics.signed_in();
        let is_good = |outcome: &str| outcome == "success";
        let sum = |good: bool| -> u64 {
            let fitting = checked.iter().filter(|one| is_good(one.0) == good);
            fitting.map(|one| one.1).sum()
        };
        let failed = path::with_query(
            "/console/audit",
            [("kind", "session.begin"), ("outcome", "failure")],
        );
        all.push((t.sign_ins, Cell::new(sum(true).to_string())));
        all.push((
            t.sign_ins_failed,
            Cell::new(sum(false).to_string()).to(failed),
        ));
        all.push((t.sessions, sessions(visit).await));
    }
    all
}

/// How many sessions there are, counted up to a bound.
async fn sessions(visit: &Visit) -> Cell {
    let target = path::with_query("/identity/sessions", [("size", SESSIONS)]);
    let Ok(body) = visit.api().get(&target).await else {
        return Cell::new("–");
    };
    let count = body["data"].as_array().map_or(0, Vec::len);
    let more = if body["offset"].is_string() { "> " } else { "" };
    Cell::new(format!("{more}{count}")).to("/console/identity/sessions")
}

/// The partitions that were refused most, over all filters that count.
async fn throttled_table(visit: &Visit) -> Result<Table, PageError> {
    let t = visit.texts;
    let api = visit.api();
    let filters = api.get("/throttling").await?;
    let mut found = Vec::new();
    let filters = filters["data"].as_array().into_iter().flatten();
    for filter in filters.take(FILTERS) {
        let plugin = &filter["plugin"];
        let id = record::text(&plugin["id"]);
        // A filter may have gone since it was listed.
        let Ok(body) = api.get(&path::join("/throttling", [id.as_str()])).await else {
            continue;
        };
        let name = plugin["instance_name"].as_str().unwrap_or(&id);
        for partition in body["hottest"].as_array().into_iter().flatten() {
            let refused = partition["refused"].as_u64().unwrap_or_default();
            if refused > 0 {
                let to = path::join("/console/throttling", [id.as_str()]);
                found.push((refused, name.to_owned(), to, record::text(&partition["id"])));
            }
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    let rows = found.into_iter().take(THROTTLED);
    let rows = rows.map(|(refused, name, to, partition)| {
        Row::new(vec![
            Cell::new(name).to(to),
            Cell::code(partition),
            Cell::new(refused.to_string()).marked(Mark::Warning),
        ])
    });
    Ok(Table {
        caption: t.throttled.to_owned(),
        columns: [t.filter_of, t.partition, t.refused]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        empty: t.no_throttled,
        links: vec![(t.throttling.to_owned(), "/console/throttling".to_owned())],
        ..Table::default()
    })
}

/// What the files of the configuration warn of, and what is wrong in them.
async fn warnings_table(visit: &Visit, status: &Value) -> Result<Table, PageError> {
    let t = visit.texts;
    let files = visit.api().get("/route-files").await?;
    let own = status["warnings"].as_array().into_iter().flatten();
    let own = own.map(|finding| {
        let finding = record::text(finding);
        let (place, message) = split(&finding, "");
        let message = Cell::new(message).marked(Mark::Warning);
        Row::new(vec![Cell::code(place), message])
    });
    let mut rows: Vec<_> = own.collect();
    for file in files["data"].as_array().into_iter().flatten() {
        let to = path::join("/console/route-files", [record::text(&file["id"]).as_str()]);
        let name = record::text(&file["file"]);
        for (findings, mark) in [("errors", Mark::Bad), ("warnings", Mark::Warning)] {
            for finding in file[findings].as_array().into_iter().flatten() {
                let finding = record::text(finding);
                let (place, message) = split(&finding, &name);
                let message = Cell::new(message).marked(mark);
                rows.push(Row::new(vec![Cell::code(place).to(to.clone()), message]));
            }
        }
    }
    rows.truncate(ROWS);
    Ok(Table {
        caption: t.configuration_warnings.to_owned(),
        columns: [t.place_of, t.message].map(str::to_owned).to_vec(),
        rows,
        empty: t.nothing,
        ..Table::default()
    })
}

/// The place and the message of a finding: `FILE:LINE: message`, or `FILE: message` of
/// one that is of the whole file. One that names no place is of `file`.
fn split<'a>(finding: &'a str, file: &'a str) -> (&'a str, &'a str) {
    // A file's own name may have colons.
    let known = finding.strip_prefix(file).map_or(0, |_| file.len());
    match finding[known..].find(": ") {
        Some(at) => (&finding[..known + at], &finding[known + at + 2..]),
        None => (file, finding),
    }
}

fn targets_table(t: &'static Texts, telemetry: &Telemetry) -> Table {
    let mut all = telemetry.targets.read();
    // What is ill comes first.
    all.sort_by_key(|one| matches!(one.health, "healthy" | "healthchecks_off"));
    let rows = all.into_iter().take(ROWS).map(|one| {
        let mark = match one.health {
            "healthy" => Mark::Good,
            "healthchecks_off" => Mark::Muted,
            _ => Mark::Bad,
        };
        let address = path::join("/console/gateway/upstreams", [&*one.upstream]);
        Row::new(vec![
            Cell::new(&*one.upstream).to(address),
            Cell::code(&*one.target),
            Cell::code(one.address),
            Cell::new(one.health).marked(mark),
            Cell::new(one.in_flight.to_string()),
        ])
    });
    Table {
        caption: t.upstream_health.to_owned(),
        columns: [t.upstream, t.target, t.address, t.health, t.in_flight]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        empty: t.no_targets,
        ..Table::default()
    }
}

fn certificates_table(t: &'static Texts, telemetry: &Telemetry) -> Table {
    let expiries = telemetry.certificate_expiries();
    let rows = expiries.into_iter().take(ROWS).map(|expiry| {
        let days = expiry.seconds_left.div_euclid(86_400);
        let cell = match expiry.seconds_left {
            ..=0 => Cell::new(t.expired).marked(Mark::Bad),
            1..NEAR if !expiry.is_renewed => {
                Cell::new(format!("{days} {}", t.days)).marked(Mark::Warning)
            }
            _ => Cell::new(format!("{days} {}", t.days)).marked(Mark::Good),
        };
        Row::new(vec![Cell::new(expiry.label.to_string()), cell])
    });
    Table {
        caption: t.expiries.to_owned(),
        columns: [t.certificate, t.left].map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.no_certificates,
        ..Table::default()
    }
}

/// The nodes that share the store.
async fn nodes_table(visit: &Visit) -> Result<Table, PageError> {
    let t = visit.texts;
    // Where the store does not answer, this is told by the facts.
    let api = visit.api();
    let body = api.send(Method::GET, "/clustering/nodes", None).await?.body;
    let rows = body["data"].as_array().into_iter().flatten();
    let rows = rows.take(NODES).map(|one| {
        let time = |name: &str| {
            let seconds = one[name].as_i64().unwrap_or_default();
            Cell::code(instant(seconds.saturating_mul(1000)))
        };
        let seen = if one["answers"] == true {
            time("last_seen").marked(Mark::Good)
        } else {
            time("last_seen").marked(Mark::Bad)
        };
        let files = if one["configuration_current"] == true {
            Cell::new(t.in_force).marked(Mark::Good)
        } else {
            Cell::new(t.not_in_force).marked(Mark::Bad)
        };
        let mut name = record::text(&one["hostname"]);
        if one["is_this"] == true {
            name = format!("{name} ({})", t.this_node);
        }
        Row::new(vec![
            Cell::new(name),
            Cell::code(record::text(&one["id"])),
            Cell::new(record::text(&one["version"])),
            time("started_at"),
            seen,
            Cell::new(record::text(&one["revision"])),
            files,
        ])
    });
    let columns = [
        t.node,
        "id",
        t.version,
        t.started,
        t.last_seen,
        t.revision,
        t.configuration,
    ];
    Ok(Table {
        caption: t.nodes.to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.nothing,
        id: "nodes",
        ..Table::default()
    })
}

/// Every refusal with its meaning and how often it was.
async fn refusals_table(visit: &Visit) -> Result<Table, PageError> {
    let t = visit.texts;
    let listed = visit.api().get("/explain/refusals").await?;
    let counted = live::refusals(&visit.parts().telemetry);
    let rows = listed["data"].as_array().into_iter().flatten().map(|one| {
        let (filter, code) = (record::text(&one["filter"]), record::text(&one["code"]));
        let count = counted.iter().find(|(f, c, _)| *f == filter && *c == code);
        let count = count.map_or(0, |(_, _, count)| *count);
        let status = one["status"].as_u64().unwrap_or_default();
        let status = if status == 0 {
            "–".to_owned()
        } else {
            status.to_string()
        };
        Row::new(vec![
            Cell::new(filter),
            Cell::code(code.clone()).to(path::with_query(
                "/console/refusals",
                [("code", code.as_str())],
            )),
            Cell::new(status),
            Cell::new(count.to_string()),
            Cell::new(record::text(&one["meaning"])),
        ])
    });
    let mut rows: Vec<_> = rows.collect();
    // Some plugins count all their refusals as one.
    let is_listed = |filter: &str| {
        let mut rows = rows.iter();
        rows.any(|row: &Row| row.cells[0].text == filter && row.cells[1].text == "refuse")
    };
    let whole: Vec<_> = counted
        .iter()
        .filter(|(filter, code, _)| *code == "refuse" && !is_listed(filter))
        .collect();
    rows.extend(whole.into_iter().map(|(filter, code, count)| {
        let codes = path::with_query("/console/refusals", [("code", *filter)]);
        Row::new(vec![
            Cell::new(*filter),
            Cell::code(*code).to(codes),
            Cell::new("–"),
            Cell::new(count.to_string()),
            Cell::new(t.all_codes),
        ])
    }));
    Ok(Table {
        caption: t.refusals.to_owned(),
        columns: [t.plugin, t.code, t.status, t.count, t.meaning]
            .map(str::to_owned)
            .to_vec(),
        rows,
        empty: t.nothing,
        ..Table::default()
    })
}

/// The requests that were refused last, of one code or of all, each with the way to its
/// explanation.
fn latest_table(t: &'static Texts, telemetry: &Telemetry, code: &str) -> Table {
    let latest = telemetry.refused_requests.read();
    let latest = latest
        .into_iter()
        .filter(|one| one.code.to_lowercase().contains(code));
    let rows = latest.take(ROWS).map(|one| {
        let explain = explain::address_of(&one);
        Row::new(vec![
            Cell::code(instant(one.time_ms)),
            Cell::code(one.code),
            Cell::new(one.status.to_string()),
            Cell::new(one.method),
            Cell::code(format!("{}{}", one.host, one.path)).to(explain),
            Cell::code(one.client.to_string()),
        ])
    });
    let columns = [t.time, t.code, t.status, t.method, t.request, t.address];
    Table {
        caption: t.refused_last.to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.no_refusals,
        id: "latest",
        ..Table::default()
    }
}

/// `GET /refusals`: every code, or one of them.
pub(crate) async fn refusals(visit: Visit) -> Result<Response, PageError> {
    let t = visit.texts;
    let mut table = refusals_table(&visit).await?;
    let code = visit.query("code").to_lowercase();
    let fits = |row: &Row| {
        row.cells
            .iter()
            .any(|cell| cell.text.to_lowercase().contains(&code))
    };
    table.rows.retain(|row| fits(row));
    table.links = vec![(t.explain_one.to_owned(), "/console/explain".to_owned())];
    frame::show(&ListPage {
        frame: Frame::of(&visit, t.refusals, "/console/refusals"),
        lead: t.refusals_lead,
        filters: vec![super::table::Filter {
            name: "code",
            label: t.search,
            value: visit.query("code").to_owned(),
            hint: "",
        }],
        tables: vec![table, latest_table(t, &visit.parts().telemetry, &code)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_split_into_its_place_and_what_it_says() {
        let of = |finding: &'static str| split(finding, "/a/b.json");
        let told = of("/a/b.json:12: heap[0]: no such type");
        assert_eq!(told, ("/a/b.json:12", "heap[0]: no such type"));
        assert_eq!(of("/a/b.json: x: y"), ("/a/b.json", "x: y"));
        assert_eq!(of("unreadable"), ("/a/b.json", "unreadable"));
        assert_eq!(split("/c.yaml:3: a.b: m", ""), ("/c.yaml:3", "a.b: m"));
        assert_eq!(split("/a: b:1: m", "/a: b"), ("/a: b:1", "m"));
    }
}
