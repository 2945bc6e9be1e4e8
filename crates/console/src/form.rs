//! Forms of records: inputs by their schema, and what somebody made of them.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::difference;
use super::error::PageError;
use super::fields::{self, Field, Input};
use super::frame::{self, Frame};
use super::kinds::{self, Place};
use super::visit::Visit;
use super::{form_base, record};

/// An input of a form.
pub(crate) struct FormInput {
    name: String,
    /// `text`, `number`, `password`, `select` or `area`.
    kind: &'static str,
    value: String,
    /// What counts if it stays empty.
    default: String,
    options: Vec<String>,
    required: bool,
    /// Whether a secret is there that is not shown.
    has_secret: bool,
    between: Option<(String, String)>,
    hint: &'static str,
    error: String,
}

#[derive(Template)]
#[template(path = "form.html")]
pub(crate) struct FormPage {
    frame: Frame,
    address: String,
    back: String,
    version: String,
    /// The record that it was made of ([`form_base`]); "" of a new one.
    base: String,
    /// The realm of the record; "": it is of none.
    realm: String,
    lead: &'static str,
    first: Vec<FormInput>,
    others: Vec<FormInput>,
    text: String,
    is_json: bool,
    errors: Vec<(String, String)>,
}

/// What a form is of, and where it leads.
pub(crate) struct FormPlace {
    pub(crate) title: String,
    /// The entry of the navigation.
    pub(crate) section: String,
    /// Where it is sent to.
    pub(crate) address: String,
    pub(crate) back: String,
    /// Of the record; "" of a new one.
    pub(crate) version: String,
    /// The realm of the record; "": it is of none.
    pub(crate) realm: String,
    pub(crate) lead: &'static str,
}

impl FormPlace {
    /// The form of `current`: some fields first, the others behind a switch.
    pub(crate) fn page(
        self,
        visit: &Visit,
        (first, others): (&[&Field], &[&Field]),
        current: &Value,
    ) -> FormPage {
        let inputs = |fields: &[&Field]| -> Vec<_> {
            let inputs = fields.iter().map(|field| input(visit, field, current));
            inputs.collect()
        };
        let mut whole = current.clone();
        if let Value::Object(map) = &mut whole {
            map.retain(|name, _| !fields::is_automatic(name));
        }
        FormPage {
            frame: Frame::of(visit, self.title, &self.section),
            address: self.address,
            back: self.back,
            base: if self.version.is_empty() {
                String::new()
            } else {
                form_base::text(current)
            },
            version: self.version,
            realm: self.realm,
            lead: self.lead,
            first: inputs(first),
            others: inputs(others),
            text: serde_json::to_string_pretty(&whole).unwrap_or_default(),
            is_json: false,
            errors: Vec::new(),
        }
    }
}

/// The form of a record; of a new one if `version` is empty.
pub(crate) fn page(
    visit: &Visit,
    place: &Place,
    fields: &[Field],
    current: &Value,
    version: &str,
) -> FormPage {
    let t = visit.texts;
    let few = fields.len() <= 16;
    let is_first = |field: &Field| {
        let value = record::get(current, &field.name).unwrap_or(&Value::Null);
        let common = place.kind.columns.contains(&field.name.as_str());
        field.required && field.default.is_null() || !field.is_default(value) || common || few
    };
    let (mut first, others): (Vec<&Field>, Vec<&Field>) =
        fields.iter().partition(|field| is_first(field));
    // What must be filled in comes first, labels last.
    first.sort_by_key(|field| {
        (
            !field.required || !field.default.is_null(),
            field.name == "tags",
        )
    });
    let section = place
        .owner
        .as_ref()
        .map_or(place.kind, |(parent, _)| *parent);
    let title = match kinds::name_of(current) {
        "" => format!("{}: {}", t.create, (place.kind.title)(t)),
        name if version.is_empty() => format!("{}: {name}", t.create),
        name => format!("{}: {name}", t.edit),
    };
    let form = FormPlace {
        title,
        section: section.address(),
        address: place.path("/console/preview"),
        back: place.path("/console/gateway"),
        version: version.to_owned(),
        realm: String::new(),
        lead: t.form_lead,
    };
    form.page(visit, (&first, &others), current)
}

fn input(visit: &Visit, field: &Field, current: &Value) -> FormInput {
    let t = visit.texts;
    let value = record::get(current, &field.name).unwrap_or(&Value::Null);
    let has_secret = record::has_mask(value);
    let last = field.name.rsplit('.').next().unwrap_or_default();
    let is_secret = has_secret || doorward_core::model::secret::names_secret(last);
    let (kind, hint) = match field.input {
        Input::Switch | Input::Choice(_) => ("select", ""),
        Input::Number { .. } => ("number", ""),
        Input::Lines => ("area", t.lines_hint),
        Input::Json => ("area", t.json_hint),
        Input::Reference => ("text", t.reference_hint),
        Input::Text if is_secret => ("password", ""),
        // The certificates and keys of the gateway are texts of many lines.
        Input::Text if matches!(field.name.as_str(), "cert" | "key" | "cert_alt" | "key_alt") => {
            ("area", "")
        }
        Input::Text => ("text", ""),
    };
    let options = match &field.input {
        Input::Choice(options) => options.clone(),
        Input::Switch => vec!["true".to_owned(), "false".to_owned()],
        _ => Vec::new(),
    };
    let shown = has_secret || field.is_default(value);
    FormInput {
        name: field.name.clone(),
        kind,
        value: if shown {
            String::new()
        } else {
            field.text(value)
        },
        default: if field.default.is_null() {
            String::new()
        } else {
            record::text(&field.default)
        },
        options,
        required: field.required && field.default.is_null() && !has_secret,
        has_secret,
        between: field.between.clone(),
        hint,
        error: String::new(),
    }
}

impl FormPage {
    /// The form of another record than the one that it shows.
    pub(crate) fn of(self, base: &Value) -> Self {
        Self {
            base: form_base::text(base),
            ..self
        }
    }

    /// The form with what was typed, so that nobody types it again. Secrets are not
    /// sent back.
    pub(crate) fn typed(mut self, visit: &Visit) -> Self {
        self.is_json = visit.field("view") == "json";
        if self.is_json {
            visit.field("record").clone_into(&mut self.text);
        }
        for input in self.first.iter_mut().chain(&mut self.others) {
            let name = format!("f.{}", input.name);
            let typed = visit.form.iter().find(|(key, _)| *key == name);
            if let Some((_, typed)) = typed.filter(|_| input.kind != "password") {
                input.value.clone_from(typed);
            }
        }
        self
    }

    /// The form as an answer that says what is wrong with it.
    pub(crate) fn refused(self, errors: Vec<(String, String)>) -> Result<Response, PageError> {
        let mut response = frame::show(&self.with_errors(errors))?;
        *response.status_mut() = StatusCode::BAD_REQUEST;
        Ok(response)
    }

    /// The form with what is wrong with it; the fields concerned come first.
    fn with_errors(mut self, errors: Vec<(String, String)>) -> Self {
        let is_of = |input: &FormInput, name: &str| {
            let rest = name.strip_prefix(input.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let others = std::mem::take(&mut self.others);
        for mut input in others {
            if errors.iter().any(|(name, _)| is_of(&input, name)) {
                self.first.push(input);
            } else {
                input.error.clear();
                self.others.push(input);
            }
        }
        for input in &mut self.first {
            let own = errors.iter().filter(|(name, _)| is_of(input, name));
            let own: Vec<_> = own.map(|(_, text)| text.as_str()).collect();
            input.error = own.join("; ");
        }
        self.errors = errors;
        self
    }
}

/// The patch that the form of a request makes of `current`.
///
/// # Errors
/// What is wrong with it, by field.
pub(crate) fn patch(
    visit: &Visit,
    fields: &[Field],
    current: &Value,
) -> Result<Value, Vec<(String, String)>> {
    let patch = match visit.field("view") {
        "json" => of_text(visit, current),
        "patch" => {
            let patch = serde_json::from_str(visit.field("patch"));
            patch.map_err(|error| vec![(String::new(), error.to_string())])
        }
        _ => of_inputs(visit, fields, current),
    };
    let patch = patch?;
    refuse_masks(visit, &patch)?;
    Ok(patch)
}

/// Refuses what would write the mask in the place of a secret: it stands for the secret
/// that is there, and is none itself.
///
/// # Errors
/// The members that are masked.
pub(crate) fn refuse_masks(visit: &Visit, value: &Value) -> Result<(), Vec<(String, String)>> {
    let names = record::masks(value).into_iter();
    let wrong: Vec<_> = names
        .map(|name| (name, visit.texts.mask_in_change.to_owned()))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn of_text(visit: &Visit, current: &Value) -> Result<Value, Vec<(String, String)>> {
    let wanted = serde_json::from_str::<Value>(visit.field("record"));
    let wanted = wanted.map_err(|error| vec![(String::new(), error.to_string())])?;
    if !wanted.is_object() {
        return Err(vec![(String::new(), visit.texts.no_object.to_owned())]);
    }
    let mut plain = current.clone();
    if let Value::Object(map) = &mut plain {
        map.retain(|name, _| !fields::is_automatic(name));
    }
    Ok(difference::patch(&plain, &wanted))
}

fn of_inputs(
    visit: &Visit,
    fields: &[Field],
    current: &Value,
) -> Result<Value, Vec<(String, String)>> {
    let mut patch = json!({});
    let mut errors = Vec::new();
    for field in fields {
        let name = format!("f.{}", field.name);
        let Some((_, typed)) = visit.form.iter().find(|(key, _)| *key == name) else {
            continue;
        };
        let old = record::get(current, &field.name).unwrap_or(&Value::Null);
        match field.parse(typed) {
            Err(expected) => {
                let text = format!("{} {expected}", visit.texts.expected);
                errors.push((field.name.clone(), text));
            }
            Ok(value) => {
                if let Some(value) = change(field, old, value) {
                    record::set(&mut patch, &field.name, value);
                }
            }
        }
    }
    if errors.is_empty() {
        Ok(patch)
    } else {
        Err(errors)
    }
}

/// The new value of a field, if it has one. An empty input means the default, or
/// for a secret that it stays.
fn change(field: &Field, old: &Value, typed: Option<Value>) -> Option<Value> {
    match typed {
        None if field.is_default(old) || record::has_mask(old) => None,
        None => Some(field.default.clone()),
        Some(value) if field.text(&value) == field.text(old) && !value["name"].is_string() => None,
        Some(value) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(default: Value) -> Field {
        let schema = json!([{"port": {"type": "integer", "default": default}}]);
        fields::read(&schema, "").remove(0)
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let port = field(json!(80));
        assert_eq!(change(&port, &json!(80), None), None, "stays the default");
        assert_eq!(
            change(&port, &json!(81), None),
            Some(json!(80)),
            "back to the default"
        );
        assert_eq!(change(&port, &json!(81), Some(json!(81))), None, "stays");
        assert_eq!(change(&port, &json!(81), Some(json!(82))), Some(json!(82)));
        assert_eq!(
            change(&port, &Value::Null, Some(json!(80))),
            Some(json!(80)),
            "explicit"
        );
        assert_eq!(change(&port, &json!("**"), None), None, "a secret stays");
    }
}
