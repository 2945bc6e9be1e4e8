//! A [`Filter`] as an SQL condition on `users u`.
//!
//! Only text written here becomes SQL; every operand is bound.

use super::dialect::Dialect;
use super::{Builder, compare};
use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::schema::{Attribute, Type};

/// Whose condition it is. Either table is `u` in statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Records {
    Users,
    Groups,
}

impl Records {
    /// The resource that they are.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Groups => "groups",
        }
    }
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
        Filter::Or(any) => is_united(records, any),
        Filter::Element(..) => lead(filter).is_some_and(is_few),
        Filter::Compare(attribute, Op::Equal, _) => {
            let place = place(records, attribute);
            match place {
                Place::Rows => !is_label(attribute),
                Place::Link("m.user_id" | "m.group_id") => true,
                _ => attribute.path == "id",
            }
        }
        _ => false,
    }
}

/// Whether each of them leads to few records, by whatever index: then these are
/// found one by one, and put together.
fn is_united(records: Records, any: &[Filter]) -> bool {
    let is_name = |one: &Filter| {
        let Filter::Compare(attribute, Op::Equal | Op::StartsWith, _) = one else {
            return false;
        };
        let place = place(records, attribute);
        matches!(place, Place::Column("u.user_key" | "u.name_key"))
    };
    any.len() > 1 && any.iter().all(|one| is_name(one) || leads(records, one))
}

/// How much of its index a comparison reads, the least first; `None`: it has
/// none in `user_attr`.
pub(super) fn rank(filter: &Filter) -> Option<u8> {
    let Filter::Compare(attribute, op, _) = filter else {
        return None;
    };
    if !is_indexed(attribute) {
        return None;
    }
    match op {
        Op::Equal if is_label(attribute) => Some(4),
        Op::Equal => Some(0),
        Op::StartsWith => Some(1),
        Op::Greater | Op::GreaterOrEqual | Op::Less | Op::LessOrEqual => Some(2),
        Op::Contains | Op::EndsWith => Some(3),
        Op::NotEqual => None,
    }
}

/// Whether its values tell elements of an attribute apart: many users have them.
fn is_label(attribute: &Attribute) -> bool {
    let part = attribute.path.rsplit('.').next();
    matches!(part, Some("type" | "primary" | "verified"))
}

/// Whether few users satisfy the comparison, as far as one can tell.
fn is_few(filter: &Filter) -> bool {
    rank(filter) == Some(0)
}

/// Of a condition on one element, the comparison whose index finds all users of
/// whom it can be true.
pub(super) fn lead(filter: &Filter) -> Option<&Filter> {
    let Filter::Element(_, inner) = filter else {
        return None;
    };
    let mut parts = Vec::new();
    flatten(inner, &mut parts);
    let parts = parts.into_iter();
    let ranked = parts.filter_map(|one| Some((rank(one)?, one)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, one)| one)
}

/// The conditions that must hold together.
pub(super) fn flatten<'f>(filter: &'f Filter, parts: &mut Vec<&'f Filter>) {
    match filter {
        Filter::And(all) => all.iter().for_each(|one| flatten(one, parts)),
        one => parts.push(one),
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

/// Whether it asks for one value of what tells records apart: few have it, and an
/// index leads to them. Who signs in is found like this, and not behind lists.
pub(super) fn is_look_up(records: Records, filter: &Filter) -> bool {
    let Filter::Compare(attribute, Op::Equal, _) = filter else {
        return false;
    };
    let known: &[&str] = match records {
        Records::Users => &["externalId", "emails", "emails.value"],
        Records::Groups => &["displayName", "externalId"],
    };
    known.contains(&attribute.path)
}

/// Appends the condition.
pub(super) fn push(
    sql: &mut Builder,
    dialect: Dialect,
    (records, realm): (Records, &str),
    filter: &Filter,
) {
    let mut writer = Writer {
        sql,
        dialect,
        records,
        realm,
        element: false,
        alone: is_unique(filter),
    };
    writer.filter(filter);
}

struct Writer<'a> {
    sql: &'a mut Builder,
    dialect: Dialect,
    records: Records,
    realm: &'a str,
    /// Inside an element's condition: rows must be those of the element `e`,
    /// memberships the one of it.
    element: bool,
    /// At most one record is asked for: it is asked for its own values, and
    /// nobody else's are looked for.
    alone: bool,
}

impl Writer<'_> {
    fn filter(&mut self, filter: &Filter) {
        match filter {
            Filter::Always => self.text("true"),
            Filter::Never => self.text("false"),
            Filter::And(all) => self.joined(all, " AND "),
            Filter::Or(any) if !self.element && !self.alone && is_united(self.records, any) => {
                self.united(any);
            }
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
                // One index leads to them, which the whole condition has not.
                if let Some(lead) = lead(filter).filter(|one| is_few(one) && !self.alone) {
                    self.filter(lead);
                    self.text(" AND ");
                }
                self.element(parent, inner);
            }
        }
    }

    fn element(&mut self, parent: &Attribute, inner: &Filter) {
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

    /// Records that satisfy one of these, each found along an index of its own.
    fn united(&mut self, any: &[Filter]) {
        for (position, one) in any.iter().enumerate() {
            self.text(match (position, self.records) {
                (0, Records::Users) => "u.id IN (SELECT u.id FROM users u WHERE ",
                (_, Records::Users) => " UNION ALL SELECT u.id FROM users u WHERE ",
                (0, Records::Groups) => "u.id IN (SELECT u.id FROM user_groups u WHERE ",
                (_, Records::Groups) => " UNION ALL SELECT u.id FROM user_groups u WHERE ",
            });
            self.text(if leads(self.records, one) {
                self.dialect.unindexed_realm_is()
            } else {
                "u.realm = "
            });
            self.sql.push_bind(self.realm.to_owned());
            self.text(" AND ");
            self.filter(one);
        }
        self.text(")");
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
        if op == Op::Equal && column.starts_with("m.") && !self.alone {
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
        } else if self.alone {
            self.text("EXISTS (SELECT 1 FROM user_attr a WHERE a.user_id = u.id AND ");
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
        compare::push_value(self.sql, self.dialect, op, operand);
        self.text(")");
        if op == Op::NotEqual {
            self.text(")");
        }
    }

    fn comparison(&mut self, column: &'static str, op: Op, operand: &Operand) {
        compare::push(self.sql, self.dialect, column, op, operand);
    }
}
