//! `doorward clients …`

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::{Desk, SecretArgs};
use crate::clock::random_bytes;
use crate::identity;
use crate::model::client::{AuthMethod, Client, ClientMetadata, SignAlg, TokenFormat};
use crate::model::secret::Secret;
use crate::model::user::Owner;

/// What to do with clients.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Adds a client; without a secret of yours, one is made and shown once
    Add(Box<Add>),
    /// Lists clients
    List,
    /// Shows a client
    Show {
        /// Its identifier
        client_id: String,
    },
    /// Deletes a client with its refresh tokens
    Delete {
        /// Its identifier
        client_id: String,
    },
}

/// A new client.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Its identifier
    client_id: String,
    /// What it is called
    #[arg(long)]
    name: Option<String>,
    /// A grant it may use
    #[arg(
        long = "grant",
        value_name = "GRANT",
        default_value = "client_credentials"
    )]
    grants: Vec<String>,
    /// The scopes it may ask for, separated by blanks
    #[arg(long, default_value = "")]
    scope: String,
    /// What it is granted when it asks for no scope
    #[arg(long)]
    default_scope: Option<String>,
    /// Where the authorization endpoint may send people back to
    #[arg(long = "redirect-uri", value_name = "URI")]
    redirect_uris: Vec<String>,
    /// A client that can keep no secret
    #[arg(long, conflicts_with_all = ["stdin", "text"])]
    public: bool,
    /// Any further metadata, as a JSON object with the names of RFC 7591
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// The form of its access tokens
    #[arg(long)]
    token_format: Option<Format>,
    /// How its ID tokens are signed, such as RS256, PS256, ES256, EdDSA or HS256
    #[arg(long, value_name = "ALG", value_parser = alg)]
    id_token_alg: Option<SignAlg>,
    #[command(flatten)]
    secret: SecretArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Jwt,
    Opaque,
}

/// The algorithm of this name.
pub(super) fn alg(name: &str) -> Result<SignAlg, String> {
    SignAlg::parse(name).ok_or_else(|| {
        "must be one of RS256 to RS512, PS256 to PS512, ES256 to ES512, EdDSA, HS256 to HS512"
            .to_owned()
    })
}

pub(super) async fn act(action: Action, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    match action {
        Action::Add(client) => add(*client, desk).await,
        Action::List => list(desk).await,
        Action::Show { client_id } => {
            let client = desk.store.client(&desk.realm, &client_id).await?;
            let client = client.ok_or_else(|| missing(&client_id, desk))?;
            let record = serde_json::to_value(&client.metadata)?;
            desk.print(&record, &format!("{record:#}"))
        }
        Action::Delete { client_id } => {
            let gone = desk.store.delete_client(&desk.realm, &client_id).await?;
            if gone.is_none() {
                return Err(missing(&client_id, desk));
            }
            let line = format!("client {client_id} deleted");
            desk.print(&json!({"client_id": client_id}), &line)
        }
    }
}

fn missing(client_id: &str, desk: &Desk<'_>) -> anyhow::Error {
    anyhow::anyhow!("there is no client {client_id} in realm {}", desk.realm)
}

async fn add(client: Add, desk: &mut Desk<'_>) -> anyhow::Result<()> {
    let metadata = metadata(&client)?;
    let given = client.secret.stdin || client.secret.text.is_some();
    let (secret, made) = if !given && !metadata.authenticates_by_secret() {
        (None, None)
    } else if given {
        (client.secret.read("secret", desk.input)?, None)
    } else {
        let made = URL_SAFE_NO_PAD.encode(random_bytes::<32>());
        (Some(Secret::new(made.clone())), Some(made))
    };
    identity::check_metadata(&metadata, secret.as_ref())?;
    let now_ms = desk.clock.now_ms();
    let stored = Client {
        realm: desk.realm.clone(),
        secret: identity::stored_secret(&metadata, secret.as_ref()),
        owner: Owner::Store,
        registration: None,
        created_ms: now_ms,
        updated_ms: now_ms,
        metadata,
    };
    desk.store.insert_client(&stored).await?;
    let mut record = serde_json::to_value(&stored.metadata)?;
    let mut line = format!(
        "client {} added to realm {}",
        stored.metadata.client_id, desk.realm
    );
    if let Some(made) = made {
        line.push_str(&format!("\nclient_secret: {made}"));
        record["client_secret"] = Value::String(made);
    }
    desk.print(&record, &line)
}

/// What the options say; members of `--metadata` count for more.
fn metadata(client: &Add) -> anyhow::Result<ClientMetadata> {
    let mut members = json!({
        "client_id": client.client_id,
        "client_name": client.name,
        "grant_types": client.grants,
        "scope": client.scope,
        "default_scope": client.default_scope,
        "redirect_uris": client.redirect_uris,
    });
    if let Some(more) = &client.metadata {
        let more: Map<String, Value> =
            serde_json::from_str(more).context("--metadata is no JSON object")?;
        anyhow::ensure!(
            !more.contains_key("client_secret"),
            "a secret comes by --secret-stdin or --secret"
        );
        for (name, value) in more {
            members[name] = value;
        }
    }
    let mut metadata: ClientMetadata = serde_json::from_value(members)?;
    if client.public {
        metadata.token_endpoint_auth_method = Some(AuthMethod::None);
    }
    if let Some(alg) = client.id_token_alg {
        metadata.id_token_signed_response_alg = Some(alg);
    }
    if let Some(format) = client.token_format {
        metadata.access_token_format = Some(match format {
            Format::Jwt => TokenFormat::Jwt,
            Format::Opaque => TokenFormat::Opaque,
        });
    }
    Ok(metadata)
}

async fn list(desk: &mut Desk<'_>) -> anyhow::Result<()> {
    let clients = desk.store.clients(&desk.realm).await?;
    if desk.json {
        let records = clients
            .iter()
            .map(|client| serde_json::to_value(&client.metadata));
        let records = records.collect::<Result<Vec<_>, _>>()?;
        writeln!(desk.out, "{:#}", Value::from(records))?;
        return Ok(());
    }
    for client in clients {
        let metadata = &client.metadata;
        writeln!(
            desk.out,
            "{}\t{}\t{}\t{}",
            metadata.client_id,
            metadata.grant_types.join(" "),
            metadata.scope,
            client.owner.as_str()
        )?;
    }
    Ok(())
}
