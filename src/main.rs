//! The `doorward` program.

fn main() {}
