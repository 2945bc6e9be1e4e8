//! Whose the sessions of the protocol are. The server names a session when it answers
//! the first request; from then on it belongs to the subject of that request's token.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::digest::{SHA256, digest};
use http::header::HeaderName;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::Value;

use super::message::{self, Fault};
use doorward_core::clock::Clock;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::Parts;
use doorward_plugin_api::filter::{AwaitedEvents, Code, Exchange, SessionLiveness};

/// A session that is not this caller's, or is over.
pub(super) const UNKNOWN: Code = Code::new(
    "unknown_session",
    404,
    "mcp: the session of the protocol is over, unknown or somebody else's",
);

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Most sessions of all servers.
const MAX_SESSIONS: usize = 100_000;
/// Most sessions of one subject at one server.
const MAX_OF_SUBJECT: usize = 1_000;
/// How long a session lasts that nobody uses, in milliseconds.
const IDLE_MS: i64 = 24 * 60 * 60 * 1000;

/// The protocol's code of a session that is not there.
const NO_SESSION: i64 = -32001;

type Hash = [u8; 32];

/// The sessions of one server.
pub(super) struct Sessions {
    table: Arc<Table>,
    clock: Clock,
    /// What tells the server from others: the plugin's id.
    scope: Arc<str>,
}

/// All sessions: they outlast a change of the plugin's configuration.
#[derive(Default)]
struct Table(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_id: HashMap<Hash, Entry>,
    /// The order of their last use: the first is the next to be forgotten.
    by_use: BTreeMap<(i64, u64), Hash>,
    /// The same, of each subject.
    of_subjects: HashMap<Hash, BTreeMap<(i64, u64), Hash>>,
    uses: u64,
}

struct Entry {
    subject: Hash,
    used: (i64, u64),
    /// Whether the session is over, for the streams that belong to it.
    over: Arc<AtomicBool>,
}

/// What a stream must not outlast: the session of the protocol, and what it must not
/// outlast for the sake of its token.
#[derive(Debug)]
struct StreamLiveness {
    over: Arc<AtomicBool>,
    token: Option<Arc<dyn SessionLiveness>>,
    /// Whether the server has refused the stream: what it says of that goes on.
    is_refused: AtomicBool,
}

impl SessionLiveness for StreamLiveness {
    fn is_over(&self) -> bool {
        let of_token = self.token.as_ref();
        let over = self.over.load(Ordering::Relaxed) && !self.is_refused.load(Ordering::Relaxed);
        over || of_token.is_some_and(|token| token.is_over())
    }
}

impl Entries {
    /// Forgets a session, whose streams end.
    fn remove(&mut self, id: &Hash) {
        if let Some(entry) = self.take(id) {
            entry.over.store(true, Ordering::Relaxed);
        }
    }

    fn take(&mut self, id: &Hash) -> Option<Entry> {
        let entry = self.by_id.remove(id)?;
        self.by_use.remove(&entry.used);
        if let Some(own) = self.of_subjects.get_mut(&entry.subject) {
            own.remove(&entry.used);
            if own.is_empty() {
                self.of_subjects.remove(&entry.subject);
            }
        }
        Some(entry)
    }

    fn insert(&mut self, id: Hash, subject: Hash, over: Arc<AtomicBool>, now_ms: i64) {
        self.uses += 1;
        let used = (now_ms, self.uses);
        let entry = Entry {
            subject,
            used,
            over,
        };
        self.by_id.insert(id, entry);
        self.by_use.insert(used, id);
        let own = self.of_subjects.entry(subject).or_default();
        own.insert(used, id);
    }

    fn touch(&mut self, id: &Hash, now_ms: i64) {
        if let Some(entry) = self.take(id) {
            self.insert(*id, entry.subject, entry.over, now_ms);
        }
    }

    fn forget_old(&mut self, now_ms: i64) {
        while let Some((&(used_ms, _), &id)) = self.by_use.first_key_value() {
            let is_old = now_ms.saturating_sub(used_ms) > IDLE_MS;
            if !is_old && self.by_id.len() < MAX_SESSIONS {
                return;
            }
            self.remove(&id);
        }
    }

    fn open(&mut self, id: Hash, subject: Hash, now_ms: i64) {
        if let Some(entry) = self.by_id.get(&id) {
            // Whose it is does not change while it lasts.
            if entry.subject == subject {
                self.touch(&id, now_ms);
            }
            return;
        }
        self.forget_old(now_ms);
        // One subject does not push out the sessions of others.
        if let Some(own) = self.of_subjects.get(&subject)
            && own.len() >= MAX_OF_SUBJECT
            && let Some((_, &oldest)) = own.first_key_value()
        {
            self.remove(&oldest);
        }
        self.insert(id, subject, Arc::default(), now_ms);
    }

    /// Uses the session of this subject, and says where its end will be told.
    fn find(&mut self, id: &Hash, subject: &Hash, now_ms: i64) -> Option<Arc<AtomicBool>> {
        self.forget_old(now_ms);
        let entry = self.by_id.get(id);
        let over = entry
            .filter(|entry| entry.subject == *subject)?
            .over
            .clone();
        self.touch(id, now_ms);
        Some(over)
    }
}

/// The session that a request names.
pub(super) enum SentSession<'r> {
    Absent,
    Single(&'r HeaderValue),
    /// It names several, or none that all servers see.
    Unclear,
}

impl<'r> SentSession<'r> {
    /// Whether a name may be that of the field, or one that some servers take for it.
    pub(super) fn may_be_named(name: &str) -> bool {
        name.len() == SESSION.as_str().len() && name.starts_with("mcp")
    }

    fn of(request: &'r RequestHeader) -> Self {
        // Some servers take one sign for the other in names.
        let is_other_spelling = |name: &str| {
            let same = |(one, other): (u8, u8)| one == other || (one, other) == (b'_', b'-');
            name.bytes().zip(SESSION.as_str().bytes()).all(same)
        };
        let mut sent = Self::Absent;
        for (name, value) in &request.headers {
            if !Self::may_be_named(name.as_str()) {
                continue;
            }
            if name == SESSION {
                sent = match sent {
                    Self::Absent => Self::Single(value),
                    _ => Self::Unclear,
                };
            } else if is_other_spelling(name.as_str()) {
                return Self::Unclear;
            }
        }
        sent
    }
}

impl Sessions {
    /// Those of the plugin that `parts` are for.
    pub(super) fn of(parts: &Parts) -> Self {
        Self {
            table: parts.slots.get_or_default(),
            clock: parts.clock.clone(),
            scope: parts.scope.clone(),
        }
    }

    /// Whether the session that a request names is its caller's; a request may name
    /// none. A stream of events in answer ends with the session.
    pub(super) fn lets_in(&self, request: &RequestHeader, exchange: &mut Exchange) -> bool {
        let named = match SentSession::of(request) {
            SentSession::Absent => return true,
            SentSession::Single(named) => Some(named),
            SentSession::Unclear => None,
        };
        let (Some(session), Some(subject)) = (named, self.subject(exchange)) else {
            return false;
        };
        let id = self.hash(&[session.as_bytes()]);
        let found = (self.table.0.lock()).find(&id, &subject, self.clock.now_ms());
        let Some(over) = found else {
            return false;
        };
        if exchange.awaits_events == Some(AwaitedEvents::OfSubscription) {
            let token = exchange.lasting.take();
            let stream = Arc::new(StreamLiveness {
                over,
                token,
                is_refused: AtomicBool::new(false),
            });
            exchange.notes.push(Box::new(Arc::clone(&stream)));
            exchange.lasting = Some(stream);
        }
        true
    }

    /// Takes notice of what a server says: of the session that it has opened, and of
    /// one that has ended.
    pub(super) fn note(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &ResponseHeader,
    ) {
        let status = response.status;
        let used = || request.headers.get(&SESSION);
        let ended = request.method == Method::DELETE && status.is_success();
        if (ended || status == StatusCode::NOT_FOUND)
            && let Some(session) = used()
        {
            let mut notes = exchange.notes.iter();
            let stream = notes.find_map(|note| note.downcast_ref::<Arc<StreamLiveness>>());
            if let Some(stream) = stream {
                stream.is_refused.store(true, Ordering::Relaxed);
            }
            let id = self.hash(&[session.as_bytes()]);
            self.table.0.lock().remove(&id);
            return;
        }
        // Names of the standard, as nearly all are, are told from it at once.
        let mut fields = response.headers.iter();
        let given = fields.find_map(|(name, value)| (name == SESSION).then_some(value));
        let Some(session) = given.filter(|given| status.is_success() && used() != Some(*given))
        else {
            return;
        };
        if let Some(subject) = self.subject(exchange) {
            let id = self.hash(&[session.as_bytes()]);
            (self.table.0.lock()).open(id, subject, self.clock.now_ms());
        }
    }

    /// Whom the token is for; a client without a user is a subject too.
    fn subject(&self, exchange: &Exchange) -> Option<Hash> {
        let token = exchange.token.as_deref()?;
        let claim = |name| token.claims.get(name).and_then(Value::as_str);
        let who = claim("sub")
            .or_else(|| claim("client_id"))
            .or_else(|| claim("azp"))?;
        let issuer = claim("iss").unwrap_or_default();
        Some(self.hash(&[issuer.as_bytes(), who.as_bytes()]))
    }

    /// A hash has one size, whatever a stranger sends.
    fn hash(&self, parts: &[&[u8]]) -> Hash {
        let mut text = Vec::new();
        for part in [self.scope.as_bytes()].iter().chain(parts) {
            text.extend_from_slice(&part.len().to_be_bytes());
            text.extend_from_slice(part);
        }
        let mut hash = Hash::default();
        hash.copy_from_slice(digest(&SHA256, &text).as_ref());
        hash
    }
}

/// The answer that has clients of the protocol begin anew.
pub(super) fn refusal() -> Reply {
    let fault = Fault::new(NO_SESSION, "the session is unknown");
    let mut reply = Reply::empty(StatusCode::NOT_FOUND);
    let error = message::error(&Value::Null, fault).to_string();
    reply.body = ReplyBody::Raw("application/json", error.into());
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_of(all: &mut Entries, id: &Hash, subject: &Hash, now_ms: i64) -> bool {
        all.find(id, subject, now_ms).is_some()
    }

    #[test]
    fn sessions_are_their_openers_alone_until_they_are_old() {
        let mut all = Entries::default();
        all.open([1; 32], [10; 32], 0);
        // Who says the same name later does not take it over.
        all.open([1; 32], [11; 32], 0);
        assert!(is_of(&mut all, &[1; 32], &[10; 32], 1));
        assert!(!is_of(&mut all, &[1; 32], &[11; 32], 1));
        assert!(is_of(&mut all, &[1; 32], &[10; 32], IDLE_MS));
        assert!(!is_of(&mut all, &[1; 32], &[10; 32], 2 * IDLE_MS + 1));
        assert!(all.by_id.is_empty() && all.by_use.is_empty() && all.of_subjects.is_empty());
    }

    #[test]
    fn one_subject_has_a_bounded_number_and_pushes_out_its_own_alone() {
        let mut all = Entries::default();
        let id = |n: usize| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_be_bytes());
            id
        };
        all.open([255; 32], [7; 32], 0);
        for n in 0..=MAX_OF_SUBJECT {
            all.open(id(n), [8; 32], 1);
        }
        assert_eq!(all.by_id.len(), MAX_OF_SUBJECT + 1);
        assert!(!is_of(&mut all, &id(0), &[8; 32], 2));
        assert!(is_of(&mut all, &id(1), &[8; 32], 2));
        assert!(is_of(&mut all, &[255; 32], &[7; 32], 2));
    }

    #[test]
    fn a_session_that_is_used_again_is_not_over_until_it_is_ended() {
        let mut all = Entries::default();
        let found = |all: &mut Entries, now_ms| all.find(&[1; 32], &[10; 32], now_ms);
        all.open([1; 32], [10; 32], 0);
        let over = found(&mut all, 1).expect("the session");
        found(&mut all, 2).expect("the session");
        all.open([1; 32], [10; 32], 3);
        assert!(!over.load(Ordering::Relaxed));
        all.remove(&[1; 32]);
        assert!(over.load(Ordering::Relaxed));
        // The server gives the same name again.
        all.open([1; 32], [10; 32], 4);
        let next = found(&mut all, 5).expect("the session");
        assert!(!next.load(Ordering::Relaxed));
    }
}
