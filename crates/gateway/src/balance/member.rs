//! A target as an upstream's member: its record, and what its name means.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use uuid::Uuid;

use doorward_core::model::target::Target;

/// A target of an upstream.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: Uuid,
    /// `host:port` as the record has it.
    pub(super) text: Arc<str>,
    /// Without brackets.
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) weight: u16,
    /// Shared by all versions of the configuration that name the target.
    answer: Arc<ArcSwap<Answer>>,
}

/// What is known of a target's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The target is an address.
    Fixed(SocketAddr),
    /// The name was not resolved yet.
    Waiting,
    /// The name has these addresses, at least one.
    Found {
        /// Addresses, in the order of their text.
        records: Box<[AddressRecord]>,
        /// Type of the records: `A`, `AAAA` or `SRV`.
        kind: &'static str,
    },
    /// The name could never be resolved.
    Failed(Box<str>),
}

/// One address of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRecord {
    /// Address and port.
    pub address: SocketAddr,
    /// Weight among the records of the name; 1 where records have none.
    pub weight: u16,
    /// The name that an SRV record gave, where that is wanted.
    pub name: Option<Box<str>>,
}

/// The addresses of a name, and for how long they are right.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The addresses, at least one.
    pub records: Vec<AddressRecord>,
    /// Type of the records: `A`, `AAAA` or `SRV`.
    pub kind: &'static str,
    /// Time until the name should be resolved again.
    pub ttl: Duration,
}

/// Why a name has no addresses, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub Box<str>);

/// Who finds the addresses of targets that are names.
#[async_trait]
pub trait Names: Send + Sync + 'static {
    /// The addresses that are asked for: SRV records, whose ports and weights
    /// count, or else addresses, with the question's port.
    ///
    /// # Errors
    /// [`NameError`] if it has none or nobody answers.
    async fn find(&self, question: &Question) -> Result<Resolution, NameError>;
}

/// Whose addresses are wanted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name.
    pub host: Box<str>,
    /// For addresses without a port of their own.
    pub port: u16,
    /// The names in SRV records are wanted too.
    pub srv_name: bool,
    /// The last answer was made of SRV records: without an answer about those,
    /// mere addresses won't do.
    pub had_ports: bool,
}

impl Member {
    /// The member that `target` is; `previous` is the same target before.
    pub(super) fn new(target: &Target, previous: Option<&Member>) -> Self {
        let (host, port) = split(&target.target);
        let address = host.parse::<IpAddr>().ok();
        let answer = match previous.filter(|previous| *previous.text == *target.target) {
            Some(previous) => previous.answer.clone(),
            None => Arc::new(ArcSwap::from_pointee(match address {
                Some(ip) => Answer::Fixed(SocketAddr::new(ip, port)),
                None => Answer::Waiting,
            })),
        };
        Self {
            id: target.id,
            text: target.target.as_str().into(),
            // Host headers have addresses in their shortest form (RFC 5952).
            host: address.map_or_else(|| host.into(), |ip| ip.to_string().into()),
            port,
            weight: target.weight,
            answer,
        }
    }

    pub(super) fn answer(&self) -> Arc<Answer> {
        self.answer.load_full()
    }

    pub(super) fn is_name(&self) -> bool {
        !matches!(&**self.answer.load(), Answer::Fixed(_))
    }

    /// What is asked about it now.
    pub(super) fn question(&self, srv_name: bool) -> Question {
        let had_ports = matches!(&**self.answer.load(), Answer::Found { kind: "SRV", .. });
        Question {
            host: self.host.clone(),
            port: self.port,
            srv_name,
            had_ports,
        }
    }

    /// Takes a new answer in; whether it says something new.
    pub(super) fn learn(&self, answer: Answer) -> bool {
        let news = **self.answer.load() != answer;
        if news {
            self.answer.store(Arc::new(answer));
        }
        news
    }
}

/// Host without brackets, and port, of `host:port`.
fn split(target: &str) -> (&str, u16) {
    const DEFAULT_PORT: u16 = 8000;
    let parts = target
        .rsplit_once(':')
        .filter(|(host, _)| !host.contains(':') || host.ends_with(']'))
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.unwrap_or((target, DEFAULT_PORT));
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}
