//! The ways in which answers of the provider come (`response_mode`; OAuth 2.0
//! Multiple Response Types §2.1, Form Post, JARM §2.3).

use crate::config::fields::login::Mode;
use crate::config::fields::{Fields, wrong};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldWord;

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
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let mode = fields.login.response_mode.unwrap_or(Mode::Query);
        let (delivery, signed) = match mode {
            Mode::Query => (Delivery::Query, false),
            Mode::FormPost => (Delivery::FormPost, false),
            Mode::Fragment => (Delivery::Fragment, false),
            // For a code, `jwt` is `query.jwt`.
            Mode::Jwt | Mode::QueryJwt => (Delivery::Query, true),
            Mode::FormPostJwt => (Delivery::FormPost, true),
            Mode::FragmentJwt => (Delivery::Fragment, true),
        };
        if delivery == Delivery::Fragment && fields.client.redirect_uri.is_empty() {
            let message = "response_mode fragment needs an address of its own";
            return Err(wrong("redirect_uri", message));
        }
        Ok(Self {
            delivery,
            signed,
            name: (mode != Mode::Query).then(|| mode.word().to_owned()),
        })
    }

    /// Whether answers come as forms.
    pub(crate) fn is_posted(&self) -> bool {
        matches!(self.delivery, Delivery::FormPost | Delivery::Fragment)
    }
}
