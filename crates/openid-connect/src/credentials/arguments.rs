//! The parameters of a request: of its query, and of its body if that is a
//! form or a JSON object.

use pingora::http::RequestHeader;
use url::form_urlencoded;

use crate::config::fields::client::Place;
use crate::decide::refusal::Refusal;
use doorward_net::http::path::with_path_and_query;

/// Parameters that methods search. Made only where a request brings no token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    query: Vec<(String, String)>,
    body: Vec<(String, String)>,
}

/// Where parameters may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Where {
    pub(crate) header: bool,
    pub(crate) query: bool,
    pub(crate) body: bool,
}

impl Where {
    pub(crate) fn of(places: &[Place]) -> Self {
        Self {
            header: places.contains(&Place::Header),
            query: places.contains(&Place::Query),
            body: places.contains(&Place::Body),
        }
    }
}

impl Arguments {
    pub(crate) fn new(query: Option<&str>, body: Vec<(String, String)>) -> Self {
        let query = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self {
            query: query.into_owned().collect(),
            body,
        }
    }

    /// The first parameter called `name`, of the query or else the body; an
    /// empty one is none.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        let mut all = self.query.iter().chain(&self.body);
        let found = all.find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the body has a parameter called `name`, whatever it says.
    pub(crate) fn has_in_body(&self, name: &str) -> bool {
        self.body.iter().any(|(key, _)| key == name)
    }

    /// The parameter called `name` where it may be; an empty one is none.
    ///
    /// # Errors
    /// [`Refusal::RepeatedCredentials`] when it is there twice: which one
    /// counts is anyone's guess.
    pub(crate) fn only(&self, name: &str, places: Where) -> Result<Option<&str>, Refusal> {
        let mut found = self.all(name, places);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(Refusal::RepeatedCredentials),
            (one, _) => Ok(one),
        }
    }

    /// Whether there is a parameter called `name` where it may be.
    pub(crate) fn has(&self, name: &str, places: Where) -> bool {
        self.all(name, places).next().is_some()
    }

    fn all(&self, name: &str, places: Where) -> impl Iterator<Item = &str> {
        let query = self.query.iter().filter(move |_| places.query);
        let body = self.body.iter().filter(move |_| places.body);
        let named = query.chain(body).filter(move |(key, _)| key == name);
        let values = named.map(|(_, value)| value.as_str());
        values.filter(|value| !value.is_empty())
    }
}

/// Gives a request another path and query, of which the rest of its target is
/// left: over HTTP/2 nothing else names its host. Says whether that can be.
pub(crate) fn retarget(request: &mut RequestHeader, target: &str) -> bool {
    match with_path_and_query(&request.uri, target) {
        Some(uri) => {
            request.set_uri(uri);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: Where = Where {
        header: true,
        query: true,
        body: true,
    };

    fn arguments(query: &str, body: &[(&str, &str)]) -> Arguments {
        let body = body.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Arguments::new(Some(query), body.collect())
    }

    #[test]
    fn a_parameter_that_is_there_twice_is_refused() {
        let one = arguments("a=1&b=", &[("b", "2")]);
        assert_eq!(one.only("a", EVERYWHERE), Ok(Some("1")));
        assert_eq!(one.only("b", EVERYWHERE), Ok(Some("2")));
        assert_eq!(one.only("c", EVERYWHERE), Ok(None));
        for (query, body) in [("a=1&a=1", &[][..]), ("a=1", &[("a", "2")][..])] {
            let twice = arguments(query, body).only("a", EVERYWHERE).map(|_| ());
            assert_eq!(twice, Err(Refusal::RepeatedCredentials));
        }
        let query = Where {
            body: false,
            ..EVERYWHERE
        };
        assert_eq!(
            arguments("a=1", &[("a", "2")]).only("a", query),
            Ok(Some("1"))
        );
    }
}
