//! The other grants that the crate knows, and its ways to authenticate.

use std::time::Duration;

use openidconnect::core::{CoreClient, CoreDeviceAuthorizationResponse, CoreUserInfoClaims};
use openidconnect::{
    AuthType, AuthenticationFlow, ClientId, ClientSecret, CsrfToken, DeviceAuthorizationUrl,
    DeviceCodeErrorResponseType, IssuerUrl, Nonce, OAuth2TokenResponse as _, RedirectUrl,
    RequestTokenError, ResourceOwnerPassword, ResourceOwnerUsername, Scope, TokenResponse as _,
};

use super::{Browser, Client, carry, metadata, told};
use crate::support::{Door, Setup};

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      settings: {device_polling_interval: 1}
      users:
        - {userName: demo, password: Ch4ng31t-demo, emails: [{value: demo@example.com, primary: true}]}
      clients:
        - client_id: poster
          client_secret: poster-secret
          token_endpoint_auth_method: client_secret_post
          grant_types: [client_credentials, password, refresh_token]
          scope: openid email
        - client_id: signed
          client_secret: signed-secret
          token_endpoint_auth_method: client_secret_basic
          grant_types: [password]
          id_token_signed_response_alg: ES256
          userinfo_signed_response_alg: RS256
          scope: openid email
        - client_id: tv
          token_endpoint_auth_method: none
          grant_types: ["urn:ietf:params:oauth:grant-type:device_code", refresh_token]
          scope: openid email
        - client_id: page
          token_endpoint_auth_method: none
          grant_types: [implicit]
          response_types: ["id_token token"]
          redirect_uris: ["https://page.example/cb"]
          require_consent: false
          scope: openid
"#;

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

/// A client after discovery, which authenticates this way; without a secret
/// not at all.
async fn connect(door: &Door, id: &str, way: Option<AuthType>) -> Client {
    let secret = way
        .is_some()
        .then(|| ClientSecret::new(format!("{id}-secret")));
    let id = ClientId::new(id.to_owned());
    let at = |path: &str| door.proxy_url(&format!("/oauth2/{path}"));
    let revocation = at("token/revoke").replacen("http:", "https:", 1);
    CoreClient::from_provider_metadata(metadata(door).await, id, secret)
        .set_auth_type(way.unwrap_or(AuthType::RequestBody))
        .set_introspection_url(
            openidconnect::IntrospectionUrl::new(at("introspect")).expect("a URL"),
        )
        .set_revocation_url(openidconnect::RevocationUrl::new(revocation).expect("a URL"))
}

fn demo() -> (ResourceOwnerUsername, ResourceOwnerPassword) {
    (
        ResourceOwnerUsername::new("demo".to_owned()),
        ResourceOwnerPassword::new("Ch4ng31t-demo".to_owned()),
    )
}

#[tokio::test]
async fn the_crate_authenticates_by_form_for_its_own_and_a_users_tokens() {
    let door = door().await;
    let client = connect(&door, "poster", Some(AuthType::RequestBody)).await;
    let own = client.exchange_client_credentials().expect("an endpoint");
    let own = own.add_scope(Scope::new("email".to_owned()));
    own.request_async(&carry).await.expect("a token");
    let (name, password) = demo();
    let ask = client.exchange_password(&name, &password);
    let ask = ask.expect("an endpoint");
    let ask = ask.add_scope(Scope::new("openid".to_owned()));
    let tokens = ask.request_async(&carry).await.expect("tokens");
    let id_token = tokens.id_token().expect("an ID token");
    let no_nonce = |nonce: Option<&Nonce>| match nonce {
        None => Ok(()),
        Some(_) => Err("nobody sent one".to_owned()),
    };
    let claims = id_token.claims(&client.id_token_verifier(), no_nonce);
    assert_eq!(claims.expect("valid claims").subject().as_str(), "demo");
    let refresh = tokens.refresh_token().expect("a refresh token");
    let request = client.exchange_refresh_token(refresh).expect("an endpoint");
    request.request_async(&carry).await.expect("new tokens");

    let wrong = ResourceOwnerPassword::new("wrong".to_owned());
    let ask = client.exchange_password(&name, &wrong);
    let ask = ask.expect("an endpoint");
    let ask = ask.add_scope(Scope::new("openid".to_owned()));
    match ask.request_async(&carry).await {
        Err(RequestTokenError::ServerResponse(told)) => {
            assert_eq!(told.error().as_ref(), "invalid_grant");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_crate_finds_signed_userinfo_valid() {
    let door = door().await;
    let client = connect(&door, "signed", Some(AuthType::BasicAuth)).await;
    let (name, password) = demo();
    let ask = client.exchange_password(&name, &password);
    let ask = ask.expect("an endpoint");
    let ask = ask.add_scope(Scope::new("openid".to_owned()));
    let ask = ask.add_scope(Scope::new("email".to_owned()));
    let tokens = ask.request_async(&carry).await.expect("tokens");
    let info = client.user_info(tokens.access_token().clone(), None);
    let info: CoreUserInfoClaims = info
        .expect("an endpoint")
        .require_signed_response(true)
        .request_async(&carry)
        .await
        .expect("signed userinfo");
    assert_eq!(info.subject().as_str(), "demo");
    let email = info.email().expect("an address");
    assert_eq!(email.as_str(), "demo@example.com");
}

#[tokio::test]
async fn the_crate_waits_for_a_device_to_be_let_in() {
    let door = door().await;
    let at = door.proxy_url("/oauth2/device/code");
    let client = connect(&door, "tv", None).await;
    let client =
        client.set_device_authorization_url(DeviceAuthorizationUrl::new(at).expect("a URL"));
    let browser = signed_in(&door).await;
    for agreed in [true, false] {
        let ask = client.exchange_device_code();
        let ask = ask.add_scope(Scope::new("email".to_owned()));
        let asked: CoreDeviceAuthorizationResponse =
            ask.request_async(&carry).await.expect("codes");
        let page = asked.verification_uri_complete().expect("an address");
        let page = browser.get(page.secret()).await.expect(200);
        // Waits while its user makes up their mind.
        let request = client.exchange_device_access_token(&asked);
        let request = request.expect("an endpoint");
        let waits =
            request.request_async(&carry, tokio::time::sleep, Some(Duration::from_secs(60)));
        let decides = async {
            let form = super::super::browser::Form::of(&page);
            let word = if agreed { "approve" } else { "deny" };
            browser.post(&form.with(word, "true")).await.expect(200);
        };
        match (agreed, tokio::join!(waits, decides).0) {
            (true, Ok(tokens)) => assert!(tokens.id_token().is_some()),
            (false, Err(RequestTokenError::ServerResponse(told))) => {
                assert_eq!(*told.error(), DeviceCodeErrorResponseType::AccessDenied);
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// A browser in which the user is signed in.
async fn signed_in(door: &Door) -> Browser<'_> {
    let browser = Browser::new(door);
    let page = browser.get(&request_of_page(door).await).await;
    browser.sign_in(&page.expect(200), "demo").await;
    browser
}

/// The address at which the client `page` asks for tokens.
async fn request_of_page(door: &Door) -> String {
    let client = connect(door, "page", None).await;
    let client = client.set_redirect_uri(RedirectUrl::new(CALLBACK.to_owned()).expect("a URL"));
    let flow = AuthenticationFlow::<openidconnect::core::CoreResponseType>::Implicit(true);
    let (url, _, _) = client
        .authorize_url(flow, CsrfToken::new_random, || Nonce::new("n-1".to_owned()))
        .url();
    url.into()
}

const CALLBACK: &str = "https://page.example/cb";

#[tokio::test]
async fn the_crate_reads_implicit_answers() {
    let door = door().await;
    let browser = signed_in(&door).await;
    let address = request_of_page(&door).await;
    let told = told(&browser.get(&address).await, CALLBACK);
    let client = connect(&door, "page", None).await;
    let token: openidconnect::core::CoreIdToken = told["id_token"].parse().expect("an ID token");
    let verifier = client.id_token_verifier();
    let claims = token.claims(&verifier, &Nonce::new("n-1".to_owned()));
    let claims = claims.expect("valid claims");
    let issuer = IssuerUrl::new(door.proxy_url("/oauth2")).expect("an issuer");
    assert_eq!(claims.issuer(), &issuer);
    let hash = claims.access_token_hash().expect("a hash");
    let given = openidconnect::AccessToken::new(told["access_token"].clone());
    let key = token.signing_key(&verifier).expect("a published key");
    let alg = token.signing_alg().expect("an algorithm");
    let ours = openidconnect::AccessTokenHash::from_token(&given, alg, key);
    assert_eq!(&ours.expect("a hash"), hash);
    assert_eq!(told["token_type"], "Bearer");
}
