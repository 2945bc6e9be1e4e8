//! What is told about a request.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use doorward_plugin_api::filter::FilterExplanation;

/// What happens to a request, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explanation {
    /// The request as it was understood.
    pub request: Understood,
    /// Set if the gateway answers by itself without asking filters or peers.
    pub refusal: Option<Refusal>,
    /// Set if a filter would answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<FilterAnswer>,
    /// The route that it belongs to.
    pub route: Option<Chosen>,
    /// Other routes that match some of it, the nearest first.
    pub near_misses: Vec<Miss>,
    /// The filters in the order in which they run.
    pub filters: Vec<ExplainedFilter>,
    /// Plugins that would apply if others did not, and disabled ones.
    pub shadowed: Vec<Shadowed>,
    /// Where it goes.
    pub upstream: Option<Destination>,
    /// The route file that takes it, or would if no route did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_route: Option<FileRouted>,
}

/// What a route file makes of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileRouted {
    /// Name of the file without its extension; none: the default handler.
    pub id: Option<String>,
    /// The route's name.
    pub name: Option<String>,
    /// The file.
    pub file: Option<String>,
    /// Whether a route takes the request before.
    pub shadowed: bool,
    /// What the request meets, in order; conditions are judged by the request
    /// as it came.
    pub steps: Vec<String>,
    /// Scheme, host and port of where it goes.
    pub destination: Option<String>,
}

/// A request as it was understood.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Understood {
    /// The method.
    pub method: String,
    /// `http` or `https`: what the client uses, as far as trusted proxies say.
    pub scheme: String,
    /// Host without port.
    pub host: String,
    /// Port of the Host header, or the listener's.
    pub port: u16,
    /// The normalised path.
    pub path: String,
    /// The client's address.
    pub client: String,
    /// Server name of the TLS handshake.
    pub sni: Option<String>,
}

/// An answer of the gateway itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refusal {
    /// Its status.
    pub status: u16,
    /// Its message.
    pub message: String,
    /// Why, for operators.
    pub reason: String,
}

/// An answer of a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterAnswer {
    /// The kind of plugin.
    pub filter: String,
    /// Its status.
    pub status: u16,
    /// What log and metrics call it.
    pub code: String,
    /// What that means.
    pub reason: String,
}

/// Where a record comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum From {
    /// The Admin API.
    Api,
    /// A file.
    File {
        /// Its name.
        file: String,
        /// The line on which the record begins now.
        line: Option<usize>,
    },
}

/// The route of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chosen {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: Option<String>,
    /// Where it comes from.
    pub origin: From,
    /// What of it the request matches.
    pub matched: Vec<Matched>,
}

/// An attribute that a request matches.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Matched {
    /// `host`, `path`, `method`, `header x-name` or `sni`.
    pub attribute: String,
    /// What the route asks for.
    pub wanted: String,
    /// What the request has.
    pub value: String,
}

/// A route that the request did not get.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Miss {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: Option<String>,
    /// Where it comes from.
    pub origin: From,
    /// Why not, each on its own sufficient.
    pub reasons: Vec<String>,
}

/// A filter and its plugin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainedFilter {
    /// Name of the kind of plugin.
    pub name: String,
    /// The plugin's id.
    pub id: Uuid,
    /// Its own name.
    pub instance_name: Option<String>,
    /// Higher runs first.
    pub priority: i32,
    /// `route`, `service`, `consumer`, `consumer_group`, several of them, or `global`.
    pub scope: String,
    /// Where it comes from.
    pub origin: From,
    /// Its configuration with every default; secrets are not shown.
    pub config: Value,
    /// What it would do with the request, as far as that can be told and it was
    /// asked.
    #[serde(default, rename = "outlook", skip_serializing_if = "Option::is_none")]
    pub explanation: Option<FilterExplanation>,
}

/// A plugin that does not run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shadowed {
    /// Name of the kind of plugin.
    pub name: String,
    /// The plugin's id.
    pub id: Uuid,
    /// Where it would apply.
    pub scope: String,
    /// Where it comes from.
    pub origin: From,
    /// Why it does not run.
    pub reason: String,
}

/// Where a request goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Destination {
    /// The service's id.
    pub service: Uuid,
    /// Its name.
    pub name: Option<String>,
    /// Where it comes from.
    pub origin: From,
    /// `http`, `https`, `grpc`, `grpcs` or `internal`.
    pub protocol: String,
    /// Host and port of the service.
    pub address: String,
    /// How one of the targets is chosen, if there are several to choose from.
    pub balancing: Option<String>,
    /// What it is chosen from.
    pub targets: Vec<Target>,
    /// Path and query as the upstream sees them.
    pub path: String,
    /// Host header as the upstream sees it.
    pub host: String,
    /// Longest wait for a connection, in milliseconds.
    pub connect_timeout: u64,
    /// Longest wait between two reads, in milliseconds.
    pub read_timeout: u64,
    /// Longest wait between two writes, in milliseconds.
    pub write_timeout: u64,
    /// Further tries after the first.
    pub retries: usize,
}

/// One place that the request may go to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Target {
    /// As it is configured.
    pub target: String,
    /// Its address, once its name was resolved.
    pub address: Option<String>,
    /// Its weight, or its part of its target's weight.
    pub weight: f64,
    /// Whether checks hold it to be healthy.
    pub healthy: bool,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From::Api => f.write_str("Admin API"),
            From::File { file, line: None } => f.write_str(file),
            From::File {
                file,
                line: Some(line),
            } => write!(f, "{file}:{line}"),
        }
    }
}

fn named(name: Option<&str>, id: Uuid) -> String {
    match name {
        Some(name) => format!("{name} ({id})"),
        None => id.to_string(),
    }
}

/// For people; the fields are for programs.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        let host = match request.host.as_str() {
            "" => "(no host)",
            host => host,
        };
        write!(
            f,
            "{} {}://{host}:{}{} from {}",
            request.method, request.scheme, request.port, request.path, request.client
        )?;
        match &request.sni {
            Some(sni) => writeln!(f, ", server name {sni}")?,
            None => writeln!(f)?,
        }
        if let Some(route) = &self.route {
            let name = named(route.name.as_deref(), route.id);
            writeln!(f, "\nroute     {name}, {}", route.origin)?;
            for Matched {
                attribute,
                wanted,
                value,
            } in &route.matched
            {
                writeln!(f, "          {attribute} '{value}' matches {wanted}")?;
            }
        }
        if let Some(refusal) = &self.refusal {
            let Refusal {
                status,
                message,
                reason,
            } = refusal;
            writeln!(f, "\nanswer    {status} {message}: {reason}")?;
        }
        if let Some(answered) = &self.answered {
            let FilterAnswer {
                filter,
                status,
                code,
                reason,
            } = answered;
            writeln!(f, "\nanswer    {status} {code}: {reason} ({filter})")?;
        }
        if !self.near_misses.is_empty() {
            f.write_str("\nnear misses\n")?;
        }
        for miss in &self.near_misses {
            let name = named(miss.name.as_deref(), miss.id);
            writeln!(f, "          {name}, {}", miss.origin)?;
            for reason in &miss.reasons {
                writeln!(f, "            {reason}")?;
            }
        }
        if self.route.is_some() {
            self.fmt_filters(f)?;
        }
        if let Some(upstream) = &self.upstream {
            upstream.fmt(f)?;
        }
        match &self.file_route {
            Some(file) => file.fmt(f),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FileRouted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("default handler");
        write!(f, "\nfile      {name}")?;
        if let Some(file) = &self.file {
            write!(f, ", {file}")?;
        }
        if self.shadowed {
            return writeln!(f, ": not asked, the route above takes the request");
        }
        writeln!(f)?;
        for step in &self.steps {
            writeln!(f, "          {step}")?;
        }
        match &self.destination {
            Some(to) => writeln!(f, "          goes to {to}"),
            None => Ok(()),
        }
    }
}

impl Explanation {
    fn fmt_filters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.filters.len() {
            0 => f.write_str("\nfilters   none\n")?,
            _ => f.write_str("\nfilters   in the order in which they run\n")?,
        }
        for filter in &self.filters {
            let name = named(Some(&filter.name), filter.id);
            let ExplainedFilter {
                priority,
                scope,
                origin,
                ..
            } = filter;
            writeln!(
                f,
                "          {name}, priority {priority}, {scope}, {origin}"
            )?;
            match &filter.explanation {
                None => {}
                Some(FilterExplanation::Passes { reason }) => {
                    writeln!(f, "            passes: {reason}")?;
                }
                Some(FilterExplanation::Depends { reason }) => {
                    writeln!(f, "            depends on {reason}")?;
                }
                Some(FilterExplanation::Answers { status, code, .. }) => {
                    writeln!(f, "            answers: {status} {code}")?;
                }
            }
            let config = filter.config.as_object().into_iter().flatten();
            for (field, value) in config.filter(|(_, value)| !value.is_null()) {
                let mut line = format!("            {field}: {value}");
                if line.chars().count() > 160 {
                    line = line.chars().take(159).collect();
                    line.write_char('…')?;
                }
                writeln!(f, "{line}")?;
            }
        }
        for plugin in &self.shadowed {
            let name = named(Some(&plugin.name), plugin.id);
            let Shadowed {
                scope,
                origin,
                reason,
                ..
            } = plugin;
            writeln!(
                f,
                "          does not run: {name}, {scope}, {origin}: {reason}"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = named(self.name.as_deref(), self.service);
        writeln!(f, "\nservice   {name}, {}", self.origin)?;
        writeln!(f, "          {}://{}", self.protocol, self.address)?;
        if let Some(balancing) = &self.balancing {
            writeln!(f, "          balanced: {balancing}")?;
        }
        for target in &self.targets {
            let address = target.address.as_deref().unwrap_or("not resolved yet");
            let health = if target.healthy {
                "healthy"
            } else {
                "unhealthy"
            };
            let (target, weight) = (&target.target, target.weight);
            writeln!(
                f,
                "          {target} ({address}), weight {weight}, {health}"
            )?;
        }
        writeln!(f, "          asked for {} of host {}", self.path, self.host)?;
        writeln!(
            f,
            "          timeouts: connect {} ms, read {} ms, write {} ms; retries: {}",
            self.connect_timeout, self.read_timeout, self.write_timeout, self.retries
        )
    }
}
