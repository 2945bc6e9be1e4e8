//! Precedence, order, and what a consumer changes.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::entities::Origin;
use crate::log_phase::{self, trail::TrailState};
use doorward_core::model::consumer::Consumer;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Exchange, Flow, Verdict};

struct Nothing;

impl Filter for Nothing {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }
}

const ROUTE: Uuid = Uuid::from_u128(1);
const SERVICE: Uuid = Uuid::from_u128(2);
const ANNA: Uuid = Uuid::from_u128(3);
const PLACE: Place = Place {
    route: ROUTE,
    service: Some(SERVICE),
};

const GOLD: Uuid = Uuid::from_u128(4);
const SILVER: Uuid = Uuid::from_u128(5);

/// Anna in groups of hers, in this order.
fn anna_in(groups: &[Uuid]) -> Caller {
    let anna = json!({"id": ANNA, "username": "anna", "created_at": 0});
    let anna: Consumer = serde_json::from_value(anna).expect("a consumer");
    Caller::from(anna).in_consumer_groups(groups.to_vec())
}

/// Somebody else.
fn bob() -> Caller {
    let bob = json!({"id": Uuid::from_u128(9), "username": "bob", "created_at": 0});
    let bob: Consumer = serde_json::from_value(bob).expect("a consumer");
    Caller::from(bob)
}

/// A plugin whose place is spelt `rsc`: route, service, consumer; `g` and `i` are the
/// groups gold and silver.
fn link(name: &str, place: &str) -> Link {
    let at = |letter: char, id: Uuid| {
        if place.contains(letter) {
            json!({"id": id})
        } else {
            Value::Null
        }
    };
    let plugin = json!({
        "id": Uuid::new_v5(&ROUTE, format!("{name} {place}").as_bytes()),
        "name": name, "enabled": true, "config": {}, "created_at": 0,
        "route": at('r', ROUTE), "service": at('s', SERVICE), "consumer": at('c', ANNA),
        "consumer_group": if place.contains('i') { at('i', SILVER) } else { at('g', GOLD) },
        "tags": [place],
    });
    let plugin = serde_json::from_value(plugin).expect("a plugin");
    Link::new(
        Arc::new(Record::of(plugin, Origin::Store)),
        Arc::new(Nothing),
    )
}

/// Name and place of each link.
fn shown(links: &[Link]) -> Vec<String> {
    let place = |link: &Link| link.record.value.tags.clone().unwrap_or_default().concat();
    links
        .iter()
        .map(|link| {
            format!("{} {}", link.name(), place(link))
                .trim_end()
                .to_owned()
        })
        .collect()
}

/// The chain of a request of Anna's, found by `openid-connect` on the service.
fn chain_of_anna(throttled: &[&str], place: Place) -> Vec<String> {
    chain_of(&anna_in(&[GOLD, SILVER]), throttled, place)
}

/// The same of a caller's.
fn chain_of(caller: &Caller, throttled: &[&str], place: Place) -> Vec<String> {
    let links = throttled.iter().map(|place| link("throttling", place));
    let chain = Chains::of(links.chain([link("openid-connect", "s")])).chain(place);
    let scoped = chain.scoped.as_ref();
    let anna = scoped
        .and_then(|scoped| scoped.chain(place, Some(caller), &chain.links, (&*chain.links, 1)));
    shown(anna.as_deref().unwrap_or(&chain.links))
}

#[test]
fn the_most_specific_plugin_of_a_name_runs() {
    // From the most specific one down; each runs when those before are gone.
    let order = [
        "rsc", "rsg", "rc", "sc", "rg", "sg", "rs", "c", "g", "r", "s", "",
    ];
    for first in 0..order.len() {
        let mut given = order[first..].to_vec();
        given.reverse();
        let expected = format!("throttling {}", order[first]);
        assert_eq!(
            chain_of_anna(&given, PLACE),
            ["openid-connect s", expected.trim_end()],
        );
    }
}

#[test]
fn of_two_groups_at_the_same_place_the_first_one_counts() {
    let given = ["g", "i"];
    for (groups, expected) in [
        (&[GOLD, SILVER][..], "throttling g"),
        (&[SILVER, GOLD], "throttling i"),
        (&[SILVER], "throttling i"),
    ] {
        let chain = chain_of(&anna_in(groups), &given, PLACE);
        assert_eq!(chain, ["openid-connect s", expected]);
    }
    // A place that says more comes before the order of the groups.
    let chain = chain_of(&anna_in(&[GOLD, SILVER]), &["g", "ri"], PLACE);
    assert_eq!(chain, ["openid-connect s", "throttling ri"]);
}

#[test]
fn a_plugin_of_a_group_is_for_its_members_alone() {
    for caller in [bob(), anna_in(&[SILVER])] {
        let chain = chain_of(&caller, &["g", "rg", "sg", "rsg", ""], PLACE);
        assert_eq!(chain, ["openid-connect s", "throttling"]);
    }
}

#[test]
fn higher_priority_runs_first() {
    let links = [
        link("throttling", ""),
        link("request-guard", "r"),
        link("openid-connect", "s"),
    ];
    let chain = Chains::of(links.into_iter()).chain(PLACE);
    assert_eq!(
        shown(&chain.links),
        ["request-guard r", "openid-connect s", "throttling"]
    );
}

#[test]
fn a_plugin_of_a_consumer_is_no_plugin_of_everybody() {
    let chain = Chains::of([link("throttling", "c")].into_iter()).chain(PLACE);
    assert!(chain.links.is_empty());
    let scoped = chain.scoped.expect("it can apply");
    let (anna, bob) = (anna_in(&[]), bob());
    assert!(
        scoped
            .chain(PLACE, Some(&bob), &chain.links, (&*chain.links, 0))
            .is_none()
    );
    let anna = scoped.chain(PLACE, Some(&anna), &chain.links, (&*chain.links, 0));
    assert_eq!(shown(&anna.expect("a chain")), ["throttling c"]);
}

#[test]
fn only_routes_that_a_consumers_plugin_reaches_look_for_it() {
    let elsewhere = Place {
        route: Uuid::from_u128(7),
        service: Some(Uuid::from_u128(8)),
    };
    let alone = Place {
        route: Uuid::from_u128(7),
        service: None,
    };
    for (place, reached) in [
        ("rc", false),
        ("sc", false),
        ("rsc", false),
        ("c", true),
        ("rg", false),
        ("sg", false),
        ("g", true),
    ] {
        let chains = Chains::of([link("throttling", place)].into_iter());
        assert!(chains.chain(PLACE).scoped.is_some(), "{place}");
        assert_eq!(chains.chain(elsewhere).scoped.is_some(), reached, "{place}");
        assert_eq!(chains.chain(alone).scoped.is_some(), reached, "{place}");
    }
    assert!(Chains::of(std::iter::empty()).chain(PLACE).scoped.is_none());
}

#[test]
fn what_has_run_is_not_run_again() {
    let links = [
        link("openid-connect", "s"),
        link("openid-connect", "c"),
        link("request-guard", "c"),
        link("throttling", "s"),
    ];
    let chain = Chains::of(links.into_iter()).chain(PLACE);
    let scoped = chain.scoped.expect("it can apply");
    assert!(
        scoped
            .chain(PLACE, Some(&anna_in(&[])), &chain.links, (&*chain.links, 1))
            .is_none()
    );
}

#[test]
fn a_service_means_nothing_to_a_route_without_one() {
    let alone = Place {
        route: ROUTE,
        service: None,
    };
    let links = [link("throttling", "s"), link("request-guard", "r")];
    let chain = Chains::of(links.into_iter()).chain(alone);
    assert_eq!(shown(&chain.links), ["request-guard r"]);
}

#[test]
fn whoever_turns_out_to_be_somebody_else_loses_the_plugins_of_the_first() {
    let links = [
        link("openid-connect", ""),
        link("throttling", "r"),
        link("throttling", "c"),
    ];
    let chain = Chains::of(links.into_iter()).chain(PLACE);
    let scoped = chain.scoped.expect("it can apply");
    let base: &[Link] = &chain.links;
    let anna = scoped.chain(PLACE, Some(&anna_in(&[])), base, (base, 1));
    let anna = anna.expect("a chain of her own");
    assert_eq!(shown(&anna), ["openid-connect", "throttling c"]);
    for other in [None, Some(&bob())] {
        let rest = scoped.chain(PLACE, other, base, (&*anna, 1));
        let rest = rest.expect("another chain");
        assert_eq!(shown(&rest), ["openid-connect", "throttling r"]);
    }
}

struct Observer;

impl Filter for Observer {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    fn observes(&self) -> bool {
        true
    }

    fn secret_fields(&self) -> Vec<&str> {
        vec!["apikey"]
    }

    fn reads_heads(&self) -> bool {
        false
    }
}

/// The same with a filter that observes.
fn observing(link: Link) -> Link {
    Link::new(link.record, Arc::new(Observer))
}

#[test]
fn only_routes_with_a_filter_that_observes_collect_for_it() {
    let chain = |links: Vec<Link>| Chains::of(links.into_iter()).chain(PLACE);
    let plain = chain(vec![link("throttling", "")]);
    assert!(!plain.observed && plain.secret_fields.is_empty());
    for place in ["r", "s", "c", ""] {
        let observed = chain(vec![observing(link("http-log", place))]);
        assert!(observed.observed, "{place}");
        assert_eq!(observed.secret_fields, ["apikey".into()].into());
    }
}

#[test]
fn a_chain_reads_heads_where_a_filter_of_it_may() {
    let reads = |links: Vec<Link>| Chains::of(links.into_iter()).chain(PLACE).reads_heads;
    let spares = || observing(link("http-log", ""));
    assert!(!reads(vec![spares()]));
    assert!(reads(vec![spares(), link("throttling", "r")]));
    assert!(reads(vec![spares(), link("throttling", "c")]));
}

#[test]
fn what_no_route_takes_is_for_the_observers_of_everything() {
    let links = [
        link("throttling", ""),
        observing(link("http-log", "")),
        observing(link("file-log", "s")),
        observing(link("prometheus", "")),
    ];
    let observers = Chains::of(links.into_iter()).observers();
    assert_eq!(shown(&observers), ["prometheus", "http-log"]);
}

/// Observes, but for this one request.
struct Uninterested;

impl Filter for Uninterested {
    fn on_request(&self, _: &mut Session, _: &mut Exchange) -> Verdict {
        Verdict::Now(Flow::Continue)
    }

    fn observes(&self) -> bool {
        true
    }

    fn observes_request(&self, _: &Exchange) -> bool {
        false
    }
}

#[test]
fn nothing_is_noted_of_a_request_of_which_no_filter_wants_to_know() {
    let uninterested = |place| Link::new(link("zipkin", place).record, Arc::new(Uninterested));
    let noted = |links: &[Link], observed| {
        let mut trail = TrailState::new(observed);
        log_phase::settle(links, &Exchange::default(), &mut trail);
        let begun = trail.begin().is_some();
        assert_eq!(trail.get().is_some(), begun);
        begun
    };
    assert!(!noted(&[], false));
    assert!(!noted(&[uninterested("")], true));
    let one_does = [uninterested(""), observing(link("http-log", "r"))];
    assert!(noted(&one_does, true));
    // Of routes without observers nothing is asked.
    assert!(!noted(&one_does, false));
}
