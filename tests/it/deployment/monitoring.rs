//! Rules for Prometheus and dashboards for Grafana name what the program counts.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::{documents, files, project, success, text};
use crate::support::{Door, Setup, http};

const RULES: &str = "deploy/prometheus/doorward.rules.yml";
const RULE_TESTS: &str = "deploy/prometheus/doorward.rules.test.yml";

/// The labels that a scrape adds, and that of a histogram's buckets.
const OTHER_LABELS: &[&str] = &["job", "instance", "le"];

/// A metric as an expression names it: with the labels that it asks for.
#[derive(Debug)]
struct Selector {
    metric: String,
    labels: Vec<String>,
}

/// The metrics that an expression names.
fn selectors(expression: &str) -> Vec<Selector> {
    let is_part =
        |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    let mut selectors = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|character| !is_part(character));
        let end = end.map_or(rest.len(), |end| start + end);
        let (name, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        let ours = ["doorward", "kong_", "process_"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !ours || name == "doorward" {
            continue;
        }
        let matchers = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        // A value may contain a comma: what is no label has no operator.
        let matchers = matchers.map_or("", |(inside, _)| inside).split("\",");
        let labels = matchers.filter_map(|matcher| matcher.split_once(['=', '!']));
        selectors.push(Selector {
            metric: name.to_owned(),
            labels: labels.map(|(label, _)| label.trim().to_owned()).collect(),
        });
    }
    selectors
}

/// A metric without what a histogram adds to its name.
fn family(metric: &str) -> &str {
    ["_bucket", "_sum", "_count"]
        .iter()
        .find_map(|end| metric.strip_suffix(end))
        .unwrap_or(metric)
}

/// The labels of every metric in the list of docs/operation.md.
fn listed() -> BTreeMap<String, BTreeSet<String>> {
    let page = text("docs/operation.md");
    let rows = page.lines().filter(|line| line.starts_with("| `doorward_"));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[2]
            .split(',')
            .map(|label| label.trim().trim_matches('`'));
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned);
        (cells[1].trim_matches('`').to_owned(), labels.collect())
    });
    rows.collect()
}

/// The labels of every sample of an exposition, by family.
fn exposed(exposition: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let labels = families.entry(family(name).to_owned()).or_default();
        for selector in selectors(line) {
            labels.extend(selector.labels);
        }
    }
    families
}

/// Every expression of the rules, by the name of the rule.
fn rule_expressions() -> Vec<(String, String)> {
    let rules = documents(&text(RULES));
    let groups = rules[0]["groups"].as_sequence().expect("groups").clone();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_sequence().expect("rules"));
    let rules = rules.map(|rule| {
        let name = rule
            .get("alert")
            .or_else(|| rule.get("record"))
            .expect("a name");
        let [name, expression] =
            [name, &rule["expr"]].map(|text| text.as_str().expect("a text").to_owned());
        (name, expression)
    });
    rules.collect()
}

/// Every dashboard, by the name of its file.
fn dashboards() -> Vec<(String, Value)> {
    let files = files("deploy/grafana", ".json").into_iter();
    let dashboards = files.map(|path| {
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect("a dashboard");
        let dashboard = serde_json::from_str(&text);
        (
            name,
            dashboard.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
    });
    dashboards.collect()
}

/// Every expression of the dashboards, by the title of its panel.
fn dashboard_expressions() -> Vec<(String, String)> {
    let mut expressions = Vec::new();
    for (name, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().expect("panels") {
            let targets = panel["targets"].as_array().into_iter().flatten();
            for target in targets {
                let place = format!("{name}: {}", panel["title"]);
                expressions.push((
                    place,
                    target["expr"].as_str().expect("an expression").to_owned(),
                ));
            }
        }
    }
    expressions
}

async fn metrics(door: &Door) -> String {
    let request = http::client().get(door.admin_url("/metrics"));
    http::send(request).await.expect(200).body
}

#[tokio::test]
async fn rules_and_dashboards_name_what_the_program_counts() {
    let door = Setup::new().start().await;
    door.get("nobody.test", "/").await.expect(404);
    let exposed = exposed(&metrics(&door).await);
    let listed = listed();
    // What the program says of itself is what the page says.
    for (family, labels) in exposed
        .iter()
        .filter(|(name, _)| name.starts_with("doorward_"))
    {
        let mut page = listed
            .get(family)
            .unwrap_or_else(|| panic!("{family} is in no list"))
            .clone();
        page.insert("le".to_owned());
        assert!(
            labels.is_subset(&page),
            "{family}: {labels:?}, the page has {page:?}"
        );
    }
    let rules = rule_expressions();
    let recorded: BTreeSet<_> = rules.iter().map(|(name, _)| name.clone()).collect();
    for (place, expression) in rules.iter().chain(&dashboard_expressions()) {
        let selectors = selectors(expression);
        for selector in selectors {
            if recorded.contains(&selector.metric) {
                continue;
            }
            let known = listed.get(family(&selector.metric));
            let known = known.or_else(|| exposed.get(&selector.metric));
            let known = known.unwrap_or_else(|| panic!("{place}: no metric {}", selector.metric));
            for label in &selector.labels {
                assert!(
                    known.contains(label) || OTHER_LABELS.contains(&label.as_str()),
                    "{place}: {} has no label {label}",
                    selector.metric
                );
            }
        }
    }
}

#[test]
fn every_alert_is_explained_and_has_a_test() {
    let tests = text(RULE_TESTS);
    let rules = documents(&text(RULES));
    let groups = rules[0]["groups"].as_sequence().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_sequence().expect("rules"));
    let alerts: Vec<_> = rules.filter(|rule| rule.get("alert").is_some()).collect();
    assert!(alerts.len() > 30, "{}", alerts.len());
    for alert in alerts {
        let name = alert["alert"].as_str().expect("a name");
        assert!(
            tests.contains(&format!("alertname=\"{name}\"")),
            "{name} has no test"
        );
        let severity = alert["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}");
        for annotation in ["summary", "description", "runbook"] {
            let said = alert["annotations"][annotation].as_str();
            assert!(
                said.is_some_and(|said| said.len() > 15),
                "{name}: {annotation}"
            );
        }
    }
}

#[test]
fn dashboards_can_be_imported_anywhere() {
    for (name, dashboard) in dashboards() {
        assert_eq!(dashboard["uid"], name.as_str());
        assert_eq!(dashboard["id"], Value::Null, "{name}");
        let panels = dashboard["panels"].as_array().expect("panels");
        let mut ids = BTreeSet::new();
        let mut cells = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().expect("a title");
            assert!(ids.insert(panel["id"].as_u64()), "{name}: {title}");
            let [x, y, width, height] =
                ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
            assert!(x + width <= 24, "{name}: {title}");
            for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
                assert!(cells.insert(cell), "{name}: {title} lies on another");
            }
            for target in panel["targets"].as_array().into_iter().flatten() {
                assert_eq!(
                    target["datasource"]["uid"], "${datasource}",
                    "{name}: {title}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs promtool, which `make test` installs"]
fn promtool_takes_rules_dashboards_and_the_rules_tests() {
    let promtool = || Command::new("promtool");
    success(promtool().args(["check", "rules"]).arg(project(RULES)));
    success(promtool().args(["test", "rules"]).arg(project(RULE_TESTS)));
    let folder = tempfile::TempDir::new().expect("a folder");
    let mut rules = "groups:\n- name: dashboards\n  rules:\n".to_owned();
    for (index, (_, expression)) in dashboard_expressions().iter().enumerate() {
        let expression = expression.replace("$__rate_interval", "5m");
        let expression = serde_json::to_string(&expression).expect("a text");
        rules.push_str(&format!(
            "  - {{record: \"panel:{index}\", expr: {expression}}}\n"
        ));
    }
    let path = folder.path().join("dashboards.yml");
    std::fs::write(&path, rules).expect("the file is written");
    success(promtool().args(["check", "rules"]).arg(&path));
}
