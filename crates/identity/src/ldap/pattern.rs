//! Texts with a place for the name that somebody typed: no name can change what
//! is around it.

use ldap3::{dn_escape, ldap_escape};

/// Where a text is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a search filter (RFC 4515 §3).
    Filter,
    /// In the name of an entry (RFC 4514 §2.4).
    Name,
}

/// The place of the name.
const NAME: &str = "{name}";

/// A text with places for a name.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    place: Place,
}

impl Pattern {
    pub(super) fn parse(text: &str, place: Place) -> Result<Self, &'static str> {
        if !text.contains(NAME) {
            return Err("must have {name}");
        }
        if place == Place::Filter && !(text.starts_with('(') && text.ends_with(')')) {
            return Err("must be a filter such as (uid={name})");
        }
        // A place at the very begin or end of a value is escaped as such.
        Ok(Self {
            text: text.to_owned(),
            place,
        })
    }

    /// The text for this name.
    pub(super) fn fill(&self, name: &str) -> String {
        let name = match self.place {
            Place::Filter => ldap_escape(name),
            Place::Name => dn_escape(name),
        };
        self.text.replace(NAME, &name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, place: Place, name: &str) -> String {
        Pattern::parse(text, place).expect("a pattern").fill(name)
    }

    #[test]
    fn filter_injection() {
        for (name, filter) in [
            ("ann", "(&(uid=ann)(a=b))"),
            ("*", r"(&(uid=\2a)(a=b))"),
            ("a)(uid=*", r"(&(uid=a\29\28uid=\2a)(a=b))"),
            ("*)(|(uid=*", r"(&(uid=\2a\29\28|\28uid=\2a)(a=b))"),
            ("a\\2a", r"(&(uid=a\5c2a)(a=b))"),
            ("a\0", r"(&(uid=a\00)(a=b))"),
            ("{name}", "(&(uid={name})(a=b))"),
        ] {
            assert_eq!(filled("(&(uid={name})(a=b))", Place::Filter, name), filter);
        }
    }

    #[test]
    fn name_injection() {
        for (name, dn) in [
            ("ann", "uid=ann,ou=p"),
            ("admin,ou=x", r"uid=admin\2cou\3dx,ou=p"),
            ("a+cn=b", r"uid=a\2bcn\3db,ou=p"),
            ("#a ", r"uid=\23a\20,ou=p"),
            ("a\"<>;\\", r"uid=a\22\3c\3e\3b\5c,ou=p"),
            ("a\0", r"uid=a\00,ou=p"),
        ] {
            assert_eq!(filled("uid={name},ou=p", Place::Name, name), dn);
        }
    }

    #[test]
    fn a_text_without_a_place_is_none() {
        for text in ["(uid=ann)", "", "(uid={Name})"] {
            assert!(Pattern::parse(text, Place::Filter).is_err(), "{text}");
        }
        assert!(Pattern::parse("uid={name}", Place::Filter).is_err());
    }
}
