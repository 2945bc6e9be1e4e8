//! `doorward explain`: what would happen to a request, and why.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::admin_listener::{self, Connection};
use super::{USAGE, complain, listeners, output};
use crate::boot;
use crate::config::Config;
use doorward_core::clock::Clock;
use doorward_gateway::explain::answer::Explanation;
use doorward_gateway::explain::{Question, Witness, codes, explain};

/// How long a running instance may take for its answer: it may ask a provider.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest answer that is read.
const ANSWER_LIMIT: u64 = 64 << 20;

/// A request to be explained.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The method
    #[arg(required_unless_present = "refusals", default_value = "GET")]
    method: String,
    /// https://HOST/PATH?QUERY, http://…, or a path
    #[arg(required_unless_present = "refusals", default_value = "")]
    url: String,
    /// A header of the request, or @FILE with one a line (@-: standard input),
    /// where no list of processes shows it; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Lists every refusal of the access log, its status and what it means
    #[arg(long, conflicts_with_all = ["method", "url", "headers"])]
    refusals: bool,
    /// Address that the request comes from
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,
    /// Server name of the TLS handshake; by default the URL's host
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Consumer that authentication finds, by name or id
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Most near misses that are shown
    #[arg(long, value_name = "N")]
    near: Option<usize>,
    /// Prints what POST /explain of the admin listener answers
    #[arg(long)]
    json: bool,
    /// Admin listener of the instance to ask; by default the configuration's,
    /// and if nobody answers there, files and store are read
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
}

/// Why nothing could be explained.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Instance(String),
    #[error("-H @{0}: {1}")]
    Headers(String, std::io::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Boot(#[from] boot::BootError),
    #[error(transparent)]
    Question(#[from] doorward_gateway::explain::QuestionError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Explains; the exit status is 1 if no route was found.
pub(super) fn run(arguments: Arguments, file: &Path) -> ExitCode {
    if arguments.refusals {
        return list(arguments.json);
    }
    let headers = match headers(arguments.headers) {
        Ok(headers) => headers,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let question = Question {
        method: arguments.method,
        url: arguments.url,
        headers: headers.into(),
        client: arguments.client,
        sni: arguments.sni,
        http_version: None,
        consumer: arguments.consumer,
        limit: arguments.near,
    };
    let explanation = match answer(&config, arguments.admin.as_deref(), &question) {
        Ok(explanation) => explanation,
        Err(error) => {
            complain(&error);
            return ExitCode::from(USAGE);
        }
    };
    let text = if arguments.json {
        serde_json::to_string_pretty(&explanation).unwrap_or_default() + "\n"
    } else {
        explanation.to_string()
    };
    if let Err(error) = output::try_print(&text) {
        complain(&error);
        return ExitCode::FAILURE;
    }
    match (explanation.route, explanation.file_route) {
        (None, None) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Every refusal, one a line.
fn list(as_json: bool) -> ExitCode {
    let all = codes();
    let text = if as_json {
        serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
    } else {
        all.iter().map(|one| format!("{one}\n")).collect()
    };
    output::print(&text)
}

/// Headers as they were given, with those of files in their place.
fn headers(given: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for header in given {
        let Some(file) = header.strip_prefix('@') else {
            all.push(header);
            continue;
        };
        let text = match file {
            "-" => std::io::read_to_string(std::io::stdin()),
            file => std::fs::read_to_string(file),
        };
        let text = text.map_err(|error| Failure::Headers(file.to_owned(), error))?;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        all.extend(lines.map(str::to_owned));
    }
    Ok(all)
}

fn answer(
    config: &Config,
    admin: Option<&str>,
    question: &Question,
) -> Result<Explanation, Failure> {
    let address = match admin {
        None => config.admin.listen.clone(),
        Some(url) => match url.split_once("://") {
            Some(("http", rest)) => rest.trim_end_matches('/').to_owned(),
            None => url.to_owned(),
            Some(_) => {
                let message = format!("--admin {url}: only http:// can be asked");
                return Err(Failure::Instance(message));
            }
        },
    };
    let connected = admin_listener::connect(&address, PATIENCE);
    match (connected, admin) {
        (Ok((stream, host)), _) => ask(stream, &host, config, question),
        (Err(error), Some(_)) => Err(Failure::Instance(format!("{address}: {error}"))),
        (Err(_), None) => {
            complain(&format!(
                "nobody answers at {address}: reading files and store"
            ));
            offline(config, question)
        }
    }
}

/// Asks a running instance.
fn ask(
    mut stream: Box<dyn Connection>,
    address: &str,
    config: &Config,
    question: &Question,
) -> Result<Explanation, Failure> {
    let body = serde_json::to_string(question)?;
    let token = config.admin.token.as_ref();
    let token = token.map_or(String::new(), |token| {
        format!("Kong-Admin-Token: {}\r\n", token.expose())
    });
    // HTTP/1.0: the answer comes whole and ends with the connection.
    let request = format!(
        "POST /explain HTTP/1.0\r\nHost: {address}\r\n{token}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_LIMIT).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| Failure::Instance(format!("{address}: not an HTTP answer")))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" {
        return Ok(serde_json::from_str(body)?);
    }
    let message = serde_json::from_str::<Value>(body).unwrap_or_default();
    let message = message["message"].as_str().unwrap_or("no message");
    Err(Failure::Instance(format!(
        "{address} answers {status}: {message}"
    )))
}

/// Compiles what the files declare and the store holds; changes nothing.
fn offline(config: &Config, question: &Question) -> Result<Explanation, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let snapshot = runtime.block_on(boot::compile(config, &Clock::system()))?;
    let witness = Witness {
        snapshot: &snapshot,
        listeners: &listeners(config),
    };
    // Keys, sessions and counters are those of the running process.
    Ok(explain(&witness, question)?.alone())
}
