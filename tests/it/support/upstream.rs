//! A real, small HTTP/1.1 server that remembers what it received.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// A request, as it arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedRequest {
    /// Method.
    pub(crate) method: String,
    /// Request target.
    pub(crate) target: String,
    /// Header fields, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The first 64 KiB of the body.
    pub(crate) body: Vec<u8>,
    /// How long the body was.
    pub(crate) length: u64,
    /// Which connection it came on.
    pub(crate) connection: usize,
}

impl ReceivedRequest {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.headers.iter().filter(|(key, _)| key == name);
        fields.map(|(_, value)| value.as_str()).collect()
    }

    /// The request as JSON.
    pub(crate) fn json(&self) -> Value {
        let headers: serde_json::Map<_, _> = self
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
            .collect();
        json!({"method": self.method, "target": self.target, "headers": headers,
               "body": String::from_utf8_lossy(&self.body), "length": self.length})
    }
}

/// What an upstream answers.
pub(crate) enum Reply {
    /// A status and a JSON body.
    Json(u16, Value),
    /// The bytes of a whole response, as they stand.
    Raw(Vec<u8>),
    /// The bytes of a response that goes on, in silence, until the client leaves.
    Unended(Vec<u8>),
    /// 200 and so many bytes, with a `Content-Length` or chunked.
    Stream { length: u64, chunked: bool },
    /// Closes the connection instead of answering.
    Close,
    /// Never answers.
    Hang,
    /// Answers after a while.
    Later(Duration, Box<Reply>),
    /// Switches to WebSocket and sends every message back.
    WebSocket,
}

type Handler = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;

/// The running server. Dropping it closes the listener and all connections.
pub(crate) struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    seen: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    handler: Box<Handler>,
}

impl Upstream {
    /// A server that answers with what it received.
    pub(crate) async fn echo() -> Self {
        Self::start(|seen| Reply::Json(200, seen.json())).await
    }

    /// A server that answers as `handler` says.
    pub(crate) async fn start(
        handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::at("127.0.0.1:0", handler).await
    }

    /// A server on a given address.
    pub(crate) async fn at(
        address: &str,
        handler: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free address");
        let address = listener.local_addr().expect("a bound listener");
        let state = Arc::new(State {
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            handler: Box::new(handler),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self {
            address,
            state,
            task,
        }
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:port` and `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests received so far, oldest first.
    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.state.seen.lock().expect("not poisoned").clone()
    }

    /// The last request received.
    pub(crate) fn last(&self) -> ReceivedRequest {
        self.seen().pop().expect("a request reached the upstream")
    }

    /// How many connections were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // Dropped with this task, and with it every connection.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = state.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(serve(stream, number, Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, number: usize, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(mut seen) = read_head(&mut stream).await {
        seen.connection = number;
        let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
        if seen.header("expect").is_some() && stream.write_all(go_on).await.is_err() {
            return;
        }
        if read_body(&mut stream, &mut seen).await.is_none() {
            return;
        }
        let mut reply = (state.handler)(&seen);
        let head_only = seen.method == "HEAD";
        let key = seen.header("sec-websocket-key").map(str::to_owned);
        state.seen.lock().expect("not poisoned").push(seen);
        while let Reply::Later(wait, then) = reply {
            tokio::time::sleep(wait).await;
            reply = *then;
        }
        match reply {
            Reply::Json(status, body) => {
                let text = body.to_string();
                let head = format!(
                    "HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    text.len()
                );
                let body = if head_only { "" } else { &text };
                let whole = format!("{head}{body}");
                if stream.write_all(whole.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Stream { length, chunked } => {
                if write_stream(&mut stream, length, chunked).await.is_err() {
                    return;
                }
            }
            Reply::Unended(bytes) => {
                let mut ignored = Vec::new();
                let _ = stream.write_all(&bytes).await;
                let _ = stream.read_to_end(&mut ignored).await;
                return;
            }
            Reply::Hang => {
                let mut ignored = Vec::new();
                let _ = stream.read_to_end(&mut ignored).await;
                return;
            }
            Reply::WebSocket => return web_socket(stream, &key.unwrap_or_default()).await,
            Reply::Close | Reply::Later(..) => return,
        }
    }
}

async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<ReceivedRequest> {
    let mut seen = ReceivedRequest::default();
    let first = read_line(stream).await?;
    let mut words = first.split(' ');
    seen.method = words.next()?.to_owned();
    seen.target = words.next()?.to_owned();
    loop {
        let line = read_line(stream).await?;
        if line.is_empty() {
            return Some(seen);
        }
        let (name, value) = line.split_once(':')?;
        let field = (name.to_ascii_lowercase(), value.trim().to_owned());
        seen.headers.push(field);
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    let count = stream.read_until(b'\n', &mut line).await.ok()?;
    (count > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

async fn read_body(stream: &mut BufReader<TcpStream>, seen: &mut ReceivedRequest) -> Option<()> {
    if seen.header("transfer-encoding") == Some("chunked") {
        loop {
            let line = read_line(stream).await?;
            let size = u64::from_str_radix(&line, 16).ok()?;
            if size == 0 {
                while !read_line(stream).await?.is_empty() {}
                return Some(());
            }
            read_piece(stream, size, seen).await?;
            read_line(stream).await?;
        }
    }
    let length = seen.header("content-length").map_or(Ok(0), str::parse);
    read_piece(stream, length.ok()?, seen).await
}

async fn read_piece(
    stream: &mut BufReader<TcpStream>,
    size: u64,
    seen: &mut ReceivedRequest,
) -> Option<()> {
    let mut left = size;
    while left > 0 {
        let available = stream.fill_buf().await.ok()?;
        if available.is_empty() {
            return None;
        }
        let count = available.len().min(usize::try_from(left).ok()?);
        let keep = count.min((64 * 1024_usize).saturating_sub(seen.body.len()));
        seen.body.extend_from_slice(&available[..keep]);
        stream.consume(count);
        left -= count as u64;
    }
    seen.length += size;
    Some(())
}

async fn write_stream(
    stream: &mut BufReader<TcpStream>,
    length: u64,
    chunked: bool,
) -> std::io::Result<()> {
    let framing = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {length}")
    };
    let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b'x'; 64 * 1024];
    let mut left = length;
    while left > 0 {
        let count = left.min(piece.len() as u64) as usize;
        if chunked {
            stream
                .write_all(format!("{count:x}\r\n").as_bytes())
                .await?;
        }
        stream.write_all(&piece[..count]).await?;
        if chunked {
            stream.write_all(b"\r\n").await?;
        }
        left -= count as u64;
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(())
}

async fn web_socket(mut stream: BufReader<TcpStream>, key: &str) {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        let ours = message.is_text() || message.is_binary();
        if ours && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// `user:password` as an `Authorization` header's value.
pub(crate) fn basic(user: &str, password: &str) -> String {
    let pair = format!("{user}:{password}");
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(pair)
    )
}
