//! Settings that are refused or said to do nothing, and the way to the provider.

use super::*;

#[test]
fn methods_that_prove_nothing_are_taken_where_nobody_minds() {
    let parts = World::new(json!({})).parts;
    for (validates, taken) in [(true, false), (false, true)] {
        let config = json!({"proof_of_possession_dpop": "strict", "client_id": ["a"],
            "auth_methods": ["bearer", "password"],
            "proof_of_possession_auth_methods_validation": validates});
        assert_eq!(filter(&parts, config).is_ok(), taken);
    }
}

#[test]
fn the_key_of_a_client_may_have_every_member_of_keys() {
    let parts = World::new(json!({})).parts;
    let complete = |member: &str, value: &Value| {
        let mut key = json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "1",
            "key_ops": ["sign"], "ext": true, "x5c": ["AAAA"], "x5t#S256": "AAAA",
            "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        key[member] = value.clone();
        let config = json!({"issuer": ISSUER, "client_id": ["a"], "client_jwk": [key],
            "client_auth": ["private_key_jwt"]});
        (KIND.schema)().complete(config.as_object().unwrap().clone())
    };
    for (member, value) in [
        ("oth", json!([{"r": "AA", "d": "AA", "t": "AA"}])),
        ("note", json!("text")),
    ] {
        let config = complete(member, &value).unwrap();
        assert_eq!(config["client_jwk"][0][member], value);
        assert!((KIND.build)(&config, &parts).is_ok(), "{member}");
    }
    for (member, value) in [
        ("key_ops", json!("sign")),
        ("ext", json!("true")),
        ("d", json!(["x"])),
        ("note", json!(1)),
    ] {
        assert!(complete(member, &value).is_err(), "{member}");
    }
}

#[test]
fn what_has_no_effect_is_said_by_name() {
    for (name, value) in [
        ("cache_ttl_resurrect", json!(1)),
        ("cluster_cache_items", json!(["tokens"])),
        ("cluster_cache_redis", json!({"host": "r"})),
        ("cluster_cache_strategy", json!("redis")),
        ("session_compressor", json!("zlib")),
        ("session_cookie_maxsize", json!(1)),
        ("session_cookie_renew", json!(1)),
        ("session_store_metadata", json!(true)),
        ("session_strategy", json!("regenerate")),
    ] {
        let mut config = json!({"auth_methods": ["bearer"]});
        config[name] = value;
        let warnings = World::new(config).filter.warnings();
        assert!(
            warnings.iter().any(|said| said.contains(name)),
            "{name}: {warnings:?}"
        );
    }
}

/// Settings that change nothing, or nothing of what they are set beside.
fn idle() -> Vec<(&'static str, Value)> {
    let bearer = |more: Value| {
        let mut config = json!({"auth_methods": ["bearer"]});
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        config
    };
    let response = json!({"login_action": "response", "login_tokens": ["introspection"],
        "client_id": ["a"], "client_secret": ["b"]});
    let mut all = vec![
        (
            "cache_tokens_salt",
            bearer(json!({"cache_tokens_salt": "x"})),
        ),
        (
            "token_cache_key_include_scope",
            bearer(json!({"token_cache_key_include_scope": true})),
        ),
        ("reverify", bearer(json!({"reverify": true}))),
        (
            "session_hash_storage_key",
            bearer(json!({"session_hash_storage_key": true})),
        ),
        (
            "session_enforce_same_subject",
            bearer(json!({"session_enforce_same_subject": true})),
        ),
        (
            "session_redis_cluster_max_redirections",
            bearer(json!({"session_redis_cluster_max_redirections": 5})),
        ),
        (
            "session_redis_server_name",
            bearer(json!({"session_redis_server_name": "s"})),
        ),
        ("http_version", bearer(json!({"http_version": 1.0}))),
        ("cache_ttl_min", bearer(json!({"cache_ttl_min": 60}))),
        (
            "scripts_origins",
            bearer(json!({"scripts_origins": ["https://a.test"]})),
        ),
        ("login_tokens", response),
    ];
    for (name, value) in [
        ("keepalive_pool_size", json!(1)),
        ("keepalive_backlog", json!(1)),
        ("connection_is_proxied", json!(true)),
        ("cluster_max_redirections", json!(1)),
        ("server_name", json!("s")),
        ("sentinel_master", json!("m")),
        ("sentinel_role", json!("master")),
        ("sentinel_username", json!("u")),
        ("sentinel_password", json!("p")),
    ] {
        all.push((name, bearer(json!({"redis": {name: value}}))));
    }
    for method in ["introspection", "userinfo", "kong_oauth2"] {
        let config = bearer(json!({"ignore_signature": [method]}));
        all.push(("ignore_signature", config));
    }
    for name in [
        "upstream_introspection_header",
        "upstream_introspection_jwt_header",
        "downstream_introspection_header",
        "downstream_introspection_jwt_header",
    ] {
        for methods in [
            json!(["bearer"]),
            json!(["bearer", "introspection"]),
            json!(["session", "introspection"]),
        ] {
            let mut config = json!({"auth_methods": methods, "client_id": ["a"]});
            config[name] = json!("x-said");
            all.push((name, config));
        }
    }
    all
}

#[test]
fn what_changes_nothing_is_said_by_name_with_a_reason_and_in_the_manual() {
    let manual = include_str!("../../../../docs/openid-connect.md");
    let (_, listed) = manual
        .split_once("## Fields that are taken and have no effect")
        .unwrap();
    for (name, config) in idle() {
        let warnings = World::new(config.clone()).filter.warnings();
        let mut said = warnings.iter().filter(|said| said.contains(name));
        let reason = said.find(|said| said.contains("without effect "));
        assert!(reason.is_some(), "{config}: {warnings:?}");
        assert!(listed.contains(&format!("{name}`")), "{name}");
    }
}

#[test]
fn what_has_its_effect_is_not_warned_of() {
    for config in [
        json!({"auth_methods": ["bearer"], "cache_ttl_min": 60, "cache_ttl": 30}),
        json!({"auth_methods": ["bearer"], "http_version": 2}),
        json!({"auth_methods": ["bearer"], "redis": {"keepalive_pool_size": 256,
            "cluster_max_redirections": 5, "connection_is_proxied": false,
            "sentinel_role": null}}),
        json!({"auth_methods": ["introspection"], "client_id": ["a"],
            "upstream_introspection_header": "x-said"}),
        json!({"auth_methods": ["bearer"], "login_action": "response",
            "login_methods": ["bearer"], "login_tokens": ["introspection"]}),
    ] {
        let warnings = World::new(config.clone()).filter.warnings();
        assert!(warnings.is_empty(), "{config}: {warnings:?}");
    }
}

#[test]
fn a_secret_that_can_be_guessed_is_warned_of() {
    let long = "0123456789abcdef0123456789abcdef";
    let older = format!("{long}\nx");
    for (secret, warned) in [("x", true), (&older, true), (long, false)] {
        for methods in [json!(["session"]), json!(["authorization_code"])] {
            let config = json!({"session_secret": secret, "auth_methods": methods,
                "client_id": ["a"], "client_secret": ["b"]});
            let warnings = World::new(config).filter.warnings();
            let said = warnings
                .iter()
                .any(|said| said.starts_with("session_secret is shorter"));
            assert_eq!(said, warned, "{secret}: {warnings:?}");
        }
    }
}

#[tokio::test]
async fn what_is_said_of_a_storage_is_said_of_sessions_without_logins() {
    let world = World::new(json!({"auth_methods": ["session", "bearer"],
        "session_storage": "redis", "redis": {"host": "h", "sentinel_master": "m"}}));
    let warnings = world.filter.warnings();
    let said = warnings
        .iter()
        .any(|said| said.contains("redis.sentinel_master"));
    assert!(said, "{warnings:?}");
}

#[test]
fn a_redis_that_can_not_be_used_is_refused_by_name() {
    let parts = World::new(json!({})).parts;
    let nodes = json!([{"host": "h", "port": 1}]);
    for config in [
        json!({"redis": {"sentinel_nodes": nodes, "sentinel_master": "m"}}),
        json!({"redis": {"cluster_nodes": nodes}}),
        json!({"session_redis_cluster_nodes": nodes}),
        json!({"session_redis_ssl": true, "session_redis_socket": "/tmp/x"}),
    ] {
        let mut config = super::browser::complete(config);
        config["session_storage"] = json!("redis");
        let error = filter(&parts, config.clone()).err().expect("refused");
        assert!(error.field.starts_with("redis"), "{config}: {error}");
    }
}

/// A proxy that notes the head of each request and serves none.
async fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let read = tokio::io::AsyncReadExt::read(&mut socket, &mut head).await;
            let head = String::from_utf8_lossy(&head[..read.unwrap_or(0)]).into_owned();
            noted.lock().unwrap().push(head.to_ascii_lowercase());
            let _ = socket
                .write_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
    });
    (address, heads)
}

#[tokio::test]
async fn proxies_stand_between_and_are_told_who_asks() {
    let (address, heads) = proxy().await;
    for (scheme, line) in [
        (
            "http",
            "get http://far.test/.well-known/openid-configuration ",
        ),
        ("https", "connect far.test:443 "),
    ] {
        let mut config = json!({"issuer": format!("{scheme}://far.test"), "timeout": 2000,
            "auth_methods": ["bearer"]});
        config[format!("{scheme}_proxy")] = json!(address);
        config[format!("{scheme}_proxy_authorization")] = json!("Basic c2VjcmV0");
        let world = World::new(config.clone());
        heads.lock().unwrap().clear();
        world.ask_bearer(&world.token(json!({}))).await;
        let seen = heads.lock().unwrap().clone();
        assert!(seen[0].starts_with(line), "{seen:?}");
        assert!(
            seen[0].contains("proxy-authorization: basic c2vjcmv0\r\n"),
            "{seen:?}"
        );
        // Some are reached without.
        config["no_proxy"] = json!("10.0.0.0/8,far.test");
        let world = World::new(config);
        heads.lock().unwrap().clear();
        world.ask_bearer(&world.token(json!({}))).await;
        assert!(heads.lock().unwrap().is_empty());
    }
}

#[test]
fn logins_that_would_never_end_are_warned_of() {
    let with = |name: &str, value: Value| {
        let mut config = json!({"client_id": ["a"], "redirect_uri": ["http://api.test/cb"]});
        config[name] = value;
        config
    };
    for (config, warned) in [
        (with("auth_methods", json!(["authorization_code"])), true),
        (with("disable_session", json!(["authorization_code"])), true),
        (with("disable_session", json!(["password"])), false),
        (with("login_action", json!("response")), false),
    ] {
        let warnings = World::new(config.clone()).filter.warnings();
        let said = warnings.iter().any(|said| said.contains("to the next one"));
        assert_eq!(said, warned, "{config}: {warnings:?}");
    }
}
