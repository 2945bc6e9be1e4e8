//! A small, fast upstream: the same short answer to every request; what asks
//! for an upgrade is echoed.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\n\
    hello world\n";

/// Serves `address` for ever, on one thread.
pub(crate) fn serve(address: String) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            // The client going away ends a connection; there is nobody to tell.
            tokio::spawn(async move { answer(stream).await.ok() });
        }
    })
}

/// Answers each request once it is there whole.
async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 8192];
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        if is_whole(&buffer[..filled]) {
            if buffer.starts_with(b"GET /socket") {
                stream.write_all(UPGRADED).await?;
                return echo(stream).await;
            }
            stream.write_all(ANSWER).await?;
            filled = 0;
        } else if filled == buffer.len() {
            return Ok(());
        }
    }
}

/// Whether a request has come to its end. A GET has no body, so a blank line ends it.
fn is_whole(request: &[u8]) -> bool {
    if request.starts_with(b"GET ") {
        return request.ends_with(b"\r\n\r\n");
    }
    let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
        return false;
    };
    let lines = request[..head].split(|byte| *byte == b'\n');
    let mut lengths = lines.filter_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        let named = name.eq_ignore_ascii_case("content-length");
        named.then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    request.len() >= head + 4 + lengths.next().unwrap_or_default()
}

async fn echo(mut stream: TcpStream) -> Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read]).await?,
        }
    }
}
