//! Everything that log and metrics call a refusal, and what it means.

use std::fmt;

use serde::Serialize;

use crate::forward_auth;

use doorward_plugin_api::filter::Code;
use doorward_plugins::REGISTRY;

/// Those of the gateway itself.
const GATEWAY: &[Code] = &[
    Code::new(
        "malformed_request",
        400,
        "what came is no request, or one that others would read differently",
    ),
    Code::new(
        "expression_failed",
        500,
        "a condition of a route file exceeds a limit",
    ),
    Code::new(
        "bad_base_uri",
        502,
        "a base URI of a route file is none (500 where a handler has it)",
    ),
    Code::new(
        "no_base_uri",
        502,
        "nothing says where the request of a route file goes",
    ),
    Code::new(
        "no_upstream",
        502,
        "the destination of a route file can't be had",
    ),
    Code::new(
        "no_uri",
        500,
        "a StaticRequestFilter has made no address of its uri",
    ),
    Code::new(
        "upstream_…",
        502,
        "the upstream failed in this way (504: it was too slow)",
    ),
    Code::new(
        "client_…",
        400,
        "the client's connection failed in this way; it may have got no answer",
    ),
    Code::new(
        "internal_…",
        502,
        "the request could not be sent in this way: names, targets, addresses",
    ),
    forward_auth::UNTRUSTED,
    forward_auth::HOST_REFUSED,
    forward_auth::MALFORMED,
];

/// A code and whose it is.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Listed {
    /// The plugin, or `gateway`.
    pub filter: &'static str,
    /// The code, its status and its meaning.
    #[serde(flatten)]
    pub code: Code,
}

/// Every code, those of a plugin together.
pub fn codes() -> Vec<Listed> {
    let of_gateway = GATEWAY.iter().map(|code| ("gateway", *code));
    let of_plugins = REGISTRY
        .iter()
        .flat_map(|kind| (kind.codes)().into_iter().map(|code| (kind.name, code)));
    let all = of_plugins.chain(of_gateway);
    all.map(|(filter, code)| Listed { filter, code }).collect()
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Code {
            code,
            status,
            meaning,
        } = self.code;
        let status = match status {
            0 => "  -".to_owned(),
            status => status.to_string(),
        };
        write!(f, "{:<14}  {status}  {code:<26}  {meaning}", self.filter)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const REFUSE_NOTHING: &[&str] = &[
        "correlation-id",
        "datadog",
        "file-log",
        "http-log",
        "loggly",
        "opentelemetry",
        "prometheus",
        "response-transformer",
        "statsd",
        "syslog",
        "tcp-log",
        "udp-log",
        "zipkin",
    ];

    #[test]
    fn every_code_of_a_plugin_is_there_once_and_explained() {
        let all = codes();
        let names: HashSet<_> = all.iter().map(|one| (one.filter, one.code.code)).collect();
        assert_eq!(names.len(), all.len());
        for kind in REGISTRY {
            let has_codes = all.iter().any(|one| one.filter == kind.name);
            let refuses = !REFUSE_NOTHING.contains(&kind.name);
            assert_eq!(has_codes, refuses, "{}", kind.name);
        }
        for one in &all {
            let Code {
                code,
                status,
                meaning,
            } = one.code;
            let name = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '…');
            assert!(code.chars().all(name), "{code}");
            assert!(status == 0 || (200..600).contains(&status), "{code}");
            assert!(meaning.len() > 15, "{code}: {meaning}");
            assert!(one.to_string().contains(code));
        }
    }
}
