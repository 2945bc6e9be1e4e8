//! `kill -9` at random moments under parallel writes of many kinds, again and
//! again: what was acknowledged is there, with its record in the audit log,
//! nothing is there by half, and the store is sound.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use doorward_core::clock::random_bytes;
use doorward_store as store;
use parking_lot::Mutex;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::stores::postgres::Cluster;
use crate::support::{Answer, Door, Setup, http};

/// A client that people sign in to, and whose retries get the same successor.
const SHOP: &str = "
        - client_id: shop
          client_secret: shop-secret
          redirect_uris: [\"https://shop.example/cb\"]
          grant_types: [authorization_code, password, refresh_token]
          refresh_token_grace: 300
          scope: openid profile";

/// What was acknowledged in a round.
#[derive(Default)]
struct Acknowledged {
    services: Vec<String>,
    clients: Vec<String>,
    realms: Vec<String>,
    initial_tokens: Vec<String>,
    sessions: Vec<String>,
    codes: Vec<String>,
    /// Codes that were exchanged.
    spent: Vec<String>,
    /// Of each chain the refresh token that was given last.
    refresh: Vec<String>,
    /// Access tokens that were revoked.
    revoked: Vec<String>,
    users: Vec<String>,
    exchanges: usize,
}

/// What all writers of a round share.
struct Round {
    number: usize,
    admin: String,
    proxy: String,
    all: Mutex<Acknowledged>,
    count: AtomicUsize,
}

impl Round {
    fn note(&self, add: impl FnOnce(&mut Acknowledged)) {
        add(&mut self.all.lock());
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn admin(&self, method: Method, path: &str, body: &Value) -> RequestBuilder {
        let url = format!("http://{}{path}", self.admin);
        http::client().request(method, url).json(body)
    }

    fn post(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        http::client()
            .post(format!("http://{}{path}", self.proxy))
            .form(fields)
    }

    fn name(&self, kind: &str, n: usize) -> String {
        format!("{kind}-{}-{n}", self.number)
    }
}

/// The answer, unless the process died over it, or the database. One that came
/// must be `status`.
async fn answered(request: RequestBuilder, status: u16) -> Option<Answer> {
    let answer = http::try_send(request).await.ok()?;
    if answer.status == 503 {
        return None;
    }
    assert_eq!(answer.status, status, "{}", answer.body);
    Some(answer)
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("a text: {value}"))
        .to_owned()
}

async fn write_services(round: Arc<Round>) -> Option<()> {
    for n in 0.. {
        let name = round.name("service", n);
        let body = json!({"name": name, "host": "127.0.0.1"});
        answered(round.admin(Method::POST, "/services", &body), 201).await?;
        round.note(|all| all.services.push(name));
    }
    None
}

async fn write_records(round: Arc<Round>) -> Option<()> {
    for n in 0.. {
        let id = round.name("client", n);
        let body = json!({"client_id": id, "grant_types": ["client_credentials"], "scope": "a"});
        answered(round.admin(Method::POST, "/identity/clients", &body), 201).await?;
        round.note(|all| all.clients.push(id));
        let path = format!("/{}", round.name("realm", n));
        let body = json!({"path": path, "settings": {"default_scope": "a"}});
        answered(round.admin(Method::POST, "/identity/realms", &body), 201).await?;
        round.note(|all| all.realms.push(path));
        let made = answered(
            round.admin(Method::POST, "/identity/initial-tokens", &json!({})),
            201,
        );
        let id = text(&made.await?.json()["id"]);
        round.note(|all| all.initial_tokens.push(id));
    }
    None
}

fn authenticate(round: &Round) -> RequestBuilder {
    http::client()
        .post(format!("http://{}/json/authenticate", round.proxy))
        .header("X-OpenAM-Username", "demo")
        .header("X-OpenAM-Password", "Ch4ng31t-demo")
        .header("Accept-API-Version", "resource=2.0")
}

async fn write_sessions(round: Arc<Round>) -> Option<()> {
    loop {
        let session = text(&answered(authenticate(&round), 200).await?.json()["tokenId"]);
        round.note(|all| all.sessions.push(session.clone()));
        for spends in [false, true, false] {
            let code = write_code(&round, &session).await?;
            if spends {
                let fields = redemption(&code);
                answered(round.post("/oauth2/access_token", &fields), 200).await?;
                round.note(|all| all.spent.push(code));
            } else {
                round.note(|all| all.codes.push(code));
            }
        }
    }
}

fn redemption(code: &str) -> [(&'static str, &str); 5] {
    [
        ("grant_type", "authorization_code"),
        ("client_id", "shop"),
        ("client_secret", "shop-secret"),
        ("redirect_uri", "https://shop.example/cb"),
        ("code", code),
    ]
}

async fn write_code(round: &Round, session: &str) -> Option<String> {
    let query = "client_id=shop&response_type=code&scope=openid\
                 &redirect_uri=https%3A%2F%2Fshop.example%2Fcb";
    let fields = [
        ("decision", "allow"),
        ("csrf", session),
        ("save_consent", "on"),
    ];
    let request = round.post(&format!("/oauth2/authorize?{query}"), &fields);
    let request = request.header("cookie", format!("iPlanetDirectoryPro={session}"));
    let answer = answered(request, 303).await?;
    let to = url::Url::parse(answer.header("location")).expect("an address");
    let code = to.query_pairs().find(|(name, _)| name == "code");
    Some(code.expect("a code").1.into_owned())
}

const SHOP_CLIENT: [(&str, &str); 2] = [("client_id", "shop"), ("client_secret", "shop-secret")];

async fn write_refreshes(round: Arc<Round>) -> Option<()> {
    let mut fields = SHOP_CLIENT.to_vec();
    fields.extend([
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid"),
    ]);
    let given = answered(round.post("/oauth2/access_token", &fields), 200)
        .await?
        .json();
    let mut token = text(&given["refresh_token"]);
    let mut slot = 0;
    round.note(|all| {
        slot = all.refresh.len();
        all.refresh.push(token.clone());
    });
    loop {
        let mut fields = SHOP_CLIENT.to_vec();
        fields.extend([("grant_type", "refresh_token"), ("refresh_token", &token)]);
        let given = answered(round.post("/oauth2/access_token", &fields), 200)
            .await?
            .json();
        token = text(&given["refresh_token"]);
        round.note(|all| {
            all.refresh[slot].clone_from(&token);
            all.exchanges += 1;
        });
    }
}

async fn write_revocations(round: Arc<Round>) -> Option<()> {
    let orders = [("client_id", "orders"), ("client_secret", "orders-secret")];
    loop {
        let mut fields = orders.to_vec();
        fields.extend([("grant_type", "client_credentials"), ("scope", "read")]);
        let given = answered(round.post("/oauth2/access_token", &fields), 200)
            .await?
            .json();
        let token = text(&given["access_token"]);
        let mut fields = orders.to_vec();
        fields.push(("token", &token));
        answered(round.post("/oauth2/token/revoke", &fields), 200).await?;
        round.note(|all| all.revoked.push(token));
    }
}

/// The command line writes into the store beside the process, and is not killed.
fn write_users(door: &Door, round: &Round, n: usize) {
    let name = round.name("user", n);
    let words = [
        "users",
        "add",
        &name,
        "--no-password",
        "-c",
        "doorward.yaml",
    ];
    if door.run(&words).status.success() {
        round.note(|all| all.users.push(name));
    }
}

/// Writes of all kinds until `end` ends what they need.
async fn writes(door: &mut Door, number: usize, end: impl FnOnce(&mut Door)) -> Acknowledged {
    let round = Arc::new(Round {
        number,
        admin: door.admin(),
        proxy: door.proxy(),
        all: Mutex::default(),
        count: AtomicUsize::new(0),
    });
    let mut writers = JoinSet::new();
    writers.spawn(write_services(Arc::clone(&round)));
    writers.spawn(write_records(Arc::clone(&round)));
    writers.spawn(write_sessions(Arc::clone(&round)));
    writers.spawn(write_sessions(Arc::clone(&round)));
    writers.spawn(write_refreshes(Arc::clone(&round)));
    writers.spawn(write_refreshes(Arc::clone(&round)));
    writers.spawn(write_revocations(Arc::clone(&round)));
    if number.is_multiple_of(10) {
        write_users(door, &round, 0);
    }
    let [a, b] = random_bytes::<2>();
    let wait = Duration::from_micros(u64::from(u16::from_be_bytes([a, b])) * 4);
    tokio::time::sleep(Duration::from_millis(20) + wait).await;
    crate::support::eventually("the first write", async || {
        (!round.all.lock().services.is_empty()).then_some(())
    })
    .await;
    end(door);
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer that is not refused");
    }
    std::mem::take(&mut *round.all.lock())
}

async fn everything_is_there(door: &Door, all: &Acknowledged) {
    for name in &all.services {
        door.admin_get(&format!("/services/{name}"))
            .await
            .expect(200);
    }
    for id in &all.clients {
        door.admin_get(&format!("/identity/clients/{id}"))
            .await
            .expect(200);
    }
    for path in &all.realms {
        door.admin_get(&format!("/identity/realms{path}"))
            .await
            .expect(200);
    }
    if !all.initial_tokens.is_empty() {
        let held = every(door, "/identity/initial-tokens", "id").await;
        for id in &all.initial_tokens {
            assert!(held.contains(id), "the token {id} is gone");
        }
    }
    for session in &all.sessions {
        let request = http::client()
            .post(door.proxy_url("/json/sessions?_action=validate"))
            .header("iPlanetDirectoryPro", session)
            .header("Accept-API-Version", "resource=2.1")
            .json(&json!({"tokenId": session}));
        let body = http::send(request).await.expect(200).json();
        assert_eq!(body["valid"], true, "a session is gone: {body}");
    }
    for code in &all.codes {
        door.token_request(&redemption(code)).await.expect(200);
    }
    for code in &all.spent {
        door.token_request(&redemption(code)).await.expect(400);
    }
    for token in &all.refresh {
        let mut fields = SHOP_CLIENT.to_vec();
        fields.extend([("grant_type", "refresh_token"), ("refresh_token", token)]);
        door.token_request(&fields).await.expect(200);
    }
    for token in &all.revoked {
        door.get_as(token, "a.test", "/oauth2/tokeninfo")
            .await
            .expect(401);
    }
}

/// A member of all records of a list.
async fn every(door: &Door, path: &str, member: &str) -> BTreeSet<String> {
    let mut path = format!("{path}?size=1000");
    let mut found = BTreeSet::new();
    loop {
        let page = door.admin_get(&path).await.expect(200).json();
        let data = page["data"].as_array().expect("records");
        found.extend(data.iter().map(|record| text(&record[member])));
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut path),
            None => return found,
        }
    }
}

/// The records of the acts are there, and the acts of the records.
async fn everything_is_told(door: &Door, all: &Acknowledged, since_s: i64) {
    let path = format!("/audit/export?outcome=success&since={since_s}");
    let log = door.admin_get(&path).await.expect(200).body;
    let records: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record a line"))
        .collect();
    let of = |event: &'static str| records.iter().filter(move |one| one["event"] == event);
    let told: BTreeSet<_> = of("entity.create")
        .map(|one| text(&one["details"]["name"]))
        .collect();
    for name in &all.services {
        assert!(told.contains(name), "nobody was told of {name}");
    }
    for name in &told {
        door.admin_get(&format!("/services/{name}"))
            .await
            .expect(200);
    }
    let told: BTreeSet<_> = of("client.create")
        .map(|one| text(&one["client"]))
        .collect();
    for id in &all.clients {
        assert!(told.contains(id), "nobody was told of {id}");
    }
    for id in &told {
        door.admin_get(&format!("/identity/clients/{id}"))
            .await
            .expect(200);
    }
    let told: BTreeSet<_> = of("realm.create").map(|one| text(&one["realm"])).collect();
    for path in &all.realms {
        assert!(told.contains(path), "nobody was told of {path}");
    }
    let told: BTreeSet<_> = of("user.create")
        .map(|one| text(&one["user"]["name"]))
        .collect();
    for name in &all.users {
        assert!(told.contains(name), "nobody was told of {name}");
    }
    assert!(of("session.begin").count() >= all.sessions.len());
    assert!(of("code.issue").count() >= all.codes.len() + all.spent.len());
    assert!(of("token.revoke").count() >= all.revoked.len());
    let of_grant = |wanted: &'static str| {
        let issued = of("token.issue");
        issued.filter(move |one| one["details"]["grant_type"] == wanted)
    };
    // An exchange carries the grant type that began the grant.
    assert!(of_grant("authorization_code").count() >= all.spent.len());
    assert!(of_grant("password").count() >= all.exchanges + all.refresh.len());
}

async fn store_is_sound(url: &str) {
    let opened = store::open_existing(url).await.expect("the store opens");
    let opened = opened.expect("a store");
    let mut found = Vec::new();
    let mut tell = |finding| found.push(finding);
    opened.check(&mut tell, &mut |_| {}).await.expect("checked");
    assert!(found.is_empty(), "{found:?}");
}

fn now_s() -> i64 {
    doorward_core::clock::Clock::system().now_secs()
}

fn lay_out(setup: Setup) -> Door {
    let door = setup.lay_out();
    let last = "          scope: openid read\n";
    door.edit("doorward.yaml", last, &format!("{last}{}\n", &SHOP[1..]));
    // As many sign-ins as there are processor cores would take all the time.
    let quick = "  hashing: {memory_kib: 64, passes: 1}\n  session: {quota: 100000}\n  realms:";
    door.edit("doorward.yaml", "  realms:", quick);
    door.edit("doorward.yaml", "access_log: stdout", "access_log: off");
    door
}

async fn survives(mut door: Door, url: &str, kills: usize) {
    door.start().await;
    let mut acknowledged = 0;
    for round in 0..kills {
        let since_s = now_s();
        let all = writes(&mut door, round, Door::kill).await;
        acknowledged += all.services.len() + all.sessions.len() + all.exchanges;
        door.start().await;
        everything_is_told(&door, &all, since_s).await;
        everything_is_there(&door, &all).await;
        if round.is_multiple_of(10) || round + 1 == kills {
            store_is_sound(url).await;
        }
    }
    println!("{kills} kills, {acknowledged} services, sessions and exchanges");
    assert!(acknowledged > 0, "nothing was written");
}

#[tokio::test]
async fn everything_acknowledged_survives_kills_at_random_moments() {
    let door = lay_out(Setup::new());
    let url = door.fill("sqlite:@DIR@/data/doorward.db");
    survives(door, &url, 5).await;
}

#[ignore = "takes minutes"]
#[tokio::test]
async fn everything_acknowledged_survives_200_kills_at_random_moments() {
    let door = lay_out(Setup::new());
    let url = door.fill("sqlite:@DIR@/data/doorward.db");
    survives(door, &url, 200).await;
}

#[ignore = "needs PostgreSQL"]
#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_survives_kills_on_postgresql() {
    let url = Cluster::shared().database("kills");
    survives(lay_out(Setup::new().store(&url)), &url, 20).await;
}

#[ignore = "needs PostgreSQL"]
#[tokio::test(flavor = "multi_thread")]
async fn everything_acknowledged_survives_the_end_of_postgresql() {
    let cluster = Cluster::start("");
    let url = cluster.database("ends");
    let mut door = lay_out(Setup::new().store(&url));
    door.start().await;
    let since_s = now_s();
    let all = writes(&mut door, 0, |_| cluster.stop()).await;
    cluster.go_on();
    // The process finds the server again by itself.
    crate::support::eventually("the store", || async {
        let made = json!({"name": "after", "host": "127.0.0.1"});
        let answer = door.admin_post("/services", &made).await;
        (answer.status == 201).then_some(())
    })
    .await;
    everything_is_told(&door, &all, since_s).await;
    everything_is_there(&door, &all).await;
    store_is_sound(&url).await;
}
