//! SDKs of the Model Context Protocol as clients and servers, the door between them.

use std::path::PathBuf;
use std::process::Command;

use super::{ScriptOutput, Stage, node, root};
use crate::mcp::service;
use crate::support::Setup;
use crate::support::ports::Port;

/// A door before an MCP server that a script starts.
async fn stage() -> Stage {
    let upstream = Port::reserve();
    let identity = "
  base_url: http://@PROXY@
  realms:
    /:
      settings:
        resources: [\"http://@PROXY@/mcp\"]
        registration:
          mode: open
          scope: \"openid tools payments\"
          grant_types: [authorization_code, refresh_token]
        refresh_token_grace: 30
      users:
      - {userName: demo, password: Ch4ng31t-demo}
      clients:
      - client_id: runner
        client_secret: runner-secret
        grant_types: [client_credentials]
        scope: tools payments
";
    let config = "      scopes_required: [tools]
      scopes_supported: [tools, payments]
      rules:
      - {tools: [pay], scopes_required: [payments]}
      - {tools: [delete], action: deny}
      - {tools: [refund], scopes_required: [refunds]}
      lists_show_step_up: true";
    let service = service(&format!("http://{}", upstream.authority()), config);
    let setup = Setup::new().identity(identity).services(&service);
    let stage = Stage::plain(setup.start().await);
    Stage {
        upstream,
        output: ScriptOutput::default(),
        ..stage
    }
}

/// A script for Python, with the first generation of the SDK.
fn python_of_the_first() -> Command {
    let mut command = super::python("mcp_client.py");
    let packages: PathBuf = root().join("target/clients/mcp-first");
    command.env("PYTHONPATH", packages);
    command
}

#[tokio::test]
#[ignore = "needs node, its packages and chromium, which `make test` installs"]
async fn both_typescript_sdks_sign_in_call_and_step_up() {
    stage().await.run(node("mcp-client.mjs")).await;
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn the_python_sdk_signs_in_calls_and_steps_up() {
    stage().await.run(super::python("mcp_client.py")).await;
}

#[tokio::test]
#[ignore = "needs python and its packages, which `make test` installs"]
async fn the_first_python_sdk_outlives_denied_calls() {
    stage().await.run(python_of_the_first()).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_protocols_own_runner_finds_no_difference_behind_the_door() {
    stage().await.run(node("mcp-conformance.mjs")).await;
}

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn the_inspectors_command_line_lists_and_calls_tools() {
    stage().await.run(node("mcp-inspector.mjs")).await;
}

#[tokio::test]
#[ignore = "needs the SDK, which `make test` builds"]
async fn the_rust_sdk_signs_in_calls_and_steps_up() {
    let program = root().join("target/clients/rmcp/debug/mcp-client");
    stage().await.run(Command::new(program)).await;
}
