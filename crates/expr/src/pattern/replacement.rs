//! What matches are replaced with.

use super::{Run, Span};

/// Writes `with` behind `out`: `$1` and `${name}` are groups of the match, a
/// backslash takes the next character as it is. `None` where it is malformed or
/// names a group that the pattern does not have.
pub(super) fn write(
    with: &str,
    text: &str,
    groups: &[Option<Span>],
    names: &[Option<&str>],
    out: &mut String,
    run: &Run<'_>,
) -> Option<()> {
    let mut rest = with.chars().peekable();
    while let Some(c) = rest.next() {
        let number = match c {
            '\\' => {
                out.push(rest.next()?);
                continue;
            }
            '$' if rest.next_if_eq(&'{').is_some() => {
                let mut name = String::new();
                loop {
                    match rest.next()? {
                        '}' => break,
                        c => name.push(c),
                    }
                }
                names.iter().position(|known| *known == Some(&*name))?
            }
            '$' => {
                let mut number = rest.next()?.to_digit(10)? as usize;
                while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                    let longer = number * 10 + digit as usize;
                    if longer >= groups.len() {
                        break;
                    }
                    number = longer;
                    rest.next();
                }
                number
            }
            c => {
                out.push(c);
                continue;
            }
        };
        // A group that took no part in the match is the empty text.
        if let Some((start, end)) = *groups.get(number)? {
            out.push_str(text.get(start..end)?);
        }
        run.allows(out.len())?;
    }
    Some(())
}
