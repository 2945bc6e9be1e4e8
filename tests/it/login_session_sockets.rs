//! WebSockets behind the openid-connect plugin: they end with their token or session,
//! and their clients are told.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::login_sessions::{Server, door, session, signed_in};
use crate::support::http::{client, send};
use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Door, Reply, Setup, Upstream, eventually};

#[tokio::test]
async fn a_websocket_ends_with_its_token_and_its_client_is_told() {
    let upstream = Upstream::start(|_| Reply::WebSocket).await;
    socket_ends_with_its_token(&upstream.url(""), None).await;
}

#[tokio::test]
async fn a_websocket_over_tls_ends_with_its_token_and_its_client_is_told() {
    let upstream = Upstream::start(|_| Reply::WebSocket).await;
    let (authority, tls) = (Authority::new(), Port::reserve());
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"], certificate: \"@DIR@/cert.pem\", \
         key: \"@DIR@/key.pem\"}}}}",
        tls.authority()
    );
    let service = format!(
        "- {{name: sockets, url: '{}', routes: [{{paths: [/], protocols: [https]}}]}}\n",
        upstream.url("")
    );
    let mut hop = Setup::new().proxy(&proxy).services(&service).lay_out();
    let server = authority.client("localhost");
    hop.write("cert.pem", &server.cert);
    hop.write("key.pem", &server.key);
    hop.start().await;
    let url = format!("https://localhost:{}", tls.number());
    socket_ends_with_its_token(&url, Some(&authority)).await;
    assert_eq!(upstream.seen().len(), 1);
}

/// Ends the token by which a WebSocket to `upstream` was opened, and expects the
/// client to be told.
async fn socket_ends_with_its_token(upstream: &str, authority: Option<&Authority>) {
    let service = format!(
        "- name: api\n  url: {upstream}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2', \
         end_with_session: true}}}}\n",
    );
    let setup = Setup::new().services(&service);
    let mut door = match authority {
        Some(_) => setup.env("SSL_CERT_FILE", "ca.pem").lay_out(),
        None => setup.lay_out(),
    };
    if let Some(authority) = authority {
        door.write("ca.pem", &authority.pem());
    }
    door.start().await;
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    let asked = client().post(door.proxy_url("/oauth2/access_token"));
    let token = send(asked.form(&form)).await.expect(200).json();
    let token = token["access_token"].as_str().expect("a token").to_owned();
    let mut socket = socket_at(&door, "authorization", &format!("Bearer {token}")).await;
    let revoked = client().post(door.proxy_url("/oauth2/token/revoke"));
    let form = [&form[2..], &[("token", token.as_str())]].concat();
    send(revoked.form(&form)).await.expect(200);
    is_told_of_the_end(&mut socket).await;
}

#[tokio::test]
async fn a_websocket_ends_with_its_session_on_another_node_and_not_with_the_redis() {
    let server = Server::redis(Port::reserve()).await;
    let upstream = Upstream::start(|seen| match seen.header("upgrade") {
        Some(_) => Reply::WebSocket,
        None => Reply::Json(200, seen.json()),
    })
    .await;
    let more = format!(
        ", end_with_session: true, session_storage: redis, session_redis_port: {}, \
         session_redis_password: open-sesame",
        server.port.number()
    );
    let one = door(&upstream, "http://@PROXY@/oauth2", &more).await;
    let other = door(&upstream, &one.proxy_url("/oauth2"), &more).await;
    let mut browser = signed_in(&one).await;
    let cookie = format!("session={}", session(&browser));
    let mut socket = socket_at(&other, "cookie", &cookie).await;
    browser.get("http://api.test/logout").await;
    is_told_of_the_end(&mut socket).await;

    let browser = signed_in(&one).await;
    let cookie = format!("session={}", session(&browser));
    let mut socket = socket_at(&other, "cookie", &cookie).await;
    drop(server);
    eventually("the session to be looked for in vain", || async {
        let metrics = other.admin_get("/metrics").await.expect(200).body;
        let mut lines = metrics.lines();
        lines
            .any(|line| line.starts_with(FAILURES) && !line.ends_with(" 0"))
            .then_some(())
    })
    .await;
    is_echoed(&mut socket).await;
}

const FAILURES: &str = "doorward_session_store_failures_total ";

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// A WebSocket of who shows this field.
async fn socket_at(door: &Door, name: &'static str, value: &str) -> Socket {
    let url = door.proxy_url("/").replace("http://", "ws://");
    let mut request = url.into_client_request().expect("a request");
    let headers = request.headers_mut();
    headers.insert("host", "api.test".parse().expect("a value"));
    headers.insert(name, value.parse().expect("a value"));
    let (mut socket, _) = tokio_tungstenite::connect_async(request)
        .await
        .expect("an upgrade");
    is_echoed(&mut socket).await;
    socket
}

async fn is_echoed(socket: &mut Socket) {
    let said = Message::text("hello");
    socket.send(said.clone()).await.expect("sent");
    let echo = socket.next().await.expect("an answer").expect("a message");
    assert_eq!(echo, said);
}

async fn is_told_of_the_end(socket: &mut Socket) {
    let last = tokio::time::timeout(Duration::from_secs(60), socket.next()).await;
    let last = last.expect("it ends").expect("a word").expect("a message");
    let Message::Close(Some(frame)) = last else {
        panic!("{last:?}");
    };
    assert_eq!(u16::from(frame.code), 1008);
    assert_eq!(frame.reason.as_str(), "session has ended");
}
