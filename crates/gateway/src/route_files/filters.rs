//! Filters, from declarations to steps; what has not changed keeps running.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::build_context::{self, Prints};
use super::builder::RouteFileBuilder;
use super::fields::{Fields, Place};
use super::loader;
use super::objects::{Built, Part};
use crate::handler::{Case, Handler, StaticResponse, Step};
use doorward_core::hex;
use doorward_plugin_api::filter::Filter;
use doorward_plugins::chain;

/// Most objects that are followed from one filter to see whether it says the
/// same as before.
const MAX_NAMED: usize = 64;

/// A filter that runs.
#[derive(Clone)]
pub(super) struct RunningFilter {
    pub(super) filter: Arc<dyn Filter>,
    /// The files that were read for it, secrets for instance: digests only.
    prints: Prints,
}

/// The filters that run for a route file, by what they were built from.
#[derive(Default, Clone)]
pub(super) struct RunningFilters {
    before: HashMap<String, RunningFilter>,
    now: HashMap<String, RunningFilter>,
    /// How often each declaration has been met.
    met: HashMap<String, usize>,
}

impl RunningFilters {
    /// For a file whose last good version runs the filters of `before`.
    pub(super) fn after(before: HashMap<String, RunningFilter>) -> Self {
        Self {
            before,
            ..Self::default()
        }
    }

    /// The filters that were built or kept.
    pub(super) fn into_filters(self) -> HashMap<String, RunningFilter> {
        self.now
    }

    /// Tells this declaration from others that say the same.
    fn numbered(&mut self, identity: String) -> String {
        let met = self.met.entry(identity.clone()).or_insert(0);
        *met += 1;
        format!("{identity}-{met}")
    }
}

/// Steps with what is known of them.
pub(super) struct Steps {
    pub(super) steps: Arc<[Step]>,
    pub(super) height: usize,
    pub(super) weight: usize,
}

impl RouteFileBuilder<'_> {
    /// The filters that an array refers to; all of them are looked at.
    pub(super) fn steps(&self, config: &Fields<'_>, field: &str) -> Option<Steps> {
        let place = config.at(field);
        let items = config.array(field)?;
        let (mut steps, mut height, mut weight) = (Vec::new(), 0, 0);
        for (i, item) in items.iter().enumerate() {
            if let Some(found) = self.filter_of(item, &place.at(i)) {
                height = height.max(found.height);
                weight += found.weight;
                steps.push(step(found));
            }
        }
        (steps.len() == items.len()).then(|| Steps {
            steps: steps.into(),
            height,
            weight,
        })
    }

    /// The filter that `value` is or names.
    fn filter_of(&self, value: &Value, place: &Place) -> Option<Built> {
        let built = self.reference(value, place)?;
        match built.part {
            Part::Filter { .. } | Part::Steps(_) => Some(built),
            Part::Handler(_) | Part::Client | Part::Passive => {
                self.wrong(place, "is not a filter");
                None
            }
        }
    }

    pub(super) fn chain_of_filters(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["filters"], &[]);
        let steps = self.steps(config, "filters")?;
        Some(Built {
            part: Part::Steps(steps.steps),
            height: steps.height + 1,
            weight: steps.weight,
        })
    }

    pub(super) fn enforcement(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["condition", "failureHandler"], &[]);
        let condition = self.request_condition(config)?;
        let Some(condition) = condition else {
            return config.wrong("condition", "is required");
        };
        let (failure, height, weight) = match config.value("failureHandler") {
            None => (Arc::new(Handler::Static(forbidden()?)), 1, 0),
            Some(_) => {
                let leads = self.leads_to(config, "failureHandler")?;
                (leads.handler, leads.height, leads.weight)
            }
        };
        Some(Built::step(
            Step::Enforce { condition, failure },
            height,
            weight,
        ))
    }

    pub(super) fn conditional(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["condition", "delegate"], &[]);
        let condition = self.request_condition(config)?;
        let Some(condition) = condition else {
            return config.wrong("condition", "is required");
        };
        let delegate = config.value("delegate").unwrap_or(&Value::Null);
        let found = self.filter_of(delegate, &config.at("delegate"))?;
        let (height, weight) = (found.height, found.weight);
        let steps = match found.part {
            Part::Steps(steps) => steps,
            _ => Arc::new([step(found)]),
        };
        Some(Built::step(
            Step::Conditional { condition, steps },
            height,
            weight,
        ))
    }

    pub(super) fn switch(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["onRequest", "onResponse"], &[]);
        let (mut height, mut weight) = (0, 0);
        let mut cases = |field: &str, answers: bool| {
            let place = config.at(field);
            let mut cases = Vec::new();
            for (i, item) in config.array(field)?.iter().enumerate() {
                let (case, leads_height, leads_weight) = self.case(item, place.at(i), answers)?;
                height = height.max(leads_height);
                weight = weight.max(leads_weight);
                cases.push(case);
            }
            Some(cases.into_boxed_slice())
        };
        let on_request = cases("onRequest", false);
        let on_response = cases("onResponse", true);
        let step = Step::Switch {
            on_request: on_request?,
            on_response: on_response?,
        };
        Some(Built::step(step, height, weight))
    }

    fn case(&self, item: &Value, place: Place, answers: bool) -> Option<(Case, usize, usize)> {
        let Value::Object(item) = item else {
            self.wrong(&place, "expected an object with condition and handler");
            return None;
        };
        let fields = Fields::new(self, item, place);
        fields.known(&["condition", "handler"], &[]);
        let condition = if answers {
            fields.condition("condition")?
        } else {
            self.request_condition(&fields)?
        };
        let leads = self.leads_to(&fields, "handler")?;
        if answers && !leads.handler.answers() {
            let message = "must answer by itself (StaticResponseHandler, a redirect to the \
                           login for instance): an upstream has answered, and no second one is \
                           asked in its place; what must be sent elsewhere is told by onRequest";
            return fields.wrong("handler", message);
        }
        let handler = leads.handler;
        Some((Case { condition, handler }, leads.height, leads.weight))
    }

    /// A filter of one of the types that `chain` lists.
    pub(super) fn filter(
        &self,
        type_name: &str,
        declared: &Fields<'_>,
        config: &Fields<'_>,
    ) -> Option<Built> {
        let kind = chain::chain_kind(type_name)?;
        let name = declared.value("name").and_then(Value::as_str);
        let label = name.unwrap_or(type_name);
        let digest = self.digest(type_name, label, config);
        let scope = self
            .running
            .borrow_mut()
            .numbered(format!("{label}/{digest}"));
        let kept = self.kept(&scope);
        let kept = kept.or_else(|| self.made(kind.build, &scope, config))?;
        let filter = kept.filter.clone();
        self.context.add_prints(kept.prints.clone());
        for warning in filter.warnings() {
            self.warn(&config.place, warning);
        }
        self.running.borrow_mut().now.insert(scope, kept);
        let shown = match name {
            Some(name) => format!("{type_name} {name}"),
            None => type_name.to_owned(),
        };
        Some(Built::filter(shown, filter))
    }

    /// The filter that runs already, unless a file says something else now.
    fn kept(&self, scope: &str) -> Option<RunningFilter> {
        let kept = self.running.borrow().before.get(scope).cloned();
        kept.filter(|kept| loader::is_current(&kept.prints))
    }

    /// A new filter, and what was read for it.
    fn made(&self, build: chain::Build, scope: &str, config: &Fields<'_>) -> Option<RunningFilter> {
        let mut parts = self.context.parts.scoped(&format!("{}/{scope}", self.id));
        parts.constants = self.constants.clone();
        let named = |name: &str| self.declaration(name);
        let before = self.context.take_prints();
        let built = build(config.map(), &parts, &named);
        let prints = self.context.take_prints();
        self.context.add_prints(before);
        // Of what could not be built too: it may be due to a missing secret.
        self.context.add_prints(prints.clone());
        match built {
            Ok(filter) => Some(RunningFilter { filter, prints }),
            Err(error) => {
                self.wrong_config(config, &error.field, error.message);
                None
            }
        }
    }

    /// What a filter is built from: its own declaration, the objects that it
    /// names and those that these name, and the properties that may occur.
    fn digest(&self, type_name: &str, label: &str, config: &Fields<'_>) -> String {
        let mut texts = BTreeSet::new();
        strings(&Value::Object(config.map().clone()), &mut texts);
        let mut named = Map::new();
        let mut waiting: Vec<String> = texts.into_iter().collect();
        while let Some(name) = waiting.pop() {
            if named.contains_key(&name) {
                continue;
            }
            if named.len() == MAX_NAMED {
                // Whatever changes in the heap then makes it another one.
                let heap = format!("{:?}", self.heap_digest());
                named.insert(String::new(), heap.into());
                break;
            }
            if let Some(declaration) = self.declaration(&name) {
                let mut texts = BTreeSet::new();
                strings(&declaration, &mut texts);
                waiting.extend(texts);
                named.insert(name, declaration);
            }
        }
        let whole = json!([type_name, label, config.map(), named]).to_string();
        let properties = self.properties.named_in(&whole);
        let digest = build_context::digest(format!("{whole}{properties}").as_bytes());
        hex::encode(&digest[..8])
    }

    /// A throttling policy, as a throttle would read it.
    pub(super) fn policy(&self, declared: &Fields<'_>) -> Option<Built> {
        let kind = chain::chain_kind("ThrottlingFilter")?;
        const POLICY: &str = "throttlingRatePolicy";
        let config = Map::from_iter([(POLICY.to_owned(), Value::Object(declared.map().clone()))]);
        let mut parts = self.context.parts.scoped("");
        parts.constants = self.constants.clone();
        // It decides on nothing, so it need not be known to anybody.
        parts.redis = None;
        match (kind.build)(&config, &parts, &|name| self.declaration(name)) {
            Ok(_) => Some(Built::passive()),
            Err(error) => {
                let field = error.field.strip_prefix(POLICY).unwrap_or_default();
                self.wrong_config(declared, field.trim_start_matches('.'), error.message);
                None
            }
        }
    }

    /// Says what is wrong with a dotted field of a `config`, which may lead
    /// into an object that is named there.
    pub(super) fn wrong_config(&self, config: &Fields<'_>, field: &str, message: String) {
        let mut place = config.place.clone();
        let mut value = Value::Object(config.map().clone());
        for step in field.split(['.', '[', ']']).filter(|step| !step.is_empty()) {
            if let Value::String(name) = &value {
                match self.objects.get(name) {
                    Some(object) => {
                        place = object.place.clone();
                        value = object.value.clone();
                    }
                    None => break,
                }
            }
            let (next, at) = match (&value, step.parse::<usize>()) {
                (Value::Array(list), Ok(index)) => (list.get(index), place.at(index)),
                _ => (value.get(step), place.at(step)),
            };
            place = at;
            value = next.cloned().unwrap_or(Value::Null);
        }
        self.wrong(&place, self.circle(config, &message).unwrap_or(message));
    }

    /// The circle that objects named in `config` refer in, if a message about
    /// too many of them is due to one.
    fn circle(&self, config: &Fields<'_>, message: &str) -> Option<String> {
        if !message.contains("delegates too often") {
            return None;
        }
        let mut path: Vec<String> = Vec::new();
        let mut value = Value::Object(config.map().clone());
        loop {
            let mut texts = BTreeSet::new();
            strings(&value, &mut texts);
            let next = texts
                .into_iter()
                .find(|name| self.objects.contains_key(name))?;
            let from = path.iter().position(|known| *known == next);
            path.push(next.clone());
            if let Some(from) = from {
                return Some(format!("circular reference: {}", path[from..].join(" -> ")));
            }
            value = self.declaration(&next)?.get("config")?.clone();
        }
    }
}

/// The texts in a value, at any depth.
fn strings(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            texts.insert(text.clone());
        }
        Value::Array(list) => list.iter().for_each(|item| strings(item, texts)),
        Value::Object(map) => map.values().for_each(|item| strings(item, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub(super) fn step(built: Built) -> Step {
    match built.part {
        Part::Filter { label, filter } => Step::Filter { label, filter },
        Part::Steps(steps) => Step::Group(steps),
        Part::Handler(_) | Part::Client | Part::Passive => Step::Group(Arc::new([])),
    }
}

/// What refused requests get unless something else is declared.
fn forbidden() -> Option<StaticResponse> {
    StaticResponse::new(403, None, Vec::new(), None).ok()
}
