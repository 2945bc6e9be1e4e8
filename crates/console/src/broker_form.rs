//! Forms of the token broker's records.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::broker::{self, BrokerKind};
use super::broker_change::{self, BrokerChange};
use super::change::Change;
use super::error::PageError;
use super::fields::{Field, Input};
use super::form::{self, FormPage, FormPlace};
use super::frame;
use super::path;
use super::registry_change::{Act, version_of};
use super::visit::Visit;

/// Where forms are. A record may have any name, so this is not below the list.
const FORM: &str = "/console/broker-form";

/// The form of a new record of this kind.
pub(crate) fn new_address(kind: &BrokerKind) -> String {
    path::join(FORM, [kind.plural])
}

/// The form of a record.
pub(crate) fn address(kind: &BrokerKind, key: &str) -> String {
    path::join(FORM, [kind.plural, key])
}

fn choice(words: &[&str]) -> Input {
    Input::Choice(words.iter().map(|word| (*word).to_owned()).collect())
}

/// What can be filled in, and whether it has to be.
fn inputs(kind: &BrokerKind) -> Vec<(&'static str, Input, bool)> {
    let number = || Input::Number { whole: true };
    let units = ["second", "minute", "hour", "day", "month"];
    match kind.plural {
        "products" => vec![
            ("name", Input::Text, true),
            ("display_name", Input::Text, false),
            ("description", Input::Text, false),
            ("api_resources", Input::Lines, false),
            ("scopes", Input::Lines, false),
            ("proxies", Input::Lines, false),
            ("environments", Input::Lines, false),
            ("quota", number(), false),
            ("quota_interval", number(), false),
            ("quota_time_unit", choice(&units), false),
            ("attributes", Input::Json, false),
        ],
        "developers" => vec![
            ("email", Input::Text, true),
            ("first_name", Input::Text, false),
            ("last_name", Input::Text, false),
            ("user_name", Input::Text, false),
            ("status", choice(&["active", "inactive"]), false),
            ("attributes", Input::Json, false),
        ],
        _ => vec![
            ("name", Input::Text, true),
            ("developer", Input::Text, true),
            ("products", Input::Lines, false),
            ("consumer_key", Input::Text, false),
            ("callback_url", Input::Text, false),
            ("status", choice(&["approved", "pending", "revoked"]), false),
            ("attributes", Input::Json, false),
        ],
    }
}

fn fields(kind: &BrokerKind) -> Vec<Field> {
    let field = |(name, input, required): (&str, Input, bool)| Field {
        name: name.to_owned(),
        default: default(name, &input),
        input,
        required,
        between: None,
    };
    inputs(kind).into_iter().map(field).collect()
}

/// What a record has of a member without anybody's doing.
fn default(name: &str, input: &Input) -> Value {
    match (name, input) {
        ("quota_interval", _) => json!(1),
        (_, Input::Choice(words)) => match name {
            "quota_time_unit" => json!("minute"),
            _ => json!(words.first()),
        },
        (_, Input::Lines) => json!([]),
        (_, Input::Json) => json!({}),
        _ => Value::Null,
    }
}

/// The form of the record `key`, "" of a new one, with what is in `typed`.
pub(crate) fn form(
    visit: &Visit,
    kind: &BrokerKind,
    (key, typed): (&str, &Value),
    version: &str,
) -> FormPage {
    let (title, address, back) = if key.is_empty() {
        let list = broker::address(kind.plural);
        (
            (kind.new_title)(visit.texts).to_owned(),
            new_address(kind),
            list,
        )
    } else {
        let page = path::join(&broker::address(kind.plural), [key]);
        let name = typed[kind.columns[0]].as_str().unwrap_or(key);
        let title = format!("{}: {name}", visit.texts.edit);
        (title, self::address(kind, key), page)
    };
    let place = FormPlace {
        title,
        section: kind.section.to_owned(),
        address,
        back,
        version: version.to_owned(),
        realm: String::new(),
        lead: visit.texts.form_lead,
    };
    let fields = fields(kind);
    let all: Vec<_> = fields.iter().collect();
    place.page(visit, (&all, &[]), &broker_change::own(typed))
}

/// What the form of a request makes of `seen`.
///
/// # Errors
/// What is wrong with it, by field.
pub(crate) fn patch(
    visit: &Visit,
    kind: &BrokerKind,
    seen: &Value,
) -> Result<Value, Vec<(String, String)>> {
    form::patch(visit, &fields(kind), &broker_change::own(seen))
}

/// `GET /broker-form/{list}`.
pub(crate) async fn new(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    frame::show(&form(&visit, kind, ("", &json!({})), ""))
}

/// `POST /broker-form/{list}`: shows what will be made.
pub(crate) async fn create(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    let none = json!({});
    let made = patch(&visit, kind, &none).and_then(|made| {
        let missing = fields(kind).into_iter().filter(|field| {
            let is_empty = made[&field.name].as_str().is_none_or(str::is_empty);
            field.required && is_empty
        });
        let missing: Vec<_> = missing
            .map(|field| (field.name, visit.texts.required.to_owned()))
            .collect();
        if missing.is_empty() {
            Ok(made.as_object().cloned().unwrap_or_default())
        } else {
            Err(missing)
        }
    });
    match made {
        Ok(body) => {
            let body: Map<_, _> = body.into_iter().filter(|one| !one.1.is_null()).collect();
            let change = BrokerChange::new(kind, "", Act::Create { body });
            change.ask(&visit).await
        }
        Err(errors) => form(&visit, kind, ("", &none), "")
            .typed(&visit)
            .refused(errors),
    }
}

/// `GET /broker-form/{list}/{record}`.
pub(crate) async fn edit(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    let now = broker_change::current(&visit, kind, visit.param(1)).await?;
    let version = version_of(&now);
    let own = broker_change::own(&now);
    frame::show(&form(&visit, kind, (visit.param(1), &own), &version))
}

/// `POST /broker-form/{list}/{record}`: shows what will differ.
pub(crate) async fn preview(visit: Visit) -> Result<Response, PageError> {
    let kind = BrokerKind::of(&visit)?;
    let key = visit.param(1);
    let now = broker_change::current(&visit, kind, key).await?;
    BrokerChange::save(&visit, (kind, key), &now).await
}

/// `POST /broker-delete/{list}/{record}`: shows what would be gone.
pub(crate) async fn delete(visit: Visit) -> Result<Response, PageError> {
    let version = visit.field("version").to_owned();
    ask(&visit, Act::Delete { version }).await
}

/// `POST /broker-secret/{list}/{record}`: shows that the old secret would be refused.
pub(crate) async fn rotate(visit: Visit) -> Result<Response, PageError> {
    let version = visit.field("version").to_owned();
    ask(&visit, Act::Secret { version }).await
}

async fn ask(visit: &Visit, act: Act) -> Result<Response, PageError> {
    let kind = BrokerKind::of(visit)?;
    if matches!(act, Act::Secret { .. }) && kind.plural != "applications" {
        return Err(PageError::NotFound);
    }
    let change = BrokerChange::new(kind, visit.param(1), act);
    change.ask(visit).await
}
