//! A route file, from text to route.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use url::Url;

use super::MAX_TEXT;
use super::build_context;
use super::builder::{Findings, Object, RouteFileBuilder};
use super::fields::{Fields, Place, is_comment};
use super::filters::RunningFilters;
use super::loader::{Attempt, FileSets, Good, Site};
use super::properties::{self, Properties};
use crate::handler::{Declared, FileRoute, Handler, MAX_DEPTH};
use doorward_core::yaml::{Document, PathSegment, Sources};

/// Longest name of a route, in bytes: it is a label of metrics.
const MAX_NAME: usize = 128;
/// Members of a route file.
const MEMBERS: [&str; 6] = [
    "name",
    "baseURI",
    "condition",
    "handler",
    "heap",
    "properties",
];
/// Members that are accepted and decide nothing here.
const IDLE: [&str; 10] = [
    "audit",
    "auditService",
    "capture",
    "globalDecorators",
    "monitor",
    "session",
    "sessionManager",
    "temporaryStorage",
    "timer",
    "tracing",
];
const PROPERTIES: &str = "properties";

/// Reads the route that `text` of `file` declares.
pub(super) fn read(
    text: &str,
    file: &Path,
    id: String,
    site: &Site<'_>,
    running: RunningFilters,
    file_sets: FileSets,
) -> Attempt {
    let fail = |errors: Vec<String>| Attempt {
        id: id.clone(),
        good: None,
        findings: Findings {
            errors,
            warnings: Vec::new(),
        },
        file_sets: FileSets::default(),
    };
    if text.len() > MAX_TEXT {
        let message = format!("{}: longer than {MAX_TEXT} bytes", file.display());
        return fail(vec![message]);
    }
    let mut document = match Document::parse_relaxed(text, file) {
        Ok(document) => document,
        Err(error) => return fail(vec![error.to_string()]),
    };
    let Value::Object(mut root) = document.take_value() else {
        return fail(vec![document.error(&[], "expected an object").to_string()]);
    };
    let (properties, faults) = resolve(&mut root, file, site);
    let mut builder = RouteFileBuilder::new(site.context, &document, site.outer, id, properties);
    for (path, message) in faults {
        builder.wrong(&Place(path), message);
    }
    builder.directories = directories(file, site);
    builder.says_base = Value::Object(root.clone())
        .to_string()
        .contains("\"baseURI\"");
    *builder.running.get_mut() = running;
    *builder.file_sets.get_mut() = file_sets;
    // What has unresolved tokens in it would be refused once more.
    let good = if builder.is_good() {
        declare_objects(&mut builder, root.get("heap"));
        route(&builder, &root)
    } else {
        None
    };
    let findings = builder.take_findings();
    let file_sets = builder.file_sets.take().settled();
    let good = good.filter(|_| findings.errors.is_empty());
    Attempt {
        good: good.map(|good| Good {
            filters: builder.running.take().into_filters(),
            file_sets: file_sets.clone(),
            text: (builder.routers.get() > 0).then(|| text.into()),
            ..good
        }),
        id: builder.id,
        findings,
        file_sets,
    }
}

/// Resolves the tokens of a file, with its properties.
fn resolve(
    root: &mut Map<String, Value>,
    file: &Path,
    site: &Site<'_>,
) -> (Properties, Vec<properties::Fault>) {
    let mut faults = Vec::new();
    let context = site.context;
    let directory = file.parent().unwrap_or(Path::new(""));
    let around = match site.outer {
        Some(outer) => outer.properties.clone(),
        None => build_context::instance(file, context.environment),
    };
    let declared = match root.remove(PROPERTIES) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(declared)) => {
            let path = vec![PROPERTIES.into()];
            located(declared, path, directory, &around, site, &mut faults)
        }
        Some(_) => {
            let message = "expected an object, or {\"$location\": FILE}".to_owned();
            faults.push((vec![PROPERTIES.into()], message));
            Map::new()
        }
    };
    let properties = Properties::read(declared, &around, context, directory, &mut faults);
    let named = |name: &str| Ok(properties.text(name));
    let environment = |name: &str| (context.environment)(name);
    let sources = Sources::new(directory, &named, &environment);
    for (key, value) in root.iter_mut() {
        faults.extend(sources.resolve(value, &[key.as_str().into()]));
    }
    context.met(sources);
    (properties, faults)
}

/// `declared`, with those of the file that it names by `$location`, itself and
/// in its groups.
fn located(
    mut declared: Map<String, Value>,
    path: Vec<PathSegment>,
    directory: &Path,
    around: &Properties,
    site: &Site<'_>,
    faults: &mut Vec<properties::Fault>,
) -> Map<String, Value> {
    const LOCATION: &str = "$location";
    for (name, group) in &mut declared {
        if let Value::Object(inner) = group {
            let mut path = path.clone();
            path.push(name.as_str().into());
            let inner = std::mem::take(inner);
            *group = Value::Object(located(inner, path, directory, around, site, faults));
        }
    }
    let Some(location) = declared.remove(LOCATION) else {
        return declared;
    };
    match read_located(location, directory, around, site) {
        Ok(found) => {
            for (name, value) in found {
                declared.entry(name).or_insert(value);
            }
        }
        Err(message) => {
            let mut path = path;
            path.push(LOCATION.into());
            faults.push((path, message));
        }
    }
    declared
}

fn read_located(
    mut location: Value,
    directory: &Path,
    around: &Properties,
    site: &Site<'_>,
) -> Result<Map<String, Value>, String> {
    let context = site.context;
    let named = |name: &str| Ok(around.text(name));
    let environment = |name: &str| (context.environment)(name);
    let sources = Sources::new(directory, &named, &environment);
    let fault = sources.resolve(&mut location, &[]).into_iter().next();
    context.met(sources);
    if let Some((_, message)) = fault {
        return Err(message);
    }
    let Value::String(text) = location else {
        return Err("expected the name of a file".to_owned());
    };
    let text = match doorward_expr::at_load_with(&text, &around.constants(context)) {
        Ok(doorward_expr::Value::Text(text)) => text.into_owned(),
        Ok(_) => return Err("the expression does not give a text".to_owned()),
        Err(fault) => return Err(fault.to_string()),
    };
    let url = Url::parse(&text).ok().filter(|url| url.scheme() == "file");
    let path = match url.and_then(|url| url.to_file_path().ok()) {
        Some(path) if text.starts_with("file:/") => path,
        // Relative, which no URL is.
        _ => directory.join(text.trim_start_matches("file:").trim_start_matches("//")),
    };
    let text = context.read(&path)?;
    if path
        .extension()
        .is_some_and(|extension| extension == "properties")
    {
        return Ok(properties::of_lines(&text));
    }
    let mut document = Document::parse_relaxed(&text, &path).map_err(|error| error.to_string())?;
    match document.take_value() {
        Value::Object(found) => Ok(found),
        _ => Err(format!("{}: expected an object", path.display())),
    }
}

fn directories(file: &Path, site: &Site<'_>) -> Vec<PathBuf> {
    let mut directories = site.directories.clone();
    let own = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(own) = own.unwrap_or(Path::new(".")).canonicalize()
        && !directories.contains(&own)
    {
        directories.push(own);
    }
    directories
}

/// Takes in the objects of a heap: an array, or as it once was an object with
/// the array as `objects`.
fn declare_objects(builder: &mut RouteFileBuilder<'_>, heap: Option<&Value>) {
    let mut place = Place::default().at("heap");
    let items = match heap {
        None | Some(Value::Null) => return,
        Some(Value::Array(items)) => items,
        Some(Value::Object(old)) if old.contains_key("objects") => {
            place = place.at("objects");
            match &old["objects"] {
                Value::Array(items) => items,
                _ => return builder.wrong(&place, "expected an array of objects"),
            }
        }
        Some(_) => return builder.wrong(&place, "expected an array of objects"),
    };
    for (i, value) in items.iter().enumerate() {
        let place = place.at(i);
        let Value::Object(declared) = value else {
            builder.wrong(&place, "expected an object with name, type and config");
            continue;
        };
        let name = match declared.get("name") {
            Some(Value::String(name)) if !name.is_empty() => name.clone(),
            Some(_) => {
                builder.wrong(&place.at("name"), "expected a name");
                continue;
            }
            None => {
                builder.wrong(&place, "required field missing: name");
                continue;
            }
        };
        if let Some(first) = builder.objects.get(&name) {
            if builder.is_full() {
                return;
            }
            let line = builder.document.line_of(&first.place.0).unwrap_or(0);
            let message = format!("an object is called '{name}' already, on line {line}");
            builder.wrong(&place.at("name"), message);
            continue;
        }
        let value = value.clone();
        builder.objects.insert(name, Object { place, value });
    }
}

/// Builds the route; what is wrong is noted.
fn route(builder: &RouteFileBuilder<'_>, root: &Map<String, Value>) -> Option<Good> {
    let fields = Fields::new(builder, root, Place::default());
    let unknown = root.keys().map(String::as_str);
    let unknown = unknown.filter(|key| {
        let known = MEMBERS.contains(key) || IDLE.contains(key);
        !known && !is_comment(key)
    });
    for key in unknown {
        builder.warn(
            &fields.at(key),
            "is taken for a decorator and has no effect",
        );
    }
    for idle in ["session", "auditService"] {
        if fields.value(idle).is_some() {
            builder.warn(&fields.at(idle), "has no effect here");
        }
    }
    builder.build_objects();
    let name = route_name(builder, &fields);
    let condition = builder.request_condition(&fields);
    let leads = match fields.value("handler") {
        Some(_) => builder.leads_to(&fields, "handler"),
        None => {
            let message = if root.contains_key("_format_version") {
                "declares entities: name it among `entities` of the configuration file"
            } else {
                "required field missing: handler"
            };
            builder.wrong(&Place::default(), message);
            None
        }
    };
    let mut leads = leads?;
    if let Some(base) = fields.value("baseURI") {
        let rebased: Option<Handler> = builder.rebased(base, &fields.at("baseURI"), leads.handler);
        leads.handler = rebased?.into();
        leads.height += 1;
    }
    if leads.height > MAX_DEPTH {
        return fields.wrong(
            "handler",
            format!("is nested deeper than {MAX_DEPTH} levels"),
        );
    }
    let (name, condition) = (name?, condition?);
    let declared = Declared {
        id: builder.id.clone(),
        name,
        file: builder.document.file().to_owned(),
        condition,
        handler: leads.handler,
    };
    let named = fields.value("name").is_some();
    let route = FileRoute::new(declared, builder.context.traffic);
    if builder.is_alone() {
        for warning in route.warnings() {
            builder.warn(&fields.at("handler"), warning);
        }
    }
    Some(Good {
        route: route.into(),
        height: leads.height + 1,
        weight: leads.weight,
        named: named
            .then(|| builder.document.line_of(&[PathSegment::from("name")]))
            .flatten(),
        filters: Default::default(),
        file_sets: FileSets::default(),
        text: None,
    })
}

fn route_name(builder: &RouteFileBuilder<'_>, fields: &Fields<'_>) -> Option<String> {
    let Some(name) = fields.text("name")? else {
        let stem = builder.document.file().file_stem().unwrap_or_default();
        return Some(stem.to_string_lossy().into_owned());
    };
    let fits = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
    if !fits {
        let message = format!("expected 1 to {MAX_NAME} bytes without control characters");
        return fields.wrong("name", message);
    }
    Some(name)
}
