//! `doorward clients …`

use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::members::Members;
use super::{CommandContext, SecretArgs};
use doorward_core::model::client::{Client, SignAlg, member_names};
use doorward_core::model::registration::ClientQuery;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;
use doorward_core::model::user::schema::RecordError;
use doorward_identity::registry::{self, NewClient};
use doorward_store::StoreError;

/// What `doorward clients --help` ends with.
pub(super) const EXAMPLES: &str = "\
Examples:
  doorward clients add robot --scope 'read write'
  doorward clients add shop --grant authorization_code --grant refresh_token \\
      --redirect-uri https://shop.example/callback --scope 'openid profile'
  doorward clients add app --public --grant authorization_code \\
      --redirect-uri com.example.app:/cb
  doorward clients update shop --set access_token_lifetime=600 \\
      --set 'client_name#de=Laden'
  doorward clients update shop --metadata @shop.json
  doorward clients secret shop
  doorward clients list --owner client --json

All metadata are described in docs/identity.md; their names are the same here,
over REST on the admin listener and in the configuration file.";

/// Clients read at once.
const PAGE: u32 = 500;

/// How often a change is tried again whose record was changed meanwhile.
const TRIES: usize = 5;

/// What to do with clients.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Adds a client; without a secret of yours, one is made and shown once
    #[command(visible_alias = "create")]
    Add(Box<Add>),
    /// Lists clients
    List {
        /// Only those of this owner
        #[arg(long)]
        owner: Option<OwnerName>,
        /// Only those in whose identifier or name this occurs
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Shows a client
    Show {
        /// Its identifier
        client_id: String,
    },
    /// Changes a client: what is named, and nothing else
    Update(Box<Update>),
    /// Gives a client another secret, which is shown once unless it is yours; the old one is dead
    Secret {
        /// Its identifier
        client_id: String,
        #[command(flatten)]
        secret: SecretArgs,
    },
    /// Deletes a client with all that it was granted
    Delete {
        /// Its identifier
        client_id: String,
    },
}

/// A new client.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    /// Its identifier
    pub(super) client_id: String,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    secret: SecretArgs,
}

/// A change of a client.
#[derive(Debug, clap::Args)]
pub(super) struct Update {
    /// Its identifier
    pub(super) client_id: String,
    #[command(flatten)]
    settings: Settings,
}

/// What a client is to be.
#[derive(Debug, clap::Args)]
struct Settings {
    /// What it is called
    #[arg(long)]
    name: Option<String>,
    /// A grant it may use; a new client may use client_credentials unless one is named
    #[arg(long = "grant", value_name = "GRANT")]
    grants: Vec<String>,
    /// The scopes it may ask for, separated by blanks
    #[arg(long)]
    scope: Option<String>,
    /// What it is granted when it asks for no scope
    #[arg(long)]
    default_scope: Option<String>,
    /// Where the authorization endpoint may send people back to
    #[arg(long = "redirect-uri", value_name = "URI")]
    redirect_uris: Vec<String>,
    /// A client that can keep no secret
    #[arg(long)]
    public: bool,
    /// The form of its access tokens
    #[arg(long)]
    token_format: Option<Format>,
    /// How its ID tokens are signed, such as RS256, PS256, ES256, EdDSA or HS256
    #[arg(long, value_name = "ALG", value_parser = alg)]
    id_token_alg: Option<SignAlg>,
    #[command(flatten)]
    members: Members,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Jwt,
    #[value(name = "at+jwt")]
    AtJwt,
    Opaque,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum OwnerName {
    /// Made by an operator, here or over REST
    Store,
    /// Declared in the configuration file
    File,
    /// Registered itself
    Client,
}

impl From<OwnerName> for Owner {
    fn from(name: OwnerName) -> Self {
        match name {
            OwnerName::Store => Self::Store,
            OwnerName::File => Self::File,
            OwnerName::Client => Self::Client,
        }
    }
}

/// The algorithm of this name.
pub(super) fn alg(name: &str) -> Result<SignAlg, String> {
    SignAlg::parse(name).ok_or_else(|| {
        "must be one of RS256 to RS512, PS256 to PS512, ES256 to ES512, EdDSA, HS256 to HS512"
            .to_owned()
    })
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::Add(client) => add(*client, context).await,
        Action::List { owner, search } => list(owner, search, context).await,
        Action::Show { client_id } => {
            let client = context.store.client(&context.realm, &client_id).await?;
            let client = client.ok_or_else(|| missing(&client_id, context))?;
            let record = Value::Object(registry::record(&client));
            context.print(&record, &format!("{record:#}"))
        }
        Action::Update(update) => {
            let mut change = Map::new();
            update.settings.write_over(&mut change, context)?;
            anyhow::ensure!(
                !change.is_empty(),
                "nothing to change; see `doorward clients update --help`"
            );
            let now_ms = context.clock.now_ms();
            let patch = |old: &Client| registry::patch(old, change.clone(), now_ms);
            changed(&update.client_id, "changed", patch, context).await
        }
        Action::Secret { client_id, secret } => {
            let given = given(&secret, context)?;
            let now_ms = context.clock.now_ms();
            let rotate = |old: &Client| registry::rotate(old, given.clone(), now_ms);
            changed(&client_id, "has another secret", rotate, context).await
        }
        Action::Delete { client_id } => {
            let gone = context
                .store
                .delete_client(&context.realm, &client_id, None, context.audit())
                .await?;
            if gone.is_none() {
                return Err(missing(&client_id, context));
            }
            let line = format!("client {client_id} deleted");
            context.print(&json!({"client_id": client_id}), &line)
        }
    }
}

fn missing(client_id: &str, context: &CommandContext<'_>) -> anyhow::Error {
    anyhow::anyhow!("there is no client {client_id} in realm {}", context.realm)
}

/// The secret on the command line or standard input, if one is there.
fn given(secret: &SecretArgs, context: &mut CommandContext<'_>) -> anyhow::Result<Option<Secret>> {
    if secret.stdin || secret.text.is_some() {
        return secret.read("secret", context.input);
    }
    Ok(None)
}

async fn add(client: Add, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let mut members = Map::new();
    members.insert("client_id".to_owned(), client.client_id.clone().into());
    members.insert("grant_types".to_owned(), json!(["client_credentials"]));
    client.settings.write_over(&mut members, context)?;
    if let Some(secret) = given(&client.secret, context)? {
        members.insert("client_secret".to_owned(), secret.expose().into());
    }
    let made = registry::create(&context.realm, members, context.clock.now_ms());
    let made = made.map_err(explained)?;
    match context
        .store
        .insert_client(&made.client, context.audit())
        .await
    {
        Err(StoreError::Taken(id)) => {
            anyhow::bail!("there is a client {id} in realm {} already", context.realm)
        }
        outcome => outcome?,
    }
    let id = &made.client.metadata.client_id;
    let line = format!("client {id} added to realm {}", context.realm);
    show(&made, line, context)
}

/// Replaces a client by what `made` makes of it.
async fn changed(
    client_id: &str,
    what: &str,
    made: impl Fn(&Client) -> Result<NewClient, RecordError>,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let old = context.store.client(&context.realm, client_id).await?;
        let old = old.ok_or_else(|| missing(client_id, context))?;
        if old.owner == Owner::File {
            return Err(StoreError::FileOwned(format!("client {client_id}")).into());
        }
        let made = made(&old).map_err(explained)?;
        match context
            .store
            .update_client(&made.client, old.updated_ms, context.audit())
            .await
        {
            Err(StoreError::Conflict(_)) => {}
            outcome => {
                outcome?;
                return show(&made, format!("client {client_id} {what}"), context);
            }
        }
    }
    anyhow::bail!("the client was changed by others at the same time; try again")
}

/// Prints the record, with the secret that was made for it.
fn show(
    made: &NewClient,
    mut line: String,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let mut record = registry::record(&made.client);
    if let Some(secret) = &made.secret {
        line.push_str(&format!("\nclient_secret: {}", secret.expose()));
        record.insert("client_secret".to_owned(), secret.expose().into());
    }
    context.print(&Value::Object(record), &line)
}

/// The error, and what there is where a name is unknown.
fn explained(error: RecordError) -> anyhow::Error {
    if error.message == "unknown field" {
        let known = member_names().join(", ");
        return anyhow::anyhow!("{error}; a client has: {known}");
    }
    error.into()
}

impl Settings {
    /// Writes what the options say over `members`; what `--metadata`, `--set`
    /// and `--unset` say counts for more.
    fn write_over(
        &self,
        members: &mut Map<String, Value>,
        context: &mut CommandContext<'_>,
    ) -> anyhow::Result<()> {
        let format = self.token_format.map(|format| match format {
            Format::Jwt => "jwt",
            Format::AtJwt => "at+jwt",
            Format::Opaque => "opaque",
        });
        let list = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        for (name, value) in [
            ("client_name", self.name.as_deref().map(Value::from)),
            ("grant_types", list(&self.grants)),
            ("scope", self.scope.as_deref().map(Value::from)),
            (
                "default_scope",
                self.default_scope.as_deref().map(Value::from),
            ),
            ("redirect_uris", list(&self.redirect_uris)),
            (
                "token_endpoint_auth_method",
                self.public.then(|| Value::from("none")),
            ),
            ("access_token_format", format.map(Value::from)),
            (
                "id_token_signed_response_alg",
                self.id_token_alg.map(|alg| alg.as_str().into()),
            ),
        ] {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        }
        self.members.write_over(members, context.input)?;
        anyhow::ensure!(
            !members.contains_key("client_secret"),
            "a secret comes by --secret-stdin or --secret"
        );
        Ok(())
    }
}

async fn list(
    owner: Option<OwnerName>,
    search: Option<String>,
    context: &mut CommandContext<'_>,
) -> anyhow::Result<()> {
    let mut query = ClientQuery {
        after: None,
        owner: owner.map(Owner::from),
        text: search,
        limit: PAGE,
    };
    let mut records = Vec::new();
    loop {
        let page = context.store.find_clients(&context.realm, &query).await?;
        let last = page.last().map(|client| client.metadata.client_id.clone());
        let full = page.len() >= PAGE as usize;
        for client in page {
            if context.json {
                records.push(Value::Object(registry::record(&client)));
                continue;
            }
            let metadata = &client.metadata;
            writeln!(
                context.out,
                "{}\t{}\t{}\t{}",
                metadata.client_id,
                metadata.grant_types.join(" "),
                metadata.scope,
                client.owner.as_str()
            )?;
        }
        if !full || last.is_none() {
            break;
        }
        query.after = last;
    }
    if context.json {
        writeln!(context.out, "{:#}", Value::from(records))?;
    }
    Ok(())
}
