//! Tests of connections in the console: other providers, directories, mail.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console_sign_in::{Office, TOKEN};
use crate::console_users::newest;
use crate::support::http::{client, send};
use crate::support::ports::Port;
use crate::support::smtp::Relay;
use crate::support::{Answer, eventually};

const PAGE: &str = "/console/identity/probes";

async fn rest(office: &Office, method: Method, path: &str, body: &Value) -> Answer {
    let request = client().request(method, office.door.admin_url(path));
    let request = request.header("kong-admin-token", TOKEN);
    send(request.json(body)).await
}

/// A realm whose users may sign in through these providers.
async fn realm(office: &Office, settings: &Value) {
    let body = json!({"path": "/probed", "settings": settings});
    let made = rest(office, Method::POST, "/identity/realms", &body).await;
    made.expect(201);
}

fn provider(name: &str, issuer: &str) -> Value {
    json!({"name": name, "issuer": issuer, "client_id": "door", "client_secret": "hush"})
}

#[tokio::test]
async fn an_operator_tests_another_provider_and_is_told_what_is_wrong() {
    let office = Office::open().await;
    let gone = Port::reserve();
    let own = office.door.proxy_url("/oauth2");
    let nobody = format!("http://127.0.0.1:{}", gone.number());
    let federation = json!([
        provider("good", &own),
        provider("gone", &nobody),
        provider("other", &office.door.proxy_url("/oauth2/other")),
    ]);
    realm(&office, &json!({"federation": federation})).await;
    let mut operator = office.signed_in("olga").await;
    let page = operator.get(&format!("{PAGE}?realm=/probed")).await;
    let page = page.expect(200).body;
    assert!(page.contains("good") && page.contains(&nobody), "{page}");
    assert!(!page.contains("hush"), "{page}");
    let mut test = async |name: &str| {
        let fields = [
            ("realm", "/probed"),
            ("kind", "federation"),
            ("subject", name),
        ];
        operator.post(PAGE, &fields).await.expect(200).body
    };
    let good = test("good").await;
    assert!(good.contains("publishes its metadata"), "{good}");
    assert!(
        good.contains("EC ") && !good.contains(">failure<"),
        "{good}"
    );
    assert!(test("gone").await.contains(">failure<"));
    let absent = test("absent").await;
    assert!(absent.contains("names nothing of this kind"), "{absent}");
    let record = newest(&office, "connection.test").await;
    assert_eq!(record["actor"]["name"], "olga", "{record}");
}

#[tokio::test]
async fn a_test_message_goes_to_the_address_that_is_entered() {
    let relay = Relay::start(0).await;
    let mail = format!(
        "  mail: {{smtp: {{host: 127.0.0.1, port: {}, tls: none, from: door@a.test}}}}\n",
        relay.port()
    );
    let office = Office::with_provider(&mail).await;
    let mut operator = office.signed_in("olga").await;
    let to = [("kind", "mail"), ("to", "olga@example.com")];
    let page = operator.post(PAGE, &to).await.expect(200).body;
    assert!(
        page.contains("greets") && page.contains("was taken for delivery"),
        "{page}"
    );
    let told = eventually("the mail", || async { relay.mails().pop() }).await;
    assert!(told.to.contains("olga@example.com"), "{}", told.to);
    assert!(told.text.contains("This is a test"), "{}", told.text);
    // One address alone, and no line of a header.
    for to in [
        "",
        "nobody",
        "a@x.example, b@x.example",
        "a@x.example\r\nBcc: b@x.example",
        "Olga <olga@example.com>",
    ] {
        let body = json!({"to": to});
        let refused = rest(&office, Method::POST, "/identity/probes/mail", &body).await;
        assert_eq!(refused.status, 400, "{to}: {}", refused.body);
    }
    assert_eq!(relay.mails().len(), 1);
}

#[tokio::test]
async fn a_directory_that_does_not_answer_is_told() {
    let office = Office::open().await;
    let gone = Port::reserve();
    let url = format!("ldap://127.0.0.1:{}", gone.number());
    let ldap = json!({"urls": [url], "starttls": false, "base_dn": "dc=x",
        "bind_dn": "cn=door,dc=x", "bind_password": "hush", "filter": "(uid={name})"});
    realm(&office, &json!({"ldap": ldap})).await;
    let mut operator = office.signed_in("olga").await;
    let fields = [("realm", "/probed"), ("kind", "ldap"), ("name", "ann")];
    let page = operator.post(PAGE, &fields).await.expect(200).body;
    assert!(page.contains(&url) && page.contains(">failure<"), "{page}");
    assert!(!page.contains("hush"), "{page}");
}

#[tokio::test]
async fn the_tests_scan_no_ports_and_send_no_letters_in_numbers() {
    let relay = Relay::start(0).await;
    let port = relay.port();
    let office = Office::open().await;
    realm(&office, &json!({"federation": []})).await;
    let inside = format!("127.0.0.1:{port}");
    // Addresses are taken from the configuration and from nowhere else.
    let probes = "/identity/probes";
    for (kind, body, status) in [
        (
            "federation",
            json!({"name": format!("http://{inside}")}),
            404,
        ),
        (
            "federation",
            json!({"issuer": format!("http://{inside}")}),
            400,
        ),
        ("ldap", json!({"urls": [format!("ldap://{inside}")]}), 400),
        ("ldap", json!({"name": "x"}), 404),
        ("mail", json!({"to": "a@x.example", "host": inside}), 400),
        ("mail", json!({"to": "a@x.example"}), 404),
        ("smtp", json!({}), 404),
    ] {
        let path = format!("{probes}/{kind}?realm=/probed");
        let answer = rest(&office, Method::POST, &path, &body).await;
        assert_eq!(answer.status, status, "{kind} {body}: {}", answer.body);
    }
    assert!(relay.mails().is_empty());
    // A viewer tests nothing, nor does another site.
    let fields = [("kind", "mail"), ("to", "a@x.example")];
    let mut viewer = office.signed_in("vera").await;
    let page = viewer.get(PAGE).await.expect(200).body;
    assert!(!page.contains("name=\"to\""), "{page}");
    viewer.post(PAGE, &fields).await.expect(403);
    let mut operator = office.signed_in("olga").await;
    operator.submit(PAGE, &fields).await.expect(403);
    // And after some of them there is a pause.
    let gone = Port::reserve();
    let nobody = format!("http://127.0.0.1:{}", gone.number());
    let settings = json!({"settings": {"federation": [provider("gone", &nobody)]}});
    let path = "/identity/realms/probed";
    rest(&office, Method::PATCH, path, &settings)
        .await
        .expect(200);
    let path = format!("{probes}/federation?realm=/probed");
    let mut refused = 0;
    for _ in 0..25 {
        let answer = rest(&office, Method::POST, &path, &json!({"name": "gone"})).await;
        refused += u32::from(answer.status == 409);
    }
    assert_eq!(refused, 5);
}
