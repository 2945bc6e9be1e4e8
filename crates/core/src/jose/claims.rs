//! Reading claims of a verified token (RFC 7519 §4, OpenID Connect Core §2).

use serde_json::{Map, Value};
use smallvec::SmallVec;

/// How far the clocks of two honest machines may differ, in seconds: applied
/// to `nbf` and `iat` even when the configured leeway is less.
pub const CLOCK_SKEW: i64 = 10;

/// Why a token is not valid at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// `exp` has come.
    #[error("the token has expired")]
    Expired,
    /// `nbf` or `iat` is yet to come.
    #[error("the token is not valid yet")]
    NotYet,
    /// `exp` is absent, or a time is not a number.
    #[error("the token's times are missing or malformed")]
    Malformed,
}

/// Checks `exp`, `nbf` and `iat` at `now` (seconds since the epoch) and gives
/// the second from which the token must no longer be accepted.
///
/// # Errors
/// [`TimeError`]. A token without `exp` is malformed: it could never be
/// withdrawn (RFC 9068 §2.2).
pub fn check_times(claims: &Map<String, Value>, now: i64, leeway: i64) -> Result<i64, TimeError> {
    let end = time(claims, "exp")?
        .ok_or(TimeError::Malformed)?
        .saturating_add(leeway);
    if now >= end {
        return Err(TimeError::Expired);
    }
    check_start(claims, now, leeway)?;
    Ok(end)
}

/// Checks `nbf` and `iat` at `now`, where they are there.
///
/// # Errors
/// [`TimeError`].
pub fn check_start(claims: &Map<String, Value>, now: i64, leeway: i64) -> Result<(), TimeError> {
    let latest = now.saturating_add(leeway.max(CLOCK_SKEW));
    for name in ["nbf", "iat"] {
        if time(claims, name)?.is_some_and(|start| start > latest) {
            return Err(TimeError::NotYet);
        }
    }
    Ok(())
}

/// A NumericDate claim in whole seconds, rounded down; `None` if absent.
///
/// # Errors
/// [`TimeError::Malformed`] when it is no number.
pub fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<i64>, TimeError> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(seconds), _) => Ok(Some(seconds)),
            // Saturates, so that an absurd date stays absurd.
            (None, Some(seconds)) => Ok(Some(seconds.floor() as i64)),
            (None, None) => Err(TimeError::Malformed),
        },
        Some(_) => Err(TimeError::Malformed),
    }
}

/// How long a token lives, in seconds, by the `expires_in` of a token response (RFC
/// 6749 §5.1); some providers write it as a text. `None` if it is absent or null.
///
/// # Errors
/// [`TimeError::Malformed`] when it is no number.
pub fn lifetime(response: &Map<String, Value>) -> Result<Option<i64>, TimeError> {
    match response.get("expires_in") {
        Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            let seconds = text.parse().map_err(|_| TimeError::Malformed)?;
            Ok(Some(seconds))
        }
        _ => time(response, "expires_in"),
    }
}

/// The claim at `path`: each item goes one level down, by member name or by
/// the 1-based index of an array.
pub fn find<'a>(claims: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(claims.get(first)?, |value, step| match value {
            Value::Object(members) => members.get(step),
            Value::Array(items) => items.get(step.parse::<usize>().ok()?.checked_sub(1)?),
            _ => None,
        })
}

/// Puts a claim at `path`, unless something is there or in the way.
pub fn place(claims: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((last, above)) = path.split_last() else {
        return;
    };
    let mut members = claims;
    for step in above {
        let next = members.entry(step).or_insert_with(|| Map::new().into());
        let Value::Object(next) = next else {
            return;
        };
        members = next;
    }
    members.entry(last).or_insert(value);
}

/// The words of a claim: of a text, what spaces separate; of an array, its
/// items; a single scalar as itself.
pub fn words(value: &Value) -> SmallVec<[std::borrow::Cow<'_, str>; 4]> {
    match value {
        Value::String(text) => text.split_ascii_whitespace().map(Into::into).collect(),
        Value::Array(items) => items.iter().filter_map(scalar).collect(),
        single => scalar(single).into_iter().collect(),
    }
}

/// A text, number or boolean as text.
pub fn scalar(value: &Value) -> Option<std::borrow::Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(flag) => Some(if *flag { "true" } else { "false" }.into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether two issuer identifiers are the same, a trailing slash aside.
pub fn same_issuer(one: &str, other: &str) -> bool {
    one.strip_suffix('/').unwrap_or(one) == other.strip_suffix('/').unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(members) => members,
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn a_token_ends_at_its_expiry_second() {
        let token = claims(json!({"exp": 100}));
        assert_eq!(check_times(&token, 99, 0), Ok(100));
        assert_eq!(check_times(&token, 100, 0), Err(TimeError::Expired));
        assert_eq!(check_times(&token, 104, 5), Ok(105));
        assert_eq!(check_times(&token, 105, 5), Err(TimeError::Expired));
    }

    #[test]
    fn a_token_from_the_future_is_refused_beyond_clock_skew() {
        for name in ["nbf", "iat"] {
            let token = claims(json!({"exp": 1000, name: 110}));
            assert!(check_times(&token, 100, 0).is_ok());
            assert_eq!(check_times(&token, 99, 0), Err(TimeError::NotYet));
            assert!(check_times(&token, 50, 60).is_ok());
        }
    }

    #[test]
    fn times_that_are_missing_or_no_numbers_are_refused() {
        for bad in [
            json!({}),
            json!({"exp": "9999999999"}),
            json!({"exp": null}),
            json!({"exp": [9_999_999_999_i64]}),
            json!({"exp": 1000, "nbf": "soon"}),
            json!({"exp": 1000, "iat": {}}),
        ] {
            assert_eq!(check_times(&claims(bad), 1, 0), Err(TimeError::Malformed));
        }
    }

    #[test]
    fn a_lifetime_is_a_number_or_the_text_of_one() {
        let read = |value: Value| lifetime(&claims(json!({ "expires_in": value })));
        assert_eq!(lifetime(&Map::new()), Ok(None));
        assert_eq!(read(Value::Null), Ok(None));
        for good in [json!(60), json!("60"), json!(60.9)] {
            assert_eq!(read(good.clone()), Ok(Some(60)), "{good}");
        }
        for bad in [
            json!("soon"),
            json!(""),
            json!([60]),
            json!({}),
            json!(true),
        ] {
            assert_eq!(read(bad.clone()), Err(TimeError::Malformed), "{bad}");
        }
    }

    #[test]
    fn absurd_times_do_not_overflow() {
        let max = claims(json!({"exp": u64::MAX}));
        assert!(check_times(&max, 100, 86_400).is_ok());
        let huge = claims(json!({"exp": 1e300, "nbf": -1e300}));
        assert!(check_times(&huge, 100, 86_400).is_ok());
        let past = claims(json!({"exp": i64::MIN}));
        assert_eq!(check_times(&past, 100, 0), Err(TimeError::Expired));
    }

    #[test]
    fn a_claim_is_placed_where_nothing_is() {
        let before = json!({"a": {"b": 1}, "s": "text"});
        for (path, after) in [
            (vec!["c"], json!({"a": {"b": 1}, "s": "text", "c": "x"})),
            (
                vec!["a", "c"],
                json!({"a": {"b": 1, "c": "x"}, "s": "text"}),
            ),
            (
                vec!["c", "d"],
                json!({"a": {"b": 1}, "s": "text", "c": {"d": "x"}}),
            ),
            (vec!["a", "b"], before.clone()),
            (vec!["s", "b"], before.clone()),
            (vec![], before.clone()),
        ] {
            let mut token = claims(before.clone());
            let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
            place(&mut token, &path, json!("x"));
            assert_eq!(Value::from(token), after, "{path:?}");
        }
    }

    #[test]
    fn a_path_goes_down_objects_and_one_based_arrays() {
        let token = claims(json!({"a": {"b": [{"c": 1}, "x"]}, "d": "s"}));
        let at = |path: &[&str]| {
            let path: Vec<String> = path.iter().map(|s| (*s).to_owned()).collect();
            find(&token, &path).cloned()
        };
        assert_eq!(at(&["a", "b", "1", "c"]), Some(json!(1)));
        assert_eq!(at(&["a", "b", "2"]), Some(json!("x")));
        for none in [
            &["a", "b", "0"][..],
            &["a", "b", "3"],
            &["d", "e"],
            &["z"],
            &[],
        ] {
            assert_eq!(at(none), None);
        }
    }

    #[test]
    fn words_come_from_texts_arrays_and_scalars() {
        assert_eq!(words(&json!("a  b\tc")).as_slice(), ["a", "b", "c"]);
        assert_eq!(
            words(&json!(["a b", 7, null, ["x"]])).as_slice(),
            ["a b", "7"]
        );
        assert_eq!(words(&json!(true)).as_slice(), ["true"]);
        assert!(words(&json!({"a": 1})).is_empty());
    }

    #[test]
    fn issuers_are_compared_but_for_one_slash() {
        assert!(same_issuer("https://a/", "https://a"));
        assert!(!same_issuer("https://a//", "https://a"));
        assert!(!same_issuer("https://a/b", "https://a"));
        assert!(!same_issuer("https://A", "https://a"));
    }
}
