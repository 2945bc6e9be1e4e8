//! What the system says about names: `/etc/hosts` and `/etc/resolv.conf`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::SystemTime;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::system_conf::parse_resolv_conf;

use super::config::DnsConfig;

/// Most search domains that are tried.
const SEARCH_MAX: usize = 6;

/// The files as they were when they were read.
pub(super) struct System {
    /// Asks the servers; `None` if the settings can't be used.
    pub(super) client: Option<TokioResolver>,
    /// Addresses of the hosts file, by name in lower case.
    pub(super) hosts: HashMap<String, Vec<IpAddr>>,
    /// Domains that names with few dots are looked for in.
    pub(super) search: Vec<String>,
    /// From how many dots on a name is first taken as it is.
    pub(super) ndots: usize,
    /// When the files were changed.
    pub(super) stamp: Stamp,
}

/// Tells whether files were changed.
pub(super) type Stamp = [Option<SystemTime>; 2];

pub(super) fn stamp(config: &DnsConfig) -> Stamp {
    let changed = |file: &Path| std::fs::metadata(file).and_then(|m| m.modified()).ok();
    [changed(&config.hosts_file), changed(&config.resolv_conf)]
}

impl System {
    pub(super) fn read(config: &DnsConfig) -> Self {
        let stamp = stamp(config);
        let (servers, options) = servers(config);
        let search = servers.search.iter().take(SEARCH_MAX);
        let search = search.map(|name| name.to_utf8()).collect();
        let ndots = options.ndots;
        let mut builder =
            TokioResolver::builder_with_config(servers, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        let client = builder
            .build()
            .inspect_err(|error| tracing::error!(%error, "names can't be resolved"))
            .ok();
        let hosts = std::fs::read_to_string(&config.hosts_file).unwrap_or_default();
        Self {
            client,
            hosts: parse_hosts(&hosts),
            search,
            ndots,
            stamp,
        }
    }

    /// The full names to ask for, in order (resolv.conf(5), `ndots`).
    pub(super) fn candidates(&self, host: &str) -> Vec<String> {
        if host.ends_with('.') {
            return vec![host.to_owned()];
        }
        let full = format!("{host}.");
        let searched = self.search.iter().map(|domain| {
            let domain = domain.trim_end_matches('.');
            format!("{host}.{domain}.")
        });
        if host.matches('.').count() >= self.ndots {
            std::iter::once(full).chain(searched).collect()
        } else {
            searched.chain(std::iter::once(full)).collect()
        }
    }
}

fn servers(config: &DnsConfig) -> (ResolverConfig, ResolverOpts) {
    let text = std::fs::read(&config.resolv_conf).unwrap_or_default();
    // As the C library has it, no server means one on this machine.
    let fallback = || {
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let servers = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
        (servers, ResolverOpts::default())
    };
    let (mut servers, mut options) = parse_resolv_conf(text).unwrap_or_else(|_| fallback());
    if !config.nameservers.is_empty() {
        servers.name_servers = config.nameservers.iter().map(server).collect();
    }
    // What is kept, and for how long, is decided above.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    options.preserve_intermediates = true;
    (servers, options)
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    for connection in &mut server.connections {
        connection.port = address.port();
    }
    server
}

fn parse_hosts(text: &str) -> HashMap<String, Vec<IpAddr>> {
    let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        for name in words {
            let known = hosts.entry(name.to_ascii_lowercase()).or_default();
            if !known.contains(&ip) {
                known.push(ip);
            }
        }
    }
    hosts
}

/// Whether there is a way to `ip` at all: connecting a datagram socket looks
/// the route up and sends nothing.
pub(super) fn has_route(ip: IpAddr) -> bool {
    let any: SocketAddr = match ip {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    UdpSocket::bind(any).is_ok_and(|socket| socket.connect((ip, 9)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(search: &[&str], ndots: usize) -> System {
        System {
            client: None,
            hosts: HashMap::new(),
            search: search.iter().map(ToString::to_string).collect(),
            ndots,
            stamp: [None, None],
        }
    }

    #[test]
    fn names_with_few_dots_are_searched_for_first() {
        let system = system(&["a.local.", "b.local"], 2);
        let few = ["web.a.local.", "web.b.local.", "web."];
        assert_eq!(system.candidates("web"), few);
        let many = ["a.b.c.", "a.b.c.a.local.", "a.b.c.b.local."];
        assert_eq!(system.candidates("a.b.c"), many);
        assert_eq!(system.candidates("web."), ["web."]);
    }

    #[test]
    fn the_hosts_file_has_comments_aliases_and_both_families() {
        let hosts = parse_hosts("# x\n127.0.0.1 localhost Loop # l\n::1\tlocalhost\nnonsense y\n");
        assert_eq!(hosts["localhost"].len(), 2);
        assert_eq!(hosts["loop"].len(), 1);
        assert!(!hosts.contains_key("y") && !hosts.contains_key("l"));
    }
}
