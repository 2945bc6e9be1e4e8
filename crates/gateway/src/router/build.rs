//! From routes to a router.

use std::borrow::Cow;
use std::collections::HashMap;

use ahash::RandomState;
use http::{HeaderName, Method};
use smallvec::SmallVec;

use super::entry::{Entry, Extra, HeaderRule, NONE, Span, Text, index, known_method, method_mask};
use super::hosts::HostPattern;
use super::path;
use super::pattern::{self, Pattern};
use super::precedence::Precedence;
use super::table::Hosts;
use super::{RouteError, Router};
use doorward_core::model::route::Route;

/// An entry before it has its place in the order.
struct Draft<'a> {
    precedence: Precedence,
    route: &'a Route,
    entry: Entry,
}

/// What is gathered while routes are read.
struct Builder<'a, 'p> {
    router: Router,
    previous: &'p [&'p Router],
    drafts: Vec<Draft<'a>>,
    /// Texts that are kept already.
    texts: HashMap<Cow<'a, str>, Text, RandomState>,
    /// Names of headers, and where they are kept.
    names: HashMap<HeaderName, u32, RandomState>,
}

pub(super) fn build<'a>(
    routes: impl Iterator<Item = (usize, &'a Route)>,
    previous: &[&Router],
) -> Result<Router, RouteError> {
    let mut builder = Builder {
        router: Router::default(),
        previous,
        drafts: Vec::new(),
        texts: HashMap::default(),
        names: HashMap::default(),
    };
    for (position, route) in routes {
        builder
            .read(position, route)
            .map_err(|(field, message)| RouteError {
                route: position,
                field,
                message,
            })?;
    }
    Ok(builder.finish())
}

/// The field at fault, and what is wrong with it.
type Wrong = (String, String);

impl<'a> Builder<'a, '_> {
    /// Adds the entries of `route`: one for each path, or a single one.
    fn read(&mut self, position: usize, route: &'a Route) -> Result<(), Wrong> {
        let extra = self.extra(route)?;
        let extra = self.router.entries.add_extra(extra);
        let methods = method_mask(route.methods.as_deref().unwrap_or_default());
        let paths = route.paths.as_deref().unwrap_or_default();
        for at in 0..paths.len().max(1) {
            let path = paths.get(at).map(String::as_str);
            let (text, pattern) = match path {
                Some(path) => self
                    .path(path)
                    .map_err(|message| (format!("paths.{}", at + 1), message))?,
                None => (Text::default(), NONE),
            };
            let entry = Entry {
                route: index(position),
                text,
                pattern,
                extra,
                methods,
                path: u16::try_from(at).unwrap_or(u16::MAX),
            };
            self.drafts.push(Draft {
                precedence: Precedence::of(route, at),
                route,
                entry,
            });
        }
        Ok(())
    }

    /// The literal text of a path, and its expression if it is one.
    fn path(&mut self, path: &'a str) -> Result<(Text, u32), String> {
        let Some(source) = path.strip_prefix('~') else {
            return Ok((self.text(path::encoded(path)), NONE));
        };
        let pattern = self.pattern(source, &pattern::of_path(source))?;
        let prefix = pattern.literals().prefix;
        let pattern = self.router.entries.add_pattern(pattern);
        Ok((self.text(Cow::Owned(prefix)), pattern))
    }

    fn text(&mut self, text: Cow<'a, str>) -> Text {
        let texts = &mut self.router.entries.texts;
        *self.texts.entry(text).or_insert_with_key(|text| {
            let start = index(texts.len());
            texts.push_str(text);
            Text {
                start,
                len: index(text.len()),
            }
        })
    }

    /// The compiled form of `source`, from a previous router if one had it.
    #[expect(
        clippy::mutable_key_type,
        reason = "patterns are hashed and compared by their text"
    )]
    fn pattern(&mut self, shown: &str, source: &str) -> Result<Pattern, String> {
        let known = &mut self.router.patterns;
        if let Some(pattern) = known.get(source) {
            return Ok(pattern.clone());
        }
        let kept = self.previous.iter().find_map(|p| p.patterns.get(source));
        let pattern = match kept {
            Some(pattern) => pattern.clone(),
            None => {
                pattern::check(shown)?;
                Pattern::new(source)
            }
        };
        known.insert(pattern.clone());
        Ok(pattern)
    }

    fn extra(&mut self, route: &Route) -> Result<Extra, Wrong> {
        let entries = &mut self.router.entries;
        let methods = entries.methods.len();
        let named = route.methods.iter().flatten();
        entries.methods.extend(
            named
                .filter(|method| known_method(method.as_bytes()) == 0)
                .filter_map(|method| Method::from_bytes(method.as_bytes()).ok()),
        );
        let snis = entries.snis.len();
        let named = route.snis.iter().flatten();
        entries
            .snis
            .extend(named.map(|sni| HostPattern::parse(sni)));
        let (methods, snis) = (
            Span::since(methods, &entries.methods),
            Span::since(snis, &entries.snis),
        );
        let headers = entries.headers.len();
        for (name, values) in route.headers.iter().flatten() {
            let rule = self
                .header(name, values)
                .map_err(|message| (format!("headers.{name}"), message))?;
            self.router.entries.headers.push(rule);
        }
        Ok(Extra {
            methods,
            headers: Span::since(headers, &self.router.entries.headers),
            snis,
        })
    }

    fn header(&mut self, name: &str, values: &[String]) -> Result<HeaderRule, String> {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| "invalid header name".to_owned())?;
        let names = &mut self.router.entries.names;
        let name = *self.names.entry(parsed).or_insert_with_key(|name| {
            names.push(name.clone());
            index(names.len() - 1)
        });
        let mut rule = HeaderRule {
            name,
            pattern: NONE,
            values: Span::default(),
        };
        if let [one] = values
            && let Some(shown) = one.strip_prefix("~*")
        {
            let pattern = self.pattern(shown, &pattern::of_header(shown))?;
            rule.pattern = self.router.entries.add_pattern(pattern);
            return Ok(rule);
        }
        let mut lower: Vec<String> = values.iter().map(|v| v.to_ascii_lowercase()).collect();
        lower.sort_unstable();
        lower.dedup();
        let start = self.router.entries.values.len();
        for value in lower {
            let text = self.text(Cow::Owned(value));
            self.router.entries.values.push(text);
        }
        rule.values = Span::since(start, &self.router.entries.values);
        Ok(rule)
    }

    fn finish(mut self) -> Router {
        let drafts = &mut self.drafts;
        drafts.sort_unstable_by_key(|draft| std::cmp::Reverse(draft.precedence));
        let mut router = self.router;
        let mut hosts: HashMap<HostPattern, SmallVec<[u32; 4]>, RandomState> = HashMap::default();
        let mut any = Vec::new();
        router.entries.all = drafts.iter().map(|draft| draft.entry).collect();
        for (rank, draft) in drafts.iter().enumerate() {
            let named = draft.route.hosts.as_deref().unwrap_or_default();
            if named.is_empty() {
                any.push(index(rank));
            }
            for host in named {
                let ranks = hosts.entry(HostPattern::parse(host)).or_default();
                if ranks.last() != Some(&index(rank)) {
                    ranks.push(index(rank));
                }
            }
        }
        router.entries.shrink();
        let mut table = Hosts::with_capacity(hosts.len());
        for (host, ranks) in &hosts {
            let leaf = router.index.by_path(&router.entries, ranks);
            table.put(&router.index, host, leaf);
        }
        router.any = router.index.by_path(&router.entries, &any);
        router.hosts = table;
        router.index.shrink();
        router
    }
}
