//! The audit events of commands.

use std::os::unix::fs::MetadataExt;

use super::{Command, CommandContext, broker, clients, keys, realms, sessions, tokens, users};
use doorward_audit::Audit;
use doorward_core::model::audit::{Actor, Event, Kind, PendingAudit, Trace};

/// Does what the command says, and tells the audit log.
pub(super) async fn act(
    command: Command,
    context: &mut CommandContext<'_>,
    audit: &Audit,
) -> anyhow::Result<()> {
    let Some(event) = event(&command, context) else {
        return Box::pin(super::act(command, context)).await;
    };
    let now_ms = context.clock.now_ms();
    let told = (event.clone(), Trace::default());
    let act = async |audit: Option<&PendingAudit>| {
        context.pending = audit.cloned();
        Box::pin(super::act(command, context)).await
    };
    let done = audit.with(told, now_ms, act, |()| true).await;
    if done.is_err() {
        audit.note(event.failed("refused"), Trace::default(), now_ms);
    }
    audit.flush().await;
    done
}

/// What a command that changes something tells; the act completes it.
fn event(command: &Command, context: &CommandContext<'_>) -> Option<Event> {
    let told = |kind| Event::new(kind, operator()).realm(&context.realm);
    match command {
        Command::Users(command) => kind_of_users(&command.action).map(told),
        Command::Clients(command) => {
            let (kind, id) = kind_of_clients(&command.action)?;
            Some(told(kind).client(id))
        }
        Command::Realms(command) => {
            let (kind, path) = kind_of_realms(&command.action)?;
            let path = format!("/{}", path.trim_matches('/'));
            Some(Event::new(kind, operator()).realm(&path))
        }
        Command::Tokens(command) => match &command.action {
            tokens::Action::Add { .. } => Some(told(Kind::InitialTokenCreate)),
            tokens::Action::Delete { id } => {
                let event = told(Kind::InitialTokenDelete);
                Some(event.target(&format!("initial-tokens/{id}")))
            }
            tokens::Action::List => None,
        },
        Command::Sessions(command) => match &command.action {
            sessions::Action::End { ids, .. } => {
                let event = told(Kind::SessionEnd).with("cause", "admin");
                Some(match ids.as_slice() {
                    [id] => event.target(&format!("sessions/{id}")),
                    _ => event,
                })
            }
            sessions::Action::List(_) | sessions::Action::Show { .. } => None,
        },
        Command::Keys(command) => match &command.action {
            keys::Action::Rotate { .. } => Some(Event::new(Kind::KeyRotate, operator())),
            keys::Action::List | keys::Action::Show { .. } => None,
        },
        Command::Broker(command) => {
            let (change, target) = broker::target(&command.action)?;
            let kind = match change {
                broker::Change::Create => Kind::EntityCreate,
                broker::Change::Update => Kind::EntityUpdate,
                broker::Change::Secret => Kind::ClientSecret,
                broker::Change::Delete => Kind::EntityDelete,
                broker::Change::Revoke => Kind::TokenRevoke,
            };
            Some(Event::new(kind, operator()).target(&target))
        }
    }
}

fn kind_of_users(action: &users::Action) -> Option<Kind> {
    match action {
        users::Action::Add { .. } => Some(Kind::UserCreate),
        users::Action::SetPassword { .. } => Some(Kind::PasswordChange),
        users::Action::Delete { .. } => Some(Kind::UserDelete),
        users::Action::Import(args) => (!args.dry_run).then_some(Kind::UserImport),
        users::Action::Factors { action } => match action {
            users::FactorsAction::List { .. } => None,
            users::FactorsAction::Reset { .. } => Some(Kind::FactorDelete),
        },
        users::Action::Identities { unlink, .. } => unlink.map(|_| Kind::LinkDelete),
        users::Action::Unlock { .. } => Some(Kind::LockoutEnd),
        users::Action::Release { .. } => Some(Kind::NameRelease),
        users::Action::List { .. }
        | users::Action::Show { .. }
        | users::Action::Retired
        | users::Action::Locked => None,
    }
}

fn kind_of_clients(action: &clients::Action) -> Option<(Kind, &str)> {
    match action {
        clients::Action::Add(add) => Some((Kind::ClientCreate, &add.client_id)),
        clients::Action::Update(update) => Some((Kind::ClientUpdate, &update.client_id)),
        clients::Action::Secret { client_id, .. } => Some((Kind::ClientSecret, client_id)),
        clients::Action::Delete { client_id } => Some((Kind::ClientDelete, client_id)),
        clients::Action::List { .. } | clients::Action::Show { .. } => None,
    }
}

fn kind_of_realms(action: &realms::Action) -> Option<(Kind, &str)> {
    match action {
        realms::Action::Add { path, .. } => Some((Kind::RealmCreate, path)),
        realms::Action::Update { path, .. } => Some((Kind::RealmUpdate, path)),
        realms::Action::Delete { path } => Some((Kind::RealmDelete, path)),
        realms::Action::List | realms::Action::Show { .. } => None,
    }
}

/// Who runs the command: the system's user, whatever the environment says.
pub(in crate::cli) fn operator() -> Actor {
    let uid = std::fs::metadata("/proc/self").map(|own| own.uid()).ok();
    let Some(uid) = uid else {
        return Actor::Cli("unknown".to_owned());
    };
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    Actor::Cli(name_of(uid, &users).unwrap_or_else(|| uid.to_string()))
}

fn name_of(uid: u32, users: &str) -> Option<String> {
    let uid = uid.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_who_runs_a_command() {
        let users = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("alice"));
        assert_eq!(name_of(7, users), None);
    }
}
