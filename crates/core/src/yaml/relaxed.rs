//! JSON as people write it by hand: comments, texts over several lines, single
//! quotes. Some programs read it, so there are files of it.

/// The same document in strict JSON, each value on the line it was on.
pub(super) fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim_start_matches('\u{feff}');
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '"' | '\'' => quoted(rest, first, &mut out),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => {
                let end = rest[2..].find("*/").map_or(rest.len(), |end| end + 4);
                out.extend(rest[..end].chars().filter(|c| *c == '\n'));
                end
            }
            // Comments of the shell's kind stand on lines of their own.
            '#' => rest.find('\n').unwrap_or(rest.len()),
            other => {
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

/// Writes the quoted text that `rest` begins with; how long it is.
fn quoted(rest: &str, quote: char, out: &mut String) -> usize {
    let mut breaks = 0;
    let mut escaped = false;
    out.push('"');
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
            // Strict JSON does not know an escaped single quote.
            if c == '\'' {
                out.pop();
            }
            out.push(c);
            continue;
        }
        match c {
            '\\' => {
                escaped = true;
                out.push(c);
            }
            '"' if quote == '\'' => out.push_str("\\\""),
            '\n' => {
                breaks += 1;
                out.push_str("\\n");
            }
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('"');
                // What follows stays on its line.
                out.extend(std::iter::repeat_n('\n', breaks));
                return at + 1;
            }
            c => out.push(c),
        }
    }
    // Not closed: the parser says so.
    rest.len()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(text: &str) -> Value {
        serde_json::from_str(&strict(text)).expect("JSON")
    }

    #[test]
    fn comments_and_other_quotes_become_strict_json() {
        let text = "// one\n{ /* two\n */ 'a': 'it\\'s \"b\"', # three\n \"c\": \"x // y\\\"\" }";
        assert_eq!(value(text), json!({"a": "it's \"b\"", "c": "x // y\""}));
    }

    #[test]
    fn a_text_over_several_lines_moves_nothing_to_another_line() {
        let strict = strict("{\"a\": \"1\n2\n3\",\n\"b\": x}");
        let error = serde_json::from_str::<Value>(&strict).expect_err("x");
        assert_eq!(error.line(), 4);
    }

    #[test]
    fn strict_json_stays_as_it_is() {
        let text = "{\"a\": [1, \"\\u00e9\\\\\", {\"b\": \"http://x/#y\"}]}\n";
        assert_eq!(strict(text), text);
    }

    #[test]
    fn what_is_not_closed_stays_wrong() {
        for text in ["{\"a", "{'a", "/*", "{\"a\\", "'", "//"] {
            assert!(serde_json::from_str::<Value>(&strict(text)).is_err());
        }
    }
}
