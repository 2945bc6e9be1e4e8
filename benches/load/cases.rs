//! What is measured, and the proxies that stand for one number of cores.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::door::Door;
use crate::floor::Floor;
use crate::http;
use crate::nginx::Nginx;
use crate::process::{self, Port};
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
    /// A token of the token broker that has been seen before.
    Brokered,
    /// Throttled at a rate that is never reached.
    Throttle,
    /// The same by two rates, and clients are told.
    Told,
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
pub(crate) const CASES: [Case; 12] = [
    Case::Floor,
    // Next to each other what is compared most closely.
    Case::Throttle,
    Case::Plain,
    Case::Told,
    Case::Brokered,
    Case::PlainToken,
    Case::Both,
    Case::Bearer,
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
            Self::Brokered => "brokered, cached token",
            Self::Throttle => "throttling",
            Self::Told => "throttling, 2 rates, told",
            Self::Both => "bearer and throttling",
            Self::Unauthorized => "refused 401",
            Self::NotFound => "refused 404",
            Self::Throttled => "refused 429",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Floor | Self::Nginx | Self::Plain | Self::PlainToken => "/plain/x",
            Self::Bearer | Self::Unauthorized => "/bearer/x",
            Self::Brokered => "/brokered/x",
            Self::Throttle => "/throttle/x",
            Self::Told => "/told/x",
            Self::Both => "/both/x",
            Self::NotFound => "/nowhere/x",
            Self::Throttled => "/limited/x",
        }
    }

    pub(crate) fn carries_token(self) -> bool {
        matches!(
            self,
            Self::PlainToken | Self::Bearer | Self::Brokered | Self::Both
        )
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
    nginx: Option<Nginx>,
    door: Door,
    token: Option<String>,
    /// One that the broker gave.
    brokered: Option<String>,
}

impl Field {
    pub(crate) fn open(cores: usize, upstream: &Port, binary: &Path) -> Result<Self> {
        let floor = Floor::start(upstream, cores)?;
        let nginx = match process::find("nginx") {
            Some(program) => Some(Nginx::start(&program, upstream, cores)?),
            None => None,
        };
        let mut door = Door::prepare(binary, upstream, cores)?;
        door.start()?;
        let token = match door.token() {
            Ok(token) => Some(token),
            Err(error) => {
                println!("no token, so no case that carries one: {error:#}");
                None
            }
        };
        let brokered = match door.brokered_token() {
            Ok(token) => Some(token),
            Err(error) => {
                println!("no brokered token: {error:#}");
                None
            }
        };
        Ok(Self {
            cores,
            floor,
            nginx,
            door,
            brokered,
            token,
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
        if case.carries_token() && self.bearer(case).is_none() {
            bail!("there is no token");
        }
        let Some(port) = self.port(case) else {
            bail!("not installed");
        };
        // Refusals need a first request to be refused; caches one to be warm.
        let mut status = 0;
        for _ in 0..50 {
            status = http::get(port, case.path(), self.bearer(case), Duration::from_secs(5))?.0;
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
        let before = self.cpu(case)?;
        let mut round = wrk::run(port, case.path(), self.bearer(case))?;
        let spent = self.cpu(case)?.saturating_sub(before);
        round.cpu_us = spent.as_secs_f64() * 1e6 / round.requests.max(1) as f64;
        round.unexpected = match case.status() {
            200 => round.not_2xx,
            _ => round.requests - round.not_2xx.min(round.requests),
        };
        Ok(round)
    }

    fn bearer(&self, case: Case) -> Option<&str> {
        let token = match case {
            Case::Brokered => &self.brokered,
            _ => &self.token,
        };
        token.as_deref().filter(|_| case.carries_token())
    }

    fn port(&self, case: Case) -> Option<&Port> {
        match case {
            Case::Floor => Some(self.floor.port()),
            Case::Nginx => self.nginx.as_ref().map(Nginx::port),
            _ => Some(self.door.port()),
        }
    }

    fn cpu(&self, case: Case) -> Result<Duration> {
        match case {
            Case::Floor => self.floor.cpu(),
            Case::Nginx => self.nginx.as_ref().map_or(Ok(Duration::ZERO), Nginx::cpu),
            _ => self.door.cpu(),
        }
    }
}
