//! `file-log`: records are lines of a file.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

use super::LogFilter;
use super::custom_fields::{self, CustomFields};
use crate::delivery::{Limits, Queue, Sender};
use crate::settings::Settings;
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_net::telemetry::log_file::LogFile;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "file-log",
    priority: 9,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Permissions of a new file, less the umask.
const MODE: u32 = 0o644;
/// Most lines that are written together.
const LINES: usize = 1000;

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(vec![
            Field::new("path", Type::checked(check_path)).required(),
            Field::new("reopen", Type::Boolean)
                .default(false)
                .required(),
            custom_fields::field(),
        ])
    });
    &SCHEMA
}

fn check_path(path: &str) -> Result<(), String> {
    if path.is_empty() || path.contains(['*', '&', '%', '`', '\\']) {
        return Err("not a valid filename".to_owned());
    }
    Ok(())
}

struct FileSender {
    file: Arc<Mutex<Option<LogFile>>>,
    path: PathBuf,
    reopens: bool,
}

#[async_trait]
impl Sender for FileSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let (file, path, reopens) = (self.file.clone(), self.path.clone(), self.reopens);
        let text = batch.concat();
        // A disk that does not answer keeps nobody else from delivering.
        let write = spawn_blocking(move || {
            let mut file = file.lock();
            if reopens {
                *file = None;
            }
            let open = match file.take() {
                Some(mut open) => open.follow().map(|_| open),
                None => LogFile::open(&path, MODE),
            };
            let mut open = open?;
            open.file().write_all(&text)?;
            *file = Some(open);
            Ok(())
        });
        let written: std::io::Result<()> = write.await.map_err(|error| error.to_string())?;
        written.map_err(|error| error.to_string())
    }
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let path = PathBuf::from(config.text("path").unwrap_or_default());
    let fields = CustomFields::read(config)?;
    let checked = LogFile::check(&path);
    let sender = FileSender {
        file: Arc::default(),
        path,
        reopens: config.flag("reopen"),
    };
    let queue = Queue::new(KIND.name, parts, Limits::streaming(LINES), sender);
    let mut filter = LogFilter::new(queue, fields, "\n");
    if let Err(error) = checked {
        let warning = format!("path: the file can't be appended to at the moment: {error}");
        filter.warnings.push(warning);
    }
    Ok(filter.shared())
}
