//! What is measured, and the proxies that stand for one number of cores.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::callgrind::Runner;
use crate::credentials::Credentials;
use crate::door::Door;
use crate::floor::Floor;
use crate::http;
use crate::peers::Peer;
use crate::process::Port;
use crate::report::Report;
use crate::wrk::{self, Round};

/// One way of sending a request through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Case {
    /// Bare Pingora.
    Floor,
    /// nginx as a plain proxy.
    Nginx,
    /// A route without plugins.
    Plain,
    /// The same, and the request carries a token.
    PlainToken,
    /// A bearer token that has been seen before.
    Bearer,
    /// The handle of a session in the store.
    Handle,
    /// A route without plugins, and the request carries the same.
    PlainHandle,
    /// A session sealed in a cookie.
    Sealed,
    /// A route without plugins, and the request carries the same.
    PlainSealed,
    /// With each request another token, signed with RS256.
    Cold,
    /// A route without plugins, and the requests carry the same.
    PlainCold,
    /// A token of the token broker that has been seen before.
    Brokered,
    /// Throttled at a rate that is never reached.
    Throttle,
    /// The same by two rates, and clients are told.
    Told,
    /// A trace of which one in a hundred is kept.
    Traced,
    /// Bearer and throttling by its subject.
    Both,
    /// No token where one is needed.
    Unauthorized,
    /// No such route.
    NotFound,
    /// Throttled, refused.
    Throttled,
}

/// All of them, in the order in which a round takes them.
pub(crate) const CASES: [Case; 19] = [
    Case::Floor,
    // Next to each other what is compared most closely.
    Case::Throttle,
    Case::Plain,
    Case::Traced,
    Case::Told,
    Case::Brokered,
    Case::PlainToken,
    Case::Both,
    Case::Bearer,
    Case::PlainHandle,
    Case::Handle,
    Case::PlainSealed,
    Case::Sealed,
    Case::Cold,
    Case::PlainCold,
    Case::Unauthorized,
    Case::NotFound,
    Case::Throttled,
    Case::Nginx,
];

impl Case {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "bare Pingora (floor)",
            Self::Nginx => "nginx, plain proxy",
            Self::Plain => "no plugin",
            Self::PlainToken => "no plugin, with token",
            Self::Bearer => "bearer, cached token",
            Self::Handle => "session by handle",
            Self::PlainHandle => "no plugin, with handle",
            Self::Sealed => "session in cookie",
            Self::PlainSealed => "no plugin, with session",
            Self::Cold => "bearer, unseen RS256",
            Self::PlainCold => "no plugin, with unseen",
            Self::Brokered => "brokered, cached token",
            Self::Throttle => "throttling",
            Self::Told => "throttling, 2 rates, told",
            Self::Traced => "traced, 1 in 100 kept",
            Self::Both => "bearer and throttling",
            Self::Unauthorized => "refused 401",
            Self::NotFound => "refused 404",
            Self::Throttled => "refused 429",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Floor | Self::Nginx | Self::Plain | Self::PlainToken => "/plain/x",
            Self::PlainHandle | Self::PlainSealed | Self::PlainCold => "/plain/x",
            Self::Handle => "/handle/x",
            Self::Sealed => "/sealed/x",
            Self::Cold => "/cold/x",
            Self::Bearer | Self::Unauthorized => "/bearer/x",
            Self::Brokered => "/brokered/x",
            Self::Throttle => "/throttle/x",
            Self::Told => "/told/x",
            Self::Traced => "/everyday/opentelemetry/x",
            Self::Both => "/both/x",
            Self::NotFound => "/nowhere/x",
            Self::Throttled => "/limited/x",
        }
    }

    /// Whether each of its requests shows the same to be let in.
    fn shows(self) -> bool {
        let nothing = matches!(
            self,
            Self::Floor | Self::Nginx | Self::Plain | Self::Throttle | Self::Told | Self::Traced
        );
        !nothing && self.status() == 200 && !self.is_cold()
    }

    fn is_cold(self) -> bool {
        matches!(self, Self::Cold | Self::PlainCold)
    }

    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::NotFound => 404,
            Self::Throttled => 429,
            _ => 200,
        }
    }
}

/// The proxies with one number of workers, all running.
pub(crate) struct Field {
    cores: usize,
    floor: Floor,
    nginx: Option<Peer>,
    door: Door,
    credentials: Credentials,
}

impl Field {
    pub(crate) fn open(cores: usize, upstream: &Port, binary: &Path) -> Result<Self> {
        let floor = Floor::start(upstream, cores)?;
        let nginx = Peer::nginx(&Runner::Direct, upstream, cores)?;
        let mut door = Door::prepare(binary, upstream, cores)?;
        door.start()?;
        let credentials = Credentials::get(&door)?;
        if let Some(sealed) = &credentials.sealed {
            println!("the cookies of a session are {} bytes", sealed.len());
        }
        Ok(Self {
            cores,
            floor,
            nginx,
            door,
            credentials,
        })
    }

    /// Runs `rounds` rounds of all cases that can run.
    pub(crate) fn measure(self, rounds: u32, report: &mut Report) -> Result<()> {
        let mut cases = Vec::new();
        for case in CASES {
            match self.check(case) {
                Ok(()) => cases.push(case),
                Err(error) => println!("left out: {}: {error:#}", case.name()),
            }
        }
        for round in 0..rounds {
            print!("\r{} core(s), round {} of {rounds} ", self.cores, round + 1);
            std::io::Write::flush(&mut std::io::stdout())?;
            let mut results = Vec::new();
            for case in &cases {
                results.push((*case, self.round(*case)?));
            }
            report.add(self.cores, results);
        }
        println!();
        Ok(())
    }

    /// Whether the case answers as it should, before anything is measured.
    fn check(&self, case: Case) -> Result<()> {
        if case.is_cold() {
            return Ok(());
        }
        if case.shows() && self.line(case).is_none() {
            bail!("there is nothing to show");
        }
        let Some(port) = self.port(case) else {
            bail!("not installed");
        };
        let line = self.line(case);
        // Refusals need a first request to be refused; caches one to be warm.
        let mut status = 0;
        for _ in 0..50 {
            let limit = Duration::from_secs(5);
            status = http::get_with(port, case.path(), line.as_deref(), limit)?.0;
            if status == case.status() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("answered {status} instead of {}", case.status());
    }

    fn round(&self, case: Case) -> Result<Round> {
        let Some(port) = self.port(case) else {
            bail!("not installed");
        };
        if case == Case::Cold {
            self.credentials.renew_unseen(port, self.cores)?;
        }
        let before = self.cpu(case)?;
        let mut round = if case.is_cold() {
            wrk::run_script(port, case.path(), &self.credentials.unseen())?
        } else {
            wrk::run(port, case.path(), self.line(case).as_deref())?
        };
        let spent = self.cpu(case)?.saturating_sub(before);
        round.cpu_us = spent.as_secs_f64() * 1e6 / round.requests.max(1) as f64;
        round.unexpected = match case.status() {
            200 => round.not_2xx,
            _ => round.requests - round.not_2xx.min(round.requests),
        };
        Ok(round)
    }

    /// The header line that a case's requests show.
    fn line(&self, case: Case) -> Option<String> {
        let bearer = |token: &String| format!("Authorization: Bearer {token}");
        let cookie = |cookies: &String| format!("Cookie: {cookies}");
        match case {
            Case::Brokered => self.credentials.brokered.as_ref().map(bearer),
            Case::Handle | Case::PlainHandle => self.credentials.handle.as_ref().map(cookie),
            Case::Sealed | Case::PlainSealed => self.credentials.sealed.as_ref().map(cookie),
            case if case.shows() => self.credentials.token.as_ref().map(bearer),
            _ => None,
        }
    }

    fn port(&self, case: Case) -> Option<&Port> {
        match case {
            Case::Floor => Some(self.floor.port()),
            Case::Nginx => self.nginx.as_ref().map(Peer::port),
            _ => Some(self.door.port()),
        }
    }

    fn cpu(&self, case: Case) -> Result<Duration> {
        match case {
            Case::Floor => self.floor.cpu(),
            Case::Nginx => self.nginx.as_ref().map_or(Ok(Duration::ZERO), Peer::cpu),
            _ => self.door.cpu(),
        }
    }
}
