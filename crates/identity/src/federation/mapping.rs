//! From what another provider says of a user to attributes of an account.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use doorward_core::jose::claims::{find, scalar};
use doorward_core::model::user::schema::{self, RecordError, Type};

/// Longest text that is taken over, in bytes.
const TEXT_MAX: usize = 1024;

/// The usual claims (OpenID Connect Core §5.1), by attribute.
const USUAL: [(&str, &str); 13] = [
    ("birthdate", "birthdate"),
    ("displayName", "name"),
    ("emails", "email"),
    ("gender", "gender"),
    ("locale", "locale"),
    ("name.familyName", "family_name"),
    ("name.givenName", "given_name"),
    ("name.middleName", "middle_name"),
    ("nickName", "nickname"),
    ("phoneNumbers", "phone_number"),
    ("profileUrl", "profile"),
    ("timezone", "zoneinfo"),
    ("website", "website"),
];

/// What decides about accounts, and is never taken from elsewhere.
const DECIDED_HERE: [&str; 5] = ["userName", "accountStatus", "active", "password", "id"];

/// Attributes by the claims that they are made from.
#[derive(Debug)]
pub(crate) struct Mapping(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    /// Path of the attribute, spelt as in the schema.
    attribute: &'static str,
    /// Whether it is a list, of which one value is said.
    many: bool,
    claim: Vec<String>,
}

/// Somebody's attributes by a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappedAttributes {
    /// Single values: path and text.
    single: Vec<(&'static str, String)>,
    /// Values of lists: path, text, and whether it was verified.
    many: Vec<(&'static str, String, bool)>,
}

impl Mapping {
    /// The mapping that is written, or the usual one.
    ///
    /// # Errors
    /// The attribute that there is not, or that can't be set like this.
    pub(crate) fn compile(written: Option<&BTreeMap<String, String>>) -> Result<Self, RecordError> {
        let Some(written) = written else {
            let usual = USUAL
                .iter()
                .map(|(attribute, claim)| rule(attribute, claim));
            return usual.collect::<Result<_, _>>().map(Self);
        };
        let all = written.iter();
        let all = all.map(|(attribute, claim)| rule(attribute, claim));
        all.collect::<Result<_, _>>().map(Self)
    }

    /// What these claims say; which of them are verified addresses is for the
    /// caller.
    pub(crate) fn read(
        &self,
        claims: &Map<String, Value>,
        verified: &dyn Fn(&[String]) -> bool,
    ) -> MappedAttributes {
        let mut mapped = MappedAttributes::default();
        for rule in &self.0 {
            let value = find(claims, &rule.claim).and_then(scalar);
            let text = value.map(|text| text.trim().to_owned());
            let fits = |text: &String| {
                !text.is_empty() && text.len() <= TEXT_MAX && !text.chars().any(char::is_control)
            };
            let Some(text) = text.filter(fits) else {
                continue;
            };
            if rule.many {
                let verified = rule.attribute == "emails" && verified(&rule.claim);
                mapped.many.push((rule.attribute, text, verified));
            } else {
                mapped.single.push((rule.attribute, text))
            }
        }
        mapped
    }
}

fn rule(attribute: &str, claim: &str) -> Result<Rule, RecordError> {
    let wrong = |text: &str| Err(RecordError::new(attribute, text).below("map"));
    let Some(known) = schema::find(attribute) else {
        return wrong("is no attribute of users");
    };
    if known.read_only || DECIDED_HERE.contains(&known.path) {
        return wrong("can't be set from elsewhere");
    }
    let many = match (known.path, known.kind) {
        ("emails" | "phoneNumbers", _) => true,
        (path, Type::Text | Type::Exact) if !known.is_many() => {
            debug_assert!(path.split('.').count() <= 2, "the schema has two levels");
            false
        }
        _ => return wrong("must be a text, emails or phoneNumbers"),
    };
    if claim.is_empty() || claim.split('.').any(str::is_empty) {
        return wrong("must name a claim");
    }
    Ok(Rule {
        attribute: known.path,
        many,
        claim: claim.split('.').map(str::to_owned).collect(),
    })
}

impl MappedAttributes {
    /// The address, if one is said.
    pub(crate) fn email(&self) -> Option<&str> {
        let mut all = self.many.iter();
        let found = all.find(|(attribute, ..)| *attribute == "emails");
        found.map(|(_, text, _)| text.as_str())
    }

    /// Puts it into a record. A value that was said `before` makes place for
    /// the one that is said now; what others said stays.
    pub(crate) fn apply(&self, record: &mut Map<String, Value>, before: Option<&str>) {
        for (path, text) in &self.single {
            match path.split_once('.') {
                None => {
                    record.insert((*path).to_owned(), json!(text));
                }
                Some((parent, name)) => {
                    let parent = record.entry(parent).or_insert_with(|| json!({}));
                    if let Value::Object(members) = parent {
                        members.insert(name.to_owned(), json!(text));
                    }
                }
            }
        }
        for (path, text, verified) in &self.many {
            let is_address = *path == "emails";
            let before = before.filter(|_| is_address);
            let verified = is_address.then_some(*verified);
            let list = record.entry(*path).or_insert_with(|| json!([]));
            if let Value::Array(values) = list {
                put(values, text, verified, before);
            }
        }
    }
}

/// Makes `text` one of the values; whether it is verified is said of addresses
/// only. One that comes in without being so is marked: nothing must be sent to
/// it. What is known already stays what it was.
fn put(values: &mut Vec<Value>, text: &str, verified: Option<bool>, before: Option<&str>) {
    let is = |value: &Value, text: &str| {
        let known = value.get("value").and_then(Value::as_str);
        known.is_some_and(|known| known.eq_ignore_ascii_case(text))
    };
    let gone = before.filter(|before| !before.eq_ignore_ascii_case(text));
    let mut primary = values.is_empty();
    if let Some(gone) = gone {
        let leaves = |value: &Value| is(value, gone);
        primary |= values
            .iter()
            .any(|value| leaves(value) && value["primary"] == json!(true));
        values.retain(|value| !leaves(value));
    }
    if let Some(known) = values.iter_mut().find(|value| is(value, text)) {
        if verified == Some(true)
            && let Value::Object(members) = known
        {
            members.insert("verified".to_owned(), json!(true));
        }
        return;
    }
    let primary = primary || !values.iter().any(|value| value["primary"] == json!(true));
    let mut value = json!({"value": text, "primary": primary});
    if let Some(verified) = verified {
        value["verified"] = json!(verified);
    }
    values.push(value);
}

/// A text with places for claims: `{preferred_username}@corp`.
#[derive(Debug)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Claim(Vec<String>),
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, RecordError> {
        let wrong = |text: &str| Err(RecordError::new("user_name", text));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let Some((claim, after)) = after.split_once('}') else {
                return wrong("has a `{` without `}`");
            };
            if claim.is_empty() || claim.split('.').any(str::is_empty) {
                return wrong("must name a claim between `{` and `}`");
            }
            let claim = claim.split('.').map(str::to_owned).collect();
            pieces.push(Piece::Claim(claim));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        let mut claims = pieces.iter().filter(|p| matches!(p, Piece::Claim(_)));
        match claims.next() {
            Some(_) => Ok(Self(pieces)),
            // Else all users would have one name.
            None => wrong("must have a `{claim}`"),
        }
    }

    /// The text for these claims, if all that it needs is there.
    pub(super) fn fill(&self, claims: &Map<String, Value>) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(own) => text.push_str(own),
                Piece::Claim(path) => {
                    let value = find(claims, path).and_then(scalar);
                    text.push_str(value.filter(|value| !value.is_empty())?.as_ref());
                }
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    fn email(claim: &[String]) -> bool {
        claim == ["email"]
    }

    fn nothing(_: &[String]) -> bool {
        false
    }

    fn usual() -> Mapping {
        Mapping::compile(None).expect("the usual mapping")
    }

    #[test]
    fn usual_claims_become_attributes() {
        let claims = claims(json!({
            "sub": "1", "name": "Ann A", "given_name": "Ann", "email": "ann@x.example",
            "email_verified": true, "phone_number": "+1", "locale": 7, "nickname": "",
        }));
        let mut record = Map::new();
        usual().read(&claims, &email).apply(&mut record, None);
        assert_eq!(
            Value::Object(record),
            json!({
                "displayName": "Ann A", "name": {"givenName": "Ann"}, "locale": "7",
                "emails": [{"value": "ann@x.example", "primary": true, "verified": true}],
                "phoneNumbers": [{"value": "+1", "primary": true}],
            })
        );
    }

    #[test]
    fn an_address_that_is_not_verified_is_marked_so() {
        let mapped = usual().read(&claims(json!({"email": "ann@x.example"})), &nothing);
        let mut record = Map::new();
        mapped.apply(&mut record, None);
        assert_eq!(
            record["emails"],
            json!([{"value": "ann@x.example", "primary": true, "verified": false}])
        );
    }

    #[test]
    fn what_is_known_of_an_address_stays_when_it_is_said_again() {
        for known in [
            json!({"value": "Ann@x.example"}),
            json!({"value": "Ann@x.example", "verified": true}),
        ] {
            let mut record = claims(json!({"emails": [known]}));
            let mapped = usual().read(&claims(json!({"email": "ann@x.example"})), &nothing);
            mapped.apply(&mut record, None);
            assert_eq!(record["emails"], json!([known]));
        }
    }

    #[test]
    fn changed_address_takes_the_place_of_the_one_said_before_and_of_no_other() {
        let mut record = claims(json!({"emails": [
            {"value": "own@x.example", "verified": true},
            {"value": "Old@x.example", "primary": true, "verified": true},
        ]}));
        let mapped = usual().read(&claims(json!({"email": "new@x.example"})), &nothing);
        mapped.apply(&mut record, Some("old@x.example"));
        assert_eq!(
            record["emails"],
            json!([
                {"value": "own@x.example", "verified": true},
                {"value": "new@x.example", "primary": true, "verified": false},
            ])
        );
    }

    #[test]
    fn verification_of_one_claim_says_nothing_of_another() {
        let map = BTreeMap::from([("emails".to_owned(), "contact".to_owned())]);
        let mapping = Mapping::compile(Some(&map)).expect("a mapping");
        let mapped = mapping.read(&claims(json!({"contact": "boss@x.example"})), &email);
        assert_eq!(
            mapped.many,
            [("emails", "boss@x.example".to_owned(), false)]
        );
    }

    #[test]
    fn attributes_that_decide_about_accounts_are_not_mapped() {
        for attribute in [
            "userName",
            "active",
            "accountStatus",
            "id",
            "meta.created",
            "schemas",
            "password",
            "emails.verified",
            "preferences",
            "nonsense",
        ] {
            let map = BTreeMap::from([(attribute.to_owned(), "x".to_owned())]);
            assert!(Mapping::compile(Some(&map)).is_err(), "{attribute}");
        }
    }

    #[test]
    fn long_and_strange_texts_are_left_out() {
        let mapped = usual().read(
            &claims(json!({"name": "x".repeat(5000), "nickname": "a\nb", "profile": {"a": 1}})),
            &email,
        );
        assert_eq!(mapped, MappedAttributes::default());
    }

    #[test]
    fn a_template_needs_all_its_claims() {
        let template = Template::parse("{a.b}@corp-{n}").expect("a template");
        let filled = |value| template.fill(&claims(value));
        assert_eq!(
            filled(json!({"a": {"b": "x"}, "n": 5})).as_deref(),
            Some("x@corp-5")
        );
        assert_eq!(filled(json!({"a": {"b": ""}, "n": 5})), None);
        assert_eq!(filled(json!({"n": 5})), None);
        for bad in ["", "plain", "{", "{}", "{a..b}", "x{a"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }
}
