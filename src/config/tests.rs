use super::*;

fn refused(text: &str) -> String {
    let file = Path::new("d.yaml");
    let document = Document::parse(text, file).expect("YAML");
    match Config::of(&document, file) {
        Ok(_) => String::new(),
        Err(errors) => lines(&errors),
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let text = "proxy: {lisen: []}
identity:
  base_url: https://id.example
  realms:
    /:
      settings: {code_lifetime: 9999, fooo: 1}
      clients:
      - {client_id: a, client_secret: a-long-secret, grant_types: [foo]}
      - {client_id: b, client_secret: a-long-secret, grant_types: [bar]}
    /other:
      settings: {device_polling_interval: 9999}
";
    let told = refused(text);
    for wrong in [
        "proxy.lisen",
        "code_lifetime",
        "fooo",
        "clients[0].grant_types",
        "clients[1].grant_types",
        "device_polling_interval",
    ] {
        assert!(told.contains(wrong), "{wrong} in\n{told}");
    }
    assert_eq!(told.lines().count(), 6, "{told}");
}

#[test]
fn an_error_names_file_line_and_key() {
    assert_eq!(
        refused("proxy:\n  listen: [\"nowhere\"]\n"),
        "d.yaml:2: proxy.listen[0]: 'nowhere' is not ADDRESS:PORT or unix:/PATH"
    );
    assert!(refused("proxy:\n  lisen: []\n").starts_with("d.yaml:2: proxy.lisen: unknown field"));
    assert!(refused("proxy:\n  trusted_ips: [x]\n").contains("'x' is not an address"));
    let header = refused("proxy:\n  real_ip_header: a b\n");
    assert!(
        header.contains("'a b' is not the name of a header"),
        "{header}"
    );
}

#[test]
fn a_wrong_user_is_named_with_its_line() {
    let text = "identity:\n  realms:\n    /:\n      users:\n        - userName: demo\n          emails: [{value: 5}]\n";
    assert_eq!(
        refused(text),
        "d.yaml:6: identity.realms./.users[0].emails[0].value: expected a string"
    );
}

#[test]
fn half_a_tls_section_is_refused_with_its_line() {
    let message = refused("proxy:\n  tls:\n    certificate: a.pem\n");
    assert_eq!(message, "d.yaml:3: proxy.tls.certificate: needs its key");
    let message = refused("proxy:\n  tls:\n    client_certificates: {mode: required}\n");
    assert!(message.contains("mode: needs ca"), "{message}");
    let message = refused("admin:\n  tls: {listen: [\"0.0.0.0:8444\"]}\n");
    assert!(message.contains("needs admin.token"), "{message}");
    let message = refused("proxy:\n  tls: {min_version: SSLv3}\n");
    assert!(message.contains("min_version"), "{message}");
}

#[test]
fn a_redis_is_an_address_or_a_map_and_what_is_wrong_is_named() {
    let accepted = |text: &str| {
        let document = Document::parse(text, Path::new("d.yaml")).expect("YAML");
        let config = Config::of(&document, Path::new("d.yaml")).expect("a configuration");
        config.redis.expect("a Redis")
    };
    let short = accepted("redis: redis://user:sesame@127.0.0.1:6379/2\n");
    assert_eq!(short.deadline, "50 ms");
    let long = accepted("redis:\n  url: redis://h\n  password: sesame\n  deadline: 20 ms\n");
    assert!(!format!("{short:?} {long:?}").contains("sesame"));
    for (text, message) in [
        (
            "redis: http://h\n",
            "d.yaml:1: redis: expected redis://[USER",
        ),
        ("redis: sesame\n", "d.yaml:1: redis: expected redis://[USER"),
        ("redis: {}\n", "d.yaml:1: redis: missing field `url`"),
        (
            "redis:\n  url: redis://h\n  deadline: 1 h\n",
            "d.yaml:3: redis.deadline: expected",
        ),
        (
            "redis:\n  url: redis://h\n  pasword: x\n",
            "d.yaml:3: redis.pasword: unknown field",
        ),
        (
            "redis:\n  url: rediss://h\n  ca: /no/such\n",
            "d.yaml:3: redis.ca: /no/such",
        ),
    ] {
        let refused = refused(text);
        assert!(refused.starts_with(message), "{refused}");
        assert!(!refused.contains("sesame"), "{refused}");
    }
}

#[test]
fn origins_of_pages_are_whole_and_all_of_them_need_a_token() {
    for (origin, wanted) in [
        ("https://a.example/", "expected an origin"),
        ("a.example", "expected an origin"),
        ("'null'", "expected an origin"),
        ("'*'", "need admin.token"),
    ] {
        let told = refused(&format!("admin:\n  cors_origins: [{origin}]\n"));
        assert!(
            told.starts_with("d.yaml:2: admin.cors_origins[0]: "),
            "{told}"
        );
        assert!(told.contains(wanted), "{told}");
    }
    assert_eq!(
        refused("admin: {cors_origins: ['http://localhost:3000']}\n"),
        ""
    );
}

#[test]
fn ports_are_mapped_to_those_that_clients_know() {
    let text = "proxy: {port_maps: ['80:8000', '443:8443']}\n";
    let document = Document::parse(text, Path::new("d.yaml")).expect("YAML");
    let config: Config = document.deserialize().expect("a configuration");
    let known = |port| config.proxy.port_maps.known_to_clients(port);
    assert_eq!((known(8000), known(8443), known(9000)), (80, 443, 9000));
    for wrong in ["80", "80:0", "a:b", "80:8000:1"] {
        let told = refused(&format!("proxy: {{port_maps: ['{wrong}']}}\n"));
        assert!(told.contains("is not PORT:PORT"), "{told}");
    }
}

#[test]
fn an_open_admin_listener_without_token_is_refused() {
    let message = refused("admin:\n  listen: 0.0.0.0:8001\n");
    assert!(message.starts_with("d.yaml:2: admin.listen: "), "{message}");
    let message = refused("admin:\n  listen: 0.0.0.0:8001\n  token: short\n");
    assert!(message.starts_with("d.yaml:3: admin.token: "), "{message}");
}

#[test]
fn all_that_is_wrong_is_told_by_lines() {
    let text = "proxy:\n  listen: [\"nowhere\"]\n  head_seconds: 0\nadmin:\n  \
                listen: 0.0.0.0:8001\nstore: x\n";
    let told = refused(text);
    let keys = told.lines().filter_map(|line| line.split(' ').nth(1));
    let keys: Vec<_> = keys.collect();
    let wanted = [
        "proxy.listen[0]:",
        "proxy.head_seconds:",
        "admin.listen:",
        "store:",
    ];
    assert_eq!(keys, wanted, "{told}");
}

#[test]
fn relative_paths_begin_at_the_file_that_names_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let conf = directory.path().join("conf");
    std::fs::create_dir(&conf).expect("a directory");
    let file = conf.join("d.yaml");
    let text = "entities: [routes.yaml, /srv/a.yaml]\nstore: sqlite:../data/x.db\n\
                proxy: {upstream_ca: tls/ca.pem}\naudit: {file: audit.log}\n\
                telemetry: {access_log: stdout}\n\
                identity: {base_url: 'http://h', pages: {theme: theme}}\n";
    let mut document = Document::parse(text, &file).expect("YAML");
    assert!(relocate(&mut document).is_empty());
    let config: Config = document.deserialize().expect("a configuration");
    assert_eq!(
        config.entities,
        [conf.join("routes.yaml"), "/srv/a.yaml".into()]
    );
    let store = format!("sqlite:{}", conf.join("../data/x.db").display());
    assert_eq!(config.store.0, store);
    assert_eq!(config.proxy.upstream_ca, Some(conf.join("tls/ca.pem")));
    assert_eq!(config.audit.file, Some(conf.join("audit.log")));
    assert_eq!(config.telemetry.access_log.to, "stdout");
    let identity = config.identity.expect("a provider");
    assert_eq!(identity.pages.theme, Some(conf.join("theme")));
    for (setting, expected) in [
        (
            "access.log".to_owned(),
            conf.join("access.log").display().to_string(),
        ),
        (
            "syslog:run/log".to_owned(),
            format!("syslog:{}", conf.join("run/log").display()),
        ),
        ("journal:/run/j".to_owned(), "journal:/run/j".to_owned()),
        ("journal".to_owned(), "journal".to_owned()),
        ("off".to_owned(), "off".to_owned()),
    ] {
        for text in [
            format!("telemetry: {{access_log: '{setting}'}}\n"),
            format!("telemetry: {{access_log: {{to: '{setting}'}}}}\n"),
        ] {
            let mut document = Document::parse(&text, &file).expect("YAML");
            assert!(relocate(&mut document).is_empty());
            let config: Config = document.deserialize().expect("a configuration");
            assert_eq!(config.telemetry.access_log.to, expected);
        }
    }
    // The directory of the tests is that of the repository.
    let text = "entities: [Cargo.toml]\n";
    let mut document = Document::parse(text, &file).expect("YAML");
    let warnings = relocate(&mut document);
    let told = format!(
        "{}:1: entities[0]: Cargo.toml is taken from",
        file.display()
    );
    assert!(warnings[0].starts_with(&told), "{warnings:?}");
    assert!(warnings[0].contains("working directory"), "{warnings:?}");
    assert_eq!(document.value()["entities"][0], "Cargo.toml");
}

#[test]
fn what_the_edge_can_not_do_is_refused_by_key() {
    let tls = "proxy:\n  tls: {}\n";
    for (text, expected) in [
        (
            "proxy:\n  https_redirect: true\n",
            "d.yaml:2: proxy.https_redirect: has no effect",
        ),
        (
            "proxy:\n  hsts: {}\n",
            "d.yaml:2: proxy.hsts: has no effect",
        ),
        (
            &format!("{tls}  https_redirect: 303\n"),
            "d.yaml:3: proxy.https_redirect: 303 is none of true, false, 301",
        ),
        (
            &format!("{tls}  https_redirect: yes please\n"),
            "d.yaml:3: proxy.https_redirect: expected true, false, 301",
        ),
        (
            &format!("{tls}  hsts: {{preload: true}}\n"),
            "d.yaml:3: proxy.hsts.preload: needs include_subdomains",
        ),
        (
            &format!("{tls}  health: {{live: up}}\n"),
            "d.yaml:3: proxy.health.live: expected a path",
        ),
        (
            &format!("{tls}  health: {{alive: /up}}\n"),
            "d.yaml:3: proxy.health: unknown field `alive`, expected `live` or `ready`",
        ),
        (
            "proxy:\n  tls: {curves: [p521]}\n",
            "d.yaml:2: proxy.tls.curves[0]: 'p521' is none of X25519MLKEM768",
        ),
    ] {
        let refused = refused(text);
        assert!(refused.starts_with(expected), "{refused}\n{expected}");
    }
    let good = format!("{tls}  https_redirect: 301\n  hsts: {{max_age: 300}}\n  health: true\n");
    assert_eq!(refused(&good), "");
    assert_eq!(
        refused("proxy:\n  trusted_ips: [10.0.0.0/8]\n  https_redirect: true\n"),
        ""
    );
}

#[test]
fn who_signs_in_at_the_console_is_told_in_full() {
    let with = |console: &str| {
        refused(&format!(
            "admin:\n  token: 0123456789abcdef\n  console:\n    {console}\nidentity: {{}}\n"
        ))
    };
    assert_eq!(with("roles: {owner: [admins]}"), "");
    let unknown = with("rolls: {}");
    assert!(
        unknown.starts_with("d.yaml:4: admin.console.rolls: unknown field"),
        "{unknown}"
    );
    assert!(unknown.ends_with("did you mean `roles`?"), "{unknown}");
    let unknown = with("roles: {admins: [a]}");
    assert!(
        unknown.starts_with("d.yaml:4: admin.console.roles.admins: unknown field"),
        "{unknown}"
    );
    assert_eq!(
        with("address: admin.example"),
        "d.yaml:4: admin.console.address: expected an origin such as https://admin.example\n\
         d.yaml:4: admin.console.address: has no effect without admin.console.roles"
    );
    assert_eq!(
        with("token: false"),
        "d.yaml:4: admin.console.token: needs admin.console.roles: nobody could sign in"
    );
    let open = refused("admin: {console: {roles: {owner: [a]}}}\nidentity: {}\n");
    assert!(
        open.starts_with("d.yaml:1: admin.console.roles: needs admin.token"),
        "{open}"
    );
    let text = refused("admin:\n  console: perhaps\n");
    assert!(
        text.contains("admin.console") && text.contains("true, false, or a mapping"),
        "{text}"
    );
}
