//! Text of others where people read it: characters that change how the text
//! around them is shown are taken out, or written as escapes.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character embeds, overrides or isolates the direction of the text
/// behind it (Unicode Standard Annex 9 §2).
fn turns_direction(letter: char) -> bool {
    matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character is no letter of a line: it steers a terminal, the line's
/// breaks or its direction.
fn steers(letter: char) -> bool {
    let marks = matches!(
        letter,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
    );
    marks || turns_direction(letter) || letter.is_control()
}

/// `text` without the characters that change the direction of what follows:
/// for pages and mails.
pub fn without_overrides(text: &str) -> Cow<'_, str> {
    if text.contains(turns_direction) {
        text.replace(turns_direction, "").into()
    } else {
        text.into()
    }
}

/// `text` with its steering characters as `\u` escapes, apart from line breaks
/// and tabs: for terminals. JSON still says the same then.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let is_escaped = |letter: char| steers(letter) && !matches!(letter, '\n' | '\t');
    if !text.contains(is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_escaped(letter) {
            // Writing to a string can't fail; all of them have four digits.
            let _ = write!(shown, "\\u{:04x}", u32::from(letter));
        } else {
            shown.push(letter);
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_that_turns_the_direction_is_taken_out() {
        let mut turning = 0;
        for letter in ('\0'..=char::MAX).filter(|letter| turns_direction(*letter)) {
            turning += 1;
            assert_eq!(without_overrides(&format!("a{letter}b")), "ab");
        }
        assert_eq!(turning, 9);
        assert_eq!(without_overrides("بنك الاختبار"), "بنك الاختبار");
    }

    #[test]
    fn a_terminal_gets_escapes_and_json_says_the_same() {
        let hostile = "Bank\u{202e}gpj.exe\u{1b}[2J\u{200f}\u{2028}\u{9b}";
        let shown = escaped(hostile);
        assert_eq!(shown, "Bank\\u202egpj.exe\\u001b[2J\\u200f\\u2028\\u009b");
        let json = serde_json::json!({ "name": hostile }).to_string();
        let shown: serde_json::Value = serde_json::from_str(&escaped(&json)).expect("JSON");
        assert_eq!(shown["name"], hostile);
        assert_eq!(escaped("Laden\tGrün\n"), "Laden\tGrün\n");
    }
}
