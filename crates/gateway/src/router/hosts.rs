//! Hosts of routes and of requests, and server names of handshakes.

use std::net::Ipv6Addr;

use compact_str::CompactString;

/// A name that a request is for: in lower case, without the dot that ends an
/// absolute name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a>(&'a str);

/// Space for a name that has to be rewritten.
pub(super) type Space = Option<CompactString>;

impl<'a> Name<'a> {
    /// Reads `text`, the host of a request without its port.
    pub(super) fn new(text: &'a str, space: &'a mut Space) -> Self {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.starts_with('[') {
            *space = address(text);
        } else if text.bytes().any(|b| b.is_ascii_uppercase()) {
            let mut lower = CompactString::from(text);
            lower.make_ascii_lowercase();
            *space = Some(lower);
        }
        Self(space.as_deref().unwrap_or(text))
    }

    pub(super) fn text(self) -> &'a str {
        self.0
    }

    /// The names that wildcards stand for: for each dot the name from it on
    /// and the name up to it, with the number of dots in either.
    pub(super) fn cuts(self) -> impl Iterator<Item = Cut<'a>> {
        let dots = self.0.bytes().filter(|b| *b == b'.').count();
        let name = self.0;
        // A host has at most 127 labels (RFC 1035 §2.3.4).
        name.match_indices('.')
            .take(127)
            .enumerate()
            .map(move |(i, (at, _))| Cut {
                suffix: &name[at..],
                suffix_dots: dots - i,
                prefix: &name[..=at],
                prefix_dots: i + 1,
            })
    }
}

/// A name, cut at one of its dots.
pub(super) struct Cut<'a> {
    pub(super) suffix: &'a str,
    pub(super) suffix_dots: usize,
    pub(super) prefix: &'a str,
    pub(super) prefix_dots: usize,
}

/// An IPv6 address in brackets, in its one short form.
fn address(text: &str) -> Space {
    let bare = text.strip_prefix('[')?.strip_suffix(']')?;
    let address: Ipv6Addr = bare.parse().ok()?;
    Some(compact_str::format_compact!("[{address}]"))
}

/// Where a wildcard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// No wildcard.
    Exact,
    /// `*.example.com`, kept as `.example.com`.
    Suffix,
    /// `example.*`, kept as `example.`.
    Prefix,
}

/// A host or server name as a route names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HostPattern {
    pub(super) form: Form,
    pub(super) text: CompactString,
    /// The port that the request's must be; 0: any.
    pub(super) port: u16,
}

impl HostPattern {
    pub(super) fn parse(host: &str) -> Self {
        let (name, port) = split_port(host);
        let (form, text) = if let Some(suffix) = name.strip_prefix('*') {
            (Form::Suffix, suffix)
        } else if let Some(prefix) = name.strip_suffix('*') {
            (Form::Prefix, prefix)
        } else {
            (Form::Exact, name)
        };
        let text = match form {
            Form::Prefix => text,
            _ => text.strip_suffix('.').unwrap_or(text),
        };
        let mut text = match text.parse::<Ipv6Addr>() {
            Ok(address) => compact_str::format_compact!("[{address}]"),
            Err(_) => address(text).unwrap_or_else(|| text.into()),
        };
        text.make_ascii_lowercase();
        Self { form, text, port }
    }

    /// Whether `name`, asked for at `port`, is one of those meant.
    pub(super) fn matches(&self, name: Name<'_>, port: u16) -> bool {
        if self.port != 0 && self.port != port {
            return false;
        }
        match self.form {
            Form::Exact => self.text == name.0,
            Form::Suffix => name.0.ends_with(self.text.as_str()),
            Form::Prefix => name.0.starts_with(self.text.as_str()),
        }
    }

    /// How many dots the pattern has: [`Name::cuts`] counts the same.
    pub(super) fn dots(&self) -> usize {
        self.text.bytes().filter(|b| *b == b'.').count()
    }
}

/// `host:port` apart; the colons of a bare IPv6 address are no port.
fn split_port(host: &str) -> (&str, u16) {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
            match port.parse::<u16>() {
                Ok(port) => (name, port),
                Err(_) => (host, 0),
            }
        }
        _ => (host, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str, port: u16) -> bool {
        HostPattern::parse(pattern).matches(Name::new(host, &mut None), port)
    }

    #[test]
    fn a_name_is_the_same_in_any_case_and_with_a_final_dot() {
        for pattern in ["a.example", "A.Example", "a.example."] {
            assert!(matches(pattern, "A.EXAMPLE.", 80), "{pattern}");
        }
        assert!(matches("*.Example.", "x.example", 80));
        assert!(!matches("a.example", "a.example..", 80));
    }

    #[test]
    fn an_ipv6_host_is_known_in_every_spelling() {
        for pattern in ["::1", "[::1]", "[0:0:0:0:0:0:0:1]", "[::1]:8000"] {
            assert!(matches(pattern, "[::0:1]", 8000), "{pattern}");
        }
        assert!(!matches("[::1]:8000", "[::1]", 80));
    }

    #[test]
    fn wildcards_take_ports_too() {
        assert!(matches("a.*:81", "a.example", 81));
        assert!(!matches("a.*:81", "a.example", 80));
        assert!(matches("*.a:81", "x.a", 81));
        assert!(!matches("*.a:81", "x.a", 82));
        assert!(!matches("a.*", "a", 80), "the label must be there");
    }

    #[test]
    fn cuts_are_what_wildcards_stand_for() {
        let mut space = None;
        let cuts: Vec<_> = Name::new("a.b.c", &mut space)
            .cuts()
            .map(|c| (c.suffix, c.suffix_dots, c.prefix, c.prefix_dots))
            .collect();
        assert_eq!(cuts, [(".b.c", 2, "a.", 1), (".c", 1, "a.b.", 2)]);
    }
}
