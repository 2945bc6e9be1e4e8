//! What one method of one path takes and gives.

use serde_json::{Map, Value, json};

use super::JSON;

/// A parameter of a query or a header.
#[derive(Debug, Clone)]
pub struct Parameter {
    name: String,
    place: &'static str,
    schema: Value,
    description: String,
    is_required: bool,
}

impl Parameter {
    /// A parameter of the query.
    pub fn query(name: &str, schema: Value, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            place: "query",
            schema,
            description: description.to_owned(),
            is_required: false,
        }
    }

    /// A header.
    pub fn header(name: &str, schema: Value, description: &str) -> Self {
        Self {
            place: "header",
            ..Self::query(name, schema, description)
        }
    }

    /// Says that no request goes without it.
    #[must_use]
    pub fn required(self) -> Self {
        Self {
            is_required: true,
            ..self
        }
    }

    fn to_json(&self) -> Value {
        let mut shown = json!({
            "name": self.name,
            "in": self.place,
            "schema": self.schema,
            "description": self.description,
        });
        if self.is_required {
            shown["required"] = true.into();
        }
        shown
    }
}

/// What one method of one path takes and gives.
#[derive(Debug, Clone, Default)]
pub struct Operation {
    summary: String,
    description: Option<String>,
    tag: Option<String>,
    parameters: Vec<Parameter>,
    /// What open parts of the path are, where their name does not say it.
    open_parts: Vec<(String, String)>,
    body: Map<String, Value>,
    is_body_required: bool,
    answers: Vec<(u16, Value)>,
    refusals: Vec<&'static str>,
    security: Option<Value>,
}

impl Operation {
    /// An operation that does what `summary` says.
    pub fn new(summary: impl Into<String>) -> Self {
        Self {
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// Says more about it.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Says with which others it belongs together.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Adds parameters.
    #[must_use]
    pub fn takes(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// Says what an open part of the path is.
    #[must_use]
    pub fn names(mut self, part: &str, description: impl Into<String>) -> Self {
        self.open_parts.push((part.to_owned(), description.into()));
        self
    }

    /// Says that there is a JSON body.
    #[must_use]
    pub fn body(self, schema: &Value) -> Self {
        Self {
            is_body_required: true,
            ..self.body_as(JSON, schema)
        }
    }

    /// Says that there may be a JSON body.
    #[must_use]
    pub fn optional_body(self, schema: &Value) -> Self {
        self.body_as(JSON, schema)
    }

    /// Says that there may be a body of another type.
    #[must_use]
    pub fn body_as(mut self, media: &str, schema: &Value) -> Self {
        self.body
            .insert(media.to_owned(), json!({"schema": schema}));
        self
    }

    /// Says that no request goes without a body.
    #[must_use]
    pub fn body_required(self) -> Self {
        Self {
            is_body_required: true,
            ..self
        }
    }

    /// Adds an answer in JSON.
    #[must_use]
    pub fn answers(self, status: u16, description: &str, schema: &Value) -> Self {
        self.answers_as(status, description, JSON, schema)
    }

    /// Adds an answer of another type; or another type of an answer.
    #[must_use]
    pub fn answers_as(
        mut self,
        status: u16,
        description: &str,
        media: &str,
        schema: &Value,
    ) -> Self {
        let content = json!({"schema": schema});
        match self.answers.iter_mut().find(|(known, _)| *known == status) {
            Some((_, answer)) => answer["content"][media] = content,
            None => {
                let answer = json!({"description": description, "content": {media: content}});
                self.answers.push((status, answer));
            }
        }
        self
    }

    /// Adds an answer without a body.
    #[must_use]
    pub fn ends(mut self, status: u16, description: &str) -> Self {
        self.answers
            .push((status, json!({"description": description})));
        self
    }

    /// Adds statuses of refusals, which the document describes.
    #[must_use]
    pub fn refuses(mut self, statuses: &[&'static str]) -> Self {
        for status in statuses {
            let mut answers = self.answers.iter();
            let is_answer = answers.any(|(known, _)| known.to_string() == *status);
            if !is_answer && !self.refusals.contains(status) {
                self.refusals.push(status);
            }
        }
        self
    }

    /// Says what a request has to prove, where that is another thing than at others.
    #[must_use]
    pub fn security(mut self, security: Value) -> Self {
        self.security = Some(security);
        self
    }

    /// Whether an open part of the path has no description yet.
    pub fn lacks(&self, part: &str) -> bool {
        self.open_parts.iter().all(|(known, _)| *known != part)
    }

    /// Whether it has a body.
    pub fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    pub(super) fn to_json(&self, open_parts: &[&str], refusal: fn(&str) -> String) -> Value {
        let mut parameters: Vec<Value> = Vec::new();
        for part in open_parts {
            let mut shown = json!({
                "name": part,
                "in": "path",
                "required": true,
                "schema": {"type": "string", "minLength": 1},
            });
            if let Some((_, says)) = self.open_parts.iter().find(|(name, _)| name == part) {
                shown["description"] = says.as_str().into();
            }
            parameters.push(shown);
        }
        parameters.extend(self.parameters.iter().map(Parameter::to_json));
        let mut responses = Map::new();
        for (status, answer) in &self.answers {
            responses.insert(status.to_string(), answer.clone());
        }
        for status in &self.refusals {
            let name = refusal(status);
            let component = json!({"$ref": format!("#/components/responses/{name}")});
            responses.insert((*status).to_owned(), component);
        }
        let mut shown = json!({"summary": self.summary, "responses": responses});
        let mut put = |name: &str, value: Value| shown[name] = value;
        if let Some(description) = &self.description {
            put("description", description.as_str().into());
        }
        if let Some(tag) = &self.tag {
            put("tags", json!([tag]));
        }
        if !parameters.is_empty() {
            put("parameters", parameters.into());
        }
        if self.has_body() {
            let body = json!({"required": self.is_body_required, "content": self.body});
            put("requestBody", body);
        }
        if let Some(security) = &self.security {
            put("security", security.clone());
        }
        shown
    }
}
