use pingora::protocols::l4::stream::Stream as TcpStream;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;

const LONG: Duration = Duration::from_secs(50);

/// An upstream with the peers and connections to it.
struct Upstream {
    listener: TcpListener,
    address: SocketAddr,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("no error");
        let address = listener.local_addr().expect("no error");
        Self { listener, address }
    }

    fn key(&self, name: &str) -> PoolKey {
        PoolKey::of(&HttpPeer::new(self.address, true, name.to_owned()))
    }

    /// Our end of a connection, and the upstream's.
    async fn connect(&self) -> (Stream, tokio::net::TcpStream) {
        let ours = tokio::net::TcpStream::connect(self.address);
        let (ours, theirs) = tokio::join!(ours, self.listener.accept());
        let stream: Stream = Box::new(TcpStream::from(ours.expect("no error")));
        (stream, theirs.expect("no error").0)
    }
}

/// Lets the runtime see what has come over the connections.
async fn settle(theirs: &tokio::net::TcpStream) {
    theirs.writable().await.expect("no error");
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn a_connection_is_for_those_alone_who_would_make_the_same() {
    let upstream = Upstream::start().await;
    let other = Upstream::start().await;
    let pool = UpstreamPool::new(8);
    let (stream, _theirs) = upstream.connect().await;
    pool.put(upstream.key("a.example"), stream, LONG);
    assert!(pool.take(upstream.key("b.example")).is_none());
    assert!(pool.take(other.key("a.example")).is_none());
    assert!(pool.take(upstream.key("a.example")).is_some());
    assert!(pool.take(upstream.key("a.example")).is_none());
}

#[tokio::test]
async fn the_connection_that_has_waited_least_is_taken_first() {
    let upstream = Upstream::start().await;
    let pool = UpstreamPool::new(8);
    let key = upstream.key("");
    let (first, _one) = upstream.connect().await;
    let (second, _two) = upstream.connect().await;
    let last = second.id();
    pool.put(key, first, LONG);
    pool.put(key, second, LONG);
    assert_eq!(pool.take(key).expect("no error").id(), last);
}

#[tokio::test]
async fn a_connection_that_its_upstream_has_closed_is_not_given_out() {
    let upstream = Upstream::start().await;
    let pool = UpstreamPool::new(8);
    let key = upstream.key("");
    let (good, kept) = upstream.connect().await;
    let (closed, theirs) = upstream.connect().await;
    let is_good = good.id();
    pool.put(key, good, LONG);
    pool.put(key, closed, LONG);
    drop(theirs);
    settle(&kept).await;
    assert_eq!(pool.take(key).expect("no error").id(), is_good);
}

#[tokio::test]
async fn a_connection_that_its_upstream_is_about_to_close_is_not_given_out() {
    let upstream = Upstream::start().await;
    let pool = UpstreamPool::new(8);
    let key = upstream.key("");
    let (stream, _theirs) = upstream.connect().await;
    pool.put(key, stream, Duration::ZERO);
    assert!(pool.take(key).is_none());
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_not_the_next_ones() {
    let upstream = Upstream::start().await;
    let pool = UpstreamPool::new(8);
    let key = upstream.key("");
    let (stream, mut theirs) = upstream.connect().await;
    pool.put(key, stream, LONG);
    let unasked = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    theirs.write_all(unasked).await.expect("no error");
    settle(&theirs).await;
    assert!(pool.take(key).is_none());
}

#[tokio::test]
async fn a_full_pool_closes_what_has_waited_longest() {
    let upstream = Upstream::start().await;
    let pool = UpstreamPool::new(2);
    let mut kept = Vec::new();
    for name in ["a.example", "b.example", "c.example"] {
        let (stream, theirs) = upstream.connect().await;
        kept.push(theirs);
        pool.put(upstream.key(name), stream, LONG);
    }
    assert!(pool.take(upstream.key("a.example")).is_none());
    assert!(pool.take(upstream.key("b.example")).is_some());
    assert!(pool.take(upstream.key("c.example")).is_some());
}

#[tokio::test]
async fn connections_that_nobody_takes_are_closed_and_leave_nothing() {
    let upstream = Upstream::start().await;
    let pool = UpstreamPool::new(8);
    let (stream, mut theirs) = upstream.connect().await;
    pool.put(upstream.key(""), stream, Duration::ZERO);
    // The end comes when the task has closed it.
    assert_eq!(theirs.read(&mut [0]).await.expect("no error"), 0);
    let connections = pool.connections.lock();
    assert_eq!(connections.count, 0);
    assert!(connections.by_key.is_empty());
    assert!(!connections.swept);
}
