//! `tcp-log`: records are lines of a connection.

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::upstreams::peer::BasicPeer;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::custom_fields::{CustomFields, RecordConfig};
use super::{LogFilter, address};
use crate::delivery::{Limits, Queue, Sender};
use doorward_core::model::schema::Schema;
use doorward_net::http::system_authorities;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "tcp-log",
    priority: 7,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Most lines that are written together.
const LINES: usize = 1000;

config! {
    /// The fields of `config`.
    struct Config {
        /// The host that records are sent to.
        #[field(required)]
        host: Box<str>,
        /// Its port of TCP.
        #[field(required)]
        port: u16,
        /// Milliseconds in which lines have to be written. Null: 10000.
        #[field(default(10_000))]
        timeout: Option<f64>,
        /// Milliseconds for which an idle connection is kept. Null: 60000.
        #[field(default(60_000))]
        keepalive: Option<f64>,
        /// Whether the connection is one of TLS. The certificate is verified.
        #[field(default(false), required)]
        tls: bool,
        /// The name of the certificate. Null: the host.
        tls_sni: Option<Box<str>>,
        record as ..: RecordConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// A connection, with or without TLS.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

type Connection = Box<dyn Duplex>;

/// Writes entries to a connection, which stays open for a while.
pub(crate) struct TcpSender {
    host: Box<str>,
    port: u16,
    /// The name of the server's certificate; `None`: without TLS.
    server_name: Option<Box<str>>,
    timeout: Duration,
    keepalive: Duration,
    connector: OnceLock<TransportConnector>,
    idle: Mutex<Option<(Connection, Instant)>>,
}

impl TcpSender {
    /// To this host, without TLS.
    pub(crate) fn plain(host: &str, port: u16, timeout: Duration, keepalive: Duration) -> Self {
        Self {
            host: host.into(),
            port,
            server_name: None,
            timeout,
            keepalive,
            connector: OnceLock::new(),
            idle: Mutex::default(),
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let address = address(&self.host, self.port).await?;
        let Some(name) = &self.server_name else {
            let connected = TcpStream::connect(address).await;
            return Ok(Box::new(connected.map_err(|error| error.to_string())?));
        };
        let mut peer = BasicPeer::new(&address.to_string());
        peer.sni = name.to_string();
        // The authorities of the system are read with the first connection.
        let connector = self.connector.get_or_init(|| {
            let mut options = ConnectorOptions::new(1);
            options.ca_file = system_authorities::of_engine(None);
            TransportConnector::new(Some(options))
        });
        let connected = connector.new_stream(&peer).await;
        Ok(Box::new(connected.map_err(|error| error.to_string())?))
    }

    async fn write(&self, text: &[u8]) -> Result<(), String> {
        let mut idle = self.idle.lock().await;
        let reused = idle
            .take()
            .filter(|(_, since)| since.elapsed() < self.keepalive);
        let reused = match reused {
            // What the other side has closed would swallow the first lines.
            Some((mut stream, _)) => is_open(&mut stream).await.then_some(stream),
            None => None,
        };
        let mut stream = match reused {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        stream
            .write_all(text)
            .await
            .map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        *idle = Some((stream, Instant::now()));
        Ok(())
    }
}

/// Whether the other side has neither closed nor sent anything.
async fn is_open(stream: &mut Connection) -> bool {
    let mut byte = [0];
    let read = timeout(Duration::from_millis(1), stream.read(&mut byte));
    read.await.is_err()
}

#[async_trait]
impl Sender for TcpSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let text = batch.concat();
        let written = timeout(self.timeout, self.write(&text)).await;
        written.unwrap_or_else(|_| Err("not written in time".to_owned()))
    }
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let millis = |value: Option<f64>, default| {
        let value = value.unwrap_or(default);
        Duration::from_secs_f64(value.clamp(0.0, 86_400_000.0) / 1000.0)
    };
    let (timeout, keepalive) = (
        millis(config.timeout, 10_000.0),
        millis(config.keepalive, 60_000.0),
    );
    let mut sender = TcpSender::plain(&config.host, config.port, timeout, keepalive);
    if config.tls {
        sender.server_name = Some(config.tls_sni.unwrap_or(config.host));
    }
    let fields = CustomFields::new(&config.record)?;
    let queue = Queue::new(KIND.name, parts, Limits::streaming(LINES), sender);
    Ok(LogFilter::new(queue, fields, "\n").shared())
}
