//! A directory that holds what a test says, and tells what it was asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An entry: its name, password and attributes.
#[derive(Clone, Debug)]
pub(super) struct DirectoryEntry {
    pub(super) dn: String,
    pub(super) password: String,
    pub(super) attributes: Vec<(String, String)>,
}

/// What it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirectoryRequest {
    Bind(String, String),
    /// Base and the value that is searched for.
    Search(String, String),
}

#[derive(Clone)]
pub(super) struct Server {
    pub(super) url: String,
    entries: Arc<Mutex<Vec<DirectoryEntry>>>,
    asked: Arc<Mutex<Vec<DirectoryRequest>>>,
    /// Searches are answered with another server to go to.
    pub(super) refers: Arc<AtomicBool>,
    /// Connections end without an answer.
    pub(super) dumb: Arc<AtomicBool>,
    /// Every operation is answered with `busy`.
    pub(super) busy: Arc<AtomicBool>,
}

const SERVICE: (&str, &str) = ("cn=door,dc=x", "service secret");

impl Server {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Self {
            url: format!("ldap://{address}"),
            entries: Arc::default(),
            asked: Arc::default(),
            refers: Arc::default(),
            dumb: Arc::default(),
            busy: Arc::default(),
        };
        server.hold(SERVICE.0, SERVICE.1, &[]);
        let served = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(stream));
            }
        });
        server
    }

    pub(super) fn hold(&self, dn: &str, password: &str, attributes: &[(&str, &str)]) {
        let attributes = attributes
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let mut entries = self.entries.lock().expect("entries");
        entries.retain(|known| known.dn != dn);
        entries.push(DirectoryEntry {
            dn: dn.to_owned(),
            password: password.to_owned(),
            attributes: attributes.collect(),
        });
    }

    /// A person called `uid`.
    pub(super) fn person(&self, uid: &str, password: &str) {
        let mail = format!("{uid}@x.example");
        let attributes = [
            ("uid", uid),
            ("entryUUID", uid),
            ("sn", "Sur"),
            ("mail", &mail),
        ];
        self.hold(&format!("uid={uid},ou=people,dc=x"), password, &attributes);
    }

    pub(super) fn asked(&self) -> Vec<DirectoryRequest> {
        self.asked.lock().expect("asked").clone()
    }

    pub(super) fn forget(&self) {
        self.asked.lock().expect("asked").clear();
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut held = Vec::new();
        let mut part = [0; 4096];
        loop {
            while let Some((message, length)) = element(&held) {
                let Some(answer) = self.answer(&message.1) else {
                    return;
                };
                held.drain(..length);
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
            match stream.read(&mut part).await {
                Ok(read) if read > 0 => held.extend_from_slice(&part[..read]),
                _ => return,
            }
        }
    }

    /// The answer to a message; `None`: the connection ends.
    fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        if self.dumb.load(Ordering::SeqCst) {
            return None;
        }
        let parts = elements(message);
        let (id, (tag, operation)) = (parts[0].clone(), parts[1].clone());
        let busy = self.busy.load(Ordering::SeqCst);
        let replies = match tag {
            0x60 => vec![result(0x61, if busy { 51 } else { self.bind(&operation) })],
            0x63 if busy => vec![result(0x65, 51)],
            0x63 => self.search(&operation),
            _ => return None,
        };
        let wrap = |reply: Vec<u8>| put(0x30, &[put(id.0, &id.1), reply].concat());
        Some(replies.into_iter().flat_map(wrap).collect())
    }

    fn bind(&self, operation: &[u8]) -> u8 {
        let parts = elements(operation);
        let (dn, password) = (text(&parts[1].1), text(&parts[2].1));
        let asked = DirectoryRequest::Bind(dn.clone(), password.clone());
        self.asked.lock().expect("asked").push(asked);
        if dn.is_empty() || password.is_empty() {
            // As nobody (RFC 4513 §5.1.2): many directories say yes to that.
            return 0;
        }
        let entries = self.entries.lock().expect("entries");
        let mut all = entries.iter();
        if all.any(|held| held.dn == dn && held.password == password) {
            0
        } else {
            49
        }
    }

    fn search(&self, operation: &[u8]) -> Vec<Vec<u8>> {
        let parts = elements(operation);
        let (base, (kind, filter)) = (text(&parts[0].1), parts[6].clone());
        let (attribute, value) = match kind {
            // Equality; presence is asked of the base itself.
            0xa3 => {
                let pair = elements(&filter);
                (text(&pair[0].1), text(&pair[1].1))
            }
            _ => ("dn".to_owned(), base.clone()),
        };
        let asked = DirectoryRequest::Search(base, value.clone());
        self.asked.lock().expect("asked").push(asked);
        if self.refers.load(Ordering::SeqCst) {
            let reference = put(0x73, &put(0x04, b"ldap://evil.example/dc=x"));
            return vec![reference, result(0x65, 0)];
        }
        let entries = self.entries.lock().expect("entries");
        let fits = |held: &&DirectoryEntry| {
            let mut attributes = held.attributes.iter();
            held.dn == value && attribute == "dn"
                || attributes.any(|(n, v)| *n == attribute && v.eq_ignore_ascii_case(&value))
        };
        let mut replies: Vec<_> = entries.iter().filter(fits).map(shown).collect();
        replies.push(result(0x65, 0));
        replies
    }
}

fn shown(held: &DirectoryEntry) -> Vec<u8> {
    let one = |(name, value): &(String, String)| {
        let values = put(0x31, &put(0x04, value.as_bytes()));
        put(0x30, &[put(0x04, name.as_bytes()), values].concat())
    };
    let attributes: Vec<u8> = held.attributes.iter().flat_map(one).collect();
    let dn = put(0x04, held.dn.as_bytes());
    put(0x64, &[dn, put(0x30, &attributes)].concat())
}

fn result(tag: u8, code: u8) -> Vec<u8> {
    put(
        tag,
        &[put(0x0a, &[code]), put(0x04, b""), put(0x04, b"")].concat(),
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn put(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut element = vec![tag];
    match content.len() {
        short @ 0..128 => element.push(u8::try_from(short).expect("short")),
        long => {
            let long = u16::try_from(long).expect("a test's message").to_be_bytes();
            element.extend([0x82, long[0], long[1]]);
        }
    }
    element.extend_from_slice(content);
    element
}

type Element = (u8, Vec<u8>);

/// The first element, and how long it is.
fn element(bytes: &[u8]) -> Option<(Element, usize)> {
    let (tag, first) = (*bytes.first()?, usize::from(*bytes.get(1)?));
    let (begin, length) = match first {
        short @ 0..128 => (2, short),
        long => {
            let digits = bytes.get(2..2 + (long & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |sum, digit| sum * 256 + usize::from(*digit));
            (2 + digits.len(), length)
        }
    };
    let content = bytes.get(begin..begin + length)?;
    Some(((tag, content.to_vec()), begin + length))
}

fn elements(mut bytes: &[u8]) -> Vec<Element> {
    let mut all = Vec::new();
    while let Some((one, length)) = element(bytes) {
        all.push(one);
        bytes = &bytes[length..];
    }
    all
}
