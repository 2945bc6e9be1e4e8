//! What the log says of a call of the Model Context Protocol.

/// A call of the Model Context Protocol in words that the configuration knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCall {
    /// The method, or `other`.
    pub method: Box<str>,
    /// The pattern that the tool, prompt or resource fits, or `other`; `None`: nothing
    /// is called by name.
    pub name: Option<Box<str>>,
}
