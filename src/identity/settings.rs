//! Checking the settings of a realm.

use ipnet::IpNet;

use super::config::RealmSettings;
use crate::model::grant::MAX_TOKEN_LIFE_MS;
use crate::model::user::schema::RecordError;

/// Longest time in which a spent refresh token is good for a retry, in seconds.
pub(super) const GRACE_MAX: u32 = 300;

/// Refuses values out of bounds.
pub(super) fn check(settings: &RealmSettings) -> Result<(), RecordError> {
    let most = u32::try_from(MAX_TOKEN_LIFE_MS / 1000).unwrap_or(u32::MAX);
    for (name, value, most) in [
        (
            "access_token_lifetime",
            settings.access_token_lifetime,
            most,
        ),
        ("id_token_lifetime", settings.id_token_lifetime, most),
        (
            "refresh_token_lifetime",
            settings.refresh_token_lifetime,
            u32::MAX,
        ),
        ("grant_lifetime", settings.grant_lifetime, u32::MAX),
    ] {
        if value == 0 || value > most {
            let text = format!("must be from 1 to {most} seconds");
            return Err(RecordError::new(name, text));
        }
    }
    if settings.refresh_token_grace > GRACE_MAX {
        let text = format!("must be at most {GRACE_MAX} seconds");
        return Err(RecordError::new("refresh_token_grace", text));
    }
    for (name, alg) in [
        (
            "access_token_signed_response_alg",
            settings.access_token_signed_response_alg,
        ),
        (
            "id_token_signed_response_alg",
            settings.id_token_signed_response_alg,
        ),
    ] {
        if alg.is_shared() {
            let text = "must be signed with a key of the provider: no HS256, HS384 or HS512";
            return Err(RecordError::new(name, text));
        }
    }
    Ok(())
}

/// Where the administrator may sign in from, if that is restricted.
pub(super) fn networks(settings: &RealmSettings) -> Result<Option<Vec<IpNet>>, RecordError> {
    let Some(addresses) = &settings.admin_addresses else {
        return Ok(None);
    };
    let parse = |(index, text): (usize, &String)| {
        let address = text.parse::<std::net::IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).map_err(|_| {
            let at = format!("admin_addresses[{index}]");
            RecordError::new(at, "is no IP address or network")
        })
    };
    let networks = addresses.iter().enumerate().map(parse);
    networks.collect::<Result<_, _>>().map(Some)
}
