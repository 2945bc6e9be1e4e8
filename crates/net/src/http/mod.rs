//! HTTP plumbing below the parts: an axum `Router` under Pingora, the
//! outbound client, replies.

pub mod accept;
pub mod authority;
pub mod basic;
pub mod bridge;
pub mod challenges;
pub mod cipher_suites;
pub mod cork;
pub mod encoded_word;
pub mod form;
pub mod framing;
pub mod guess_limit;
pub mod handshake;
pub mod head;
pub mod key_exchange;
pub mod listener;
pub mod multipart;
pub mod networks;
pub mod outbound;
pub mod path;
pub mod plain_session;
pub mod provider_error;
pub mod proxy_header;
pub mod proxy_protocol;
pub mod quality;
pub mod reply;
pub mod server_name;
pub mod session;
pub mod stream;
pub mod system_authorities;
pub mod tls;
pub mod upload;

pub use bridge::ClientInfo;
