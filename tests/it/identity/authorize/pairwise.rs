//! Pairwise subjects (OpenID Connect Core §8): clients of different sectors know
//! a user by different names, and everything that one client is told agrees.

use serde_json::{Value, json};

use super::browser::Browser;
use super::{VERIFIER, exchange_as, path, told, trusted, with};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Door, Reply, Setup, Upstream, eventually};

/// A door with the clients `one` and `two` of sector `shop.example`, `alone` of
/// another one, and `public`; `one` listens at `uri`.
async fn door(uri: &str) -> Door {
    let client = |id: &str, callback: &str, more: &str| {
        format!(
            "
        - client_id: {id}
          client_secret: {id}-secret-of-more-than-32-characters
          grant_types: [authorization_code, refresh_token, password, \"urn:ietf:params:oauth:grant-type:token-exchange\"]
          response_types: [code, id_token]
          redirect_uris: [\"{callback}\"]
          require_consent: false
          scope: openid profile
          {more}"
        )
    };
    let pairwise = "subject_type: pairwise";
    let section = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - {{userName: demo, password: Ch4ng31t-demo}}
        - {{userName: alice, password: Ch4ng31t-alice}}
      clients:{}{}{}{}",
        client(
            "one",
            "https://shop.example/one",
            &format!(
                "{pairwise}\n          audiences: [alone]\n          backchannel_logout_uri: {uri}"
            )
        ),
        client(
            "two",
            "https://two.example/two",
            &format!(
                "{pairwise}\n          sector_identifier_uri: https://shop.example/sector.json\n          access_token_format: opaque"
            )
        ),
        client("alone", "https://alone.example/alone", pairwise),
        client(
            "public",
            "https://public.example/public",
            "require_pkce: true"
        ),
    );
    Setup::new().identity(&section).start().await
}

fn callback(id: &str) -> String {
    let host = if id == "one" { "shop" } else { id };
    format!("https://{host}.example/{id}")
}

fn secret(id: &str) -> String {
    format!("{id}-secret-of-more-than-32-characters")
}

fn request(id: &'static str) -> std::collections::BTreeMap<&'static str, String> {
    let request = with(trusted(), "client_id", id);
    let request = with(request, "scope", "openid profile");
    with(request, "redirect_uri", &callback(id))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The tokens of a client, by code, for whoever is signed in.
async fn tokens(door: &Door, browser: &Browser<'_>, id: &'static str) -> Value {
    let callback = callback(id);
    let code = told(&browser.get(&path(&request(id))).await, &callback)["code"].clone();
    let answer = exchange_as(door, (id, &secret(id)), &code, &callback, VERIFIER).await;
    answer.expect(200).json()
}

async fn post(door: &Door, path: &str, id: &str, form: &[(&str, &str)]) -> Value {
    let secret = secret(id);
    let form = [&[("client_id", id), ("client_secret", &secret)], form].concat();
    let answer = send(client().post(door.proxy_url(path)).form(&form)).await;
    answer.expect(200).json()
}

async fn userinfo(door: &Door, token: &str) -> Value {
    let url = door.proxy_url("/oauth2/userinfo");
    let answer = send(client().get(url).bearer_auth(token)).await;
    answer.expect(200).json()
}

async fn signed_in<'d>(door: &'d Door, user: &str) -> Browser<'d> {
    let browser = Browser::new(door);
    let page = browser.get(&path(&request("public"))).await.expect(200);
    browser.sign_in(&page, user).await.expect(302);
    browser
}

#[tokio::test]
async fn all_that_a_client_is_told_names_the_user_alike() {
    let door = door("https://nobody.example/").await;
    let browser = signed_in(&door, "demo").await;
    let one = tokens(&door, &browser, "one").await;
    let sub = text(&claims_of(text(&one, "id_token")), "sub").to_owned();
    assert!(sub.len() == 22 && sub != "demo", "{sub}");
    let access = text(&one, "access_token");
    assert_eq!(claims_of(access)["sub"], sub);
    let info = userinfo(&door, access).await;
    assert_eq!(info["sub"], sub);
    assert_eq!(info["preferred_username"], "demo", "the scope allows it");
    for (name, token) in [("access", access), ("refresh", text(&one, "refresh_token"))] {
        let told = post(&door, "/oauth2/introspect", "one", &[("token", token)]).await;
        assert_eq!(told["active"], true, "{name}");
        for member in ["sub", "username", "user_id"] {
            assert_eq!(told[member], sub, "{name} {member}");
        }
    }
    let tokeninfo = format!("/oauth2/tokeninfo?access_token={access}");
    let tokeninfo = door.get("a.test", &tokeninfo).await.expect(200).json();
    assert_eq!(tokeninfo["sub"], sub);
    // By every grant.
    let refresh = [
        ("grant_type", "refresh_token"),
        ("refresh_token", text(&one, "refresh_token")),
    ];
    let refreshed = post(&door, "/oauth2/access_token", "one", &refresh).await;
    assert_eq!(claims_of(text(&refreshed, "id_token"))["sub"], sub);
    let password = [
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid"),
    ];
    let by_password = post(&door, "/oauth2/access_token", "one", &password).await;
    assert_eq!(claims_of(text(&by_password, "id_token"))["sub"], sub);
    // The front channel agrees with the back.
    let front = with(request("one"), "response_type", "id_token");
    let answer = told(&browser.get(&path(&front)).await, &callback("one"));
    assert_eq!(claims_of(&answer["id_token"])["sub"], sub);
    // Another user has another name.
    let other = signed_in(&door, "alice").await;
    let other = tokens(&door, &other, "one").await;
    assert_ne!(claims_of(text(&other, "id_token"))["sub"], sub);
}

#[tokio::test]
async fn names_are_the_sectors_and_survive_a_restart() {
    let mut door = door("https://nobody.example/").await;
    let subs = async |door: &Door| {
        let browser = signed_in(door, "demo").await;
        let mut subs = Vec::new();
        for id in ["one", "two", "alone", "public"] {
            let tokens = tokens(door, &browser, id).await;
            let sub = claims_of(text(&tokens, "id_token"))["sub"].clone();
            let info = userinfo(door, text(&tokens, "access_token")).await;
            assert_eq!(info["sub"], sub, "{id}");
            subs.push(sub);
        }
        subs
    };
    let before = subs(&door).await;
    assert_eq!(before[0], before[1], "one sector");
    assert_ne!(before[0], before[2]);
    assert_eq!(before[3], "demo");
    door.kill();
    door.start().await;
    assert_eq!(subs(&door).await, before);
    let metadata = "/oauth2/.well-known/openid-configuration";
    let metadata = door.get("a.test", metadata).await.json();
    assert_eq!(
        metadata["subject_types_supported"],
        json!(["public", "pairwise"])
    );
}

#[tokio::test]
async fn a_hint_by_the_clients_own_name_means_its_user() {
    let door = door("https://nobody.example/").await;
    let browser = signed_in(&door, "demo").await;
    let one = tokens(&door, &browser, "one").await;
    let hint = text(&one, "id_token").to_owned();
    let sub = text(&claims_of(&hint), "sub").to_owned();
    let silent = with(request("one"), "prompt", "none");
    let wish = |sub: &str| format!(r#"{{"id_token":{{"sub":{{"value":"{sub}"}}}}}}"#);
    let with_hint = path(&with(silent.clone(), "id_token_hint", &hint));
    let with_claim = path(&with(silent.clone(), "claims", &wish(&sub)));
    for path in [&with_hint, &with_claim] {
        let answer = told(&browser.get(path).await, &callback("one"));
        assert!(answer.contains_key("code"), "{answer:?}");
    }
    // What others call the user, and what nobody does, is somebody else.
    let alone = tokens(&door, &browser, "alone").await;
    let foreign = text(&claims_of(text(&alone, "id_token")), "sub").to_owned();
    for stranger in ["demo", &foreign, &"A".repeat(22)] {
        let path = path(&with(silent.clone(), "claims", &wish(stranger)));
        let answer = told(&browser.get(&path).await, &callback("one"));
        assert_eq!(answer["error"], "login_required", "{stranger}");
    }
    let other = signed_in(&door, "alice").await;
    for path in [&with_hint, &with_claim] {
        let answer = told(&other.get(path).await, &callback("one"));
        assert_eq!(answer["error"], "login_required");
    }
    // It signs its own user out, without being asked.
    let end = format!("/oauth2/connect/endSession?id_token_hint={hint}");
    browser.get(&end).await.expect(200);
    let answer = told(&browser.get(&with_hint).await, &callback("one"));
    assert_eq!(answer["error"], "login_required");
}

#[tokio::test]
async fn learning_a_pairwise_users_name_from_the_sign_in_form() {
    let door = door("https://nobody.example/").await;
    let browser = signed_in(&door, "demo").await;
    let one = tokens(&door, &browser, "one").await;
    let hint = text(&one, "id_token");
    let wish = format!(
        r#"{{"id_token":{{"sub":{{"value":"{}"}}}}}}"#,
        text(&claims_of(hint), "sub")
    );
    let stranger = Browser::new(&door);
    for request in [
        with(request("one"), "id_token_hint", hint),
        with(request("public"), "id_token_hint", hint),
        with(request("one"), "claims", &wish),
    ] {
        let page = stranger.get(&path(&request)).await.expect(200);
        assert!(page.body.contains("name=\"username\" value=\"\""));
        assert!(!page.body.contains("demo"), "{}", page.body);
    }
}

#[tokio::test]
async fn a_logout_token_names_the_user_as_its_client_does() {
    let listener = Upstream::start(|_| Reply::Json(200, json!({}))).await;
    let door = door(&listener.url("/logout")).await;
    let browser = signed_in(&door, "demo").await;
    let one = tokens(&door, &browser, "one").await;
    let hint = text(&one, "id_token");
    browser
        .get(&format!("/oauth2/connect/endSession?id_token_hint={hint}"))
        .await
        .expect(200);
    let seen = eventually("the client to be told", || {
        let seen = listener.seen().last().cloned();
        async move { seen }
    })
    .await;
    let mut fields = url::form_urlencoded::parse(&seen.body);
    let (_, token) = fields.next().expect("a field");
    assert_eq!(claims_of(&token)["sub"], claims_of(hint)["sub"]);
    // The end of the session ends its tokens, whatever they call the user.
    let path = format!(
        "/oauth2/tokeninfo?access_token={}",
        text(&one, "access_token")
    );
    door.get("a.test", &path).await.expect(401);
}

#[tokio::test]
async fn an_exchanged_token_has_the_name_that_its_new_client_knows() {
    let door = door("https://nobody.example/").await;
    let browser = signed_in(&door, "demo").await;
    let alone = tokens(&door, &browser, "alone").await;
    let one = tokens(&door, &browser, "one").await;
    let form = [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        ("subject_token", text(&alone, "access_token")),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:access_token",
        ),
    ];
    let exchanged = post(&door, "/oauth2/access_token", "one", &form).await;
    let sub = |tokens: &Value, name: &str| claims_of(text(tokens, name))["sub"].clone();
    assert_eq!(sub(&exchanged, "access_token"), sub(&one, "id_token"));
    assert_ne!(sub(&alone, "id_token"), sub(&one, "id_token"));
}
