//! The filter by itself.
