//! The form of an export: JSON lines.
//!
//! The first line says what it is, the last one how many rows there are and the
//! SHA-256 of all lines before: a file that was cut short or damaged is told.
//! Between them, a line names a table and its columns, and its rows follow, an
//! array each; octets are base64, null is null.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::tables::{TABLES, Table, Type};
use super::{Row, StoreError, TransferError};
use crate::sql::bind::Value;
use doorward_core::hex;

/// The version of this form.
pub(super) const FORMAT: u32 = 1;

/// Longest line that is read, in bytes.
const LINE_MAX: u64 = 64 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// `store`
    pub(super) doorward: String,
    pub(super) format: u32,
    /// How many migrations the schema had.
    pub(super) schema: u32,
    /// The program that wrote it.
    pub(super) version: String,
    /// In milliseconds since the epoch.
    pub(super) time_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Section {
    table: String,
    columns: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trailer {
    end: bool,
    rows: BTreeMap<String, u64>,
    sha256: String,
}

/// Writes an export.
pub(super) struct Lines<'a> {
    out: &'a mut (dyn Write + Send),
    digest: Context,
    rows: BTreeMap<String, u64>,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self {
            out,
            digest: Context::new(&SHA256),
            rows: BTreeMap::new(),
            line: Vec::new(),
        }
    }

    pub(super) fn head(&mut self, head: &Head) -> Result<(), TransferError> {
        self.write(head)
    }

    pub(super) fn section(&mut self, table: &Table) -> Result<(), TransferError> {
        self.rows.insert(table.name.to_owned(), 0);
        self.write(&Section {
            table: table.name.to_owned(),
            columns: table
                .columns
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .collect(),
        })
    }

    pub(super) fn row(&mut self, table: &Table, row: &Row) -> Result<(), TransferError> {
        let cells = table
            .columns
            .iter()
            .map(|(name, holds)| cell(row, name, *holds));
        let cells: Vec<Json> = cells.collect::<Result<_, StoreError>>()?;
        if let Some(rows) = self.rows.get_mut(table.name) {
            *rows += 1;
        }
        self.write(&cells)
    }

    /// Ends the export; the number of rows of each table.
    pub(super) fn foot(mut self) -> Result<BTreeMap<String, u64>, TransferError> {
        let digest = std::mem::replace(&mut self.digest, Context::new(&SHA256));
        let foot = Trailer {
            end: true,
            rows: std::mem::take(&mut self.rows),
            sha256: hex::encode(digest.finish()),
        };
        self.write(&foot)?;
        self.out.flush()?;
        Ok(foot.rows)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), TransferError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line).map_err(io::Error::other)?;
        self.line.push(b'\n');
        self.digest.update(&self.line);
        Ok(self.out.write_all(&self.line)?)
    }
}

fn cell(row: &Row, name: &str, holds: Type) -> Result<Json, StoreError> {
    Ok(match holds {
        Type::Text => row.opt_text(name)?.map_or(Json::Null, Json::from),
        Type::Int => row.opt_int(name)?.map_or(Json::Null, Json::from),
        Type::Bytes => {
            let bytes = row.opt_bytes(name)?;
            bytes.map_or(Json::Null, |bytes| STANDARD.encode(bytes).into())
        }
    })
}

/// What a line of an export is.
pub(super) enum Line {
    /// Rows of this table follow; these of its columns.
    Section(&'static Table, Vec<usize>),
    /// A row of the table named last.
    Row(Vec<Value>),
    /// The last line, found to be right.
    End(BTreeMap<String, u64>),
}

/// Reads an export.
pub(super) struct Reader<'a> {
    input: &'a mut (dyn BufRead + Send),
    digest: Context,
    /// Of the line that was read last, from 1.
    pub(super) number: u64,
    /// What rows are of, and their columns.
    current: Option<(&'static Table, Vec<usize>)>,
    rows: BTreeMap<String, u64>,
    text: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// Reads the first line.
    pub(super) fn open(input: &'a mut (dyn BufRead + Send)) -> Result<(Self, Head), TransferError> {
        let mut reader = Self {
            input,
            digest: Context::new(&SHA256),
            number: 0,
            current: None,
            rows: BTreeMap::new(),
            text: Vec::new(),
        };
        let not_an_export = || TransferError::NotAnExport;
        if !reader.read()? {
            return Err(not_an_export());
        }
        let head: Head = serde_json::from_slice(&reader.text).map_err(|_| not_an_export())?;
        if head.doorward != "store" {
            return Err(not_an_export());
        }
        reader.digest.update(&reader.text);
        Ok((reader, head))
    }

    /// The next line.
    pub(super) fn next(&mut self) -> Result<Line, TransferError> {
        if !self.read()? {
            return Err(TransferError::Truncated);
        }
        let line = match self.text.first() {
            Some(b'[') => Line::Row(self.row()?),
            Some(b'{') if self.text.starts_with(b"{\"end\"") => return self.end(),
            _ => {
                let (table, columns) = self.section()?;
                Line::Section(table, columns)
            }
        };
        self.digest.update(&self.text);
        Ok(line)
    }

    /// Reads a line into `text`; whether there is one, with its end.
    fn read(&mut self) -> Result<bool, TransferError> {
        self.text.clear();
        let mut bounded = (&mut self.input).take(LINE_MAX);
        bounded.read_until(b'\n', &mut self.text)?;
        self.number += 1;
        if self.text.len() as u64 >= LINE_MAX {
            return Err(self.wrong("is longer than 64 MiB"));
        }
        Ok(self.text.ends_with(b"\n"))
    }

    fn wrong(&self, reason: impl Into<String>) -> TransferError {
        TransferError::Line {
            line: self.number,
            reason: reason.into(),
        }
    }

    fn section(&mut self) -> Result<(&'static Table, Vec<usize>), TransferError> {
        let section: Section = serde_json::from_slice(&self.text)
            .map_err(|_| self.wrong("is neither a table, nor a row, nor the end"))?;
        let table = TABLES.iter().find(|table| table.name == section.table);
        let table = table.ok_or_else(|| self.wrong("names a table that there is not"))?;
        if self.rows.insert(section.table, 0).is_some() {
            return Err(self.wrong("names a table for the second time"));
        }
        let mut columns = Vec::new();
        for name in &section.columns {
            let at = table.columns.iter().position(|(known, _)| known == name);
            match at {
                Some(at) if !columns.contains(&at) => columns.push(at),
                _ => return Err(self.wrong("names a column that there is not")),
            }
        }
        if columns.is_empty() {
            return Err(self.wrong("names no column"));
        }
        self.current = Some((table, columns.clone()));
        Ok((table, columns))
    }

    fn row(&mut self) -> Result<Vec<Value>, TransferError> {
        let Some((table, columns)) = &self.current else {
            return Err(self.wrong("is a row of no table"));
        };
        let cells: Vec<Json> =
            serde_json::from_slice(&self.text).map_err(|_| self.wrong("is no JSON array"))?;
        if cells.len() != columns.len() {
            let (found, wanted) = (cells.len(), columns.len());
            return Err(self.wrong(format!("has {found} values where {wanted} belong")));
        }
        let values = columns.iter().zip(cells).map(|(at, cell)| {
            let (name, holds) = table.columns[*at];
            let (of, wrong) = (table.name, "is of another type");
            value(cell, holds).ok_or_else(|| self.wrong(format!("{of}.{name} {wrong}")))
        });
        let values = values.collect::<Result<_, _>>()?;
        if let Some(rows) = self.rows.get_mut(table.name) {
            *rows += 1;
        }
        Ok(values)
    }

    fn end(&mut self) -> Result<Line, TransferError> {
        let foot: Trailer =
            serde_json::from_slice(&self.text).map_err(|_| self.wrong("is no end of an export"))?;
        let digest = std::mem::replace(&mut self.digest, Context::new(&SHA256));
        if hex::encode(digest.finish()) != foot.sha256 || foot.rows != self.rows {
            return Err(TransferError::Damaged);
        }
        if self.read()? || !self.text.is_empty() {
            return Err(self.wrong("comes after the end"));
        }
        Ok(Line::End(foot.rows))
    }
}

fn value(cell: Json, holds: Type) -> Option<Value> {
    Some(match (holds, cell) {
        (Type::Text, Json::Null) => Value::Text(None),
        (Type::Int, Json::Null) => Value::Int(None),
        (Type::Bytes, Json::Null) => Value::Bytes(None),
        (Type::Text, Json::String(text)) => Value::Text(Some(text)),
        (Type::Int, Json::Number(number)) => Value::Int(Some(number.as_i64()?)),
        (Type::Bytes, Json::String(text)) => Value::Bytes(Some(STANDARD.decode(text).ok()?)),
        _ => return None,
    })
}
