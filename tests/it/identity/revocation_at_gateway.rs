//! A token that has ended is refused at once by the plugins of the process that
//! issued it, and the provider's cookies stay with it.

use crate::support::http::{client, send};
use crate::support::{Door, Reply, Setup, Upstream, eventually};

const FOR_ANNA: &[(&str, &str)] = &[
    ("grant_type", "password"),
    ("client_id", "orders"),
    ("client_secret", "orders-secret"),
    ("username", "demo"),
    ("password", "Ch4ng31t-demo"),
    ("scope", "read"),
];

/// A door with `api.test` behind the plugin.
async fn protected() -> (Door, Upstream) {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2'}}}}\n",
        upstream.url("")
    );
    (Setup::new().services(&service).start().await, upstream)
}

async fn passes(door: &Door, token: &str, status: u16) {
    let answer = door.get_as(token, "api.test", "/").await.expect(status);
    if status == 401 {
        let challenge = answer.header("www-authenticate");
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    }
}

/// Waits until the change of another process is seen.
async fn falls(door: &Door, token: &str) {
    eventually("the token to be refused", || async {
        let answer = door.get_as(token, "api.test", "/").await;
        (answer.status == 401).then_some(())
    })
    .await;
    passes(door, token, 401).await;
}

#[tokio::test]
async fn a_revoked_token_does_not_pass_the_next_time() {
    let (door, _upstream) = protected().await;
    let (token, other) = (
        door.client_token("read").await,
        door.client_token("read").await,
    );
    // Also one that was never seen before it was revoked.
    let unseen = door.client_token("read").await;
    for _ in 0..2 {
        passes(&door, &token, 200).await;
        passes(&door, &other, 200).await;
    }
    door.revoke(&token).await;
    door.revoke(&unseen).await;
    for _ in 0..2 {
        passes(&door, &token, 401).await;
        passes(&door, &unseen, 401).await;
        passes(&door, &other, 200).await;
    }
}

#[tokio::test]
async fn the_tokens_of_a_revoked_grant_do_not_pass_also_after_a_restart() {
    let (mut door, _upstream) = protected().await;
    let body = door.token_request(FOR_ANNA).await.expect(200).json();
    let (access, refresh) = (
        body["access_token"].as_str().expect("a token"),
        body["refresh_token"].as_str().expect("a token"),
    );
    passes(&door, access, 200).await;
    door.revoke(refresh).await;
    passes(&door, access, 401).await;
    door.kill();
    door.start().await;
    passes(&door, access, 401).await;
}

#[tokio::test]
async fn tokens_of_deleted_clients_and_users_do_not_pass() {
    let (door, _upstream) = protected().await;
    door.run_well(&["users", "add", "anna", "--password", "Ch4ng31t-anna"]);
    door.run_well(&[
        "clients",
        "add",
        "extra",
        "--secret",
        "extra-secret",
        "--grant",
        "client_credentials",
        "--scope",
        "read",
    ]);
    let form = super::with(FOR_ANNA, "username", "anna");
    let form = super::with(&form, "password", "Ch4ng31t-anna");
    let of_user = door.token(&form).await;
    let of_client = door
        .token(&[
            ("grant_type", "client_credentials"),
            ("client_id", "extra"),
            ("client_secret", "extra-secret"),
            ("scope", "read"),
        ])
        .await;
    passes(&door, &of_user, 200).await;
    passes(&door, &of_client, 200).await;
    door.run_well(&["users", "delete", "anna"]);
    falls(&door, &of_user).await;
    passes(&door, &of_client, 200).await;
    door.run_well(&["clients", "delete", "extra"]);
    falls(&door, &of_client).await;
    // Who takes the name does not take over the tokens.
    door.run_well(&["users", "add", "anna", "--password", "other-pass"]);
    let again = super::with(&form, "password", "other-pass");
    let again = eventually("the new user to be known", || async {
        let answer = door.token_request(&again).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    passes(&door, again["access_token"].as_str().expect("a token"), 200).await;
    passes(&door, &of_user, 401).await;
}

#[tokio::test]
async fn upstreams_do_not_get_the_cookies_of_the_provider() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- name: open\n  url: {}\n  routes: [{{hosts: [open.test]}}]\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let get = async |cookie: &str| {
        let request = client()
            .get(door.proxy_url("/"))
            .header("host", "open.test");
        send(request.header("cookie", cookie)).await.expect(200);
        upstream.last().header("cookie").map(str::to_owned)
    };
    let all = "a=1; iPlanetDirectoryPro=x; doorward-browser=y; __Host-iPlanetDirectoryPro=z; \
               __Host-doorward-browser=w; doorward-browser.abcdefgh=v; \
               __Host-doorward-browser.abcdefgh=u; b=2";
    assert_eq!(get(all).await.as_deref(), Some("a=1; b=2"));
    assert_eq!(get("iPlanetDirectoryPro=x").await, None);
    assert_eq!(get("session=x").await.as_deref(), Some("session=x"));
}

/// What a browser keeps of the answer to a request for `host`.
async fn cookies_of(door: &Door, host: &str) -> Vec<String> {
    let request = client().get(door.proxy_url("/")).header("host", host);
    let answer = send(request).await.expect(200);
    let fields = answer.headers.get_all("set-cookie").iter();
    fields
        .map(|field| field.to_str().expect("text").to_owned())
        .collect()
}

#[tokio::test]
async fn an_upstream_sets_no_cookie_of_the_provider_or_of_its_plugin() {
    let upstream = Upstream::start(|_| {
        let cookies = [
            "iPlanetDirectoryPro=of-an-attacker; Path=/",
            "__Host-iPlanetDirectoryPro=x; Path=/; Secure",
            "doorward-browser=x; Path=/",
            "=iPlanetDirectoryPro=x",
            "session=1x; Path=/",
            "session2=x; Path=/",
            "own=1; Path=/; HttpOnly",
        ];
        let cookies: String = cookies
            .iter()
            .map(|cookie| format!("Set-Cookie: {cookie}\r\n"))
            .collect();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";
        Reply::Raw(format!("{head}{cookies}\r\n").into_bytes())
    })
    .await;
    let url = upstream.url("");
    let services = format!(
        "- name: open\n  url: {url}\n  routes: [{{hosts: [open.test]}}]\n\
         - name: api\n  url: {url}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2', \
            client_id: gateway, client_secret: s, auth_methods: [session], \
            session_secret: shared, anonymous: anybody}}}}\n\
         consumers:\n- {{username: anybody}}\n"
    );
    let door = Setup::new().services(&services).start().await;
    // Names that filters of other routes use are free where they do not run.
    assert_eq!(
        cookies_of(&door, "open.test").await,
        [
            "session=1x; Path=/",
            "session2=x; Path=/",
            "own=1; Path=/; HttpOnly"
        ]
    );
    assert_eq!(
        cookies_of(&door, "api.test").await,
        ["own=1; Path=/; HttpOnly"]
    );
}
