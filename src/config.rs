//! The configuration file: composes the modules' own sections.
