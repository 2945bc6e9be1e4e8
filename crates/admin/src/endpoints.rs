//! Every endpoint of the Admin API.

use super::endpoint::{
    Endpoint, ITEM, LIST, READ, SET, child, children, collection, endpoint, item, parent,
};
use super::openapi::broker as described;
use super::{
    audit, broker, cache, config, consumer_groups, consumers, credentials, debug, explain, health,
    info, issuers, keys, login_sessions, nodes, oauth2_tokens, openapi, plugin_sessions, plugins,
    proxy_cache, route_files, schemas, tags, targets, throttling,
};
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;

/// Every endpoint but those that [`all`] adds. Of two that match, the first one counts.
static ENDPOINTS: &[Endpoint] = &[
    endpoint("/", READ, info::root, info::root_operation),
    endpoint("/config", LIST, config::config, config::config_operation),
    endpoint("/audit", READ, audit::list, audit::list_operation),
    endpoint(
        "/audit/export",
        READ,
        audit::export,
        audit::export_operation,
    ),
    endpoint("/status", READ, info::status, info::status_operation),
    endpoint("/status/ready", READ, info::ready, info::ready_operation),
    endpoint("/clustering/nodes", READ, nodes::all, nodes::all_operation),
    endpoint("/acme", READ, info::acme, info::acme_operation),
    endpoint("/metrics", READ, info::metrics, info::metrics_operation),
    endpoint(
        "/openapi.json",
        READ,
        openapi::document,
        openapi::document_operation,
    ),
    endpoint(
        "/openapi/provider.json",
        READ,
        openapi::provider,
        openapi::provider_operation,
    ),
    endpoint(
        "/openapi/token-broker.json",
        READ,
        openapi::token_broker,
        openapi::token_broker_operation,
    ),
    endpoint(
        "/endpoints",
        READ,
        info::endpoints,
        info::endpoints_operation,
    ),
    endpoint(
        "/explain",
        &["POST"],
        explain::explain,
        explain::explain_operation,
    ),
    endpoint(
        "/explain/refusals",
        READ,
        explain::codes,
        explain::codes_operation,
    ),
    endpoint(
        "/openid-connect/issuers",
        &["DELETE", "GET"],
        issuers::all,
        issuers::all_operation,
    ),
    endpoint(
        "/openid-connect/issuers/{issuer}",
        &["DELETE", "GET"],
        issuers::one,
        issuers::one_operation,
    ),
    endpoint(
        "/openid-connect/jwks",
        READ,
        issuers::jwks,
        issuers::jwks_operation,
    ),
    endpoint(
        "/route-files",
        READ,
        route_files::all,
        route_files::all_operation,
    ),
    endpoint(
        "/route-files/{id}",
        READ,
        route_files::one,
        route_files::one_operation,
    ),
    endpoint(
        "/workspaces",
        READ,
        info::workspaces,
        info::workspaces_operation,
    ),
    endpoint(
        "/workspaces/{workspaces}",
        READ,
        info::workspace,
        info::workspace_operation,
    ),
    collection::<Service>("/services"),
    item::<Service>("/services/{services}"),
    children::<Service, Route>("/services/{services}/routes"),
    child::<Service, Route>("/services/{services}/routes/{routes}"),
    children::<Service, Plugin>("/services/{services}/plugins"),
    child::<Service, Plugin>("/services/{services}/plugins/{plugins}"),
    parent::<Service, Certificate>("/services/{services}/client_certificate"),
    collection::<Route>("/routes"),
    item::<Route>("/routes/{routes}"),
    parent::<Route, Service>("/routes/{routes}/service"),
    children::<Route, Plugin>("/routes/{routes}/plugins"),
    child::<Route, Plugin>("/routes/{routes}/plugins/{plugins}"),
    collection::<Plugin>("/plugins")
        .only(&["GET", "POST", "PUT"])
        .with(plugins::all),
    endpoint(
        "/plugins/enabled",
        READ,
        plugins::enabled,
        plugins::enabled_operation,
    ),
    endpoint(
        "/plugins/schema/{name}",
        READ,
        schemas::legacy,
        schemas::legacy_operation,
    ),
    item::<Plugin>("/plugins/{plugins}"),
    parent::<Plugin, Service>("/plugins/{plugins}/service"),
    parent::<Plugin, Route>("/plugins/{plugins}/route"),
    endpoint(
        "/upstreams/{upstreams}/health",
        READ,
        health::upstream,
        health::upstream_operation,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/healthy",
        SET,
        health::healthy,
        health::healthy_operation,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/unhealthy",
        SET,
        health::unhealthy,
        health::unhealthy_operation,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
        SET,
        health::healthy,
        health::healthy_operation,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy",
        SET,
        health::unhealthy,
        health::unhealthy_operation,
    ),
    parent::<Plugin, Consumer>("/plugins/{plugins}/consumer"),
    collection::<Consumer>("/consumers")
        .with(consumers::all)
        .described(consumers::all_operation),
    item::<Consumer>("/consumers/{consumers}"),
    children::<Consumer, Plugin>("/consumers/{consumers}/plugins"),
    child::<Consumer, Plugin>("/consumers/{consumers}/plugins/{plugins}"),
    collection::<Upstream>("/upstreams"),
    item::<Upstream>("/upstreams/{upstreams}"),
    children::<Upstream, Target>("/upstreams/{upstreams}/targets"),
    children::<Upstream, Target>("/upstreams/{upstreams}/targets/all").only(READ),
    child::<Upstream, Target>("/upstreams/{upstreams}/targets/{targets}")
        .with(targets::item)
        .described(targets::item_operation),
    parent::<Upstream, Certificate>("/upstreams/{upstreams}/client_certificate"),
    collection::<Certificate>("/certificates"),
    item::<Certificate>("/certificates/{certificates}"),
    children::<Certificate, Sni>("/certificates/{certificates}/snis"),
    child::<Certificate, Sni>("/certificates/{certificates}/snis/{snis}"),
    children::<Certificate, Service>("/certificates/{certificates}/services"),
    child::<Certificate, Service>("/certificates/{certificates}/services/{services}"),
    children::<Certificate, Upstream>("/certificates/{certificates}/upstreams"),
    child::<Certificate, Upstream>("/certificates/{certificates}/upstreams/{upstreams}"),
    collection::<Sni>("/snis"),
    item::<Sni>("/snis/{snis}"),
    collection::<CaCertificate>("/ca_certificates"),
    item::<CaCertificate>("/ca_certificates/{ca_certificates}"),
    endpoint(
        "/schemas/plugins/validate",
        &["POST"],
        schemas::validate_plugin,
        schemas::validate_plugin_operation,
    ),
    endpoint(
        "/schemas/plugins/{name}",
        READ,
        schemas::plugin,
        schemas::plugin_operation,
    ),
    endpoint(
        "/schemas/vaults/validate",
        &["POST"],
        schemas::validate_vault,
        schemas::validate_vault_operation,
    ),
    endpoint(
        "/schemas/vaults/{name}",
        READ,
        schemas::vault,
        schemas::vault_operation,
    ),
    endpoint(
        "/schemas/{entity}",
        READ,
        schemas::entity,
        schemas::entity_operation,
    ),
    endpoint(
        "/schemas/{entity}/validate",
        &["POST"],
        schemas::validate,
        schemas::validate_operation,
    ),
    endpoint("/tags", READ, tags::all, tags::all_operation),
    endpoint("/tags/{tags}", READ, tags::one, tags::one_operation),
    endpoint(
        "/broker/products",
        LIST,
        broker::collection,
        described::products,
    ),
    endpoint(
        "/broker/products/{id}",
        ITEM,
        broker::item,
        described::product_item,
    ),
    endpoint(
        "/broker/developers",
        LIST,
        broker::collection,
        described::developers,
    ),
    endpoint(
        "/broker/developers/{id}",
        ITEM,
        broker::item,
        described::developer_item,
    ),
    endpoint(
        "/broker/applications",
        LIST,
        broker::collection,
        described::applications,
    ),
    endpoint(
        "/broker/applications/{id}",
        ITEM,
        broker::item,
        described::application_item,
    ),
    endpoint(
        "/broker/applications/{id}/secret",
        &["POST"],
        broker::secret,
        described::secret,
    ),
    endpoint(
        "/broker/applications/{id}/tokens",
        &["DELETE"],
        broker::tokens,
        described::tokens,
    ),
    endpoint(
        "/broker/tokens/revoke",
        &["POST"],
        broker::revoke,
        described::revoke,
    ),
    endpoint(
        "/openid-connect/sessions",
        &["DELETE", "GET"],
        login_sessions::all,
        login_sessions::all_operation,
    ),
    endpoint(
        "/openid-connect/sessions/{id}",
        &["DELETE", "GET"],
        login_sessions::one,
        login_sessions::one_operation,
    ),
    endpoint(
        "/throttling",
        READ,
        throttling::all,
        throttling::all_operation,
    ),
    endpoint(
        "/throttling/{plugins}",
        READ,
        throttling::one,
        throttling::one_operation,
    ),
    endpoint(
        "/throttling/{plugins}/{partition}",
        &["DELETE"],
        throttling::partition,
        throttling::partition_operation,
    ),
];

/// Every endpoint.
pub(super) fn all() -> impl Iterator<Item = &'static Endpoint> {
    ENDPOINTS
        .iter()
        .chain(cache::ENDPOINTS)
        .chain(consumer_groups::ENDPOINTS)
        .chain(credentials::ENDPOINTS)
        .chain(debug::ENDPOINTS)
        .chain(keys::ENDPOINTS)
        .chain(oauth2_tokens::ENDPOINTS)
        .chain(plugin_sessions::ENDPOINTS)
        .chain(proxy_cache::ENDPOINTS)
}
