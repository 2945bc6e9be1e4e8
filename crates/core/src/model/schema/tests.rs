use serde_json::{Map, Value, json};

use super::*;

fn lowercase(text: &str) -> Result<(), String> {
    if text.chars().all(char::is_lowercase) {
        return Ok(());
    }
    Err(format!("invalid value: {text}"))
}

fn rate() -> Schema {
    Schema::new(vec![
        Field::new("count", Type::Integer(1, 100)).required(),
        Field::new("unit", Type::word(&["s", "m"])).default("s"),
    ])
}

fn key() -> Type {
    let known = Schema::new(vec![
        Field::new("uses", Type::array(Type::text())),
        Field::new("open", Type::Boolean),
    ]);
    Type::Members(known, Box::new(Type::text()))
}

#[test]
fn members_of_a_map_may_have_types_of_their_own() {
    let good = map(json!({"uses": ["sign"], "open": true, "other": "text"}));
    let schema = Schema::new(vec![Field::new("key", key())]);
    let record = map(json!({ "key": good }));
    assert!(schema.validate(&record).is_empty());
    for (member, value) in [
        ("uses", json!("x")),
        ("open", json!("x")),
        ("other", json!(1)),
    ] {
        let mut key = Map::new();
        key.insert(member.to_owned(), value);
        let record = map(json!({ "key": key }));
        assert!(!schema.validate(&record).is_empty(), "{member}");
    }
    let form = map(json!({"key": {"open": "true", "other": "1"}}));
    let read = schema.read(form, Source::Form).expect("read");
    assert_eq!(read["key"], json!({"open": true, "other": "1"}));
}

fn config() -> Schema {
    Schema::new(vec![
        Field::new("scopes", Type::array(Type::text())).default(json!(["openid"])),
        Field::new("methods", Type::set(Type::word(&["GET", "POST"]))),
        Field::new("verify", Type::Boolean).default(true),
        Field::new("ratio", Type::Number),
        Field::new("rate", Type::Record(rate())),
        Field::new(
            "redis",
            Type::Record(Schema::new(vec![
                Field::new("port", Type::Integer(0, 65_535)).default(6379),
                Field::new("host", Type::text()),
            ])),
        )
        .required(),
        Field::new("nodes", Type::array(Type::Record(rate()))),
        Field::new("same_site", Type::text())
            .default("Lax")
            .aliases(&["samesite"]),
        Field::new("any", Type::Any),
    ])
}

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("name", Type::checked(lowercase)).required(),
        Field::new("port", Type::Integer(0, 65_535))
            .default(80)
            .required(),
        Field::new("code", Type::Choice(&[301, 302])).default(301),
        Field::new("hosts", Type::array(Type::text())).len_min(1),
        Field::new("headers", Type::Map(Box::new(Type::array(Type::text())))),
        Field::new("service", Type::Foreign("services")),
        Field::new("config", Type::Record(config())).required(),
    ])
    .check(|record, violations| {
        if record.get("port").is_some_and(|port| *port == 13) {
            violations.put_entity("no luck");
        }
    })
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn read(value: Value, source: Source) -> Value {
    Value::Object(schema().read(map(value), source).expect("is read"))
}

fn wrong(value: Value) -> Violations {
    schema().complete(map(value)).expect_err("is refused")
}

#[test]
fn form_texts_take_the_type_of_their_field() {
    assert_eq!(
        read(
            json!({"name":"a","port":"8080","code":"302","config":{"verify":"false","ratio":"1.5","any":"7"}}),
            Source::Form
        ),
        json!({"name":"a","port":8080,"code":302,"config":{"verify":false,"ratio":1.5,"any":7}})
    );
}

#[test]
fn form_texts_of_the_wrong_type_stay_texts() {
    assert_eq!(
        read(json!({"port":"x","config":{"verify":"yes"}}), Source::Form),
        json!({"port":"x","config":{"verify":"yes"}})
    );
}

#[test]
fn an_empty_form_value_is_null() {
    assert_eq!(
        read(
            json!({"hosts":"","port":"","config":{"scopes":""}}),
            Source::Form
        ),
        json!({"hosts":null,"port":null,"config":{"scopes":null}})
    );
}

#[test]
fn one_form_value_for_a_list_is_wrapped_and_commas_kept() {
    assert_eq!(
        read(json!({"hosts":"a,b"}), Source::Form),
        json!({"hosts":["a,b"]})
    );
}

#[test]
fn one_text_for_a_config_list_is_split_on_commas() {
    let expected = json!({"config":{"scopes":["openid","pro,file","x"]}});
    for source in [Source::Form, Source::Json, Source::File] {
        assert_eq!(
            read(
                json!({"config":{"scopes":r"openid, pro\,file ,,x"}}),
                source
            ),
            expected
        );
    }
    assert_eq!(
        read(json!({"config":{"scopes":["a,b"]}}), Source::Form),
        json!({"config":{"scopes":["a,b"]}})
    );
}

#[test]
fn commas_in_brackets_part_no_text_whose_parts_are_no_elements() {
    let pair = Type::checked(|text| match text.split_once(':') {
        Some((_, value)) if value.matches('(').count() == value.matches(')').count() => Ok(()),
        _ => Err("invalid value".to_owned()),
    });
    let schema = Schema::new(vec![Field::new(
        "config",
        Type::Record(Schema::new(vec![Field::new("headers", Type::array(pair))])),
    )]);
    for (text, expected) in [
        ("a:1,b:2", json!(["a:1", "b:2"])),
        ("a:1\\,2,b:3", json!(["a:1,2", "b:3"])),
        ("x:$(f(a, 1))", json!(["x:$(f(a, 1))"])),
        (
            "a:1, x:$(f(a, 1)),b:2",
            json!(["a:1", "x:$(f(a, 1))", "b:2"]),
        ),
        // What is no element is told of.
        ("a,b", json!(["a", "b"])),
        ("a:1,b", json!(["a:1", "b"])),
        ("a:1,b:(,c", json!(["a:1", "b:(", "c"])),
    ] {
        let input = map(json!({"config": {"headers": text}}));
        let read = schema.read(input, Source::Form).expect("read");
        assert_eq!(read["config"]["headers"], expected, "{text}");
    }
}

#[test]
fn json_texts_are_not_typed() {
    let input = json!({"port":"80","hosts":"a","config":{"verify":"true"}});
    assert_eq!(read(input.clone(), Source::Json), input);
}

#[test]
fn texts_of_files_are_typed_and_references_may_be_names() {
    assert_eq!(
        read(json!({"port":"81","service":"orders"}), Source::File),
        json!({"port":81,"service":{"name":"orders"}})
    );
    let id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    assert_eq!(
        read(json!({"service": id}), Source::File),
        json!({"service":{"id": id}})
    );
}

#[test]
fn dotted_keys_open_into_records_maps_and_references() {
    assert_eq!(
        read(
            json!({
                "config.rate.count": 5,
                "config.scopes": "a",
                "headers.x.y": ["1"],
                "service.name": "s",
                "name.x": 1
            }),
            Source::Json
        ),
        json!({
            "config": {"rate":{"count":5},"scopes":["a"]},
            "headers": {"x.y":["1"]},
            "service": {"name":"s"},
            "name.x": 1
        })
    );
    assert_eq!(
        read(
            json!({"config":{"scopes":["b"]},"config.verify":false}),
            Source::Json
        ),
        json!({"config":{"scopes":["b"],"verify":false}})
    );
}

#[test]
fn a_dotted_key_that_contradicts_a_sent_whole_is_unknown() {
    let typed = read(
        json!({"name":"a","config":5,"config.verify":true}),
        Source::Json,
    );
    assert_eq!(
        wrong(typed).message(),
        "2 schema violations (config: expected a record; config.verify: unknown field)"
    );
}

#[test]
fn aliases_are_read_and_the_own_name_wins() {
    assert_eq!(
        read(json!({"config":{"samesite":"None"}}), Source::Json),
        json!({"config":{"same_site":"None"}})
    );
    assert_eq!(
        read(
            json!({"config":{"samesite":"None","same_site":"Strict"}}),
            Source::Json
        ),
        json!({"config":{"same_site":"Strict"}})
    );
}

#[test]
fn sets_lose_repetitions_and_keep_their_order() {
    assert_eq!(
        read(
            json!({"config":{"methods":["POST","GET","POST"]}}),
            Source::Json
        ),
        json!({"config":{"methods":["POST","GET"]}})
    );
}

#[test]
fn whole_floats_are_integers() {
    assert_eq!(read(json!({"port":80.0}), Source::Json), json!({"port":80}));
    assert_eq!(
        read(json!({"port":80.5}), Source::Json),
        json!({"port":80.5})
    );
}

#[test]
fn references_to_nothing_are_null() {
    assert_eq!(
        read(json!({"service":{"id":""}}), Source::Form),
        json!({"service":null})
    );
    assert_eq!(
        read(json!({"service":{"id":null}}), Source::Json),
        json!({"service":null})
    );
}

#[test]
fn absent_fields_get_defaults_and_required_records_open() {
    let record = schema()
        .complete(map(json!({"name":"a"})))
        .expect("is fine");
    assert_eq!(
        Value::Object(record),
        json!({
            "name":"a","port":80,"code":301,"hosts":null,"headers":null,"service":null,
            "config":{
                "scopes":["openid"],"methods":null,"verify":true,"ratio":null,"rate":null,
                "redis":{"port":6379,"host":null},"nodes":null,"same_site":"Lax","any":null
            }
        })
    );
}

#[test]
fn defaults_reach_into_given_records_and_lists_of_records() {
    let record = schema()
        .complete(map(
            json!({"name":"a","config":{"rate":{"count":1},"nodes":[{"count":2}]}}),
        ))
        .expect("is fine");
    assert_eq!(record["config"]["rate"], json!({"count":1,"unit":"s"}));
    assert_eq!(record["config"]["nodes"], json!([{"count":2,"unit":"s"}]));
}

#[test]
fn null_is_kept_and_not_replaced_by_the_default() {
    let record = schema()
        .complete(map(
            json!({"name":"a","code":null,"config":{"scopes":null}}),
        ))
        .expect("is fine");
    assert_eq!(record["code"], Value::Null);
    assert_eq!(record["config"]["scopes"], Value::Null);
    assert_eq!(
        wrong(json!({"name":"a","port":null})).message(),
        "schema violation (port: required field missing)"
    );
}

#[test]
fn every_violation_is_told_at_once() {
    let violations = wrong(json!({
        "port": 70000, "code": 303, "hosts": [1, "a", null], "bogus": 1,
        "headers": {"x": "y"}, "service": {"id": "z", "foo": 1},
        "config": {"verify": 1, "rate": {"count": 0, "unit": "h"}, "nodes": [{}], "methods": "x"}
    }));
    assert_eq!(
        Value::Object(violations.to_json()),
        json!({
            "bogus": "unknown field",
            "code": "expected one of: 301, 302",
            "config": {
                "methods": "expected a set",
                "nodes": [{"count": "required field missing"}],
                "rate": {"count": "value should be between 1 and 100", "unit": "expected one of: s, m"},
                "verify": "expected a boolean"
            },
            "headers": "expected an array",
            "hosts": ["expected a string", null, "expected a string"],
            "name": "required field missing",
            "port": "value should be between 0 and 65535",
            "service": {"foo": "not a primary key", "id": "expected a valid UUID"}
        })
    );
    assert_eq!(
        violations.message(),
        "14 schema violations (bogus: unknown field; code: expected one of: 301, 302; \
         config.methods: expected a set; config.nodes.1.count: required field missing; \
         config.rate.count: value should be between 1 and 100; \
         config.rate.unit: expected one of: s, m; config.verify: expected a boolean; \
         headers: expected an array; hosts.1: expected a string; hosts.3: expected a string; \
         name: required field missing; port: value should be between 0 and 65535; \
         service.foo: not a primary key; service.id: expected a valid UUID)"
    );
}

#[test]
fn checks_of_a_text_give_their_own_message() {
    assert_eq!(
        wrong(json!({"name":"A"})).message(),
        "schema violation (name: invalid value: A)"
    );
}

#[test]
fn findings_on_the_record_come_first_and_under_entity() {
    let violations = wrong(json!({"port":13}));
    assert_eq!(
        violations.message(),
        "2 schema violations (no luck; name: required field missing)"
    );
    assert_eq!(
        Value::Object(violations.to_json()),
        json!({"@entity":["no luck"],"name":"required field missing"})
    );
}

#[test]
fn a_list_that_is_too_short_is_refused() {
    assert_eq!(
        wrong(json!({"name":"a","hosts":[]})).message(),
        "schema violation (hosts: length must be at least 1)"
    );
}

#[test]
fn numbers_beyond_the_machine_are_out_of_range() {
    assert_eq!(
        wrong(json!({"name":"a","port":u64::MAX})).message(),
        "schema violation (port: value should be between 0 and 65535)"
    );
    assert_eq!(
        wrong(json!({"name":"a","port":1e300})).message(),
        "schema violation (port: expected an integer)"
    );
}

#[test]
fn updates_merge_records_and_replace_the_rest() {
    let mut record = schema()
        .complete(map(json!({
            "name":"a","headers":{"x":["1"]},"config":{"scopes":["a","b"],"rate":{"count":3}}
        })))
        .expect("is fine");
    merge(
        &schema(),
        &mut record,
        map(json!({
            "headers":{"y":["2"]},"hosts":["h"],
            "config":{"scopes":["c"],"rate":{"unit":"m"},"verify":null}
        })),
    );
    assert_eq!(record["headers"], json!({"y":["2"]}));
    assert_eq!(record["hosts"], json!(["h"]));
    assert_eq!(record["config"]["scopes"], json!(["c"]));
    assert_eq!(record["config"]["rate"], json!({"count":3,"unit":"m"}));
    assert_eq!(record["config"]["verify"], Value::Null);
    assert_eq!(record["config"]["redis"], json!({"port":6379,"host":null}));
}

#[test]
fn a_dotted_path_becomes_nested_violations() {
    assert_eq!(
        Value::Object(Violations::of("paths.2", "x").to_json()),
        json!({"paths":[null,"x"]})
    );
    assert_eq!(
        Value::Object(Violations::of("config.rate.duration", "x").to_json()),
        json!({"config":{"rate":{"duration":"x"}}})
    );
    assert_eq!(
        Violations::of("config.nodes.1.count", "x").message(),
        "schema violation (config.nodes.1.count: x)"
    );
}

#[test]
fn schemas_are_shown_with_types_defaults_and_bounds() {
    let shown = schema().to_json();
    let fields = shown.as_array().expect("a list");
    assert_eq!(
        fields[1],
        json!({"port":{"type":"integer","between":[0,65535],"default":80,"required":true}})
    );
    assert_eq!(
        fields[4],
        json!({"headers":{"type":"map","keys":{"type":"string"},
            "values":{"type":"array","elements":{"type":"string"}}}})
    );
    assert_eq!(
        fields[5],
        json!({"service":{"type":"foreign","reference":"services"}})
    );
    assert_eq!(fields[6]["config"]["type"], "record");
    assert_eq!(
        fields[6]["config"]["shorthand_fields"],
        json!([{"samesite":{"type":"string"}}])
    );
}

#[test]
fn a_record_speaks_of_its_holder_and_of_itself_as_a_value() {
    let config = || {
        Schema::new(vec![
            Field::new("policy", Type::text()),
            Field::new("host", Type::text()),
        ])
        .check(|config, violations| {
            let has = |name: &str| config.get(name).is_some_and(Value::is_string);
            if has("policy") && !has("host") {
                violations.put("host", "required field missing");
                violations.put_holder(failed_condition("config.policy"));
            }
            if !has("policy") {
                violations.put_whole("needs a policy");
            }
        })
    };
    let plugin = Schema::new(vec![
        Field::new("config", Type::Record(config())),
        Field::new("all", Type::array(Type::Record(config()))),
    ]);
    let wrong = |value| plugin.complete(map(value)).expect_err("is refused");
    let found = wrong(json!({"config": {"policy": "redis"}}));
    let message = "failed conditional validation given value of field 'config.policy'";
    assert_eq!(
        Value::Object(found.to_json()),
        json!({"@entity": [message], "config": {"host": "required field missing"}})
    );
    assert_eq!(
        found.message(),
        format!("2 schema violations ({message}; config.host: required field missing)")
    );
    let found = wrong(json!({"config": {}}));
    assert_eq!(
        Value::Object(found.to_json()),
        json!({"config": "needs a policy"})
    );
    // Wrong fields are said first, and a record in a list has no holder.
    let found = wrong(json!({"config": {"host": 1}, "all": [{"policy": "redis"}]}));
    assert_eq!(
        Value::Object(found.to_json()),
        json!({
            "all": [{"@entity": [message], "host": "required field missing"}],
            "config": {"host": "expected a string"},
        })
    );
}

#[test]
fn a_rare_field_is_there_only_where_it_is_used() {
    let field = |name| Field::new(name, Type::Boolean);
    let schema = Schema::new(vec![field("often"), field("seldom").rare()]);
    for (given, expected) in [
        (json!({}), json!({"often": null})),
        (json!({"seldom": null}), json!({"often": null})),
        (
            json!({"seldom": true}),
            json!({"often": null, "seldom": true}),
        ),
    ] {
        let record = schema.complete(map(given)).expect("is fine");
        assert_eq!(Value::Object(record), expected);
    }
}
