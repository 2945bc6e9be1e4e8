//! A connection of HTTP/2 that is used for many requests, one after the other.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use h2::client::SendRequest;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::process::Port;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// A connection in the clear to a server that is known to speak HTTP/2.
pub(crate) struct Http2Client {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    address: String,
}

impl Http2Client {
    pub(crate) fn connect(port: &Port) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let address = port.address();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = h2::client::handshake(stream).await?;
            tokio::spawn(connection);
            anyhow::Ok(sender)
        })?;
        Ok(Self {
            runtime,
            sender,
            address,
        })
    }

    /// Status of a GET whose whole answer has come.
    pub(crate) fn get(&mut self, path: &str) -> Result<u16> {
        let request = http::Request::get(format!("http://{}{path}", self.address)).body(())?;
        let sender = self.sender.clone();
        let exchange = async {
            let mut sender = sender.ready().await?;
            let (answer, _) = sender.send_request(request, true)?;
            let answer = answer.await?;
            let status = answer.status().as_u16();
            let mut body = answer.into_body();
            while let Some(piece) = body.data().await {
                body.flow_control().release_capacity(piece?.len())?;
            }
            anyhow::Ok(status)
        };
        let limited = async { timeout(LIMIT, exchange).await };
        self.runtime.block_on(limited).context("no answer")?
    }
}
