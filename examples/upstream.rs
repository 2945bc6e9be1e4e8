//! A small HTTP server that answers with what it received, for trying things
//! out: `cargo run --example upstream -- 127.0.0.1:9000`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// The longest body that is read.
const MAX_BODY: u64 = 1024 * 1024;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:9000"))?;
    println!("http://{} shows what it receives", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = serve(stream) {
                eprintln!("connection: {error}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        println!("{}", request.lines().next().unwrap_or_default());
        // In one piece: a second one would wait until the client has the first.
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{request}",
            request.len()
        );
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// A whole request as text, or `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut request = String::new();
    let mut length = 0;
    loop {
        let start = request.len();
        if reader.read_line(&mut request)? == 0 {
            return Ok(None);
        }
        let line = request[start..].trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = Vec::new();
    reader.take(length.min(MAX_BODY)).read_to_end(&mut body)?;
    request.push_str(&String::from_utf8_lossy(&body));
    Ok(Some(request))
}
