//! The `openidconnect` crate as a client.

mod grants;

use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreProviderMetadata, CoreResponseType, CoreUserInfoClaims,
};
use openidconnect::{
    AccessTokenHash, AuthenticationFlow, AuthorizationCode, ClientId, ClientSecret, CsrfToken,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IntrospectionUrl,
    IssuerUrl, LogoutRequest, Nonce, OAuth2TokenResponse as _, PkceCodeChallenge, PkceCodeVerifier,
    PostLogoutRedirectUrl, ProviderMetadataWithLogout, RedirectUrl, RequestTokenError,
    RevocationUrl, Scope, TokenIntrospectionResponse as _, TokenResponse as _,
};

use super::{Browser, CALLBACK, code, door, signed_in, told};
use crate::support::Door;
use crate::support::http::client;

type Client = CoreClient<
    EndpointSet,
    EndpointNotSet,
    EndpointSet,
    EndpointSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// What carries the crate's requests: our own client.
async fn carry(request: HttpRequest) -> Result<HttpResponse, reqwest::Error> {
    let (mut parts, body) = request.into_parts();
    // The crate revokes over TLS only, and there is none here.
    let address = parts.uri.to_string().replacen("https:", "http:", 1);
    parts.uri = address.parse().expect("a URI");
    let request = http::Request::from_parts(parts, body);
    let answer = client().execute(request.try_into()?).await?;
    let mut response = http::Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    let body = answer.bytes().await?.to_vec();
    Ok(response.body(body).expect("a response"))
}

async fn metadata(door: &Door) -> CoreProviderMetadata {
    let issuer = IssuerUrl::new(door.proxy_url("/oauth2")).expect("an issuer");
    let found = CoreProviderMetadata::discover_async(issuer, &carry).await;
    found.expect("metadata that the crate accepts")
}

/// A client after discovery.
async fn connect(door: &Door, id: &str, redirect_uri: &str) -> Client {
    let secret = ClientSecret::new(format!("{id}-secret"));
    let id = ClientId::new(id.to_owned());
    let at = |path: &str| door.proxy_url(&format!("/oauth2/{path}"));
    let revocation = at("token/revoke").replacen("http:", "https:", 1);
    let revocation = RevocationUrl::new(revocation).expect("a URL");
    CoreClient::from_provider_metadata(metadata(door).await, id, Some(secret))
        .set_redirect_uri(RedirectUrl::new(redirect_uri.to_owned()).expect("a URL"))
        .set_introspection_url(IntrospectionUrl::new(at("introspect")).expect("a URL"))
        .set_revocation_url(revocation)
}

/// Signs in as the user and gives the code, with what proves it.
async fn ask(
    client: &Client,
    browser: &Browser<'_>,
    scopes: &[&str],
) -> (AuthorizationCode, PkceCodeVerifier, Nonce) {
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let flow = CoreAuthenticationFlow::AuthorizationCode;
    let (url, state, nonce) = client
        .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
        .add_scopes(scopes.iter().map(|scope| Scope::new((*scope).to_owned())))
        .set_pkce_challenge(challenge)
        .url();
    let page = browser.get(url.as_str()).await;
    let page = if page.body.contains("name=\"password\"") {
        browser.sign_in(&page, "demo").await
    } else {
        page
    };
    let answer = match page.status {
        200 => browser.approve(&page).await,
        _ => page,
    };
    let address = client.redirect_uri().expect("set before").as_str();
    let told = told(&answer, address);
    assert_eq!(&told["state"], state.secret());
    (
        AuthorizationCode::new(told["code"].clone()),
        verifier,
        nonce,
    )
}

#[tokio::test]
async fn the_crate_signs_in_and_finds_the_tokens_valid() {
    let door = door().await;
    let client = connect(&door, "web", CALLBACK).await;
    let browser = Browser::new(&door);
    let (code, verifier, nonce) = ask(&client, &browser, &["email", "offline_access"]).await;
    let request = client.exchange_code(code).expect("an endpoint");
    let tokens = request
        .set_pkce_verifier(verifier)
        .request_async(&carry)
        .await;
    let tokens = tokens.expect("tokens");
    let id_token = tokens.id_token().expect("an ID token");
    let verifier = client.id_token_verifier();
    let claims = id_token.claims(&verifier, &nonce).expect("valid claims");
    assert_eq!(claims.subject().as_str(), "demo");
    let (alg, key) = (
        id_token.signing_alg().expect("an algorithm"),
        id_token.signing_key(&verifier).expect("a published key"),
    );
    if let Some(expected) = claims.access_token_hash() {
        let actual = AccessTokenHash::from_token(tokens.access_token(), alg, key);
        assert_eq!(&actual.expect("a hash"), expected);
    }
    let subject = Some(claims.subject().clone());
    let info = client.user_info(tokens.access_token().clone(), subject);
    let info: CoreUserInfoClaims = info
        .expect("an endpoint")
        .request_async(&carry)
        .await
        .expect("userinfo");
    let email = info.email().expect("an address");
    assert_eq!(email.as_str(), "demo@example.com");

    let refresh = tokens.refresh_token().expect("a refresh token");
    let request = client.exchange_refresh_token(refresh).expect("an endpoint");
    let next = request.request_async(&carry).await.expect("new tokens");
    let told = client.introspect(next.access_token());
    let told = told.request_async(&carry).await.expect("an answer");
    assert!(told.active());
    assert_eq!(told.sub(), Some("demo"));
    let revoked = client.revoke_token(next.refresh_token().expect("another").clone().into());
    let revoked = revoked.expect("an address with TLS");
    revoked.request_async(&carry).await.expect("no error");
    let told = client.introspect(next.access_token());
    assert!(
        !told
            .request_async(&carry)
            .await
            .expect("an answer")
            .active()
    );
}

#[tokio::test]
async fn the_crate_is_told_why_a_code_is_refused() {
    let door = door().await;
    let client = connect(&door, "web", CALLBACK).await;
    let browser = signed_in(&door, "demo").await;
    let code = AuthorizationCode::new(code(&browser).await);
    let request = client.exchange_code(code).expect("an endpoint");
    match request.request_async(&carry).await {
        Err(RequestTokenError::ServerResponse(told)) => {
            assert!(matches!(
                told.error().as_ref(),
                "invalid_grant" | "invalid_request"
            ));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_crate_gets_tokens_for_itself() {
    let door = door().await;
    let client = connect(&door, "machine", CALLBACK).await;
    let request = client.exchange_client_credentials().expect("an endpoint");
    let request = request.add_scope(Scope::new("openid".to_owned()));
    // Its answers are those of OpenID Connect, in which an ID token may lack.
    let tokens = request.request_async(&carry).await.expect("a token");
    assert!(tokens.refresh_token().is_none());
}

#[tokio::test]
async fn the_crate_reads_hybrid_answers() {
    let door = door().await;
    let client = connect(&door, "trusted", "https://trusted.example/cb").await;
    let browser = signed_in(&door, "demo").await;
    let flow = AuthenticationFlow::Hybrid(vec![CoreResponseType::Code, CoreResponseType::IdToken]);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let (url, _, nonce) = client
        .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
        .set_pkce_challenge(challenge)
        .url();
    let told = told(
        &browser.get(url.as_str()).await,
        "https://trusted.example/cb",
    );
    let first: openidconnect::core::CoreIdToken = told["id_token"].parse().expect("an ID token");
    let claims = first.claims(&client.id_token_verifier(), &nonce);
    let claims = claims.expect("valid claims");
    let code = AuthorizationCode::new(told["code"].clone());
    let hash = claims.code_hash().expect("a hash of the code");
    let key = client.id_token_verifier();
    let key = first.signing_key(&key).expect("a key");
    let alg = first.signing_alg().expect("an algorithm");
    let ours = openidconnect::AuthorizationCodeHash::from_code(&code, alg, key);
    assert_eq!(&ours.expect("a hash"), hash);
    let request = client.exchange_code(code).expect("an endpoint");
    let tokens = request
        .set_pkce_verifier(verifier)
        .request_async(&carry)
        .await;
    assert!(tokens.expect("tokens").id_token().is_some());
}

#[tokio::test]
async fn the_crate_finds_where_to_sign_out() {
    let door = door().await;
    let issuer = IssuerUrl::new(door.proxy_url("/oauth2")).expect("an issuer");
    let found = ProviderMetadataWithLogout::discover_async(issuer, &carry).await;
    let found = found.expect("metadata");
    let end = found.additional_metadata().end_session_endpoint.clone();
    let request = LogoutRequest::from(end.expect("an address"));
    let request = request
        .set_client_id(ClientId::new("web".to_owned()))
        .set_post_logout_redirect_uri(
            PostLogoutRedirectUrl::new("https://app.example/bye".to_owned()).expect("a URL"),
        );
    let browser = signed_in(&door, "demo").await;
    let page = browser
        .get(request.http_get_url().as_str())
        .await
        .expect(200);
    assert!(page.body.contains("logout-yes"));
}
