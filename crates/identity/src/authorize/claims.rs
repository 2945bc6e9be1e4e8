//! The `claims` parameter (OpenID Connect Core §5.5).

use serde_json::{Map, Value};

use crate::userinfo;
use doorward_core::jose::json;
use doorward_core::model::user::User;

/// Which claims are asked for, and of whom.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimsRequest {
    id_token: Map<String, Value>,
    userinfo: Map<String, Value>,
}

impl ClaimsRequest {
    /// Reads the parameter; `None`: it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut members = json::object(text.as_bytes()).ok()?;
        let mut of = |name: &str| match members.remove(name) {
            None | Some(Value::Null) => Some(Map::new()),
            Some(Value::Object(claims)) => {
                let well_formed = |wish: &Value| matches!(wish, Value::Null | Value::Object(_));
                claims.values().all(well_formed).then_some(claims)
            }
            Some(_) => None,
        };
        Some(Self {
            id_token: of("id_token")?,
            userinfo: of("userinfo")?,
        })
    }

    /// Drops the claims whose scope is not among `allowed`, those of the
    /// client: a wish gives nothing that the scopes would not.
    pub(super) fn confine(&mut self, allowed: &[String]) {
        let may = |name: &String, _: &mut Value| {
            userinfo::scope_of(name).is_none_or(|scope| allowed.iter().any(|one| one == scope))
        };
        self.id_token.retain(may);
        self.userinfo.retain(may);
    }

    /// The scopes that the claims are of, which the user has to agree to as if
    /// they had been asked for.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &'static str> {
        let names = self.id_token.keys().chain(self.userinfo.keys());
        names.filter_map(|name| userinfo::scope_of(name))
    }

    /// The users that the client will have no other than: each list names some, and
    /// the user has to be on all of them (§5.5.1). What is no text names nobody.
    pub(super) fn subjects(&self) -> impl Iterator<Item = Vec<&str>> {
        let wishes = [&self.id_token, &self.userinfo].into_iter();
        wishes.filter_map(|claims| values(claims.get("sub")?))
    }

    /// The classes of authentication that the client names, the dearest first,
    /// and whether it insists on one of them (§5.5.1.1).
    pub(super) fn classes(&self) -> (Vec<&str>, bool) {
        let Some(wish) = self.id_token.get("acr") else {
            return (Vec::new(), false);
        };
        let essential = wish.get("essential") == Some(&Value::Bool(true));
        match values(wish) {
            Some(values) => (values, essential),
            None => (Vec::new(), false),
        }
    }

    /// The claims about `user` that the ID token shall hold: those asked for
    /// and, where no access token will tell them, those of the scopes.
    pub(super) fn for_id_token(
        &self,
        user: &User,
        scopes: Option<&[String]>,
    ) -> Map<String, Value> {
        let by_scope = scopes.into_iter().flatten();
        let mut claims = userinfo::of_scopes(user, by_scope.map(String::as_str));
        claims.extend(userinfo::named(user, &self.of_user_for_id_token()));
        claims
    }

    /// The names of the claims about the user that are asked for in ID tokens.
    pub(super) fn of_user_for_id_token(&self) -> Vec<String> {
        let known = |name: &&String| userinfo::scope_of(name).is_some();
        self.id_token.keys().filter(known).cloned().collect()
    }

    /// The claims that the userinfo endpoint shall tell besides those of the
    /// scopes.
    pub(super) fn for_userinfo(&self) -> Vec<String> {
        let known = |name: &&String| {
            let name = name.as_str();
            userinfo::CLAIMS.contains(&name) || userinfo::OF_SIGN_IN.contains(&name)
        };
        self.userinfo.keys().filter(known).cloned().collect()
    }
}

/// The texts that a wish names, if it names values at all.
fn values(wish: &Value) -> Option<Vec<&str>> {
    let (value, values) = (wish.get("value"), wish.get("values"));
    let listed = values.and_then(Value::as_array).into_iter().flatten();
    let texts = listed.chain(value).filter_map(Value::as_str);
    (value.is_some() || values.is_some()).then(|| texts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_wishes_are_refused_and_unknown_ones_ignored() {
        for bad in [
            "",
            "[]",
            "{",
            "{\"id_token\":5}",
            "{\"userinfo\":{\"email\":1}}",
        ] {
            assert!(ClaimsRequest::parse(bad).is_none(), "{bad}");
        }
        let wanted = ClaimsRequest::parse(r#"{"userinfo":{"email":null,"shoe":null},"x":1}"#);
        let wanted = wanted.expect("well-formed");
        assert_eq!(wanted.for_userinfo(), ["email"]);
    }

    #[test]
    fn claims_smuggled_past_the_scopes_of_the_client_are_dropped() {
        let text = r#"{"id_token":{"email":null,"acr":null},"userinfo":{"phone_number":null}}"#;
        let mut wanted = ClaimsRequest::parse(text).expect("well-formed");
        assert_eq!(wanted.scopes().collect::<Vec<_>>(), ["email", "phone"]);
        wanted.confine(&["openid".to_owned(), "phone".to_owned()]);
        assert_eq!(wanted.scopes().collect::<Vec<_>>(), ["phone"]);
        assert!(wanted.id_token.contains_key("acr"));
    }

    #[test]
    fn an_essential_class_is_told_from_a_wish() {
        let classes = |wish: &str| {
            let wanted = ClaimsRequest::parse(&format!(r#"{{"id_token":{{"acr":{wish}}}}}"#));
            let wanted = wanted.expect("well-formed");
            let (values, essential) = wanted.classes();
            (values.join(" "), essential)
        };
        let told = |values: &str, essential| (values.to_owned(), essential);
        let both = r#"{"essential":true,"values":["gold",1,"0"]}"#;
        assert_eq!(classes(both), told("gold 0", true));
        assert_eq!(
            classes(r#"{"essential":true,"value":"gold"}"#),
            told("gold", true)
        );
        assert_eq!(classes(r#"{"essential":true}"#), told("", false));
        assert_eq!(classes(r#"{"values":["gold"]}"#), told("gold", false));
        assert_eq!(classes("null"), told("", false));
    }
}
