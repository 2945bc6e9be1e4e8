//! The filter under a real Pingora proxy, with a real upstream.

use pingora::apps::ServerApp;
use pingora::proxy::{ProxyHttp, Session, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;

use super::*;

struct Proxy {
    filter: Arc<dyn Filter>,
    upstream: std::net::SocketAddr,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::default()
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> pingora::Result<bool> {
        match decide(&*self.filter, session.as_downstream_mut(), exchange).await {
            Some(reply) => {
                session.respond_error(reply.status.as_u16()).await?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn upstream_peer(
        &self,
        _: &mut Session,
        _: &mut Exchange,
    ) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _: &mut Session,
        request: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> pingora::Result<()> {
        self.filter
            .on_upstream_request(exchange, &mut UpstreamRequest::new(request));
        Ok(())
    }
}

/// An upstream that answers with the head and body it got.
async fn echo(listener: TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut socket = BufReader::new(socket);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let from = head.len();
                if socket.read_line(&mut head).await.unwrap() == 0 {
                    return;
                }
                let line = head[from..].to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut body = vec![0; length];
            socket.read_exact(&mut body).await.unwrap();
            let answer = [head.as_bytes(), &body].concat();
            let status = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            socket.write_all(status.as_bytes()).await.unwrap();
            socket.write_all(&answer).await.unwrap();
        });
    }
}

/// Sends one request through the proxy and gives the whole answer.
async fn through(world: &World, request: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(echo(listener));
    let proxy = Proxy {
        filter: Arc::clone(&world.filter),
        upstream,
    };
    let proxy = Arc::new(http_proxy(&Arc::new(ServerConf::default()), proxy));
    let (mut client, server) = tokio::io::duplex(256 * 1024);
    let (_stop, shutdown) = tokio::sync::watch::channel(false);
    tokio::spawn(async move { proxy.process_new(Box::new(server), &shutdown).await });
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = client.read_to_end(&mut answer);
    let limit = std::time::Duration::from_secs(5);
    tokio::time::timeout(limit, read)
        .await
        .expect("it hangs")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

fn post(body: &str, more: &str) -> String {
    format!(
        "POST /orders HTTP/1.1\r\nHost: o\r\nConnection: close\r\n{more}Content-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_form_with_its_token_reaches_the_upstream_whole() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    for pad in [0, 1, 1000, 60_000] {
        let body = format!("access_token={token}&pad={}", "x".repeat(pad));
        for expect in ["", "Expect: 100-continue\r\n"] {
            let answer = through(&world, &post(&body, expect)).await;
            assert!(answer.contains("200 OK"), "{answer}");
            assert!(answer.ends_with(&body));
            assert!(answer.contains(&format!("uthorization: Bearer {token}")));
            assert!(!answer.to_lowercase().contains("expect:"));
        }
    }
}

#[tokio::test]
async fn a_form_next_to_a_header_token_streams_through() {
    let world = World::new(json!({}));
    let bearer = format!("Authorization: Bearer {}\r\n", world.token(json!({})));
    let body = format!("pad={}", "x".repeat(100_000));
    let answer = through(&world, &post(&body, &bearer)).await;
    assert!(answer.ends_with(&body));
}

#[tokio::test]
async fn a_refused_form_does_not_hang() {
    let world = World::new(json!({}));
    for body in [
        "a=b".to_owned(),
        format!("access_token={}", "x".repeat(70_000)),
    ] {
        let answer = through(&world, &post(&body, "")).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
}
