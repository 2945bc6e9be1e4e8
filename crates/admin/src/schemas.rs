//! `/schemas`: what records may hold, and whether one would be accepted.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::certificates::ServerNames;
use super::draft::Draft;
use super::entity::{Answer, refuse_expired};
use super::error::ApiError;
use super::reply;
use doorward_core::clock;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::schema::Schema;
use doorward_core::openapi::{Operation, fields, reference, text};
use doorward_gateway::entities::{self, Kind, Origin};
use doorward_gateway::records;
use doorward_gateway::schemas;
use doorward_plugins::kind;

/// `GET /schemas/{entity}`.
pub(super) fn entity(call: Call) -> Answer {
    Box::pin(async move {
        let any = Schema::default();
        let plugins;
        let name = call.param(0);
        let schema = match Kind::of_plural(name) {
            Some(Kind::Plugin) => {
                plugins = schemas::plugin_of(&any);
                &plugins
            }
            Some(kind) => records::any(kind).schema(&Map::new())?,
            // Rows, and no records of their own.
            None if name == "tags" => schemas::tag(),
            None => return Err(no_entity(name)),
        };
        Ok(shown(schema))
    })
}

/// `GET /schemas/plugins/{name}`.
pub(super) fn plugin(call: Call) -> Answer {
    Box::pin(async move {
        let name = call.param(0);
        let schema = schemas::plugin(Some(&name.into())).map_err(|_| no_plugin(name))?;
        let own = [
            "config",
            "consumer",
            "consumer_group",
            "protocols",
            "route",
            "service",
        ];
        let fields = schema.fields.iter().filter(|f| own.contains(&f.name));
        let fields = fields.cloned().collect();
        Ok(shown(&Schema::new(fields)))
    })
}

/// `GET /schemas/vaults/{name}`.
pub(super) fn vault(call: Call) -> Answer {
    Box::pin(async move {
        let name = call.param(0);
        // The one kind of vault that there is.
        if name != "env" {
            return Err(ApiError::Missing(format!("No vault named '{name}'")));
        }
        Ok(shown(schemas::vault()))
    })
}

/// `GET /plugins/schema/{name}`: the older dialect, fields by their names.
pub(super) fn legacy(call: Call) -> Answer {
    Box::pin(async move {
        let name = call.param(0);
        let kind = kind(name).ok_or_else(|| no_plugin(name))?;
        let mut fields = Map::new();
        if let Value::Array(list) = (kind.schema)().to_json() {
            for field in list {
                if let Value::Object(field) = field {
                    fields.extend(field);
                }
            }
        }
        Ok(reply::json(StatusCode::OK, &json!({"fields": fields})))
    })
}

/// `POST /schemas/{entity}/validate`.
pub(super) fn validate(call: Call) -> Answer {
    Box::pin(async move {
        let name = call.param(0);
        let kind = Kind::of_plural(name).ok_or_else(|| no_entity(name))?;
        validated(kind, &call).await
    })
}

/// `POST /schemas/plugins/validate`.
pub(super) fn validate_plugin(call: Call) -> Answer {
    Box::pin(async move { validated(Kind::Plugin, &call).await })
}

/// `POST /schemas/vaults/validate`.
pub(super) fn validate_vault(call: Call) -> Answer {
    Box::pin(async move { validated(Kind::Vault, &call).await })
}

/// References are not followed: what they name may come into being later.
async fn validated(kind: Kind, call: &Call) -> Result<Response, ApiError> {
    let mut draft = Draft::of(call)?;
    ServerNames::of(kind, &mut draft)?;
    let resource = records::any(kind);
    let mut record = resource
        .schema(&draft.input)?
        .read(draft.input, draft.source)?;
    for link in kind.links() {
        let key = link.to.key().unwrap_or("name");
        if let Some(Value::Object(reference)) = record.get_mut(link.field)
            && (reference.contains_key(key) || reference.contains_key("name"))
        {
            let id = clock::random_uuid().to_string();
            *reference = Map::from_iter([("id".to_owned(), id.into())]);
        }
    }
    resource.stamp(&mut record, clock::random_uuid(), draft.now_ms);
    let record = resource.finish(record, Origin::Store)?;
    let entities = call.state.control.entities();
    refuse_expired(&entities, &*record, draft.now_ms)?;
    if let Some(plugin) = entities::typed::<Plugin>(&*record) {
        let plugin = plugin.value.clone();
        call.state.control.check_plugin(plugin).await?;
    }
    Ok(reply::message(
        StatusCode::OK,
        "schema validation successful",
    ))
}

fn shown(schema: &Schema) -> Response {
    let body = json!({"fields": schema.to_json(), "entity_checks": []});
    reply::json(StatusCode::OK, &body)
}

fn no_entity(name: &str) -> ApiError {
    ApiError::Missing(format!("No entity named '{name}'"))
}

fn no_plugin(name: &str) -> ApiError {
    ApiError::Missing(format!("No plugin named '{name}'"))
}

fn fields_schema() -> Value {
    let of_fields = json!({"type": "array", "items": {"type": "object"}});
    let checks = json!({"type": "array"});
    fields(
        [("fields", of_fields), ("entity_checks", checks)],
        &["fields"],
    )
}

/// What the description says of the schema of a kind.
pub(super) fn entity_operation(_: &str) -> Operation {
    Operation::new("Shows the fields of a kind of record.")
        .names("entity", "The kind, such as `services`.")
        .answers(200, "The fields.", &fields_schema())
}

/// What the description says of the schema of a plugin.
pub(super) fn plugin_operation(_: &str) -> Operation {
    Operation::new("Shows the fields of a plugin.")
        .names("name", "The plugin's name.")
        .answers(200, "The fields.", &fields_schema())
}

/// What the description says of the schema of a vault.
pub(super) fn vault_operation(_: &str) -> Operation {
    Operation::new("Shows the fields of a vault.")
        .names("name", "The kind of vault: `env`.")
        .answers(200, "The fields.", &fields_schema())
}

/// What the description says of the schema of a plugin in the older dialect.
pub(super) fn legacy_operation(_: &str) -> Operation {
    let by_name = fields([("fields", json!({"type": "object"}))], &["fields"]);
    Operation::new("Shows the fields of a plugin's configuration, by their names.")
        .names("name", "The plugin's name.")
        .answers(200, "The fields.", &by_name)
}

/// What the description says of the validation of a record.
pub(super) fn validate_operation(_: &str) -> Operation {
    let body = fields([("message", text())], &["message"]);
    Operation::new("Tells whether a record would be accepted. Nothing is written.")
        .names("entity", "The kind, such as `services`.")
        .body(&json!({"type": "object"}))
        .answers(200, "It would.", &body)
}

/// What the description says of the validation of a plugin.
pub(super) fn validate_plugin_operation(_: &str) -> Operation {
    let body = fields([("message", text())], &["message"]);
    Operation::new("Tells whether a plugin would be accepted. Nothing is written.")
        .body(&reference("plugin-create"))
        .answers(200, "It would.", &body)
}

/// What the description says of the validation of a vault.
pub(super) fn validate_vault_operation(_: &str) -> Operation {
    let body = fields([("message", text())], &["message"]);
    Operation::new("Tells whether a vault would be accepted. Nothing is written.")
        .body(&reference("vault-create"))
        .answers(200, "It would.", &body)
}
