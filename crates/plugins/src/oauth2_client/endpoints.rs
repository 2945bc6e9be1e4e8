//! The service URIs of the filter, below its `clientEndpoint`.

use http::header::{CACHE_CONTROL, LOCATION};
use http::{HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use url::Url;
use url::form_urlencoded;

use doorward_expr::Expression;
use doorward_net::http::reply::Reply;
use doorward_openid_connect::embedding::origin;
use doorward_plugin_api::filter::Exchange;

/// The parameter that names the page to which a login or a logout leads.
const GOTO: &str = "goto";

/// A service URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Login,
    Callback,
    Logout,
}

/// The service URIs, and where they lead.
pub(super) struct Endpoints {
    /// The path of `clientEndpoint`, without a slash at its end.
    pub(super) base: String,
    /// The names by which `registration` may choose the one registration.
    pub(super) registrations: Vec<String>,
    pub(super) default_login_goto: Option<Expression>,
    pub(super) default_logout_goto: Option<Expression>,
}

impl Endpoints {
    /// The service URI that a request is for.
    pub(super) fn of(&self, request: &RequestHeader) -> Option<Endpoint> {
        let path = request.uri.path().trim_end_matches('/');
        match path.strip_prefix(&self.base)? {
            "/login" => Some(Endpoint::Login),
            "/callback" => Some(Endpoint::Callback),
            "/logout" => Some(Endpoint::Logout),
            _ => None,
        }
    }

    /// Whether the parameters of a request for a service URI can be obeyed.
    pub(super) fn accepts(&self, request: &RequestHeader, exchange: &Exchange) -> bool {
        let endpoint = match self.of(request) {
            None | Some(Endpoint::Callback) => return true,
            Some(endpoint) => endpoint,
        };
        let chosen = parameter(request, "registration");
        let is_known = |name: &str| self.registrations.iter().any(|known| known == name);
        let chooses = endpoint == Endpoint::Login
            && (chosen.is_some_and(|name| !is_known(&name))
                || parameter(request, "discovery").is_some());
        !chooses && (parameter(request, GOTO).is_none() || goto(request, exchange).is_some())
    }

    /// The answer to a user who has signed in, and asks for no page of the
    /// application.
    pub(super) fn signed_in(&self, request: &RequestHeader, exchange: &Exchange) -> Reply {
        // The callback has the parameters of the provider, and no others.
        let goto = match self.of(request) {
            Some(Endpoint::Login) => goto(request, exchange),
            _ => None,
        };
        lead(goto.or_else(|| evaluated(self.default_login_goto.as_ref(), request, exchange)))
    }

    /// The answer to a user who has signed out; `reply` is the plugin's.
    pub(super) fn signed_out(
        &self,
        reply: Reply,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> Reply {
        let goto = goto(request, exchange);
        let goto = goto.or_else(|| evaluated(self.default_logout_goto.as_ref(), request, exchange));
        let location = reply.headers.iter().find(|(name, _)| name == LOCATION);
        let provider = location.and_then(|(_, value)| Url::parse(value.to_str().ok()?).ok());
        let Some(mut provider) = provider else {
            return lead(goto);
        };
        // The provider takes whole addresses alone.
        let base = origin(request, exchange).and_then(|origin| Url::parse(&origin).ok());
        let whole = goto.and_then(|goto| base?.join(&goto).ok());
        if let Some(whole) = whole {
            let mut query = provider.query_pairs_mut();
            query.append_pair("post_logout_redirect_uri", whole.as_str());
        }
        lead(Some(provider.into()))
    }
}

/// The page that a request names as `goto`: of the site of the request itself.
/// `None`: it names none, or one of another site.
fn goto(request: &RequestHeader, exchange: &Exchange) -> Option<String> {
    let text = parameter(request, GOTO)?;
    let base = Url::parse(&origin(request, exchange)?).ok()?;
    let is_whole = text.starts_with('/') || Url::parse(&text).is_ok();
    // Browsers read backslashes and line breaks in ways of their own: what is
    // sent is what was checked.
    let page = base.join(&text).ok().filter(|_| is_whole)?;
    let is_own =
        page.origin() == base.origin() && page.username().is_empty() && page.password().is_none();
    is_own.then(|| page.into())
}

fn evaluated(
    expression: Option<&Expression>,
    request: &RequestHeader,
    exchange: &Exchange,
) -> Option<String> {
    let text = expression?.text(&exchange.scope(request))?;
    Some(text.into_owned()).filter(|text| !text.is_empty())
}

/// The first value of a parameter in the query.
fn parameter(request: &RequestHeader, name: &str) -> Option<String> {
    let query = request.uri.query()?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(key, _)| key == name);
    found.map(|(_, value)| value.into_owned())
}

/// A redirect to a page, or a blank page.
fn lead(page: Option<String>) -> Reply {
    let location = page.and_then(|page| HeaderValue::try_from(page).ok());
    let reply = match location {
        Some(location) => Reply::empty(StatusCode::FOUND).header(LOCATION, location),
        None => Reply::empty(StatusCode::OK),
    };
    reply.header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
