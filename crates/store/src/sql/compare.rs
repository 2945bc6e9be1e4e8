//! How a value compares with what somebody asks for.
//!
//! Operators serve an index wherever they can: a beginning is a range. Of values
//! that are too long for an index, some databases keep the rest beside it
//! ([`Dialect::cut`]); it is looked into only where the beginning leaves it open.

use super::Builder;
use super::dialect::{CUT, Dialect};
use doorward_core::model::query::{Op, Operand};

/// The text of a row of `user_attr a`.
const TEXT: &str = "a.text";

/// Begins the condition that the row's value, all of it, in `l`, …
const WHOLE: &str = "EXISTS (SELECT 1 FROM user_attr l
    WHERE l.user_id = a.user_id AND l.path = a.path AND l.idx = a.idx AND ";

/// Appends how `column` compares.
pub(super) fn push(
    sql: &mut Builder,
    dialect: Dialect,
    column: &'static str,
    op: Op,
    operand: &Operand,
) {
    match operand {
        Operand::Text(text) => plain(sql, dialect, column, op, text),
        Operand::Instant(ms) => {
            sql.push(column).push(operator(op)).push_bind(*ms);
        }
    }
}

/// Appends how the value of a row of `user_attr a` compares.
pub(super) fn push_value(sql: &mut Builder, dialect: Dialect, op: Op, operand: &Operand) {
    let Operand::Text(text) = operand else {
        return push(sql, dialect, TEXT, op, operand);
    };
    if dialect == Dialect::Sqlite {
        return plain(sql, dialect, TEXT, op, text);
    }
    match op {
        Op::Contains => {
            sql.push("(");
            plain(sql, dialect, TEXT, op, text);
            sql.push(" OR length(a.text) = ")
                .push_bind(CUT)
                .push(" AND ");
            whole(sql, dialect, op, text);
            sql.push(")");
        }
        Op::EndsWith => {
            sql.push("(length(a.text) < ").push_bind(CUT).push(" AND ");
            plain(sql, dialect, TEXT, op, text);
            sql.push(" OR length(a.text) = ")
                .push_bind(CUT)
                .push(" AND ");
            whole(sql, dialect, op, text);
            sql.push(")");
        }
        _ => match dialect.cut(text) {
            // Where the texts differ, the beginning tells.
            (_, None) => plain(sql, dialect, TEXT, op, text),
            (begin, Some(_)) => long(sql, dialect, op, (begin, text)),
        },
    }
}

/// As [`push_value`], of a text that is itself as long as what is in the index.
fn long(sql: &mut Builder, dialect: Dialect, op: Op, (begin, text): (&str, &str)) {
    let strict = match op {
        Op::Greater | Op::GreaterOrEqual => Some((" >= ", " > ")),
        Op::Less | Op::LessOrEqual => Some((" <= ", " < ")),
        Op::NotEqual => Some((" >= ", " <> ")),
        _ => None,
    };
    let Some((bound, strict)) = strict else {
        sql.push("(a.text = ").push_bind(begin).push(" AND ");
        whole(sql, dialect, op, text);
        sql.push(")");
        return;
    };
    sql.push("(");
    if op != Op::NotEqual {
        sql.push(TEXT).push(bound).push_bind(begin).push(" AND ");
    }
    sql.push("(a.text")
        .push(strict)
        .push_bind(begin)
        .push(" OR ");
    whole(sql, dialect, op, text);
    sql.push("))");
}

fn whole(sql: &mut Builder, dialect: Dialect, op: Op, text: &str) {
    sql.push(WHOLE);
    plain(sql, dialect, "(l.text || l.tail)", op, text);
    sql.push(")");
}

fn plain(sql: &mut Builder, dialect: Dialect, column: &'static str, op: Op, text: &str) {
    if let Some((begin, _)) = text.split_once('\0') {
        return impossible(sql, column, op, begin);
    }
    match op {
        Op::Contains => dialect.push_contains(sql, column, text),
        Op::StartsWith => starts_with(sql, column, text),
        Op::EndsWith => ends_with(sql, column, text),
        _ => {
            sql.push(column).push(operator(op)).push_bind(text);
        }
    }
}

/// How `column` compares with a text that begins with `begin` and goes on with
/// U+0000: no stored text holds that, nor does PostgreSQL take it.
fn impossible(sql: &mut Builder, column: &'static str, op: Op, begin: &str) {
    let operator = match op {
        Op::Equal | Op::Contains | Op::StartsWith | Op::EndsWith => {
            sql.push("false");
            return;
        }
        Op::NotEqual => {
            sql.push("true");
            return;
        }
        Op::Greater | Op::GreaterOrEqual => " > ",
        Op::Less | Op::LessOrEqual => " <= ",
    };
    sql.push(column).push(operator).push_bind(begin);
}

/// A range, which an index serves, up to the greatest character.
fn starts_with(sql: &mut Builder, column: &'static str, text: &str) {
    sql.push("(").push(column).push(" >= ").push_bind(text);
    sql.push(" AND ").push(column).push(" <= ");
    sql.push_bind(format!("{text}\u{10FFFF}")).push(")");
}

fn ends_with(sql: &mut Builder, column: &'static str, text: &str) {
    sql.push("(length(").push(column);
    sql.push(") >= length(").push_bind(text);
    sql.push(") AND substr(").push(column);
    sql.push(", length(").push(column);
    sql.push(") + 1 - length(").push_bind(text);
    sql.push(")) = ").push_bind(text).push(")");
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
