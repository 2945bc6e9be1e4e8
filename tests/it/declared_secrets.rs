//! Secrets that a file declares: what is a variable of another program is none.

use std::path::Path;

use doorward_core::model::secret::names_secret;

use crate::support::{Door, Setup};

/// Places of secrets in a configuration file, and the keys that errors name.
const PLACES: &[(&str, &str)] = &[
    ("admin:\n  token: @\n", "admin.token"),
    ("store: @\n", "store"),
    ("redis: @\n", "redis"),
    (
        "redis:\n  url: redis://h\n  password: @\n",
        "redis.password",
    ),
    (
        "identity:\n  keys: {master_key: @}\n",
        "identity.keys.master_key",
    ),
    (
        "identity:\n  keys: {previous_master_keys: [@]}\n",
        "identity.keys.previous_master_keys[0]",
    ),
    (
        "identity:\n  mail: {smtp: {host: h, from: a, username: u, password: @}}\n",
        "identity.mail.smtp.password",
    ),
    (
        "identity:\n  mail: {webhook: {url: https://h, secret: @}}\n",
        "identity.mail.webhook.secret",
    ),
    (
        "identity:\n  realms: {/: {users: [{userName: a, password: @}]}}\n",
        "identity.realms./.users[0].password",
    ),
    (
        "identity:\n  realms: {/: {clients: [{client_id: a, client_secret: @}]}}\n",
        "identity.realms./.clients[0].client_secret",
    ),
    (
        "identity:\n  realms: {/: {settings: {ldap: {bind_password: @}}}}\n",
        "identity.realms./.settings.ldap.bind_password",
    ),
    (
        "identity:\n  realms: {/: {settings: {federation: [{name: a, client_secret: @}]}}}\n",
        "identity.realms./.settings.federation[0].client_secret",
    ),
    (
        "broker: {applications: [{name: a, consumer_secret: @}]}\n",
        "broker.applications[0].consumer_secret",
    ),
];

/// Places in a file of entities.
const ENTITY_PLACES: &[(&str, &str)] = &[
    (
        "plugins:\n- {name: openid-connect, config: {client_secret: [@]}}\n",
        "plugins[0].config.client_secret[0]",
    ),
    (
        "plugins:\n- {name: openid-connect, config: {session_secret: @}}\n",
        "plugins[0].config.session_secret",
    ),
];

/// What people write for a variable elsewhere.
const TEMPLATES: &[&str] = &[
    "${env.SECRET}",
    "{{ secret }}",
    "$SECRET",
    "x${SECRET}",
    "&{a|${b}}",
];

fn check(door: &Door) -> (bool, String) {
    let output = door.run(&["check", "-c", "doorward.yaml"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), text)
}

#[test]
fn a_secret_that_is_a_variable_of_another_program_is_refused_by_line_and_key() {
    let door = Setup::new().lay_out();
    for written in TEMPLATES {
        for (text, key) in PLACES {
            let text = text.replace('@', &format!("'{written}'"));
            door.write("doorward.yaml", &text);
            let line = text.lines().position(|line| line.contains(written));
            let line = line.map_or(0, |index| index + 1);
            let (fine, error) = check(&door);
            let wanted = format!("doorward.yaml:{line}: {key}: is a template");
            assert!(!fine && error.contains(&wanted), "{wanted} in {error}");
            assert!(error.contains("did you mean &{name}"), "{error}");
        }
        door.write("doorward.yaml", "entities: [routes.yaml]\n");
        for (text, key) in ENTITY_PLACES {
            let text = text.replace('@', &format!("'{written}'"));
            door.write("routes.yaml", &format!("_format_version: \"3.0\"\n{text}"));
            let (fine, error) = check(&door);
            let wanted = format!("routes.yaml:3: {key}: is a template");
            assert!(!fine && error.contains(&wanted), "{wanted} in {error}");
        }
    }
}

#[test]
fn what_the_environment_gives_may_be_any_text() {
    let door = Setup::new().env("APP_SECRET", "$pa${ss}").lay_out();
    door.write(
        "doorward.yaml",
        "identity:\n  realms:\n    /:\n      clients:\n      \
         - {client_id: a, client_secret: '&{app.secret}', grant_types: [client_credentials]}\n      \
         - {client_id: b, client_secret: 'pa$$word', grant_types: [client_credentials]}\n",
    );
    let (fine, error) = check(&door);
    assert!(fine, "{error}");
}

/// Fields of type `Secret` in the sources of what files declare, by name, that
/// [`names_secret`] leaves out, and why.
const OTHERWISE: &[(&str, &str)] = &[
    ("url", "an address; looked at if it names a user"),
    ("key", "PEM, or it is refused"),
    ("key_alt", "PEM, or it is refused"),
];

#[test]
fn every_secret_that_a_file_can_declare_is_looked_at() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![
        root.join("src/config.rs"),
        root.join("crates/identity/src/config.rs"),
        root.join("crates/net/src/shared/config.rs"),
        root.join("crates/core/src/model/client.rs"),
        root.join("crates/core/src/model/certificate.rs"),
        root.join("crates/core/src/model/broker/mod.rs"),
    ];
    let parts = root.join("crates/identity/src/config");
    let parts = std::fs::read_dir(parts).expect("a directory");
    files.extend(parts.map(|entry| entry.expect("an entry").path()));
    let mut names = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file");
        for line in text.lines() {
            let Some((name, kind)) = line.trim().trim_start_matches("pub ").split_once(": ") else {
                continue;
            };
            let kinds = ["Secret,", "Option<Secret>,", "Vec<Secret>,"];
            if kinds.contains(&kind) {
                names.push(name.to_owned());
            }
        }
    }
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let known = OTHERWISE.iter().any(|(other, _)| *other == name);
        assert!(known != names_secret(&name), "{name}");
    }
}
