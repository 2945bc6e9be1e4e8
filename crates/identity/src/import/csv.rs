//! CSV (RFC 4180), with the names of SCIM in the first line.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use csv::{ByteRecord, ErrorKind, ReaderBuilder, Terminator};
use serde_json::Map;

use super::attributes::{Place, without_gaps};
use super::{ImportError, ImportedPassword, ImportedUser, RECORD_MAX, Record};
use doorward_core::model::secret::Secret;

/// Most columns.
const COLUMNS_MAX: usize = 512;

/// What a column is.
#[derive(Debug)]
enum Column {
    Attribute(String, Place),
    Password,
    Hash,
    /// What an export wrote, and only the service sets.
    Ignored,
}

/// The records of a file.
pub struct CsvRecords<R> {
    reader: csv::Reader<Bounded<R>>,
    left: Rc<Cell<usize>>,
    columns: Vec<Column>,
    record: ByteRecord,
    over: bool,
}

/// Reads at most so much for one record: a quote that nobody closed would take
/// in the whole file.
struct Bounded<R> {
    inner: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        match self.left.get().checked_sub(read) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("the record is longer than 1 MiB")),
        }
        Ok(read)
    }
}

impl<R: Read> CsvRecords<R> {
    /// Begins to read: the first line says what the columns are.
    ///
    /// # Errors
    /// A name that there is not, or no `userName`.
    pub fn new(inner: R, known: impl Fn(&str) -> bool) -> Result<Self, ImportError> {
        let left = Rc::new(Cell::new(RECORD_MAX));
        let bounded = Bounded {
            inner,
            left: Rc::clone(&left),
        };
        let mut reader = ReaderBuilder::new()
            .flexible(true)
            .has_headers(false)
            // Lines would be counted late if they ended in both.
            .terminator(Terminator::Any(b'\n'))
            .from_reader(bounded);
        let wrong = |text: String| ImportError::Format { line: 1, text };
        let mut record = ByteRecord::new();
        let read = reader.read_byte_record(&mut record);
        if !read.map_err(|error| failed(error, 1))? {
            return Err(wrong("the file is empty".to_owned()));
        }
        if record.len() > COLUMNS_MAX {
            return Err(wrong(format!("there are more than {COLUMNS_MAX} columns")));
        }
        let mut columns = Vec::with_capacity(record.len());
        for (index, name) in record.iter().enumerate() {
            let name = std::str::from_utf8(name).unwrap_or("?");
            let name = if index == 0 {
                name.trim_start_matches('\u{feff}')
            } else {
                name
            };
            let column = column(name.trim(), &known);
            columns.push(column.ok_or_else(|| {
                let shown: String = name.chars().take(100).collect();
                wrong(format!("`{shown}` is no attribute of users"))
            })?);
        }
        let is_name = |column: &Column| matches!(column, Column::Attribute(name, _) if name.eq_ignore_ascii_case("userName"));
        if !columns.iter().any(is_name) {
            return Err(wrong(
                "the first line must name the columns, `userName` among them".to_owned(),
            ));
        }
        Ok(Self {
            reader,
            left,
            columns,
            record,
            over: false,
        })
    }

    fn found(&self) -> Result<Option<ImportedUser>, String> {
        let mut found = ImportedUser {
            record: Map::new(),
            password: None,
        };
        if self.record.len() != self.columns.len() {
            let (has, wanted) = (self.record.len(), self.columns.len());
            return Err(format!("the line has {has} values, the first one {wanted}"));
        }
        for (index, column) in self.columns.iter().enumerate() {
            let text = std::str::from_utf8(&self.record[index]);
            let mut text = text.map_err(|_| "a value is no UTF-8".to_owned())?;
            if index + 1 == self.columns.len() {
                text = text.strip_suffix('\r').unwrap_or(text);
            }
            match column {
                Column::Ignored => {}
                _ if text.is_empty() => {}
                Column::Attribute(_, place) => place.put(&mut found.record, text)?,
                Column::Password | Column::Hash if found.password.is_some() => {
                    return Err("has password and passwordHash: give one of them".to_owned());
                }
                Column::Password => {
                    found.password = Some(ImportedPassword::Plain(Secret::new(text)))
                }
                Column::Hash => found.password = Some(ImportedPassword::Hash(Secret::new(text))),
            }
        }
        without_gaps(&mut found.record);
        Ok(Some(found))
    }
}

impl<R: Read> Iterator for CsvRecords<R> {
    type Item = Result<Record, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        self.left.set(RECORD_MAX);
        loop {
            let line = self.reader.position().line();
            match self.reader.read_byte_record(&mut self.record) {
                Ok(true) if is_blank(&self.record) => {}
                Ok(true) => {
                    let line = self.record.position().map_or(line, csv::Position::line);
                    let found = self.found();
                    return Some(Ok(Record { line, found }));
                }
                Ok(false) => return None,
                Err(error) => {
                    self.over = true;
                    return Some(Err(failed(error, line)));
                }
            }
        }
    }
}

/// A line with nothing on it.
fn is_blank(record: &ByteRecord) -> bool {
    record.len() == 1 && matches!(&record[0], b"" | b"\r")
}

fn column(name: &str, known: &impl Fn(&str) -> bool) -> Option<Column> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("password") {
        return Some(Column::Password);
    }
    if is("passwordHash") {
        return Some(Column::Hash);
    }
    let begins = |prefix: &str| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    if is("schemas") || is("meta") || begins("meta.") || begins("schemas[") {
        return Some(Column::Ignored);
    }
    let place = Place::parse(name)?;
    let path = match &place {
        Place::Plain(name) => name.clone(),
        // The record itself is checked against the extension.
        Place::Member(urn, _) if urn.contains(':') => String::new(),
        Place::Member(name, member) | Place::Value(name, _, member) => format!("{name}.{member}"),
    };
    let generated = path.eq_ignore_ascii_case("addresses.formatted");
    match path.is_empty() || known(&path) {
        true if generated => Some(Column::Ignored),
        true => Some(Column::Attribute(name.to_owned(), place)),
        false => None,
    }
}

fn failed(error: csv::Error, line: u64) -> ImportError {
    let text = error.to_string();
    match error.into_kind() {
        ErrorKind::Io(error) => ImportError::Unreadable { line, error },
        _ => ImportError::Format { line, text },
    }
}
