//! What `sub` says of users: never of two (OpenID Connect Core §2).

use serde_json::{Value, json};

use super::{FOR_DEMO, with};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Answer, Door, Setup};

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      settings: {users_write_scope: "scim:write"@MORE@}
      clients:
        - client_id: orders
          client_secret: orders-secret
          grant_types: [client_credentials, password, refresh_token]
          scope: openid profile scim:write
        - client_id: anna
          client_secret: anna-secret
          grant_types: [client_credentials]
          scope: openid profile
"#;

async fn door(more: &str) -> Door {
    let identity = IDENTITY.replace("@MORE@", more);
    Setup::new().identity(&identity).start().await
}

async fn tokens(door: &Door, form: &[(&str, &str)]) -> Answer {
    send(
        client()
            .post(door.proxy_url("/oauth2/access_token"))
            .form(form),
    )
    .await
}

/// Tokens of the user of this name.
async fn signed_in(door: &Door, name: &str) -> Value {
    let form = with(FOR_DEMO, "username", name);
    let form = with(&form, "password", "Ch4ng31t-user");
    tokens(door, &form).await.expect(200).json()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().expect("a text")
}

fn subject(tokens: &Value) -> String {
    let access = claims_of(text(tokens, "access_token"));
    let id = claims_of(text(tokens, "id_token"));
    assert_eq!(access["sub"], id["sub"]);
    text(&access, "sub").to_owned()
}

async fn writer(door: &Door) -> String {
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("scope", "scim:write"),
    ];
    let answer = tokens(door, &form).await.expect(200).json();
    text(&answer, "access_token").to_owned()
}

async fn add(door: &Door, name: &str) -> String {
    let user = json!({"userName": name, "password": "Ch4ng31t-user"});
    let request = client().post(door.proxy_url("/scim/v2/Users")).json(&user);
    let answer = send(request.bearer_auth(writer(door).await)).await;
    text(&answer.expect(201).json(), "id").to_owned()
}

async fn delete(door: &Door, id: &str) {
    let request = client().delete(door.proxy_url(&format!("/scim/v2/Users/{id}")));
    send(request.bearer_auth(writer(door).await))
        .await
        .expect(204);
}

async fn introspect(door: &Door, token: &str) -> Value {
    let form = [
        ("token", token),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    let request = client()
        .post(door.proxy_url("/oauth2/introspect"))
        .form(&form);
    send(request).await.expect(200).json()
}

async fn userinfo(door: &Door, token: &str) -> Answer {
    let request = client().get(door.proxy_url("/oauth2/userinfo"));
    send(request.bearer_auth(token)).await
}

#[tokio::test]
async fn a_name_made_anew_gets_another_sub() {
    let mut door = door("").await;
    let old_id = add(&door, "anna").await;
    let old = signed_in(&door, "anna").await;
    assert_eq!(subject(&old), "anna");
    delete(&door, &old_id).await;
    let new_id = add(&door, "ANNA").await;
    let new = signed_in(&door, "anna").await;
    assert_eq!(subject(&new), new_id);
    // What the former user has says nothing of the new one, and is dead.
    let old_token = text(&old, "access_token");
    assert_eq!(introspect(&door, old_token).await["active"], false);
    userinfo(&door, old_token).await.expect(401);
    let refresh = [
        ("grant_type", "refresh_token"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("refresh_token", text(&old, "refresh_token")),
    ];
    tokens(&door, &refresh).await.expect(400);
    // And the new user's tokens are good everywhere, by that name.
    let new_token = text(&new, "access_token").to_owned();
    let told = userinfo(&door, &new_token).await.expect(200).json();
    assert_eq!(told["sub"], new_id.as_str());
    assert_eq!(told["preferred_username"], "ANNA");
    let told = introspect(&door, &new_token).await;
    assert_eq!(
        (&told["active"], &told["sub"]),
        (&json!(true), &json!(new_id))
    );
    // It outlives a restart, and a third user of the name.
    delete(&door, &new_id).await;
    door.kill();
    door.start().await;
    let third = add(&door, "anna").await;
    assert_eq!(subject(&signed_in(&door, "anna").await), third);
}

#[tokio::test]
async fn a_name_that_was_given_up_is_no_sub_of_another_user() {
    let door = door("").await;
    let first = add(&door, "anna").await;
    let rename = |id: String, name: &'static str| {
        let (door, body) = (&door, json!({"userName": name}));
        async move {
            let url = door.proxy_url(&format!("/scim/v2/Users/{id}"));
            let request = client().put(url).json(&body);
            send(request.bearer_auth(writer(door).await))
                .await
                .expect(200);
        }
    };
    rename(first.clone(), "berta").await;
    let second = add(&door, "anna").await;
    assert_eq!(subject(&signed_in(&door, "anna").await), second);
    // Whose it was may have it back.
    delete(&door, &second).await;
    rename(first.clone(), "anna").await;
    assert_eq!(subject(&signed_in(&door, "anna").await), "anna");
}

#[tokio::test]
async fn an_operator_releases_a_name() {
    let door = door("").await;
    let old = add(&door, "anna").await;
    delete(&door, &old).await;
    let new = add(&door, "anna").await;
    assert_eq!(subject(&signed_in(&door, "anna").await), new);
    let listed = door.admin_get("/identity/retired-names").await.expect(200);
    let listed = listed.json();
    assert_eq!(listed["data"][0]["name"], "anna");
    assert_eq!(listed["data"][0]["user"], old.as_str());
    let released = "/identity/retired-names?name=Anna";
    door.admin_delete(released).await.expect(204);
    door.admin_delete(released).await.expect(404);
    assert_eq!(subject(&signed_in(&door, "anna").await), "anna");
    // By the command line, too.
    delete(&door, &new).await;
    let listed = door.run(&["users", "retired", "-c", "doorward.yaml"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("anna") && listed.contains(&new), "{listed}");
    let added = [
        "users",
        "add",
        "anna",
        "--no-password",
        "-c",
        "doorward.yaml",
    ];
    let added = door.run(&added);
    let said = String::from_utf8_lossy(&added.stdout).into_owned();
    assert!(said.contains("another user had this name"), "{said}");
    let done = door.run(&["users", "release", "anna", "-c", "doorward.yaml"]);
    assert!(done.status.success(), "{done:?}");
    let again = door.run(&["users", "release", "anna", "-c", "doorward.yaml"]);
    assert!(!again.status.success());
}

#[tokio::test]
async fn a_realm_calls_its_users_by_identifier() {
    let door = door(", subject: id").await;
    let id = add(&door, "anna").await;
    let tokens = signed_in(&door, "anna").await;
    assert_eq!(subject(&tokens), id);
    let told = userinfo(&door, text(&tokens, "access_token")).await;
    assert_eq!(told.expect(200).json()["sub"], id.as_str());
}

#[tokio::test]
async fn a_name_that_looks_like_an_identifier_is_no_other_users_sub() {
    let door = door("").await;
    let victim = add(&door, "anna").await;
    let other = add(&door, &victim).await;
    assert_eq!(subject(&signed_in(&door, &victim).await), other);
}

#[tokio::test]
async fn a_client_with_the_name_of_a_user_does_not_pass_for_that_user() {
    let door = door("").await;
    add(&door, "anna").await;
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", "anna"),
        ("client_secret", "anna-secret"),
        ("scope", "openid profile"),
    ];
    let of_client = tokens(&door, &form).await.expect(200).json();
    let answer = userinfo(&door, text(&of_client, "access_token")).await;
    assert_eq!(answer.expect(401).json()["error"], "invalid_token");
    let hint = text(&of_client, "id_token");
    let path = format!("/oauth2/connect/endSession?id_token_hint={hint}");
    let request = client().get(door.proxy_url(&path));
    send(request).await.expect(400);
    // The user's own tokens are good.
    let of_user = signed_in(&door, "anna").await;
    userinfo(&door, text(&of_user, "access_token"))
        .await
        .expect(200);
}
