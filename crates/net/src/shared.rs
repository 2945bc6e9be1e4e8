//! State that nodes share, in a Redis.
//!
//! One connection carries every worker's commands, pipelined, on a thread of
//! its own. It is in use or it is not ([`Redis::is_up`]): an answer that does
//! not come within the deadline, or an error, takes it out of use at once, for
//! all; a probe that is answered in time brings it back. Nothing ever waits
//! longer than the deadline, and who gets no answer goes on without.
//!
//! Login sessions may have a Redis of their own ([`Redis::of_sessions`]), or a
//! [`memcached`]: these are asked in the same way.

mod config;
pub mod memcached;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

pub use config::{RedisConfig, RedisConfigError};

use crate::telemetry::Metrics;
use crate::telemetry::metrics::{Counter, Gauge};

/// Longest wait for a connection, the handshakes included.
const CONNECT: Duration = Duration::from_secs(2);
/// Between two tries to connect, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// How often a connection nobody complains of is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Least time between two lines in the log that say the same.
const QUIET: Duration = Duration::from_secs(10);

/// No answer: do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the shared Redis gives no answer")]
pub struct Unavailable;

/// A script, known by its hash once the server has seen it.
#[derive(Debug, Clone)]
pub struct Script {
    code: &'static str,
    hash: Arc<str>,
}

/// What is said of a Redis that comes and goes.
#[derive(Debug, Clone, Copy)]
struct Messages {
    up: &'static str,
    down: &'static str,
}

const COUNTERS: Messages = Messages {
    up: "the shared Redis answers: counters are shared",
    down: "the shared Redis gives no answer: counting in this process alone",
};
const PLUGINS: Messages = Messages {
    up: "the Redis of a plugin answers",
    down: "the Redis of a plugin gives no answer",
};
const SESSIONS: Messages = Messages {
    up: "the Redis of login sessions answers",
    down: "the Redis of login sessions gives no answer: requests with a session are refused",
};

/// A Redis; clones share the connection. It is let go with the last of them.
#[derive(Clone)]
pub struct Redis(Arc<Inner>);

struct Inner {
    client: Client,
    deadline: Duration,
    /// Longest wait for a connection.
    connect: Duration,
    says: Messages,
    /// The key by which is seen whether the server takes writes.
    probe: String,
    /// The connection, while it is in use.
    live: ArcSwapOption<MultiplexedConnection>,
    /// Tells the thread that the connection went out of use, or that there is a
    /// new script.
    news: Notify,
    /// Every connection learns them before it is used, or as they come.
    scripts: Mutex<Vec<Script>>,
    up: Gauge,
    failures: Counter,
}

impl Redis {
    /// Begins to connect and returns at once; commands fail until it is done.
    ///
    /// # Errors
    /// Where the configuration is not that of a Redis.
    pub fn open(config: &RedisConfig, metrics: &Metrics) -> Result<Self, RedisConfigError> {
        Self::begin(Inner {
            client: config.client()?,
            deadline: config.deadline()?,
            connect: CONNECT,
            says: COUNTERS,
            probe: "doorward:probe".to_owned(),
            live: ArcSwapOption::empty(),
            news: Notify::new(),
            scripts: Mutex::default(),
            up: metrics.redis_up(),
            failures: metrics.redis_failures(),
        })
    }

    /// As [`Redis::open`], for plugins that name a Redis of their own. Metrics
    /// show that of the process alone. The probe's key begins as those of counters do:
    /// their user may have no others.
    ///
    /// # Errors
    /// As there.
    pub fn of_plugins(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        Self::begin(Inner {
            client: config.client()?,
            deadline: config.deadline()?,
            connect: CONNECT,
            says: PLUGINS,
            probe: "ratelimit:probe".to_owned(),
            live: ArcSwapOption::empty(),
            news: Notify::new(),
            scripts: Mutex::default(),
            up: Gauge::default(),
            failures: Counter::default(),
        })
    }

    /// As [`Redis::open`], for login sessions: that of `client`, with the longest
    /// waits for a connection and for an answer. All keys begin with `prefix`: its
    /// user may have no others.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn of_sessions(
        client: Client,
        prefix: &str,
        connect: Duration,
        deadline: Duration,
        metrics: &Metrics,
    ) -> Result<Self, RedisConfigError> {
        Self::begin(Inner {
            client,
            deadline,
            connect,
            says: SESSIONS,
            probe: format!("{prefix}:probe"),
            live: ArcSwapOption::empty(),
            news: Notify::new(),
            scripts: Mutex::default(),
            up: metrics.session_store_up(),
            failures: metrics.session_store_failures(),
        })
    }

    fn begin(inner: Inner) -> Result<Self, RedisConfigError> {
        let inner = Arc::new(inner);
        inner.up.set(0);
        let weak = Arc::downgrade(&inner);
        let thread = std::thread::Builder::new().name("redis".to_owned());
        let spawned = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => runtime.block_on(keep_connected(weak)),
                Err(error) => tracing::error!(%error, "no runtime for the shared Redis"),
            }
        });
        spawned.map_err(RedisConfigError::Thread)?;
        Ok(Self(inner))
    }

    /// Whether commands are answered, as far as is known.
    pub fn is_up(&self) -> bool {
        self.0.live.load().is_some()
    }

    /// Makes a script known to this and every later connection.
    pub fn script(&self, code: &'static str) -> Script {
        let hash = redis::Script::new(code).get_hash().into();
        let script = Script { code, hash };
        let mut scripts = self.0.scripts.lock();
        if !scripts.iter().any(|known| known.code == code) {
            scripts.push(script.clone());
            self.0.news.notify_one();
        }
        script
    }

    /// Runs a script: one round trip, two if the server has forgotten it.
    ///
    /// # Errors
    /// [`Unavailable`] where no integers come within the deadline.
    pub async fn run(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[u64],
    ) -> Result<Vec<i64>, Unavailable> {
        let command = |verb: &str, script: &str| {
            let mut command = redis::cmd(verb);
            command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
            command
        };
        let first = command("EVALSHA", &script.hash);
        let answer = match self.ask(&first).await? {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                self.ask(&command("EVAL", script.code)).await?
            }
            answer => answer,
        };
        let integers = answer.and_then(|value| Ok(redis::from_redis_value(value)?));
        integers.map_err(|error| self.gone(&error.to_string()))
    }

    /// Removes keys of one hash slot; whether there was one.
    ///
    /// # Errors
    /// [`Unavailable`] where no answer comes within the deadline.
    pub async fn remove(&self, keys: &[String]) -> Result<bool, Unavailable> {
        if keys.is_empty() {
            return Ok(false);
        }
        let mut command = redis::cmd("DEL");
        command.arg(keys);
        match self.ask(&command).await? {
            Ok(Value::Int(removed)) => Ok(removed > 0),
            Ok(_) => Err(self.gone("DEL is not answered by a number")),
            Err(error) => Err(self.gone(&error.to_string())),
        }
    }

    /// Sets a key for `life_ms` milliseconds; whether it was not there. Of two who
    /// set it at once, one is told yes.
    ///
    /// # Errors
    /// [`Unavailable`] where no answer comes within the deadline.
    pub async fn remember(&self, key: &str, life_ms: u64) -> Result<bool, Unavailable> {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(1).arg("NX").arg("PX").arg(life_ms);
        match self.ask(&command).await? {
            Ok(Value::Okay) => Ok(true),
            Ok(Value::Nil) => Ok(false),
            Ok(_) => Err(self.gone("SET is answered by neither OK nor nil")),
            Err(error) => Err(self.gone(&error.to_string())),
        }
    }

    /// Waits until it is in use, but no longer than a connection may take.
    pub async fn ready(&self) {
        let until = Instant::now() + self.0.connect;
        while !self.is_up() && Instant::now() < until {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// The answer to a command that is no error.
    ///
    /// # Errors
    /// [`Unavailable`] where none comes within the deadline.
    pub async fn call(&self, command: &Cmd) -> Result<Value, Unavailable> {
        let answer = self.ask(command).await?;
        answer.map_err(|error| self.gone(&error.to_string()))
    }

    /// The server's answer, which may be an error.
    async fn ask(&self, command: &Cmd) -> Result<Result<Value, RedisError>, Unavailable> {
        let used = self.0.live.load_full();
        let Some(live) = &used else {
            return Err(Unavailable);
        };
        let mut connection = MultiplexedConnection::clone(live);
        let answer = connection.send_packed_command(command);
        match timeout(self.0.deadline, answer).await {
            Ok(answer) => Ok(answer.and_then(Value::extract_error)),
            Err(_) => Err(self.silent(&used)),
        }
    }

    /// Takes the connection that gave no answer out of use, unless that has been
    /// done: the next one may be good.
    fn silent(&self, used: &Option<Arc<MultiplexedConnection>>) -> Unavailable {
        self.0.failures.inc();
        let found = self.0.live.compare_and_swap(used, None);
        let same = |one: &Arc<_>| used.as_ref().is_some_and(|used| Arc::ptr_eq(one, used));
        if found.as_ref().is_some_and(same) {
            self.report_down("no answer within the deadline");
        }
        Unavailable
    }

    /// Takes the connection out of use.
    fn gone(&self, why: &str) -> Unavailable {
        self.0.failures.inc();
        if self.0.live.swap(None).is_some() {
            self.report_down(why);
        }
        Unavailable
    }

    fn report_down(&self, why: &str) {
        self.0.up.set(0);
        tracing::debug!(why, "the shared Redis is out of use");
        self.0.news.notify_one();
    }
}

/// Connects, watches, and connects again, until nobody needs it any more.
async fn keep_connected(inner: Weak<Inner>) {
    let Some(says) = inner.upgrade().map(|redis| redis.says) else {
        return;
    };
    let mut news = AvailabilityLog::of(says);
    let mut wait = RETRY[0];
    while let Some(redis) = inner.upgrade() {
        match redis.connect().await {
            Ok(connection) => {
                news.up();
                wait = RETRY[0];
                redis.live.store(Some(Arc::new(connection)));
                redis.up.set(1);
            }
            Err(error) => {
                news.down(&error);
                drop(redis);
                sleep(wait).await;
                wait = (wait * 2).min(RETRY[1]);
                continue;
            }
        }
        drop(redis);
        if let Some(why) = until_lost(&inner).await {
            news.down(&why);
        }
        // A server that is slow now is still slow a moment later.
        sleep(wait).await;
    }
}

/// Waits until the connection is out of use; `None`: nobody needs it any more.
async fn until_lost(inner: &Weak<Inner>) -> Option<String> {
    // Loaded once more: it does no harm.
    let mut loaded = 0;
    loop {
        let redis = inner.upgrade()?;
        let _ = timeout(LOOK, redis.news.notified()).await;
        if redis.live.load().is_none() {
            return Some("no answer within the deadline, or an error".to_owned());
        }
        let mut connection = MultiplexedConnection::clone(&*redis.live.load_full()?);
        let scripts = redis.scripts.lock().clone();
        let new = scripts.get(loaded..).unwrap_or_default();
        loaded = scripts.len();
        let mut looked = redis.load(&mut connection, new).await;
        if looked.is_ok() {
            looked = redis.probe(&mut connection).await;
        }
        if let Err(error) = looked {
            redis.live.store(None);
            redis.up.set(0);
            redis.failures.inc();
            return Some(error);
        }
    }
}

impl Inner {
    async fn connect(&self) -> Result<MultiplexedConnection, String> {
        // Deadlines are kept here, for all alike.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let mut connection = match timeout(self.connect, connecting).await {
            Ok(connection) => connection.map_err(|error| error.to_string())?,
            Err(_) => return Err("no connection in time".to_owned()),
        };
        let scripts = self.scripts.lock().clone();
        self.load(&mut connection, &scripts).await?;
        // Before the probe, whose key may be on another node.
        match self.nodes(&mut connection).await {
            0 | 1 => self.probe(&mut connection).await.map(|()| connection),
            nodes => Err(format!(
                "it is one of {nodes} nodes of a Redis Cluster, and counters are shared through \
                 one node that holds all keys, or a proxy in front of the cluster"
            )),
        }
    }

    /// How many nodes of a cluster hold keys; 0: it is no cluster, or does not
    /// say.
    async fn nodes(&self, connection: &mut MultiplexedConnection) -> u64 {
        let mut info = redis::cmd("CLUSTER");
        info.arg("INFO");
        let answer = timeout(self.deadline, connection.send_packed_command(&info)).await;
        let answer = answer.ok().and_then(Result::ok);
        let text = answer.and_then(|value| redis::from_redis_value::<String>(value).ok());
        let lines = text.as_deref().unwrap_or_default().lines();
        let size = lines.filter_map(|line| line.strip_prefix("cluster_size:"));
        size.filter_map(|n| n.trim().parse::<u64>().ok()).sum()
    }

    /// Makes scripts known to the server.
    async fn load(
        &self,
        connection: &mut MultiplexedConnection,
        scripts: &[Script],
    ) -> Result<(), String> {
        for script in scripts {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(script.code);
            self.answered(connection, &load).await?;
        }
        Ok(())
    }

    /// Whether the server takes writes, in time.
    async fn probe(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut set = redis::cmd("SET");
        set.arg(&self.probe).arg(1).arg("PX").arg(1000);
        self.answered(connection, &set).await
    }

    async fn answered(
        &self,
        connection: &mut MultiplexedConnection,
        command: &Cmd,
    ) -> Result<(), String> {
        match timeout(self.deadline, connection.send_packed_command(command)).await {
            Ok(Ok(value)) => match value.extract_error() {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer within the deadline".to_owned()),
        }
    }
}

/// Says once that the Redis is gone, and once that it is back.
struct AvailabilityLog {
    says: Messages,
    said_up: Option<bool>,
    said_down_at: Option<Instant>,
}

impl AvailabilityLog {
    fn of(says: Messages) -> Self {
        Self {
            says,
            said_up: None,
            said_down_at: None,
        }
    }

    fn up(&mut self) {
        if self.said_up != Some(true) {
            self.said_up = Some(true);
            tracing::info!("{}", self.says.up);
        }
    }

    fn down(&mut self, why: &str) {
        // One that comes and goes is not worth a line each time; if it stays
        // away, the next try says so.
        let lately = self.said_down_at.is_some_and(|at| at.elapsed() < QUIET);
        if self.said_up != Some(false) && !lately {
            (self.said_up, self.said_down_at) = (Some(false), Some(Instant::now()));
            tracing::warn!(why, "{}", self.says.down);
        }
    }
}

#[cfg(test)]
mod tests;
