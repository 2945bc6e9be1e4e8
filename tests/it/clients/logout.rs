//! Logouts that begin at a provider of another maker.

use super::{Stage, node};
use crate::login_sessions::Server;
use crate::support::Setup;
use crate::support::ports::Port;

#[tokio::test]
#[ignore = "needs node and its packages, which `make test` installs"]
async fn who_signs_out_at_a_certified_provider_is_out_in_every_storage() {
    let redis = Server::redis(Port::reserve()).await;
    let memcached = Server::memcached(Port::reserve()).await;
    let stage = Stage::plain(Setup::new().start().await);
    let mut command = node("relying-logout.mjs");
    command
        .env("DOORWARD_REDIS", redis.port.number().to_string())
        .env("DOORWARD_MEMCACHED", memcached.port.number().to_string());
    stage.run(command).await;
}
