//! What a configuration may say, and how it is refused.

use super::*;

#[test]
fn a_configuration_that_makes_no_sense_is_refused_by_field() {
    for (config, field, words) in [
        (json!({}), "rate", "is required"),
        (json!({"rate": 6}), "rate", "must be an object"),
        (
            json!({"rate": {"duration": "1 s"}}),
            "rate.numberOfRequests",
            "is required",
        ),
        (
            json!({"rate": {"numberOfRequests": 6}}),
            "rate.duration",
            "is required",
        ),
        (
            json!({"rate": rate(0, "1 s")}),
            "rate.numberOfRequests",
            "between 1",
        ),
        (
            json!({"rate": {"numberOfRequests": -1, "duration": "1 s"}}),
            "rate.numberOfRequests",
            "between 1",
        ),
        (
            json!({"rate": {"numberOfRequests": 1.5, "duration": "1 s"}}),
            "rate.numberOfRequests",
            "between 1",
        ),
        (
            json!({"rate": {"numberOfRequests": "six", "duration": "1 s"}}),
            "rate.numberOfRequests",
            "between 1",
        ),
        (
            json!({"rate": rate(6, "0 s")}),
            "rate.duration",
            "between 1 ms",
        ),
        (
            json!({"rate": rate(6, "disabled")}),
            "rate.duration",
            "between 1 ms",
        ),
        (
            json!({"rate": rate(6, "unlimited")}),
            "rate.duration",
            "unlimited",
        ),
        (
            json!({"rate": rate(6, "999 us")}),
            "rate.duration",
            "between 1 ms",
        ),
        (
            json!({"rate": rate(6, "5 minutes 10 seconds")}),
            "rate.duration",
            "not a unit",
        ),
        (
            json!({"rate": rate(6, "999999 days")}),
            "rate.duration",
            "between",
        ),
        (
            json!({"rate": {"numberOfRequests": 6, "duration": 10}}),
            "rate.duration",
            "must be a text",
        ),
        (
            json!({"rate": rate(6, "1 s"), "throttlingRatePolicy": {}}),
            "throttlingRatePolicy",
            "not both",
        ),
        (
            json!({"throttlingRatePolicy": "Name"}),
            "throttlingRatePolicy",
            "no object named 'Name'",
        ),
        (
            json!({"throttlingRatePolicy": {"type": "ScriptableThrottlingPolicy", "config": {
                "type": "application/x-groovy", "file": "rate.groovy",
            }}}),
            "throttlingRatePolicy.config.file",
            "write the choice as an expression",
        ),
        (
            json!({"throttlingRatePolicy": {"type": "ScriptableThrottlingPolicy", "config": {
                "type": "application/x-groovy", "source": ["", "System.exit(1)"],
            }}}),
            "throttlingRatePolicy.config.source",
            "line 2: only `null` and `new ThrottlingRate(number, 'duration')` are returned. \
             Scripts are read, never run: write the choice as an expression",
        ),
        (
            json!({"throttlingRatePolicy": {"type": "ScriptableThrottlingPolicy", "config": {
                "type": "text/javascript", "source": "null",
            }}}),
            "throttlingRatePolicy.config.type",
            "write the choice as an expression",
        ),
        (
            json!({"throttlingRatePolicy": {"type": "ExpressionThrottlingPolicy"}}),
            "throttlingRatePolicy.config.rate",
            "is required",
        ),
        (json!({"rates": []}), "rates", "between 1 and 8"),
        (
            json!({"rates": ["6/10 s", {"numberOfRequests": 6, "duration": "10000 ms"}]}),
            "rates.1",
            "same rate",
        ),
        (
            json!({"rates": ["6/10 s", "6 per minute"]}),
            "rates.1",
            "written as `6/10 s`",
        ),
        (
            json!({"rates": [{"name": "a\"b", "numberOfRequests": 6, "duration": "1 s"}]}),
            "rates.0.name",
            "without quotes",
        ),
        (
            json!({"rate": rate(6, "1 s"), "rates": ["6/10 s"]}),
            "rates",
            "not both",
        ),
        (
            json!({"rate": rate(6, "1 s"), "headers": "on"}),
            "headers",
            "expected one of: off, draft",
        ),
        (
            json!({"rate": rate(6, "1 s"), "ipv6PrefixLength": 129}),
            "ipv6PrefixLength",
            "between 1 and 128",
        ),
        (
            json!({"throttlingRatePolicy": {"type": "MappedThrottlingPolicy", "config": {
                "throttlingRateMapper": "x", "throttlingRatesMapping": {"a": rate(0, "1 s")},
            }}}),
            "throttlingRatePolicy.config.throttlingRatesMapping.a.numberOfRequests",
            "between 1",
        ),
        (
            json!({"rate": rate(6, "1 s"), "requestGroupingPolicy": "${nope}"}),
            "requestGroupingPolicy",
            "column 3",
        ),
        (
            json!({"rate": rate(6, "1 s"), "requestGroupingPolicy": 5}),
            "requestGroupingPolicy",
            "must be a text",
        ),
        (
            json!({"rate": rate(6, "1 s"), "cleaningInterval": "zero"}),
            "cleaningInterval",
            "]0, 1 day]",
        ),
        (
            json!({"rate": rate(6, "1 s"), "cleaningInterval": "1 day and 1 ns"}),
            "cleaningInterval",
            "]0, 1 day]",
        ),
        (
            json!({"rate": rate(6, "1 s"), "cleaningInterval": "unlimited"}),
            "cleaningInterval",
            "unlimited",
        ),
        (
            json!({"rate": rate(6, "1 s"), "maximumPartitions": 0}),
            "maximumPartitions",
            "between 1",
        ),
    ] {
        let Err(error) = build(config.clone()) else {
            panic!("{config} was accepted");
        };
        assert_eq!(error.field, field, "{config}: {error}");
        assert!(error.message.contains(words), "{config}: {error}");
    }
}

#[test]
fn numbers_may_be_texts_and_expressions_of_the_configuration() {
    for config in [
        json!({"rate": {"numberOfRequests": "6", "duration": "10 s"}}),
        json!({"rate": {"numberOfRequests": "${integer('6')}", "duration": "${10} ${'s'}"}}),
        json!({"rate": rate(6, "10 s"), "cleaningInterval": "1 day",
            "executor": "ScheduledExecutorService"}),
        json!({"rate": rate(6, "10 s"), "throttlingRatePolicy": null, "executor": null}),
    ] {
        assert!(build(config.clone()).is_ok(), "{config}");
    }
}

#[test]
fn an_executor_that_there_is_not_is_refused() {
    let with = |executor: Value| build(json!({"rate": rate(6, "10 s"), "executor": executor}));
    for good in [
        json!(null),
        json!("ScheduledExecutorService"),
        json!({"type": "ScheduledExecutorService", "config": {"corePoolSize": 2}}),
    ] {
        assert!(with(good.clone()).is_ok(), "{good}");
    }
    for bad in [
        json!("Nobody"),
        json!(""),
        json!(5),
        json!({"type": "Chain"}),
    ] {
        let Err(error) = with(bad.clone()) else {
            panic!("{bad} was accepted");
        };
        assert_eq!(error.field, "executor", "{bad}");
        assert!(
            error.message.contains("ScheduledExecutorService"),
            "{error}"
        );
    }
}

#[test]
fn the_schema_defaults_make_a_working_configuration() {
    let schema = (KIND.schema)();
    let mut config: Map<String, Value> = schema
        .fields
        .iter()
        .map(|field| {
            (
                field.name.to_owned(),
                field.default.clone().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(config["requestGroupingPolicy"], "");
    assert_eq!(config["cleaningInterval"], "5 seconds");
    config.insert("rate".into(), rate(6, "10 s"));
    assert!(build(Value::Object(config)).is_ok());
}

#[test]
fn policies_that_delegate_endlessly_are_refused() {
    let mut policy = Value::Null;
    for _ in 0..40 {
        policy = json!({"type": "DefaultRateThrottlingPolicy", "config": {
            "delegateThrottlingRatePolicy": policy, "defaultRate": rate(1, "1 s"),
        }});
    }
    let Err(error) = build(json!({"throttlingRatePolicy": policy})) else {
        panic!("it was accepted");
    };
    assert!(error.message.contains("too often"), "{error}");
}

#[test]
fn settings_without_effect_are_warned_of() {
    let grouped = json!({"requestGroupingPolicy": "${null}", "rate": rate(6, "10 s")});
    assert_eq!(build(grouped).unwrap().warnings().len(), 1);
    let mapped = json!({"throttlingRatePolicy": {
        "type": "MappedThrottlingPolicy", "config": {"throttlingRateMapper": "x"},
    }});
    let unknown = json!({"rate": {"numberOfRequests": 6, "duration": "1 s", "burst": 9}, "x": 1});
    assert_eq!(
        build(unknown).unwrap().warnings(),
        [
            "x is not known and has no effect",
            "rate.burst is not known and has no effect"
        ]
    );
    assert_eq!(build(mapped).unwrap().warnings().len(), 1);
    assert!(
        build(json!({"rate": rate(6, "10 s")}))
            .unwrap()
            .warnings()
            .is_empty()
    );
}
