//! A well-behaved HTTP client: no redirects, no proxy, a deadline.

use std::sync::OnceLock;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;

use super::upstream::basic;
use super::{DEADLINE, Door};

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Status code.
    pub(crate) status: u16,
    /// Header fields.
    pub(crate) headers: http::HeaderMap,
    /// The body.
    pub(crate) body: String,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("{error}: not JSON: {:?}", self.body))
    }

    /// A header's value, or "".
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("a printable header"))
    }

    /// Fails the test unless the status is `status`.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {:?}", self.body, self.headers);
        self
    }
}

/// The client all tests share.
pub(crate) fn client() -> Client {
    static CLIENT: OnceLock<()> = OnceLock::new();
    CLIENT.get_or_init(|| {
        // Another test of this process may have been first.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
    builder().build().expect("a client")
}

/// A client like [`client`] before it is built.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .timeout(DEADLINE)
}

/// Sends a request and reads the whole response.
pub(crate) async fn send(request: RequestBuilder) -> Answer {
    try_send(request).await.expect("an answer")
}

/// Like [`send`], for requests that may meet a closed connection.
pub(crate) async fn try_send(request: RequestBuilder) -> Result<Answer, reqwest::Error> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = String::from_utf8_lossy(&response.bytes().await?).into_owned();
    Ok(Answer {
        status,
        headers,
        body,
    })
}

impl Door {
    /// Has the client `orders` revoke a token.
    pub(crate) async fn revoke(&self, token: &str) {
        let request = client().post(self.proxy_url("/oauth2/token/revoke"));
        let request = request.header("authorization", basic("orders", "orders-secret"));
        send(request.form(&[("token", token)])).await.expect(200);
    }
}

/// The Admin API of a door.
impl Door {
    /// Any method, with a JSON body.
    pub(crate) async fn admin_json(&self, method: Method, path: &str, body: &Value) -> Answer {
        send(client().request(method, self.admin_url(path)).json(body)).await
    }

    /// POST of a JSON body.
    pub(crate) async fn admin_post(&self, path: &str, body: &Value) -> Answer {
        self.admin_json(Method::POST, path, body).await
    }

    /// POST of a form; pairs may repeat.
    pub(crate) async fn admin_form(&self, path: &str, pairs: &[(&str, &str)]) -> Answer {
        send(client().post(self.admin_url(path)).form(pairs)).await
    }

    /// GET.
    pub(crate) async fn admin_get(&self, path: &str) -> Answer {
        send(client().get(self.admin_url(path))).await
    }

    /// DELETE.
    pub(crate) async fn admin_delete(&self, path: &str) -> Answer {
        send(client().delete(self.admin_url(path))).await
    }

    /// A service to `url` and a route for `host`, made over the Admin API.
    pub(crate) async fn expose(&self, name: &str, url: &str, host: &str) {
        let service = serde_json::json!({"name": name, "url": url});
        self.admin_post("/services", &service).await.expect(201);
        let route = serde_json::json!({"hosts": [host]});
        let path = format!("/services/{name}/routes");
        self.admin_post(&path, &route).await.expect(201);
    }

    /// POST of a form to the token endpoint of the root realm.
    pub(crate) async fn token_request(&self, pairs: &[(&str, &str)]) -> Answer {
        let url = self.proxy_url("/oauth2/access_token");
        send(client().post(url).form(pairs)).await
    }

    /// An access token of client `orders` for itself.
    pub(crate) async fn client_token(&self, scope: &str) -> String {
        self.token(&[
            ("grant_type", "client_credentials"),
            ("client_id", "orders"),
            ("client_secret", "orders-secret"),
            ("scope", scope),
        ])
        .await
    }

    /// An access token for one of the declared users.
    pub(crate) async fn user_token(&self, user: &str, scope: &str) -> String {
        self.token(&[
            ("grant_type", "password"),
            ("client_id", "orders"),
            ("client_secret", "orders-secret"),
            ("username", user),
            ("password", &format!("Ch4ng31t-{user}")),
            ("scope", scope),
        ])
        .await
    }

    /// An access token for a request of these fields.
    pub(crate) async fn token(&self, pairs: &[(&str, &str)]) -> String {
        let answer = self.token_request(pairs).await.expect(200).json();
        answer["access_token"]
            .as_str()
            .expect("an access token")
            .to_owned()
    }
}
