//! Why a route was chosen, and why others were not.

use std::collections::HashMap;

use ahash::RandomState;
use http::HeaderMap;

use super::answer::{Matched, Miss};
use super::origin;
use crate::entities::{Entities, Record};
use crate::router::{Attribute, Query, RouteVerdict, Router};
use doorward_core::model::route::Route;

/// What of `route` the request matches with the path at `rank`.
pub(super) fn matched(
    router: &Router,
    query: &Query<'_>,
    (rank, route): (usize, &Route),
    matched: usize,
) -> Vec<Matched> {
    let mut all = Vec::new();
    let mut put = |attribute: &str, wanted: String, value: &str| {
        all.push(Matched {
            attribute: attribute.to_owned(),
            wanted,
            value: value.to_owned(),
        });
    };
    if let Some(hosts) = some(&route.hosts) {
        put("host", hosts.join(", "), query.host);
    }
    if let Some(path) = router.path_of(rank, route) {
        let part = query.path.get(..matched).unwrap_or(query.path);
        put("path", path.to_owned(), part);
    }
    if let Some(methods) = some(&route.methods) {
        put("method", methods.join(", "), query.method.as_str());
    }
    for (name, values) in route.headers.iter().flatten() {
        let value = sent(query.headers, name);
        put(&format!("header {name}"), values.join(", "), &value);
    }
    if let Some(snis) = some(&route.snis)
        && query.tls
    {
        put("sni", snis.join(", "), query.sni.unwrap_or_default());
    }
    all
}

fn some(list: &Option<Vec<String>>) -> Option<&[String]> {
    list.as_deref().filter(|list| !list.is_empty())
}

fn sent(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter();
    let values: Vec<_> = values
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    values.join("', '")
}

/// The `limit` routes that come nearest to the request, besides the one at
/// `chosen` (rank and route).
pub(super) fn misses(
    router: &Router,
    query: &Query<'_>,
    routes: &[&Record<Route>],
    chosen: Option<(usize, usize)>,
    limit: usize,
    entities: &Entities,
) -> Vec<Miss> {
    let plain: Vec<&Route> = routes.iter().map(|record| &record.value).collect();
    let mut best: HashMap<usize, RouteVerdict<'_>, RandomState> = HashMap::default();
    for stand in router.compare(query, &plain) {
        let is_chosen = chosen.is_some_and(|(_, route)| route == stand.route);
        if is_chosen || (stand.matches == 0 && stand.fails.len() > 1) {
            continue;
        }
        match best.get(&stand.route) {
            Some(known) if nearness(known) <= nearness(&stand) => {}
            _ => drop(best.insert(stand.route, stand)),
        }
    }
    let mut nearest: Vec<RouteVerdict<'_>> = best.into_values().collect();
    nearest.sort_by_key(nearness);
    nearest.truncate(limit);
    let miss = |stand: RouteVerdict<'_>| {
        let record = routes[stand.route];
        let route = &record.value;
        let mut reasons: Vec<String> = stand
            .fails
            .iter()
            .map(|fail| reason(*fail, router.path_of(stand.rank, route), route, query))
            .collect();
        if let (true, Some((rank, winner))) = (reasons.is_empty(), chosen) {
            let winner = &routes[winner].value;
            let why = router.advantage((rank, winner), (stand.rank, route));
            let name = winner.name.clone().unwrap_or_else(|| winner.id.to_string());
            reasons.push(format!("lower precedence than {name}: {why}"));
        }
        Miss {
            id: route.id,
            name: route.name.clone(),
            origin: origin::of(entities, record),
            reasons,
        }
    };
    nearest.into_iter().map(miss).collect()
}

/// The smaller the nearer.
fn nearness(stand: &RouteVerdict<'_>) -> (usize, usize, usize) {
    (stand.fails.len(), usize::MAX - stand.matches, stand.rank)
}

fn reason(fail: Attribute<'_>, path: Option<&str>, route: &Route, query: &Query<'_>) -> String {
    let list = |list: &Option<Vec<String>>| some(list).unwrap_or_default().join(", ");
    match fail {
        Attribute::Host => {
            let wanted = list(&route.hosts);
            match query.host {
                "" => format!("there is no host, route wants {wanted}"),
                host => format!(
                    "host is '{host}' (port {}), route matches only {wanted}",
                    query.port
                ),
            }
        }
        Attribute::Method => {
            format!(
                "method is {}, route allows {}",
                query.method,
                list(&route.methods)
            )
        }
        Attribute::Path => {
            let wanted = path.unwrap_or_default();
            let how = if wanted.starts_with('~') {
                "match"
            } else {
                "begin with"
            };
            format!("path '{}' does not {how} '{wanted}'", query.path)
        }
        Attribute::Header(name) => {
            let own = route.headers.iter().flatten();
            let values = own.filter(|(own, _)| own.eq_ignore_ascii_case(name));
            let values: Vec<String> = values
                .flat_map(|(_, values)| values)
                .map(|value| format!("'{value}'"))
                .collect();
            let wanted = match values.as_slice() {
                [one] if one.starts_with("'~*") => format!("a match of {one}"),
                _ => format!("one of {}", values.join(", ")),
            };
            match sent(query.headers, name).as_str() {
                "" => format!("header {name} is absent, route wants {wanted}"),
                value => format!("header {name} is '{value}', route wants {wanted}"),
            }
        }
        Attribute::Sni => {
            let wanted = list(&route.snis);
            match query.sni {
                Some(sni) => format!("server name is '{sni}', route matches only {wanted}"),
                None => format!("the handshake has no server name, route matches only {wanted}"),
            }
        }
    }
}

/// Routes that would match, were their services not disabled.
pub(super) fn disabled(entities: &Entities, query: &Query<'_>, limit: usize) -> Vec<Miss> {
    let is_disabled = |route: &Route| {
        let service = route.service.and_then(|s| entities.services.get(s.id));
        service.is_some_and(|service| !service.value.enabled)
    };
    let records = entities.routes.iter();
    let records: Vec<&Record<Route>> = records
        .map(|record| &**record)
        .filter(|record| is_disabled(&record.value))
        .collect();
    let routes: Vec<&Route> = records.iter().map(|record| &record.value).collect();
    let Ok(router) = Router::build(routes.iter().copied(), None) else {
        return Vec::new();
    };
    let full = router
        .compare(query, &routes)
        .filter(|s| s.fails.is_empty());
    full.take(limit)
        .map(|stand| Miss {
            id: routes[stand.route].id,
            name: routes[stand.route].name.clone(),
            origin: origin::of(entities, records[stand.route]),
            reasons: vec!["its service is disabled".to_owned()],
        })
        .collect()
}
