//! A [`Filter`] as an SQL condition on `users u`.
//!
//! Only text written here becomes SQL; every operand is bound.

use super::Builder;
use super::dialect::Dialect;
use crate::model::query::{Filter, Op, Operand};
use crate::model::user::schema::{Attribute, Type};

/// Whose condition it is. Either table is `u` in statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Records {
    Users,
    Groups,
}

/// Where an attribute is kept.
enum Place {
    /// In this column of the table, which is never null.
    Column(&'static str),
    /// In this one, which can be.
    Nullable(&'static str),
    /// In the rows of `user_attr`.
    Rows,
    /// In this column of a membership `m` and what is at its other end, `k`.
    Link(&'static str),
}

fn place(records: Records, attribute: &Attribute) -> Place {
    match (records, attribute.path) {
        (_, "id") => Place::Column("u.id"),
        (_, "meta.created") => Place::Column("u.created_ms"),
        (_, "meta.lastModified") => Place::Column("u.updated_ms"),
        (_, "meta.version") => Place::Column("('W/\"' || u.version || '\"')"),
        (Records::Users, path) => match path {
            "userName" => Place::Column("u.user_key"),
            // Prepared operands are folded; so is the column.
            "accountStatus" => Place::Column("u.status"),
            "active" => Place::Column("(CASE u.status WHEN 'active' THEN 'true' ELSE 'false' END)"),
            "meta.resourceType" => Place::Column("'User'"),
            // What every record shows.
            "schemas" => Place::Column("'urn:ietf:params:scim:schemas:core:2.0:User'"),
            "groups" | "groups.value" => Place::Link("m.group_id"),
            "groups.display" => Place::Link("k.name_key"),
            "groups.type" => Place::Link("'direct'"),
            _ => Place::Rows,
        },
        (Records::Groups, path) => match path {
            "displayName" => Place::Column("u.name_key"),
            "externalId" => Place::Nullable("u.external_id"),
            "meta.resourceType" => Place::Column("'Group'"),
            "schemas" => Place::Column("'urn:ietf:params:scim:schemas:core:2.0:Group'"),
            "members.display" => Place::Link("k.user_key"),
            "members.type" => Place::Link("'user'"),
            // `members`, `members.value`; there are no others.
            _ => Place::Link("m.user_id"),
        },
    }
}

/// Whether the attribute of users is in the rows of `user_attr`.
pub(super) fn is_indexed(attribute: &Attribute) -> bool {
    matches!(place(Records::Users, attribute), Place::Rows)
}

/// The column to sort by, if it is one.
pub(super) fn column(records: Records, attribute: &Attribute) -> Option<&'static str> {
    match place(records, attribute) {
        Place::Column(column) | Place::Nullable(column) => Some(column),
        Place::Rows | Place::Link(_) => None,
    }
}

/// Whether the rows of `user_attr`, a membership or the id lead to few users:
/// then the realm's index must not be preferred to them.
pub(super) fn leads(records: Records, filter: &Filter) -> bool {
    match filter {
        Filter::And(all) => all.iter().any(|one| leads(records, one)),
        Filter::Compare(attribute, Op::Equal, _) => {
            let place = place(records, attribute);
            attribute.path == "id"
                || matches!(place, Place::Rows | Place::Link("m.user_id" | "m.group_id"))
        }
        _ => false,
    }
}

/// Whether at most one record can satisfy it.
pub(super) fn is_unique(filter: &Filter) -> bool {
    match filter {
        Filter::Never => true,
        Filter::And(all) => all.iter().any(is_unique),
        Filter::Compare(attribute, Op::Equal, _) => ["id", "userName"].contains(&attribute.path),
        _ => false,
    }
}

/// Appends the condition.
pub(super) fn push(
    sql: &mut Builder,
    dialect: Dialect,
    (records, realm): (Records, &str),
    filter: &Filter,
) {
    writer(sql, dialect, records, realm).filter(filter);
}

/// Appends how `a.text` compares.
pub(super) fn push_comparison(sql: &mut Builder, dialect: Dialect, op: Op, operand: &Operand) {
    writer(sql, dialect, Records::Users, "").comparison("a.text", op, operand);
}

fn writer<'a>(
    sql: &'a mut Builder,
    dialect: Dialect,
    records: Records,
    realm: &'a str,
) -> Writer<'a> {
    Writer {
        sql,
        dialect,
        records,
        realm,
        element: false,
    }
}

struct Writer<'a> {
    sql: &'a mut Builder,
    dialect: Dialect,
    records: Records,
    realm: &'a str,
    /// Inside an element's condition: rows must be those of the element `e`,
    /// memberships the one of it.
    element: bool,
}

impl Writer<'_> {
    fn filter(&mut self, filter: &Filter) {
        match filter {
            Filter::Always => self.text("true"),
            Filter::Never => self.text("false"),
            Filter::And(all) => self.joined(all, " AND "),
            Filter::Or(any) => self.joined(any, " OR "),
            Filter::Not(inner) => {
                self.text("NOT (");
                self.filter(inner);
                self.text(")");
            }
            Filter::Present(attribute) => self.present(attribute),
            Filter::Compare(attribute, op, operand) => match place(self.records, attribute) {
                Place::Column(column) => self.comparison(column, *op, operand),
                Place::Nullable(column) => self.nullable(column, *op, operand),
                Place::Rows => self.rows(attribute, *op, operand),
                Place::Link(column) => self.link(column, *op, operand),
            },
            Filter::Element(parent, inner) => {
                match place(self.records, parent) {
                    Place::Link(_) => self.open_link(),
                    _ => {
                        self.text("EXISTS (SELECT 1 FROM user_attr e WHERE e.user_id = u.id AND ");
                        self.below("e.path", parent);
                    }
                }
                self.text(" AND (");
                self.element = true;
                self.filter(inner);
                self.element = false;
                self.text("))");
            }
        }
    }

    /// Without a value nothing is true of it but being different.
    fn nullable(&mut self, column: &'static str, op: Op, operand: &Operand) {
        self.text("(");
        self.text(column);
        self.text(match op {
            Op::NotEqual => " IS NULL OR ",
            _ => " IS NOT NULL AND ",
        });
        self.comparison(column, op, operand);
        self.text(")");
    }

    /// Begins a condition on memberships of the record, up to ` AND`.
    fn open_link(&mut self) {
        self.text(match self.records {
            Records::Users => {
                "EXISTS (SELECT 1 FROM group_members m JOIN user_groups k ON k.id = m.group_id
                          WHERE m.user_id = u.id"
            }
            Records::Groups => {
                "EXISTS (SELECT 1 FROM group_members m JOIN users k ON k.id = m.user_id
                          WHERE m.group_id = u.id"
            }
        });
    }

    fn link(&mut self, column: &'static str, op: Op, operand: &Operand) {
        if self.element {
            return self.comparison(column, op, operand);
        }
        if op == Op::Equal && column.starts_with("m.") {
            self.text(match self.records {
                Records::Users => "u.id IN (SELECT m.user_id FROM group_members m WHERE ",
                Records::Groups => "u.id IN (SELECT m.group_id FROM group_members m WHERE ",
            });
        } else {
            if op == Op::NotEqual {
                self.text("(NOT ");
                self.open_link();
                self.text(") OR ");
            }
            self.open_link();
            self.text(" AND ");
        }
        self.comparison(column, op, operand);
        self.text(if op == Op::NotEqual { "))" } else { ")" });
    }

    fn text(&mut self, text: &'static str) {
        self.sql.push(text);
    }

    fn joined(&mut self, parts: &[Filter], operator: &'static str) {
        self.text("(");
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.text(operator);
            }
            self.filter(part);
        }
        self.text(")");
    }

    /// `column` is a path below `parent`: between `parent.` and `parent/`, the
    /// character after the dot.
    fn below(&mut self, column: &'static str, parent: &Attribute) {
        self.text("(");
        self.text(column);
        self.sql.push(" > ").push_bind(format!("{}.", parent.path));
        self.text(" AND ");
        self.text(column);
        self.sql.push(" < ").push_bind(format!("{}/", parent.path));
        self.text(")");
    }

    fn present(&mut self, attribute: &Attribute) {
        if ["meta", "meta.location"].contains(&attribute.path) {
            return self.text("true");
        }
        match place(self.records, attribute) {
            Place::Column(_) => return self.text("true"),
            Place::Nullable(column) => {
                self.text("coalesce(");
                self.text(column);
                return self.text(", '') <> ''");
            }
            Place::Link(_) if self.element => return self.text("true"),
            Place::Link(_) => {
                self.open_link();
                return self.text(")");
            }
            Place::Rows => {}
        }
        if attribute.kind == Type::Free {
            // Its members are in no rows.
            return self.dialect.push_has_members(self.sql, attribute.path);
        }
        self.open_rows();
        if matches!(attribute.kind, Type::Complex | Type::ComplexMany) {
            self.below("a.path", attribute);
        } else {
            self.sql.push("a.path = ").push_bind(attribute.path);
        }
        self.text(" AND a.text <> '')");
    }

    fn open_rows(&mut self) {
        if self.element {
            self.text(
                "EXISTS (SELECT 1 FROM user_attr a WHERE a.user_id = u.id AND a.idx = e.idx AND ",
            );
        } else {
            self.text("u.id IN (SELECT a.user_id FROM user_attr a WHERE a.realm = ");
            self.sql.push_bind(self.realm.to_owned());
            self.text(" AND ");
        }
    }

    /// `ne` is true of users without any value, and where a value differs.
    fn rows(&mut self, attribute: &Attribute, op: Op, operand: &Operand) {
        if op == Op::NotEqual {
            self.text("(NOT ");
            self.open_rows();
            self.sql.push("a.path = ").push_bind(attribute.path);
            self.text(")");
            self.text(" OR ");
        }
        self.open_rows();
        self.sql.push("a.path = ").push_bind(attribute.path);
        self.text(" AND ");
        self.comparison("a.text", op, operand);
        self.text(")");
        if op == Op::NotEqual {
            self.text(")");
        }
    }

    fn comparison(&mut self, column: &'static str, op: Op, operand: &Operand) {
        let text = match operand {
            Operand::Instant(ms) => {
                self.text(column);
                self.text(operator(op));
                self.sql.push_bind(*ms);
                return;
            }
            Operand::Text(text) => text,
        };
        match op {
            Op::Contains => {
                self.dialect.push_contains(self.sql, column, text);
            }
            Op::StartsWith => self.starts_with(column, text),
            Op::EndsWith => {
                self.text("(length(");
                self.text(column);
                self.sql.push(") >= length(").push_bind(text);
                self.text(") AND substr(");
                self.text(column);
                self.text(", length(");
                self.text(column);
                self.sql.push(") + 1 - length(").push_bind(text);
                self.sql.push(")) = ").push_bind(text);
                self.text(")");
            }
            _ => {
                self.text(column);
                self.text(operator(op));
                self.sql.push_bind(text.clone());
            }
        }
    }

    /// A range, which an index serves, up to the greatest character.
    fn starts_with(&mut self, column: &'static str, text: &str) {
        self.text("(");
        self.text(column);
        self.sql.push(" >= ").push_bind(text.to_owned());
        self.text(" AND ");
        self.text(column);
        self.sql.push(" <= ").push_bind(format!("{text}\u{10FFFF}"));
        self.text(")");
    }
}

fn operator(op: Op) -> &'static str {
    match op {
        Op::Equal | Op::Contains | Op::StartsWith | Op::EndsWith => " = ",
        Op::NotEqual => " <> ",
        Op::Greater => " > ",
        Op::GreaterOrEqual => " >= ",
        Op::Less => " < ",
        Op::LessOrEqual => " <= ",
    }
}
