//! `Accept-API-Version`: which version of an endpoint answers.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::config::{ApiConfig, DefaultVersion};
use super::error::JsonError;

/// A version as requested or offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The version that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SelectedVersion {
    pub(super) resource: Version,
    /// Whether the client is told that it should have named one.
    pub(super) warns: bool,
}

/// Why no version answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum VersionError {
    #[error("Version string is in an invalid format: {0}")]
    Format(String),
    #[error("Unsupported major version: {0}")]
    Major(u32),
    #[error("Unsupported minor version: {}.{}", .0.major, .0.minor)]
    Minor(Version),
    #[error("No requested version specified and behavior set to NONE.")]
    None,
    #[error("Accept-API-Version: Requested version \"{}.{}\" does not match any routes.", .0.major, .0.minor)]
    Resource(Version),
}

impl SelectedVersion {
    /// Names the version of the resource in the response, and it alone, as the
    /// imitated service does; `agent` signs the warning.
    pub(super) fn stamp(self, response: &mut Response, agent: &str) {
        let Version { major, minor } = self.resource;
        let version = format!("resource={major}.{minor}");
        let mut set = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        };
        set("content-api-version", &version);
        if self.warns {
            let text = "Accept-API-Version should be included in the request.";
            set("warning", &format!("100 {agent} \"{text}\""));
        }
    }
}

impl From<VersionError> for JsonError {
    fn from(error: VersionError) -> Self {
        let status = match error {
            VersionError::Resource(_) => StatusCode::NOT_FOUND,
            VersionError::Format(_)
            | VersionError::Major(_)
            | VersionError::Minor(_)
            | VersionError::None => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

/// Newest minor of each protocol major.
const PROTOCOLS: &[Version] = &[version(1, 0), version(2, 1)];

/// A version from its parts.
pub(super) const fn version(major: u32, minor: u32) -> Version {
    Version { major, minor }
}

/// The versions for a request to an endpoint that offers `offered`: the newest
/// minor of each major, oldest major first. `api` says what answers those who
/// name none.
///
/// # Errors
/// When the header is malformed, or no version fits it.
pub(super) fn choose(
    headers: &HeaderMap,
    offered: &[Version],
    api: &ApiConfig,
) -> Result<SelectedVersion, VersionError> {
    let fields = headers.get_all("accept-api-version").iter();
    let fields: Result<Vec<_>, _> = fields.map(|value| value.to_str()).collect();
    // Several fields are one list (RFC 9110 §5.3).
    let text = fields.map_err(|_| VersionError::Format(String::new()))?;
    let text = text.join(",");
    let (protocol, resource) = parse(&text).ok_or_else(|| VersionError::Format(text.clone()))?;
    if let Some(asked) = protocol {
        let same = PROTOCOLS.iter().find(|known| known.major == asked.major);
        let known = same.ok_or(VersionError::Major(asked.major))?;
        if known.minor < asked.minor {
            return Err(VersionError::Minor(asked));
        }
    }
    let default = || match api.default_version {
        DefaultVersion::Latest => Ok(offered.last().copied().unwrap_or(version(1, 0))),
        DefaultVersion::Oldest => Ok(offered.first().copied().unwrap_or(version(1, 0))),
        DefaultVersion::None => Err(VersionError::None),
    };
    let fits = |asked: Version| {
        let fitting = |known: &&Version| known.major == asked.major && known.minor >= asked.minor;
        offered
            .iter()
            .find(fitting)
            .copied()
            .ok_or(VersionError::Resource(asked))
    };
    Ok(SelectedVersion {
        resource: resource.map_or_else(default, fits)?,
        warns: resource.is_none() && api.warnings,
    })
}

/// Protocol and resource version; `None` for any other text. Nothing at all
/// is as good as no header.
fn parse(text: &str) -> Option<(Option<Version>, Option<Version>)> {
    let (mut protocol, mut resource) = (None, None);
    if text.trim().is_empty() {
        return Some((None, None));
    }
    for part in text.split(',') {
        let (name, value) = part.split_once('=')?;
        let slot = match name.trim() {
            "protocol" => &mut protocol,
            "resource" => &mut resource,
            _ => return None,
        };
        if slot.replace(number(value.trim())?).is_some() {
            return None;
        }
    }
    Some((protocol, resource))
}

fn number(text: &str) -> Option<Version> {
    let digits = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten()
    };
    match text.split_once('.') {
        Some((major, minor)) => Some(version(digits(major)?, digits(minor)?)),
        None => Some(version(digits(text)?, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFERED: &[Version] = &[version(1, 2), version(2, 1)];

    fn ask(text: &'static str) -> Result<SelectedVersion, VersionError> {
        let mut headers = HeaderMap::new();
        headers.insert("accept-api-version", http::HeaderValue::from_static(text));
        choose(&headers, OFFERED, &ApiConfig::default())
    }

    #[test]
    fn who_names_no_version_gets_the_configured_one() {
        let chosen = |default_version, warnings| {
            let api = ApiConfig {
                default_version,
                warnings,
            };
            let chosen = choose(&HeaderMap::new(), OFFERED, &api);
            chosen.map(|chosen| (chosen.resource, chosen.warns))
        };
        assert_eq!(
            chosen(DefaultVersion::Latest, true),
            Ok((version(2, 1), true))
        );
        assert_eq!(
            chosen(DefaultVersion::Oldest, false),
            Ok((version(1, 2), false))
        );
        assert_eq!(chosen(DefaultVersion::None, true), Err(VersionError::None));
    }

    #[test]
    fn versions_of_several_fields_are_one_list() {
        let ask = |second: &'static str| {
            let mut headers = HeaderMap::new();
            for text in ["resource=2.0", second] {
                let text = http::HeaderValue::from_static(text);
                headers.append("accept-api-version", text);
            }
            choose(&headers, OFFERED, &ApiConfig::default())
        };
        assert!(ask("protocol=1.0").is_ok());
        let twice = "resource=2.0,resource=1.0".to_owned();
        assert_eq!(ask("resource=1.0"), Err(VersionError::Format(twice)));
    }

    #[test]
    fn the_same_major_with_no_greater_minor_answers() {
        let resource = |text| ask(text).map(|chosen| chosen.resource);
        for text in [
            "resource=2.1",
            "resource=2.0",
            "resource=2",
            "protocol=1.0,resource=2.1",
            "resource=2.1 , protocol=1.0",
        ] {
            assert_eq!(resource(text), Ok(version(2, 1)), "{text}");
        }
        assert_eq!(resource("resource=1.1"), Ok(version(1, 2)));
        assert_eq!(resource("protocol=1.0"), Ok(version(2, 1)));
        assert_eq!(
            resource("resource=2.2"),
            Err(VersionError::Resource(version(2, 2)))
        );
        assert_eq!(
            ask("resource=999.0")
                .expect_err("no such version")
                .to_string(),
            "Accept-API-Version: Requested version \"999.0\" does not match any routes."
        );
    }

    #[test]
    fn any_other_text_is_refused() {
        for text in [
            "2.1",
            "resource=",
            "resource=2.",
            "resource=2.1.0",
            "resource=-1",
            "version=1",
            "resource=2.1;protocol=1.0",
            "resource=2.1,resource=2.1",
            "resource=99999999999",
        ] {
            let error = ask(text).expect_err(text);
            assert_eq!(
                error.to_string(),
                format!("Version string is in an invalid format: {text}")
            );
        }
    }

    #[test]
    fn unknown_protocols_are_refused() {
        assert_eq!(ask("protocol=9").map(drop), Err(VersionError::Major(9)));
        assert_eq!(
            ask("protocol=1.5").map(drop),
            Err(VersionError::Minor(version(1, 5)))
        );
    }
}
