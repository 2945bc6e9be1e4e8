use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::authentication::testing::{ask_as, caller, filter, parts_with};
use crate::testing::plugin;
use doorward_net::http::head::UpstreamRequest;
use doorward_plugin_api::identity::Credential;

/// Who is calling: groups of the consumer's records, groups that somebody else vouches
/// for, and whether there is a credential.
fn exchange(own: Option<&[&str]>, other: Option<&[&str]>, proved: bool) -> Exchange {
    Exchange {
        consumer: own.map(|groups| caller("anna", groups)),
        credential: proved.then(|| Arc::new(Credential::new(Uuid::nil(), "a"))),
        authenticated_groups: other.map(|groups| groups.iter().map(|g| (*g).into()).collect()),
        ..Exchange::default()
    }
}

async fn status_of(config: &Value, exchange: Exchange) -> u16 {
    let filter = filter(&KIND, config, &parts_with(|_| {}));
    let lines = "GET / HTTP/1.1\r\nX-Consumer-Groups: admins\r\nX-Authenticated-Groups: admins";
    let outcome = ask_as(&*filter, lines, exchange).await;
    outcome.reply.map_or(200, |reply| reply.status.as_u16())
}

#[tokio::test]
async fn groups_decide_and_headers_of_clients_do_not() {
    let allow = json!({"allow": ["admins"]});
    let deny = json!({"deny": ["admins"]});
    for (own, other, proved, allowed, denied) in [
        // Nobody has said whom the request comes from.
        (None, None, false, 401, 401),
        (None, None, true, 403, 403),
        // The consumer's own groups.
        (Some(&["admins"][..]), None, true, 200, 403),
        (Some(&["people"][..]), None, true, 403, 200),
        (Some(&["Admins"][..]), None, true, 403, 200),
        (Some(&[][..]), None, true, 403, 200),
        // Those of the anonymous consumer, or of whoever vouches for others.
        (Some(&[][..]), None, false, 401, 200),
        (Some(&["admins"][..]), None, false, 200, 403),
        (
            Some(&["people"][..]),
            Some(&["admins"][..]),
            false,
            200,
            403,
        ),
        (None, Some(&["admins"][..]), true, 200, 403),
        (None, Some(&["people"][..]), true, 403, 200),
        // A consumer's records go before what others vouch for.
        (Some(&["people"][..]), Some(&["admins"][..]), true, 403, 200),
    ] {
        let case = format!("{own:?} {other:?} {proved}");
        let of_allow = status_of(&allow, exchange(own, other, proved)).await;
        let of_deny = status_of(&deny, exchange(own, other, proved)).await;
        assert_eq!((of_allow, of_deny), (allowed, denied), "{case}");
    }
    let first = json!({"allow": ["admins"], "always_use_authenticated_groups": true});
    let both = exchange(Some(&["people"]), Some(&["admins"]), true);
    assert_eq!(status_of(&first, both).await, 200);
}

#[tokio::test]
async fn upstreams_learn_all_groups_unless_they_are_hidden() {
    let written = async |config: Value, known: Exchange| {
        let filter = filter(&KIND, &config, &parts_with(|_| {}));
        let outcome = ask_as(&*filter, "GET / HTTP/1.1", known).await;
        let mut head = outcome.head;
        filter.on_upstream_request(&outcome.exchange, &mut UpstreamRequest::new(&mut head));
        let text = |name| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        (text("x-consumer-groups"), text("x-authenticated-groups"))
    };
    let allow = json!({"allow": ["b"]});
    let own = || exchange(Some(&["a", "b"]), None, true);
    let all = Some("a, b".to_owned());
    assert_eq!(written(allow.clone(), own()).await, (all.clone(), None));
    let other = exchange(None, Some(&["a", "b"]), true);
    assert_eq!(written(allow, other).await, (None, all));
    let hidden = json!({"allow": ["b"], "hide_groups_header": true});
    assert_eq!(written(hidden, own()).await, (None, None));
}

#[test]
fn one_list_is_needed_and_only_one() {
    let refused = |config: Value| plugin(&KIND, &config).err().unwrap_or_default();
    // The imitated gateway has a rule for either, and tells both.
    let fields = "one of these fields must be non-empty: 'config.allow', 'config.deny'";
    let both = format!("exactly {fields}; at least {fields}");
    for config in [json!({}), json!({"allow": [], "deny": []})] {
        let told = refused(config);
        assert!(told.contains(&both), "{told}");
    }
    let told = refused(json!({"allow": ["a"], "deny": ["b"]}));
    assert!(told.contains("exactly one of these fields"), "{told}");
    // What else is wrong is told at once; a list that is wrong is not an empty one.
    let told = refused(json!({"hide_groups_header": 5}));
    assert!(
        told.contains("hide_groups_header: expected a boolean"),
        "{told}"
    );
    assert!(told.contains("at least one of these fields"), "{told}");
    let told = refused(json!({"allow": [5]}));
    assert!(!told.contains("of these fields"), "{told}");
}
