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

#[tokio::test]
async fn authorities_of_the_operator_and_of_a_plugin_vouch_for_providers() {
    let (authority, upstream) = (Authority::new(), Upstream::echo().await);
    let (provider, tls) = provider(&authority).await;
    let token = token(&provider).await;
    let stranger = Authority::new();
    let id = "11111111-1111-4111-8111-111111111111";
    let indented = |pem: &str| pem.replace('\n', "\n      ");
    for (upstream_ca, record, named, status) in [
        (None, None, false, 500),
        (Some(&authority), None, false, 200),
        (Some(&stranger), None, false, 500),
        (None, Some(&authority), true, 200),
        (None, Some(&authority), false, 500),
        // The plugin's own take the place of all others.
        (Some(&authority), Some(&stranger), true, 500),
    ] {
        let named = if named {
            format!(", ca_certificates: ['{id}']")
        } else {
            String::new()
        };
        let record = record.map_or_else(String::new, |record: &Authority| {
            let pem = indented(&record.pem());
            format!("ca_certificates:\n- id: {id}\n  cert: |\n      {pem}\n")
        });
        let service = format!(
            "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
             - {{name: openid-connect, config: {{issuer: 'https://{}/oauth2', \
             auth_methods: [bearer]{named}}}}}\n{record}",
            upstream.url(""),
            tls.authority()
        );
        let mut proxy = "{listen: [\"@PROXY@\"]}".to_owned();
        if upstream_ca.is_some() {
            proxy = "{listen: [\"@PROXY@\"], upstream_ca: \"@DIR@/own.pem\"}".to_owned();
        }
        let setup = Setup::new().env("SSL_CERT_FILE", "ca.pem").proxy(&proxy);
        let mut door = setup.services(&service).lay_out();
        door.write("ca.pem", &Authority::new().pem());
        if let Some(own) = upstream_ca {
            door.write("own.pem", &own.pem());
        }
        door.start().await;
        let answer = door.get_as(&token, "api.test", "/").await;
        assert_eq!(answer.status, status, "{proxy} {named}: {}", answer.body);
    }
}
