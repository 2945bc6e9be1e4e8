//! What a browser is called by people.

/// What stands in the names that browsers give themselves, the more telling
/// first.
const BROWSERS: [(&str, &str); 8] = [
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("CriOS/", "Chrome"),
    ("Safari/", "Safari"),
];

const SYSTEMS: [(&str, &str); 7] = [
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
];

/// Longest name that is shown as it is, in characters.
const SHOWN_MAX: usize = 60;

/// The name of the browser or program that calls itself `agent`.
pub(super) fn name(agent: &str) -> String {
    let of = |known: &[(&str, &'static str)]| {
        let found = known.iter().find(|(part, _)| agent.contains(part));
        found.map(|(_, name)| *name)
    };
    match (of(&BROWSERS), of(&SYSTEMS)) {
        (Some(browser), Some(system)) => format!("{browser}, {system}"),
        (Some(browser), None) => browser.to_owned(),
        _ => agent.chars().take(SHOWN_MAX).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_called_what_people_call_them() {
        for (agent, name_of) in [
            (
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
                 Chrome/140.0.0.0 Safari/537.36",
                "Chrome, Linux",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:143.0) Gecko/20100101 Firefox/143.0",
                "Firefox, Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 \
                 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
                "Safari, iPhone",
            ),
            ("curl/8.14.1", "curl/8.14.1"),
            ("", ""),
        ] {
            assert_eq!(name(agent), name_of);
        }
        assert_eq!(name(&"x".repeat(500)).len(), SHOWN_MAX);
    }
}
