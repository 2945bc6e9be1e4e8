//! `doorward check --online`: whether what the configuration names answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::timeout;
use url::Url;

use crate::boot;
use crate::cli::progress::Progress;
use crate::config::Config;
use crate::server::tls::Tls;
use doorward_core::clock::Clock;
use doorward_gateway::snapshot::Snapshot;
use doorward_identity::config::{FederationProvider, LdapConfig};
use doorward_identity::probe::{self, Finding, PATIENCE};
use doorward_net::http::outbound::{Authorities, Options, Outbound};
use doorward_net::shared::Redis;
use doorward_net::telemetry::Telemetry;
use doorward_openid_connect::discovery_urls;
use doorward_store::{self as store, Store};

/// Most issuers that are asked.
const ISSUERS: usize = 100;
const DAY: i64 = 86_400;

/// One thing that was asked, and what came of it.
pub(super) struct Probe {
    /// The key of the configuration that names it.
    pub(super) key: String,
    /// What it says, or what is wrong.
    pub(super) outcome: Result<String, String>,
}

impl Probe {
    /// As an object of the JSON format.
    pub(super) fn json(&self) -> Value {
        let (Ok(message) | Err(message)) = &self.outcome;
        json!({"key": self.key, "ok": self.outcome.is_ok(), "message": message})
    }
}

/// Asks everything that `config` names.
pub(super) async fn probes(config: &Config, clock: &Clock, progress: &Progress) -> Vec<Probe> {
    let mut probes = Probes {
        config,
        outbound: outbound(config),
        all: Vec::new(),
    };
    progress.tell("asks the store");
    let store = probes.store().await;
    progress.tell("asks Redis");
    probes.redis().await;
    progress.tell("asks the collector");
    probes.collector().await;
    progress.tell("looks at certificates");
    let snapshot = boot::compile(config, clock).await.ok();
    probes.certificates(snapshot.as_ref(), clock);
    progress.tell("asks the authority");
    probes.acme().await;
    progress.tell("asks issuers");
    probes.issuers(snapshot.as_ref()).await;
    progress.tell("asks other providers");
    probes.providers().await;
    progress.tell("asks directories");
    probes.directories().await;
    progress.tell("asks the mail relay");
    probes.mail().await;
    progress.tell("asks the base address");
    probes.base_url(store.as_deref()).await;
    probes.all
}

/// As the process would fetch what providers publish.
fn outbound(config: &Config) -> Outbound {
    let authorities = config.proxy.upstream_ca.as_deref().map(Authorities::read);
    // What is wrong with the file was found before.
    let authorities = authorities.and_then(Result::ok).unwrap_or_default();
    Outbound::trusting(authorities)
}

struct Probes<'a> {
    config: &'a Config,
    outbound: Outbound,
    all: Vec<Probe>,
}

impl Probes<'_> {
    fn tell(&mut self, key: impl Into<String>, outcome: Result<String, String>) {
        self.all.push(Probe {
            key: key.into(),
            outcome,
        });
    }

    async fn store(&mut self) -> Option<Arc<Store>> {
        let opened = timeout(2 * PATIENCE, store::open_existing(&self.config.store.0)).await;
        let (outcome, store) = match opened {
            Err(_) => (Err("gives no answer".to_owned()), None),
            Ok(Err(error)) => (Err(error.to_string()), None),
            Ok(Ok(None)) => {
                let message = "is empty: `doorward run` makes the tables";
                (Ok(message.to_owned()), None)
            }
            Ok(Ok(Some(store))) => match store.answers().await {
                Ok(()) => (Ok("answers".to_owned()), Some(store)),
                Err(error) => (Err(error.to_string()), None),
            },
        };
        self.tell("store", outcome);
        store
    }

    async fn redis(&mut self) {
        let Some(section) = &self.config.redis else {
            return;
        };
        let outcome = match Redis::open(section, &Telemetry::default().metrics) {
            Err(error) => Err(error.to_string()),
            Ok(redis) => {
                redis.ready().await;
                if redis.is_up() {
                    Ok("answers".to_owned())
                } else {
                    Err("gives no answer, or refuses to".to_owned())
                }
            }
        };
        self.tell("redis", outcome);
    }

    /// Where metrics are sent: it takes a message without any.
    async fn collector(&mut self) {
        if let Some(section) = &self.config.telemetry.otlp {
            let outcome = timeout(PATIENCE, section.probe(&self.outbound)).await;
            let outcome = outcome.unwrap_or_else(|_| Err("gives no answer".to_owned()));
            let outcome = outcome.map(|()| "takes metrics".to_owned());
            self.tell("telemetry.otlp.metrics_endpoint", outcome);
        }
    }

    /// How long certificates are valid: of the listeners, and of entities.
    fn certificates(&mut self, snapshot: Option<&Snapshot>, clock: &Clock) {
        let now = clock.now_secs();
        let sections = [
            ("proxy.tls", self.config.proxy.tls.as_ref()),
            ("admin.tls", self.config.admin.tls.as_ref()),
        ];
        for (name, section) in sections {
            let Some(section) = section.filter(|section| section.certificate.is_some()) else {
                continue;
            };
            let outcome = match Tls::open(name, section, None, None, clock) {
                Ok(tls) => validity(tls.expiry().1, now),
                Err(error) => Err(error.to_string()),
            };
            self.tell(format!("{name}.certificate"), outcome);
        }
        let stored = snapshot
            .into_iter()
            .flat_map(|it| it.certificates.labelled());
        for (_, label, identity) in stored {
            let outcome = validity(identity.not_after, now);
            self.tell(format!("certificates {label}"), outcome);
        }
    }

    /// The authority that certificates are ordered from.
    async fn acme(&mut self) {
        if let Some(section) = &self.config.acme {
            let (key, outcome) = doorward_acme::probe(section).await;
            self.tell(format!("acme.{key}"), outcome);
        }
    }

    /// The providers of plugins.
    async fn issuers(&mut self, snapshot: Option<&Snapshot>) {
        let issuers: BTreeSet<String> = snapshot
            .into_iter()
            .flat_map(Snapshot::filters)
            .flat_map(|filter| filter.discovered_issuers())
            .collect();
        for issuer in issuers.into_iter().take(ISSUERS) {
            let outcome = self.metadata(&issuer).await;
            let outcome = outcome.map(|_| "publishes its metadata".to_owned());
            self.tell(format!("issuer {issuer}"), outcome);
        }
    }

    /// The providers that users may sign in through.
    async fn providers(&mut self) {
        let identity = self.config.identity.as_ref();
        // What is wrong with the section was found before.
        let client = identity.and_then(|section| probe::client(section).ok());
        let Some(client) = client else {
            return;
        };
        let all = self.realms().into_iter().filter_map(|settings| {
            let written = settings.get("federation")?.clone();
            serde_json::from_value::<Vec<FederationProvider>>(written).ok()
        });
        let all: Vec<_> = all.flatten().filter(|one| one.enabled).collect();
        for provider in all.iter().take(ISSUERS) {
            self.findings(probe::provider(&client, provider).await);
        }
    }

    fn findings(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            self.tell(finding.key, finding.outcome);
        }
    }

    /// What an issuer publishes of itself.
    async fn metadata(&self, issuer: &str) -> Result<Value, String> {
        let url = Url::parse(issuer).map_err(|error| error.to_string())?;
        let mut last = String::new();
        for address in discovery_urls(&url) {
            match self.fetch(&address).await {
                Ok(metadata) if metadata.get("issuer").is_some() => return Ok(metadata),
                Ok(_) => last = format!("{address}: no `issuer` in it"),
                Err(error) if last.is_empty() => last = format!("{address}: {error}"),
                Err(_) => {}
            }
        }
        Err(last)
    }

    async fn fetch(&self, url: &Url) -> Result<Value, String> {
        let options = Options {
            timeout: PATIENCE,
            ..Options::default()
        };
        let fetched = self.outbound.get_json(url, options).await;
        fetched.map_err(|error| error.to_string())
    }

    /// What each realm sets itself, as written.
    fn realms(&self) -> Vec<Map<String, Value>> {
        let identity = self.config.identity.iter();
        let realms = identity.flat_map(|section| section.realms.values());
        let settings = realms.filter_map(|realm| serde_json::to_value(&realm.settings).ok());
        settings
            .filter_map(|value| value.as_object().cloned())
            .collect()
    }

    async fn directories(&mut self) {
        let all = self.realms().into_iter().filter_map(|settings| {
            let written = settings.get("ldap")?.clone();
            serde_json::from_value::<LdapConfig>(written).ok()
        });
        for written in all.collect::<Vec<_>>() {
            self.findings(probe::directory(&written, None).await);
        }
    }

    async fn mail(&mut self) {
        let identity = self.config.identity.as_ref();
        let Some(smtp) = identity.and_then(|section| section.mail.smtp.as_ref()) else {
            return;
        };
        let outcome = probe::relay(smtp).await;
        self.tell("identity.mail.smtp", outcome);
    }

    /// Whether clients that go to `base_url` reach a process on this store: nobody
    /// else publishes its keys.
    async fn base_url(&mut self, store: Option<&Store>) {
        let Some(section) = &self.config.identity else {
            return;
        };
        let keys = match store {
            Some(store) => store.signing_keys().await.unwrap_or_default(),
            None => Vec::new(),
        };
        let key = "identity.base_url";
        if keys.is_empty() {
            let message = "can't be told: the store has no keys before the first start";
            return self.tell(key, Ok(message.to_owned()));
        }
        let base = section.base_url.trim_end_matches('/');
        let published = self.published_keys(&format!("{base}/oauth2")).await;
        let outcome = published.and_then(|published| {
            let own = keys.iter().any(|key| published.contains(&key.kid));
            if own {
                Ok("leads to a process on this store".to_owned())
            } else {
                Err("leads to another provider: it publishes none of this store's keys".to_owned())
            }
        });
        self.tell(key, outcome);
    }

    /// The names of the keys that the provider at `issuer` publishes.
    async fn published_keys(&self, issuer: &str) -> Result<Vec<String>, String> {
        let metadata = self.metadata(issuer).await?;
        let address = metadata.get("jwks_uri").and_then(Value::as_str);
        let address = address.and_then(|text| Url::parse(text).ok());
        let address = address.ok_or("its metadata name no jwks_uri")?;
        let set = self.fetch(&address).await?;
        let keys = set.get("keys").and_then(Value::as_array);
        let names = keys.into_iter().flatten();
        let names = names.filter_map(|key| key.get("kid")?.as_str());
        Ok(names.map(str::to_owned).collect())
    }
}

/// How long a certificate is valid that ends then.
fn validity(not_after: i64, now: i64) -> Result<String, String> {
    let left = not_after.saturating_sub(now);
    if left <= 0 {
        return Err("has expired".to_owned());
    }
    Ok(format!("is valid for {} more days", left / DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_now_has_expired() {
        assert_eq!(validity(10, 10), Err("has expired".to_owned()));
        let left = validity(10 + 3 * DAY, 10);
        assert_eq!(left, Ok("is valid for 3 more days".to_owned()));
    }
}
