//! The openid-connect plugin and a provider that is reached by TLS.

use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Door, Setup, Upstream};

/// A door that is a provider over TLS, with certificates of `authority`.
async fn provider(authority: &Authority) -> (Door, Port) {
    let tls = Port::reserve();
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"], certificate: \"@DIR@/cert.pem\", \
         key: \"@DIR@/key.pem\"}}}}",
        tls.authority()
    );
    let identity = format!(
        "
  base_url: https://{}
  realms:
    /:
      clients:
        - client_id: app
          client_secret: a-secret
          grant_types: [client_credentials]
          scope: read
",
        tls.authority()
    );
    let mut door = Setup::new().proxy(&proxy).identity(&identity).lay_out();
    let server = authority.client("127.0.0.1");
    door.write("cert.pem", &server.cert);
    door.write("key.pem", &server.key);
    door.start().await;
    (door, tls)
}

/// A door with `api.test` behind the plugin, which trusts `authority`.
async fn gateway(upstream: &Upstream, tls: &Port, authority: &Authority, config: &str) -> Door {
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'https://{}/oauth2', auth_methods: [bearer], \
         display_errors: true{config}}}}}\n",
        upstream.url(""),
        tls.authority()
    );
    let setup = Setup::new().env("SSL_CERT_FILE", "ca.pem");
    let mut door = setup.services(&service).lay_out();
    door.write("ca.pem", &authority.pem());
    door.start().await;
    door
}

async fn token(provider: &Door) -> String {
    provider
        .token(&[
            ("grant_type", "client_credentials"),
            ("client_id", "app"),
            ("client_secret", "a-secret"),
            ("scope", "read"),
        ])
        .await
}

#[tokio::test]
async fn the_version_of_http_is_the_configured_one() {
    let (authority, upstream) = (Authority::new(), Upstream::echo().await);
    let (provider, tls) = provider(&authority).await;
    let token = token(&provider).await;
    for (config, version) in [("", "1.1"), (", http_version: 2", "2")] {
        provider.clear_log();
        let door = gateway(&upstream, &tls, &authority, config).await;
        door.get_as(&token, "api.test", "/").await.expect(200);
        let line =
            format!("\"path\":\"/oauth2/.well-known/openid-configuration\",\"http\":\"{version}\"");
        let asked = |log: &str| log.contains(&line);
        provider
            .wait_log("the question of the gateway", asked)
            .await;
    }
}

#[tokio::test]
async fn a_provider_that_nobody_vouches_for_is_asked_where_nobody_minds() {
    let (authority, upstream) = (Authority::new(), Upstream::echo().await);
    let (provider, tls) = provider(&authority).await;
    let token = token(&provider).await;
    let stranger = Authority::new();
    for (config, status) in [("", 500), (", ssl_verify: false", 200)] {
        let door = gateway(&upstream, &tls, &stranger, config).await;
        door.get_as(&token, "api.test", "/").await.expect(status);
    }
}
