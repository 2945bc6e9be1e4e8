//! A [`Filter`] as an SQL condition on `users u`.
//!
//! Only text written here becomes SQL; every operand is bound.

use super::Builder;
use super::dialect::Dialect;
use crate::model::query::{Filter, Op, Operand};
use crate::model::user::schema::{Attribute, Type};

/// Where an attribute is kept.
enum Place {
    /// In this column of `users`, which is never null.
    Column(&'static str),
    /// In the rows of `user_attr`.
    Rows,
}

fn place(attribute: &Attribute) -> Place {
    match attribute.path {
        "id" => Place::Column("u.id"),
        "userName" => Place::Column("u.user_key"),
        // Prepared operands are folded; so is the column.
        "accountStatus" => Place::Column("u.status"),
        "active" => Place::Column("(CASE u.status WHEN 'active' THEN 'true' ELSE 'false' END)"),
        "meta.created" => Place::Column("u.created_ms"),
        "meta.lastModified" => Place::Column("u.updated_ms"),
        "meta.resourceType" => Place::Column("'User'"),
        "meta.version" => Place::Column("('W/\"' || u.version || '\"')"),
        // What every record shows.
        "schemas" => Place::Column("'urn:ietf:params:scim:schemas:core:2.0:User'"),
        _ => Place::Rows,
    }
}

/// Whether the rows of `user_attr`, or the id, lead to few users: then the
/// realm's index must not be preferred to them.
pub(super) fn leads(filter: &Filter) -> bool {
    match filter {
        Filter::And(all) => all.iter().any(leads),
        Filter::Compare(attribute, Op::Equal, _) => {
            attribute.path == "id" || matches!(place(attribute), Place::Rows)
        }
        _ => false,
    }
}

/// Appends the condition.
pub(super) fn push(sql: &mut Builder, dialect: Dialect, realm: &str, filter: &Filter) {
    Writer {
        sql,
        dialect,
        realm,
        element: false,
    }
    .filter(filter);
}

struct Writer<'a> {
    sql: &'a mut Builder,
    dialect: Dialect,
    realm: &'a str,
    /// Inside an element's condition: rows must be those of the element `e`.
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
            Filter::Compare(attribute, op, operand) => match place(attribute) {
                Place::Column(column) => self.comparison(column, *op, operand),
                Place::Rows => self.rows(attribute, *op, operand),
            },
            Filter::Element(parent, inner) => {
                self.text("EXISTS (SELECT 1 FROM user_attr e WHERE e.user_id = u.id AND ");
                self.below("e.path", parent);
                self.text(" AND (");
                self.element = true;
                self.filter(inner);
                self.element = false;
                self.text("))");
            }
        }
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
        let always = ["meta", "meta.location"];
        if matches!(place(attribute), Place::Column(_)) || always.contains(&attribute.path) {
            return self.text("true");
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
