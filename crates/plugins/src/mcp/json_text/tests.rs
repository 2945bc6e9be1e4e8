use std::collections::HashSet;

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

#[test]
fn a_stop_is_found_wherever_it_is_and_whatever_is_round_it() {
    for byte in 0..=u8::MAX {
        for filling in [b'a', b' ', 0x80, u8::MAX] {
            for place in 0..40 {
                let mut text = [filling; 40];
                text[place] = byte;
                let expected = text.iter().position(|byte| is_stop(*byte));
                let expected = expected.unwrap_or(text.len());
                assert_eq!(
                    PlainRun::of(&text).length,
                    expected,
                    "{byte} {filling} {place}"
                );
                assert_eq!(PlainRun::of(&text[..place]).length, place);
            }
        }
    }
}

fn passes(mut json: JsonText<'_>) -> Result<()> {
    json.skip()?;
    json.end()
}

/// Texts that are JSON, or nearly.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[\\[\\]{},:\" ]",
        Just("\"a\":".to_owned()),
        Just("\"a\\u0062\"".to_owned()),
        "(true|false|null|-|0|1|12|\\.|e|E|\\+|1\\.5|-0|1e5|1e309|-2.5E+999|1e-999|01)",
        "\"(\\\\[\"\\\\/bfnrtux]|\\\\u[0-9a-fdD]{4}|[a-zä\u{7f}\u{1f}]){0,3}\"",
        "[\t\n\r\u{0}a-z\\\\]",
    ];
    let pieces = proptest::collection::vec(piece, 0..12);
    pieces.prop_map(|pieces| pieces.concat())
}

/// A document, written and then perhaps damaged.
fn documents() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("\\PC{0,8}", inner, 0..5).prop_map(Value::from_iter),
        ]
    });
    (tree, any::<prop::sample::Index>(), any::<u8>(), 0..3_u8).prop_map(
        |(tree, place, byte, damage)| {
            let mut bytes = tree.to_string().into_bytes();
            let place = place.index(bytes.len());
            match damage {
                0 => {}
                1 => bytes[place] = byte & 0x7f,
                _ => drop(bytes.remove(place)),
            }
            String::from_utf8_lossy(&bytes).into_owned()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_json_is_what_the_library_takes_for_it(
        text in prop_oneof![texts(), documents()],
    ) {
        let by_library = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        prop_assert_eq!(passes(JsonText::lenient(&text)).is_ok(), by_library, "{}", text);
        // The strict reader takes what the library can hold, but for names that are
        // there twice.
        let strictly = passes(JsonText::strict(text.as_bytes()));
        let can_be_held = serde_json::from_str::<Value>(&text).is_ok();
        match strictly {
            Err(JsonError::MemberTwice) => {}
            _ => prop_assert_eq!(strictly.is_ok(), can_be_held, "{}", text),
        }
    }
}

#[test]
fn depth_is_bounded_as_in_the_library() {
    for depth in [1, 126, 127, 128, 129, 100_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let by_library = serde_json::from_str::<Value>(&text).is_ok();
            assert_eq!(
                passes(JsonText::strict(text.as_bytes())).is_ok(),
                by_library,
                "{depth}"
            );
        }
    }
}

#[test]
fn half_a_surrogate_pair_means_nothing() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\n""#,
        r#""\ud800\ud800""#,
    ] {
        assert_eq!(
            passes(JsonText::strict(text.as_bytes())),
            Err(JsonError::Malformed)
        );
        assert_eq!(passes(JsonText::lenient(text)), Ok(()));
        assert!(
            JsonText::lenient(text)
                .string()
                .and_then(Quoted::meaning)
                .is_err()
        );
    }
    assert_eq!(passes(JsonText::strict(br#""\ud83d\ude00""#)), Ok(()));
}

#[test]
fn a_name_twice_is_found_in_its_own_object_alone() {
    let twice = [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"b":{"c":[{"d":1,"\u0064":2}]}}"#,
        r#"{"b":{"a":1},"b":1}"#,
    ];
    for text in twice {
        assert_eq!(
            passes(JsonText::strict(text.as_bytes())),
            Err(JsonError::MemberTwice)
        );
        assert_eq!(passes(JsonText::lenient(text)), Ok(()));
    }
    for text in [r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#, r#"[{"a":1},{"a":1}]"#] {
        assert_eq!(passes(JsonText::strict(text.as_bytes())), Ok(()));
    }
}

/// Objects within objects, by their names alone.
#[derive(Debug, Clone)]
struct Names(Vec<(String, bool, Names)>);

impl Names {
    fn any() -> impl Strategy<Value = Self> {
        let name = prop_oneof![
            3 => "[ab]{0,3}",
            2 => "[a-z]{1,2}",
            1 => "[ab]{7,9}",
            1 => "[a-z]{10,20}",
        ];
        let none = Just(Self(Vec::new()));
        none.prop_recursive(3, 120, 40, move |inner| {
            let members = (name.clone(), proptest::bool::weighted(0.1), inner);
            proptest::collection::vec(members, 0..40).prop_map(Self)
        })
    }

    fn text(&self) -> String {
        let members = self.0.iter().map(|(name, is_escaped, value)| {
            let name: String = if *is_escaped {
                name.chars()
                    .map(|letter| format!("\\u{:04x}", u32::from(letter)))
                    .collect()
            } else {
                name.clone()
            };
            format!("\"{name}\":{}", value.text())
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }

    fn are_unique(&self) -> bool {
        let mut names = HashSet::new();
        let mut members = self.0.iter();
        members.all(|(name, _, value)| names.insert(name) && value.are_unique())
    }

    /// With the members only that come first under their name.
    fn without_others(self) -> Self {
        let mut names = HashSet::new();
        let members = self.0.into_iter();
        let first = members.filter(|(name, ..)| names.insert(name.clone()));
        let first =
            first.map(|(name, is_escaped, value)| (name, is_escaped, value.without_others()));
        Self(first.collect())
    }
}

proptest! {
    #[test]
    fn an_object_has_a_name_twice_if_a_set_of_its_names_has(names in Names::any()) {
        let text = names.text();
        let expected = if names.are_unique() { Ok(()) } else { Err(JsonError::MemberTwice) };
        prop_assert_eq!(passes(JsonText::strict(text.as_bytes())), expected, "{}", text);
        let text = names.without_others().text();
        prop_assert_eq!(passes(JsonText::strict(text.as_bytes())), Ok(()), "{}", text);
    }
}

proptest! {
    #[test]
    fn a_run_of_plain_bytes_ends_at_the_first_that_is_none(
        bytes in proptest::collection::vec(
            prop_oneof![8 => any::<u8>(), 1 => Just(b'"'), 40 => Just(b'x'), 5 => 0x80..=0xff_u8],
            0..80,
        ),
    ) {
        let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        let first = bytes.iter().position(stops).unwrap_or(bytes.len());
        prop_assert_eq!(PlainRun::of(&bytes).length, first);
    }
}

#[test]
fn texts_of_every_length_end_where_they_end() {
    for length in 0..100 {
        let text = format!("\"{}\"", "x".repeat(length));
        let mut json = JsonText::strict(text.as_bytes());
        let meaning = json.string().and_then(Quoted::meaning).expect("a text");
        assert_eq!(meaning.len(), length);
        for control in ['\u{0}', '\u{1f}', '\n'] {
            let text = format!("\"{}{control}\"", "x".repeat(length));
            assert_eq!(
                passes(JsonText::strict(text.as_bytes())),
                Err(JsonError::Malformed)
            );
        }
    }
}
