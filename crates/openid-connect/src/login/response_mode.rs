//! The ways in which answers of the provider come (`response_mode`; OAuth 2.0
//! Multiple Response Types §2.1, Form Post, JARM §2.3).

use crate::config::fields::{Fields, wrong};
use doorward_plugin_api::ConfigError;

/// Where an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Query,
    FormPost,
    /// A page of the gateway posts it.
    Fragment,
}

/// A mode of answers.
#[derive(Clone, Debug)]
pub(crate) struct ResponseMode {
    pub(crate) delivery: Delivery,
    /// Whether it comes in a signed token.
    pub(crate) signed: bool,
    /// What requests say; nothing for what providers do anyway.
    pub(crate) name: Option<String>,
}

impl ResponseMode {
    pub(crate) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        let name = fields.text("response_mode")?.unwrap_or("query");
        let (delivery, signed) = match name {
            "query" => (Delivery::Query, false),
            "form_post" => (Delivery::FormPost, false),
            "fragment" => (Delivery::Fragment, false),
            // For a code, `jwt` is `query.jwt`.
            "jwt" | "query.jwt" => (Delivery::Query, true),
            "form_post.jwt" => (Delivery::FormPost, true),
            "fragment.jwt" => (Delivery::Fragment, true),
            _ => return Err(wrong("response_mode", "is none that is known")),
        };
        if delivery == Delivery::Fragment && fields.urls("redirect_uri")?.is_empty() {
            let message = "response_mode fragment needs an address of its own";
            return Err(wrong("redirect_uri", message));
        }
        Ok(Self {
            delivery,
            signed,
            name: (name != "query").then(|| name.to_owned()),
        })
    }

    /// Whether answers come as forms.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(self.delivery, Delivery::FormPost | Delivery::Fragment)
    }
}
