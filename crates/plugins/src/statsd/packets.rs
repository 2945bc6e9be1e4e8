//! Lines on their transport: a datagram each, several in one, or a connection.

use std::time::Duration;

use async_trait::async_trait;

use super::config::Config;
use crate::delivery::Sender;
use crate::logging::tcp_log::TcpSender;
use crate::logging::udp_log::UdpSender;

/// How long a connection may take, and how long it is kept.
const TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Sends entries of lines.
pub(super) struct PacketSender {
    transport: Transport,
    /// Most bytes of lines that share a datagram; 0: none do.
    size: usize,
}

enum Transport {
    Udp(UdpSender),
    Tcp(Box<TcpSender>),
}

impl PacketSender {
    /// To the host of a configuration.
    pub(super) fn new(config: &Config) -> Self {
        let host = config.host.as_deref().unwrap_or("localhost");
        let port = config.port.unwrap_or_default();
        let transport = if config.use_tcp {
            let tcp = TcpSender::plain(host, port, TIMEOUT, KEEPALIVE);
            Transport::Tcp(Box::new(tcp))
        } else {
            let host = host.into();
            Transport::Udp(UdpSender { host, port })
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 65507"
        )]
        let size = config.udp_packet_size.unwrap_or_default() as usize;
        Self { transport, size }
    }

    /// Over UDP.
    pub(super) fn udp(host: &str, port: u16) -> Self {
        let host = host.into();
        Self {
            transport: Transport::Udp(UdpSender { host, port }),
            size: 0,
        }
    }

    /// The datagrams of these lines.
    fn datagrams<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for line in lines {
            match all.last_mut() {
                Some(last) if last.len() + 1 + line.len() <= self.size => {
                    last.push(b'\n');
                    last.extend_from_slice(line);
                }
                _ => all.push(line.to_vec()),
            }
        }
        all
    }
}

#[async_trait]
impl Sender for PacketSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let lines = batch
            .iter()
            .flat_map(|entry| entry.split(|byte| *byte == b'\n'));
        match &self.transport {
            Transport::Udp(udp) => udp.send(&self.datagrams(lines)).await,
            Transport::Tcp(tcp) => {
                let lines: Vec<Vec<u8>> = lines.map(|line| [line, b"\n"].concat()).collect();
                tcp.send(&lines).await
            }
        }
    }
}
