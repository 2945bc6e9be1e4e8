//! A mail relay that keeps what it is handed.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A message, as it was handed over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mail {
    pub(crate) to: String,
    /// Header and body, decoded.
    pub(crate) text: String,
}

/// The running relay. Dropping it closes the listener.
pub(crate) struct Relay {
    address: SocketAddr,
    mails: Arc<Mutex<Vec<Mail>>>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// A relay that at first is too busy for so many messages.
    pub(crate) async fn start(busy: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mails = Arc::<Mutex<Vec<Mail>>>::default();
        let (kept, busy) = (Arc::clone(&mails), Arc::new(Mutex::new(busy)));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, busy) = (Arc::clone(&kept), Arc::clone(&busy));
                tokio::spawn(async move {
                    let mail = serve(stream, &busy).await;
                    let full = mail.ok().flatten();
                    kept.lock().expect("no panic").extend(full);
                });
            }
        });
        Self {
            address,
            mails,
            task,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn mails(&self) -> Vec<Mail> {
        self.mails.lock().expect("no panic").clone()
    }
}

async fn serve(stream: TcpStream, busy: &Mutex<usize>) -> std::io::Result<Option<Mail>> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 relay ready\r\n").await?;
    let mut mail = Mail::default();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let word = line.split([' ', '\r']).next().unwrap_or_default();
        let answer = match word.to_ascii_uppercase().as_str() {
            "EHLO" => "250-relay\r\n250 8BITMIME\r\n",
            "RCPT" => {
                mail.to = line.trim().to_owned();
                let mut left = busy.lock().expect("no panic");
                match left.checked_sub(1) {
                    Some(fewer) => {
                        *left = fewer;
                        "450 try again\r\n"
                    }
                    None => "250 ok\r\n",
                }
            }
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await?;
                let mut text = String::new();
                while !text.ends_with("\r\n.\r\n") {
                    if stream.read_line(&mut text).await? == 0 {
                        return Ok(None);
                    }
                }
                stream.write_all(b"250 taken\r\n").await?;
                mail.text = decoded(&text);
                return Ok(Some(mail));
            }
            "QUIT" => "221 bye\r\n",
            _ => "250 ok\r\n",
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// Without the encoding `quoted-printable`.
fn decoded(text: &str) -> String {
    let text = text.replace("=\r\n", "");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        let code = more.get(..2).filter(|_| *byte == b'=');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(coded) => {
                bytes.push(coded);
                rest = &more[2..];
            }
            None => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
