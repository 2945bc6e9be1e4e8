//! gRPC: HTTP/2 on both sides, messages both ways, a status in the trailers.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::support::ports::Port;
use crate::support::{Door, Setup};

/// A server of HTTP/2 that answers like this.
pub(crate) async fn origin<F, A>(answer: F) -> SocketAddr
where
    F: Fn(Request<h2::RecvStream>, h2::server::SendResponse<Bytes>) -> A + Copy + Send + 'static,
    A: Future<Output = Option<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond));
                }
            });
        }
    });
    address
}

/// Sends every piece back and then a status as trailers.
async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let te = request.headers().get("te").cloned();
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header("x-te", te.unwrap_or(HeaderValue::from_static("none")))
        .body(())
        .ok()?;
    let mut send = respond.send_response(response, false).ok()?;
    let mut body = request.into_body();
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        send.send_data(piece, false).ok()?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.insert("grpc-message", HeaderValue::from_static("done"));
    send.send_trailers(trailers).ok()
}

/// A client of HTTP/2 that knows what the gateway speaks.
pub(crate) async fn client(door: &Door) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect(door.proxy())
        .await
        .expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    client.ready().await.expect("ready")
}

fn call(door: &Door, path: &str) -> Request<()> {
    Request::post(format!("http://{}{path}", door.proxy()))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(())
        .expect("a request")
}

async fn door_to(address: SocketAddr) -> Door {
    let service = format!(
        "- {{name: rpc, protocol: grpc, host: {}, port: {}, retries: 0, routes: [{{paths: [/pkg.Echo], protocols: [grpc], strip_path: false}}]}}\n",
        address.ip(),
        address.port()
    );
    Setup::new().services(&service).start().await
}

#[tokio::test]
async fn messages_pass_both_ways_while_the_call_lasts_and_trailers_end_it() {
    let door = door_to(origin(answer).await).await;
    let mut client = client(&door).await;
    let (response, mut send) = client
        .send_request(call(&door, "/pkg.Echo/Say"), false)
        .expect("sent");
    send.send_data(Bytes::from_static(b"one"), false)
        .expect("sent");
    let response = response
        .await
        .expect("an answer before the end of the call");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!(response.headers()["x-te"], "trailers");
    let mut body = response.into_body();
    assert_eq!(body.data().await.expect("a piece").expect("whole"), "one");
    send.send_data(Bytes::from_static(b"two"), true)
        .expect("sent");
    assert_eq!(body.data().await.expect("a piece").expect("whole"), "two");
    while let Some(piece) = body.data().await {
        assert!(piece.expect("whole").is_empty());
    }
    let trailers = body.trailers().await.expect("whole").expect("trailers");
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["grpc-message"], "done");
}

async fn status_of(door: &Door, path: &str) -> (String, String) {
    let mut client = client(door).await;
    let (response, _) = client.send_request(call(door, path), true).expect("sent");
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert!(response.body().is_end_stream(), "the head is all there is");
    let text = |name: &str| {
        let value = &response.headers()[name];
        value.to_str().expect("text").to_owned()
    };
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test]
async fn what_the_gateway_says_to_a_grpc_client_is_a_grpc_status() {
    let nobody = Port::reserve();
    let door = door_to(nobody.authority().parse().expect("an address")).await;
    let (status, message) = status_of(&door, "/other.Service/Say").await;
    assert_eq!(status, "5");
    assert_eq!(message, "no Route matched with those values");
    let (status, _) = status_of(&door, "/pkg.Echo/Say").await;
    assert_eq!(status, "14", "the upstream is not there");
}

#[tokio::test]
async fn a_grpc_upstream_in_silence_is_a_deadline_exceeded() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let door = door_to(silent.local_addr().expect("bound")).await;
    let fields = serde_json::json!({"read_timeout": 300, "connect_timeout": 300});
    let made = serde_json::json!({"name": "mute", "protocol": "grpc", "host": "127.0.0.1",
        "port": silent.local_addr().expect("bound").port(), "retries": 0,
        "read_timeout": fields["read_timeout"], "connect_timeout": fields["connect_timeout"]});
    door.admin_post("/services", &made).await.expect(201);
    let route = serde_json::json!({"paths": ["/mute"], "protocols": ["grpc"], "strip_path": false});
    door.admin_post("/services/mute/routes", &route)
        .await
        .expect(201);
    let (status, _) = status_of(&door, "/mute/Say").await;
    assert_eq!(status, "4");
}
