//! The configuration section `broker`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::records;
use doorward_core::model::broker::{Application, Developer, Kind, Product, Record};
use doorward_core::model::user::schema::RecordError;
use doorward_net::http::guess_limit::GuessLimitConfig;

/// What the configuration file says of the token broker.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerConfig {
    /// The file itself, for messages.
    #[serde(skip)]
    pub file: PathBuf,
    /// `organization_name` of token responses.
    pub organization: String,
    /// The environment that products are looked at in.
    pub environment: String,
    /// Slowing down guesses of an application's secret from an address.
    pub secret_guesses: GuessLimitConfig,
    /// Declared products.
    pub products: Vec<Product>,
    /// Declared developers.
    pub developers: Vec<Developer>,
    /// Declared applications.
    pub applications: Vec<Application>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            file: PathBuf::from("the configuration file"),
            organization: "doorward".to_owned(),
            environment: "default".to_owned(),
            secret_guesses: GuessLimitConfig::default(),
            products: Vec::new(),
            developers: Vec::new(),
            applications: Vec::new(),
        }
    }
}

impl BrokerConfig {
    /// The declared records.
    ///
    /// # Errors
    /// What can't be, with its path below `broker`.
    pub fn records(&self) -> Result<Vec<Record>, RecordError> {
        let mut all = Vec::new();
        let mut add = |list: &str, index: usize, made: Result<records::NewRecord, RecordError>| {
            let made = made.map_err(|error| error.below(&format!("{list}.{index}")))?;
            all.push(made.record);
            Ok::<_, RecordError>(())
        };
        for (index, product) in self.products.iter().enumerate() {
            add("products", index, records::of_product(product.clone()))?;
        }
        for (index, developer) in self.developers.iter().enumerate() {
            add(
                "developers",
                index,
                records::of_developer(developer.clone()),
            )?;
        }
        for (index, application) in self.applications.iter().enumerate() {
            let path = format!("applications.{index}.consumer_key");
            if application.consumer_key.is_empty() {
                return Err(RecordError::new(path, "is required in a file"));
            }
            let made = records::of_application(application.clone(), None);
            add("applications", index, made)?;
        }
        check_unique(&all)?;
        self.check_references()?;
        Ok(all)
    }

    /// Refuses an application that names a developer or a product which the file
    /// does not declare: nobody could use it, and a typing error would look so.
    fn check_references(&self) -> Result<(), RecordError> {
        let developers: Vec<_> = self.developers.iter().map(|one| &one.email).collect();
        for (index, application) in self.applications.iter().enumerate() {
            let wanted = records::developer_id(&application.developer);
            if !(developers.iter()).any(|email| records::developer_id(email) == wanted) {
                let path = format!("applications.{index}.developer");
                let message = format!("no developer {wanted} is declared");
                return Err(RecordError::new(path, message));
            }
            for (place, name) in application.products.iter().enumerate() {
                if !self.products.iter().any(|product| product.name == *name) {
                    let path = format!("applications.{index}.products.{place}");
                    let message = format!("no product {name} is declared");
                    return Err(RecordError::new(path, message));
                }
            }
        }
        Ok(())
    }
}

fn check_unique(records: &[Record]) -> Result<(), RecordError> {
    let mut seen: HashMap<Kind, HashSet<&str>> = HashMap::new();
    for record in records {
        let seen = seen.entry(record.kind).or_default();
        let name = record.key.as_deref().unwrap_or(&record.id);
        let index = seen.len();
        if !seen.insert(name) {
            let path = match record.kind {
                Kind::Product => format!("products.{index}.name"),
                Kind::Developer => format!("developers.{index}.email"),
                Kind::Application => format!("applications.{index}.consumer_key"),
            };
            return Err(RecordError::new(path, "is declared twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (String, String) {
        let config: BrokerConfig = serde_json::from_str(text).expect("a section");
        let error = config.records().expect_err("refused");
        (error.path, error.message)
    }

    #[test]
    fn what_is_declared_twice_or_named_wrongly_is_told_with_its_place() {
        let declared = r#""products": [{"name": "p"}], "developers": [{"email": "d@x"}]"#;
        for (text, path) in [
            (
                r#"{"products": [{"name": "p"}, {"name": "p"}]}"#.to_owned(),
                "products.1.name",
            ),
            (
                r#"{"developers": [{"email": "D@x"}, {"email": "d@X"}]}"#.to_owned(),
                "developers.1.email",
            ),
            (
                format!(r#"{{{declared}, "applications": [{{"name": "a", "developer": "d@x"}}]}}"#),
                "applications.0.consumer_key",
            ),
            (
                format!(
                    r#"{{{declared}, "applications": [{{"name": "a", "developer": "e@x",
                       "consumer_key": "k"}}]}}"#
                ),
                "applications.0.developer",
            ),
            (
                format!(
                    r#"{{{declared}, "applications": [{{"name": "a", "developer": "D@X",
                       "consumer_key": "k", "products": ["p", "q"]}}]}}"#
                ),
                "applications.0.products.1",
            ),
        ] {
            assert_eq!(wrong(&text).0, path, "{text}");
        }
    }
}
