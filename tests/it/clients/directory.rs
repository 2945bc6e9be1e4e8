//! A directory of another maker (OpenLDAP) as a source of passwords.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::ports::Port;
use crate::support::tls::Authority;
use crate::support::{Door, Setup, eventually, http};

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
