//! A question about users, independent of any database.

use super::user::schema::Attribute;

/// Which users, or groups, to return.
#[derive(Clone, Debug, PartialEq)]
pub struct UserQuery {
    /// What they must satisfy.
    pub filter: Filter,
    /// What they are sorted by; in the end, and without any, ascending by the
    /// key of their name.
    pub sort: Vec<SortKey>,
    /// Only those with a greater key of their name. Without effect where they
    /// are sorted otherwise.
    pub after: Option<String>,
    /// How many of the rest to skip.
    pub skip: u32,
    /// Most users to return.
    pub limit: u32,
}

/// An attribute to sort by (RFC 7644 §3.4.2.3): its primary value, or else its
/// first. Records without one come last, and first if descending.
#[derive(Clone, Debug, PartialEq)]
pub struct SortKey {
    /// The attribute.
    pub attribute: &'static Attribute,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// A condition on a user or a group (RFC 7644 §3.4.2.2).
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// True.
    Always,
    /// False.
    Never,
    /// All of them hold.
    And(Vec<Filter>),
    /// At least one holds.
    Or(Vec<Filter>),
    /// It does not hold.
    Not(Box<Filter>),
    /// The attribute has a value.
    Present(&'static Attribute),
    /// A value of the attribute compares so.
    Compare(&'static Attribute, Op, Operand),
    /// One and the same element of this multi-valued attribute satisfies the
    /// condition, which speaks only of its sub-attributes.
    Element(&'static Attribute, Box<Filter>),
}

/// How a value must compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `eq`
    Equal,
    /// `ne`
    NotEqual,
    /// `co`
    Contains,
    /// `sw`
    StartsWith,
    /// `ew`
    EndsWith,
    /// `gt`
    Greater,
    /// `ge`
    GreaterOrEqual,
    /// `lt`
    Less,
    /// `le`
    LessOrEqual,
}

/// What a value is compared with, prepared as the store indexes values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Text: folded unless the attribute is exact; booleans as `true`, `false`.
    Text(String),
    /// An instant, in milliseconds since the epoch.
    Instant(i64),
}
