//! The configuration section `broker`.

use std::path::PathBuf;

use serde::Deserialize;

use super::records;
use crate::model::broker::{Application, Developer, Product, Record};
use crate::model::user::schema::RecordError;

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
        let mut add = |list: &str, index: usize, made: Result<records::Made, RecordError>| {
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
        Ok(all)
    }
}

fn check_unique(records: &[Record]) -> Result<(), RecordError> {
    let mut seen = std::collections::HashSet::new();
    for record in records {
        let name = record.key.as_deref().unwrap_or(&record.id);
        if !seen.insert((record.kind, name)) {
            let message = format!("{} {name} is declared twice", record.kind.as_str());
            return Err(RecordError::new("", message));
        }
    }
    Ok(())
}
