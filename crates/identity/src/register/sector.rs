//! The list of redirect URIs that several clients share (OpenID Connect
//! Registration §5).

use serde_json::Value;
use url::Url;

use super::metadata::Refused;
use crate::Call;
use doorward_core::model::client::ClientMetadata;
use doorward_net::http::outbound::{Bounds, ChosenBy};

/// Asks the sector whether the client's redirect URIs are among its own. What
/// went wrong is told to the operator alone: it would show our network.
pub(super) async fn check(call: &Call, metadata: &ClientMetadata) -> Result<(), Refused> {
    let Some(address) = &metadata.sector_identifier_uri else {
        return Ok(());
    };
    let wrong = |text: &str| Refused::metadata(format!("sector_identifier_uri: {text}"));
    if metadata.redirect_uris.is_empty() {
        // Any list holds all of none: anybody would be of any sector.
        return Err(wrong("needs redirect_uris, to be held against its list"));
    }
    let url = Url::parse(address).map_err(|_| wrong("is no URL"))?;
    let outbound = &call.state.outbound;
    let document = outbound.document(&url, ChosenBy::Stranger, Bounds::default());
    let document = document.await.map_err(|error| {
        doorward_net::telemetry::warn_limited!(%url, %error, "a sector could not be asked for its redirect URIs");
        wrong("could not be fetched")
    })?;
    let listed: Vec<Value> =
        serde_json::from_slice(&document).map_err(|_| wrong("is no JSON array"))?;
    let known = |uri: &String| listed.iter().any(|one| one == uri);
    if metadata.redirect_uris.iter().all(known) {
        Ok(())
    } else {
        Err(wrong("does not hold every one of redirect_uris"))
    }
}
