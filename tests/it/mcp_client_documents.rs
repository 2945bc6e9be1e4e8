//! Clients of the provider whose identifier is the address of a document about them.

use serde_json::{Value, json};
use url::Url;

use crate::support::door::IDENTITY;
use crate::support::http::{self, Answer};
use crate::support::{Door, Reply, Setup, Upstream};

const BACK: &str = "http://127.0.0.1:7777/back";

/// A door whose provider takes documents as these settings say, and fetches them from
/// what `outbound` allows.
async fn door(settings: &str, outbound: &str) -> Door {
    let clients = IDENTITY.replace("\n  realms:\n    /:\n", "");
    let identity = format!(
        "
  base_url: http://@PROXY@
  outbound: {outbound}
  realms:
    /:
      settings:
        client_metadata_documents: {settings}
{clients}"
    );
    Setup::new().identity(&identity).start().await
}

/// A server with documents: each path has another one.
async fn documents() -> Upstream {
    Upstream::start(|seen| {
        let host = seen.header("host").unwrap_or_default();
        let id = format!("http://{host}{}", seen.target);
        let mut document = json!({
            "client_id": id, "client_name": "Editor", "redirect_uris": [BACK],
            "grant_types": ["authorization_code", "refresh_token", "urn:x:unknown"],
            "token_endpoint_auth_method": "none",
        });
        match seen.target.as_str() {
            "/other.json" => document["client_id"] = format!("http://{host}/good.json").into(),
            "/secret.json" => document["client_secret"] = "s".into(),
            "/shared.json" => document["token_endpoint_auth_method"] = "client_secret_post".into(),
            "/long.json" => {
                document["client_uri"] = format!("https://a.test/{}", "a".repeat(6000)).into()
            }
            "/nowhere.json" => document["redirect_uris"] = json!([]),
            "/script.json" => document["redirect_uris"] = json!(["javascript:alert(1)"]),
            "/moved.json" => {
                let head =
                    "HTTP/1.1 302 Found\r\nLocation: /good.json\r\nContent-Length: 0\r\n\r\n";
                return Reply::Raw(head.into());
            }
            "/text.json" => {
                let text = document.to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: ";
                return Reply::Raw(format!("{head}{}\r\n\r\n{text}", text.len()).into());
            }
            _ => {}
        }
        Reply::Json(200, document)
    })
    .await
}

async fn authorize(door: &Door, id: &str, redirect: &str) -> Answer {
    let query = [
        ("response_type", "code"),
        ("client_id", id),
        ("redirect_uri", redirect),
        ("scope", "openid"),
        ("state", "s"),
        (
            "code_challenge",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        ),
        ("code_challenge_method", "S256"),
    ];
    let address = door.proxy_url("/oauth2/authorize");
    let address = Url::parse_with_params(&address, query).expect("an address");
    http::send(http::client().get(address)).await
}

async fn metadata(door: &Door) -> Value {
    let url = door.proxy_url("/oauth2/.well-known/openid-configuration");
    http::send(http::client().get(url)).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_known_by_the_document_at_its_address() {
    let documents = documents().await;
    let door = door("{mode: open}", "{allow: [127.0.0.1]}").await;
    assert_eq!(
        metadata(&door).await["client_id_metadata_document_supported"],
        true
    );
    let id = documents.url("/good.json");
    for _ in 0..2 {
        let answer = authorize(&door, &id, BACK).await;
        assert!([200, 302].contains(&answer.status), "{}", answer.body);
        assert!(!answer.header("location").contains("error="));
    }
    assert_eq!(
        documents.seen().len(),
        1,
        "the document is believed for a while"
    );
    // Any port of this machine, and nothing else.
    let other_port = "http://127.0.0.1:9999/back";
    let answer = authorize(&door, &id, other_port).await;
    assert!([200, 302].contains(&answer.status), "{}", answer.body);
    authorize(&door, &id, "https://evil.test/back")
        .await
        .expect(400);
    // The token endpoint knows the client, and the code is not good.
    let pairs = [
        ("grant_type", "authorization_code"),
        ("client_id", &*id),
        ("code", "x"),
        ("redirect_uri", BACK),
        ("code_verifier", "y"),
    ];
    let refused = door.token_request(&pairs).await.expect(400);
    assert_eq!(refused.json()["error"], "invalid_grant");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_says_or_is_something_else_makes_no_client() {
    let documents = documents().await;
    let door = door("{mode: open}", "{allow: [127.0.0.1]}").await;
    for path in [
        "/other.json",
        "/secret.json",
        "/shared.json",
        "/long.json",
        "/nowhere.json",
        "/script.json",
        "/moved.json",
        "/text.json",
    ] {
        let answer = authorize(&door, &documents.url(path), BACK)
            .await
            .expect(400);
        assert_eq!(answer.header("location"), "", "{path}");
        if path == "/other.json" {
            let why = "its client_id is not its address";
            assert!(answer.body.contains(why), "{}", answer.body);
            door.wait_log("why", |log| log.contains(why)).await;
        }
        assert_eq!(documents.last().target, path, "no redirect is followed");
    }
    // A token request makes the provider fetch nothing.
    let asked = documents.seen().len();
    let id = documents.url("/good.json");
    let pairs = [
        ("grant_type", "authorization_code"),
        ("client_id", &*id),
        ("code", "x"),
    ];
    let refused = door.token_request(&pairs).await;
    assert_eq!(refused.json()["error"], "invalid_client");
    assert_eq!(documents.seen().len(), asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_points_inside_is_not_fetched() {
    let documents = documents().await;
    let door = door("{mode: open}", "{allow: []}").await;
    let port = documents.address().port();
    for id in [
        documents.url("/good.json"),
        format!("http://localhost:{port}/good.json"),
        format!("https://127.0.0.1:{port}/good.json"),
        format!("https://localhost:{port}/good.json"),
        format!("https://[::ffff:127.0.0.1]:{port}/good.json"),
        format!("https://[::ffff:7f00:1]:{port}/good.json"),
        format!("https://0.0.0.0:{port}/good.json"),
        format!("https://[::1]:{port}/good.json"),
        format!("https://[::]:{port}/good.json"),
        format!("https://2130706433:{port}/good.json"),
        format!("https://0x7f.1:{port}/good.json"),
        format!("https://user@127.0.0.1:{port}/good.json"),
        format!("https://app.test@127.0.0.1:{port}/good.json"),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://[fe80::1]/good.json".to_owned(),
        "https://[fd00::1]/good.json".to_owned(),
        "https://[64:ff9b::7f00:1]/good.json".to_owned(),
        "https://10.0.0.1/good.json".to_owned(),
        "https://100.64.0.1/good.json".to_owned(),
        "https://192.168.0.1/good.json".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let answer = authorize(&door, &id, BACK).await.expect(400);
        assert_eq!(answer.header("location"), "", "{id}");
        assert!(
            !answer.body.contains("refused"),
            "nothing is told of the network"
        );
    }
    assert_eq!(documents.connections(), 0);
}

/// A server that leads inside, is silent, or never comes to an end.
async fn hostile(inside: String) -> Upstream {
    Upstream::start(move |seen| {
        let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        match seen.target.as_str() {
            "/hang.json" => Reply::Hang,
            "/half.json" => Reply::Unended(format!("{json}\r\n{{\"client_id\":").into()),
            "/endless.json" => Reply::Stream {
                length: 1 << 30,
                chunked: true,
            },
            "/claims.json" => {
                Reply::Raw(format!("{json}Content-Length: 99999999\r\n\r\n{{").into())
            }
            status => {
                let status = status.trim_matches(|other: char| !other.is_ascii_digit());
                let head = format!("HTTP/1.1 {status} Moved\r\nLocation: {inside}\r\n");
                Reply::Raw(format!("{head}Content-Length: 0\r\n\r\n").into())
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_document_leads_nowhere_and_holds_up_nobody() {
    let inside = documents().await;
    let hostile = hostile(inside.url("/good.json")).await;
    let door = door("{mode: open}", "{allow: [127.0.0.1]}").await;
    let paths = [
        "/301",
        "/302",
        "/303",
        "/307",
        "/308",
        "/hang.json",
        "/half.json",
        "/endless.json",
        "/claims.json",
    ];
    let ids: Vec<_> = paths.iter().map(|path| hostile.url(path)).collect();
    // All at once: each is given up by itself, within its time.
    let all = ids.iter().map(|id| authorize(&door, id, BACK));
    for (answer, id) in futures_util::future::join_all(all).await.iter().zip(&ids) {
        assert_eq!(answer.status, 400, "{id}: {}", answer.body);
        assert_eq!(answer.header("location"), "", "{id}");
    }
    assert_eq!(inside.connections(), 0, "no redirect is followed");
    let answer = authorize(&door, &inside.url("/good.json"), BACK).await;
    assert!([200, 302].contains(&answer.status), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_count_only_where_the_realm_says_so() {
    let documents = documents().await;
    let id = documents.url("/good.json");
    for (settings, supported) in [
        ("{}", Value::Null),
        (
            "{mode: listed, allowed_hosts: [app.test]}",
            Value::Bool(true),
        ),
    ] {
        let door = door(settings, "{allow: [127.0.0.1]}").await;
        assert_eq!(
            metadata(&door).await["client_id_metadata_document_supported"],
            supported
        );
        authorize(&door, &id, BACK).await.expect(400);
        assert_eq!(documents.connections(), 0, "{settings}");
    }
    let door = door(
        "{mode: listed, allowed_hosts: [127.0.0.1]}",
        "{allow: [127.0.0.1]}",
    )
    .await;
    let answer = authorize(&door, &id, BACK).await;
    assert!([200, 302].contains(&answer.status), "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_sign_ins_at_once_by_one_document_all_go_on() {
    let documents = documents().await;
    let door = door("{mode: open}", "{allow: [127.0.0.1]}").await;
    let id = documents.url("/good.json");
    let all = (0..8).map(|_| authorize(&door, &id, BACK));
    for answer in futures_util::future::join_all(all).await {
        assert!([200, 302].contains(&answer.status), "{}", answer.body);
        assert!(!answer.header("location").contains("error="));
    }
}
