//! A request for a page: who asks, in which language, and for what.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, header, request};
use url::{Position, Url};

use doorward_core::model::audit::{Actor, Operator, Person};
use doorward_identity::SignIn;
use doorward_net::http::ClientInfo;

use super::api::Api;
use super::error::PageError;
use super::provider::SignInStatus;
use super::session::{Role, Session};
use super::texts::{self, Texts};
use super::{Console, FORM_MAX, Parts, path};

/// Most fields of a form or a query.
const FIELDS_MAX: usize = 2000;

/// A request for a page.
#[derive(Clone)]
pub(crate) struct Visit {
    console: Console,
    session: Option<Session>,
    /// Who the visitor is, if the provider said so.
    person: Option<Person>,
    /// The groups of this person.
    groups: Vec<String>,
    cookies: Vec<HeaderValue>,
    pub(crate) texts: &'static Texts,
    /// The open parts of the path.
    pub(crate) params: Vec<String>,
    query: Vec<(String, String)>,
    pub(crate) form: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) client: Option<ClientInfo>,
    /// Path and query, as called.
    pub(crate) address: String,
    /// Host and port, as called.
    pub(crate) host: String,
}

impl Visit {
    pub(crate) fn new(
        console: &Console,
        head: &request::Parts,
        client: Option<ClientInfo>,
    ) -> Self {
        let pairs = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        let query = pairs.into_owned().take(FIELDS_MAX).collect();
        let address = head.uri.path_and_query().map_or("", |whole| whole.as_str());
        let host = head.uri.authority().map(|authority| authority.as_str());
        let named = head.headers.get(header::HOST);
        let host = host.or_else(|| named?.to_str().ok()).unwrap_or_default();
        let mut visit = Self {
            console: console.clone(),
            session: console.session(&head.headers),
            person: None,
            groups: Vec::new(),
            cookies: Vec::new(),
            texts: texts::choose(&head.headers),
            params: Vec::new(),
            query,
            form: Vec::new(),
            headers: head.headers.clone(),
            client,
            address: address.to_owned(),
            host: host.to_owned(),
        };
        let reads = matches!(head.method, Method::GET | Method::HEAD);
        // Without a token the Admin API is open to whoever reaches the listener, and
        // so is the console. Its forms are still those of one browser.
        if visit.session.is_none() && reads && visit.parts().is_open() {
            visit.begin(Role::Owner, None);
        }
        visit
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.console.0
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.parts().clock.now_ms()
    }

    /// Whether the browser speaks TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.client.is_some_and(|client| client.secure)
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Who the visitor is, if the provider said so.
    pub(crate) fn person(&self) -> Option<&Person> {
        self.person.as_ref()
    }

    /// The names of the groups that the person is in.
    pub(crate) fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The role of a person who is in these groups alone.
    pub(crate) fn role_of(&self, groups: &[String]) -> Option<Role> {
        self.parts().provider.as_ref()?.role_of(groups)
    }

    /// Asks the provider whether the session's sign-in still counts, and for what.
    /// Who has no role any more is known, and has no session. `used`: somebody
    /// does something, and not just a page that was left open.
    pub(crate) async fn look_up(&mut self, used: bool) -> Result<(), PageError> {
        let sign_in = self.session.as_ref().and_then(|one| one.sign_in.clone());
        let Some(sign_in) = sign_in else {
            return Ok(());
        };
        // Until that is known it counts for nothing.
        let session = self.session.take();
        let status = match &self.console.0.provider {
            Some(provider) => provider.status(&sign_in, used).await?,
            None => SignInStatus::Ended,
        };
        match status {
            SignInStatus::Ended => {}
            SignInStatus::NoRole(person) => self.person = Some(person),
            SignInStatus::Role(member, role) => {
                self.person = Some(member.person);
                self.groups = member.groups;
                self.session = session.map(|mut session| {
                    session.role = role;
                    session
                });
            }
        }
        Ok(())
    }

    /// Whether the visitor has to sign in anew before changing something. Who signed
    /// in by the admin token has no sign-in to repeat.
    pub(crate) fn needs_step_up(&self) -> bool {
        let provider = self.parts().provider.as_ref();
        let sign_in = self.session.as_ref().and_then(|one| one.sign_in.as_ref());
        provider
            .zip(sign_in)
            .is_some_and(|(provider, sign_in)| provider.needs_step_up(sign_in, self.now_ms()))
    }

    /// The page that a form was on, if it is one of the console.
    pub(crate) fn form_page(&self) -> String {
        let referer = self.headers.get(header::REFERER);
        let referer = referer.and_then(|referer| Url::parse(referer.to_str().ok()?).ok());
        let page = referer.map_or_else(String::new, |url| url[Position::BeforePath..].to_owned());
        // Nothing but a form leads to a difference.
        let page = page.replacen("/console/preview/", "/console/gateway/", 1);
        path::own(&page).to_owned()
    }

    /// Whom the audit log names.
    pub(crate) fn actor(&self) -> Actor {
        let person = self.person.clone();
        person.map_or(Actor::Admin, Actor::Person)
    }

    /// Signs the visitor in; the cookie goes with the answer. A session from before
    /// ends.
    pub(crate) fn begin(&mut self, role: Role, sign_in: Option<SignIn>) {
        if let Some(old) = &self.session {
            // What has the browser keep the new one takes the place of these fields.
            let _ = self
                .parts()
                .sessions
                .end(old, &self.headers, self.is_secure(), self.now_ms());
        }
        let (secure, now_ms) = (self.is_secure(), self.now_ms());
        let began = self
            .parts()
            .sessions
            .begin((role, sign_in), &self.headers, secure, now_ms);
        if let Some((session, fields)) = began {
            self.session = Some(session);
            self.cookies = fields;
        }
    }

    /// The fields of a new session, for the answer.
    pub(crate) fn take_cookies(&mut self) -> Vec<HeaderValue> {
        std::mem::take(&mut self.cookies)
    }

    pub(crate) fn with_params(self, params: Vec<String>) -> Self {
        Self { params, ..self }
    }

    /// Reads the form in the body.
    pub(crate) async fn read_form(&mut self, body: Body) -> Result<(), PageError> {
        let kind = self.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(PageError::Form);
        }
        let bytes = axum::body::to_bytes(body, FORM_MAX).await;
        let bytes = bytes.map_err(|_| PageError::Form)?;
        let pairs = url::form_urlencoded::parse(&bytes);
        // Browsers send line ends as CR LF.
        let plain = |(name, value): (_, std::borrow::Cow<'_, str>)| {
            (
                std::borrow::Cow::into_owned(name),
                value.replace("\r\n", "\n"),
            )
        };
        self.form = pairs.take(FIELDS_MAX).map(plain).collect();
        Ok(())
    }

    /// Whether the form is one of this session.
    pub(crate) fn has_form_token(&self) -> bool {
        let token = self.field("form_token");
        let session = self.session.as_ref();
        session.is_some_and(|session| session.has_form_token(token))
    }

    /// A field of the form; "" if there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        find(&self.form, name)
    }

    /// A parameter of the query; "" if there is none.
    pub(crate) fn query(&self, name: &str) -> &str {
        find(&self.query, name)
    }

    pub(crate) fn param(&self, index: usize) -> &str {
        self.params.get(index).map_or("", String::as_str)
    }

    /// Whether the visitor may do what `role` may.
    pub(crate) fn may(&self, role: Role) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.role >= role)
    }

    /// The Admin API on behalf of the visitor.
    pub(crate) fn api(&self) -> Api {
        self.api_with(None)
    }

    /// The same for a change that the audit log calls `change`.
    pub(crate) fn api_for(&self, change: &str) -> Api {
        self.api_with(Some(change.to_owned()))
    }

    fn api_with(&self, change: Option<String>) -> Api {
        let operator = Operator {
            actor: self.actor(),
            via: "console",
            change,
        };
        Api::new(self.parts().admin.clone(), operator, self.client)
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    let found = pairs.iter().find(|(key, _)| key == name);
    found.map_or("", |(_, value)| value)
}
