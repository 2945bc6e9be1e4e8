//! Resource indicators, assertions as grants, and token exchange.

use serde_json::{Value, json};

use super::assert_error;
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::{Answer, Door, Issuer, Setup};

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ACCESS: &str = "urn:ietf:params:oauth:token-type:access_token";

async fn door(issuer: &Issuer) -> Door {
    let section = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
      settings:
        resources: [\"https://open.example/mcp\"]
        trusted_issuers:
          - {{issuer: \"https://trusted.example\", jwks_uri: \"{url}/keys\"}}
      users:
        - {{userName: demo, password: Ch4ng31t-demo}}
        - {{userName: gone, password: Ch4ng31t-gone, accountStatus: Deactivated}}
      clients:
        - client_id: front
          client_secret: s
          grant_types: [client_credentials, password, refresh_token]
          scope: openid read write
          resources: [\"https://api.example/a\", \"https://api.example/b\", \"https://back.example/\"]
        - client_id: back
          client_secret: s
          grant_types: [client_credentials, {EXCHANGE}]
          scope: read more
          audiences: [\"https://back.example/\"]
          resources: [\"https://deep.example/\", deeper]
        - {{client_id: robot, client_secret: s, grant_types: [client_credentials], scope: read, resources: [back]}}
        - {{client_id: app, token_endpoint_auth_method: none, grant_types: [{EXCHANGE}], scope: read}}
        - {{client_id: narrow, client_secret: s, grant_types: [client_credentials, {EXCHANGE}], scope: read, resources: [\"https://api.example/a\", \"https://api.example/b\"]}}
        - client_id: signer
          token_endpoint_auth_method: private_key_jwt
          grant_types: [client_credentials, {BEARER}]
          scope: read
          jwks: {{keys: [{public}]}}
        - client_id: pinned
          client_secret: s
          token_endpoint_auth_signing_alg: PS256
          grant_types: [{BEARER}]
          scope: openid read
          jwks: {{keys: [{public}]}}
        - client_id: partner
          client_secret: s
          grant_types: [{BEARER}]
          scope: openid read
          jwks: {{keys: [{public}]}}
",
        url = issuer.url(),
        public = issuer.public_key(),
    );
    Setup::new().identity(&section).start().await
}

async fn ask(door: &Door, id: &str, form: &[(&str, &str)]) -> Answer {
    let mut all = vec![("client_id", id)];
    if id != "app" {
        all.push(("client_secret", "s"));
    }
    all.extend_from_slice(form);
    send(
        client()
            .post(door.proxy_url("/oauth2/access_token"))
            .form(&all),
    )
    .await
}

fn text(answer: &Answer, name: &str) -> String {
    answer.json()[name].as_str().expect("a text").to_owned()
}

const PASSWORD: [(&str, &str); 3] = [
    ("grant_type", "password"),
    ("username", "demo"),
    ("password", "Ch4ng31t-demo"),
];

/// An access token of the user for the client `front`, meant for these.
async fn for_user(door: &Door, more: &[(&str, &str)]) -> Answer {
    let form = [&PASSWORD[..], &[("scope", "openid read write")], more].concat();
    ask(door, "front", &form).await.expect(200)
}

async fn exchange(door: &Door, id: &str, subject: &str, more: &[(&str, &str)]) -> Answer {
    let form = [
        ("grant_type", EXCHANGE),
        ("subject_token", subject),
        ("subject_token_type", ACCESS),
    ];
    ask(door, id, &[&form[..], more].concat()).await
}

#[tokio::test]
async fn a_resource_becomes_the_audience() {
    let door = door(&Issuer::start().await).await;
    let plain = claims_of(&text(&for_user(&door, &[]).await, "access_token"));
    assert_eq!(plain["aud"], "front");
    assert_eq!(plain.get("client_id"), None);
    let (a, b) = ("https://api.example/a", "https://api.example/b");
    let one = for_user(&door, &[("resource", a)]).await;
    let claims = claims_of(&text(&one, "access_token"));
    assert_eq!(
        (&claims["aud"], &claims["client_id"]),
        (&json!(a), &json!("front"))
    );
    let two = for_user(&door, &[("resource", a), ("resource", b), ("resource", a)]).await;
    let claims = claims_of(&text(&two, "access_token"));
    assert_eq!(claims["aud"], json!([a, b]));
    let id = claims_of(&text(&two, "id_token"));
    assert_eq!(id["aud"], "front", "an ID token is for its client");
    let itself = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("resource", b),
    ];
    let own = ask(&door, "front", &itself).await.expect(200);
    assert_eq!(claims_of(&text(&own, "access_token"))["aud"], b);
}

#[tokio::test]
async fn a_token_for_another_resource_tells_nothing_about_its_user() {
    let issuer = Issuer::start().await;
    let door = door(&issuer).await;
    let confined = for_user(&door, &[("resource", "https://api.example/a")]).await;
    let plain = for_user(&door, &[]).await;
    let ask = async |path: &str, answer: &Answer| {
        let request = client().get(door.proxy_url(path));
        send(request.bearer_auth(text(answer, "access_token"))).await
    };
    let answer = ask("/oauth2/userinfo", &confined).await;
    assert_error(answer, 401, "invalid_token", "");
    let answer = ask("/oauth2/userinfo", &plain).await.expect(200);
    assert_eq!(answer.json()["sub"], "demo");
}

#[tokio::test]
async fn a_resource_that_is_not_registered_is_an_invalid_target() {
    let door = door(&Issuer::start().await).await;
    for resource in [
        "https://api.example/A",
        "https://other.example/",
        "https://api.example/a#x",
        "/relative",
        "back",
    ] {
        let form = [&PASSWORD[..], &[("scope", "read"), ("resource", resource)]].concat();
        assert_error(ask(&door, "front", &form).await, 400, "invalid_target", "");
    }
}

#[tokio::test]
async fn a_refresh_narrows_the_resources_and_never_widens_them() {
    let door = door(&Issuer::start().await).await;
    let (a, b) = ("https://api.example/a", "https://api.example/b");
    let first = for_user(&door, &[("resource", a), ("resource", b)]).await;
    let refresh = async |token: &str, more: &[(&str, &str)]| {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
        ask(&door, "front", &[&form[..], more].concat()).await
    };
    let narrow = refresh(&text(&first, "refresh_token"), &[("resource", b)])
        .await
        .expect(200);
    assert_eq!(claims_of(&text(&narrow, "access_token"))["aud"], b);
    let token = text(&narrow, "refresh_token");
    let wrong = refresh(&token, &[("resource", "https://deep.example/")]).await;
    assert_error(wrong, 400, "invalid_target", "");
    // The grant keeps its own, and the failed try did not spend the token.
    let all = refresh(&token, &[]).await.expect(200);
    assert_eq!(claims_of(&text(&all, "access_token"))["aud"], json!([a, b]));
    let alone = text(&for_user(&door, &[("resource", a)]).await, "refresh_token");
    let wider = refresh(&alone, &[("resource", b)]).await;
    assert_error(wider, 400, "invalid_target", "");
}

#[tokio::test]
async fn a_service_exchanges_a_token_that_is_meant_for_it() {
    let door = door(&Issuer::start().await).await;
    // To name a logical audience, the front asks with its own token.
    let own = [("grant_type", "client_credentials"), ("scope", "read")];
    let own = ask(&door, "back", &own).await.expect(200);
    let answer = exchange(
        &door,
        "back",
        &text(&own, "access_token"),
        &[("audience", "deeper")],
    )
    .await;
    let body = answer.expect(200).json();
    assert_eq!(body["issued_token_type"], ACCESS);
    assert_eq!(body["token_type"], "Bearer");
    assert_eq!(body["scope"], "read");
    assert!(body.get("refresh_token").is_none() && body.get("id_token").is_none());
    let claims = claims_of(body["access_token"].as_str().expect("a token"));
    assert_eq!(
        (&claims["aud"], &claims["client_id"]),
        (&json!("deeper"), &json!("back"))
    );
    let before = claims_of(&text(&own, "access_token"));
    assert_eq!(
        claims["authGrantId"], before["authGrantId"],
        "it is of the same grant"
    );
    assert!(
        claims["exp"].as_i64() <= before["exp"].as_i64(),
        "it lives no longer"
    );
    let token = body["access_token"].as_str().expect("a token");
    let info = door
        .get_as(token, "a.test", "/oauth2/tokeninfo")
        .await
        .expect(200);
    assert_eq!(info.json()["sub"], "back");
}

#[tokio::test]
async fn an_exchanged_token_can_do_no_more_than_the_first() {
    let door = door(&Issuer::start().await).await;
    let own = [("grant_type", "client_credentials"), ("scope", "read")];
    let own = text(&ask(&door, "back", &own).await.expect(200), "access_token");
    // `back` has the scope, the subject token has not.
    let wider = exchange(&door, "back", &own, &[("scope", "read more")]).await;
    assert_error(wider, 400, "invalid_scope", "");
    let target = exchange(&door, "back", &own, &[("audience", "front")]).await;
    assert_error(target, 400, "invalid_target", "");
    let target = exchange(
        &door,
        "back",
        &own,
        &[("resource", "https://api.example/a")],
    )
    .await;
    assert_error(target, 400, "invalid_target", "");
    exchange(
        &door,
        "back",
        &own,
        &[("resource", "https://deep.example/")],
    )
    .await
    .expect(200);
}

#[tokio::test]
async fn an_exchange_leads_to_no_resource_that_only_the_realm_names() {
    let door = door(&Issuer::start().await).await;
    let open = "https://open.example/mcp";
    // Clients may ask for it, each for itself.
    for_user(&door, &[("resource", open)]).await;
    let own = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("resource", open),
    ];
    ask(&door, "back", &own).await.expect(200);
    // The server that the user's token is for may not go there in the user's name.
    let given = for_user(&door, &[("resource", "https://back.example/")]).await;
    let given = text(&given, "access_token");
    for target in [("resource", open), ("audience", open)] {
        let refused = exchange(&door, "back", &given, &[target]).await;
        assert_error(refused, 400, "invalid_target", "");
        let both = [("resource", "https://deep.example/"), target];
        let refused = exchange(&door, "back", &given, &both).await;
        assert_error(refused, 400, "invalid_target", "");
    }
    let good = exchange(&door, "back", &given, &[("audience", "deeper")]).await;
    good.expect(200);
}

#[tokio::test]
async fn exchanging_a_confined_token_of_ones_own_does_not_widen_it() {
    let door = door(&Issuer::start().await).await;
    let (a, b) = ("https://api.example/a", "https://api.example/b");
    let token = async |resources: &[&str]| {
        let mut form = vec![("grant_type", "client_credentials"), ("scope", "read")];
        form.extend(resources.iter().map(|one| ("resource", *one)));
        text(
            &ask(&door, "narrow", &form).await.expect(200),
            "access_token",
        )
    };
    let confined = token(&[a]).await;
    for wider in [("resource", b), ("audience", b), ("audience", "narrow")] {
        let answer = exchange(&door, "narrow", &confined, &[wider]).await;
        assert_error(answer, 400, "invalid_target", "");
    }
    // Naming nothing keeps what there is.
    let audience = |answer: Answer| claims_of(&text(&answer, "access_token"))["aud"].clone();
    let same = exchange(&door, "narrow", &confined, &[]).await.expect(200);
    assert_eq!(audience(same), a);
    let both = token(&[a, b]).await;
    let fewer = exchange(&door, "narrow", &both, &[("resource", b)]).await;
    assert_eq!(audience(fewer.expect(200)), b);
}

#[tokio::test]
async fn a_stolen_token_is_not_exchanged() {
    let door = door(&Issuer::start().await).await;
    let stolen = text(&for_user(&door, &[]).await, "access_token");
    let answer = exchange(&door, "back", &stolen, &[]).await;
    assert_error(answer, 400, "invalid_request", "");
    let good = [("grant_type", "client_credentials"), ("scope", "read")];
    let good = text(&ask(&door, "back", &good).await.expect(200), "access_token");
    for (subject, more) in [
        ("junk", vec![]),
        (
            good.as_str(),
            vec![("actor_token", "junk"), ("actor_token_type", ACCESS)],
        ),
        (good.as_str(), vec![("actor_token_type", ACCESS)]),
        (good.as_str(), vec![("actor_token", good.as_str())]),
        (
            good.as_str(),
            vec![("requested_token_type", "urn:example:x")],
        ),
    ] {
        let answer = exchange(&door, "back", subject, &more).await;
        assert_error(answer, 400, "invalid_request", "");
    }
    let other_type = [
        ("grant_type", EXCHANGE),
        ("subject_token", good.as_str()),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:saml2",
        ),
    ];
    assert_error(
        ask(&door, "back", &other_type).await,
        400,
        "invalid_request",
        "",
    );
    // A client that can't prove who it is, and one without the grant.
    let answer = exchange(&door, "app", &good, &[]).await;
    assert_error(answer, 400, "unauthorized_client", "");
    let answer = exchange(&door, "front", &good, &[]).await;
    assert_error(answer, 400, "unauthorized_client", "");
}

#[tokio::test]
async fn an_exchange_names_who_acts_one_behind_the_other() {
    let door = door(&Issuer::start().await).await;
    let own = |id: &'static str| {
        let form = [("grant_type", "client_credentials"), ("scope", "read")];
        let door = &door;
        async move { text(&ask(door, id, &form).await.expect(200), "access_token") }
    };
    let (subject, actor) = (own("back").await, own("back").await);
    let acting = [
        ("actor_token", actor.as_str()),
        ("actor_token_type", ACCESS),
    ];
    let first = text(
        &exchange(&door, "back", &subject, &acting).await.expect(200),
        "access_token",
    );
    assert_eq!(claims_of(&first)["act"], json!({"sub": "back"}));
    let second = text(
        &exchange(&door, "back", &first, &acting).await.expect(200),
        "access_token",
    );
    assert_eq!(
        claims_of(&second)["act"],
        json!({"sub": "back", "act": {"sub": "back"}})
    );
    let mut token = second.clone();
    for _ in 2..8 {
        token = text(
            &exchange(&door, "back", &token, &acting).await.expect(200),
            "access_token",
        );
    }
    let endless = exchange(&door, "back", &token, &acting).await;
    assert_error(endless, 400, "invalid_request", "");
}

#[tokio::test]
async fn an_exchanged_token_dies_with_the_grant_it_is_of() {
    let door = door(&Issuer::start().await).await;
    let first = for_user(&door, &[("resource", "https://back.example/")]).await;
    let subject = text(&first, "access_token");
    let answer = exchange(&door, "back", &subject, &[("audience", "deeper")]).await;
    let token = text(&answer.expect(200), "access_token");
    let claims = claims_of(&token);
    assert_eq!(
        (&claims["sub"], &claims["scope"]),
        (&json!("demo"), &json!(["read"]))
    );
    let post = async |path: &str, id: &str, token: &str| {
        let form = [("client_id", id), ("client_secret", "s"), ("token", token)];
        send(client().post(door.proxy_url(path)).form(&form))
            .await
            .expect(200)
            .json()
    };
    // Its audience may ask about the first one, too.
    let told = post("/oauth2/introspect", "back", &subject).await;
    assert_eq!(
        (&told["active"], &told["client_id"]),
        (&json!(true), &json!("front"))
    );
    assert_eq!(
        post("/oauth2/introspect", "back", &token).await["active"],
        true
    );
    post(
        "/oauth2/token/revoke",
        "front",
        &text(&first, "refresh_token"),
    )
    .await;
    for dead in [&subject, &token] {
        let told = post("/oauth2/introspect", "back", dead).await;
        assert_eq!(told, json!({"active": false}));
    }
}

/// Claims of an assertion that passes, with changes; null removes.
fn assertion(keys: &Issuer, door: &Door, changes: Value) -> String {
    let now = keys.claims()["iat"].as_i64().expect("a time");
    let mut all = json!({"iss": "https://trusted.example", "sub": "demo", "scope": null,
        "aud": door.proxy_url("/oauth2/access_token"), "exp": now + 60,
        "jti": format!("{:?}", std::time::Instant::now())});
    for (name, value) in changes.as_object().expect("an object") {
        all[name] = value.clone();
    }
    keys.sign(&keys.claims_with(all))
}

async fn bring(door: &Door, assertion: &str) -> Answer {
    let form = [
        ("grant_type", BEARER),
        ("assertion", assertion),
        ("scope", "openid read"),
    ];
    ask(door, "partner", &form).await
}

#[tokio::test]
async fn an_assertion_of_a_trusted_issuer_gives_a_token_of_its_user() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let good = assertion(&keys, &door, json!({}));
    let body = bring(&door, &good).await.expect(200).json();
    assert!(body.get("refresh_token").is_none());
    let claims = claims_of(body["access_token"].as_str().expect("a token"));
    assert_eq!(
        (&claims["sub"], &claims["auth_level"]),
        (&json!("demo"), &json!(0))
    );
    assert_eq!(claims["grant_type"], BEARER);
    let token = body["access_token"].as_str().expect("a token");
    let info = door
        .get_as(token, "a.test", "/oauth2/userinfo")
        .await
        .expect(200);
    assert_eq!(info.json()["sub"], "demo");
    // Once.
    assert_error(
        bring(&door, &good).await,
        400,
        "invalid_grant",
        "JWT is not valid",
    );
    // A client about itself, with its own key.
    let own = assertion(&keys, &door, json!({"iss": "partner", "sub": "partner"}));
    let body = bring(&door, &own).await.expect(200).json();
    let claims = claims_of(body["access_token"].as_str().expect("a token"));
    assert_eq!(claims["sub"], "partner");
    assert_eq!(claims.get("auth_level"), None);
}

#[tokio::test]
async fn assertions_that_prove_nothing_give_no_token() {
    let keys = Issuer::start().await;
    let stranger = Issuer::start().await;
    let door = door(&keys).await;
    let now = keys.claims()["iat"].as_i64().expect("a time");
    let make = |changes| assertion(&keys, &door, changes);
    for (bad, text) in [
        (assertion(&stranger, &door, json!({})), "JWT is not valid"),
        (
            make(json!({"iss": "https://other.example"})),
            "JWT is not valid",
        ),
        (make(json!({"iss": null})), "JWT is not valid"),
        // A client is not trusted about users.
        (make(json!({"iss": "partner"})), "JWT is not valid"),
        // Whether a user exists or is deactivated is not told.
        (make(json!({"sub": "nobody"})), "JWT is not valid"),
        (make(json!({"sub": "gone"})), "JWT is not valid"),
        (make(json!({"sub": null})), "JWT is not valid"),
        (make(json!({"exp": now - 60})), "JWT has expired"),
        (make(json!({"exp": null})), "JWT has expired"),
        (make(json!({"exp": now + 86_400})), "JWT is not valid"),
        (
            make(json!({"aud": "https://other.example"})),
            "Audience validation failed",
        ),
        ("junk".to_owned(), "JWT is not valid"),
    ] {
        assert_error(bring(&door, &bad).await, 400, "invalid_grant", text);
    }
    let missing = [("grant_type", BEARER)];
    let text = "Missing parameter, 'assertion'";
    assert_error(
        ask(&door, "partner", &missing).await,
        400,
        "invalid_request",
        text,
    );
    let other = [("grant_type", BEARER), ("assertion", "x")];
    assert_error(
        ask(&door, "front", &other).await,
        400,
        "unauthorized_client",
        "",
    );
}

#[tokio::test]
async fn an_assertion_used_as_authentication_is_no_grant_and_the_other_way_round() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let make = || assertion(&keys, &door, json!({"iss": "signer", "sub": "signer"}));
    let send_both = async |by: &str, grant: &str| {
        let form = [
            ("grant_type", BEARER),
            ("scope", "read"),
            ("assertion", grant),
            (
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            ),
            ("client_assertion", by),
        ];
        let url = door.proxy_url("/oauth2/access_token");
        send(client().post(url).form(&form)).await
    };
    let one = make();
    let answer = send_both(&one, &one).await;
    assert_error(answer, 400, "invalid_grant", "JWT is not valid");
    let grant = make();
    send_both(&make(), &grant).await.expect(200);
    let answer = send_both(&grant, &make()).await;
    assert_error(answer, 401, "invalid_client", "JWT is not valid");
}

#[tokio::test]
async fn an_assertion_by_an_algorithm_that_the_client_did_not_register_is_no_grant() {
    let keys = Issuer::start().await;
    let door = door(&keys).await;
    let own = assertion(&keys, &door, json!({"iss": "pinned", "sub": "pinned"}));
    let form = [
        ("grant_type", BEARER),
        ("assertion", own.as_str()),
        ("scope", "read"),
    ];
    let answer = ask(&door, "pinned", &form).await;
    assert_error(answer, 400, "invalid_grant", "JWT is not valid");
}
