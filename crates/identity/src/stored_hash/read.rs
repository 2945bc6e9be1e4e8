//! The texts in which hashes are kept.

use std::num::NonZeroU32;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Params, Version};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};

use super::{HashError, Kind, Sha, StoredHash};

/// Longest text of a hash, in bytes.
const TEXT_MAX: usize = 1024;

/// Shortest key, in bytes: fewer can be met by chance.
const KEY_MIN: usize = 16;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::Indifferent);

const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const BCRYPT: GeneralPurpose = GeneralPurpose::new(&alphabet::BCRYPT, LENIENT);

/// Reads a hash, in at most `deep` envelopes.
pub(super) fn hash(text: &str, deep: usize) -> Result<StoredHash, HashError> {
    if text.len() > TEXT_MAX || deep == 0 {
        return Err(HashError::Kind);
    }
    if let Some((scheme, rest)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return directory(scheme, rest.trim(), deep);
    }
    let inner = |rest: &str| hash(rest, deep - 1);
    if text.starts_with("$2") {
        bcrypt(text, false)
    } else if text.starts_with("$argon2") {
        argon2(text)
    } else if let Some(rest) = text.strip_prefix("$pbkdf2") {
        let (name, rest) = rest.split_once('$').ok_or(HashError::Damaged("PBKDF2"))?;
        phc_pbkdf2(sha(name).ok_or(HashError::Kind)?, rest)
    } else if let Some(rest) = text.strip_prefix("pbkdf2_") {
        let (name, rest) = rest.split_once('$').ok_or(HashError::Damaged("PBKDF2"))?;
        application_pbkdf2(sha(name).ok_or(HashError::Kind)?, rest)
    } else if let Some(rest) = text.strip_prefix("bcrypt_sha256$") {
        bcrypt(rest, true)
    } else if let Some(rest) = text.strip_prefix("bcrypt$") {
        inner(rest)
    } else if text.starts_with("argon2$") {
        inner(&text[6..])
    } else {
        Err(HashError::Kind)
    }
}

/// `userPassword` of a directory (RFC 2307 §5.3 and its successors).
fn directory(scheme: &str, rest: &str, deep: usize) -> Result<StoredHash, HashError> {
    let scheme: String = scheme
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_uppercase())
        .collect();
    if let "ARGON2" | "BCRYPT" | "CRYPT" = &*scheme {
        return hash(rest, deep - 1);
    }
    if let Some(name) = scheme.strip_prefix("PBKDF2") {
        let name = name.strip_prefix("HMAC").unwrap_or(name);
        return directory_pbkdf2(sha(name).ok_or(HashError::Kind)?, rest);
    }
    let (name, salted) = match scheme.strip_prefix("SSHA") {
        Some(name) => (name, true),
        None => (scheme.strip_prefix("SHA").ok_or(HashError::Kind)?, false),
    };
    let sha = sha(name).ok_or(HashError::Kind)?;
    let damaged = HashError::Damaged("SHA");
    let mut key = decode(rest).ok_or(damaged.clone())?;
    if key.len() < sha.length() || salted != (key.len() > sha.length()) {
        return Err(damaged);
    }
    let salt = key.split_off(sha.length());
    Ok(StoredHash {
        kind: Kind::Salted(sha),
        salt,
        key,
    })
}

/// The digest that this name means; without one, SHA-1.
fn sha(name: &str) -> Option<Sha> {
    let name = name.trim_start_matches(['-', '_']).to_ascii_lowercase();
    Some(match &*name {
        "" | "1" | "sha1" => Sha::One,
        "256" | "sha256" => Sha::Sha256,
        "384" | "sha384" => Sha::Sha384,
        "512" | "sha512" => Sha::Sha512,
        _ => return None,
    })
}

/// Base64 in any of its habits: `.`, `-` and `_` for the last two letters, with
/// or without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let usual = text.chars().map(|letter| match letter {
        '.' | '-' => '+',
        '_' => '/',
        other => other,
    });
    BASE64.decode(usual.collect::<String>()).ok()
}

fn argon2(text: &str) -> Result<StoredHash, HashError> {
    let damaged = || HashError::Damaged("Argon2");
    let hash = PasswordHash::new(text).map_err(|_| damaged())?;
    let algorithm = hash
        .algorithm
        .as_str()
        .parse::<Algorithm>()
        .map_err(|_| damaged())?;
    let version = hash.version.map(Version::try_from);
    // Texts of before there were versions are of the first.
    let version = version.unwrap_or(Ok(Version::V0x10));
    let key = hash.hash.as_ref().ok_or_else(damaged)?.as_bytes().to_vec();
    let salt = hash.salt.as_ref().ok_or_else(damaged)?;
    if key.len() < KEY_MIN {
        return Err(damaged());
    }
    Ok(StoredHash {
        kind: Kind::Argon2 {
            algorithm,
            version: version.map_err(|_| damaged())?,
            params: Params::try_from(&hash).map_err(|_| damaged())?,
        },
        salt: salt.as_ref().to_vec(),
        key,
    })
}

/// `$2b$12$` and 22 letters of salt, 31 of key.
fn bcrypt(text: &str, digested: bool) -> Result<StoredHash, HashError> {
    let damaged = || HashError::Damaged("bcrypt");
    let mut parts = text.split('$').skip(1);
    let (version, cost, rest) = (parts.next(), parts.next(), parts.next());
    // `2x` is of an implementation that was wrong.
    let known = matches!(version, Some("2a" | "2b" | "2y")) && parts.next().is_none();
    let cost = cost.filter(|cost| cost.len() == 2 && known);
    let cost = cost
        .and_then(|cost| cost.parse().ok())
        .ok_or_else(damaged)?;
    let (salt, key) = rest
        .and_then(|rest| rest.split_at_checked(22))
        .ok_or_else(damaged)?;
    let salt = BCRYPT.decode(salt).map_err(|_| damaged())?;
    let key = BCRYPT.decode(key).map_err(|_| damaged())?;
    if !(4..=31).contains(&cost) || salt.len() != 16 || key.len() != 23 {
        return Err(damaged());
    }
    Ok(StoredHash {
        kind: Kind::Bcrypt { cost, digested },
        salt,
        key,
    })
}

fn pbkdf2(sha: Sha, rounds: &str, salt: Vec<u8>, key: Vec<u8>) -> Result<StoredHash, HashError> {
    let damaged = HashError::Damaged("PBKDF2");
    let iterations: NonZeroU32 = rounds.parse().map_err(|_| damaged.clone())?;
    if key.len() < KEY_MIN || salt.len() > 256 {
        return Err(damaged);
    }
    let mut key = key;
    // Each further block would cost as much as the first and prove no more.
    key.truncate(sha.length());
    Ok(StoredHash {
        kind: Kind::Pbkdf2 { sha, iterations },
        salt,
        key,
    })
}

/// `i=ROUNDS,l=LENGTH$SALT$KEY`, or `ROUNDS$SALT$KEY`.
fn phc_pbkdf2(sha: Sha, rest: &str) -> Result<StoredHash, HashError> {
    let damaged = || HashError::Damaged("PBKDF2");
    let parts: Vec<_> = rest.split('$').collect();
    let [rounds, salt, key] = parts[..] else {
        return Err(damaged());
    };
    let rounds = match rounds.split_once('=') {
        None => rounds,
        Some(_) => rounds
            .split(',')
            .find_map(|part| part.strip_prefix("i="))
            .ok_or_else(damaged)?,
    };
    let salt = decode(salt).ok_or_else(damaged)?;
    pbkdf2(sha, rounds, salt, decode(key).ok_or_else(damaged)?)
}

/// `ROUNDS$SALT$KEY` with the salt as it is.
fn application_pbkdf2(sha: Sha, rest: &str) -> Result<StoredHash, HashError> {
    let damaged = || HashError::Damaged("PBKDF2");
    let parts: Vec<_> = rest.split('$').collect();
    let [rounds, salt, key] = parts[..] else {
        return Err(damaged());
    };
    let key = STANDARD.decode(key).map_err(|_| damaged())?;
    pbkdf2(sha, rounds, salt.as_bytes().to_vec(), key)
}

/// Three forms: `ROUNDS$SALT$KEY`; `ROUNDS:` and key and salt as one; or all of
/// it as one, with four bytes of rounds, 64 of salt and the key.
fn directory_pbkdf2(sha: Sha, rest: &str) -> Result<StoredHash, HashError> {
    let damaged = || HashError::Damaged("PBKDF2");
    if rest.contains('$') {
        return phc_pbkdf2(sha, rest);
    }
    if let Some((rounds, rest)) = rest.split_once(':') {
        let mut key = decode(rest).ok_or_else(damaged)?;
        if key.len() <= sha.length() {
            return Err(damaged());
        }
        let salt = key.split_off(sha.length());
        return pbkdf2(sha, rounds, salt, key);
    }
    let bytes = decode(rest).ok_or_else(damaged)?;
    let (rounds, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    let (salt, key) = rest.split_at_checked(64).ok_or_else(damaged)?;
    let rounds = u32::from_be_bytes(*rounds).to_string();
    pbkdf2(sha, &rounds, salt.to_vec(), key.to_vec())
}
