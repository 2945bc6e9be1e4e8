use serde_json::{Map, Value, json};

use super::*;
use doorward_core::model::schema::{Schema, Source, Violations};

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn made(schema: &Schema, input: Value) -> Result<Map<String, Value>, Violations> {
    schema.complete(schema.read(map(input), Source::Json)?)
}

fn refused(schema: &Schema, input: Value) -> String {
    made(schema, input).expect_err("is refused").message()
}

fn bad_service(field: &str, value: Value) -> String {
    let mut input = map(json!({"host":"a"}));
    input.insert(field.to_owned(), value);
    refused(service(), Value::Object(input))
}

fn bad_route(field: &str, value: Value) -> String {
    let mut input = map(json!({"methods":["GET"]}));
    input.insert(field.to_owned(), value);
    refused(route(), Value::Object(input))
}

#[test]
fn a_service_has_the_defaults_of_the_interface() {
    assert_eq!(
        Value::Object(made(service(), json!({"host":"example.com"})).expect("is fine")),
        json!({
            "id":null,"created_at":null,"updated_at":null,"tags":null,"name":null,
            "enabled":true,"retries":5,"protocol":"http","host":"example.com","port":80,
            "path":null,"connect_timeout":60000,"write_timeout":60000,"read_timeout":60000,
            "client_certificate":null,"tls_verify":null,"tls_verify_depth":null,
            "ca_certificates":null
        })
    );
}

#[test]
fn https_alone_keeps_port_80() {
    let record = made(service(), json!({"host":"a","protocol":"https"})).expect("is fine");
    assert_eq!(record["port"], 80);
}

#[test]
fn url_stands_for_four_fields() {
    let parts = |url: &str| {
        let record = made(service(), json!({"url": url})).expect("is fine");
        json!([
            record["protocol"],
            record["host"],
            record["port"],
            record["path"]
        ])
    };
    assert_eq!(parts("http://a.b/c"), json!(["http", "a.b", 80, "/c"]));
    assert_eq!(parts("https://a.b"), json!(["https", "a.b", 443, null]));
    assert_eq!(parts("HTTP://a:8000/"), json!(["http", "a", 8000, "/"]));
    assert_eq!(
        parts("http://[::1]:81/x"),
        json!(["http", "[::1]", 81, "/x"])
    );
    assert_eq!(
        parts("internal://identity"),
        json!(["internal", "identity", 80, null])
    );
}

#[test]
fn a_url_that_is_none_is_refused() {
    let message = |url: Value| refused(service(), json!({"url": url}));
    let no_scheme =
        "2 schema violations (host: required field missing; path: should start with: /)";
    assert_eq!(message(json!("nonsense")), no_scheme);
    assert_eq!(message(json!("invalid url")), no_scheme);
    let no_host = "schema violation (host: required field missing)";
    assert_eq!(message(json!("/a")), no_host);
    assert_eq!(message(json!("")), "schema violation (url: invalid url)");
    assert_eq!(
        message(json!("http:///x")),
        "schema violation (url: missing host in url)"
    );
    assert_eq!(
        message(json!("http://u:p@a")),
        "schema violation (url: must not have credentials)"
    );
    assert_eq!(
        message(json!(5)),
        "schema violation (url: expected a string)"
    );
    assert_eq!(
        message(json!("ftp://a")),
        "schema violation (protocol: expected one of: grpc, grpcs, http, https, internal)"
    );
}

#[test]
fn fields_of_a_service_are_checked() {
    for (field, value, message) in [
        ("port", json!(65536), "value should be between 0 and 65535"),
        ("port", json!("80"), "expected an integer"),
        ("retries", json!(-1), "value should be between 0 and 32767"),
        (
            "read_timeout",
            json!(0),
            "value should be between 1 and 2147483646",
        ),
        (
            "protocol",
            json!("ftp"),
            "expected one of: grpc, grpcs, http, https, internal",
        ),
        ("path", json!("x"), "should start with: /"),
        ("path", json!("/a//b"), "must not have empty segments"),
        ("path", json!("/a%zz"), "invalid url-encoded value: '%zz'"),
        ("host", json!("a:80"), "must not have a port"),
        ("host", json!("a b"), "invalid value: a b"),
        ("host", json!(""), "length must be at least 1"),
        ("host", json!("1.2.3.400"), "invalid value: 1.2.3.400"),
        ("name", json!(""), "length must be at least 1"),
        ("id", json!("x"), "expected a valid UUID"),
        ("enabled", json!("true"), "expected a boolean"),
        ("bogus", json!(1), "unknown field"),
    ] {
        assert_eq!(
            bad_service(field, value),
            format!("schema violation ({field}: {message})")
        );
    }
    assert_eq!(
        bad_service("tags", json!(["a,b"])),
        "schema violation (tags.1: invalid tag 'a,b': expected printable ascii (except `,` and \
         `/`) or valid utf-8 sequences)"
    );
    assert_eq!(
        bad_service("name", json!("a b")),
        "schema violation (name: invalid value 'a b': the only accepted ascii characters are \
         alphanumerics or ., -, _, and ~)"
    );
}

#[test]
fn a_service_needs_a_host() {
    assert_eq!(
        refused(service(), json!({})),
        "schema violation (host: required field missing)"
    );
}

#[test]
fn tls_fields_need_https() {
    assert_eq!(
        bad_service("tls_verify", json!(true)),
        "2 schema violations (failed conditional validation given value of field 'protocol'; \
         tls_verify: value must be null)"
    );
    made(
        service(),
        json!({"host":"a","protocol":"https","tls_verify":false}),
    )
    .expect("is fine");
}

#[test]
fn grpc_services_have_no_path() {
    let grpc = |path| json!({"host":"a","protocol":"grpc","path":path});
    assert_eq!(
        refused(service(), grpc(json!("/x"))),
        "2 schema violations (failed conditional validation given value of field 'protocol'; \
         path: value must be null)"
    );
    made(service(), grpc(json!(null))).expect("is fine");
}

#[test]
fn grpc_routes_keep_their_paths() {
    let grpc = |more: Value| {
        let mut route = map(json!({"protocols":["grpc"],"paths":["/a"],"strip_path":false}));
        route.extend(map(more));
        Value::Object(route)
    };
    made(route(), grpc(json!({}))).expect("is fine");
    assert_eq!(
        refused(route(), grpc(json!({"strip_path":true}))),
        "schema violation (strip_path: cannot set 'strip_path' when 'protocols' is 'grpc' or \
         'grpcs')"
    );
    assert_eq!(
        refused(
            route(),
            grpc(json!({"methods":["GET"],"sources":[{"port":1}]}))
        ),
        "2 schema violations (methods: cannot set 'methods' when 'protocols' is 'grpc' or 'grpcs'; \
         sources: cannot set 'sources' when 'protocols' is 'grpc' or 'grpcs')"
    );
    assert_eq!(
        refused(route(), grpc(json!({"protocols":["grpc","http"]}))),
        "schema violation (protocols: these sets are mutually exclusive: ('http', 'https'), \
         ('grpc', 'grpcs'))"
    );
    assert_eq!(
        refused(route(), grpc(json!({"protocols":["grpcs"],"paths":null}))),
        "schema violation (must set one of 'hosts', 'headers', 'paths', 'snis' when 'protocols' \
         is 'grpcs')"
    );
}

#[test]
fn streams_are_refused_with_what_is_allowed() {
    for protocol in ["tcp", "tls", "udp", "tls_passthrough"] {
        let stream = json!({"protocols": [protocol], "snis": ["a.b"], "sources": [{"port": 1}]});
        assert_eq!(
            refused(route(), stream),
            "2 schema violations (streams of TCP, TLS and UDP are not proxied here, and TLS is \
             not passed through by its server name; protocols.1: expected one of: grpc, grpcs, \
             http, https)"
        );
        assert_eq!(
            refused(service(), json!({"host": "a", "protocol": protocol})),
            "2 schema violations (streams of TCP, TLS and UDP are not proxied here; protocol: \
             expected one of: grpc, grpcs, http, https, internal)"
        );
    }
    assert_eq!(
        bad_route("sources", json!([{"ip":"10.0.0.0/8"}])),
        "schema violation (sources: cannot set 'sources' when 'protocols' is 'http' or 'https')"
    );
}

#[test]
fn a_consumer_has_some_name() {
    let id = made(consumer(), json!({"custom_id":"7"})).expect("is fine");
    assert_eq!(id["username"], Value::Null);
    assert_eq!(
        refused(consumer(), json!({})),
        "schema violation (at least one of these fields must be non-empty: 'custom_id', \
         'username')"
    );
    assert_eq!(
        refused(consumer(), json!({"username":""})),
        "schema violation (username: length must be at least 1)"
    );
}

#[test]
fn a_route_has_the_defaults_of_the_interface() {
    assert_eq!(
        Value::Object(made(route(), json!({"hosts":["a.b"]})).expect("is fine")),
        json!({
            "id":null,"created_at":null,"updated_at":null,"tags":null,"name":null,
            "protocols":["http","https"],"methods":null,"hosts":["a.b"],"paths":null,
            "headers":null,"snis":null,"sources":null,"destinations":null,
            "https_redirect_status_code":426,"regex_priority":0,"strip_path":true,
            "preserve_host":false,"request_buffering":true,"response_buffering":true,
            "path_handling":"v0","service":null
        })
    );
}

#[test]
fn a_route_must_match_something() {
    assert_eq!(
        refused(route(), json!({})),
        "schema violation (must set one of 'methods', 'hosts', 'headers', 'paths', 'snis' when \
         'protocols' is 'https')"
    );
    assert_eq!(
        refused(route(), json!({"protocols":["http"],"hosts":[]})),
        "schema violation (must set one of 'methods', 'hosts', 'headers', 'paths' when \
         'protocols' is 'http')"
    );
    made(route(), json!({"protocols":["https"],"snis":["a.b"]})).expect("is fine");
}

#[test]
fn server_names_need_https() {
    assert_eq!(
        refused(
            route(),
            json!({"protocols":["http"],"hosts":["a"],"snis":["a"]})
        ),
        "2 schema violations ('snis' can only be set when 'protocols' is 'grpcs', 'https', 'tls' \
         or 'tls_passthrough'; snis: length must be 0)"
    );
}

#[test]
fn hosts_may_have_one_wildcard_label_and_a_port() {
    for host in [
        "a.b", "*.b.c", "a.*", "a.b:8000", "1.2.3.4", "[::1]:80", "xn--a.b", "a_b.c",
    ] {
        made(route(), json!({"hosts":[host]})).expect(host);
    }
    for (host, message) in [
        (
            "a*.b",
            "invalid wildcard: must be placed at leftmost or rightmost label",
        ),
        (
            "a.*.b",
            "invalid wildcard: must be placed at leftmost or rightmost label",
        ),
        (
            "*",
            "invalid wildcard: must be placed at leftmost or rightmost label",
        ),
        ("*.a.*", "invalid wildcard: must have at most one wildcard"),
        ("a b", "invalid value: a b"),
        ("a:0", "invalid value: a:0"),
        ("http://a", "invalid value: http://a"),
        ("a/b", "invalid value: a/b"),
        ("", "length must be at least 1"),
    ] {
        assert_eq!(
            bad_route("hosts", json!([host])),
            format!("schema violation (hosts.1: {message})")
        );
    }
}

#[test]
fn paths_are_normal_prefixes_or_expressions() {
    for path in [
        "/",
        "/a",
        "/a/",
        "~/a/(?<id>\\d+)$",
        "/a%2Fb",
        "/~x",
        "/a b",
        "/日本",
        "/a|b",
        "/a[1]",
    ] {
        made(route(), json!({"paths":[path]})).expect(path);
    }
    for (path, message) in [
        ("a", "should start with: / (fixed path) or ~/ (regex path)"),
        ("~a", "should start with: / (fixed path) or ~/ (regex path)"),
        ("/a//b", "must not have empty segments"),
        ("/a/../b", "non-normalized path, consider use '/b' instead"),
        ("/%61", "non-normalized path, consider use '/a' instead"),
        ("/a%2", "invalid url-encoded value: '%2'"),
        (
            "/[a]?b",
            "invalid path: '/[a]?b' (characters outside of the reserved list of RFC 3986 found)",
        ),
    ] {
        assert_eq!(
            bad_route("paths", json!([path])),
            format!("schema violation (paths.1: {message})")
        );
    }
    assert!(bad_route("paths", json!(["/ok", "~/a("])).contains("paths.2: invalid regex: '/a('"));
}

#[test]
fn a_path_expression_that_would_need_too_much_memory_is_refused() {
    assert!(bad_route("paths", json!(["~/(a{1000}){1000}"])).contains("invalid regex"));
}

#[test]
fn fields_of_a_route_are_checked() {
    for (field, value, message) in [
        ("methods", json!(["get"]), "methods.1: invalid value: get"),
        ("hosts", json!("a"), "hosts: expected an array"),
        (
            "protocols",
            json!([]),
            "protocols: length must be at least 1",
        ),
        (
            "protocols",
            json!(["ftp"]),
            "protocols.1: expected one of: grpc, grpcs, http, https",
        ),
        (
            "path_handling",
            json!("v2"),
            "path_handling: expected one of: v0, v1",
        ),
        (
            "https_redirect_status_code",
            json!(200),
            "https_redirect_status_code: expected one of: 426, 301, 302, 307, 308",
        ),
        (
            "headers",
            json!({"Host":["a"]}),
            "headers: cannot contain 'host' header, which must be specified in the 'hosts' attribute",
        ),
        (
            "sources",
            json!([{"ip":"1.2.3.4"}]),
            "sources: cannot set 'sources' when 'protocols' is 'http' or 'https'",
        ),
        ("service", json!("x"), "service: expected a record"),
    ] {
        assert_eq!(
            bad_route(field, value),
            format!("schema violation ({message})")
        );
    }
    assert!(bad_route("headers", json!({"a b":["c"]})).contains("bad header name 'a b'"));
    assert!(bad_route("headers", json!({"x":["~*("]})).contains("headers.x: invalid regex"));
}

#[test]
fn a_plugin_has_the_defaults_of_the_imitated_gateway() {
    let schema = plugin_of(&Schema::default());
    assert_eq!(
        Value::Object(made(&schema, json!({"name":"x"})).expect("is fine")),
        json!({
            "id":null,"created_at":null,"updated_at":null,"tags":null,"name":"x",
            "instance_name":null,"service":null,"route":null,"consumer":null,
            "consumer_group":null,"enabled":true,
            "protocols":["grpc","grpcs","http","https"],"config":{}
        })
    );
}

#[test]
fn flat_references_of_a_plugin_nest_unless_nested_ones_are_there() {
    let schema = plugin_of(&Schema::default());
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let record = made(
        &schema,
        json!({"name":"x","service_id": id,"route_id":null}),
    );
    assert_eq!(record.expect("is fine")["service"], json!({"id": id}));
    let record = made(
        &schema,
        json!({"name":"x","service_id":"zz","service":{"id": id}}),
    );
    assert_eq!(record.expect("is fine")["service"], json!({"id": id}));
}

#[test]
fn a_plugin_of_no_kind_is_refused() {
    let message = |name: Option<&Value>| plugin(name).expect_err("is refused").message();
    assert_eq!(
        message(Some(&json!("nope"))),
        "schema violation (name: plugin 'nope' not enabled; add it to the 'plugins' \
         configuration property)"
    );
    assert_eq!(
        message(None),
        "schema violation (name: required field missing)"
    );
    assert_eq!(
        message(Some(&json!(5))),
        "schema violation (name: expected a string)"
    );
}

#[test]
fn the_openid_connect_plugin_takes_the_legacy_form() {
    let schema = plugin(Some(&json!("openid-connect"))).expect("exists");
    let input = map(json!({
        "name":"openid-connect","config":{
            "client_id":"orders","client_secret":"s3cret","ssl_verify":"false",
            "issuer":"http://localhost:8000/oauth2","scopes":"openid,profile"
        }
    }));
    let read = schema.read(input, Source::Form).expect("is read");
    let record = schema.complete(read).expect("is fine");
    let config = &record["config"];
    assert_eq!(config["client_id"], json!(["orders"]));
    assert_eq!(config["client_secret"], json!(["s3cret"]));
    assert_eq!(config["ssl_verify"], json!(false));
    assert_eq!(config["scopes"], json!(["openid", "profile"]));
    assert_eq!(config["cache_ttl"], json!(3600));
}
