//! `file-log`: records are lines of a file.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

use super::LogFilter;
use super::custom_fields::{CustomFields, RecordConfig};
use crate::delivery::{Limits, Queue, Sender};
use doorward_core::model::schema::{Schema, Type};
use doorward_net::telemetry::log_file::LogFile;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

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

config! {
    /// The fields of `config`.
    struct Config {
        /// The file that lines are appended to. It is made if it is not there.
        #[field(kind(Type::checked(check_path)), required)]
        path: String,
        /// Whether the file is opened for each write.
        #[field(default(false), required)]
        reopen: bool,
        record as ..: RecordConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
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
    let config = Config::read(config)?;
    let path = PathBuf::from(config.path);
    let fields = CustomFields::new(&config.record)?;
    let checked = LogFile::check(&path);
    let sender = FileSender {
        file: Arc::default(),
        path,
        reopens: config.reopen,
    };
    let queue = Queue::new(KIND.name, parts, Limits::streaming(LINES), sender);
    let mut filter = LogFilter::new(queue, fields, "\n");
    if let Err(error) = checked {
        let warning = format!("path: the file can't be appended to at the moment: {error}");
        filter.warnings.push(warning);
    }
    Ok(filter.shared())
}
