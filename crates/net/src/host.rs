//! The machine that the process runs on.

/// The machine's name, as it knows it; empty: it has none.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
