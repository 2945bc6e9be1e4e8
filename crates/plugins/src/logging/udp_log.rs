//! `udp-log`: each record is a datagram.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::net::UdpSocket;

use super::custom_fields::{CustomFields, RecordConfig};
use super::{LogFilter, address};
use crate::delivery::{Limits, Queue, Sender};
use doorward_core::model::schema::Schema;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "udp-log",
    priority: 8,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Most datagrams that are sent for one look-up of the host.
const DATAGRAMS: usize = 1000;

config! {
    /// The fields of `config`.
    struct Config {
        /// The host that records are sent to.
        #[field(required)]
        host: Box<str>,
        /// Its port of UDP.
        #[field(required)]
        port: u16,
        /// Has no effect: a datagram is sent at once.
        #[field(default(10_000))]
        _timeout as "timeout": Option<f64>,
        record as ..: RecordConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// Sends each entry as a datagram.
pub(crate) struct UdpSender {
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
}

#[async_trait]
impl Sender for UdpSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let to = address(&self.host, self.port).await?;
        let own = match to {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(own).await.map_err(text)?;
        let mut outcome = Ok(());
        for entry in batch {
            // One that is too long for a datagram keeps no other one.
            if let Err(error) = socket.send_to(entry, to).await {
                outcome = Err(error.to_string());
            }
        }
        outcome
    }
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let fields = CustomFields::new(&config.record)?;
    let sender = UdpSender {
        host: config.host,
        port: config.port,
    };
    let queue = Queue::new(KIND.name, parts, Limits::streaming(DATAGRAMS), sender);
    Ok(LogFilter::new(queue, fields, "").shared())
}
