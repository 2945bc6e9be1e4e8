//! Sessions in a Redis or a memcached.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::{Cmd, ConnectionAddr, IntoConnectionInfo, Value, cmd};

use crate::config::fields::wrong;
use crate::session::storage::config::{RemoteConfig, Server};
use crate::session::storage::{Lock, StorageError};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::{SessionTombstone, StoredLogin, TombstoneKey};
use doorward_net::shared::Redis;
use doorward_net::shared::memcached::{Address, Memcached, Put};
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::ConfigError;

/// Most keys that one listing looks at.
const LISTED: usize = 100_000;
/// Keys of one step of a listing.
const STEP: usize = 500;
/// Removes a key if its value is still that.
const REMOVE_IF: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     return redis.call('DEL', KEYS[1]) else return 0 end";

/// Raises the number at a key, whoever else does at this moment, and keeps it until
/// a time.
const RAISE: &str = "local known = tonumber(redis.call('GET', KEYS[1]) or '') \
     local value = ARGV[1] \
     if known and known > tonumber(value) then value = redis.call('GET', KEYS[1]) end \
     redis.call('SET', KEYS[1], value, 'PXAT', ARGV[2]) \
     return 1";

/// A server that keeps sessions.
pub(crate) struct Remote {
    server: Client,
    prefix: String,
    /// Longest wait for an answer, in milliseconds.
    pub(crate) wait_ms: i64,
}

enum Client {
    Redis(Redis),
    Memcached(Memcached),
}

impl Remote {
    pub(crate) fn open(config: &RemoteConfig, metrics: &Metrics) -> Result<Self, ConfigError> {
        let server = match &config.server {
            Server::Memcached(address) => {
                Client::Memcached(Memcached::new(address.clone(), config.deadline, metrics))
            }
            Server::Redis { .. } => Client::Redis(redis(config, metrics)?),
        };
        Ok(Self {
            server,
            prefix: config.prefix.clone(),
            wait_ms: i64::try_from((config.connect + config.deadline).as_millis())
                .unwrap_or(i64::MAX),
        })
    }

    fn key(&self, key: &TokenHash) -> String {
        format!("{}:{}", self.prefix, URL_SAFE_NO_PAD.encode(key.0))
    }

    fn lock_key(&self, key: &TokenHash) -> String {
        format!("{}:lock:{}", self.prefix, URL_SAFE_NO_PAD.encode(key.0))
    }

    fn mark_key(&self, what: &TombstoneKey) -> String {
        format!("{}:end:{}", self.prefix, URL_SAFE_NO_PAD.encode(what))
    }

    pub(crate) async fn insert(&self, login: &StoredLogin) -> Result<(), StorageError> {
        let value = login.sealed.as_bytes();
        self.put(Put::Always, &self.key(&login.key), value, login.ends_ms)
            .await
            .map(drop)
    }

    pub(crate) async fn update(
        &self,
        login: &StoredLogin,
        lock: Lock,
    ) -> Result<bool, StorageError> {
        let (key, value) = (self.key(&login.key), login.sealed.as_bytes());
        let there = self.put(Put::Existing, &key, value, login.ends_ms).await?;
        if self.unlock(&login.key, lock).await.is_err() {
            // What counts is kept.
            tracing::warn!("a session stays locked for a while");
        }
        Ok(there)
    }

    pub(crate) async fn load(&self, key: &TokenHash) -> Result<Option<String>, StorageError> {
        let found = self.get(&[self.key(key)]).await?.pop().flatten();
        // What is no text is nothing of ours, and does not open.
        Ok(found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(crate) async fn lock(&self, key: &TokenHash, lock: Lock) -> Result<bool, StorageError> {
        let holder = lock.holder.to_string();
        let (key, holder) = (self.lock_key(key), holder.as_bytes());
        // Its server measures by its own clock.
        let taken = self.put(Put::New, &key, holder, lock.until_ms).await?;
        if taken || matches!(self.server, Client::Redis(_)) {
            return Ok(taken);
        }
        // Where a connection was lost it is asked twice, and finds its own.
        let found = self.get(&[key]).await?.pop().flatten();
        Ok(found.is_some_and(|found| found == holder))
    }

    pub(crate) async fn unlock(&self, key: &TokenHash, lock: Lock) -> Result<(), StorageError> {
        let (key, holder) = (self.lock_key(key), lock.holder.to_string());
        match &self.server {
            Client::Memcached(memcached) => {
                memcached.remove_if(&key, holder.as_bytes()).await?;
            }
            Client::Redis(redis) => {
                let mut eval = cmd("EVAL");
                eval.arg(REMOVE_IF).arg(1).arg(&key).arg(&holder);
                ask::<Value>(redis, &eval).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn end(&self, key: &TokenHash) -> Result<(), StorageError> {
        self.remove(self.key(key)).await
    }

    pub(crate) async fn is_over(
        &self,
        of: &[TombstoneKey],
        started_ms: i64,
    ) -> Result<bool, StorageError> {
        let keys: Vec<_> = of.iter().map(|what| self.mark_key(what)).collect();
        let before = self.before(&keys).await?;
        Ok(before.is_some_and(|before| started_ms <= before))
    }

    pub(crate) async fn mark(
        &self,
        marks: &[SessionTombstone],
        now_ms: i64,
    ) -> Result<(), StorageError> {
        for mark in marks.iter().filter(|mark| mark.until_ms > now_ms) {
            // One from before does not undo a later one.
            let key = self.mark_key(&mark.what);
            self.raise(&key, mark.before_ms, mark.until_ms).await?;
        }
        Ok(())
    }

    async fn raise(&self, key: &str, value: i64, until_ms: i64) -> Result<(), StorageError> {
        match &self.server {
            Client::Memcached(memcached) => {
                memcached.raise(key, value, whole_secs(until_ms)).await?;
            }
            Client::Redis(redis) => {
                let mut eval = cmd("EVAL");
                eval.arg(RAISE).arg(1).arg(key).arg(value).arg(until_ms);
                ask::<Value>(redis, &eval).await?;
            }
        }
        Ok(())
    }

    /// Up to when sessions are over by the latest of these marks.
    async fn before(&self, marks: &[String]) -> Result<Option<i64>, StorageError> {
        let found = self.get(marks).await?;
        let before = found.into_iter().flatten().filter_map(|bytes| {
            let text = String::from_utf8(bytes).ok()?;
            text.parse::<i64>().ok()
        });
        Ok(before.max())
    }

    /// The sealed sessions, with their keys; `None`: the server can't list. Says
    /// also whether these are all.
    pub(crate) async fn list(
        &self,
    ) -> Result<Option<(Vec<(TokenHash, String)>, bool)>, StorageError> {
        let Client::Redis(redis) = &self.server else {
            return Ok(None);
        };
        let pattern = format!("{}:*", escaped(&self.prefix));
        let (mut cursor, mut looked, mut all) = ("0".to_owned(), 0, Vec::new());
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern);
            scan.arg("COUNT").arg(STEP);
            let step: (String, Vec<String>) = ask(redis, &scan).await?;
            cursor = step.0;
            looked += step.1.len();
            let keys: Vec<_> = step.1.iter().filter_map(|key| self.own(key)).collect();
            if !keys.is_empty() {
                let names: Vec<_> = keys.iter().map(|key| self.key(key)).collect();
                let values = self.get(&names).await?;
                let sealed = values.into_iter().map(|v| String::from_utf8(v?).ok());
                let pairs = keys.into_iter().zip(sealed);
                all.extend(pairs.filter_map(|(key, sealed)| Some((key, sealed?))));
            }
            if cursor == "0" || looked >= LISTED {
                return Ok(Some((all, cursor == "0")));
            }
        }
    }

    /// The session that a key is of.
    fn own(&self, key: &str) -> Option<TokenHash> {
        let text = key.strip_prefix(&self.prefix)?.strip_prefix(':')?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(TokenHash)
    }

    async fn get(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StorageError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        match &self.server {
            Client::Memcached(memcached) => Ok(memcached.get(keys).await?),
            Client::Redis(redis) => {
                let mut mget = cmd("MGET");
                mget.arg(keys);
                ask(redis, &mget).await
            }
        }
    }

    async fn put(
        &self,
        put: Put,
        key: &str,
        value: &[u8],
        until_ms: i64,
    ) -> Result<bool, StorageError> {
        match &self.server {
            Client::Memcached(memcached) => {
                Ok(memcached.put(put, key, value, whole_secs(until_ms)).await?)
            }
            Client::Redis(redis) => {
                let mut set = cmd("SET");
                set.arg(key).arg(value).arg("PXAT").arg(until_ms);
                match put {
                    Put::Always => {}
                    Put::New => drop(set.arg("NX")),
                    Put::Existing => drop(set.arg("XX")),
                }
                redis.ready().await;
                Ok(redis.call(&set).await? != Value::Nil)
            }
        }
    }

    async fn remove(&self, key: String) -> Result<(), StorageError> {
        match &self.server {
            Client::Memcached(memcached) => Ok(memcached.remove(&key).await?),
            Client::Redis(redis) => {
                redis.ready().await;
                redis.remove(&[key]).await?;
                Ok(())
            }
        }
    }
}

/// Whole seconds, of which the last one counts as well.
fn whole_secs(until_ms: i64) -> i64 {
    until_ms.div_euclid(1000).saturating_add(1)
}

async fn ask<T: redis::FromRedisValue>(redis: &Redis, command: &Cmd) -> Result<T, StorageError> {
    redis.ready().await;
    let value = redis.call(command).await?;
    redis::from_redis_value(value).map_err(|_| StorageError)
}

fn redis(config: &RemoteConfig, metrics: &Metrics) -> Result<Redis, ConfigError> {
    let refused = || wrong("redis", "no such server can be connected to");
    let Server::Redis {
        address,
        tls,
        database,
        username,
        ..
    } = &config.server
    else {
        return Err(refused());
    };
    let address = match address {
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Address::Tcp(host, port) if *tls => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
    };
    let info = address.into_connection_info().map_err(|_| refused())?;
    let mut settings = info.redis_settings().clone().set_db(*database);
    if let Some(username) = username {
        settings = settings.set_username(username);
    }
    if let Some(password) = config.server.password() {
        settings = settings.set_password(password.expose());
    }
    let client = redis::Client::open(info.set_redis_settings(settings)).map_err(|_| refused())?;
    let (connect, deadline) = (config.connect, config.deadline);
    let opened = Redis::of_sessions(client, &config.prefix, connect, deadline, metrics);
    opened.map_err(|_| refused())
}

/// A text that stands for itself in a pattern of Redis.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::session::storage::Storage;
    use doorward_core::clock::Clock;
    use doorward_net::shared::testing;

    /// A program that ends with its test.
    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    fn remote(server: Server, deadline: Duration) -> Arc<Remote> {
        let config = RemoteConfig {
            server,
            prefix: "test".to_owned(),
            connect: PATIENCE,
            deadline,
        };
        Arc::new(Remote::open(&config, &Metrics::default()).expect("a server"))
    }

    fn redis_at(port: u16) -> Server {
        Server::Redis {
            address: Address::Tcp("127.0.0.1".to_owned(), port),
            tls: false,
            database: 0,
            username: None,
            password: None,
        }
    }

    fn memcached_at(port: u16) -> Server {
        Server::Memcached(Address::Tcp("127.0.0.1".to_owned(), port))
    }

    fn login(key: TokenHash, ends_ms: i64) -> StoredLogin {
        StoredLogin {
            key,
            id: "id".to_owned(),
            issuer: String::new(),
            client_id: "app".to_owned(),
            subject: None,
            sid: None,
            started_ms: 0,
            used_ms: 0,
            ends_ms,
            sealed: "sealed".to_owned(),
        }
    }

    async fn only_its_holder_unlocks(remote: Arc<Remote>) {
        let storage = Storage::Remote(Arc::clone(&remote));
        let (key, now_ms) = (TokenHash([7; 32]), Clock::system().now_ms());
        let until_ms = now_ms + 600_000;
        let login = login(key, until_ms);
        storage.insert(&login).await.expect("kept");
        let lock = async || {
            storage
                .lock(&key, until_ms, now_ms)
                .await
                .expect("an answer")
        };
        let late = lock().await.expect("nobody else has");
        assert_eq!(lock().await, None);
        // Its time is over, and somebody else's begins.
        remote.remove(remote.lock_key(&key)).await.expect("removed");
        let next = lock().await.expect("nobody else has");
        storage.unlock(&key, late).await.expect("an answer");
        assert!(storage.update(&login, late).await.expect("an answer"));
        assert_eq!(lock().await, None, "it frees nobody's but its own");
        storage.unlock(&key, next).await.expect("an answer");
        let again = lock().await.expect("it is free");
        assert!(storage.update(&login, again).await.expect("an answer"));
        assert!(lock().await.is_some(), "as it is when the session is kept");
    }

    async fn no_mark_undoes_a_later_one(remote: Arc<Remote>) {
        let now_ms = Clock::system().now_ms();
        let mark = |before_ms| SessionTombstone {
            what: [7; 16],
            before_ms,
            until_ms: now_ms + 600_000,
        };
        remote.mark(&[mark(20)], now_ms).await.expect("marked");
        remote.mark(&[mark(10)], now_ms).await.expect("marked");
        let ends_up_to = async |last: i64| {
            for (started_ms, over) in [(last, true), (last + 1, false)] {
                let found = remote.is_over(&[[7; 16]], started_ms).await;
                assert_eq!(found.expect("an answer"), over, "{started_ms}");
            }
        };
        ends_up_to(20).await;
        // Nor one of another node at the same moment.
        let befores = (1..=40).map(|n| 100 + (n * 7) % 41);
        let marks: Vec<_> = befores.map(|before_ms| [mark(before_ms)]).collect();
        let marked = marks.iter().map(|marks| remote.mark(marks, now_ms));
        for marked in futures_util::future::join_all(marked).await {
            marked.expect("marked");
        }
        ends_up_to(140).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_its_holder_unlocks_and_marks_stay_in_a_redis() {
        let server = testing::Server::start();
        let remote = remote(redis_at(server.port), PATIENCE);
        only_its_holder_unlocks(Arc::clone(&remote)).await;
        no_mark_undoes_a_later_one(remote).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_its_holder_unlocks_and_marks_stay_in_a_memcached() {
        let port = testing::free_port();
        let process = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p"])
            .arg(port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let _process = Ended(process.expect("memcached is installed (make deps)"));
        let remote = remote(memcached_at(port), PATIENCE);
        let answers = async {
            while remote.load(&TokenHash([1; 32])).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let answers = tokio::time::timeout(Duration::from_secs(60), answers).await;
        answers.expect("it answers");
        only_its_holder_unlocks(Arc::clone(&remote)).await;
        no_mark_undoes_a_later_one(remote).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lock_whose_answer_comes_too_late_is_nobodys() {
        let server = testing::Server::start();
        let remote = remote(redis_at(server.port), Duration::from_millis(500));
        let key = TokenHash([7; 32]);
        while remote.load(&key).await.is_err() {}
        let storage = Storage::Remote(remote);
        let now_ms = Clock::system().now_ms();
        let lock = async || storage.lock(&key, now_ms + 600_000, now_ms).await;
        server.freeze(true);
        assert!(lock().await.is_err());
        server.freeze(false);
        let taken = async {
            while !matches!(lock().await, Ok(Some(_))) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let taken = tokio::time::timeout(Duration::from_secs(60), taken).await;
        taken.expect("it is free again");
    }

    /// A memcached that takes the first `add`, and loses the connection in place of
    /// its answer.
    async fn loses_an_answer(listener: TcpListener) {
        let accept = async || {
            let (stream, _) = listener.accept().await.expect("a connection");
            BufStream::new(stream)
        };
        let line = async |stream: &mut BufStream<TcpStream>| {
            let mut line = String::new();
            stream.read_line(&mut line).await.expect("a line");
            line
        };
        let say = async |stream: &mut BufStream<TcpStream>, text: &str| {
            stream.write_all(text.as_bytes()).await.expect("written");
            stream.flush().await.expect("sent");
        };
        let mut first = accept().await;
        assert!(line(&mut first).await.starts_with("get "));
        say(&mut first, "END\r\n").await;
        let (add, holder) = (line(&mut first).await, line(&mut first).await);
        drop(first);
        let mut second = accept().await;
        assert_eq!(line(&mut second).await, add);
        assert_eq!(line(&mut second).await, holder);
        say(&mut second, "NOT_STORED\r\n").await;
        let get = line(&mut second).await;
        let (key, length) = (get["get ".len()..].trim(), holder.trim().len());
        let value = format!("VALUE {key} 0 {length}\r\n{holder}END\r\n");
        say(&mut second, &value).await;
    }

    #[tokio::test]
    async fn a_lock_that_is_asked_for_twice_as_a_connection_was_lost_is_ones_own() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let remote = remote(memcached_at(port), PATIENCE);
        tokio::spawn(loses_an_answer(listener));
        let key = TokenHash([7; 32]);
        assert_eq!(remote.load(&key).await, Ok(None));
        let taken = remote.lock(&key, Lock::new(600_000)).await;
        assert_eq!(taken, Ok(true));
    }
}
