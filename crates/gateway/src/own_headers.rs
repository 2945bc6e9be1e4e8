//! What the gateway tells clients of itself: its own headers on answers, and the
//! form of its messages. The names are those of the imitated gateway's settings.

use serde::{Deserialize, Deserializer};

/// The gateway's own headers that answers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnHeaders(u8);

impl OwnHeaders {
    /// `Server` on answers that the gateway makes.
    pub const SERVER: Self = Self(1);
    /// `Via` on answers of upstreams.
    pub const VIA: Self = Self(1 << 1);
    /// `X-Kong-Proxy-Latency`.
    pub const PROXY_LATENCY: Self = Self(1 << 2);
    /// `X-Kong-Response-Latency`.
    pub const RESPONSE_LATENCY: Self = Self(1 << 3);
    /// `X-Kong-Upstream-Latency`.
    pub const UPSTREAM_LATENCY: Self = Self(1 << 4);
    /// `X-Kong-Upstream-Status`.
    pub const UPSTREAM_STATUS: Self = Self(1 << 5);
    /// `X-Kong-Request-Id`.
    pub const REQUEST_ID: Self = Self(1 << 6);
    /// `X-Kong-Admin-Latency`, of the Admin API.
    pub const ADMIN_LATENCY: Self = Self(1 << 7);

    const NONE: Self = Self(0);

    /// What stands for which headers, in any case.
    const NAMES: [(&str, Self); 10] = [
        ("server_tokens", Self(1 | 1 << 1)),
        ("latency_tokens", Self(1 << 2 | 1 << 3 | 1 << 4 | 1 << 7)),
        ("Server", Self::SERVER),
        ("Via", Self::VIA),
        ("X-Kong-Proxy-Latency", Self::PROXY_LATENCY),
        ("X-Kong-Response-Latency", Self::RESPONSE_LATENCY),
        ("X-Kong-Upstream-Latency", Self::UPSTREAM_LATENCY),
        ("X-Kong-Upstream-Status", Self::UPSTREAM_STATUS),
        ("X-Kong-Request-Id", Self::REQUEST_ID),
        ("X-Kong-Admin-Latency", Self::ADMIN_LATENCY),
    ];

    /// Whether these have this header.
    pub fn has(self, header: Self) -> bool {
        self.0 & header.0 != 0
    }

    fn of(names: &[String]) -> Result<Self, String> {
        if let [only] = names
            && only.eq_ignore_ascii_case("off")
        {
            return Ok(Self::NONE);
        }
        let mut shown = Self::NONE;
        for name in names {
            let known = Self::NAMES
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name));
            let Some((_, headers)) = known else {
                let known = Self::NAMES.map(|(known, _)| known).join(", ");
                return Err(format!("'{name}' is none of {known}; or only off"));
            };
            shown.0 |= headers.0;
        }
        Ok(shown)
    }
}

/// All but the upstream's status.
impl Default for OwnHeaders {
    fn default() -> Self {
        Self(!Self::UPSTREAM_STATUS.0)
    }
}

impl<'de> Deserialize<'de> for OwnHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        Self::of(&names).map_err(serde::de::Error::custom)
    }
}

/// The form of messages about upstreams that failed, for clients that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum DefaultType {
    /// Plain text.
    #[default]
    #[serde(rename = "text/plain")]
    Plain,
    /// HTML.
    #[serde(rename = "text/html")]
    Html,
    /// JSON.
    #[serde(rename = "application/json")]
    Json,
    /// XML.
    #[serde(rename = "application/xml")]
    Xml,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<OwnHeaders, String> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        OwnHeaders::of(&names)
    }

    #[test]
    fn the_usual_names_are_the_default() {
        let usual = of(&["server_tokens", "latency_tokens", "X-Kong-Request-Id"]);
        assert_eq!(usual, Ok(OwnHeaders::default()));
    }

    #[test]
    fn single_headers_and_none_can_be_named_in_any_case() {
        let shown = of(&["via", "x-kong-upstream-status"]).expect("known");
        assert!(shown.has(OwnHeaders::VIA) && shown.has(OwnHeaders::UPSTREAM_STATUS));
        assert!(!shown.has(OwnHeaders::SERVER) && !shown.has(OwnHeaders::REQUEST_ID));
        for none in [of(&["off"]), of(&[])] {
            assert!(!none.expect("known").has(OwnHeaders::VIA));
        }
    }

    #[test]
    fn other_names_are_refused_with_those_that_there_are() {
        let refused = of(&["Via", "X-Other"]).expect_err("refused");
        assert!(
            refused.starts_with("'X-Other' is none of server_tokens"),
            "{refused}"
        );
        of(&["off", "Via"]).expect_err("off and something");
    }
}
