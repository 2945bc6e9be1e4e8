//! A directory of another maker (OpenLDAP) as a source of passwords.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Door, Setup, Upstream, eventually, http};

/// Where Debian's programs for administrators are, which are on no user's path.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = [
        "/usr/sbin".into(),
        "/usr/local/sbin".into(),
        "/usr/libexec".into(),
    ];
    let mut all = std::env::split_paths(&path).chain(more);
    let found = all.find_map(|directory| Some(directory.join(name)).filter(|at| at.is_file()));
    found.unwrap_or_else(|| panic!("{name} is missing; `make test` installs it"))
}

const CONF: &str = "
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile @DIR@/slapd.pid
TLSCACertificateFile @DIR@/ca.pem
TLSCertificateFile @DIR@/ldap.pem
TLSCertificateKeyFile @DIR@/ldap.key
database mdb
suffix dc=x
rootdn cn=door,dc=x
rootpw \"service secret\"
directory @DIR@/ldap
index uid eq
";

const PEOPLE: &str = "
dn: dc=x
objectClass: dcObject
objectClass: organization
o: x
dc: x

dn: ou=people,dc=x
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=x
objectClass: inetOrgPerson
uid: ann
cn: Ann A
sn: A
mail: ann@x.example
userPassword: her secret

dn: uid=a*b,ou=people,dc=x
objectClass: inetOrgPerson
uid: a*b
cn: Star
sn: Star
userPassword: star secret
";

/// A running directory, and a door that asks it.
struct Stage {
    door: Door,
    slapd: Child,
    _ports: [Port; 2],
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.slapd.kill();
        let _ = self.slapd.wait();
    }
}

impl Stage {
    /// A door whose realms ask the directory in different ways.
    async fn set() -> Self {
        let (plain, secure) = (Port::reserve(), Port::reserve());
        let realms = REALMS
            .replace("@PLAIN@", &format!("ldap://{}", plain.authority()))
            .replace("@SERVICE@", SERVICE)
            .replace("@SECURE@", &format!("ldaps://{}", secure.authority()));
        let identity = format!("\n  base_url: http://@PROXY@{realms}");
        let mut door = Setup::new().identity(&identity).lay_out();
        let slapd = slapd(&door, &plain, &secure).await;
        door.start().await;
        Self {
            door,
            slapd,
            _ports: [plain, secure],
        }
    }

    async fn status(&self, realm: &str, name: &str, password: &str) -> u16 {
        let path = format!("/json/realms/root/realms/{realm}/authenticate");
        let request = http::client()
            .post(self.door.proxy_url(&path))
            .header("x-service-username", name)
            .header("x-service-password", password);
        http::send(request).await.status
    }
}

/// Puts a directory into the files of a door, and starts it on these ports.
async fn slapd(door: &Door, plain: &Port, secure: &Port) -> Child {
    let authority = Authority::new();
    let server = authority.client("127.0.0.1");
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("other.pem", Authority::new().pem()),
        ("ldap.pem", server.cert),
        ("ldap.key", server.key),
        ("people.ldif", PEOPLE.trim_start().to_owned()),
    ] {
        door.write(name, &text);
    }
    door.write("slapd.conf", CONF);
    std::fs::create_dir(door.path("ldap")).expect("a directory");
    let conf = door.path("slapd.conf");
    let added = Command::new(program("slapadd"))
        .args(["-f".as_ref(), conf.as_os_str(), "-l".as_ref()])
        .arg(door.path("people.ldif"))
        .output()
        .expect("slapadd runs");
    assert!(
        added.status.success(),
        "{}",
        String::from_utf8_lossy(&added.stderr)
    );
    serve(door, plain, secure).await
}

/// Starts the directory in the files of a door.
async fn serve(door: &Door, plain: &Port, secure: &Port) -> Child {
    let conf = door.path("slapd.conf");
    let urls = format!(
        "ldap://{} ldaps://{}",
        plain.authority(),
        secure.authority()
    );
    let slapd = Command::new(program("slapd"))
        .args(["-d", "0", "-h", &urls, "-f"])
        .arg(&conf)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("slapd runs");
    let address = plain.authority();
    eventually("the directory answers", || {
        let address = address.clone();
        async move { tokio::net::TcpStream::connect(address).await.ok() }
    })
    .await;
    slapd
}

const REALMS: &str = r#"
  realms:
    /secure:
      settings:
        ldap: {urls: ["@SECURE@"], ca_file: "@DIR@/ca.pem", @SERVICE@}
    /upgraded:
      settings:
        ldap: {urls: ["@PLAIN@"], starttls: true, ca_file: "@DIR@/ca.pem", @SERVICE@}
    /plain:
      settings:
        ldap: {urls: ["@PLAIN@"], user_dn: "uid={name},ou=people,dc=x", create: true}
    /deceived:
      settings:
        ldap: {urls: ["@SECURE@"], ca_file: "@DIR@/other.pem", @SERVICE@}
    /careless:
      settings:
        ldap: {urls: ["@SECURE@"], tls_verify: false, @SERVICE@}
"#;

const SERVICE: &str = r#"bind_dn: "cn=door,dc=x", bind_password: "service secret",
          base_dn: "dc=x", id_attribute: entryUUID, create: true"#;

#[tokio::test]
#[ignore = "needs slapd, which `make test` installs"]
async fn passwords_of_a_directory_of_another_maker() {
    let mut stage = Stage::set().await;
    for realm in ["secure", "upgraded", "plain", "careless"] {
        for _ in 0..3 {
            assert_eq!(
                stage.status(realm, "ann", "her secret").await,
                200,
                "{realm}"
            );
        }
        for (name, password) in [
            ("ann", "wrong"),
            ("nobody", "her secret"),
            ("ann", ""),
            ("*", "her secret"),
            ("a*", "star secret"),
            ("ann)(uid=*", "her secret"),
            ("ann,ou=people", "her secret"),
        ] {
            let status = stage.status(realm, name, password).await;
            assert!(matches!(status, 400 | 401), "{realm} {name}: {status}");
        }
        assert_eq!(
            stage.status(realm, "a*b", "star secret").await,
            200,
            "{realm}"
        );
    }
    assert_eq!(stage.status("deceived", "ann", "her secret").await, 503);
    let links = stage.door.run(&[
        "users",
        "-c",
        "doorward.yaml",
        "--realm",
        "/secure",
        "identities",
        "ann",
    ]);
    let links = String::from_utf8_lossy(&links.stdout).into_owned();
    assert!(links.contains("ldap:ldap"), "{links}");
    stage.slapd.kill().expect("our own process");
    stage.slapd.wait().expect("our own process");
    for _ in 0..5 {
        assert_eq!(stage.status("secure", "ann", "wrong").await, 503);
    }
}

const GUARDED: &str = r#"
- name: api
  url: @UPSTREAM@
  routes:
  - name: plain
    paths: [/plain]
    plugins: [{name: ldap-auth, config: {@COMMON@, ldap_port: @PLAIN@, hide_credentials: true}}]
  - name: secure
    paths: [/secure]
    plugins:
    - name: ldap-auth
      config: {@COMMON@, ldap_port: @SECURE@, ldaps: true, verify_ldap_host: true}
  - name: upgraded
    paths: [/upgraded]
    plugins:
    - name: ldap-auth
      config: {@COMMON@, ldap_port: @PLAIN@, start_tls: true, verify_ldap_host: true}
  - name: patient
    paths: [/patient]
    plugins: [{name: ldap-auth, config: {@COMMON@, ldap_port: @PLAIN@, cache_ttl: 86400}}]
"#;
const COMMON: &str = "ldap_host: 127.0.0.1, base_dn: 'ou=people,dc=x', attribute: uid, \
                      cache_ttl: 0";

/// The status of a request with a name and a password.
async fn ldap_auth(door: &Door, path: &str, name: &str, password: &str) -> u16 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let login = STANDARD.encode(format!("{name}:{password}"));
    let header = format!("ldap {login}");
    let answer = door.get_with(path, &[("authorization", &header)]).await;
    if answer.status == 401 {
        assert_eq!(answer.header("www-authenticate"), "LDAP");
        assert_eq!(answer.json()["message"], "Unauthorized");
    }
    answer.status
}

#[tokio::test]
#[ignore = "needs slapd, which `make test` installs"]
async fn ldap_auth_asks_a_directory_of_another_maker_that_stops_and_comes_back() {
    let upstream = Upstream::echo().await;
    let (plain, secure) = (Port::reserve(), Port::reserve());
    let services = GUARDED
        .replace(
            "@COMMON@, ldap_port: @PLAIN@, cache_ttl",
            "@LASTING@, ldap_port: @PLAIN@, cache_ttl",
        )
        .replace("@LASTING@", COMMON.trim_end_matches(", cache_ttl: 0"))
        .replace("@COMMON@", COMMON)
        .replace("@UPSTREAM@", &upstream.url(""))
        .replace("@PLAIN@", &plain.number().to_string())
        .replace("@SECURE@", &secure.number().to_string());
    let setup = Setup::new().services(&services);
    let mut door = setup.env("SSL_CERT_FILE", "ca.pem").lay_out();
    let mut directory = slapd(&door, &plain, &secure).await;
    door.start().await;
    for path in ["/plain", "/secure", "/upgraded", "/patient"] {
        for (name, password, status) in [
            ("ann", "her secret", 200),
            ("ann", "another", 401),
            ("ann", "", 401),
            ("nobody", "her secret", 401),
            // No place of its own: `uid=ann,ou=people,dc=x` and more.
            ("ann,ou=people,dc=x", "her secret", 401),
            ("a*b", "star secret", 200),
            ("a*", "star secret", 401),
            ("*", "her secret", 401),
        ] {
            let found = ldap_auth(&door, path, name, password).await;
            assert_eq!(found, status, "{path} {name}");
        }
    }
    assert_eq!(ldap_auth(&door, "/plain", "ann", "her secret").await, 200);
    let seen = upstream.last();
    assert_eq!(seen.all("x-credential-identifier"), ["ann"]);
    assert!(seen.all("authorization").is_empty());
    // The directory has gone: what is remembered counts, and nothing else does.
    directory.kill().expect("our own process");
    directory.wait().expect("our own process");
    assert_eq!(ldap_auth(&door, "/patient", "ann", "her secret").await, 200);
    assert_eq!(ldap_auth(&door, "/patient", "ann", "another").await, 401);
    for path in ["/plain", "/secure", "/upgraded"] {
        assert_eq!(ldap_auth(&door, path, "ann", "her secret").await, 500);
    }
    // It is back: connections that it has ended do no harm.
    let mut directory = serve(&door, &plain, &secure).await;
    for path in ["/plain", "/secure", "/upgraded", "/patient"] {
        assert_eq!(ldap_auth(&door, path, "ann", "her secret").await, 200);
    }
    directory.kill().expect("our own process");
    directory.wait().expect("our own process");
}
