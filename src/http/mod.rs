//! HTTP plumbing below the parts: an axum `Router` under Pingora, the
//! outbound client, replies.

pub mod outbound;
pub mod reply;
