//! The filters of route files that count by partition, for operators.

use std::collections::HashSet;
use std::sync::Arc;

use super::{FileRoute, Routes, analysis};
use doorward_plugin_api::filter::Filter;

/// A filter of a route file that counts by partition.
pub struct Counting {
    /// Tells it from all others: the route's id, `/`, and the filter's name or
    /// else type; of several that would be the same, the second one ends in
    /// `:2`.
    pub key: String,
    /// The route file that it stands in.
    pub route: Arc<FileRoute>,
    /// Its type.
    pub type_name: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What counts.
    pub filter: Arc<dyn Filter>,
}

impl Routes {
    /// The filters that count by partition, those of nested routes included:
    /// each once, however many chains it stands in.
    pub fn counting(&self) -> Vec<Counting> {
        let (mut found, mut keys) = (Vec::new(), HashSet::new());
        for route in self.iter() {
            analysis::labelled(route.handler(), route, &mut |route, label, filter| {
                let known = |other: &Counting| Arc::ptr_eq(&other.filter, filter);
                if filter.partitioned().is_none() || found.iter().any(known) {
                    return;
                }
                let (type_name, name) = match label.split_once(' ') {
                    Some((type_name, name)) => (type_name, Some(name)),
                    None => (label, None),
                };
                let plain = format!("{}/{}", route.id(), name.unwrap_or(type_name));
                let mut key = plain.clone();
                let mut number = 2_usize;
                while !keys.insert(key.clone()) {
                    key = format!("{plain}:{number}");
                    number += 1;
                }
                found.push(Counting {
                    key,
                    route: route.clone(),
                    type_name: type_name.to_owned(),
                    name: name.map(str::to_owned),
                    filter: filter.clone(),
                });
            });
        }
        found
    }
}
