//! What a provider says when it refuses (RFC 6749 §4.1.2.1, §5.2).

/// Most characters of a code.
const CODE_MAX: usize = 64;
/// Most characters of a description.
const DESCRIPTION_MAX: usize = 300;

/// A provider's `error` and `error_description`, as they may stand in a log or be
/// shown: printable, without quotes, and not long. Nobody vouches for what they say.
pub fn describe(code: &str, description: Option<&str>) -> String {
    let code = printable(code, CODE_MAX);
    match description.map(|text| printable(text, DESCRIPTION_MAX)) {
        Some(text) if !text.is_empty() => format!("{code}: {text}"),
        _ => code,
    }
}

fn printable(text: &str, most: usize) -> String {
    let is_legal = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    let all = text.chars().take(most);
    all.map(|c| if is_legal(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_says_can_forge_no_line_and_is_not_long() {
        assert_eq!(describe("denied", None), "denied");
        assert_eq!(describe("denied", Some("")), "denied");
        assert_eq!(describe("a\nb", Some("\u{202e}\"x\\")), "a?b: ??x?");
        let long = describe(&"a".repeat(1000), Some(&"b".repeat(1000)));
        assert_eq!(long.len(), CODE_MAX + 2 + DESCRIPTION_MAX);
    }
}
