//! `doorward proxy`: a door before one upstream, from flags alone.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use url::Url;

use super::rate::Rate;
use super::{MAIN_FILE, ROUTES_FILE, address, make_directory, overwrite, secret};
use crate::cli::{USAGE, complain, run, with_causes};

const EXAMPLES: &str = "\
Examples:
  doorward proxy --from :8000 --to :9000
  doorward proxy --to 10.0.0.5:9000 --to 10.0.0.6:9000 --rate 100/m
  doorward proxy --to http://127.0.0.1:3000 --login --host app.localhost
  doorward proxy --to 127.0.0.1:3000/mcp --login --mcp";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Arguments {
    /// Where to listen; :PORT is every address of this machine
    #[arg(long, value_name = "ADDRESS", default_value = ":8000", value_parser = address::listened)]
    from: String,
    /// Where requests go, a port, host:port or URL; several share them
    #[arg(long, value_name = "UPSTREAM", required = true, value_parser = address::upstream)]
    to: Vec<Url>,
    /// Takes requests for this host alone; may be repeated
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Has users sign in, with a provider of its own
    #[arg(long)]
    login: bool,
    /// The upstream is an MCP server: its clients register and get tokens that
    /// are for it alone
    #[arg(long, requires = "login")]
    mcp: bool,
    /// Limits each client, or each user with --login, such as 6/10s or 100/m
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// What browsers call this door, for --login [default: http://localhost:PORT]
    #[arg(long, value_name = "URL", requires = "login")]
    base_url: Option<Url>,
    /// Where the Admin API listens [default: 127.0.0.1:8001, or a free port]
    #[arg(long, value_name = "ADDRESS", value_parser = address::listened)]
    admin: Option<String>,
    /// The directory of its state [default: one for each port, below
    /// $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// What is kept from one start to the next.
struct Secrets {
    password: String,
    client: String,
    admin: String,
}

/// The path at which the provider gives a browser back.
const CALLBACK: &str = "/oauth2/callback";
/// The file of the secrets, one a line.
const SECRETS_FILE: &str = "secrets.txt";
/// The Admin API's usual address.
const ADMIN: &str = "127.0.0.1:8001";

pub(in crate::cli) fn run(arguments: &Arguments) -> ExitCode {
    match prepare(arguments) {
        Ok((file, hints)) => run::run_with_hints(&file, hints),
        Err(error) => {
            complain(&with_causes(&error));
            ExitCode::from(USAGE)
        }
    }
}

/// Writes the files that the flags come to; the main one, and what to print.
fn prepare(arguments: &Arguments) -> Result<(PathBuf, String)> {
    let first = &arguments.to[0];
    let alike = |url: &Url| (url.scheme(), url.path()) == (first.scheme(), first.path());
    if let Some(other) = arguments.to.iter().find(|url| !alike(url)) {
        bail!("{first} and {other} can't share requests: their schemes or paths differ");
    }
    let directory = match &arguments.state {
        Some(directory) => directory.clone(),
        None => usual_directory(arguments.port()),
    };
    make_directory(&directory)?;
    let secrets = secrets(&directory.join(SECRETS_FILE))?;
    let admin = arguments.admin.clone().unwrap_or_else(free_admin);
    let base = arguments.base();
    let file = directory.join(MAIN_FILE);
    let main = main_file(arguments, &admin, &base, &secrets);
    overwrite(&file, &format!("{main:#}\n"))?;
    let routes = routes_file(arguments, &base, &secrets);
    overwrite(&directory.join(ROUTES_FILE), &format!("{routes:#}\n"))?;
    Ok((file, hints(arguments, &admin, &base, &secrets)))
}

impl Arguments {
    fn port(&self) -> &str {
        self.from.rsplit(':').next().unwrap_or_default()
    }

    /// The identifier of the MCP server: the address that its clients use.
    fn resource(&self, base: &str) -> String {
        format!("{base}{}", self.to[0].path().trim_end_matches('/'))
    }

    /// All identifiers of the MCP server, its own first: clients on this machine may
    /// call the door by either name of loopback.
    fn resources(&self, base: &str) -> Vec<String> {
        let other = base.strip_prefix("http://localhost:");
        let bases = [
            Some(base.to_owned()),
            other.map(|port| format!("http://127.0.0.1:{port}")),
        ];
        let bases = bases.into_iter().flatten();
        bases.map(|base| self.resource(&base)).collect()
    }

    /// What browsers call this door, without a slash at the end.
    fn base(&self) -> String {
        match &self.base_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => {
                let host = self.host.first().map_or("localhost", String::as_str);
                format!("http://{host}:{}", self.port())
            }
        }
    }
}

/// A directory for each port, since two doors can't share one.
fn usual_directory(port: &str) -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let below = match (set("XDG_STATE_HOME"), set("HOME")) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => Path::new(&home).join(".local/state"),
        (None, None) => std::env::temp_dir(),
    };
    below.join(format!("doorward/proxy-{port}"))
}

fn secrets(file: &Path) -> Result<Secrets> {
    if !file.exists() {
        let fresh = [secret(), secret(), secret()].join("\n");
        overwrite(file, &format!("{fresh}\n"))?;
    }
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("can't read {}", file.display()))?;
    let mut lines = text.lines().map(str::to_owned);
    let mut next = || {
        let line = lines.next().filter(|line| !line.is_empty());
        line.with_context(|| format!("{} lacks lines: remove it", file.display()))
    };
    Ok(Secrets {
        password: next()?,
        client: next()?,
        admin: next()?,
    })
}

/// The Admin API's usual address, or one with a free port where that is taken.
fn free_admin() -> String {
    let free = |address| TcpListener::bind(address)?.local_addr();
    let address = free(ADMIN).or_else(|_| free("127.0.0.1:0"));
    address.map_or_else(|_| ADMIN.to_owned(), |address| address.to_string())
}

fn main_file(arguments: &Arguments, admin: &str, base: &str, secrets: &Secrets) -> Value {
    let mut main = json!({
        "proxy": {"listen": [arguments.from]},
        "admin": {"listen": admin},
        "store": "sqlite:doorward.db",
        "entities": [ROUTES_FILE],
        "telemetry": {"access_log": "stdout", "metrics": true},
    });
    if !is_loopback(admin) {
        main["admin"]["token"] = json!(secrets.admin);
    }
    if arguments.login {
        let mut settings = json!({
            "admin_addresses": ["127.0.0.1", "::1"],
            "users_scope": "scim:read",
            "groups_scope": "scim:read",
        });
        if arguments.mcp {
            settings["resources"] = json!(arguments.resources(base));
            settings["registration"] = json!({"mode": "open"});
            settings["client_metadata_documents"] = json!({"mode": "open"});
            // Clients refresh in parallel, and lose answers.
            settings["refresh_token_grace"] = json!(30);
        }
        main["identity"] = json!({
            "base_url": base,
            "realms": {"/": {
                "settings": settings,
                "users": [{"userName": "user", "password": secrets.password}],
                "clients": [{
                    "client_id": "proxy",
                    "client_secret": secrets.client,
                    "client_name": "Doorward",
                    "grant_types": ["authorization_code", "refresh_token", "password"],
                    "redirect_uris": [format!("{base}{CALLBACK}")],
                    "post_logout_redirect_uris": [format!("{base}/")],
                    "scope": "openid profile email",
                }],
            }},
        });
    }
    main
}

fn is_loopback(address: &str) -> bool {
    let parsed: Result<std::net::SocketAddr, _> = address.parse();
    parsed.is_ok_and(|address| address.ip().is_loopback())
}

/// Whether browsers call this door by a name of loopback.
fn is_local(base: &str) -> bool {
    let url = Url::parse(base);
    url.is_ok_and(|url| matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")))
}

fn routes_file(arguments: &Arguments, base: &str, secrets: &Secrets) -> Value {
    let mut service = service(&arguments.to);
    // A client of the protocol knows the server by its path, so that stays.
    let path = match arguments.to[0].path().trim_end_matches('/') {
        path if arguments.mcp && !path.is_empty() => path.to_owned(),
        _ => "/".to_owned(),
    };
    let route = |name: &str, paths: &[&str]| {
        // MCP servers on loopback refuse names other than those of loopback.
        let keeps_host = !arguments.mcp || name != "proxy" || is_local(base);
        let mut route = json!({"name": name, "paths": paths, "preserve_host": keeps_host});
        if !arguments.host.is_empty() {
            route["hosts"] = json!(arguments.host);
        }
        route
    };
    service["routes"] = json!([route("proxy", &[&*path])]);
    service["plugins"] = json!(plugins(arguments, base, secrets));
    let mut services = vec![service];
    if arguments.login {
        // The callback belongs to the plugin, everything else to the provider.
        let paths: &[&str] = if arguments.mcp {
            &["/oauth2", "/.well-known"]
        } else {
            &["/oauth2"]
        };
        let mut identity = route("identity", paths);
        identity["strip_path"] = json!(false);
        services.push(json!({
            "name": "identity", "protocol": "internal", "host": "identity", "routes": [identity],
        }));
        let callback = route("callback", &[CALLBACK]);
        if let Some(routes) = services[0]["routes"]
            .as_array_mut()
            .filter(|_| !arguments.mcp)
        {
            routes.push(callback);
        }
    }
    let mut file = json!({"_format_version": "3.0", "services": services});
    if arguments.to.len() > 1 {
        let target = |url: &Url| json!({"target": authority(url)});
        let targets: Vec<Value> = arguments.to.iter().map(target).collect();
        file["upstreams"] = json!([{"name": "proxy", "targets": targets}]);
    }
    file
}

/// The service of one upstream, or of several behind one name.
fn service(to: &[Url]) -> Value {
    let first = &to[0];
    if let [only] = to {
        return json!({"name": "proxy", "url": only.as_str().trim_end_matches('/')});
    }
    json!({
        "name": "proxy",
        "protocol": first.scheme(),
        "host": "proxy",
        "port": first.port_or_known_default(),
        "path": Some(first.path()).filter(|path| *path != "/"),
    })
}

fn authority(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or(80);
    format!("{}:{port}", url.host_str().unwrap_or_default())
}

fn plugins(arguments: &Arguments, base: &str, secrets: &Secrets) -> Vec<Value> {
    let mut plugins = Vec::new();
    if arguments.mcp {
        plugins.push(json!({
            "name": "mcp",
            "config": {
                "resource": arguments.resource(base),
                "resource_aliases": arguments.resources(base)[1..],
                "issuer": format!("{base}/oauth2"),
                // Clients ask for what is listed here, or for all that the provider has.
                "scopes_supported": ["openid"],
            },
        }));
    } else if arguments.login {
        plugins.push(json!({
            "name": "openid-connect",
            "config": {
                "issuer": format!("{base}/oauth2"),
                "client_id": ["proxy"],
                "client_secret": [secrets.client],
                "scopes": ["openid", "profile", "email"],
                "redirect_uri": [format!("{base}{CALLBACK}")],
                "auth_methods": ["authorization_code", "session", "bearer", "password"],
            },
        }));
    }
    if let Some(rate) = arguments.rate {
        let who = if arguments.login {
            "${contexts.oauth2.accessToken.info.sub}"
        } else {
            "${contexts.client.remoteAddress}"
        };
        let duration = format!("{} seconds", rate.seconds);
        plugins.push(json!({
            "name": "throttling",
            "config": {
                "requestGroupingPolicy": who,
                "rate": {"numberOfRequests": rate.requests, "duration": duration},
            },
        }));
    }
    plugins
}

fn hints(arguments: &Arguments, admin: &str, base: &str, secrets: &Secrets) -> String {
    let to: Vec<&str> = arguments.to.iter().map(Url::as_str).collect();
    let door = if arguments.mcp {
        arguments.resource(base)
    } else {
        base.to_owned()
    };
    let mut text = format!("\n  {door}  ->  {}\n", to.join(", "));
    if arguments.login {
        text += &format!("  Sign in as    user  {}\n", secrets.password);
    }
    if let Some(rate) = arguments.rate {
        let of = if arguments.login { "user" } else { "address" };
        text += &format!(
            "  Each {of} may make {} requests in {} s.\n",
            rate.requests, rate.seconds
        );
    }
    if arguments.mcp {
        text += &format!("  MCP server    {door}\n");
        text += "                give clients this address: they find the rest\n";
    }
    text += &format!("  Admin API     http://{admin}\n");
    if !is_loopback(admin) {
        text += &format!("  Admin token   {}\n", secrets.admin);
    }
    text + "  Ctrl-C stops.\n\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn routes(flags: &[&str]) -> Value {
        let line = Line::parse_from([&["proxy"], flags].concat());
        let secrets = Secrets {
            password: "p".to_owned(),
            client: "c".to_owned(),
            admin: "a".to_owned(),
        };
        routes_file(&line.arguments, &line.arguments.base(), &secrets)
    }

    #[test]
    fn one_upstream_is_a_service_and_several_are_targets() {
        let one = routes(&["--to", ":9000/api", "--host", "a.test"]);
        assert_eq!(one["services"][0]["url"], "http://127.0.0.1:9000/api");
        assert_eq!(one["services"][0]["routes"][0]["hosts"], json!(["a.test"]));
        assert_eq!(one["upstreams"], Value::Null);
        let two = routes(&["--to", "a.test:1", "--to", "b.test:2", "--rate", "6/10s"]);
        let targets = json!([{"target": "a.test:1"}, {"target": "b.test:2"}]);
        assert_eq!(two["upstreams"][0]["targets"], targets);
        assert_eq!(two["services"][0]["host"], "proxy");
        let rate = json!({"numberOfRequests": 6, "duration": "10 seconds"});
        assert_eq!(two["services"][0]["plugins"][0]["config"]["rate"], rate);
    }

    #[test]
    fn a_server_of_the_protocol_is_called_by_a_name_that_it_knows() {
        for (flags, keeps_host, path) in [
            (&["--to", ":9000/mcp"][..], true, "/mcp"),
            (&["--to", ":9000/mcp/"], true, "/mcp"),
            (&["--to", ":9000"], true, "/"),
            (&["--to", ":9000/mcp", "--host", "app.test"], false, "/mcp"),
            (
                &["--to", ":9000/mcp", "--base-url", "https://app.test"],
                false,
                "/mcp",
            ),
        ] {
            let file = routes(&[flags, &["--login", "--mcp"]].concat());
            let route = &file["services"][0]["routes"][0];
            assert_eq!(route["preserve_host"], keeps_host, "{flags:?}");
            assert_eq!(route["paths"], json!([path]), "{flags:?}");
            let identity = &file["services"][1]["routes"][0];
            assert_eq!(identity["preserve_host"], true, "{flags:?}");
        }
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for flags in [
            &["--from", ":8000"][..],
            &["--to", "ftp://a"],
            &["--to", ":1", "--rate", "6"],
            &["--to", ":1", "--base-url", "http://a"],
            &["--to", ":1", "--from", "nowhere"],
        ] {
            let line = Line::try_parse_from([&["proxy"], flags].concat());
            assert!(line.is_err(), "{flags:?}");
        }
    }
}
