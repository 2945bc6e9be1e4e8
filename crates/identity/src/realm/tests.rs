use super::*;

#[test]
fn the_nearest_realm_above_comes_first() {
    assert_eq!(parents("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
    assert_eq!(parents("/a").collect::<Vec<_>>(), ["/"]);
    assert_eq!(parents("/").count(), 0);
}

fn live(config: Value, stored: &[(&str, Value)]) -> Live {
    let config = serde_json::from_value(config).expect("a configuration");
    let (mut live, _) = Live::compile(config).expect("it compiles");
    let realm = |(path, settings): &(&str, Value)| StoredRealm {
        path: (*path).to_owned(),
        declared: false,
        settings: settings.as_object().cloned().expect("an object"),
    };
    live.complete(stored.iter().map(realm).collect(), None);
    live
}

fn lifetime(live: &Live, path: &str) -> u32 {
    let realm = live.realm(path).expect("a realm");
    realm.settings.access_token_lifetime
}

#[test]
fn settings_in_the_store_are_in_force_below_them_also_in_declared_realms() {
    let stored = [
        ("/", serde_json::json!({"access_token_lifetime": 60})),
        ("/a", serde_json::json!({"code_lifetime": 30})),
    ];
    let declared = serde_json::json!({"realms": {
        "/a/b": {"users": [{"userName": "ann"}]},
        "/c": {"settings": {"access_token_lifetime": 90}},
    }});
    let live = live(declared, &stored);
    for (path, seconds) in [("/", 60), ("/a", 60), ("/a/b", 60), ("/c", 90)] {
        assert_eq!(lifetime(&live, path), seconds, "{path}");
    }
    let inner = live.realm("/a/b").expect("a realm");
    assert_eq!(inner.settings.code_lifetime, 30);
    assert!(inner.password("ann").is_some(), "its users are still there");
}

#[test]
fn what_the_file_declares_is_not_replaced_by_what_the_store_has() {
    let stored = [("/", serde_json::json!({"access_token_lifetime": 60}))];
    let live = live(serde_json::json!({"realms": {"/": {}}}), &stored);
    assert_eq!(lifetime(&live, "/"), 3600);
    assert!(live.is_shadowed(&live.stored[0]));
}

#[test]
fn a_setting_that_a_realm_below_can_not_live_with_is_refused() {
    let declared = serde_json::json!({"realms": {
        "/a": {"settings": {"second_factor": "required"}},
    }});
    let live = live(declared, &[("/", serde_json::json!({}))]);
    let own = serde_json::json!({"factors": {"kinds": []}});
    let own = own.as_object().cloned().expect("an object");
    let error = live.checked_settings("/", own).expect_err("refused");
    assert!(error.message.contains("realm /a"), "{}", error.message);
}

#[test]
fn every_path_form_names_its_realm() {
    for (part, realm) in [
        ("", "/"),
        ("realms/root", "/"),
        ("root", "/"),
        ("realms/root/realms/a", "/a"),
        ("realms/root/realms/a/realms/b", "/a/b"),
        ("realms/a", "/a"),
        ("a/b", "/a/b"),
    ] {
        assert_eq!(realm_of_path(part).as_deref(), Some(realm), "{part}");
    }
    for part in ["realms", "realms/root/a", "realms//realms/a", "a//b"] {
        assert_eq!(realm_of_path(part), None, "{part}");
    }
}

#[test]
fn the_issuer_is_one_string_a_realm() {
    assert_eq!(issuer("http://h", "/"), "http://h/oauth2");
    assert_eq!(
        issuer("http://h", "/a/b"),
        "http://h/oauth2/realms/root/realms/a/realms/b"
    );
}

#[test]
fn a_wrong_record_is_named_with_its_path() {
    let config: IdentityConfig = serde_json::from_value(serde_json::json!({
        "realms": {"/": {"users": [{"userName": "demo", "emails": [{"value": 5}]}]}}
    }))
    .expect("it has the right shape");
    let error = Live::compile(config).expect_err("an address that is a number");
    assert_eq!(
        error.to_string(),
        "identity.realms./.users[0].emails[0].value: expected a string"
    );
}

#[test]
fn a_base_url_that_cannot_be_an_issuer_is_refused() {
    for bad in [
        "localhost:8000",
        "ftp://x",
        "http://x/?a=b",
        "http://x/#a",
        "http://me@x",
    ] {
        assert!(base(bad).is_err(), "{bad}");
    }
    let good = base("https://x/am/").expect("a good one");
    assert_eq!((&*good.url, &*good.path), ("https://x/am", "/am"));
}
