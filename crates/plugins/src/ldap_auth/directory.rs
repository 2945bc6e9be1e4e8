//! A directory, asked whether it takes a name and a password.

use std::time::Duration;

use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError, LdapResult, dn_escape};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::Config;
use crate::authentication::login::Login;
use crate::settings::wrong;
use doorward_plugin_api::ConfigError;

/// Most connections at once; requests beyond that wait for one.
const CONNECTIONS: usize = 32;

/// Why a directory gave no verdict.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    #[error("no answer within the timeout")]
    Timeout,
    #[error("{0}")]
    Connection(#[from] LdapError),
    /// It answered neither yes nor no.
    #[error("it answered with result {0}")]
    Result(u32),
}

/// A directory, as configured.
pub(super) struct Directory {
    url: String,
    start_tls: bool,
    verifies: bool,
    encrypts: bool,
    base_dn: Box<str>,
    attribute: Box<str>,
    timeout: Duration,
    keepalive: Duration,
    turns: Semaphore,
    /// Connections that nobody uses now, and since when.
    idle: Mutex<Vec<(Ldap, Instant)>>,
}

impl Directory {
    /// The directory of a configuration.
    pub(super) fn new(config: &Config) -> Result<Self, ConfigError> {
        let (host, port) = (&config.ldap_host, config.ldap_port);
        let scheme = if config.ldaps { "ldaps" } else { "ldap" };
        let host = if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        let url = format!("{scheme}://{host}:{port}");
        if url::Url::parse(&url).is_err() {
            return Err(wrong("ldap_host", format!("invalid value: {host}")));
        }
        let time = |field, milliseconds: f64| {
            Duration::try_from_secs_f64(milliseconds / 1000.0)
                .map_err(|_| wrong(field, "expected a number of milliseconds"))
        };
        Ok(Self {
            url,
            start_tls: config.start_tls,
            verifies: config.verify_ldap_host,
            encrypts: config.ldaps || config.start_tls,
            base_dn: config.base_dn.clone(),
            attribute: config.attribute.clone(),
            timeout: time("timeout", config.timeout)?,
            keepalive: time("keepalive", config.keepalive)?,
            turns: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
        })
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        match (self.encrypts, self.verifies) {
            (false, _) => vec!["ldaps, start_tls: passwords go to the directory in clear".into()],
            (true, false) => {
                vec!["verify_ldap_host: anybody on the way can be the directory".into()]
            }
            (true, true) => Vec::new(),
        }
    }

    /// Whether the directory takes a name and a password.
    pub(super) async fn takes(&self, login: &Login) -> Result<bool, DirectoryError> {
        // A bind without a password is one as nobody, and succeeds (RFC 4513 §5.1.2).
        let (Ok(name), Ok(password)) = (
            std::str::from_utf8(&login.name),
            std::str::from_utf8(&login.password),
        ) else {
            return Ok(false);
        };
        if password.is_empty() {
            return Ok(false);
        }
        // A name that brings commas along would be somebody else's place.
        let dn = format!("{}={},{}", self.attribute, dn_escape(name), self.base_dn);
        let asked = timeout(self.timeout, async {
            let _turn = self
                .turns
                .acquire()
                .await
                .map_err(|_| DirectoryError::Timeout)?;
            self.bind(&dn, password).await
        });
        asked.await.unwrap_or(Err(DirectoryError::Timeout))
    }

    async fn bind(&self, dn: &str, password: &str) -> Result<bool, DirectoryError> {
        let idle = {
            let mut idle = self.idle.lock();
            idle.retain(|(_, since)| since.elapsed() < self.keepalive);
            idle.pop()
        };
        if let Some((mut ldap, _)) = idle {
            match verdict(ldap.simple_bind(dn, password).await) {
                // The server may have ended the connection meanwhile.
                Err(DirectoryError::Connection(_)) => {}
                verdict => return self.keep(ldap, verdict),
            }
        }
        let mut ldap = self.connect().await?;
        let verdict = verdict(ldap.simple_bind(dn, password).await);
        self.keep(ldap, verdict)
    }

    fn keep(
        &self,
        ldap: Ldap,
        verdict: Result<bool, DirectoryError>,
    ) -> Result<bool, DirectoryError> {
        if verdict.is_ok() {
            self.idle.lock().push((ldap, Instant::now()));
        }
        verdict
    }

    async fn connect(&self) -> Result<Ldap, DirectoryError> {
        let settings = LdapConnSettings::new()
            .set_starttls(self.start_tls)
            .set_no_tls_verify(!self.verifies);
        let (connection, ldap) = LdapConnAsync::with_settings(settings, &self.url).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.drive().await {
                tracing::debug!(%error, "a connection to a directory broke");
            }
        });
        Ok(ldap)
    }
}

fn verdict(answer: Result<LdapResult, LdapError>) -> Result<bool, DirectoryError> {
    match answer?.rc {
        0 => Ok(true),
        // A wrong password, no such entry, one without password, one that is locked: nobody
        // is told which (RFC 4511 §A).
        19 | 32 | 34 | 48 | 49 | 50 | 53 => Ok(false),
        rc => Err(DirectoryError::Result(rc)),
    }
}
