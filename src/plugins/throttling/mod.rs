//! The `throttling` plugin and `ThrottlingFilter` (interface 4.9).
