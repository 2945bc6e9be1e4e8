//! Records: their schemas, and what is the same for all of them.

use serde_json::{Map, Value, json};

use doorward_core::model::schema::{Schema, View, nullable};
use doorward_core::openapi::{Document, Operation, Parameter, list_of, reference, text};
use doorward_gateway::entities::{Kind, Link};
use doorward_gateway::records::{self, Resource};

use super::super::list;

/// What a record is called in the description.
pub(in super::super) fn component(kind: Kind) -> &'static str {
    match kind {
        Kind::KeySet => "key_set",
        kind => kind.singular(),
    }
}

/// How a path names a record.
pub(in super::super) fn key_of(kind: Kind) -> String {
    match kind {
        Kind::Certificate => "Its `id`, or one of its server names.".to_owned(),
        Kind::Target => "Its `id`, or its `target`.".to_owned(),
        kind => match kind.key() {
            Some(key) => format!("Its `id` or `{key}`."),
            None => "Its `id`.".to_owned(),
        },
    }
}

/// Adds the schemas of all kinds but plugins.
pub(super) fn add(document: &mut Document) {
    for kind in Kind::ALL {
        let name = component(kind);
        let mut list = list_of(&reference(name));
        if matches!(
            kind,
            Kind::Consumer | Kind::Upstream | Kind::Target | Kind::Plugin
        ) {
            list["properties"]["total"] = json!({"type": "integer"});
        }
        document.schema(format!("{name}-list"), list);
        let Ok(schema) = records::any(kind).schema(&Map::new()) else {
            // The fields of a plugin depend on its name.
            continue;
        };
        document.schema(name, answer(kind, schema));
        document.schema(
            format!("{name}-create"),
            request(kind, schema, View::Create),
        );
        document.schema(
            format!("{name}-update"),
            request(kind, schema, View::Update),
        );
    }
}

/// A record in an answer: the fields of its schema, and what is shown besides.
pub(super) fn answer(kind: Kind, schema: &Schema) -> Value {
    let mut shown = schema.to_json_schema(View::Answer);
    let properties = &mut shown["properties"];
    for stamp in ["id", "created_at", "updated_at"] {
        // Nothing is stored without them.
        if let Some(kind) = properties.get_mut(stamp).and_then(|of| of.get_mut("type"))
            && let Value::Array(kinds) = kind
        {
            *kind = kinds.swap_remove(0);
        }
    }
    let file = "The file that declares it, if that was asked for.";
    properties["declared_in"] = json!({"type": "string", "description": file});
    let line = "The line there.";
    properties["declared_line"] = json!({"type": "integer", "description": line});
    let version = "With `declared=true`: what tells the record from what it was before.";
    properties["version"] = json!({"type": "string", "description": version});
    match kind {
        Kind::Certificate => {
            properties["snis"] = json!({"type": "array", "items": text()});
        }
        Kind::Plugin => {
            for Link { field, .. } in kind.links() {
                let id = json!({"type": "string", "format": "uuid"});
                properties[format!("{field}_id")] = id;
            }
        }
        _ => {}
    }
    shown
}

/// The body of a request, without a word on which fields it has to have.
pub(super) fn request(kind: Kind, schema: &Schema, view: View) -> Value {
    let mut shown = schema.to_open_json_schema(view);
    if kind == Kind::Certificate {
        let mut names = nullable(json!({"type": "array", "items": text()}));
        names["description"] = "All of its server names.".into();
        shown["properties"]["snis"] = names;
    }
    shown
}

/// The body that makes a record; `given` is said by the path.
fn create_body(kind: Kind, given: &[&str]) -> Value {
    let body = reference(&format!("{}-create", component(kind)));
    let schema = records::any(kind).schema(&Map::new());
    let demands = schema.map(|schema| schema.demands(given));
    match demands {
        Ok(demands) if !demands.is_empty() => json!({"allOf": [body, demands]}),
        _ => body,
    }
}

fn update_body(kind: Kind) -> Value {
    reference(&format!("{}-update", component(kind)))
}

/// The parameters of lists.
pub(in super::super) fn paging() -> [Parameter; 2] {
    [
        Parameter::query(
            "size",
            json!({"type": "integer", "minimum": 1, "maximum": list::MAX_SIZE,
                "default": list::DEFAULT_SIZE}),
            "Most records of a page.",
        ),
        Parameter::query(
            "offset",
            text(),
            "Where the page begins: `offset` of the one before.",
        ),
    ]
}

/// Says that a change may name the version that it is of.
fn versioned(operation: Operation) -> Operation {
    let says = "The version that is meant. Another one is refused with 412.";
    operation
        .takes([Parameter::query("version", text(), says)])
        .refuses(&["412"])
}

/// Says that the answer to a change may tell the version of the record.
fn tells_version(operation: Operation) -> Operation {
    operation.takes([Parameter::query(
        "declared",
        json!({"type": "boolean", "default": false}),
        "Whether the answer tells the version of the record.",
    )])
}

/// The parameter that asks for records of files, too.
pub(in super::super) fn declared() -> Parameter {
    Parameter::query(
        "declared",
        json!({"type": "boolean", "default": false}),
        "Whether records that files declare are told, each with its file.",
    )
}

/// `/things`.
pub(in super::super) fn collection<T: Resource>(method: &str) -> Operation {
    collection_of(T::KIND, T::LEGACY_LIST, None, method)
}

/// `/parents/{parent}/things`.
pub(in super::super) fn children<P: Resource, T: Resource>(method: &str) -> Operation {
    collection_of(T::KIND, T::LEGACY_LIST, Some(P::KIND), method)
}

/// `/things/{thing}`.
pub(in super::super) fn item<T: Resource>(method: &str) -> Operation {
    item_of(T::KIND, None, method).names("id", key_of(T::KIND))
}

/// `/parents/{parent}/things/{thing}`.
pub(in super::super) fn child<P: Resource, T: Resource>(method: &str) -> Operation {
    item_of(T::KIND, Some(P::KIND), method).names("id", key_of(T::KIND))
}

/// `/things/{thing}/parent`.
pub(in super::super) fn parent<T: Resource, P: Resource>(method: &str) -> Operation {
    let (child, parent) = (noun(T::KIND), noun(P::KIND));
    let shown = reference(component(P::KIND));
    let operation = match method {
        "GET" => Operation::new(format!("Shows the {parent} of {}.", article(&child)))
            .takes([declared()]),
        "PATCH" => tells_version(versioned(Operation::new(format!(
            "Changes the {parent} of {}.",
            article(&child)
        ))))
        .body(&update_body(P::KIND)),
        _ => {
            let summary = format!("Replaces the {parent} of {}, or makes it.", article(&child));
            tells_version(versioned(Operation::new(summary))).body(&create_body(P::KIND, &[]))
        }
    };
    let operation = operation.names("id", key_of(T::KIND));
    operation.answers(200, &format!("The {parent}."), &shown)
}

fn collection_of(kind: Kind, is_legacy: bool, owner: Option<Kind>, method: &str) -> Operation {
    let name = component(kind);
    let owned = owner.map_or_else(String::new, |owner| {
        format!(" of {}", article(&noun(owner)))
    });
    let given = owner_field(kind, owner);
    let shown = reference(name);
    match method {
        "GET" => {
            let summary = format!("Lists the {}{owned}.", noun_of_many(kind));
            let mut operation = Operation::new(summary);
            if is_legacy {
                let filters = "Any other parameter is the name of a field, and chooses the \
                    records that have its value there.";
                operation = operation.description(filters);
            }
            let all = reference(&format!("{name}-list"));
            operation
                .takes(paging())
                .takes([
                    Parameter::query(
                        "tags",
                        text(),
                        "Tags that records have: all of them with commas between, or one of \
                         them with slashes. A list below another record takes no notice of it.",
                    ),
                    Parameter::query("q", text(), "A text that records contain."),
                    declared(),
                ])
                .answers(200, "A page of them.", &all)
        }
        // The older dialect puts plugins, with or without their ids.
        "PUT" => Operation::new(format!(
            "Makes or replaces {}{owned}.",
            article(&noun(kind))
        ))
        .body(&create_body(kind, &[]))
        .answers(200, "What was replaced, as it is now.", &shown)
        .answers(201, "What was made.", &shown),
        _ => tells_version(Operation::new(format!(
            "Makes {}{owned}.",
            article(&noun(kind))
        )))
        .body(&create_body(kind, given.as_slice()))
        .answers(201, "What was made.", &shown),
    }
}

fn item_of(kind: Kind, owner: Option<Kind>, method: &str) -> Operation {
    let one = article(&noun(kind));
    let shown = reference(component(kind));
    match method {
        "GET" => Operation::new(format!("Shows {one}."))
            .takes([declared()])
            .answers(200, "The record.", &shown),
        "DELETE" => {
            let gone = "There is no such record any more.";
            versioned(Operation::new(format!("Deletes {one}."))).ends(204, gone)
        }
        "PATCH" => tells_version(versioned(Operation::new(format!("Changes {one}."))))
            .body(&update_body(kind))
            .answers(200, "The record as it is now.", &shown),
        _ => {
            let mut given = owner_field(kind, owner);
            given.extend(kind.key());
            // It is a name within its owner.
            given.extend(owner.filter(|_| component(kind) == "acl").map(|_| "group"));
            tells_version(versioned(Operation::new(format!(
                "Replaces {one}, or makes it."
            ))))
            .body(&create_body(kind, &given))
            .answers(200, "The record as it is now.", &shown)
        }
    }
}

/// The field by which a record refers to its owner.
fn owner_field(kind: Kind, owner: Option<Kind>) -> Vec<&'static str> {
    let owner = owner.and_then(|owner| kind.links().iter().find(|link| link.to == owner));
    owner.map(|link| link.field).into_iter().collect()
}

/// A kind in a sentence.
pub(in super::super) fn noun(kind: Kind) -> String {
    component(kind).replace('_', " ")
}

/// Records of a kind in a sentence.
pub(in super::super) fn noun_of_many(kind: Kind) -> String {
    kind.plural().replace('_', " ")
}

/// A noun with its article.
pub(in super::super) fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}
