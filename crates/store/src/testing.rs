//! Databases for tests: SQLite files, or databases of a PostgreSQL server that
//! the tests start, where `DOORWARD_TEST_STORE=postgres` asks for them.

#[path = "testing/postgres.rs"]
pub mod postgres;

use std::path::Path;

pub use super::sql::plans::whole_reads;

/// Whether the tests run on PostgreSQL.
pub fn is_postgres() -> bool {
    std::env::var("DOORWARD_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// The address of the store that belongs to a test's directory: the same at each
/// call.
pub fn url(directory: &Path) -> String {
    if is_postgres() {
        return postgres::Cluster::shared().sibling_database(&name(directory), Some(directory));
    }
    format!("sqlite:{}", directory.join("state/doorward.db").display())
}

/// Temporary directories have names of their own; capitals matter in them.
fn name(directory: &Path) -> String {
    let name = directory.file_name().map(std::ffi::OsStr::as_encoded_bytes);
    let bytes = name.expect("a temporary directory").iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
