//! Descriptions of services: a file in the language of protobuf, and what it imports.
//!
//! Files are read when a configuration is built, from one folder, and within bounds.
//! What is told of an error is where it stands and what was expected, never what a file
//! has there: whoever may write a configuration could read files by it.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use prost_reflect::{DescriptorPool, MethodDescriptor};
use protox::file::{File, FileResolver, GoogleFileResolver};
use protox::{Compiler, Error};

/// How the name of a description ends: nothing else is read.
const EXTENSION: &str = "proto";
/// Bytes of the longest file.
const MAX_FILE: u64 = 1 << 20;
/// Files that one description may consist of.
const MAX_FILES: usize = 256;
/// Bytes of all of them.
const MAX_BYTES: usize = 8 << 20;
/// How deep brackets may stand in each other. The compiler reads values of options by
/// recursion.
const MAX_DEPTH: usize = 48;

/// Why a description is not taken.
pub(super) struct DescriptionError(String);

impl Display for DescriptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for DescriptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DescriptionError {}

/// The methods of a description.
pub(super) struct Description {
    methods: HashMap<Box<str>, MethodDescriptor>,
}

impl Description {
    /// Reads the file at `path`, and what it imports.
    ///
    /// # Errors
    /// [`DescriptionError`], with file and line.
    pub(super) fn read(path: &str) -> Result<Self, DescriptionError> {
        let path = Path::new(path);
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| is_description(path)) else {
            return Err(DescriptionError(
                "must name a file that ends in .proto".to_owned(),
            ));
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Whether it is there is nothing that this would tell.
        let unreadable = |_| DescriptionError("its folder can't be read".to_owned());
        let root = folder.canonicalize().map_err(unreadable)?;
        let mut compiler = Compiler::with_file_resolver(Folder {
            root,
            files: Cell::new(0),
            bytes: Cell::new(0),
        });
        compiler
            .open_file(name)
            .map_err(|error| told(&error, name))?;
        Self::of(&compiler.descriptor_pool())
    }

    fn of(pool: &DescriptorPool) -> Result<Self, DescriptionError> {
        let own = "google.protobuf.";
        let usurps =
            |name: &str, file: &str| name.starts_with(own) && !file.starts_with("google/protobuf/");
        let mut messages = pool.all_messages();
        if let Some(message) = messages.find(|it| usurps(it.full_name(), it.parent_file().name())) {
            // The form of these in JSON is fixed, and so has to be what they hold.
            let name = message.full_name();
            return Err(DescriptionError(format!(
                "{name} is not for others to define"
            )));
        }
        let methods = pool.services().flat_map(|service| {
            let methods: Vec<_> = service.methods().collect();
            let path = |method: &MethodDescriptor| {
                format!("/{}/{}", service.full_name(), method.name()).into()
            };
            let methods = methods.into_iter().map(|method| (path(&method), method));
            methods.collect::<Vec<_>>()
        });
        let methods: HashMap<_, _> = methods.collect();
        if methods.is_empty() {
            return Err(DescriptionError("describes no service".to_owned()));
        }
        Ok(Self { methods })
    }

    /// The method at this path.
    pub(super) fn method(&self, path: &str) -> Option<&MethodDescriptor> {
        self.methods.get(path)
    }
}

fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == EXTENSION)
}

/// What is told of an error of the compiler in the file `name` or in one that it imports:
/// with file and line, and without what the file has there.
fn told(error: &Error, name: &str) -> DescriptionError {
    if error.is_file_not_found() && error.file().is_none() {
        return DescriptionError(format!("{name}: there is no such file"));
    }
    let text = format!("{error:?}");
    if !error.is_parse() {
        return DescriptionError(text);
    }
    let text = text.split(", but ").next().unwrap_or_default();
    let text = match text.split_once("unknown syntax") {
        Some((place, _)) => format!("{place}unknown syntax"),
        None => text.to_owned(),
    };
    DescriptionError(text)
}

/// The files of one folder, and the ones that everybody has.
struct Folder {
    root: PathBuf,
    /// How many were read, and how long they are.
    files: Cell<usize>,
    bytes: Cell<usize>,
}

impl FileResolver for Folder {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        match GoogleFileResolver::new().open_file(name) {
            Err(error) if error.is_file_not_found() => {}
            found => return found,
        }
        let text = self.text(name)?;
        File::from_source(name, &text)
    }
}

impl Folder {
    fn text(&self, name: &str) -> Result<String, Error> {
        let refuse = |why: &str| Error::new(DescriptionError(format!("{name}: {why}")));
        let path = Path::new(name);
        let mut parts = path.components();
        if !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(refuse("is not within the folder of the description"));
        }
        if !is_description(path) {
            return Err(refuse("does not end in .proto"));
        }
        let Ok(path) = self.root.join(path).canonicalize() else {
            return Err(Error::file_not_found(name));
        };
        if !path.starts_with(&self.root) {
            return Err(refuse("leads out of the folder of the description"));
        }
        self.files.set(self.files.get() + 1);
        if self.files.get() > MAX_FILES {
            return Err(refuse("is one file too many"));
        }
        if !path.is_file() {
            // To open a pipe may take for ever.
            return Err(refuse("can't be read"));
        }
        let file = std::fs::File::open(&path).map_err(|_| refuse("can't be read"))?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
        read.map_err(|_| refuse("can't be read"))?;
        self.bytes.set(self.bytes.get() + bytes.len());
        if bytes.len() as u64 > MAX_FILE || self.bytes.get() > MAX_BYTES {
            return Err(refuse("is too long"));
        }
        let text = String::from_utf8(bytes).map_err(|_| refuse("is no text"))?;
        if let Some(line) = too_deep(&text) {
            return Err(Error::new(DescriptionError(format!(
                "{name}:{line}: brackets stand too deep in each other"
            ))));
        }
        Ok(text)
    }
}

/// The line where brackets stand too deep in each other. What is in texts and comments
/// does not count.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut line) = (0_usize, 1);
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'\n' => line += 1,
            b'{' | b'[' | b'<' | b'(' => depth += 1,
            b'}' | b']' | b'>' | b')' => depth = depth.saturating_sub(1),
            b'#' => rest = skip(rest, &mut line, |rest| rest.starts_with(b"\n")),
            b'/' if rest.starts_with(b"/") => {
                rest = skip(rest, &mut line, |rest| rest.starts_with(b"\n"));
            }
            b'/' if rest.starts_with(b"*") => {
                rest = skip(&rest[1..], &mut line, |rest| rest.starts_with(b"*/"));
                // The end is no beginning of the next one.
                rest = rest.get(2..).unwrap_or_default();
            }
            b'"' | b'\'' => {
                let mut escaped = false;
                rest = skip(rest, &mut line, |rest| {
                    let first = rest.first().copied();
                    let ends = !escaped && first == Some(*byte) || first == Some(b'\n');
                    escaped = !escaped && first == Some(b'\\');
                    ends
                });
                rest = rest
                    .get(1..)
                    .filter(|_| rest.first() == Some(byte))
                    .unwrap_or(rest);
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(line);
        }
    }
    None
}

/// What is left where `ends` says so, and counts lines until there.
fn skip<'t>(mut rest: &'t [u8], line: &mut usize, mut ends: impl FnMut(&[u8]) -> bool) -> &'t [u8] {
    while let Some((byte, after)) = rest.split_first() {
        if ends(rest) {
            break;
        }
        *line += usize::from(*byte == b'\n');
        rest = after;
    }
    rest
}
