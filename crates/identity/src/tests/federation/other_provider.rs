//! Another provider, of which a test decides every word, and a browser that
//! goes there and back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::records::new_user;
use crate::testing::{Answer, Provider, START_MS, config, request};
use doorward_core::jose::testing::TestKey;
use doorward_core::model::user::User;

/// The query of an ordinary authorization request.
pub(super) const QUERY: &str =
    "response_type=code&client_id=site&scope=openid&redirect_uri=https://site.example/back&state=s";

/// Another provider.
#[derive(Clone)]
pub(super) struct OtherProvider {
    pub(super) issuer: String,
    pub(super) key: TestKey,
    /// What it answers, by path: status, media type, body.
    answers: Arc<Mutex<HashMap<String, (u16, String, String)>>>,
    /// What it was sent: first lines, headers and bodies.
    heard: Arc<Mutex<Vec<String>>>,
}

impl OtherProvider {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let elsewhere = Self {
            issuer: format!("http://{address}"),
            key: TestKey::es256("one"),
            answers: Arc::default(),
            heard: Arc::default(),
        };
        elsewhere.describe(json!({}));
        elsewhere.publish(&elsewhere.key);
        let served = elsewhere.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(stream));
            }
        });
        elsewhere
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut text = Vec::new();
        let mut part = [0; 8192];
        loop {
            let read = stream.read(&mut part).await.unwrap_or_default();
            text.extend_from_slice(&part[..read]);
            let whole = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = whole.split_once("\r\n\r\n") else {
                if read == 0 {
                    return;
                }
                continue;
            };
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let named = name.eq_ignore_ascii_case("content-length");
                named.then(|| value.trim().parse::<usize>().ok())?
            });
            if read > 0 && body.len() < length.unwrap_or_default() {
                continue;
            }
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            self.heard.lock().expect("heard").push(whole.clone());
            let known = self.answers.lock().expect("answers").get(&path).cloned();
            let (status, kind, body) = known.unwrap_or((404, "text/plain".into(), String::new()));
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
            return;
        }
    }

    /// From now on `path` is answered so.
    pub(super) fn say(&self, path: &str, status: u16, kind: &str, body: impl Into<String>) {
        let answer = (status, kind.to_owned(), body.into());
        self.answers
            .lock()
            .expect("answers")
            .insert(path.to_owned(), answer);
    }

    pub(super) fn say_json(&self, path: &str, body: &Value) {
        self.say(path, 200, "application/json", body.to_string());
    }

    /// What it says of itself, but for the changes.
    pub(super) fn describe(&self, changes: Value) {
        let issuer = &self.issuer;
        let mut document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "id_token_signing_alg_values_supported": ["ES256", "HS256"],
        });
        for (name, value) in changes.as_object().expect("an object") {
            document[name] = value.clone();
        }
        self.say_json("/.well-known/openid-configuration", &document);
    }

    pub(super) fn publish(&self, key: &TestKey) {
        self.say_json("/keys", &json!({"keys": [key.jwk()]}));
    }

    /// Its ID token for `trip`, but for the changes; null takes a claim away.
    pub(super) fn claims(&self, trip: &FederatedLogin, changes: &Value) -> Value {
        let now = START_MS / 1000;
        let mut claims = json!({
            "iss": self.issuer, "aud": "door", "sub": "u-1", "iat": now, "exp": now + 300,
            "nonce": trip.asked["nonce"], "preferred_username": "ann", "name": "Ann A",
        });
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => claims.as_object_mut().expect("an object").remove(name),
                value => claims
                    .as_object_mut()
                    .expect("an object")
                    .insert(name.clone(), value.clone()),
            };
        }
        claims
    }

    /// Gives tokens for the next code.
    pub(super) fn grant(&self, id_token: &str) {
        let tokens = json!({"access_token": "at", "token_type": "Bearer", "id_token": id_token});
        self.say_json("/token", &tokens);
    }

    /// The requests that it was sent, which begin so.
    pub(super) fn heard(&self, begins: &str) -> Vec<String> {
        let heard = self.heard.lock().expect("heard");
        heard
            .iter()
            .filter(|one| one.starts_with(begins))
            .cloned()
            .collect()
    }
}

/// A browser that is on its way through another provider.
pub(super) struct FederatedLogin {
    pub(super) cookie: String,
    /// The parameters of the request to the provider.
    pub(super) asked: Map<String, Value>,
    pub(super) location: String,
}

impl FederatedLogin {
    pub(super) fn state(&self) -> &str {
        self.asked["state"].as_str().expect("a state")
    }
}

/// A configuration with one other provider, called `corp`.
pub(super) fn with(elsewhere: &OtherProvider, change: Value) -> Value {
    let mut corp = json!({
        "name": "corp", "title": "Corp & Co", "issuer": elsewhere.issuer,
        "client_id": "door", "client_secret": "hu sh",
    });
    for (name, value) in change.as_object().expect("an object") {
        corp[name] = value.clone();
    }
    let mut config = config();
    let root = &mut config["realms"]["/"];
    root["settings"] = json!({"federation": [corp]});
    root["clients"]
        .as_array_mut()
        .expect("clients")
        .push(json!({
            "client_id": "site", "client_secret": "site-secret", "scope": "openid",
            "grant_types": ["authorization_code"], "require_consent": false,
            "redirect_uris": ["https://site.example/back"],
        }));
    config
}

pub(super) async fn provider(elsewhere: &OtherProvider, change: Value) -> Provider {
    Provider::with(with(elsewhere, change)).await
}

/// Adds a user of the store.
pub(super) async fn add(provider: &Provider, record: Value) -> User {
    let record = record.as_object().cloned().expect("an object");
    let user = new_user("/", &record).expect("a user");
    provider
        .store
        .insert_user(&user, None)
        .await
        .expect("added");
    user
}

/// The cookies of an answer, as a browser sends them back.
pub(super) fn cookies(answer: &Answer) -> String {
    let all = answer.headers.get_all("set-cookie").iter();
    let all = all.filter_map(|value| value.to_str().ok()?.split(';').next().map(str::to_owned));
    all.collect::<Vec<_>>().join("; ")
}

pub(super) async fn get(provider: &Provider, path: &str, cookie: &str) -> Answer {
    let headers = [("cookie", cookie), ("accept", "text/html")];
    provider.send(request("GET", path, &headers, "")).await
}

/// The address of the button for a provider on this page.
pub(super) fn button(page: &Answer, name: &str) -> String {
    let id = format!("id=\"federation-{name}\" href=\"");
    let (_, rest) = page
        .text
        .split_once(&id)
        .unwrap_or_else(|| panic!("no button: {}", page.text));
    let href = rest.split('"').next().unwrap_or_default();
    href.replace("&#38;", "&").replace("&amp;", "&")
}

/// Goes to the other provider by its button.
pub(super) async fn leave(provider: &Provider) -> FederatedLogin {
    leave_by(provider, QUERY).await
}

pub(super) async fn leave_by(provider: &Provider, query: &str) -> FederatedLogin {
    let page = get(provider, &format!("/oauth2/authorize?{query}"), "").await;
    assert_eq!(page.status, 200, "{}", page.text);
    let cookie = cookies(&page);
    let away = get(provider, &button(&page, "corp"), &cookie).await;
    assert_eq!(away.status, 302, "{}", away.text);
    trip(&away, cookie)
}

pub(super) fn trip(away: &Answer, cookie: String) -> FederatedLogin {
    let location = away.header("location").to_owned();
    let url = Url::parse(&location).expect("an address");
    let asked = url.query_pairs();
    let asked = asked.map(|(name, value)| (name.into_owned(), json!(value)));
    FederatedLogin {
        cookie,
        asked: asked.collect(),
        location,
    }
}

/// Comes back with a code.
pub(super) async fn return_(provider: &Provider, trip: &FederatedLogin) -> Answer {
    let path = format!(
        "/oauth2/federation/corp/callback?code=c-1&state={}",
        trip.state()
    );
    get(provider, &path, &trip.cookie).await
}

/// Goes there and back; the provider says the usual claims with `changes`.
pub(super) async fn round(
    provider: &Provider,
    elsewhere: &OtherProvider,
    changes: Value,
) -> Answer {
    let trip = leave(provider).await;
    let claims = elsewhere.claims(&trip, &changes);
    elsewhere.grant(&elsewhere.key.token(&claims));
    return_(provider, &trip).await
}

/// What an answer says that failed, if it does.
pub(super) fn failed(answer: &Answer) -> Option<String> {
    assert_eq!(answer.status, 302, "{}", answer.text);
    assert!(
        !cookies(answer).contains("iPlanetDirectoryPro"),
        "no session"
    );
    let location = answer.header("location");
    assert!(location.starts_with("/oauth2/authorize?"), "{location}");
    let (_, code) = location.split_once("&doorward_federation=")?;
    Some(code.to_owned())
}

/// The session of a browser that was signed in.
pub(super) fn session(answer: &Answer) -> String {
    assert_eq!(answer.status, 302, "{}", answer.text);
    let all = cookies(answer);
    let location = answer.header("location");
    let token = all
        .split("; ")
        .find_map(|one| one.strip_prefix("iPlanetDirectoryPro="));
    token
        .unwrap_or_else(|| panic!("not signed in: {location}"))
        .to_owned()
}

/// The name of the user whom an answer signed in.
pub(super) async fn who(provider: &Provider, answer: &Answer) -> String {
    let headers = [("iPlanetDirectoryPro", session(answer))];
    let headers = headers.each_ref().map(|(n, v)| (*n, v.as_str()));
    let path = "/json/sessions?_action=getSessionInfo";
    let headers = [
        headers[0],
        ("content-type", "application/json"),
        ("accept-api-version", "resource=2.1"),
    ];
    let info = provider.send(request("POST", path, &headers, "")).await;
    info.json()["username"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", info.text))
        .to_owned()
}

/// What a text is in a JWT.
pub(super) fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}
