//! The page on expressions has the functions, methods and objects of the program.
//!
//! The program is asked: it names what there is when it refuses a name that nobody
//! knows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{names, page};
use crate::support::Setup;

/// A name that is near no other one.
const UNKNOWN: &str = "qqqqqqqqqqqqqqqq";

/// What the program says of each of these expressions, in their order; `None`: it
/// takes it.
fn findings(expressions: &[String]) -> Vec<Option<String>> {
    let door = Setup::new().lay_out();
    let mut files = Vec::new();
    for (index, expression) in expressions.iter().enumerate() {
        let route = serde_json::json!({
            "condition": format!("${{{expression}}}"),
            "handler": {"type": "StaticResponseHandler", "config": {"status": 200}},
        });
        let name = format!("r{index}.json");
        door.write(&name, &route.to_string());
        files.push(name);
    }
    let main = serde_json::json!({"entities": files});
    door.write("doorward.yaml", &main.to_string());
    let output = door.run(&["check", "-c", "doorward.yaml", "--format", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = answer["findings"].as_array().expect("findings");
    let text = |one: &Value, name: &str| one[name].as_str().expect("a text").to_owned();
    let mut found: BTreeMap<_, _> = found
        .iter()
        .map(|one| (text(one, "file"), text(one, "message")))
        .collect();
    files.iter().map(|file| found.remove(file)).collect()
}

/// The names in backticks behind `only`.
fn offered(message: &str) -> Option<BTreeSet<String>> {
    let (_, names) = message.split_once("only ")?;
    let names = names.split('`').skip(1).step_by(2);
    Some(names.map(str::to_owned).collect())
}

/// What the program offers where it does not know a name.
fn offer(expression: &str) -> BTreeSet<String> {
    let finding = findings(&[expression.to_owned()]).remove(0);
    let finding = finding.expect("it is refused");
    offered(&finding).unwrap_or_else(|| panic!("{finding} names nothing"))
}

/// The rows of the table below a heading.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, rest) = page.split_once(heading).expect("the heading");
    let lines = rest.lines().take_while(|line| !line.starts_with("## "));
    lines.filter(|line| line.starts_with("| `")).collect()
}

fn compare(what: &str, known: &BTreeSet<String>, listed: &BTreeSet<String>) {
    let missing: Vec<_> = known.difference(listed).collect();
    let superfluous: Vec<_> = listed.difference(known).collect();
    assert!(
        missing.is_empty() && superfluous.is_empty(),
        "docs/expressions.md, {what}: it lacks {missing:?} and has {superfluous:?}"
    );
}

/// The functions of a row. Where some end with an ellipsis, the others go behind
/// them.
fn functions(row: &str) -> Vec<String> {
    let names = names(row).into_iter();
    let names: Vec<_> = names
        .filter_map(|name| name.split('(').next())
        .map(str::to_owned)
        .collect();
    let beginnings = names.iter().filter_map(|name| name.strip_suffix('…'));
    let beginnings: Vec<_> = beginnings.collect();
    if beginnings.is_empty() {
        return names;
    }
    let endings: Vec<_> = names.iter().filter(|name| !name.ends_with('…')).collect();
    let both = beginnings.iter().flat_map(|beginning| {
        endings
            .iter()
            .map(move |ending| format!("{beginning}{ending}"))
    });
    both.collect()
}

#[test]
fn functions_of_the_page_are_those_of_the_program() {
    let page = page("expressions.md");
    let listed = rows(&page, "\n## Functions\n")
        .into_iter()
        .flat_map(functions);
    let known = offer(&format!("{UNKNOWN}(1)"));
    assert!(known.len() > 40, "{known:?}");
    compare("functions", &known, &listed.collect());
}

#[test]
fn methods_of_the_page_are_those_of_the_program() {
    let page = page("expressions.md");
    let (_, paragraph) = page.split_once("\n**Methods.**").expect("the methods");
    let paragraph = paragraph.lines().next().expect("a line");
    let listed = paragraph.split('`').skip(1).step_by(2);
    let listed = listed.flat_map(str::split_whitespace).map(str::to_owned);
    let known = offer(&format!("'a'.{UNKNOWN}()"));
    assert!(known.len() > 25, "{known:?}");
    compare("methods", &known, &listed.collect());
}

/// The objects with members of fixed names, and these names.
fn objects() -> BTreeMap<String, BTreeSet<String>> {
    let mut objects = BTreeMap::new();
    let mut left: Vec<String> = ["request", "response", "contexts"]
        .map(str::to_owned)
        .to_vec();
    while !left.is_empty() {
        let probes: Vec<_> = left
            .iter()
            .map(|path| format!("{path}.{UNKNOWN}"))
            .collect();
        let mut next = Vec::new();
        for (path, finding) in left.iter().zip(findings(&probes)) {
            let Some(members) = finding.as_deref().and_then(offered) else {
                continue;
            };
            for member in &members {
                next.push(format!("{path}.{member}"));
                if member == "cookies" {
                    next.push(format!("{path}.{member}['a'][0]"));
                }
            }
            objects.insert(path.clone(), members);
        }
        left = next;
    }
    objects
}

/// Where the page tells of the members of an object, if not in its own row.
fn told_at(path: &str) -> Vec<&str> {
    match path {
        "contexts" => vec!["contexts", "attributes"],
        "contexts.attributes" => vec!["attributes"],
        "contexts.router.originalUri" => vec!["request.uri"],
        path if path.contains(".cookies[") => vec!["request.cookies", "response"],
        path => vec![path],
    }
}

/// The words in the code of a row, without indexes and what is called.
fn words(row: &str) -> BTreeSet<&str> {
    let code = row.split('`').skip(1).step_by(2);
    let words = code.flat_map(|code| code.split([' ', '.', '|']));
    words
        .filter_map(|word| word.split(['[', '(']).next())
        .collect()
}

#[test]
fn members_of_objects_are_in_the_page() {
    let page = page("expressions.md");
    let rows = rows(&page, "\n## Objects\n");
    let objects = objects();
    assert!(objects.len() > 12, "{objects:?}");
    let mut missing = Vec::new();
    for (path, members) in &objects {
        // The row of the object, or of the nearest one that it is a part of.
        let fits = |row: &&&str| {
            let heads = names(row).into_iter();
            let heads = heads.map(|name| name.split('[').next().unwrap_or_default());
            let mut heads = heads.filter(|name| !name.is_empty());
            heads.any(|name| {
                let mut told_at = told_at(path).into_iter();
                told_at.any(|path| path.starts_with(name) || name.starts_with(path))
            })
        };
        let words: BTreeSet<_> = rows
            .iter()
            .filter(fits)
            .flat_map(|row| words(row))
            .collect();
        let is_told = |member: &&String| {
            let other = member.strip_prefix("raw").map(str::to_ascii_lowercase);
            let of_raw = words.contains("raw…")
                && other.is_some_and(|other| {
                    let mut words = words.iter();
                    words.any(|word| word.to_ascii_lowercase() == other)
                });
            words.contains(member.as_str()) || of_raw
        };
        let lacking = members.iter().filter(|member| !is_told(member));
        missing.extend(lacking.map(|member| format!("{path}.{member}")));
    }
    assert_eq!(missing, [""; 0], "docs/expressions.md lacks them");
}

#[test]
fn objects_of_the_page_are_those_of_the_program() {
    let page = page("expressions.md");
    // A condition is asked before there is an answer.
    let is_probed = |name: &&str| !["properties", "response"].contains(name);
    let mut expressions = Vec::new();
    for row in rows(&page, "\n## Objects\n") {
        for name in names(row).into_iter().filter(is_probed) {
            expressions.push(name.replace("[i]", "[0]"));
        }
    }
    assert!(expressions.len() > 15, "{expressions:?}");
    let refused: Vec<_> = expressions.iter().zip(findings(&expressions)).collect();
    let refused = refused.iter().filter(|(_, finding)| finding.is_some());
    let refused: Vec<_> = refused.collect();
    assert!(refused.is_empty(), "docs/expressions.md: {refused:#?}");
}
