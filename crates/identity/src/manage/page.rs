//! Paging of lists, as the Admin API does it.

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use super::error::ManageError;
use super::{Call, PREFIX};
use crate::form::Form;
use crate::respond;
use doorward_core::model::query::{Filter, UserQuery};

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;

/// Longest text that is searched for, in bytes.
const SEARCH_MAX: usize = 320;

/// Which part of a list is wanted.
#[derive(Debug)]
pub(super) struct Page {
    size: usize,
    /// The key that the part begins behind.
    pub(super) after: Option<String>,
}

impl Page {
    /// Reads `size` and `offset` of the query.
    pub(super) fn of(call: &Call) -> Result<Self, ManageError> {
        let query = call.query()?;
        let size = match query.get("size").map(str::parse) {
            None => DEFAULT_SIZE,
            Some(Ok(size)) if (1..=MAX_SIZE).contains(&size) => size,
            Some(_) => return Err(ManageError::Size),
        };
        let after = query.get("offset").map(key).transpose()?;
        Ok(Self { size, after })
    }

    /// How many records to look for: one more than are shown tells whether
    /// others follow.
    pub(super) fn limit(&self) -> u32 {
        u32::try_from(self.size).unwrap_or(u32::MAX - 1) + 1
    }

    /// The query for this part of the records that `filter` lets through, by name.
    pub(super) fn query(&self, filter: Filter) -> UserQuery {
        UserQuery {
            filter,
            sort: Vec::new(),
            after: self.after.clone(),
            skip: 0,
            limit: self.limit(),
        }
    }

    /// Takes this part out of all keys in ascending order.
    pub(super) fn cut<T>(&self, all: Vec<T>, key: impl Fn(&T) -> &str) -> Vec<T> {
        let begins = |one: &T| self.after.as_deref().is_none_or(|after| key(one) > after);
        all.into_iter().filter(begins).take(self.size + 1).collect()
    }

    /// The answer with `records`, each with its key: as many as [`Page::limit`]
    /// when others follow.
    pub(super) async fn answer(
        &self,
        call: &Call,
        path: &str,
        records: Vec<(String, Value)>,
    ) -> Result<Response, ManageError> {
        let body = self.body(call, path, records).await?;
        Ok(respond::json(StatusCode::OK, &body))
    }

    /// The body of [`Page::answer`].
    pub(super) async fn body(
        &self,
        call: &Call,
        path: &str,
        mut records: Vec<(String, Value)>,
    ) -> Result<Value, ManageError> {
        let more = records.len() > self.size;
        records.truncate(self.size);
        let last = records.last().map(|(key, _)| json!([key]).to_string());
        let declared = records.iter_mut().map(|(_, record)| record);
        call.tell_files(declared.filter_map(Value::as_object_mut))
            .await?;
        let data: Vec<_> = records.into_iter().map(|(_, record)| record).collect();
        let mut body = json!({"data": data, "next": null});
        if let Some(last) = last.filter(|_| more) {
            let offset = STANDARD.encode(last);
            let query = call.query()?;
            let others = query.pairs().filter(|(name, _)| *name != "offset");
            let mut next = url::form_urlencoded::Serializer::new(String::new());
            next.append_pair("offset", &offset).extend_pairs(others);
            body["next"] = format!("{PREFIX}{path}?{}", next.finish()).into();
            body["offset"] = offset.into();
        }
        Ok(body)
    }
}

/// What a list is searched for: `q` of the query.
pub(super) fn search<'q>(query: &'q Form<'_>) -> Result<&'q str, ManageError> {
    let search = query.get("q").unwrap_or_default().trim();
    if search.len() > SEARCH_MAX {
        return Err(ManageError::Option {
            option: "q",
            message: format!("is longer than {SEARCH_MAX} bytes"),
        });
    }
    Ok(search)
}

/// The version that a deletion is of: `version` of the query.
pub(super) fn version(query: &Form<'_>) -> Result<Option<i64>, ManageError> {
    let version = query.get("version").map(str::parse::<i64>).transpose();
    version.map_err(|_| ManageError::Option {
        option: "version",
        message: "expected an integer".to_owned(),
    })
}

fn key(offset: &str) -> Result<String, ManageError> {
    let bytes = STANDARD.decode(offset).ok();
    let key = bytes.and_then(|bytes| serde_json::from_slice::<[String; 1]>(&bytes).ok());
    key.map(|[key]| key)
        .ok_or_else(|| ManageError::Offset(offset.to_owned()))
}
