#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::testing::{parts, plugin, plugin_with};

#[test]
fn nothing_is_counted_unless_it_is_asked_for() {
    let filter = plugin(&KIND, &json!({})).unwrap();
    assert!(!filter.observes());
    for flag in [
        "status_code_metrics",
        "latency_metrics",
        "bandwidth_metrics",
    ] {
        assert!(
            plugin(&KIND, &json!({ flag: true })).unwrap().observes(),
            "{flag}"
        );
    }
}

#[test]
fn health_of_targets_is_shown_while_a_plugin_wants_it() {
    let parts = parts();
    let config = json!({"upstream_health_metrics": true});
    let filter = plugin_with(&KIND, &config, &parts).unwrap();
    assert_eq!(parts.metrics.kong.upstream_health.get(), 1);
    drop(filter);
    assert_eq!(parts.metrics.kong.upstream_health.get(), 0);
}

#[test]
fn metrics_of_models_are_accepted_with_a_warning() {
    let filter = plugin(&KIND, &json!({"ai_metrics": true})).unwrap();
    assert!(filter.warnings()[0].contains("ai_metrics"));
}
