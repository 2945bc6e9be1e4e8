//! `udp-log`: each record is a datagram.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::net::UdpSocket;

use super::custom_fields::{self, CustomFields};
use super::{LogFilter, address};
use crate::delivery::{Limits, Queue, Sender};
use crate::settings::Settings;
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts};

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

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(vec![
            Field::new("host", Type::some_text()).required(),
            Field::new("port", Type::Integer(0, 65_535)).required(),
            Field::new("timeout", Type::Number).default(10_000),
            custom_fields::field(),
        ])
    });
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

/// The port of a complete `config`.
pub(crate) fn port(config: Settings<'_>) -> u16 {
    let port = config.integer("port").unwrap_or_default();
    u16::try_from(port).unwrap_or_default()
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let sender = UdpSender {
        host: config.text("host").unwrap_or_default().into(),
        port: port(config),
    };
    let fields = CustomFields::read(config)?;
    let queue = Queue::new(KIND.name, parts, Limits::streaming(DATAGRAMS), sender);
    Ok(LogFilter::new(queue, fields, "").shared())
}
