//! Asking a directory as a sign-in would, and telling what it says.

use tokio::time::timeout;

use super::directory::{Directory, DirectoryError};
use crate::probe::{Finding, PATIENCE};
use doorward_core::clock::random_uuid;

/// What each server of the directory says.
pub(crate) async fn probe(directory: &Directory, name: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for url in &directory.written.urls {
        let asked = timeout(PATIENCE, ask(directory, url, name)).await;
        let outcome = asked.unwrap_or(Err(DirectoryError::Timeout));
        let outcome = outcome.map_err(|error| error.to_string());
        findings.push(Finding::new(format!("ldap {url}"), outcome));
    }
    findings
}

async fn ask(
    directory: &Directory,
    url: &str,
    name: Option<&str>,
) -> Result<String, DirectoryError> {
    let mut ldap = directory.connect(url).await?;
    let told = if directory.searches() {
        directory.bind_service(&mut ldap).await?;
        let nobody = || format!("nobody-{}", random_uuid());
        let searched = name.map_or_else(nobody, str::to_owned);
        let found = directory.search(&mut ldap, &searched).await?;
        match (name, found) {
            (None, _) => "takes the service account, and answers a search".to_owned(),
            (Some(name), Some((dn, _))) => {
                format!("takes the service account, and has {dn} for {name}")
            }
            (Some(name), None) => {
                format!("takes the service account, and has no single entry for {name}")
            }
        }
    } else {
        "accepts connections; users alone bind to it".to_owned()
    };
    // The verdict is known: whether the server hears of the end changes nothing.
    let _ = ldap.unbind().await;
    Ok(told)
}
