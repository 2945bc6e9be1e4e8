//! Tests against the real program and its sources, a module per section of the
//! interface.

mod imports;
