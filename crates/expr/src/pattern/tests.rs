//! Patterns in the dialect of Java.

use super::super::{MAX_TEXT, Scope};
use super::*;

/// Whether the pattern is found; `None` where that exceeds a bound.
fn tried_to_find(pattern: &str, text: &str) -> Option<bool> {
    let pattern = Pattern::new(Operation::Find, pattern).expect("a pattern");
    in_a_run(|run| pattern.is_match(text, run))
}

fn found(pattern: &str, text: &str) -> bool {
    tried_to_find(pattern, text).expect("within bounds")
}

fn in_a_run<T>(work: impl FnOnce(&Run<'_>) -> T) -> Option<T> {
    let (request, ()) = http::Request::new(()).into_parts();
    let run = Run::new(&Scope::new(&request, ([127, 0, 0, 1], 1).into()));
    let done = work(&run);
    (!run.is_over()).then_some(done)
}

#[test]
fn patterns_mean_what_they_mean_in_java() {
    for (pattern, text, expected) in [
        (r"^\d+$", "123", true),
        // Classes are ASCII.
        (r"^\d+$", "١٢٣", false),
        (r"^\w+$", "naïve", false),
        (r"^\w+$", "a_1", true),
        (r"^\s$", "\u{a0}", false),
        (r"^\s$", "\t", true),
        (r"^\S$", "\u{a0}", true),
        (r"^\h$", "\u{a0}", true),
        (r"^\h$", "a", false),
        (r"^\v$", "\n", true),
        (r"^a\Rb$", "a\r\nb", true),
        (r"(?U)^\w+$", "naïve", true),
        (r"^\p{Alpha}+$", "abc", true),
        (r"^\p{Alpha}+$", "ä", false),
        (r"^\P{Alpha}+$", "ä1", true),
        (r"^\p{L}+$", "ä", true),
        (r"^\pL+$", "ä", true),
        (r"^\p{IsAlphabetic}$", "ä", true),
        (r"^\p{IsGreek}$", "α", true),
        (r"^\p{javaLowerCase}$", "ä", true),
        (r"^\p{Punct}$", "$", true),
        (r"^[\p{Upper}\d]+$", "A1", true),
        (r"^[^\d]$", "x", true),
        (r"^[\D]$", "x", true),
        // The dot ends at every line terminator.
        ("^a.b$", "a\rb", false),
        ("^a.b$", "a\u{2028}b", false),
        ("(?s)^a.b$", "a\nb", true),
        ("(?s:a.b)", "a\nb", true),
        ("(?s:a).b", "a\nb", false),
        ("(?d)^a.b$", "a\rb", true),
        // Quoting.
        (r"^\Qa.b\E$", "a.b", true),
        (r"^\Qa.b\E$", "axb", false),
        (r"^\Qa.b", "a.b", true),
        (r"^[\Q]-\E]$", "]", true),
        (r"^\<b\>$", "<b>", true),
        (r"^\/a\-b\_c$", "/a-b_c", true),
        // Escapes of characters.
        (r"^\x41\u0042\x{43}\0104\cA\e$", "ABCD\u{1}\u{1b}", true),
        (r"^\uD83D\uDE00$", "😀", true),
        // Classes in classes.
        ("^[a-z&&[^aeiou]]+$", "xyz", true),
        ("^[a-z&&[^aeiou]]+$", "xaz", false),
        ("^[a-c[x-z]]+$", "axz", true),
        ("^[a-]+$", "a-", true),
        ("^[+--]+$", "+,-", true),
        ("^[]a]+$", "]a", true),
        ("^[a~~b]$", "~", true),
        ("^[[:alpha:]]+$", "alp:", true),
        // Flags.
        ("(?i)^abc$", "ABC", true),
        ("^(?i:a)b$", "Ab", true),
        ("^(?i:a)b$", "AB", false),
        ("(?x) a b # c )\n c", "abc", true),
        ("(?iu-s)^abc$", "ABC", true),
        ("(?m)^b$", "a\nb", true),
        // What looks around or back.
        ("^/(?!admin)", "/user", true),
        ("^/(?!admin)", "/admin", false),
        ("(?<=v)[0-9]", "v1", true),
        ("(?<!v)1", "v1", false),
        (r"^(\w+)-\1$", "ab-ab", true),
        (r"^(\w+)-\1$", "ab-ac", false),
        (r"^(?<n>\w+)-\k<n>$", "ab-ab", true),
        (r"^(a)\12$", "aa2", true),
        ("^(?>a|ab)c$", "abc", false),
        ("^a*+a$", "aaa", false),
        ("^a*+b$", "aab", true),
        ("^a++b$", "aab", true),
        ("^a{1,2}+a$", "aa", false),
        ("^a?+b$", "ab", true),
        (r"a\Z", "a\n", true),
        (r"a\Z", "ab", false),
        (r"^a{2,}?$", "aaa", true),
    ] {
        assert_eq!(found(pattern, text), expected, "{pattern} in {text:?}");
    }
}

#[test]
fn what_java_does_not_have_is_refused() {
    for pattern in [
        "a{",
        "{2}",
        "a{,2}",
        "a{x}",
        "*a",
        "(",
        ")",
        "[",
        "[a",
        "(?",
        "(?P<a>x)",
        "(?#c)",
        "(?(1)a|b)",
        "(?~a)",
        "(*FAIL)",
        r"\",
        r"\y",
        r"\g<1>",
        r"\K",
        r"\X",
        r"\p{",
        r"\p{Nope}",
        r"\p{InGreek}",
        r"\b{g}",
        r"\k",
        r"\u12",
        r"\x{110000}",
        r"\uD800",
        "(?<1a>x)",
        "[b-a]",
        r"[a-\d]",
        "(?<a>x)(?<a>y)",
        r"(?i",
    ] {
        assert!(Pattern::new(Operation::Find, pattern).is_err(), "{pattern}");
    }
}

#[test]
fn a_text_begins_with_the_prefix_of_every_pattern_that_is_found_in_it() {
    for (pattern, whole, prefix) in [
        ("^/home", false, Some("/home")),
        (r"\A/home", false, Some("/home")),
        ("^/home/.*", false, Some("/home/")),
        ("^/homes?", false, Some("/home")),
        ("^/home*", false, Some("/hom")),
        ("^/home+", false, Some("/home")),
        ("^/home{2}", false, Some("/hom")),
        (r"^/a\.b$", false, Some("/a.b")),
        (r"^/a\d", false, Some("/a")),
        ("^/(a|b)", false, Some("/")),
        ("^/a|/b", false, None),
        ("^/a[|]b", false, None),
        ("^/a[](]|/b", false, None),
        ("^/a[^](]|/b", false, None),
        (r"^/a\c[|/b", false, None),
        (r"^/a\c(|/b", false, None),
        ("/home", false, None),
        ("/home", true, Some("/home")),
        ("/a|/b", true, None),
        ("(?i)^/home", false, None),
        ("^(?i)/home", false, None),
        ("^.*", false, None),
        ("^/a(?x)# (\n|b", false, None),
        (r"^/\Qa|b\E", false, None),
    ] {
        assert_eq!(prefix::of(pattern, whole).as_deref(), prefix, "{pattern}");
    }
}

/// Patterns whose naive matching takes time exponential in the text, or a high
/// power of it.
const HOSTILE: &[&str] = &[
    "^(a+)+$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "(.*)*x",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    // With look-arounds and references, so that they do backtrack.
    "^(?=(a+)+$)",
    r"^(a+)+\1$",
    "(?=.*x)y",
    "(?:(?=.*x)a)*z",
    r"(a*)*\1b",
    "^(?!(a+)+b)(a|a)*c",
    r"(?<=a)(a|aa)+\1x",
    r"(.+)\1+\1+y",
];

#[test]
fn hostile_patterns_end_soon_on_texts_made_for_them() {
    let longest = "a".repeat(MAX_TEXT);
    for pattern in HOSTILE {
        let compiled = Pattern::new(Operation::Find, pattern).expect("a pattern");
        for length in [30, 1000, MAX_BACKTRACK_TEXT, MAX_TEXT] {
            let text = &longest[..length];
            in_a_run(|run| compiled.is_match(text, run));
            in_a_run(|run| drop(compiled.groups(Cow::Borrowed(text), run)));
            in_a_run(|run| drop(compiled.split(Cow::Borrowed(text), run)));
        }
    }
}

/// Texts of `a` for which a pattern can't be decided are no match and no
/// mismatch.
#[test]
fn hostile_patterns_do_not_come_to_a_false_result() {
    let text = "a".repeat(40);
    for pattern in HOSTILE {
        let matches = !pattern.contains(['x', 'y', 'z', 'b', 'c', 'Z']);
        let found = tried_to_find(pattern, &text);
        assert!(found.is_none_or(|found| found == matches), "{pattern}");
    }
    assert_eq!(tried_to_find(r"(.+)\1+\1+y", &"a".repeat(1000)), None);
}

#[test]
fn many_matches_do_not_multiply_the_steps_of_a_pattern() {
    let hard = "a".repeat(60);
    let keys: serde_json::Map<_, _> = (0..100)
        .map(|i| (format!("{hard}{i}"), serde_json::Value::Null))
        .collect();
    let pattern = Pattern::new(Operation::Key, r"(a|aa)+\1x").expect("a pattern");
    let tried = std::cell::Cell::new(0);
    let key = in_a_run(|run| {
        keys.keys().any(|key| {
            tried.set(tried.get() + usize::from(!run.is_over()));
            !run.is_over() && pattern.is_key(key, false, run)
        })
    });
    assert_eq!((key, tried.get()), (None, 1));
    // Matches that are found at once may be many.
    let pattern = Pattern::new(Operation::Split, "(?<=,)").expect("a pattern");
    let text = "a,".repeat(900);
    let pieces = in_a_run(|run| pattern.split(Cow::Borrowed(&text), run));
    assert_eq!(pieces.and_then(|pieces| pieces.length()), Some(900));
}

#[test]
fn empty_matches_are_replaced_as_java_replaces_them() {
    for (pattern, text, expected) in [
        ("a*", "aab", "xxbx"),
        ("", "é1", "xéx1x"),
        ("(?=b)", "ab", "axb"),
        ("b*", "abc", "xaxxcx"),
    ] {
        let compiled = Pattern::new(Operation::ReplaceAll, pattern).expect("a pattern");
        let replaced = in_a_run(|run| compiled.replace(text, "x", run));
        assert_eq!(replaced.flatten().as_deref(), Some(expected), "{pattern}");
    }
}

#[test]
fn a_text_too_long_for_backtracking_has_no_result() {
    let fits = format!("{}b", "a".repeat(MAX_BACKTRACK_TEXT - 1));
    assert!(found("(?=b)", &fits));
    assert_eq!(tried_to_find("(?=b)", &format!("a{fits}")), None);
    // Without look-arounds there is no such limit.
    assert!(found("b$", &format!("a{fits}")));
}
