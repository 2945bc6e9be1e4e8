//! `/schemas`: what records may hold, and whether one would be accepted.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::call::Call;
use super::certificates::ServerNames;
use super::draft::Draft;
use super::entity::Answer;
use super::error::ApiError;
use super::reply;
use doorward_core::clock;
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::schema::Schema;
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_gateway::entities::{Kind, Origin};
use doorward_gateway::records::{self, Resource};
use doorward_gateway::schemas;
use doorward_plugins::kind;

/// `GET /schemas/{entity}`.
pub(super) fn entity(call: Call) -> Answer {
    Box::pin(async move {
        let any = Schema::default();
        let plugins;
        let name = call.param(0);
        let schema = match Kind::of_plural(name) {
            Some(Kind::Service) => schemas::service(),
            Some(Kind::Route) => schemas::route(),
            Some(Kind::Consumer) => schemas::consumer(),
            Some(Kind::Upstream) => schemas::upstream(),
            Some(Kind::Target) => schemas::target(),
            Some(Kind::Certificate) => schemas::certificate(),
            Some(Kind::Sni) => schemas::sni(),
            Some(Kind::CaCertificate) => schemas::ca_certificate(),
            Some(Kind::Plugin) => {
                plugins = schemas::plugin_of(&any);
                &plugins
            }
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
        let own = ["config", "consumer", "protocols", "route", "service"];
        let fields = schema.fields.iter().filter(|f| own.contains(&f.name));
        let fields = fields.cloned().collect();
        Ok(shown(&Schema::new(fields)))
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
        match Kind::of_plural(name) {
            Some(Kind::Service) => validated::<Service>(&call),
            Some(Kind::Route) => validated::<Route>(&call),
            Some(Kind::Plugin) => validated::<Plugin>(&call),
            Some(Kind::Consumer) => validated::<Consumer>(&call),
            Some(Kind::Upstream) => validated::<Upstream>(&call),
            Some(Kind::Target) => validated::<Target>(&call),
            Some(Kind::Certificate) => validated::<Certificate>(&call),
            Some(Kind::Sni) => validated::<Sni>(&call),
            Some(Kind::CaCertificate) => validated::<CaCertificate>(&call),
            None => Err(no_entity(name)),
        }
    })
}

/// `POST /schemas/plugins/validate`.
pub(super) fn validate_plugin(call: Call) -> Answer {
    Box::pin(async move { validated::<Plugin>(&call) })
}

/// References are not followed: what they name may come into being later.
fn validated<T: Resource>(call: &Call) -> Result<Response, ApiError> {
    let mut draft = Draft::of(call)?;
    ServerNames::of(T::KIND, &mut draft)?;
    let mut record = T::schema(&draft.input)?.read(draft.input, draft.source)?;
    for link in T::KIND.links() {
        let key = link.to.key().unwrap_or("name");
        if let Some(Value::Object(reference)) = record.get_mut(link.field)
            && (reference.contains_key(key) || reference.contains_key("name"))
        {
            let id = clock::random_uuid().to_string();
            *reference = Map::from_iter([("id".to_owned(), id.into())]);
        }
    }
    records::stamp::<T>(&mut record, clock::random_uuid(), draft.now_ms);
    records::finish::<T>(record, Origin::Store)?;
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
