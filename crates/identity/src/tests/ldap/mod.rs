//! Passwords that a directory knows.

mod server;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use self::server::{DirectoryRequest, Server};
use crate::records::new_user;
use crate::testing::{Provider, config, request};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::reset::StoredReset;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;

async fn provider(server: &Server, change: Value) -> Provider {
    Provider::with(config_of(server, change)).await
}

fn config_of(server: &Server, change: Value) -> Value {
    let mut ldap = json!({
        "urls": [server.url], "base_dn": "dc=x", "filter": "(uid={name})",
        "bind_dn": "cn=door,dc=x", "bind_password": "service secret",
        "id_attribute": "entryUUID", "create": true,
    });
    for (name, value) in change.as_object().expect("an object") {
        ldap[name] = value.clone();
    }
    let mut config = config();
    config["realms"]["/"]["settings"] = json!({"ldap": ldap});
    config["lockout"] = json!({"failures": 3, "window": 300, "duration": 60});
    config
}

/// Signs in; gives the status.
async fn status(provider: &Provider, name: &str, password: &str) -> u16 {
    let headers = [
        ("x-service-username", name),
        ("x-service-password", password),
    ];
    let answer = provider
        .send(request("POST", "/json/authenticate", &headers, ""))
        .await;
    answer.status.as_u16()
}

async fn user(provider: &Provider, name: &str) -> Option<User> {
    provider.store.user_by_name("/", name).await.expect("read")
}

async fn add(provider: &Provider, record: Value, hash: Option<&str>) -> User {
    let record = record.as_object().cloned().expect("an object");
    let mut added = new_user("/", &record).expect("a user");
    added.password_hash = hash.map(Secret::new);
    provider
        .store
        .insert_user(&added, None)
        .await
        .expect("added");
    added
}

/// What a password is hashed to, as cheaply as tests hash.
fn hashed(password: &str) -> String {
    let config = crate::config::HashingConfig {
        memory_kib: 8,
        passes: 1,
        ..Default::default()
    };
    let hash = crate::hash_blocking(&Secret::new(password), &config);
    hash.expect("a hash").expose().to_owned()
}

#[tokio::test]
async fn a_user_of_the_directory_signs_in_and_is_made() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({})).await;
    assert_eq!(status(&provider, "ANN", "her secret").await, 200);
    let ann = user(&provider, "ann").await.expect("a user");
    assert_eq!(ann.user_name, "ann", "as the directory spells it");
    assert_eq!(ann.profile["name"]["familyName"], "Sur");
    assert_eq!(
        ann.profile["emails"],
        json!([{"value": "ann@x.example", "primary": true, "verified": false}])
    );
    assert!(ann.password_hash.is_none());
    assert_eq!(
        server.asked(),
        [
            DirectoryRequest::Bind("cn=door,dc=x".into(), "service secret".into()),
            DirectoryRequest::Search("dc=x".into(), "ANN".into()),
            DirectoryRequest::Bind("uid=ann,ou=people,dc=x".into(), "her secret".into()),
        ]
    );
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
    let links = provider.store.identities(ann.id).await.expect("links");
    assert_eq!(
        (&*links[0].issuer, &*links[0].subject),
        ("ldap:ldap", "ann")
    );
    let body = "grant_type=password&client_id=app&client_secret=app-secret&username=ann\
                &password=her+secret&scope=openid";
    assert_eq!(provider.token(body).await.status, 200);
}

#[tokio::test]
async fn unauthenticated_bind_with_an_empty_password() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({})).await;
    let body = "grant_type=password&client_id=app&client_secret=app-secret&scope=openid&username=ann&password=";
    assert_ne!(provider.token(body).await.status, 200);
    assert_ne!(status(&provider, "ann", "").await, 200);
    let Some(directory) = provider
        .identity
        .state
        .live()
        .realm("/")
        .expect("/")
        .directory()
        .cloned()
    else {
        panic!("there is a directory");
    };
    let verdict = directory.entry("ann", &Secret::new(""), 1).await;
    assert_eq!(verdict.expect("a verdict"), None);
    let empty = |asked: &DirectoryRequest| matches!(asked, DirectoryRequest::Bind(_, password) if password.is_empty());
    assert!(!server.asked().iter().any(empty));
    assert!(user(&provider, "ann").await.is_none());
}

#[tokio::test]
async fn filter_injection_finds_nobody() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({})).await;
    for name in [
        "*",
        "a*",
        "*)(uid=*",
        "ann)(objectClass=*",
        "ann)(|(uid=*",
        "x)(uid=ann",
    ] {
        assert_eq!(status(&provider, name, "her secret").await, 401, "{name}");
        let search = server
            .asked()
            .into_iter()
            .rev()
            .find_map(|asked| match asked {
                DirectoryRequest::Search(_, value) => Some(value),
                DirectoryRequest::Bind(..) => None,
            });
        assert_eq!(
            search.as_deref(),
            Some(name),
            "it is one value of one filter"
        );
    }
}

#[tokio::test]
async fn name_injection_stays_within_the_name() {
    let server = Server::open().await;
    server.hold("uid=admin,dc=x", "her secret", &[("uid", "admin")]);
    let change = json!({"user_dn": "uid={name},ou=people,dc=x", "base_dn": null, "bind_dn": null,
        "bind_password": null, "id_attribute": null});
    let provider = provider(&server, change).await;
    server.person("ann", "her secret");
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
    assert_eq!(status(&provider, "admin,dc=x", "her secret").await, 401);
    let bound = server.asked().pop().expect("a bind");
    let dn = r"uid=admin\2cdc\3dx,ou=people,dc=x";
    assert_eq!(
        bound,
        DirectoryRequest::Bind(dn.into(), "her secret".into())
    );
}

#[tokio::test]
async fn wrong_passwords_and_unknown_names_are_answered_alike_and_counted() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({})).await;
    let answer = async |name: &str| {
        let headers = [
            ("x-service-username", name),
            ("x-service-password", "wrong"),
        ];
        let answer = provider
            .send(request("POST", "/json/authenticate", &headers, ""))
            .await;
        (answer.status.as_u16(), answer.text)
    };
    assert_eq!(answer("ann").await, answer("nobody").await);
    let binds = |asked: &[DirectoryRequest]| {
        asked
            .iter()
            .filter(|a| matches!(a, DirectoryRequest::Bind(..)))
            .count()
    };
    assert_eq!(
        binds(&server.asked()),
        4,
        "each costs a search and two binds"
    );
    for _ in 0..2 {
        answer("ann").await;
    }
    server.forget();
    assert_eq!(status(&provider, "ann", "her secret").await, 401, "locked");
    assert_eq!(server.asked(), [], "a locked name is not asked about");
}

#[tokio::test]
async fn a_directory_that_is_down_is_a_fault_and_no_wrong_password() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({"timeout": 1})).await;
    server.busy.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(status(&provider, "ann", "her secret").await, 503);
    }
    server.busy.store(false, Ordering::SeqCst);
    server.dumb.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(status(&provider, "ann", "wrong").await, 503);
    }
    let body = "grant_type=password&client_id=app&client_secret=app-secret&username=ann&password=x&scope=openid";
    let told = provider.token(body).await;
    assert_eq!(
        (told.status.as_u16(), told.header("retry-after")),
        (503, "1")
    );
    // Others sign in as ever.
    assert_eq!(status(&provider, "demo", "correct horse").await, 200);
    server.dumb.store(false, Ordering::SeqCst);
    provider.clock.advance(2_000);
    assert_eq!(
        status(&provider, "ann", "her secret").await,
        200,
        "nothing was counted"
    );
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_is_gone() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let gone = gone.local_addr().expect("an address");
    let urls = json!([format!("ldap://{gone}"), server.url]);
    let provider = provider(&server, json!({"urls": urls})).await;
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
}

#[tokio::test]
async fn a_wrong_service_account_is_a_fault() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({"bind_password": "other"})).await;
    assert_eq!(status(&provider, "ann", "her secret").await, 503);
}

#[tokio::test]
async fn referrals_are_not_followed() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({})).await;
    server.refers.store(true, Ordering::SeqCst);
    assert_eq!(status(&provider, "ann", "her secret").await, 401);
}

#[tokio::test]
async fn users_with_a_password_here_are_not_shadowed() {
    let server = Server::open().await;
    server.person("local", "directory secret");
    server.person("demo", "directory secret");
    for over in [false, true] {
        let provider = provider(&server, json!({"over_local": over, "link_existing": true})).await;
        let hash = hashed("local secret");
        add(&provider, json!({"userName": "local"}), Some(&hash)).await;
        let (here, there) = if over { (401, 200) } else { (200, 401) };
        assert_eq!(status(&provider, "local", "local secret").await, here);
        assert_eq!(status(&provider, "local", "directory secret").await, there);
        // The file's users are the file's.
        assert_eq!(status(&provider, "demo", "directory secret").await, 401);
        assert_eq!(status(&provider, "demo", "correct horse").await, 200);
    }
}

#[tokio::test]
async fn links_for_new_passwords_are_for_passwords_that_are_known_here() {
    let server = Server::open().await;
    for over in [false, true] {
        let ldap = json!({"over_local": over, "link_existing": true});
        let mut config = config_of(&server, ldap);
        config["mail"] = json!({"webhook": {
            "url": "http://127.0.0.1:1/", "secret": "sixteen-bytes-or-more"}});
        let provider = Provider::with(config).await;
        let hash = hashed("local secret");
        let local = add(&provider, json!({"userName": "local"}), Some(&hash)).await;
        let reset = StoredReset {
            hash: TokenHash::of("a-token"),
            realm: "/".to_owned(),
            user_id: local.id,
            bound: StoredReset::bound_to(local.password_hash.as_ref()),
            expires_ms: i64::MAX,
        };
        provider
            .store
            .insert_reset(&reset, 3, None)
            .await
            .expect("kept");
        let page = provider.get("/oauth2/password/reset?token=a-token").await;
        let body = "doorward_token=a-token&password=vexing+kelp&again=vexing+kelp";
        let chosen = provider.form("/oauth2/password/reset", body).await;
        let told = if over { 400 } else { 200 };
        assert_eq!((page.status.as_u16(), chosen.status.as_u16()), (told, told));
    }
}

#[tokio::test]
async fn users_without_a_password_are_the_directorys_only_if_that_is_said() {
    let server = Server::open().await;
    server.person("bert", "his secret");
    for link in [false, true] {
        let provider = provider(&server, json!({"link_existing": link})).await;
        add(&provider, json!({"userName": "bert"}), None).await;
        let told = status(&provider, "bert", "his secret").await;
        assert_eq!(told, if link { 200 } else { 401 });
    }
}

#[tokio::test]
async fn takeover_by_another_entry_of_the_same_name() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({"link_existing": true})).await;
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
    // She leaves, and somebody else is called so.
    let attributes = [("uid", "ann"), ("entryUUID", "another")];
    server.hold("uid=ann,ou=people,dc=x", "his secret", &attributes);
    assert_eq!(status(&provider, "ann", "his secret").await, 401);
}

#[tokio::test]
async fn an_entry_that_is_found_by_another_name_is_not_let_in() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({"filter": "(mail={name})"})).await;
    assert_eq!(status(&provider, "ann@x.example", "her secret").await, 401);
    assert!(user(&provider, "ann").await.is_none());
}

#[tokio::test]
async fn the_administrator_and_deactivated_users_are_not_let_in() {
    let server = Server::open().await;
    server.person("amadmin", "her secret");
    server.person("ann", "her secret");
    let provider = provider(&server, json!({})).await;
    assert_eq!(status(&provider, "amadmin", "her secret").await, 401);
    assert!(user(&provider, "amadmin").await.is_none());
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
    let ann = user(&provider, "ann").await.expect("ann");
    let off = User {
        active: false,
        version: ann.version + 1,
        ..ann
    };
    provider
        .store
        .update_user(&off, None)
        .await
        .expect("deactivated");
    assert_eq!(status(&provider, "ann", "her secret").await, 401);
}

#[tokio::test]
async fn nobody_is_made_unless_that_is_said() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({"create": false})).await;
    assert_eq!(status(&provider, "ann", "her secret").await, 401);
    assert!(user(&provider, "ann").await.is_none());
}

#[tokio::test]
async fn attributes_follow_the_directory_if_told() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let provider = provider(&server, json!({"update": true, "trust_email": true})).await;
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
    let attributes = [
        ("uid", "ann"),
        ("entryUUID", "ann"),
        ("mail", "new@x.example"),
    ];
    server.hold("uid=ann,ou=people,dc=x", "her secret", &attributes);
    assert_eq!(status(&provider, "ann", "her secret").await, 200);
    let ann = user(&provider, "ann").await.expect("ann");
    let email = json!([{"value": "new@x.example", "primary": true, "verified": true}]);
    assert_eq!(ann.profile["emails"], email);
}

#[test]
fn what_a_directory_cannot_be_is_named() {
    let refused = |change: Value| {
        let mut ldap = json!({"urls": ["ldaps://dc.example"], "base_dn": "dc=x"});
        for (name, value) in change.as_object().expect("an object") {
            ldap[name] = value.clone();
        }
        let mut config = config();
        config["realms"]["/"]["settings"] = json!({"ldap": ldap});
        let config = serde_json::from_value(config).expect("a configuration");
        crate::Identity::check(config).map_err(|error| error.to_string())
    };
    assert_eq!(refused(json!({})), Ok(()));
    for (change, told) in [
        (json!({"urls": []}), "ldap.urls: must have from 1"),
        (json!({"urls": ["http://x"]}), "ldap.urls[0]: must be"),
        (
            json!({"urls": ["ldap://x/dc=x??sub"]}),
            "ldap.urls[0]: must be",
        ),
        (json!({"urls": ["ldapi://x"]}), "ldap.urls[0]: must be"),
        (json!({"starttls": true}), "ldap.starttls: is for ldap://"),
        (
            json!({"bind_dn": "cn=a"}),
            "ldap.bind_password: is required",
        ),
        (
            json!({"bind_dn": "cn=a", "bind_password": ""}),
            "ldap.bind_password: is empty",
        ),
        (json!({"base_dn": null}), "ldap.base_dn: or user_dn"),
        (
            json!({"filter": "(uid=ann)"}),
            "ldap.filter: must have {name}",
        ),
        (
            json!({"filter": "uid={name}"}),
            "ldap.filter: must be a filter",
        ),
        (json!({"timeout": 0}), "ldap.timeout: must be"),
        (
            json!({"ca_file": "/nowhere.pem"}),
            "ldap.ca_file: /nowhere.pem",
        ),
        (
            json!({"id_attribute": "a)(b"}),
            "ldap.id_attribute: must name",
        ),
        (json!({"map": {"userName": "uid"}}), "map.userName"),
    ] {
        let error = refused(change.clone()).expect_err("refused");
        assert!(error.contains(told), "{change}: {error}");
    }
}

#[tokio::test]
async fn a_test_of_the_directory_binds_and_searches_as_a_sign_in_does() {
    let server = Server::open().await;
    server.person("ann", "her secret");
    let with = provider(&server, json!({"starttls": false})).await;
    let test = async |body: Value| {
        let answer = with.manage("POST", "/probes/ldap", &body).await;
        assert_eq!(answer.status.as_u16(), 200);
        let body = answer.json();
        let message = body["findings"][0]["message"].as_str().expect("a text");
        (body["ok"] == true, message.to_owned())
    };
    let (ok, told) = test(json!({"name": "ann"})).await;
    assert!(ok && told.contains("uid=ann,ou=people,dc=x"), "{told}");
    assert!(server.asked().contains(&DirectoryRequest::Bind(
        "cn=door,dc=x".to_owned(),
        "service secret".to_owned()
    )));
    let (ok, told) = test(json!({"name": "nobody"})).await;
    assert!(ok && told.contains("no single entry for nobody"), "{told}");
    let (ok, told) = test(json!({})).await;
    assert!(ok && told.contains("answers a search"), "{told}");
    server.hold("cn=door,dc=x", "another secret", &[]);
    let (ok, told) = test(json!({})).await;
    assert!(!ok && told.contains("refuses bind_dn"), "{told}");
    server.dumb.store(true, Ordering::SeqCst);
    let (ok, _) = test(json!({})).await;
    assert!(!ok);
}
