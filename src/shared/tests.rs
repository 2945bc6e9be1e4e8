//! Against a real server: gone, slow, back.

use super::testing::{Server, free_port, wait_until};
use super::*;

const ECHO: &str = "return {tonumber(ARGV[1]), #KEYS}";

async fn echo(redis: &Redis, n: u64) -> Result<Vec<i64>, Unavailable> {
    let script = redis.script(ECHO);
    redis.run(&script, &["k".to_owned()], &[n]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_run_and_survive_a_server_that_forgets_them() {
    let server = Server::start();
    let redis = server.connect(&Metrics::default());
    assert_eq!(echo(&redis, 7).await, Ok(vec![7, 1]));
    let mut flush = redis::cmd("SCRIPT");
    flush.arg("FLUSH");
    assert!(redis.ask(&flush).await.is_ok_and(|answer| answer.is_ok()));
    assert_eq!(echo(&redis, 8).await, Ok(vec![8, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_is_noticed_and_one_that_comes_back_is_used() {
    let metrics = Metrics::default();
    let server = Server::start();
    let port = server.port;
    let redis = server.connect(&metrics);
    assert_eq!(metrics.redis_up().get(), 1);
    drop(server);
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    assert!(!redis.is_up());
    assert_eq!(metrics.redis_up().get(), 0);
    assert_eq!(metrics.redis_failures().get(), 1);
    // It answers at once while there is none.
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    let _again = Server::start_on(port);
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 9).await, Ok(vec![9, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_noticed_without_a_request_too() {
    let server = Server::start();
    let metrics = Metrics::default();
    let redis = Redis::open(&server.config("500 ms"), &metrics).expect("a Redis");
    wait_until(|| redis.is_up());
    server.freeze(true);
    wait_until(|| !redis.is_up());
    server.freeze(false);
    wait_until(|| redis.is_up());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_yet_holds_nobody_up() {
    let port = free_port();
    let config = RedisConfig {
        url: crate::model::secret::Secret::new(format!("redis://127.0.0.1:{port}")),
        username: None,
        password: None,
        ca: None,
        deadline: "10 s".to_owned(),
    };
    let redis = Redis::open(&config, &Metrics::default()).expect("a Redis");
    assert_eq!(echo(&redis, 7).await, Err(Unavailable));
    let _server = Server::start_on(port);
    wait_until(|| redis.is_up());
    assert_eq!(echo(&redis, 7).await, Ok(vec![7, 1]));
}
