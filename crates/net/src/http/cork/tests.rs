use std::future::poll_fn;
use std::pin::pin;
use std::task::Waker;

use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::http::framing::FramedStream;

/// A client, and the connection to it under a cork with so many streams.
fn corked(streams: usize, room: usize) -> (DuplexStream, FramedStream, Arc<Cork>) {
    let (client, server) = duplex(room);
    let cork = Arc::new(Cork::default());
    cork.streams.store(streams, Ordering::Relaxed);
    let mut connection = FramedStream::new(Box::new(server), true);
    connection.cork(cork.clone());
    (client, connection, cork)
}

/// What has come so far.
fn received(client: &mut DuplexStream) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let read = pin!(client.read(&mut bytes)).poll(&mut Context::from_waker(Waker::noop()));
    let count = match read {
        Poll::Ready(count) => count.expect("an open connection"),
        Poll::Pending => 0,
    };
    bytes.truncate(count);
    bytes
}

/// Writes two frames, and after each says how many bytes the client has; then waits for
/// what the client sends.
async fn write_two(mut connection: FramedStream, client: &mut DuplexStream) -> (usize, usize) {
    let mut seen = [0; 2];
    for (frame, seen) in [&b"one"[..], b"two"].into_iter().zip(&mut seen) {
        connection.write_all(frame).await.expect("room");
        connection.flush().await.expect("a flush");
        *seen = received(client).len();
    }
    (seen[0], seen[1])
}

#[tokio::test]
async fn frames_of_streams_that_are_ready_together_leave_together() {
    let (mut client, mut connection, cork) = corked(2, 1024);
    let mut turns = 0;
    let task = poll_fn(|cx| {
        turns += 1;
        if turns == 1 {
            for frame in [&b"one"[..], b"two"] {
                let written = Pin::new(&mut connection).poll_write(cx, frame);
                assert!(matches!(written, Poll::Ready(Ok(3))));
                assert!(Pin::new(&mut connection).poll_flush(cx).is_ready());
                assert_eq!(received(&mut client), b"", "they wait for each other");
            }
            return Poll::Pending;
        }
        // The connection reads at the beginning of each turn.
        let mut byte = [0; 1];
        let mut space = tokio::io::ReadBuf::new(&mut byte);
        let read = tokio::io::AsyncRead::poll_read(Pin::new(&mut connection), cx, &mut space);
        assert!(read.is_pending());
        Poll::Ready(received(&mut client))
    });
    assert_eq!(cork.drive(pin!(task)).await, b"onetwo");
    assert_eq!(turns, 2);
}

#[tokio::test]
async fn a_connection_with_a_single_stream_writes_at_once() {
    let (mut client, connection, cork) = corked(1, 1024);
    let seen = cork.drive(pin!(write_two(connection, &mut client))).await;
    assert_eq!(seen, (3, 3));
}

#[tokio::test]
async fn other_tasks_that_are_ready_run_before_a_connection_with_several_streams() {
    let (_, _, cork) = corked(2, 1024);
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in ["connection", "stream", "stream"] {
        let (order, cork) = (order.clone(), cork.clone());
        let noted = async move { order.lock().push(name) };
        tasks.push(tokio::spawn(async move {
            if name == "connection" {
                cork.drive(pin!(noted)).await;
            } else {
                noted.await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task that ends");
    }
    assert_eq!(*order.lock(), ["stream", "stream", "connection"]);
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_a_corked_writer_and_loses_nothing() {
    const ALL: usize = 100_000;
    let (mut client, mut connection, cork) = corked(2, 64);
    let sent: Vec<u8> = (0..ALL).map(|at| at as u8).collect();
    let mut written = 0;
    let task = poll_fn(|cx| {
        while written < ALL {
            let piece = &sent[written..ALL.min(written + 700)];
            match Pin::new(&mut connection).poll_write(cx, piece) {
                Poll::Ready(count) => written += count.expect("an open connection"),
                Poll::Pending => break,
            }
        }
        match Pin::new(&mut connection).poll_flush(cx) {
            Poll::Ready(flushed) if written == ALL => Poll::Ready(flushed),
            _ => Poll::Pending,
        }
    });
    let mut task = Box::pin(cork.drive(Box::pin(task)));
    // It wakes itself: some turns are given to it without a reader.
    for _ in 0..10 {
        let turn = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(turn.is_pending());
    }
    drop(task);
    assert!(written <= 64 + (16 << 10), "{written} bytes are in memory");
    let rest = async {
        connection.write_all(&sent[written..]).await.expect("room");
        connection.shutdown().await.expect("an end");
    };
    let mut received = Vec::new();
    let ((), read) = tokio::join!(rest, client.read_to_end(&mut received));
    read.expect("all of it");
    assert!(received == sent, "{} bytes have come", received.len());
}

#[tokio::test]
async fn frames_of_a_second_stream_do_not_overtake_one_that_a_slow_client_takes() {
    let (mut client, mut connection, cork) = corked(1, 64);
    let first = vec![b'a'; 1_000];
    let mut turns = 0;
    let task = poll_fn(|cx| {
        turns += 1;
        let frame = if turns == 1 { &first[..] } else { b"b" };
        let written = Pin::new(&mut connection).poll_write(cx, frame);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == frame.len()));
        let _ = Pin::new(&mut connection).poll_flush(cx);
        if turns == 1 {
            // The client takes a part, and opens another stream.
            cork.streams.store(2, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    });
    cork.drive(Box::pin(task)).await;
    let end = async { connection.shutdown().await.expect("an end") };
    let mut received = Vec::new();
    let ((), read) = tokio::join!(end, client.read_to_end(&mut received));
    read.expect("all of it");
    assert!(received == [&first[..], b"b"].concat(), "{received:?}");
}

#[tokio::test]
async fn what_waits_is_sent_before_the_connection_is_shut_down() {
    let (mut client, mut connection, cork) = corked(2, 1024);
    let task = async {
        connection.write_all(b"goodbye").await.expect("room");
        connection.flush().await.expect("a flush");
        connection.shutdown().await.expect("an end");
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.expect("all of it");
        all
    };
    let all = cork.drive(pin!(task)).await;
    assert_eq!(all, b"goodbye");
}

#[tokio::test]
async fn the_engine_shuts_a_connection_down_behind_what_was_gathered() {
    let (mut client, mut connection, _) = corked(1, 1024);
    connection.write_all(b"goodbye").await.expect("room");
    pingora::protocols::Shutdown::shutdown(&mut connection).await;
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.expect("an end");
    assert_eq!(received, b"goodbye");
}
