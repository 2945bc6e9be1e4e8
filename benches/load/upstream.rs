//! A small, fast upstream: the same short answer to every request.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

/// Requests have no body here, so each blank line asks for an answer.
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
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            stream.write_all(ANSWER).await?;
            filled = 0;
        } else if filled == buffer.len() {
            return Ok(());
        }
    }
}
