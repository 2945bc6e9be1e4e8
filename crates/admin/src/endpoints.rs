//! Every endpoint of the Admin API.

use super::endpoint::{Endpoint, ITEM, LIST, PARENT, READ, SET, endpoint};
use super::entity::{child, children, collection, item, parent};
use super::{
    audit, broker, config, consumers, credentials, explain, health, info, issuers, keys,
    login_sessions, oauth2_tokens, plugins, proxy_cache, route_files, schemas, tags, targets,
    throttling,
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

/// Every endpoint but those of [`credentials`], [`keys`], [`oauth2_tokens`] and
/// [`proxy_cache`]. Of two that match, the first one counts.
static ENDPOINTS: &[Endpoint] = &[
    endpoint("/", READ, info::root),
    endpoint("/config", LIST, config::config),
    endpoint("/audit", READ, audit::list),
    endpoint("/audit/export", READ, audit::export),
    endpoint("/status", READ, info::status),
    endpoint("/status/ready", READ, info::ready),
    endpoint("/acme", READ, info::acme),
    endpoint("/metrics", READ, info::metrics),
    endpoint("/endpoints", READ, info::endpoints),
    endpoint("/explain", &["POST"], explain::explain),
    endpoint("/explain/refusals", READ, explain::codes),
    endpoint("/openid-connect/issuers", &["DELETE", "GET"], issuers::all),
    endpoint(
        "/openid-connect/issuers/{issuer}",
        &["DELETE", "GET"],
        issuers::one,
    ),
    endpoint("/openid-connect/jwks", READ, issuers::jwks),
    endpoint("/route-files", READ, route_files::all),
    endpoint("/route-files/{id}", READ, route_files::one),
    endpoint("/workspaces", READ, info::workspaces),
    endpoint("/workspaces/{workspaces}", READ, info::workspace),
    endpoint("/services", LIST, collection::<Service>),
    endpoint("/services/{services}", ITEM, item::<Service>),
    endpoint(
        "/services/{services}/routes",
        LIST,
        children::<Service, Route>,
    ),
    endpoint(
        "/services/{services}/routes/{routes}",
        ITEM,
        child::<Service, Route>,
    ),
    endpoint(
        "/services/{services}/plugins",
        LIST,
        children::<Service, Plugin>,
    ),
    endpoint(
        "/services/{services}/plugins/{plugins}",
        ITEM,
        child::<Service, Plugin>,
    ),
    endpoint(
        "/services/{services}/client_certificate",
        PARENT,
        parent::<Service, Certificate>,
    ),
    endpoint("/routes", LIST, collection::<Route>),
    endpoint("/routes/{routes}", ITEM, item::<Route>),
    endpoint("/routes/{routes}/service", PARENT, parent::<Route, Service>),
    endpoint("/routes/{routes}/plugins", LIST, children::<Route, Plugin>),
    endpoint(
        "/routes/{routes}/plugins/{plugins}",
        ITEM,
        child::<Route, Plugin>,
    ),
    endpoint("/plugins", &["GET", "POST", "PUT"], plugins::all),
    endpoint("/plugins/enabled", READ, plugins::enabled),
    endpoint("/plugins/schema/{name}", READ, schemas::legacy),
    endpoint("/plugins/{plugins}", ITEM, item::<Plugin>),
    endpoint(
        "/plugins/{plugins}/service",
        PARENT,
        parent::<Plugin, Service>,
    ),
    endpoint("/plugins/{plugins}/route", PARENT, parent::<Plugin, Route>),
    endpoint("/upstreams/{upstreams}/health", READ, health::upstream),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/healthy",
        SET,
        health::healthy,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/unhealthy",
        SET,
        health::unhealthy,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
        SET,
        health::healthy,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy",
        SET,
        health::unhealthy,
    ),
    endpoint(
        "/plugins/{plugins}/consumer",
        PARENT,
        parent::<Plugin, Consumer>,
    ),
    endpoint("/consumers", LIST, consumers::all),
    endpoint("/consumers/{consumers}", ITEM, item::<Consumer>),
    endpoint(
        "/consumers/{consumers}/plugins",
        LIST,
        children::<Consumer, Plugin>,
    ),
    endpoint(
        "/consumers/{consumers}/plugins/{plugins}",
        ITEM,
        child::<Consumer, Plugin>,
    ),
    endpoint("/upstreams", LIST, collection::<Upstream>),
    endpoint("/upstreams/{upstreams}", ITEM, item::<Upstream>),
    endpoint(
        "/upstreams/{upstreams}/targets",
        LIST,
        children::<Upstream, Target>,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/all",
        READ,
        children::<Upstream, Target>,
    ),
    endpoint(
        "/upstreams/{upstreams}/targets/{targets}",
        ITEM,
        targets::item,
    ),
    endpoint(
        "/upstreams/{upstreams}/client_certificate",
        PARENT,
        parent::<Upstream, Certificate>,
    ),
    endpoint("/certificates", LIST, collection::<Certificate>),
    endpoint("/certificates/{certificates}", ITEM, item::<Certificate>),
    endpoint(
        "/certificates/{certificates}/snis",
        LIST,
        children::<Certificate, Sni>,
    ),
    endpoint(
        "/certificates/{certificates}/snis/{snis}",
        ITEM,
        child::<Certificate, Sni>,
    ),
    endpoint(
        "/certificates/{certificates}/services",
        LIST,
        children::<Certificate, Service>,
    ),
    endpoint(
        "/certificates/{certificates}/services/{services}",
        ITEM,
        child::<Certificate, Service>,
    ),
    endpoint(
        "/certificates/{certificates}/upstreams",
        LIST,
        children::<Certificate, Upstream>,
    ),
    endpoint(
        "/certificates/{certificates}/upstreams/{upstreams}",
        ITEM,
        child::<Certificate, Upstream>,
    ),
    endpoint("/snis", LIST, collection::<Sni>),
    endpoint("/snis/{snis}", ITEM, item::<Sni>),
    endpoint("/ca_certificates", LIST, collection::<CaCertificate>),
    endpoint(
        "/ca_certificates/{ca_certificates}",
        ITEM,
        item::<CaCertificate>,
    ),
    endpoint(
        "/schemas/plugins/validate",
        &["POST"],
        schemas::validate_plugin,
    ),
    endpoint("/schemas/plugins/{name}", READ, schemas::plugin),
    endpoint("/schemas/{entity}", READ, schemas::entity),
    endpoint("/schemas/{entity}/validate", &["POST"], schemas::validate),
    endpoint("/tags", READ, tags::all),
    endpoint("/tags/{tags}", READ, tags::one),
    endpoint("/broker/products", LIST, broker::collection),
    endpoint("/broker/products/{id}", ITEM, broker::item),
    endpoint("/broker/developers", LIST, broker::collection),
    endpoint("/broker/developers/{id}", ITEM, broker::item),
    endpoint("/broker/applications", LIST, broker::collection),
    endpoint("/broker/applications/{id}", ITEM, broker::item),
    endpoint(
        "/broker/applications/{id}/secret",
        &["POST"],
        broker::secret,
    ),
    endpoint(
        "/broker/applications/{id}/tokens",
        &["DELETE"],
        broker::tokens,
    ),
    endpoint("/broker/tokens/revoke", &["POST"], broker::revoke),
    endpoint(
        "/openid-connect/sessions",
        &["DELETE", "GET"],
        login_sessions::all,
    ),
    endpoint(
        "/openid-connect/sessions/{id}",
        &["DELETE", "GET"],
        login_sessions::one,
    ),
    endpoint("/throttling", READ, throttling::all),
    endpoint("/throttling/{plugins}", READ, throttling::one),
    endpoint(
        "/throttling/{plugins}/{partition}",
        &["DELETE"],
        throttling::partition,
    ),
];

/// Every endpoint.
pub(super) fn all() -> impl Iterator<Item = &'static Endpoint> {
    ENDPOINTS
        .iter()
        .chain(credentials::ENDPOINTS)
        .chain(keys::ENDPOINTS)
        .chain(oauth2_tokens::ENDPOINTS)
        .chain(proxy_cache::ENDPOINTS)
}
