//! Members with a language tag: `client_name#de` (RFC 7591 §2.2).
//!
//! A derived reader refuses members that it does not know, and these can't be
//! listed. They are put aside on the way to it.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{Error as NoValue, StringDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Unexpected, Visitor,
};
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};
use serde_json::Value;

use super::ClientMetadata;

/// Members that may be there in several languages.
const TAGGED: [&str; 5] = [
    "client_name",
    "client_uri",
    "logo_uri",
    "policy_uri",
    "tos_uri",
];

/// Most members with a language tag.
const MOST: usize = 50;

impl ClientMetadata {
    /// What it is called, or one of its links, in the language that a reader
    /// wishes for: with this tag, with the first part of it, or without one.
    pub fn in_language(&self, name: &str, language: &str) -> Option<&str> {
        let plain = match name {
            "client_name" => &self.client_name,
            "client_uri" => &self.client_uri,
            "logo_uri" => &self.logo_uri,
            "policy_uri" => &self.policy_uri,
            "tos_uri" => &self.tos_uri,
            _ => &None,
        };
        let with = |tag: &str| {
            let wanted = |member: &str| {
                let parts = member.split_once('#');
                parts.is_some_and(|(one, its)| one == name && its.eq_ignore_ascii_case(tag))
            };
            let mut all = self.localized.iter();
            all.find_map(|(member, value)| wanted(member).then_some(value.as_str()))
        };
        let first = language.split('-').next().unwrap_or_default();
        with(language).or_else(|| with(first)).or(plain.as_deref())
    }
}

/// Whether `member` is one that may be there in several languages, with a tag.
pub fn is_tagged(member: &str) -> bool {
    let Some((name, tag)) = member.split_once('#') else {
        return false;
    };
    let legal = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    TAGGED.contains(&name) && tag.len() <= 35 && tag.split('-').all(legal)
}

/// The names of all members of a client's metadata, without language tags.
pub fn member_names() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Fails by design: it tells the names and has no value.
    let _ = ClientMetadata::deserialize(FieldNames(&mut names));
    names
}

impl<'de> Deserialize<'de> for ClientMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut localized = BTreeMap::new();
        let aside = TaggedMembers {
            inner: deserializer,
            tagged: &mut localized,
        };
        let mut metadata = Self::deserialize(aside)?;
        metadata.localized = localized;
        Ok(metadata)
    }
}

impl Serialize for ClientMetadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.localized.is_empty() {
            return Self::serialize(self, serializer);
        }
        let members = Self::serialize(self, serde_json::value::Serializer);
        let mut members = members.map_err(S::Error::custom)?;
        for (name, value) in &self.localized {
            members[name] = Value::from(value.as_str());
        }
        members.serialize(serializer)
    }
}

/// Puts members with a language tag aside.
struct TaggedMembers<'a, T> {
    inner: T,
    tagged: &'a mut BTreeMap<String, String>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for TaggedMembers<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let tagged = self.tagged;
        self.inner.deserialize_map(TaggedMembers {
            inner: visitor,
            tagged,
        })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for TaggedMembers<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(TaggedMembers {
            inner: map,
            tagged: self.tagged,
        })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for TaggedMembers<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.inner.next_key::<String>()? {
            if !is_tagged(&name) {
                let name: StringDeserializer<A::Error> = name.into_deserializer();
                return seed.deserialize(name).map(Some);
            }
            let value: String = self.inner.next_value()?;
            if self.tagged.len() >= MOST {
                let found = Unexpected::Other("too many languages");
                return Err(A::Error::invalid_value(
                    found,
                    &"at most 50 members with a tag",
                ));
            }
            if self.tagged.insert(name, value).is_some() {
                return Err(A::Error::custom("a member with a language tag is repeated"));
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

/// Is told the names of the members that a reader knows.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(Error::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        Err(Error::custom("no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_in_several_languages_come_back() {
        let members = json!({
            "client_id": "a", "client_name": "Shop", "client_name#de": "Laden",
            "client_name#pt-BR": "Loja", "tos_uri#de": "https://a.example/agb",
        });
        let metadata: ClientMetadata = serde_json::from_value(members.clone()).expect("metadata");
        let name = |tag| metadata.in_language("client_name", tag);
        assert_eq!(name("de-AT"), Some("Laden"));
        assert_eq!(name("PT-br"), Some("Loja"));
        assert_eq!(name("fr"), Some("Shop"));
        assert_eq!(metadata.in_language("tos_uri", "fr"), None);
        let told = json!(metadata);
        for (name, value) in members.as_object().expect("an object") {
            assert_eq!(&told[name], value, "{name}");
        }
    }

    #[test]
    fn other_members_have_no_languages() {
        for name in [
            "scope#de",
            "redirect_uris#de",
            "client_name#",
            "client_name#d e",
            "client_name#de#at",
            "client_name#-",
        ] {
            let members = json!({"client_id": "a", name: "x"});
            assert!(
                serde_json::from_value::<ClientMetadata>(members).is_err(),
                "{name}"
            );
        }
        let number = json!({"client_id": "a", "client_name#de": 5});
        assert!(serde_json::from_value::<ClientMetadata>(number).is_err());
    }

    #[test]
    fn all_members_can_be_named() {
        let names = member_names();
        assert!(names.contains(&"client_id") && names.contains(&"jwks_uri"));
        assert!(!names.contains(&"localized"));
    }

    #[test]
    fn all_members_are_documented() {
        let docs = include_str!("../../../../../docs/identity.md");
        for name in member_names() {
            assert!(docs.contains(&format!("\n| `{name}` |")), "{name}");
        }
    }
}
