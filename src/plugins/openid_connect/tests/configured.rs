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
fn what_has_no_effect_is_said_by_name() {
    for (name, value) in [
        ("cache_ttl_resurrect", json!(1)),
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
        let mut config = super::browsing::complete(config);
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
