//! Names of users: which there may be, and when two of them are the same.
//!
//! Two spellings that people can't tell apart must never be two accounts.
//! [`key`] is what is unique, looked up and counted against; [`check`] refuses
//! what could pretend to be another name whatever its key.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::fold;

/// Longest name, in bytes.
pub const MAX: usize = 255;

/// Longest name once it is normalised, in bytes: a character may stand for
/// eighteen, and indexes of databases take no text of any length.
const FORM_MAX: usize = 4 * MAX;

/// Why there can't be a user of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty or longer than [`MAX`].
    #[error("must have from 1 to 255 bytes")]
    Length,
    /// It begins or ends with a blank, also once it is normalised.
    #[error("must have no blanks at its ends")]
    Blanks,
    /// It has characters that nobody sees, or that change how others are seen.
    #[error("must have no control, formatting, private or undefined characters")]
    Unseen,
    /// It mixes alphabets whose letters look alike.
    #[error("must not mix Latin letters with those of a script that look like them")]
    Mixed,
}

/// Checks the name of a new user, or the new name of one.
///
/// # Errors
/// What is wrong with it.
pub fn check(name: &str) -> Result<(), NameError> {
    if name.is_empty() || name.len() > MAX {
        return Err(NameError::Length);
    }
    if name.trim() != name {
        return Err(NameError::Blanks);
    }
    if name.is_ascii() {
        return if name.bytes().any(|byte| byte.is_ascii_control()) {
            Err(NameError::Unseen)
        } else {
            Ok(())
        };
    }
    let form = form(name);
    if form.len() > FORM_MAX {
        return Err(NameError::Length);
    }
    if form.trim() != form {
        return Err(NameError::Blanks);
    }
    let first_combines = name.chars().next().is_some_and(is_combining_mark);
    if first_combines || name.chars().chain(form.chars()).any(is_unseen) {
        return Err(NameError::Unseen);
    }
    if is_mixed(&form) {
        Err(NameError::Mixed)
    } else {
        Ok(())
    }
}

/// What is unique in a realm, and what a name is looked up by: the name without
/// differences of case, width and composition (NFKC, as PRECIS maps user names,
/// RFC 8265 §3.3), and in Latin letters if it consists of others that look like
/// them.
pub fn key(name: &str) -> String {
    let form = form(name);
    if form.is_ascii() {
        return form;
    }
    let latin = form
        .chars()
        .map(|c| if c.is_ascii() { Some(c) } else { latin_twin(c) });
    latin.collect::<Option<String>>().unwrap_or(form)
}

/// A name, or a part of one, without differences of case, width and composition.
pub fn form(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // What folding takes apart must be put together again, and the other way
    // round; it settles after two rounds.
    let mut form: String = text.to_owned();
    for _ in 0..4 {
        let next: String = fold(&form.nfkc().collect::<String>()).nfkc().collect();
        if next == form {
            break;
        }
        form = next;
    }
    form
}

/// Controls, formatting (bidirectional overrides, joiners, tags), fillers,
/// variation selectors, private use, and what is no character.
pub fn is_unseen(c: char) -> bool {
    let point = u32::from(c);
    c.is_control()
        || matches!(
            point,
            0xad | 0x34f
                | 0x61c
                | 0x600..=0x605
                | 0x6dd
                | 0x70f
                | 0x8e2
                | 0x115f..=0x1160
                | 0x17b4..=0x17b5
                | 0x180b..=0x180f
                | 0x200b..=0x200f
                | 0x2028..=0x202e
                | 0x2060..=0x206f
                | 0x2800
                | 0x3164
                | 0xe000..=0xf8ff
                | 0xfdd0..=0xfdef
                | 0xfe00..=0xfe0f
                | 0xfeff
                | 0xffa0
                | 0xfff0..=0xffff
                | 0x1d173..=0x1d17a
                | 0xe0000..
        )
        || point & 0xfffe == 0xfffe
}

/// Scripts with letters that look like those of another one here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    /// Armenian, Cherokee, Coptic, Lisu, Deseret.
    Other(u8),
}

fn script(c: char) -> Option<Script> {
    Some(match u32::from(c) {
        0x41..=0x5a | 0x61..=0x7a | 0xaa | 0xba => Script::Latin,
        0xd7 | 0xf7 => return None,
        0xc0..=0x2af | 0x1d00..=0x1d25 | 0x1e00..=0x1eff => Script::Latin,
        0x2c60..=0x2c7f | 0xa722..=0xa7ff | 0xab30..=0xab64 => Script::Latin,
        0x370..=0x3ff | 0x1f00..=0x1fff => Script::Greek,
        0x400..=0x52f | 0x1c80..=0x1c8f | 0x2de0..=0x2dff | 0xa640..=0xa69f => Script::Cyrillic,
        0x530..=0x58f => Script::Other(0),
        0x13a0..=0x13ff | 0xab70..=0xabbf => Script::Other(1),
        0x2c80..=0x2cff => Script::Other(2),
        0xa4d0..=0xa4ff => Script::Other(3),
        0x10400..=0x1044f => Script::Other(4),
        _ => return None,
    })
}

fn is_mixed(form: &str) -> bool {
    let mut scripts = form.chars().filter_map(script);
    let first = scripts.next();
    scripts.any(|next| Some(next) != first)
}

/// The Latin letter that looks like this one of another alphabet.
fn latin_twin(c: char) -> Option<char> {
    Some(match c {
        'а' | 'α' | 'ɑ' => 'a',
        'с' | 'ϲ' => 'c',
        'ԁ' => 'd',
        'е' => 'e',
        'ɡ' => 'g',
        'һ' | 'հ' => 'h',
        'і' | 'ι' | 'ɩ' => 'i',
        'ј' | 'ϳ' => 'j',
        'ӏ' => 'l',
        'ո' => 'n',
        'о' | 'ο' | 'օ' => 'o',
        'р' | 'ρ' => 'p',
        'ԛ' => 'q',
        'ѕ' => 's',
        'υ' | 'ս' => 'u',
        'ѵ' | 'ν' => 'v',
        'ԝ' => 'w',
        'х' => 'x',
        'у' => 'y',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_have_one_key() {
        for (one, other) in [
            ("Demo", "dEMO"),
            ("jos\u{e9}", "JOSE\u{301}"),
            ("ａｄｍｉｎ", "admin"),
            ("\u{fb01}nn", "finn"),
            ("\u{212a}im", "kim"),
            ("STRASSE", "straße"),
            ("ΟΔΟΣ", "οδος"),
            // Cyrillic throughout.
            ("сорр", "copp"),
            ("ѕсоре", "scope"),
        ] {
            assert_eq!(key(one), key(other), "{one} {other}");
        }
        assert_ne!(key("demo"), key("demo2"));
        assert_ne!(key("дарья"), key("daria"));
        assert_eq!(key("анна"), "анна");
    }

    #[test]
    fn look_alike_names_in_two_alphabets_are_refused() {
        for name in ["\u{430}dmin", "admi\u{578}", "p\u{3b1}ul", "дaрья"] {
            assert_eq!(check(name), Err(NameError::Mixed), "{name}");
        }
        for name in [
            "дарья",
            "Ελένη",
            "josé",
            "田中 tanaka",
            "anna-maria",
            "a.b@example.com",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn unseen_characters_are_refused() {
        for name in [
            "a\u{0}b",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}b",
            "a\u{ad}b",
            "\u{301}a",
            "a\u{e000}",
            "a\u{feff}",
            "a\u{2028}b",
            "a\u{e0061}",
            "a\u{fe0f}",
        ] {
            assert_eq!(check(name), Err(NameError::Unseen), "{name:?}");
        }
        for name in [
            " a",
            "a ",
            "a\u{3000}",
            "\u{a0}a",
            "a\u{b4}\u{b4}x \u{2003}",
        ] {
            assert_eq!(check(name), Err(NameError::Blanks), "{name:?}");
        }
        assert_eq!(check(""), Err(NameError::Length));
        assert_eq!(check(&"x".repeat(256)), Err(NameError::Length));
    }

    proptest::proptest! {
        #[test]
        fn the_key_of_a_key_is_itself(name in "\\PC{0,40}") {
            let once = key(&name);
            proptest::prop_assert_eq!(key(&once), once);
        }
    }
}
