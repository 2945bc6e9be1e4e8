//! The real program, configured for the benchmark.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::callgrind::{Count, Runner};
use crate::http;
use crate::process::{Port, Process};

/// Asks for a token by a name and a password.
pub(crate) const PASSWORD: &str = "grant_type=password&client_id=people\
    &client_secret=bench-secret&username=demo&password=bench-password&scope=read";

/// The service that everyday plugins are compared with: its route is like theirs.
pub(crate) const WITHOUT_PLUGIN: &str = "without-plugin";

/// Everyday plugins that are in the way of a request by themselves, with a `config`
/// that lets it pass.
pub(crate) const EVERYDAY: [(&str, &str); 11] = [
    ("bot-detection", ""),
    ("correlation-id", "echo_downstream: true"),
    ("cors", "origins: [\"https://app.example\"]"),
    ("ip-restriction", "deny: [192.0.2.0/24]"),
    ("proxy-cache", "strategy: memory"),
    (
        "rate-limiting",
        "hour: 1000000000, limit_by: ip, policy: local",
    ),
    ("request-size-limiting", "allowed_payload_size: 2"),
    ("request-transformer", "add: {headers: [\"X-A:b\"]}"),
    ("response-transformer", "add: {headers: [\"X-A:b\"]}"),
    ("prometheus", "status_code_metrics: true"),
    // The upstream takes what it is sent.
    (
        "opentelemetry",
        "traces_endpoint: \"http://@UPSTREAM@/v1/traces\", sampling_rate: 0.01",
    ),
];

/// A directory with configuration and state, and the program running on it.
pub(crate) struct Door {
    binary: PathBuf,
    dir: TempDir,
    port: Port,
    admin: Port,
    process: Option<Process>,
    runner: Runner,
}

impl Door {
    /// Writes the configuration.
    pub(crate) fn prepare(binary: &Path, upstream: &Port, workers: usize) -> Result<Self> {
        let (dir, port, admin) = (TempDir::new()?, Port::free()?, Port::free()?);
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text);
        write(
            "doorward.yaml",
            main_file(dir.path(), &port, &admin, workers),
        )?;
        write("routes.yaml", routes_file(&port, upstream))?;
        std::fs::create_dir(dir.path().join("more"))?;
        Ok(Self {
            binary: binary.to_owned(),
            dir,
            port,
            admin,
            process: None,
            runner: Runner::Direct,
        })
    }

    /// Starts the program by `runner` from now on.
    pub(crate) fn run_under(&mut self, runner: Runner) {
        self.runner = runner;
    }

    /// What the program spends on `work`, if its runner counts.
    pub(crate) fn count(&self, row: &str, work: impl FnOnce() -> Result<()>) -> Result<Count> {
        let process = self.process.as_ref().context("not running")?;
        self.runner.count(process, row, work)
    }

    /// Adds text at the end of the `identity` section's realms.
    pub(crate) fn add_realms(&self, realms: &str) -> Result<()> {
        let path = self.dir.path().join("doorward.yaml");
        let file = std::fs::read_to_string(&path)?;
        let (before, after) = file.split_once("telemetry:").context("no such section")?;
        Ok(std::fs::write(
            path,
            format!("{before}{realms}telemetry:{after}"),
        )?)
    }

    /// Hashes passwords at the cost that the program has by default.
    pub(crate) fn hash_as_usual(&self) -> Result<()> {
        let path = self.dir.path().join("doorward.yaml");
        let file = std::fs::read_to_string(&path)?;
        let usual = file.replace("hashing: {memory_kib: 8, passes: 1}", "hashing: {}");
        Ok(std::fs::write(path, usual)?)
    }

    /// The directory with all of it.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The file of the store.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("data/doorward.db")
    }

    /// Writes one more file of entities; its directory is read at each start
    /// and watched.
    pub(crate) fn declare(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(
            self.dir.path().join("more").join(name),
            text,
        )?)
    }

    /// Removes the database and the file of more entities.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        std::fs::remove_dir_all(self.dir.path().join("data"))?;
        Ok(std::fs::remove_file(
            self.dir.path().join("more").join(name),
        )?)
    }

    /// Starts the program; returns after how long it answered.
    pub(crate) fn start(&mut self) -> Result<Duration> {
        let log = std::fs::File::create(self.dir.path().join("log"))?;
        let mut command = self.runner.command(&self.binary);
        command
            .args(["run", "-c", "doorward.yaml"])
            .current_dir(self.dir.path())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log));
        let process = self.process.insert(Process::start("doorward", command)?);
        let answered = http::await_answer(&self.port, "/nowhere", self.runner.patience());
        if answered.is_err() || process.has_ended() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            bail!("the program did not come up:\n{log}");
        }
        http::await_answer(&self.admin, "/status", Duration::from_secs(5))?;
        answered
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    /// A token of the program's own identity provider.
    pub(crate) fn token(&self) -> Result<String> {
        let form =
            "grant_type=client_credentials&client_id=bench&client_secret=bench-secret&scope=read";
        self.access_token("/oauth2/access_token", form)
    }

    /// A token for the server with tools.
    pub(crate) fn tools_token(&self) -> Result<String> {
        let form = format!(
            "grant_type=client_credentials&client_id=bench&client_secret=bench-secret\
             &scope=read&resource=http://{}/tools",
            self.port.address()
        );
        self.access_token("/oauth2/access_token", &form)
    }

    /// A token that the token broker gives.
    pub(crate) fn brokered_token(&self) -> Result<String> {
        self.access_token("/brokered/access_token", PASSWORD)
    }

    fn access_token(&self, path: &str, form: &str) -> Result<String> {
        let (status, body) = http::post_form(&self.port, path, form)?;
        // The body may be chunked: the object is what stands between braces.
        let (from, to) = (body.find('{'), body.rfind('}'));
        let object = from.zip(to).and_then(|(from, to)| body.get(from..=to));
        let object: serde_json::Value = serde_json::from_str(object.unwrap_or_default())
            .with_context(|| format!("the token endpoint answered {status}: {body}"))?;
        match object["access_token"].as_str() {
            Some(token) => Ok(token.to_owned()),
            None => bail!("the token endpoint answered {status}: {body}"),
        }
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    pub(crate) fn admin(&self) -> &Port {
        &self.admin
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.process.as_ref().context("not running")?.cpu()
    }

    pub(crate) fn resident(&self) -> Result<u64> {
        self.process.as_ref().context("not running")?.resident()
    }

    /// Most memory that was resident so far, in bytes.
    pub(crate) fn peak(&self) -> Result<u64> {
        self.process.as_ref().context("not running")?.peak()
    }
}

fn main_file(dir: &Path, port: &Port, admin: &Port, workers: usize) -> String {
    let (dir, port, admin) = (dir.display(), port.address(), admin.address());
    format!(
        "proxy: {{listen: [\"{port}\"], workers: {workers}}}\n\
         admin: {{listen: \"{admin}\"}}\n\
         store: \"sqlite:{dir}/data/doorward.db\"\n\
         entities: [\"{dir}/routes.yaml\", \"{dir}/more\"]\n\
         identity:\n  base_url: http://{port}\n  \
         hashing: {{memory_kib: 8, passes: 1}}\n  session: {{quota: 20000}}\n  \
         realms:\n    /:\n      users:\n      \
         - {{userName: demo, password: bench-password}}\n      clients:\n      \
         - {{client_id: bench, client_secret: bench-secret, \
         grant_types: [client_credentials], scope: \"read\", \
         resources: [\"http://{port}/tools\"]}}\n      \
         - {{client_id: rsa, client_secret: bench-secret, \
         grant_types: [client_credentials], scope: \"read\", \
         access_token_signed_response_alg: RS256}}\n      \
         - {{client_id: web, client_secret: bench-secret, \
         grant_types: [authorization_code, refresh_token], scope: \"openid read\", \
         require_consent: false, \
         redirect_uris: [\"http://{port}/handle/x\", \"http://{port}/sealed/x\"]}}\n      \
         - {{client_id: people, client_secret: bench-secret, \
         grant_types: [password, refresh_token], scope: \"read\"}}\n\
         broker:\n  products: [{{name: bench, scopes: [read]}}]\n  \
         developers: [{{email: dev@bench.example}}]\n  applications:\n  \
         - {{name: people, developer: dev@bench.example, products: [bench], \
         consumer_key: people}}\n\
         telemetry: {{access_log: \"off\", metrics: true}}\n"
    )
}

fn routes_file(port: &Port, upstream: &Port) -> String {
    let mut file =
        "_format_version: \"3.0\"\nservices:\n- name: identity\n  protocol: internal\n  \
                    host: identity\n  routes: [{name: identity, paths: [/oauth2, /json, /v1, /.well-known], \
                    strip_path: false}]\n"
            .to_owned();
    let bearer = format!(
        "  - name: openid-connect\n    config: {{issuer: \"http://{}/oauth2\", client_id: [bench], \
         client_secret: [bench-secret], auth_methods: [bearer]}}\n",
        port.address()
    );
    let session = |name: &str, storage: &str| {
        let address = port.address();
        format!(
            "  - name: openid-connect\n    config: {{issuer: \"http://{address}/oauth2\", \
             client_id: [web], client_secret: [bench-secret], \
             auth_methods: [session, authorization_code], session_secret: bench, \
             session_storage: {storage}, session_cookie_name: {name}, \
             redirect_uri: [\"http://{address}/{name}/x\"]}}\n"
        )
    };
    let throttling = |policy: &str, requests: u64, duration: &str| {
        format!(
            "  - name: throttling\n    config: {{requestGroupingPolicy: \"{policy}\", \
             rate: {{numberOfRequests: {requests}, duration: {duration}}}}}\n"
        )
    };
    let by_client = "${contexts.client.remoteAddress}";
    let told = format!(
        "  - name: throttling\n    config: {{requestGroupingPolicy: \"{by_client}\", \
         rates: [1000000000/1 s, 1000000000000/1 day], headers: draft}}\n"
    );
    let by_subject = "${contexts.oauth2.accessToken.info.sub}";
    let plenty = 1_000_000_000;
    let brokered = format!(
        "  - name: token-broker\n    config: {{base_path: /brokered, \
         token_endpoint: \"http://{}/oauth2/access_token\"}}\n",
        port.address()
    );
    // What `mcp` makes of its fields for the plugin that checks tokens, but for the end
    // with the session: that gives each request that takes events its own connection.
    let checks = format!(
        "  - name: openid-connect\n    config: {{issuer: \"http://{0}/oauth2\", \
         auth_methods: [bearer], bearer_token_param_type: [header], hide_credentials: true, \
         audience_required: [\"http://{0}/tools\"], scopes_required: [read], \
         upstream_access_token_header: null}}\n",
        port.address()
    );
    let tools = format!(
        "  - name: mcp\n    config: {{resource: \"http://{0}/tools\", \
         issuer: \"http://{0}/oauth2\", scopes_required: [read], rules: \
         [{{tools: [\"delete_*\"], action: deny}}, {{tools: [search], scopes_required: [read]}}]}}\n",
        port.address()
    );
    for (name, plugins) in [
        ("plain", String::new()),
        ("tools", tools),
        ("check", checks),
        ("brokered", brokered),
        ("bearer", bearer.clone()),
        ("cold", bearer.clone()),
        ("handle", session("handle", "store")),
        ("sealed", session("sealed", "cookie")),
        ("throttle", throttling(by_client, plenty, "1 s")),
        ("told", told),
        ("both", bearer + &throttling(by_subject, plenty, "1 s")),
        ("limited", throttling(by_client, 1, "1 day")),
    ] {
        file += &format!(
            "- name: {name}\n  url: http://{}\n  routes: [{{name: {name}, paths: [/{name}], \
             strip_path: false}}]\n",
            upstream.address()
        );
        if !plugins.is_empty() {
            file += &format!("  plugins:\n{plugins}");
        }
    }
    for (name, config) in EVERYDAY.into_iter().chain([(WITHOUT_PLUGIN, "")]) {
        file += &format!(
            "- name: {name}\n  url: http://{}\n  routes: [{{name: {name}, paths: \
             [/everyday/{name}], strip_path: false}}]\n",
            upstream.address()
        );
        if name != WITHOUT_PLUGIN {
            let config = config.replace("@UPSTREAM@", &upstream.address());
            file += &format!("  plugins: [{{name: {name}, config: {{{config}}}}}]\n");
        }
    }
    // The upstream echoes what comes after an upgrade of this path.
    file += &format!(
        "- name: socket\n  url: http://{}\n  routes: [{{name: socket, paths: [/socket], \
         strip_path: false}}]\n",
        upstream.address()
    );
    file
}
