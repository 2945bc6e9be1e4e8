//! Whether what the configuration names answers: other providers, directories, the
//! mail relay. `doorward check --online` and the test buttons of the console ask
//! here. Nothing is asked that the configuration does not name, but for the key set
//! that a provider names.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::config::{FederationProvider, IdentityConfig, LdapConfig, SmtpConfig, SmtpTls};
use super::ldap::Directory;
use super::{IdentityError, federation, ldap, outbound};
use doorward_net::http::outbound::GuardedClient;

/// How long each may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Longest greeting of a mail server that is read, in bytes.
const GREETING: u64 = 512;

/// Most tests that operators make in [`PACE_MS`].
const PACE: usize = 20;
const PACE_MS: i64 = 5 * 60 * 1000;

/// When the last tests of operators were made.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<VecDeque<i64>>);

impl Pace {
    /// Whether another test may be made now; if so, it counts.
    pub(super) fn admits(&self, now_ms: i64) -> bool {
        let mut made = self.0.lock();
        made.retain(|at| now_ms.saturating_sub(*at) < PACE_MS);
        let admits = made.len() < PACE;
        if admits {
            made.push_back(now_ms);
        }
        admits
    }
}

/// One thing that was asked, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was asked.
    pub key: String,
    /// What it says, or what is wrong.
    pub outcome: Result<String, String>,
}

impl Finding {
    pub(super) fn new(key: impl Into<String>, outcome: Result<String, String>) -> Self {
        Self {
            key: key.into(),
            outcome,
        }
    }
}

/// The client that the provider of this section asks others by.
///
/// # Errors
/// [`IdentityError::Config`] names what is wrong with `outbound`.
pub fn client(config: &IdentityConfig) -> Result<GuardedClient, IdentityError> {
    let (allow, authorities) = outbound(config)?;
    Ok(GuardedClient::new(allow, authorities))
}

/// Fetches what a provider publishes: its metadata (OpenID Connect Discovery section
/// 4) and its keys, and compares them with what the configuration wants of it.
pub async fn provider(outbound: &GuardedClient, written: &FederationProvider) -> Vec<Finding> {
    federation::probe(outbound, written).await
}

/// Binds to each server of the directory as sign-ins do (RFC 4511 section 4.2), and
/// searches for a name, or for one that nobody has.
pub async fn directory(written: &LdapConfig, name: Option<&str>) -> Vec<Finding> {
    match Directory::read(written) {
        Ok(directory) => ldap::probe(&directory, name).await,
        Err(error) => vec![Finding::new("ldap", Err(error.to_string()))],
    }
}

/// Whether a mail relay greets (RFC 5321 section 3.1). Behind implicit TLS it does not
/// greet in the clear.
pub async fn relay(smtp: &SmtpConfig) -> Result<String, String> {
    let stream = connect(&smtp.host, smtp.port()).await?;
    if smtp.tls == SmtpTls::Implicit {
        return Ok("accepts connections".to_owned());
    }
    let place = format!("{} port {}", smtp.host, smtp.port());
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(GREETING));
    match timeout(PATIENCE, reader.read_line(&mut line)).await {
        Ok(Ok(_)) if line.starts_with("220") => Ok("greets".to_owned()),
        Ok(Ok(_)) => Err(format!("{place} does not greet as a mail server does")),
        Ok(Err(error)) => Err(format!("{place}: {error}")),
        Err(_) => Err(format!("{place} does not greet")),
    }
}

/// A connection. Messages do not look like the place of a finding, `FILE:LINE: `.
async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let connected = timeout(PATIENCE, TcpStream::connect((host, port))).await;
    let connected = connected.map_err(|_| format!("{host} port {port} gives no answer"))?;
    connected.map_err(|error| format!("{host} port {port}: {error}"))
}
