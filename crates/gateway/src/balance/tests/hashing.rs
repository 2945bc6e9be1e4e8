use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::super::key::{Hashed, Request};
use super::super::random::mix;
use super::*;
use crate::router::groups::Groups;

fn hashing(slots: u32) -> Value {
    json!({"algorithm": "consistent-hashing", "slots": slots})
}

fn owners(balancer: &Balancer, n: u64) -> Vec<String> {
    (0..n)
        .map(|key| picked(balancer, Some(mix(key)), 0).expect("is available"))
        .collect()
}

#[test]
fn a_hash_always_has_the_same_target() {
    let one = balancer(hashing(1_000), &[100; 5]);
    let other = balancer(hashing(1_000), &[100; 5]);
    assert_eq!(owners(&one, 500), owners(&other, 500));
}

#[test]
fn hashes_are_shared_by_weight() {
    let balancer = balancer(hashing(10_000), &[100, 200, 700]);
    let owners = owners(&balancer, 20_000);
    for (target, share) in [
        ("10.0.0.0:80", 0.1),
        ("10.0.0.1:80", 0.2),
        ("10.0.0.2:80", 0.7),
    ] {
        let n = owners.iter().filter(|owner| *owner == target).count() as f64;
        let part = n / 20_000.0;
        assert!((part - share).abs() < 0.02, "{target} has {part}");
    }
}

#[test]
fn a_removed_target_moves_only_its_own_hashes() {
    let before = balancer(hashing(10_000), &[100; 10]);
    let mut fewer = targets(&[100; 10]);
    let gone = fewer.remove(3).target;
    for previous in [Some(&before), None] {
        let after = Balancer::new(&upstream(hashing(10_000)), &fewer, previous, 0);
        for (old, new) in owners(&before, 5_000).iter().zip(owners(&after, 5_000)) {
            assert!(*old == gone || *old == new, "{old} to {new}");
        }
    }
}

#[test]
fn a_new_target_takes_only_its_share() {
    let before = balancer(hashing(10_000), &[100; 9]);
    let after = Balancer::new(
        &upstream(hashing(10_000)),
        &targets(&[100; 10]),
        Some(&before),
        0,
    );
    let anew = balancer(hashing(10_000), &[100; 10]);
    let (old, new) = (owners(&before, 5_000), owners(&after, 5_000));
    assert_eq!(new, owners(&anew, 5_000), "history does not matter");
    let moved: Vec<_> = old
        .iter()
        .zip(&new)
        .filter(|(old, new)| old != new)
        .collect();
    assert!(moved.iter().all(|(_, new)| *new == "10.0.0.9:80"));
    assert!((300..700).contains(&moved.len()), "{} moved", moved.len());
}

#[test]
fn a_changed_weight_gives_the_same_table_as_a_new_start() {
    let before = balancer(hashing(1_000), &[100, 100, 100]);
    let weights = [100, 300, 50];
    let after = Balancer::new(
        &upstream(hashing(1_000)),
        &targets(&weights),
        Some(&before),
        0,
    );
    assert_eq!(
        owners(&after, 2_000),
        owners(&balancer(hashing(1_000), &weights), 2_000)
    );
}

#[test]
fn an_unhealthy_targets_hashes_spread_over_the_others() {
    let checks = json!({"passive": {"unhealthy": {"tcp_failures": 1}}});
    let mut fields = hashing(10_000);
    fields["healthchecks"] = checks;
    let balancer = balancer(fields, &[100; 5]);
    let before = owners(&balancer, 5_000);
    balancer.endpoint_set().endpoints()[2].force_health(false, 0);
    let during = owners(&balancer, 5_000);
    let mut heirs = std::collections::HashMap::new();
    for (old, new) in before.iter().zip(&during) {
        if old == "10.0.0.2:80" {
            *heirs.entry(new.clone()).or_insert(0) += 1;
        } else {
            assert_eq!(old, new);
        }
    }
    assert_eq!(heirs.len(), 4);
    assert!(heirs.values().all(|&n| n > 150), "{heirs:?}");
    balancer.endpoint_set().endpoints()[2].force_health(true, 0);
    assert_eq!(owners(&balancer, 5_000), before);
}

fn hash(fields: Value, headers: &[(&str, &str)], target: &str) -> Hashed {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            let name: HeaderName = name.parse().expect("is a name");
            (name, HeaderValue::from_str(value).expect("is a value"))
        })
        .collect();
    let route = json!({
        "id": Uuid::nil(), "name": null, "protocols": ["http"], "methods": null,
        "hosts": null, "paths": ["~/users/(?<user>[^/]+)/"], "headers": null,
        "snis": null, "service": null, "regex_priority": 0, "strip_path": true,
        "preserve_host": false, "path_handling": "v0", "tags": null,
        "https_redirect_status_code": 426, "request_buffering": true,
        "response_buffering": true, "created_at": 1, "updated_at": 1
    });
    let groups = Groups::of(&serde_json::from_value(route).expect("is a route"));
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let record = upstream(fields);
    let balancer = Balancer::new(&record, &targets(&[100]), None, 0);
    balancer.hash(&Request {
        consumer: None,
        client: IpAddr::from([192, 0, 2, 7]),
        headers: &headers,
        path,
        query,
        groups: Some(&groups),
    })
}

#[test]
fn each_part_of_a_request_can_be_hashed() {
    let on = |fields: Value, a: (&[(&str, &str)], &str), b: (&[(&str, &str)], &str)| {
        let (one, two) = (
            hash(fields.clone(), a.0, a.1).hash,
            hash(fields, b.0, b.1).hash,
        );
        assert!(one.is_some() && two.is_some());
        one == two
    };
    let header = json!({"hash_on": "header", "hash_on_header": "X-User"});
    assert!(on(
        header.clone(),
        (&[("x-user", "a")], "/1"),
        (&[("X-User", "a")], "/2")
    ));
    assert!(!on(
        header,
        (&[("x-user", "a")], "/"),
        (&[("x-user", "b")], "/")
    ));
    let path = json!({"hash_on": "path"});
    assert!(on(path.clone(), (&[], "/a?x=1"), (&[], "/a?x=2")));
    assert!(!on(path, (&[], "/a"), (&[], "/b")));
    let query = json!({"hash_on": "query_arg", "hash_on_query_arg": "id"});
    assert!(on(
        query.clone(),
        (&[], "/a?id=1%32"),
        (&[], "/b?z=1&id=12")
    ));
    assert!(on(
        query.clone(),
        (&[], "/?id=1&id=2"),
        (&[], "/?id=2&id=1")
    ));
    assert!(!on(query, (&[], "/?id=1"), (&[], "/?id=2")));
    let group = json!({"hash_on": "uri_capture", "hash_on_uri_capture": "user"});
    assert!(on(group.clone(), (&[], "/users/a/x"), (&[], "/users/a/y")));
    assert!(!on(group, (&[], "/users/a/"), (&[], "/users/b/")));
    assert!(hash(json!({"hash_on": "ip"}), &[], "/").hash.is_some());
}

#[test]
fn what_is_missing_falls_back() {
    let fields = json!({
        "hash_on": "header", "hash_on_header": "x-user",
        "hash_fallback": "query_arg", "hash_fallback_query_arg": "user"
    });
    let query = hash(fields.clone(), &[], "/?user=a").hash;
    assert_eq!(
        query,
        hash(fields.clone(), &[("x-user", "a")], "/?user=b").hash
    );
    assert_eq!(hash(fields, &[], "/").hash, None);
    let consumer = json!({"hash_on": "consumer", "hash_fallback": "none"});
    assert_eq!(hash(consumer, &[], "/").hash, None);
}

#[test]
fn a_client_without_the_cookie_gets_one_that_hashes_the_same() {
    let fields = json!({
        "hash_on": "cookie", "hash_on_cookie": "stick", "hash_on_cookie_path": "/shop"
    });
    let first = hash(fields.clone(), &[("cookie", "other=1; stick=")], "/");
    let cookie = first.cookie.expect("is set");
    let cookie = cookie.to_str().expect("is text");
    assert!(
        cookie.contains("; Path=/shop") && cookie.contains("HttpOnly"),
        "{cookie}"
    );
    let (pair, _) = cookie.split_once(';').expect("has attributes");
    let sent = format!("a=b; {pair}; xstick=9");
    let second = hash(fields, &[("cookie", &sent)], "/");
    assert_eq!(second.hash, first.hash);
    assert!(second.cookie.is_none());
}
