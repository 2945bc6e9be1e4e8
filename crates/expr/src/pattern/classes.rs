//! Escapes of Java's patterns: sets of characters, and single characters.

use super::dialect::Translator;

/// Sets that an escape of one letter stands for: letter, content of the class,
/// what Unicode's class is called.
const SETS: &[(char, &str, &str)] = &[
    ('d', "0-9", r"\d"),
    ('w', "0-9A-Za-z_", r"\w"),
    ('s', r"\t\n\x0B\x0C\r\x20", r"\s"),
    ('h', HORIZONTAL, ""),
    ('v', r"\n\x0B\x0C\r\x{85}\x{2028}\x{2029}", ""),
];

const HORIZONTAL: &str = r"\t\x20\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";

/// Properties that are ASCII in Java and something else, or nothing, here.
const PROPERTIES: &[(&str, &str)] = &[
    ("ASCII", r"\x00-\x7F"),
    ("Alnum", "0-9A-Za-z"),
    ("Alpha", "A-Za-z"),
    ("Blank", r"\t\x20"),
    ("Cntrl", r"\x00-\x1F\x7F"),
    ("Digit", "0-9"),
    ("Graph", r"\x21-\x7E"),
    ("Lower", "a-z"),
    ("Print", r"\x20-\x7E"),
    ("Punct", r"\x21-\x2F\x3A-\x40\x5B-\x60\x7B-\x7E"),
    ("Space", r"\t\n\x0B\x0C\r\x20"),
    ("Upper", "A-Z"),
    ("XDigit", "0-9A-Fa-f"),
    ("javaLowerCase", r"\p{Lowercase}"),
    ("javaUpperCase", r"\p{Uppercase}"),
    ("javaAlphabetic", r"\p{Alphabetic}"),
    (
        "javaWhitespace",
        r"\t-\r\x1C-\x20\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200A}\x{2028}\x{2029}\x{205F}\x{3000}",
    ),
];

/// The set of characters that the escape `\c` stands for, as a class; `None`
/// where it stands for no set.
pub(super) fn set(c: char, translator: &mut Translator<'_>) -> Result<Option<String>, String> {
    if matches!(c, 'p' | 'P') {
        return property(c == 'P', translator).map(Some);
    }
    let lower = c.to_ascii_lowercase();
    let Some((_, inside, unicode)) = SETS.iter().find(|(letter, ..)| *letter == lower) else {
        return Ok(None);
    };
    if translator.unicode() && !unicode.is_empty() {
        return Ok(Some(format!("\\{c}")));
    }
    let not = if c == lower { "" } else { "^" };
    Ok(Some(format!("[{not}{inside}]")))
}

/// `\pL`, `\p{Alpha}`, `\p{IsGreek}`, after the letter.
fn property(negated: bool, translator: &mut Translator<'_>) -> Result<String, String> {
    let mut name = String::new();
    match translator.rest.next() {
        Some('{') => loop {
            match translator.rest.next() {
                Some('}') => break,
                Some(c) if c.is_ascii_alphanumeric() || matches!(c, '_' | '=' | '-' | ' ') => {
                    name.push(c);
                }
                _ => return Err("`\\p{` is not closed".to_owned()),
            }
        },
        Some(c) if c.is_ascii_alphabetic() => name.push(c),
        _ => return Err("`\\p` needs the name of a property".to_owned()),
    }
    let not = if negated { "^" } else { "" };
    if let Some((_, inside)) = PROPERTIES.iter().find(|(known, _)| *known == name) {
        return Ok(format!("[{not}{inside}]"));
    }
    if name.starts_with("In") || name.starts_with("blk=") || name.starts_with("block=") {
        return Err(format!(
            "`\\p{{{name}}}`: blocks of Unicode are not supported"
        ));
    }
    if name.is_empty() || name.starts_with("java") {
        return Err(format!("there is no property `{name}`"));
    }
    let letter = if negated { 'P' } else { 'p' };
    Ok(format!("\\{letter}{{{name}}}"))
}

/// The character that the escape `\c` stands for.
pub(super) fn character(c: char, translator: &mut Translator<'_>) -> Result<char, String> {
    let found = match c {
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'f' => '\u{c}',
        'a' => '\u{7}',
        'e' => '\u{1b}',
        '0' => octal(translator)?,
        'x' if translator.take('{') => {
            let mut digits = String::new();
            while let Some(digit) = translator.rest.next_if(char::is_ascii_hexdigit) {
                digits.push(digit);
            }
            if !translator.take('}') {
                return Err("`\\x{` is not closed".to_owned());
            }
            of_number(u32::from_str_radix(&digits, 16).ok())?
        }
        'x' => of_number(hex(translator, 2))?,
        'u' => utf16(translator)?,
        'c' => match translator.rest.next() {
            Some(control) if control.is_ascii() => of_number(Some(u32::from(control) ^ 64))?,
            _ => return Err("`\\c` needs a control character".to_owned()),
        },
        c if c.is_ascii_alphanumeric() => return Err(format!("`\\{c}` is not an escape")),
        c => c,
    };
    Ok(found)
}

fn of_number(number: Option<u32>) -> Result<char, String> {
    number
        .and_then(char::from_u32)
        .ok_or_else(|| "an escape names no character".to_owned())
}

/// Exactly `count` hexadecimal digits.
fn hex(translator: &mut Translator<'_>, count: usize) -> Option<u32> {
    (0..count).try_fold(0, |number, _| {
        let digit = translator.rest.next_if(char::is_ascii_hexdigit)?;
        Some(number * 16 + digit.to_digit(16)?)
    })
}

/// Up to three octal digits, at most 0377.
fn octal(translator: &mut Translator<'_>) -> Result<char, String> {
    let mut number = None;
    while let Some(digit) = translator.rest.peek().and_then(|c| c.to_digit(8)) {
        let longer = number.unwrap_or(0) * 8 + digit;
        if longer > 0o377 {
            break;
        }
        number = Some(longer);
        translator.rest.next();
    }
    of_number(number)
}

/// `\uXXXX`, two of them for a character beyond the first plane.
fn utf16(translator: &mut Translator<'_>) -> Result<char, String> {
    let high = hex(translator, 4);
    let Some(high) = high.filter(|unit| (0xd800..0xdc00).contains(unit)) else {
        return of_number(high);
    };
    let low = if translator.take('\\') && translator.take('u') {
        hex(translator, 4).filter(|unit| (0xdc00..0xe000).contains(unit))
    } else {
        None
    };
    of_number(low.map(|low| 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)))
}

/// Writes `c` as itself, inside a class or outside.
pub(super) fn push_literal(out: &mut String, c: char) {
    if c.is_alphanumeric() || c == '_' || c == '/' {
        out.push(c);
    } else {
        out.push_str(&format!("\\x{{{:X}}}", u32::from(c)));
    }
}
