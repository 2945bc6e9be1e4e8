//! What happens when a password becomes another one.

use serde_json::{Value, json};

use crate::config::HashingConfig;
use crate::context::Methods;
use crate::login::login;
use crate::sessions;
use crate::sign_in::Proof;
use crate::testing::{Answer, PASSWORD_GRANT, Provider, call, config, request};
use doorward_core::model::secret::Secret;
use doorward_core::model::session::SessionQuery;
use doorward_core::model::user::name_place::SignInName;

async fn sign_in(provider: &Provider, name: &str, password: &str) -> Answer {
    let headers = [
        ("x-service-username", name),
        ("x-service-password", password),
    ];
    let request = request("POST", "/json/authenticate", &headers, "");
    provider.send(request).await
}

/// A session and a refresh token of `demo`.
async fn logins(provider: &Provider) -> (String, String) {
    let session = sign_in(provider, "demo", "correct horse").await.json();
    let tokens = provider.user_tokens("openid").await;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&session["tokenId"]), text(&tokens["refresh_token"]))
}

async fn session_is_valid(provider: &Provider, session: &str) -> bool {
    let headers = [("iplanetdirectorypro", session)];
    let path = "/json/sessions?_action=validate";
    let answer = provider.send(request("POST", path, &headers, "")).await;
    answer.json()["valid"] == json!(true)
}

async fn refreshes(provider: &Provider, token: &str) -> bool {
    let body = format!(
        "grant_type=refresh_token&client_id=app&client_secret=app-secret&refresh_token={token}"
    );
    provider.token(&body).await.status == 200
}

fn with_password(password: Value) -> Value {
    let mut config = config();
    config["realms"]["/"]["users"][0]["password"] = password;
    config
}

#[tokio::test]
async fn a_password_changed_in_the_file_ends_sessions_and_refresh_tokens() {
    for password in [json!("battery staple"), Value::Null] {
        let provider = Provider::new().await;
        let (session, refresh) = logins(&provider).await;
        provider.reload(with_password(password)).await;
        assert!(!session_is_valid(&provider, &session).await);
        assert!(!refreshes(&provider, &refresh).await);
    }
}

#[tokio::test]
async fn a_password_changed_while_the_process_was_down_ends_them_too() {
    let provider = Provider::new().await;
    let (session, refresh) = logins(&provider).await;
    let provider = provider
        .restarted(with_password(json!("battery staple")))
        .await;
    assert!(!refreshes(&provider, &refresh).await);
    assert!(!session_is_valid(&provider, &session).await);
    let new = sign_in(&provider, "demo", "battery staple").await;
    assert_eq!(new.status, 200);
    assert_eq!(
        sign_in(&provider, "demo", "correct horse").await.status,
        401
    );
}

#[tokio::test]
async fn a_password_that_stays_ends_nothing() {
    let provider = Provider::new().await;
    let (session, refresh) = logins(&provider).await;
    let mut other = config();
    other["realms"]["/"]["users"][1]["password"] = json!("battery staple");
    provider.reload(other.clone()).await;
    assert!(session_is_valid(&provider, &session).await);
    // Not even when passwords are hashed at another cost.
    other["hashing"] = json!({"memory_kib": 16, "passes": 2});
    let provider = provider.restarted(other).await;
    assert!(session_is_valid(&provider, &session).await);
    assert!(refreshes(&provider, &refresh).await);
}

/// A user of the store, with this password.
async fn carol(provider: &Provider, password: &str) {
    let record = json!({"userName": "carol", "displayName": "Carol Singer"});
    let record = record.as_object().expect("an object");
    let mut carol = crate::new_user("/", record).expect("a user");
    let cheap = HashingConfig {
        memory_kib: 8,
        passes: 1,
        ..HashingConfig::default()
    };
    let hash = crate::hash_blocking(&Secret::new(password), &cheap);
    carol.password_hash = Some(hash.expect("a hash"));
    provider
        .store
        .insert_user(&carol, None)
        .await
        .expect("inserted");
}

async fn change(provider: &Provider, session: &str, who: &str, body: &Value) -> Answer {
    let headers = [
        ("iplanetdirectorypro", session),
        ("content-type", "application/json"),
    ];
    let path = format!("/json/users/{who}?_action=changePassword");
    let request = request("POST", &path, &headers, &body.to_string());
    provider.send(request).await
}

#[tokio::test]
async fn who_changes_the_password_goes_on_and_every_other_session_ends() {
    let provider = Provider::new().await;
    carol(&provider, "correct horse").await;
    let begun = async || {
        let session = sign_in(&provider, "carol", "correct horse").await.json();
        session["tokenId"].as_str().expect("a session").to_owned()
    };
    let (own, other) = (begun().await, begun().await);
    let grant = PASSWORD_GRANT.replace("demo", "carol") + "&scope=openid";
    let tokens = provider.token(&grant).await.json();
    let body = json!({"currentpassword": "correct horse", "userpassword": "vexing kelp"});
    let answer = change(&provider, &own, "CAROL", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let new = answer.json()["tokenId"].as_str().map(str::to_owned);
    assert!(session_is_valid(&provider, &new.expect("a session")).await);
    for ended in [own, other] {
        assert!(!session_is_valid(&provider, &ended).await);
    }
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    assert!(!refreshes(&provider, refresh).await);
    assert_eq!(sign_in(&provider, "carol", "vexing kelp").await.status, 200);
    let old = sign_in(&provider, "carol", "correct horse").await;
    assert_eq!(old.status, 401);
}

#[tokio::test]
async fn a_password_is_changed_by_its_user_with_the_old_one_within_the_rules() {
    let provider = Provider::new().await;
    carol(&provider, "correct horse").await;
    let session = sign_in(&provider, "carol", "correct horse").await.json();
    let session = session["tokenId"].as_str().expect("a session");
    let body = |current: &str, new: &str| json!({"currentpassword": current, "userpassword": new});
    let right = body("correct horse", "vexing kelp");
    let wrong = body("wrong horse", "vexing kelp");
    let short = body("correct horse", "kelp");
    let own = body("correct horse", "CAROL SINGER");
    let huge = body("correct horse", &"k".repeat(50_000));
    let empty = json!({});
    for (session, who, body, status) in [
        ("", "carol", &right, 401),
        (session, "demo", &right, 403),
        (session, "carol", &wrong, 403),
        (session, "carol", &short, 400),
        (session, "carol", &own, 400),
        (session, "carol", &huge, 400),
        (session, "carol", &empty, 400),
    ] {
        let answer = change(&provider, session, who, body).await;
        assert_eq!(answer.status, status, "{who} {}", answer.text);
        assert!(!answer.text.contains("kelp"), "{}", answer.text);
    }
    assert!(session_is_valid(&provider, session).await);
    let (declared, _) = logins(&provider).await;
    let answer = change(&provider, &declared, "demo", &right).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
}

#[tokio::test]
async fn a_hash_of_another_cost_is_made_anew_at_the_next_login() {
    let provider = Provider::new().await;
    let record = json!({"userName": "carol"});
    let record = record.as_object().expect("an object");
    let mut carol = crate::new_user("/", record).expect("a user");
    let old = HashingConfig {
        memory_kib: 64,
        ..HashingConfig::default()
    };
    let hash = crate::hash_blocking(&Secret::new("correct horse"), &old);
    carol.password_hash = Some(hash.expect("a hash"));
    provider
        .store
        .insert_user(&carol, None)
        .await
        .expect("inserted");
    let cost = async || {
        let carol = provider.store.user_by_name("/", "carol").await;
        let carol = carol.expect("a store").expect("a user");
        let hash = carol.password_hash.expect("a hash");
        hash.expose().split('$').nth(3).map(str::to_owned)
    };
    let headers = [
        ("x-service-username", "carol"),
        ("x-service-password", "correct horse"),
    ];
    let sign_in = async |password: &str| {
        let mut headers = headers;
        headers[1].1 = password;
        let request = request("POST", "/json/authenticate", &headers, "");
        provider.send(request).await
    };
    assert_eq!(sign_in("wrong").await.status, 401);
    assert_eq!(cost().await.as_deref(), Some("m=64,t=2,p=1"));
    let session = sign_in("correct horse").await.json();
    assert_eq!(cost().await.as_deref(), Some("m=8,t=1,p=1"));
    let session = session["tokenId"].as_str().expect("a session");
    assert!(session_is_valid(&provider, session).await);
    assert_eq!(sign_in("correct horse").await.status, 200);
    let grant = PASSWORD_GRANT.replace("demo", "carol") + "&scope=openid";
    assert_eq!(provider.token(&grant).await.status, 200);
}

#[tokio::test]
async fn a_hash_from_elsewhere_becomes_our_own_at_the_first_sign_in() {
    let provider = Provider::new().await;
    let record = json!({"userName": "dora"});
    let record = record.as_object().expect("an object");
    let mut dora = crate::new_user("/", record).expect("a user");
    let foreign =
        "$pbkdf2-sha256$1000$UMqZM6Z0ztnbO.e8V6p1zg$QQEVH0IfC40XRiKjo6f22nrLH.LWLVXaV/tw9FCcPkE";
    dora.password_hash = Some(Secret::new(foreign));
    provider
        .store
        .insert_user(&dora, None)
        .await
        .expect("inserted");
    let hash = async || {
        let dora = provider.store.user_by_name("/", "dora").await;
        let dora = dora.expect("a store").expect("a user");
        dora.password_hash.expect("a hash").expose().to_owned()
    };
    // What headers carry beyond ASCII is encoded.
    let right = "=?UTF-8?B?Y29ycmVjdCBob3JzZSDDnw==?=";
    assert_eq!(
        sign_in(&provider, "dora", "correct horse").await.status,
        401
    );
    assert_eq!(hash().await, foreign);
    assert_eq!(sign_in(&provider, "dora", right).await.status, 200);
    assert!(hash().await.starts_with("$argon2id$v=19$m=8,t=1,p=1$"));
    assert_eq!(sign_in(&provider, "dora", right).await.status, 200);
    assert_eq!(
        sign_in(&provider, "dora", "correct horse").await.status,
        401
    );
}

/// A call of nobody's to the top-level realm.

#[tokio::test]
async fn a_sign_in_that_races_with_another_password_leaves_nothing_behind() {
    for how in ["password", "deactivated"] {
        let provider = Provider::new().await;
        let call = call(&provider);
        let checked = login(&call, &SignInName::signed("demo"), "correct horse").await;
        let mut demo = checked.expect("the right password");
        match how {
            "password" => {
                let other = with_password(json!("battery staple"));
                provider.reload(other).await;
            }
            _ => {
                (demo.version, demo.active) = (demo.version + 1, false);
                let updated = provider.store.update_user(&demo, None).await;
                updated.expect("updated");
                demo.version -= 1;
            }
        }
        let proof = Proof::now(&call, Methods::password());
        let begun = sessions::begin(&call, &demo, &proof)
            .await
            .expect("an answer");
        assert_eq!(begun, None, "{how}");
        let all = SessionQuery::default();
        let left = provider.store.sessions(&all, None, 9).await;
        assert!(left.expect("a page").sessions.is_empty(), "{how}");
    }
}
