//! What requests show to be let in: tokens, and the cookies of a browser that
//! has signed in.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::client::{Client, header};
use crate::door::Door;
use crate::process::Port;

/// Tokens of one round that nobody has seen: more than a second takes of one
/// worker.
const UNSEEN: usize = 16_000;

/// Connections on which they are asked for.
const ASKING: usize = 4;

const UNSEEN_FORM: &str =
    "grant_type=client_credentials&client_id=rsa&client_secret=bench-secret&scope=read";

/// All of it; what could not be had is `None`, and so are its cases.
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    /// One that the broker gave.
    pub(crate) brokered: Option<String>,
    /// The cookie of a session in the store.
    pub(crate) handle: Option<String>,
    /// Cookies with a session sealed in them.
    pub(crate) sealed: Option<String>,
    /// Where the tokens are that nobody has seen.
    dir: TempDir,
}

impl Credentials {
    pub(crate) fn get(door: &Door) -> Result<Self> {
        let had = |what: &str, outcome: Result<String>| match outcome {
            Ok(shown) => Some(shown),
            Err(error) => {
                println!("no {what}: {error:#}");
                None
            }
        };
        Ok(Self {
            token: had("token", door.token()),
            brokered: had("brokered token", door.brokered_token()),
            handle: had("session by handle", sign_in(door.port(), "/handle/x")),
            sealed: had("sealed session", sign_in(door.port(), "/sealed/x")),
            dir: TempDir::new()?,
        })
    }

    /// The script by which wrk shows another token with every request.
    pub(crate) fn unseen(&self) -> PathBuf {
        self.dir.path().join("unseen.lua")
    }

    /// Has new tokens for that, signed with RS256.
    pub(crate) fn renew_unseen(&self, port: &Port, workers: usize) -> Result<()> {
        let count = UNSEEN * workers;
        let tokens = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..ASKING)
                .map(|_| scope.spawn(move || ask_for(port, count / ASKING)))
                .collect();
            let mut all = String::new();
            for some in asking {
                match some.join() {
                    Ok(tokens) => all += &tokens?,
                    Err(_) => bail!("no tokens"),
                }
            }
            Ok(all)
        })?;
        let file = self.dir.path().join("unseen");
        std::fs::write(&file, tokens)?;
        let mut lua = String::new();
        writeln!(
            lua,
            "local tokens, n = {{}}, 0\n\
             for line in io.lines('{}') do tokens[#tokens + 1] = 'Bearer ' .. line end\n\
             function request()\n\
             n = n % #tokens + 1\n\
             wrk.headers['Authorization'] = tokens[n]\n\
             return wrk.format()\n\
             end",
            file.display()
        )?;
        Ok(std::fs::write(self.unseen(), lua)?)
    }
}

/// Tokens, a line each.
fn ask_for(port: &Port, count: usize) -> Result<String> {
    let mut client = Client::connect(port)?;
    let mut lines = String::new();
    for _ in 0..count {
        let form = "application/x-www-form-urlencoded";
        let answer = client.send("POST", "/oauth2/access_token", form, UNSEEN_FORM)?;
        let answer = String::from_utf8_lossy(&answer);
        let token = answer.split_once("\"access_token\":\"");
        let token = token.and_then(|(_, rest)| rest.split_once('"'));
        let (token, _) = token.with_context(|| format!("no token in {answer}"))?;
        lines += token;
        lines.push('\n');
    }
    Ok(lines)
}

/// Signs in at a route as a browser does; its cookies there.
fn sign_in(port: &Port, path: &str) -> Result<String> {
    let mut client = Client::connect(port)?;
    let answer = client.shown(path, "")?;
    let state = cookies(&answer);
    let at_provider = header(&answer, "location").context("nobody asks for a sign-in")?;
    let authorize = behind_host(&at_provider)?;
    let session = client.authenticate()?;
    let answer = client.shown(
        authorize,
        &format!("Cookie: iPlanetDirectoryPro={session}\r\n"),
    )?;
    let back = header(&answer, "location").with_context(|| format!("no way back: {answer}"))?;
    let answer = client.shown(behind_host(&back)?, &format!("Cookie: {state}\r\n"))?;
    let mine = cookies(&answer);
    if answer.contains(" 200 ") && !mine.is_empty() {
        Ok(mine)
    } else {
        bail!("the sign-in ended with {answer:.300}")
    }
}

/// The cookies that an answer sets, but for those that it takes back.
fn cookies(head: &str) -> String {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let set = fields.filter(|(name, value)| {
        name.eq_ignore_ascii_case("set-cookie") && !value.contains("Max-Age=0")
    });
    let pairs: Vec<&str> = set
        .filter_map(|(_, value)| value.split(';').next())
        .collect();
    pairs.join("; ")
}

/// Path and query of an address.
fn behind_host(address: &str) -> Result<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let slash = rest.find('/').context("no path")?;
    Ok(&rest[slash..])
}
