//! One route file while it is read: its objects by name, what is wrong.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::build_context::{self, BuildContext};
use super::fields::{Fields, Place};
use super::filters::RunningFilters;
use super::loader::FileSets;
use super::objects::{Built, builtin};
use super::properties::Properties;
use crate::handler::MAX_DEPTH;
use doorward_core::yaml::{Document, PathSegment};
use doorward_expr::{Constants, Expression};

/// Most findings of one file that are told.
const MAX_FINDINGS: usize = 50;

/// A route file that is being read.
pub(super) struct RouteFileBuilder<'a> {
    pub(super) context: &'a BuildContext<'a>,
    pub(super) document: &'a Document,
    /// The file in which a router stands that this file belongs to.
    pub(super) outer: Option<&'a RouteFileBuilder<'a>>,
    /// Id of the route.
    pub(super) id: String,
    pub(super) properties: Properties,
    pub(super) constants: Arc<Constants>,
    /// The objects of `heap`, by name.
    pub(super) objects: HashMap<String, Object>,
    states: RefCell<HashMap<String, State>>,
    findings: RefCell<Findings>,
    /// The filters that its last good version runs, and those of this one.
    pub(super) running: RefCell<RunningFilters>,
    /// The directories of its routers.
    pub(super) file_sets: RefCell<FileSets>,
    /// Directories whose files are being read.
    pub(super) directories: Vec<PathBuf>,
    /// Routers met so far.
    pub(super) routers: Cell<usize>,
    /// Whether a base URI is said anywhere in the file.
    pub(super) says_base: bool,
    heap_digest: OnceCell<[u8; 32]>,
}

/// A declared object.
pub(super) struct Object {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What has become of an object.
enum State {
    Building,
    /// Nothing: it is wrong, which has been said.
    Done(Option<Built>),
}

/// What is to be said of a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Findings {
    /// With file, line and key.
    pub(super) errors: Vec<String>,
    /// The same for what has no effect.
    pub(super) warnings: Vec<String>,
}

impl<'a> RouteFileBuilder<'a> {
    /// A page without objects.
    pub(super) fn new(
        context: &'a BuildContext<'a>,
        document: &'a Document,
        outer: Option<&'a RouteFileBuilder<'a>>,
        id: String,
        properties: Properties,
    ) -> Self {
        Self {
            context,
            document,
            outer,
            id,
            constants: properties.constants(context),
            properties,
            objects: HashMap::new(),
            states: RefCell::default(),
            findings: RefCell::default(),
            running: RefCell::default(),
            file_sets: RefCell::default(),
            directories: Vec::new(),
            routers: Cell::new(0),
            says_base: false,
            heap_digest: OnceCell::new(),
        }
    }

    /// Notes an error.
    pub(super) fn wrong(&self, place: &Place, message: impl Into<String>) {
        if !self.is_full() {
            let line = self.finding(place, message.into());
            self.findings.borrow_mut().errors.push(line);
        }
    }

    /// Whether no more errors are told: what only an error needs is not worth
    /// finding out then.
    pub(super) fn is_full(&self) -> bool {
        self.findings.borrow().errors.len() >= MAX_FINDINGS
    }

    /// Notes what has no effect.
    pub(super) fn warn(&self, place: &Place, message: impl Into<String>) {
        let room = self.findings.borrow().warnings.len() < MAX_FINDINGS;
        if room {
            let line = self.finding(place, message.into());
            self.findings.borrow_mut().warnings.push(line);
        }
    }

    fn finding(&self, place: &Place, message: String) -> String {
        let message = self.context.redacted(&message);
        self.document.error(&place.0, message).to_string()
    }

    /// Whether its tree can be judged by itself: nothing around it says where
    /// requests go, and there are no routers in it, whose files are told apart.
    pub(super) fn is_alone(&self) -> bool {
        let mut outer = std::iter::successors(self.outer, |builder| builder.outer);
        self.routers.get() == 0 && !outer.any(|builder| builder.says_base)
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_good(&self) -> bool {
        self.findings.borrow().errors.is_empty()
    }

    pub(super) fn take_findings(&self) -> Findings {
        self.findings.take()
    }

    /// An expression that is evaluated for each request.
    pub(super) fn expression(&self, value: &Value, place: &Place) -> Option<Expression> {
        let Value::String(text) = value else {
            self.wrong(place, "expected an expression, which is a string");
            return None;
        };
        match Expression::compile_with(text, &self.constants) {
            Ok(expression) => {
                for unknown in expression.unknown() {
                    self.warn(place, format!("{unknown}. It is null"));
                }
                Some(expression)
            }
            Err(fault) => {
                self.wrong(place, fault.to_string());
                None
            }
        }
    }

    /// An expression on a request, which has no answer yet.
    pub(super) fn request_expression(&self, value: &Value, place: &Place) -> Option<Expression> {
        self.expression(value, place)
            .filter(|expression| self.is_on_request(expression, place))
    }

    /// Whether an expression can be evaluated before there is an answer.
    pub(super) fn is_on_request(&self, expression: &Expression, place: &Place) -> bool {
        if expression.needs_response() {
            self.wrong(place, "looks at the response, and there is none yet");
        }
        !expression.needs_response()
    }

    /// All objects of the heap, as one.
    pub(super) fn heap_digest(&self) -> [u8; 32] {
        *self.heap_digest.get_or_init(|| {
            let objects: std::collections::BTreeMap<_, _> = self
                .objects
                .iter()
                .map(|(name, object)| (name, &object.value))
                .collect();
            build_context::digest(serde_json::json!(objects).to_string().as_bytes())
        })
    }

    /// What `value`, a name or a declaration in place, stands for.
    pub(super) fn reference(&self, value: &Value, place: &Place) -> Option<Built> {
        match value {
            Value::String(name) => self.named(name, place),
            Value::Object(declaration) => self.inline(declaration, place),
            Value::Null => {
                self.wrong(
                    place,
                    "is required: the name of an object, or an object in place",
                );
                None
            }
            _ => {
                self.wrong(
                    place,
                    "expected the name of an object, or an object in place",
                );
                None
            }
        }
    }

    /// The object called `name`, for whoever refers to it at `place`.
    fn named(&self, name: &str, place: &Place) -> Option<Built> {
        let mut builder = Some(self);
        while let Some(here) = builder {
            if let Some(object) = here.objects.get(name) {
                return self.object(here, name, object, place);
            }
            builder = here.outer;
        }
        if let Some(built) = builtin(name) {
            return Some(built);
        }
        if !self.is_full() {
            self.wrong(place, self.unknown(name));
        }
        None
    }

    fn unknown(&self, name: &str) -> String {
        let mut names: Vec<&str> = self.objects.keys().map(String::as_str).collect();
        let mut outer = self.outer;
        while let Some(builder) = outer {
            names.extend(builder.objects.keys().map(String::as_str));
            outer = builder.outer;
        }
        names.sort_unstable();
        names.truncate(20);
        names.extend([
            "ReverseProxyHandler",
            "ClientHandler",
            "ForgeRockClientHandler",
        ]);
        format!(
            "no object is called '{name}'; known here are: {}",
            names.join(", ")
        )
    }

    fn object(
        &self,
        home: &RouteFileBuilder<'_>,
        name: &str,
        object: &Object,
        place: &Place,
    ) -> Option<Built> {
        let trail = &self.context.trail;
        match home.states.borrow().get(name) {
            Some(State::Done(built)) => {
                if built.is_none() && !std::ptr::eq(self, home) {
                    let file = home.document.file().display();
                    self.wrong(place, format!("'{name}' of {file} can't be built"));
                }
                return built.clone();
            }
            Some(State::Building) => {
                let trail = trail.borrow();
                let from = trail.iter().position(|known| known == name).unwrap_or(0);
                let circle = trail[from..].join(" -> ");
                self.wrong(place, format!("circular reference: {circle} -> {name}"));
                return None;
            }
            None => {}
        }
        home.states
            .borrow_mut()
            .insert(name.to_owned(), State::Building);
        trail.borrow_mut().push(name.to_owned());
        let built = match &object.value {
            Value::Object(declaration) => home.inline(declaration, &object.place),
            // Has been told when the heap was read.
            _ => None,
        };
        trail.borrow_mut().pop();
        let state = State::Done(built.clone());
        home.states.borrow_mut().insert(name.to_owned(), state);
        built
    }

    /// Builds every object of the heap, used or not.
    pub(super) fn build_objects(&self) {
        let mut objects: Vec<(&String, &Object)> = self.objects.iter().collect();
        // In the order of the file, so that findings are.
        objects.sort_by_key(|(_, object)| match object.place.0.last() {
            Some(PathSegment::Index(index)) => *index,
            _ => 0,
        });
        for (name, object) in objects {
            self.object(self, name, object, &object.place);
        }
    }

    fn inline(&self, declaration: &Map<String, Value>, place: &Place) -> Option<Built> {
        let depth = &self.context.depth;
        if depth.get() >= MAX_DEPTH {
            self.wrong(place, format!("is nested deeper than {MAX_DEPTH} levels"));
            return None;
        }
        depth.set(depth.get() + 1);
        let built = self.build(&Fields::new(self, declaration, place.clone()));
        depth.set(depth.get() - 1);
        let built = built?;
        if built.height > MAX_DEPTH {
            self.wrong(place, format!("is nested deeper than {MAX_DEPTH} levels"));
            return None;
        }
        if built.weight > MAX_WEIGHT {
            let message = format!("more than {MAX_WEIGHT} filters would see one request");
            self.wrong(place, message);
            return None;
        }
        Some(built)
    }

    /// The declaration of an object that a filter refers to by name.
    pub(super) fn declaration(&self, name: &str) -> Option<Value> {
        let mut builder = Some(self);
        while let Some(here) = builder {
            if let Some(object) = here.objects.get(name) {
                return Some(object.value.clone());
            }
            builder = here.outer;
        }
        builtin(name).map(|_| serde_json::json!({"name": name, "type": name}))
    }
}

/// Most filters that one request may have to pass.
const MAX_WEIGHT: usize = 1_000;
