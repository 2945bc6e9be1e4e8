//! Proxies of other makers ask the gateway, configured as the page shows it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::forward_auth::signing_in;
use crate::openid_connect_login::Browser;
use crate::support::ports::Port;
use crate::support::process::Process;
use crate::support::{Answer, Door, Setup, Upstream, eventually, http};

const PAGE: &str = include_str!("../../docs/forward-auth.md");
const PROJECT: &str = env!("CARGO_MANIFEST_DIR");

/// A proxy of another maker.
#[derive(Clone, Copy)]
struct Maker {
    /// The heading of its recipe.
    heading: &'static str,
    /// What the recipe stands in: `@BLOCK@` at the start of a line.
    frame: &'static str,
    /// How the program is started with the file.
    start: fn(file: PathBuf) -> Command,
}

const NGINX: Maker = Maker {
    heading: "nginx",
    frame: "
daemon off;
master_process off;
pid @DIR@/nginx.pid;
error_log @DIR@/nginx.log;
events {}
http {
  access_log off;
  client_body_temp_path @DIR@/nginx-body;
  proxy_temp_path @DIR@/nginx-proxy;
  fastcgi_temp_path @DIR@/nginx-fastcgi;
  uwsgi_temp_path @DIR@/nginx-uwsgi;
  scgi_temp_path @DIR@/nginx-scgi;
  server {
    listen 127.0.0.1:@PORT@;
@BLOCK@
  }
}
",
    start: |file| with("nginx", &["-c"], file),
};

const HAPROXY: Maker = Maker {
    heading: "haproxy",
    frame: "
defaults
  timeout connect 60s
  timeout client 60s
  timeout server 60s
@BLOCK@
",
    start: |file| with("haproxy", &["-f"], file),
};

const CADDY: Maker = Maker {
    heading: "Caddy",
    frame: "
{
  admin off
  auto_https off
}
@BLOCK@
",
    start: |file| {
        // It saves what it runs there.
        let own = file.with_file_name("caddy");
        let arguments = ["run", "--adapter", "caddyfile", "--config"];
        let mut command = with("caddy", &arguments, file);
        command.env("XDG_CONFIG_HOME", &own);
        command.env("XDG_DATA_HOME", own);
        command
    },
};

const ENVOY: Maker = Maker {
    heading: "Envoy",
    frame: r#"
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: @PORT@}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          use_remote_address: true
          route_config:
            virtual_hosts:
            - {name: app, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: app}}]}
@BLOCK@
  clusters:
  - name: app
    load_assignment: {cluster_name: app, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: @APP@}}}}]}]}
  - name: doorward
    load_assignment: {cluster_name: doorward, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: @DOOR@}}}}]}]}
"#,
    start: |file| {
        let modules = format!("{PROJECT}/target/clients/venv/lib");
        let mut versions = std::fs::read_dir(&modules).expect("`make test` installs Envoy");
        let version = versions
            .next()
            .expect("a version of Python")
            .expect("an entry");
        let program = version.path().join("site-packages/envoy/_bin/envoy");
        let arguments = ["--concurrency", "1", "--use-dynamic-base-id", "-c"];
        with(program.to_str().expect("UTF-8"), &arguments, file)
    },
};

fn with(program: &str, arguments: &[&str], file: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg(file);
    command
}

/// A proxy that stands before `app`.
struct Proxy {
    _process: Process,
    port: Port,
}

impl Maker {
    /// The recipe of the page.
    fn block(self) -> &'static str {
        let (_, section) = PAGE
            .split_once(&format!("\n## {}\n", self.heading))
            .expect(self.heading);
        let block = section.split("```text\n").nth(1).expect("a block");
        block.split("```").next().expect("its end")
    }

    /// Starts it before `app`, to ask at `gate`.
    async fn start(self, door: &Door, gate: &str, app: &Upstream) -> Proxy {
        let port = Port::reserve();
        let address = port.authority();
        let block = self.block();
        // Envoy's block stands inside of others.
        let is_indented = self.frame.contains("static_resources");
        let indent = if is_indented { "          " } else { "" };
        let block = block.lines().map(|line| format!("{indent}{line}\n"));
        let block: String = block.collect();
        let app = app.address();
        let text = self
            .frame
            .replace("@BLOCK@", &block)
            .replace("@DIR@", &door.dir().display().to_string())
            .replace("@PORT@", &port.number().to_string())
            .replace("@APP@", &app.port().to_string())
            .replace("@DOOR@", gate.rsplit(':').next().expect("a port"))
            .replace("/usr/share/doorward", &format!("{PROJECT}/deploy"))
            .replace(":443 ssl crt /etc/haproxy/site.pem", &address)
            .replace("app.example {", &format!("http://:{} {{", port.number()))
            .replace("doorward:8000", gate)
            .replace("app:8080", &app.to_string());
        door.write("proxy.yaml", &text);
        let mut command = (self.start)(door.path("proxy.yaml"));
        let log = std::fs::File::create(door.path("proxy.log")).expect("a file");
        command.stdout(Stdio::null()).stderr(log);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: `make test` installs {}", self.heading));
        let process = Process(child);
        eventually("the proxy listens", || {
            let connected = std::net::TcpStream::connect(&address).ok();
            async move { connected }
        })
        .await;
        Proxy {
            _process: process,
            port,
        }
    }

    async fn keeps_its_recipe(self) {
        self.lets_pass_whom_the_gateway_knows().await;
        self.signs_browsers_in().await;
        self.lets_nobody_pass_without_an_answer().await;
    }

    /// Only those with a password pass, and nobody says who they are but the gateway.
    async fn lets_pass_whom_the_gateway_knows(self) {
        let app = Upstream::echo().await;
        let door = guarded("  - {name: basic-auth}\n").await;
        let proxy = self.start(&door, &door.proxy(), &app).await;
        proxy.ask(None).await.expect(401);
        let refused = proxy.ask(Some("wrong")).await.expect(401);
        assert!(refused.header("www-authenticate").starts_with("Basic"));
        assert!(app.seen().is_empty());
        let seen = proxy.ask(Some("secret")).await.expect(200).json();
        assert_eq!(seen["headers"]["x-credential-identifier"], "anna");
        assert_eq!(seen["target"], "/orders?a=1");
        let url = format!("http://{}/orders", proxy.port.authority());
        let posted = http::client().post(url).header("host", "app.test");
        let posted = posted.basic_auth("anna", Some("secret")).body("x=1");
        assert_eq!(http::send(posted).await.expect(200).json()["body"], "x=1");

        // The gateway says nothing of those who pass: then nobody does.
        let door = guarded("  - {name: correlation-id}\n").await;
        let proxy = self.start(&door, &door.proxy(), &app).await;
        proxy.ask(None).await.expect(200);
        let told = app
            .last()
            .header("x-credential-identifier")
            .map(str::to_owned);
        let is_placeholder = |told: &str| self.heading == "Caddy" && told.starts_with("{http.");
        assert!(told.as_deref().is_none_or(is_placeholder), "{told:?}");
    }

    async fn signs_browsers_in(self) {
        let app = Upstream::echo().await;
        let door = signing_in().await;
        let proxy = self.start(&door, &door.proxy(), &app).await;
        let mut browser = Browser::at(&door);
        browser.proxy = Some(proxy.port.authority());
        let page = "http://api.test/orders?a=%201";
        let answer = browser.sign_in(page).await.expect(302);
        assert_eq!(answer.header("location"), page);
        assert!(app.seen().is_empty());
        let seen = browser.get(page).await.expect(200).json();
        assert_eq!(seen["headers"]["x-credential-identifier"], "demo");
        assert_eq!(seen["target"], "/orders?a=%201");
    }

    async fn lets_nobody_pass_without_an_answer(self) {
        let app = Upstream::echo().await;
        let door = Setup::new().lay_out();
        let nobody = Port::reserve();
        let proxy = self.start(&door, &nobody.authority(), &app).await;
        let answer = proxy.ask(Some("secret")).await;
        assert!(matches!(answer.status, 403 | 500..=504), "{answer:?}");
        assert!(app.seen().is_empty());
    }
}

impl Proxy {
    /// A request that says itself who it is of, with this password of anna's.
    async fn ask(&self, password: Option<&str>) -> Answer {
        let url = format!("http://{}/orders?a=1", self.port.authority());
        let request = http::client().get(url).header("host", "app.test");
        let request = request.header("x-credential-identifier", "root");
        let request = request.header("x-forwarded-host", "evil.test");
        http::send(match password {
            Some(password) => request.basic_auth("anna", Some(password)),
            None => request,
        })
        .await
    }
}

/// A door whose gate has this plugin.
async fn guarded(plugin: &str) -> Door {
    let services = format!(
        "- name: gate\n  protocol: internal\n  host: forward-auth\n  \
         routes: [{{name: gate, paths: [/gate]}}]\n  plugins:\n{plugin}\
         consumers:\n- username: anna\n  basicauth_credentials: [{{username: anna, password: secret}}]\n"
    );
    let proxy = "{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.1], forward_auth_hosts: [app.test]}";
    Setup::new().proxy(proxy).services(&services).start().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nginx, which `make test` installs"]
async fn nginx_of_the_page_asks_the_gateway_and_signs_browsers_in() {
    NGINX.keeps_its_recipe().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs haproxy, which `make test` installs"]
async fn haproxy_of_the_page_asks_the_gateway_and_signs_browsers_in() {
    HAPROXY.keeps_its_recipe().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Caddy, which `make test` installs"]
async fn caddy_of_the_page_asks_the_gateway_and_signs_browsers_in() {
    CADDY.keeps_its_recipe().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy, which `make test` installs"]
async fn envoy_of_the_page_asks_the_gateway_and_signs_browsers_in() {
    ENVOY.keeps_its_recipe().await;
}
