//! Groups of consumers: who belongs to them, seen from either side.

use std::sync::Arc;

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::call::Call;
use super::draft::{self, Draft, Key};
use super::endpoint::{Endpoint, child, children, collection, endpoint, item, parent};
use super::entity::{self, Answer};
use super::error::ApiError;
use super::list::{MAX_SIZE, Page, Scope};
use super::openapi::entities::{
    article, component, declared, item as described_item, key_of, noun, noun_of_many, paging,
};
use super::reply;
use doorward_core::clock;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};
use doorward_core::model::plugin::Plugin;
use doorward_core::model::schema::Violations;
use doorward_core::openapi::{Operation, Parameter, fields, reference, text};
use doorward_gateway::control::Change;
use doorward_gateway::entities::{Entities, Entity as _, Origin, Record, group_membership};
use doorward_gateway::records::{self, Resource};

/// Members: they come and go, and are not changed.
const MEMBERS: &[&str] = &["DELETE", "GET", "POST"];
const MEMBER: &[&str] = &["DELETE", "GET"];

/// Their endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    collection::<ConsumerGroup>("/consumer_groups"),
    item::<ConsumerGroup>("/consumer_groups/{consumer_groups}")
        .with(group)
        .described(group_operation),
    endpoint(
        "/consumer_groups/{consumer_groups}/consumers",
        MEMBERS,
        members::<ConsumerGroup, Consumer>,
        members_operation::<ConsumerGroup, Consumer>,
    ),
    endpoint(
        "/consumer_groups/{consumer_groups}/consumers/{consumers}",
        MEMBER,
        member::<ConsumerGroup, Consumer>,
        member_operation::<ConsumerGroup, Consumer>,
    ),
    children::<ConsumerGroup, Plugin>("/consumer_groups/{consumer_groups}/plugins"),
    child::<ConsumerGroup, Plugin>("/consumer_groups/{consumer_groups}/plugins/{plugins}"),
    endpoint(
        "/consumers/{consumers}/consumer_groups",
        MEMBERS,
        members::<Consumer, ConsumerGroup>,
        members_operation::<Consumer, ConsumerGroup>,
    ),
    endpoint(
        "/consumers/{consumers}/consumer_groups/{consumer_groups}",
        MEMBER,
        member::<Consumer, ConsumerGroup>,
        member_operation::<Consumer, ConsumerGroup>,
    ),
    parent::<Plugin, ConsumerGroup>("/plugins/{plugins}/consumer_group"),
];

/// One side of memberships.
pub(super) trait Side: Resource {
    /// The field of memberships that refers to it.
    const FIELD: &'static str;
    /// The argument that names it.
    const ARGUMENT: &'static str;
    /// What messages call it.
    const NOUN: &'static str;
    /// What lists of it are called beside `data`, if they are: in the older form.
    const LIST: Option<&'static str>;
    /// The record that a membership refers to.
    fn of(member: &GroupMembership) -> Uuid;
}

impl Side for Consumer {
    const FIELD: &'static str = "consumer";
    const ARGUMENT: &'static str = "consumer";
    const NOUN: &'static str = "Consumer";
    // A client that reads the older form would take one page for all of them.
    const LIST: Option<&'static str> = None;

    fn of(member: &GroupMembership) -> Uuid {
        member.consumer.id
    }
}

impl Side for ConsumerGroup {
    const FIELD: &'static str = "consumer_group";
    const ARGUMENT: &'static str = "group";
    const NOUN: &'static str = "Group";
    const LIST: Option<&'static str> = Some("consumer_groups");

    fn of(member: &GroupMembership) -> Uuid {
        member.consumer_group.id
    }
}

/// `/consumer_groups/{group}`: shown with its consumers, unless a client wants none.
fn group(call: Call) -> Answer {
    if call.method != Method::GET {
        return entity::item::<ConsumerGroup>(call);
    }
    Box::pin(async move {
        let entities = call.state.control.entities();
        let group = found::<ConsumerGroup>(&entities, &call.key(0))?;
        let scope = Scope::of(&call.query)?;
        let mut body = json!({"consumer_group": entity::shown_doc(&call, &entities, group)?});
        if wants_consumers(&call.query)? {
            let members =
                entities
                    .group_memberships
                    .referring(ConsumerGroup::FIELD, group.value.id, None);
            let members = members.filter(|member| scope.admits(&member.origin));
            let consumers =
                members.map(|member| other::<Consumer>(&call, scope, &entities, &member.value));
            body["consumers"] = consumers.map(Value::Object).collect();
        }
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// Reads the query parameter that says whether a group is shown with its consumers.
fn wants_consumers(query: &[(String, String)]) -> Result<bool, ApiError> {
    let given = query.iter().find(|(name, _)| name == "list_consumers");
    match given.map(|(_, value)| value.as_str()) {
        None | Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(_) => Err(ApiError::Option {
            option: "list_consumers".into(),
            message: "expected true or false".into(),
        }),
    }
}

fn found<'a, T: Resource>(
    entities: &'a Entities,
    key: &Key,
) -> Result<&'a Arc<Record<T>>, ApiError> {
    draft::find::<T>(entities, key).ok_or(ApiError::NotFound)
}

/// How the other side of a membership is shown.
fn other<T: Side>(
    call: &Call,
    scope: Scope,
    entities: &Entities,
    member: &GroupMembership,
) -> Map<String, Value> {
    let record = T::table(entities).get(T::of(member));
    record.map_or_else(Map::new, |record| {
        scope.show(record, entities, call.disclosure())
    })
}

/// `/consumer_groups/{group}/consumers` and `/consumers/{consumer}/consumer_groups`.
fn members<P: Side, T: Side>(call: Call) -> Answer {
    Box::pin(async move {
        match call.method {
            Method::GET => list::<P, T>(&call),
            Method::DELETE => remove_all::<P>(&call).await,
            _ => add::<P, T>(&call).await,
        }
    })
}

fn list<P: Side, T: Side>(call: &Call) -> Result<Response, ApiError> {
    let entities = call.state.control.entities();
    let owner = found::<P>(&entities, &call.key(0))?;
    let owner = Some((P::FIELD, owner.value.id()));
    let scope = Scope::of(&call.query)?;
    // Clients of the imitated gateway read no second page: decK would add the others
    // again, and fail.
    let page = Page::of(call.query.clone())?.or_whole();
    let show = |member: &Record<GroupMembership>| other::<T>(call, scope, &entities, &member.value);
    let mut body =
        page.body_of::<GroupMembership>(&entities, &call.path, owner, call.disclosure(), show);
    if let Some(list) = T::LIST {
        body[list] = body["data"].clone();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// Adds those whom the argument names to the other side, all of them or none.
async fn add<P: Side, T: Side>(call: &Call) -> Result<Response, ApiError> {
    let mut new = Draft::of(call)?;
    let names = names::<T>(new.input.remove(T::ARGUMENT))?;
    if let Some(field) = new.input.keys().next() {
        return Err(Violations::of(field, "unknown field").into());
    }
    let now_ms = new.now_ms;
    let add = |entities: &Entities| {
        let owner = found::<P>(entities, &call.key(0))?;
        let scope = Scope::of(&call.query)?;
        let show = |owner: &Record<P>| scope.show(owner, entities, call.disclosure());
        let mut shown = Vec::new();
        let mut changes = Vec::new();
        for name in &names {
            let missing = || ApiError::Missing(format!("{} '{name}' not found", T::NOUN));
            let found = draft::find::<T>(entities, &Key::of(name)).ok_or_else(missing)?;
            let member = membership([(P::FIELD, owner.value.id()), (T::FIELD, found.value.id())]);
            changes.push(Change::put(made(member, now_ms)?));
            shown.push(scope.show(found, entities, call.disclosure()));
        }
        let list = T::KIND.plural();
        let body = json!({P::FIELD: show(owner), list: shown});
        Ok::<_, ApiError>((changes, body))
    };
    let body = call.state.control.change(add, call.audit()).await?;
    Ok(reply::json(StatusCode::CREATED, &body))
}

/// The names or identifiers in an argument: one, or a list of them.
fn names<T: Side>(argument: Option<Value>) -> Result<Vec<String>, ApiError> {
    let wrong = |message: &str| Err(Violations::of(T::ARGUMENT, message).into());
    let items = match argument {
        None | Some(Value::Null) => return wrong("required field missing"),
        Some(Value::Array(items)) if items.is_empty() => return wrong("required field missing"),
        Some(Value::Array(items)) => items,
        Some(item) => vec![item],
    };
    if items.len() > MAX_SIZE {
        return Err(ApiError::Arguments);
    }
    let mut names = Vec::new();
    for item in items {
        match item {
            Value::String(name) if !name.is_empty() => names.push(name),
            _ => return wrong("expected a string"),
        }
    }
    Ok(names)
}

fn membership(sides: [(&str, Uuid); 2]) -> Map<String, Value> {
    let reference = |(field, id): (&str, Uuid)| (field.to_owned(), json!({"id": id}));
    sides.map(reference).into_iter().collect()
}

fn made(
    mut member: Map<String, Value>,
    now_ms: i64,
) -> Result<Record<GroupMembership>, Violations> {
    records::stamp::<GroupMembership>(&mut member, clock::random_uuid(), now_ms);
    records::finish::<GroupMembership>(member, Origin::Store)
}

/// Ends all memberships of one side.
async fn remove_all<P: Side>(call: &Call) -> Result<Response, ApiError> {
    let remove = |entities: &Entities| {
        let owner = found::<P>(entities, &call.key(0))?;
        let members = entities
            .group_memberships
            .referring(P::FIELD, owner.value.id(), None);
        let changes = members.map(|member| Change::delete::<GroupMembership>(member.value.id));
        Ok::<_, ApiError>((changes.collect(), ()))
    };
    call.state.control.change(remove, call.audit()).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// `/consumer_groups/{group}/consumers/{consumer}` and
/// `/consumers/{consumer}/consumer_groups/{group}`.
fn member<P: Side, T: Side>(call: Call) -> Answer {
    Box::pin(async move {
        let find = |entities: &Entities| {
            let owner = found::<P>(entities, &call.key(0))?.value.id();
            let found = found::<T>(entities, &call.key(1))?.value.id();
            let member = if P::FIELD == Consumer::FIELD {
                group_membership(owner, found)
            } else {
                group_membership(found, owner)
            };
            let member = entities.group_memberships.find(&member);
            member.cloned().ok_or(ApiError::NotFound)
        };
        if call.method == Method::GET {
            let entities = call.state.control.entities();
            let member = find(&entities)?;
            let scope = Scope::of(&call.query)?;
            let body = json!({T::FIELD: other::<T>(&call, scope, &entities, &member.value)});
            return Ok(reply::json(StatusCode::OK, &body));
        }
        let remove = |entities: &Entities| {
            let member = find(entities)?;
            let change = Change::delete::<GroupMembership>(member.value.id);
            Ok::<_, ApiError>((vec![change], ()))
        };
        call.state.control.change(remove, call.audit()).await?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    })
}

/// What the description says of a group, which is shown with its consumers.
fn group_operation(method: &str) -> Operation {
    if method != "GET" {
        return described_item::<ConsumerGroup>(method);
    }
    let consumers = many(&reference("consumer"));
    let members = [
        ("consumer_group", reference("consumer_group")),
        ("consumers", consumers),
    ];
    let says = "Whether the consumers that belong to it are told.";
    Operation::new("Shows a consumer group.")
        .names("consumer_groups", key_of(ConsumerGroup::KIND))
        .takes([
            declared(),
            Parameter::query(
                "list_consumers",
                json!({"type": "boolean", "default": true}),
                says,
            ),
        ])
        .answers(
            200,
            "The record, and who belongs to the group.",
            &fields(members, &["consumer_group"]),
        )
}

/// What the description says of all members of one side.
fn members_operation<P: Side, T: Side>(method: &str) -> Operation {
    let owner = article(&noun(P::KIND));
    let (others, shown) = (noun_of_many(T::KIND), reference(component(T::KIND)));
    match method {
        "GET" => {
            let mut page = reference(&format!("{}-list", component(T::KIND)));
            if let Some(list) = T::LIST {
                let also = json!({"properties": {list: many(&shown)}});
                page = json!({"allOf": [page, also]});
            }
            let text_of = Parameter::query("q", text(), "A text that records contain.");
            Operation::new(format!("Lists the {others} of {owner}."))
                .takes(paging())
                .takes([text_of, declared()])
                .answers(200, "A page of them.", &page)
        }
        "DELETE" => Operation::new(format!("Parts {owner} from all of its {others}."))
            .ends(204, "It has none any more."),
        _ => {
            let one_or_many = json!({"anyOf": [text(), many(&text())]});
            let body = fields([(T::ARGUMENT, one_or_many)], &[T::ARGUMENT]);
            let members = [
                (P::FIELD, reference(component(P::KIND))),
                (T::KIND.plural(), many(&shown)),
            ];
            let both = [P::FIELD, T::KIND.plural()];
            Operation::new(format!("Adds {others} to {owner}, all of them or none."))
                .takes([declared()])
                .body(&body)
                .answers(201, "Both sides.", &fields(members, &both))
        }
    }
}

/// What the description says of one of them.
fn member_operation<P: Side, T: Side>(method: &str) -> Operation {
    let (owner, other) = (article(&noun(P::KIND)), noun(T::KIND));
    match method {
        "GET" => {
            let shown = [(T::FIELD, reference(component(T::KIND)))];
            Operation::new(format!("Shows {} of {owner}.", article(&other)))
                .takes([declared()])
                .answers(200, "It.", &fields(shown, &[T::FIELD]))
        }
        _ => Operation::new(format!("Parts {owner} from {}.", article(&other)))
            .ends(204, "It does not belong there any more."),
    }
}

fn many(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}
