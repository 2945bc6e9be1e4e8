//! The page on other proxies: its nginx and its haproxy stand in front of the
//! program, and the client's address, the scheme and the host arrive.

use std::process::{Child, Command, Stdio};

use reqwest::Certificate;
use serde_json::Value;

use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Door, Setup, eventually};

const PAGE: &str = include_str!("../../docs/how-to-proxies.md");

/// What nginx needs around the block of the page.
const NGINX: &str = "
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
  ssl_certificate @DIR@/site.pem;
  ssl_certificate_key @DIR@/site.pem;
@BLOCK@
}
";

/// What haproxy needs in front of the blocks of the page.
const HAPROXY: &str = "
defaults
  mode http
  timeout connect 60s
  timeout client 60s
  timeout server 60s
@BLOCK@
";

/// A proxy that runs, ended when dropped.
struct Proxy {
    child: Child,
    port: Port,
    /// Trusts the certificate of the site.
    client: reqwest::Client,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The block of the page with this text in it.
fn block(inside: &str) -> &'static str {
    let blocks = PAGE.split("```text\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.contains(inside)).expect(inside)
}

impl Proxy {
    /// Starts `program` with `text`, whose ports and addresses are those of the page.
    async fn start(door: &Door, program: &str, arguments: &[&str], text: &str) -> Self {
        let port = Port::reserve();
        let address = port.authority();
        let authority = Authority::new();
        let server = authority.client("localhost");
        let site = format!("{}{}", server.cert, server.key);
        door.write("site.pem", &site);
        let directory = door.dir().display().to_string();
        let text = text
            .replace("@DIR@", &directory)
            .replace("/etc/haproxy/site.pem", &format!("{directory}/site.pem"))
            .replace("listen 443", &format!("listen {address}"))
            .replace("bind :443", &format!("bind {address}"))
            .replace("127.0.0.1:8000", &door.proxy());
        let text = ["10.0.0.11:8000", "10.0.0.12:8000"]
            .iter()
            .fold(text, |text, page| text.replace(page, &door.proxy()));
        door.write("proxy.conf", &text);
        let child = Command::new(program)
            .args(arguments)
            .arg(door.path("proxy.conf"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: `make test` installs {program}"));
        let root = Certificate::from_pem(authority.pem().as_bytes()).expect("PEM");
        let client = reqwest::Client::builder()
            .no_proxy()
            .add_root_certificate(root)
            .resolve("localhost", address.parse().expect("an address"));
        let client = client.build().expect("a client");
        let proxy = Self {
            child,
            port,
            client,
        };
        eventually("the proxy listens", || {
            let connected = std::net::TcpStream::connect(&address).ok();
            async move { connected }
        })
        .await;
        proxy
    }

    /// What the upstream is told of a request that lies about its client.
    async fn ask(&self) -> Value {
        let url = format!("https://localhost:{}/a%2Fb?c=d", self.port.number());
        let request = self.client.get(url).header("x-forwarded-for", "192.0.2.66");
        let request = request.header("x-forwarded-proto", "gopher");
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        answer.json().await.expect("what the echo says")
    }

    fn check(&self, seen: &Value) {
        let headers = &seen["headers"];
        let port = self.port.number().to_string();
        assert_eq!(headers["x-real-ip"], "127.0.0.1", "{seen}");
        assert_eq!(headers["x-forwarded-proto"], "https", "{seen}");
        assert_eq!(headers["x-forwarded-port"], port, "{seen}");
        assert_eq!(seen["path"], "/a%2Fb", "{seen}");
        assert!(!seen.to_string().contains("192.0.2.66"), "{seen}");
    }
}

/// A door behind a proxy on this machine.
async fn door(proxy: &str) -> Door {
    let echo = "- {name: app, protocol: internal, host: echo, \
                routes: [{name: app, hosts: [localhost], paths: [/]}]}\n";
    let setup = Setup::new().proxy(proxy).services(echo);
    setup.start().await
}

const TRUSTING: &str = "{listen: [\"@PROXY@\"], trusted_ips: [\"127.0.0.1\"], health: true}";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nginx, which `make test` installs"]
async fn nginx_of_the_page_tells_client_scheme_and_host() {
    let door = door(TRUSTING).await;
    let text = NGINX.replace("@BLOCK@", block("proxy_set_header"));
    let nginx = Proxy::start(&door, "nginx", &["-c"], &text).await;
    let seen = nginx.ask().await;
    nginx.check(&seen);
    let host = format!("localhost:{}", nginx.port.number());
    assert_eq!(seen["headers"]["x-forwarded-host"], host, "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs haproxy, which `make test` installs"]
async fn haproxy_of_the_page_tells_client_scheme_and_host() {
    let door = door(TRUSTING).await;
    let text = HAPROXY.replace("@BLOCK@", block("option httpchk"));
    let haproxy = Proxy::start(&door, "haproxy", &["-f"], &text).await;
    let seen = haproxy.ask().await;
    haproxy.check(&seen);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs haproxy, which `make test` installs"]
async fn the_proxy_protocol_of_the_page_tells_the_client_in_front_of_tls() {
    let tls = Port::reserve();
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"]}}, proxy_protocol_from: [\"127.0.0.1\"]}}",
        tls.authority()
    );
    let door = door(&proxy).await;
    let page = block("send-proxy-v2").replace("10.0.0.11:8443", &tls.authority());
    let text = HAPROXY.replace("@BLOCK@", &page);
    let haproxy = Proxy::start(&door, "haproxy", &["-f"], &text).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .danger_accept_invalid_certs(true);
    let client = client.build().expect("a client");
    let url = format!("https://localhost:{}/", haproxy.port.number());
    let seen: Value = eventually("the balancer finds its server", || {
        let request = client.get(&url).send();
        async move { request.await.ok()?.json().await.ok() }
    })
    .await;
    assert_eq!(seen["headers"]["x-real-ip"], "127.0.0.1", "{seen}");
}
