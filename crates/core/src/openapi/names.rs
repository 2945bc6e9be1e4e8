//! Names in a description: open parts of paths, and operations.

/// The path as a template whose open parts have names, each another one. A part
/// `{*}` stands for all that follow.
pub(super) fn template(path: &str) -> String {
    let mut seen: Vec<String> = Vec::new();
    let parts = path.split('/').map(|part| match open_part(part) {
        None => part.to_owned(),
        Some(name) => {
            let name = if name == "*" { "path" } else { name };
            let again = seen.iter().filter(|known| *known == name).count();
            seen.push(name.to_owned());
            match again {
                0 => format!("{{{name}}}"),
                again => format!("{{{name}{}}}", again + 1),
            }
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The names of the open parts of a path.
pub fn open_parts(path: &str) -> Vec<&str> {
    path.split('/').filter_map(open_part).collect()
}

fn open_part(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// `getServiceRoutes` for `GET /services/{services}/routes`: words before an open
/// part are of one thing, others of many. Where a word has no form for one, the
/// open part is named; `in_full` names all of them.
pub(super) fn operation_id(method: &str, path: &str, in_full: bool) -> String {
    let mut id = method.to_ascii_lowercase();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        id.push_str("Root");
    }
    let mut names_one = true;
    for (at, part) in parts.iter().enumerate() {
        if let Some(name) = open_part(part) {
            if names_one || in_full {
                id.push_str("By");
                id.push_str(&camel(name));
            }
            names_one = true;
            continue;
        }
        let is_followed = parts.get(at + 1).is_some_and(|next| next.starts_with('{'));
        let one = singular(part).filter(|_| is_followed);
        names_one = one.is_none();
        id.push_str(&camel(&one.unwrap_or_else(|| (*part).to_owned())));
    }
    id
}

fn singular(word: &str) -> Option<String> {
    if let Some(stem) = word.strip_suffix("ies") {
        return Some(format!("{stem}y"));
    }
    let stem = word.strip_suffix('s')?;
    (!stem.ends_with('s')).then(|| stem.to_owned())
}

fn camel(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    words.map(capital).collect()
}
