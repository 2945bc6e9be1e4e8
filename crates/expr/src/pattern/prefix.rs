//! What every text that matches a pattern begins with.

/// A literal that a text begins with if `pattern` is found in it (or matches it
/// as a whole); `None` where none is seen. Errs on the side of `None`.
pub(super) fn of(pattern: &str, whole: bool) -> Option<Box<str>> {
    let body = pattern
        .strip_prefix('^')
        .or_else(|| pattern.strip_prefix(r"\A"))
        .or_else(|| whole.then_some(pattern))?;
    if has_alternatives(body) {
        return None;
    }
    let mut prefix = String::new();
    let mut rest = body.chars().peekable();
    while let Some(c) = rest.next() {
        let literal = match c {
            '\\' => rest.next().filter(char::is_ascii_punctuation),
            '^' | '$' | '.' | '[' | ']' | '(' | ')' | '*' | '+' | '?' | '{' | '}' | '|' => None,
            c => Some(c),
        };
        let Some(literal) = literal else { break };
        match rest.peek() {
            // It may be missing.
            Some('*' | '?' | '{') => break,
            Some('+') => {
                prefix.push(literal);
                break;
            }
            _ => prefix.push(literal),
        }
    }
    (!prefix.is_empty()).then(|| prefix.into())
}

/// Whether a `|` stands outside all groups, or may do so.
fn has_alternatives(pattern: &str) -> bool {
    if !pattern.contains('|') {
        return false;
    }
    if pattern.contains(['#', '[']) || pattern.contains(r"\c") {
        // Perhaps in a comment or a class, or behind a `\c`, with brackets that
        // mean nothing.
        return true;
    }
    let mut depth = 0_usize;
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                // What is quoted is not read here.
                Some('Q') | None => return true,
                Some(_) => {}
            },
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}
