//! `doorward users …`

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::{CommandContext, SecretArgs, factors, identities, import, locks, retired_names};
use doorward_core::model::query::{Filter, UserQuery};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;
use doorward_identity as identity;

/// An address as far as mail can be sent there: something, `@`, something.
fn email_address(text: &str) -> Result<String, String> {
    let whole = text.rsplit_once('@').is_some_and(|(user, host)| {
        let visible = |c: char| !c.is_whitespace() && !c.is_control();
        !user.is_empty() && !host.is_empty() && text.chars().all(visible)
    });
    if whole {
        Ok(text.to_owned())
    } else {
        Err("expected an e-mail address such as alice@example.com".to_owned())
    }
}

/// What to do with users.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Adds a user
    Add {
        /// The name to sign in with
        name: String,
        /// An e-mail address; the first is the primary one
        #[arg(long, value_parser = email_address)]
        email: Vec<String>,
        /// The name to show
        #[arg(long)]
        display_name: Option<String>,
        /// The given name
        #[arg(long)]
        given_name: Option<String>,
        /// The family name
        #[arg(long)]
        family_name: Option<String>,
        /// Other attributes: a JSON object as in SCIM
        #[arg(long, value_name = "JSON")]
        record: Option<String>,
        /// Adds the user without the right to sign in
        #[arg(long)]
        deactivated: bool,
        /// Adds the user without a password
        #[arg(long, conflicts_with_all = ["stdin", "text"])]
        no_password: bool,
        #[command(flatten)]
        password: SecretArgs,
        #[command(flatten)]
        rules: RulesArgs,
    },
    /// Lists users
    List {
        /// A SCIM filter, like 'emails co "example.com"'
        #[arg(long)]
        filter: Option<String>,
    },
    /// Shows a user
    Show {
        /// Its name
        name: String,
    },
    /// Sets a user's password; sessions and refresh tokens end
    SetPassword {
        /// Its name
        name: String,
        #[command(flatten)]
        password: SecretArgs,
        #[command(flatten)]
        rules: RulesArgs,
    },
    /// Lists whom a user is at other providers, or removes such a link; then
    /// sessions and refresh tokens end
    Identities {
        /// The user's name
        name: String,
        /// The link to remove
        #[arg(long, value_name = "ID")]
        unlink: Option<uuid::Uuid>,
    },
    /// Adds the users of a CSV or LDIF file
    Import(import::ImportArgs),
    /// Lists a user's second factors, or removes them all for one who lost them
    Factors {
        #[command(subcommand)]
        action: FactorsAction,
    },
    /// Lists users who are locked after wrong passwords
    Locked,
    /// Lifts the lock of a name
    Unlock {
        /// The name
        name: String,
    },
    /// Lists names of users who were deleted or renamed: tokens call nobody else so
    Retired,
    /// Lets tokens call the user who has the name of a former one by that name
    Release {
        /// The name
        name: String,
    },
    /// Deletes a user with sessions and tokens
    Delete {
        /// Its name
        name: String,
    },
}

/// What to do with second factors.
#[derive(Debug, Subcommand)]
pub(super) enum FactorsAction {
    /// Lists them
    List {
        /// The user's name
        name: String,
    },
    /// Removes them and the recovery codes; sessions and refresh tokens end
    Reset {
        /// The user's name
        name: String,
    },
}

/// Whether the realm's rules for passwords count.
#[derive(Debug, clap::Args)]
pub(super) struct RulesArgs {
    /// Takes any password, whatever the realm's password_policy says
    #[arg(long)]
    ignore_policy: bool,
    /// What is given is a hash: Argon2, bcrypt, PBKDF2, {SSHA} and others
    #[arg(long)]
    hashed: bool,
}

pub(super) async fn act(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    match action {
        Action::Add { .. } => add(action, context).await,
        Action::List { filter } => list(filter, context).await,
        Action::Show { name } => {
            let user = find(&name, context).await?;
            let record = identity::user_record(&user, "");
            context.print(&record, &format!("{record:#}"))
        }
        Action::SetPassword {
            name,
            password,
            rules,
        } => {
            let user = find(&name, context).await?;
            let secret = password.read("password", context.input)?;
            let secret = secret.ok_or_else(|| anyhow::anyhow!("give --password-stdin"))?;
            let hash = new_hash(&secret, &user, &rules, context).await?;
            context
                .store
                .set_password(
                    user.id,
                    &hash,
                    None,
                    context.clock.now_ms(),
                    context.audit(),
                )
                .await?;
            context.print(
                &json!({"id": user.id}),
                &format!("password of {} set", user.user_name),
            )
        }
        Action::Identities { name, unlink } => {
            let user = find(&name, context).await?;
            match unlink {
                None => identities::list(&user, context).await,
                Some(id) => identities::unlink(&user, id, context).await,
            }
        }
        Action::Locked => locks::list(context).await,
        Action::Unlock { name } => locks::lift(&name, context).await,
        Action::Retired => retired_names::list(context).await,
        Action::Release { name } => retired_names::release(&name, context).await,
        Action::Import(args) => import::act(args, context).await,
        Action::Factors { action } => match action {
            FactorsAction::List { name } => {
                let user = find(&name, context).await?;
                factors::list(&user, context).await
            }
            FactorsAction::Reset { name } => {
                let user = find(&name, context).await?;
                factors::reset(&user, context).await
            }
        },
        Action::Delete { name } => {
            let user = find(&name, context).await?;
            context
                .store
                .delete_user(user.id, None, context.clock.now_ms(), context.audit())
                .await?;
            context.print(
                &json!({"id": user.id}),
                &format!("user {} deleted", user.user_name),
            )
        }
    }
}

/// The hash of a new password of `user`.
async fn new_hash(
    secret: &Secret,
    user: &User,
    rules: &RulesArgs,
    context: &CommandContext<'_>,
) -> anyhow::Result<Secret> {
    if rules.hashed {
        identity::StoredHash::foreign(secret)?;
        return Ok(secret.clone());
    }
    if !rules.ignore_policy {
        let realms = context.store.realms().await?;
        let rules = identity::password_rules(context.identity.clone(), realms, &context.realm)?;
        let judged = rules.check(secret.expose(), &identity::own_texts(user));
        judged.map_err(|wrong| anyhow::anyhow!(identity::password_refusal_text(&wrong)))?;
    }
    Ok(identity::hash_new_blocking(secret, &context.hashing)?)
}

async fn find(name: &str, context: &CommandContext<'_>) -> anyhow::Result<User> {
    let user = context.store.user_by_name(&context.realm, name).await?;
    let user =
        user.ok_or_else(|| anyhow::anyhow!("there is no user {name} in realm {}", context.realm))?;
    context.complete(|record| record.set_user(user.id, &user.user_name));
    Ok(user)
}

async fn add(action: Action, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let Action::Add {
        name,
        email,
        display_name,
        given_name,
        family_name,
        record,
        deactivated,
        no_password,
        password,
        rules,
    } = action
    else {
        return Ok(());
    };
    let mut attributes: Map<String, Value> = match record {
        Some(text) => serde_json::from_str(&text)?,
        None => Map::new(),
    };
    let mut set = |name: &str, value: Value| attributes.insert(name.to_owned(), value);
    set("userName", json!(name));
    if !email.is_empty() {
        let emails = email.iter().enumerate();
        let emails = emails.map(|(at, email)| json!({"value": email, "primary": at == 0}));
        set("emails", emails.collect());
    }
    if let Some(name) = display_name {
        set("displayName", json!(name));
    }
    if given_name.is_some() || family_name.is_some() {
        set(
            "name",
            json!({"givenName": given_name, "familyName": family_name}),
        );
    }
    if deactivated {
        set("accountStatus", json!("Deactivated"));
    }
    let mut user = identity::new_user(&context.realm, &attributes)?;
    if !no_password {
        let secret = password.read("password", context.input)?;
        let secret =
            secret.ok_or_else(|| anyhow::anyhow!("give --password-stdin or --no-password"))?;
        user.password_hash = Some(new_hash(&secret, &user, &rules, context).await?);
    }
    let now_ms = context.clock.now_ms();
    (user.created_ms, user.updated_ms) = (now_ms, now_ms);
    context.complete(|record| record.set_user(user.id, &user.user_name));
    context.store.insert_user(&user, context.audit()).await?;
    let mut line = format!(
        "user {} added to realm {} ({})",
        user.user_name, user.realm, user.id
    );
    let made = context.store.user(&context.realm, user.id).await?;
    if made.is_some_and(|made| made.name_reused) {
        line.push_str(
            "\nanother user had this name before: tokens call this one by identifier, \
             until `doorward users release` releases the name",
        );
    }
    context.print(&identity::user_record(&user, ""), &line)
}

async fn list(filter: Option<String>, context: &mut CommandContext<'_>) -> anyhow::Result<()> {
    let filter = match filter {
        Some(text) => identity::parse_filter(&text).map_err(anyhow::Error::msg)?,
        None => Filter::Always,
    };
    let mut query = UserQuery {
        filter,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 500,
    };
    let mut records = Vec::new();
    loop {
        let page = context.store.users(&context.realm, &query).await?;
        for user in &page.users {
            if context.json {
                records.push(identity::user_record(user, ""));
            } else {
                let status = if user.active { "Active" } else { "Deactivated" };
                writeln!(
                    context.out,
                    "{}\t{}\t{status}\t{}",
                    user.id,
                    user.user_name,
                    user.owner.as_str()
                )?;
            }
        }
        query.after = page
            .users
            .last()
            .map(|user| doorward_core::model::user::name::key(&user.user_name));
        if !page.more {
            break;
        }
    }
    if context.json {
        writeln!(context.out, "{:#}", Value::from(records))?;
    }
    Ok(())
}
