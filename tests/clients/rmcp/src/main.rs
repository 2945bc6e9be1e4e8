//! The Rust SDK of the Model Context Protocol as client and server, in both eras of the
//! protocol: a user signs in, tools are called, denied and stepped up to.

mod person;

use std::env;
use std::error::Error;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolRequestParams, ClientConfig, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::{AuthClient, AuthorizationRequest, OAuthState};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient, ServerHandler, schemars};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;
type Running = RunningService<RoleClient, ClientConfig>;

const REDIRECT: &str = "http://127.0.0.1:33419/callback";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Amount {
    amount: i64,
}

/// A server with three tools; the door is before it.
#[derive(Clone)]
struct Tools;

#[rmcp::tool_router]
impl Tools {
    fn router() -> ToolRouter<Self> {
        Self::tool_router()
    }

    #[rmcp::tool(description = "Adds two numbers")]
    fn add(&self, Parameters(Sum { a, b }): Parameters<Sum>) -> String {
        (a + b).to_string()
    }

    #[rmcp::tool(description = "Pays")]
    fn pay(&self, Parameters(Amount { amount }): Parameters<Amount>) -> String {
        format!("paid {amount}")
    }

    #[rmcp::tool(description = "Is called by nobody")]
    fn delete(&self) -> String {
        "the door lets nobody delete".to_owned()
    }
}

#[rmcp::tool_handler(router = Self::router())]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

async fn serve(port: u16) -> Outcome<()> {
    let service: StreamableHttpService<_, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Tools), Default::default(), Default::default());
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let router = axum::Router::new().nest_service("/mcp", service);
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok(())
}

/// A client whose user has signed in for these scopes; none: those that it finds.
async fn connect(resource: &str, scopes: &[&str], newest: bool) -> Outcome<Running> {
    let mut state = OAuthState::new(resource, None).await?;
    let request = AuthorizationRequest::new(REDIRECT).with_client_name("sdk");
    let request = request.with_scopes(scopes.iter().copied());
    state.start_authorization(request).await?;
    let address = state.get_authorization_url().await?;
    let back = person::visit(&address).await?;
    state.handle_callback_url(&back).await?;
    let manager = state.into_authorization_manager();
    let client = AuthClient::new(reqwest::Client::new(), manager.ok_or("not signed in")?);
    let config = StreamableHttpClientTransportConfig::with_uri(resource);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let lifecycle = if newest {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        ClientLifecycleMode::Discover { preferred_versions }
    } else {
        ClientLifecycleMode::Initialize
    };
    let client = ClientConfig::default();
    Ok(client.serve_with_lifecycle(transport, lifecycle).await?)
}

/// What a tool says, or why it was not called.
async fn say(client: &Running, tool: &'static str, arguments: Value) -> String {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let call = CallToolRequestParams::new(tool).with_arguments(arguments);
    match client.call_tool(call).await {
        Ok(result) => json!(result)["content"][0]["text"].to_string(),
        Err(error) => format!("{error:?}"),
    }
}

async fn use_tools(resource: &str, newest: bool) -> Outcome<()> {
    let client = connect(resource, &["tools"], newest).await?;
    let tools = client.list_all_tools().await?;
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["add", "pay"]);
    assert_eq!(say(&client, "add", json!({"a": 1, "b": 2})).await, "\"3\"");

    // Denied, and no scope would help: the call fails alone.
    let denied = say(&client, "delete", json!({})).await;
    assert!(denied.contains("the caller may not do this"), "{denied}");
    assert_eq!(say(&client, "add", json!({"a": 3, "b": 4})).await, "\"7\"");

    // A scope helps: the challenge names it, and the user is asked for it.
    let poor = say(&client, "pay", json!({"amount": 5})).await;
    assert!(poor.contains("insufficient_scope"), "{poor}");
    assert!(poor.contains("tools payments"), "{poor}");
    client.cancel().await?;
    let client = connect(resource, &["tools", "payments"], newest).await?;
    assert_eq!(
        say(&client, "pay", json!({"amount": 5})).await,
        "\"paid 5\""
    );
    client.cancel().await?;

    // Without scopes of its own it asks for those that it finds.
    let client = connect(resource, &[], newest).await?;
    assert_eq!(
        say(&client, "pay", json!({"amount": 6})).await,
        "\"paid 6\""
    );
    client.cancel().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    serve(env::var("DOORWARD_UPSTREAM")?.parse()?).await?;
    let resource = format!("{}/mcp", env::var("DOORWARD_BASE")?);
    for newest in [false, true] {
        use_tools(&resource, newest).await?;
    }
    Ok(())
}
