//! `/debug` and `/timers`: the log of this node, and what it does by the clock.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::call::Call;
use super::endpoint::{Endpoint, READ, endpoint};
use super::entity::Answer;
use super::error::ApiError;
use super::nodes;
use super::reply;
use doorward_core::openapi::{Operation, Parameter, fields, text};
use doorward_net::telemetry::log_levels::{LevelOutcome, level_in_force, level_named, log_levels};

/// Its endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/debug/node/log-level", READ, level, level_operation),
    endpoint(
        "/debug/node/log-level/{level}",
        &["PUT"],
        choose,
        choose_operation,
    ),
    endpoint(
        "/debug/cluster/log-level/{level}",
        &["PUT"],
        choose_everywhere,
        choose_everywhere_operation,
    ),
    endpoint("/timers", READ, timers, timers_operation),
];

/// Seconds for which a level holds, unless the request says.
const HOLDS: u32 = 60;

/// `GET /debug/node/log-level`.
fn level(_: Call) -> Answer {
    Box::pin(async move { Ok(message(&format!("log level: {}", level_in_force()))) })
}

/// `PUT /debug/node/log-level/{level}`: the level of this node's log, for a while.
fn choose(call: Call) -> Answer {
    Box::pin(async move { choose_here(&call) })
}

/// `PUT /debug/cluster/log-level/{level}`. A node does not change the log of another:
/// it is refused where others share the store.
fn choose_everywhere(call: Call) -> Answer {
    Box::pin(async move {
        if nodes::has_others(&call).await? {
            return Err(ApiError::Argument(
                "other nodes share the store: change each by /debug/node/log-level".to_owned(),
            ));
        }
        choose_here(&call)
    })
}

fn choose_here(call: &Call) -> Result<Response, ApiError> {
    let wanted = call.param(0);
    let Some(name) = level_named(wanted) else {
        return Err(ApiError::Argument(format!("unknown log level: {wanted}")));
    };
    let holds = holds(call)?;
    let same = || message(&format!("log level is already {name}"));
    let Some(levels) = log_levels() else {
        // Nothing is logged, which can't be changed.
        return (level_in_force() == name)
            .then(same)
            .ok_or(ApiError::NotFound);
    };
    let change = match levels.choose(name) {
        LevelOutcome::Changed(change) => change,
        LevelOutcome::Same => return Ok(same()),
        LevelOutcome::Failed => return Err(ApiError::LogLevel),
    };
    if let Some(holds) = holds {
        tokio::spawn(async move {
            tokio::time::sleep(holds).await;
            levels.take_back(change);
        });
    }
    Ok(message("log level changed"))
}

/// For how long the level holds; `None`: as long as the process runs.
fn holds(call: &Call) -> Result<Option<Duration>, ApiError> {
    let wanted = call.query.iter().find(|(name, _)| name == "timeout");
    let seconds = match wanted {
        None => HOLDS,
        Some((_, text)) => text.parse().map_err(|_| {
            let message = "timeout must be greater than or equal to 0";
            ApiError::Argument(message.to_owned())
        })?,
    };
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.into())))
}

fn message(text: &str) -> Response {
    reply::json(StatusCode::OK, &json!({"message": text}))
}

/// `GET /timers`. Tasks of this process are no timers of the imitated gateway's
/// kind: there are none.
fn timers(_: Call) -> Answer {
    Box::pin(async move {
        let body = json!({
            "worker": {"id": 0, "count": 1},
            "stats": {
                "sys": {"total": 0, "runs": 0, "running": 0, "pending": 0, "waiting": 0},
                "timers": {},
                "flamegraph": {"running": "", "pending": "", "elapsed_time": ""},
            },
        });
        Ok(reply::json(StatusCode::OK, &body))
    })
}

fn message_schema() -> Value {
    fields([("message", text())], &["message"])
}

/// What the description says of the level.
fn level_operation(_: &str) -> Operation {
    Operation::new("Tells the level of this node's log.").answers(
        200,
        "The least severe level that is logged.",
        &message_schema(),
    )
}

/// What the description says of its change.
fn choose_operation(_: &str) -> Operation {
    let seconds = json!({"type": "integer", "minimum": 0, "default": HOLDS});
    Operation::new("Changes the level of this node's log for a while.")
        .names(
            "level",
            "`debug`, `info`, `notice`, `warn`, `error`, `crit`, `alert` or `emerg`.",
        )
        .takes([Parameter::query(
            "timeout",
            seconds,
            "Seconds after which the level is again what it was at the start; 0: never.",
        )])
        .answers(200, "Whether it was another one.", &message_schema())
        .refuses(&["400"])
}

/// What the description says of its change on every node.
fn choose_everywhere_operation(method: &str) -> Operation {
    choose_operation(method).description(
        "It is refused with 400 where other nodes share the store: each changes its own.",
    )
}

/// What the description says of timers.
fn timers_operation(_: &str) -> Operation {
    let object = || json!({"type": "object"});
    let members = [("worker", object()), ("stats", object())];
    let body = fields(members, &["worker", "stats"]);
    Operation::new("Shows timers, of which there are none.").answers(200, "None.", &body)
}
