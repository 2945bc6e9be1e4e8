//! A tiny name server over UDP whose answers can be changed while it runs.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// What the server does with a question.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// An address, of either family.
    Address(IpAddr),
    /// Priority, weight, port and host of a service.
    Service(u16, u16, u16, &'static str),
}

/// How the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// With its records, or that there are none.
    Fine,
    /// With a server failure.
    Failing,
    /// Not at all.
    Silent,
}

struct State {
    records: Vec<(&'static str, u32, Record)>,
    mood: Mood,
    questions: Vec<(String, u16)>,
}

/// The running server; dropping it ends it.
pub(crate) struct NameServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl NameServer {
    /// A server that knows nothing yet.
    pub(crate) async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State {
            records: Vec::new(),
            mood: Mood::Fine,
            questions: Vec::new(),
        }));
        let task = tokio::spawn(serve(socket, state.clone()));
        Self {
            address,
            state,
            task,
        }
    }

    /// A `proxy` section with this server alone; `more` are further settings
    /// of `dns`.
    pub(crate) fn section(&self, more: &str) -> String {
        format!(
            r#"{{listen: ["@PROXY@"], dns: {{nameservers: ["{}"], resolv_conf: /nonexistent, hosts_file: /nonexistent{more}}}}}"#,
            self.address
        )
    }

    /// Replaces all records: name, time to live, value.
    pub(crate) fn set(&self, records: &[(&'static str, u32, Record)]) {
        self.state.lock().expect("not poisoned").records = records.to_vec();
    }

    /// How it answers from now on.
    pub(crate) fn turn(&self, mood: Mood) {
        self.state.lock().expect("not poisoned").mood = mood;
    }

    /// How often `name` was asked for, with whatever type.
    pub(crate) fn asked(&self, name: &str) -> usize {
        let state = self.state.lock().expect("not poisoned");
        state.questions.iter().filter(|(n, _)| n == name).count()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, state: Arc<Mutex<State>>) {
    let mut buffer = [0; 512];
    while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
        let Some(answer) = answer(&buffer[..count], &state) else {
            continue;
        };
        let _ = socket.send_to(&answer, from).await;
    }
}

fn answer(question: &[u8], state: &Mutex<State>) -> Option<Vec<u8>> {
    let mut at = 12;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = question.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
    let name = labels.join(".");
    let kind = u16::from_be_bytes([*question.get(at)?, *question.get(at + 1)?]);
    let asked = question.get(12..at + 4)?;
    let mut state = state.lock().expect("not poisoned");
    state.questions.push((name.clone(), kind));
    if state.mood == Mood::Silent {
        return None;
    }
    let known = state.records.iter().any(|(n, _, _)| *n == name);
    let records: Vec<Vec<u8>> = state
        .records
        .iter()
        .filter(|(n, _, _)| *n == name && state.mood == Mood::Fine)
        .filter_map(|(_, ttl, record)| encode(record, kind, *ttl))
        .collect();
    let code = match state.mood {
        Mood::Failing => 2,
        _ if known => 0,
        _ => 3,
    };
    let count = u8::try_from(records.len()).ok()?;
    let mut out = question.get(..2)?.to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    out.extend(asked);
    out.extend(records.concat());
    Some(out)
}

/// A record about the name in question, if it is of the type `kind`.
fn encode(record: &Record, kind: u16, ttl: u32) -> Option<Vec<u8>> {
    let (own, data) = match record {
        Record::Address(IpAddr::V4(ip)) => (1, ip.octets().to_vec()),
        Record::Address(IpAddr::V6(ip)) => (28, ip.octets().to_vec()),
        Record::Service(priority, weight, port, host) => {
            let numbers = [*priority, *weight, *port];
            let mut data: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
            for label in host.split('.') {
                data.push(u8::try_from(label.len()).ok()?);
                data.extend(label.bytes());
            }
            data.push(0);
            (33, data)
        }
    };
    if own != kind {
        return None;
    }
    let mut out = vec![0xC0, 12];
    out.extend(u16::to_be_bytes(own));
    out.extend([0, 1]);
    out.extend(ttl.to_be_bytes());
    out.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
    out.extend(data);
    Some(out)
}
