//! The token broker in front of another provider.

use super::{Stage, node};
use crate::support::door::IDENTITY;
use crate::support::ports::Port;
use crate::support::{Setup, Upstream};
use crate::token_broker::BROKER;

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_broker_bears_a_foreign_provider_whatever_it_does() {
    let upstream = Upstream::echo().await;
    let provider = Port::reserve();
    let service = format!(
        "- name: weather\n  url: {}\n  routes: [{{paths: [/weather]}}]\n  plugins:\n  \
         - name: token-broker\n    config: {{base_path: /weather, timeout: 5000, \
         token_endpoint: 'http://{}/token'}}\n",
        upstream.url(""),
        provider.authority()
    );
    let door = Setup::new()
        .identity(&format!("\n  base_url: http://@PROXY@{IDENTITY}{BROKER}"))
        .services(&service)
        .start()
        .await;
    let stage = Stage {
        upstream: provider,
        ..Stage::plain(door)
    };
    stage.run(node("token-broker.mjs")).await;
    let log = stage.door.log_text();
    for secret in ["s3cret", "zoe-Passw0rd", "orders-secret"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}
