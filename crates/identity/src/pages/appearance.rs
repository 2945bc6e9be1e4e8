//! What all pages of the provider have in common, as configured.

use http::HeaderValue;
use url::Url;

use super::frame::origin;
use super::script;
use super::texts::Languages;
use super::theme::Theme;
use crate::IdentityError;
use crate::config::PagesConfig;

/// The look of the pages, compiled from the configuration.
#[derive(Debug)]
pub(crate) struct Appearance {
    pub(super) languages: Languages,
    theme: Option<Theme>,
    /// Tells browsers to come by TLS only (RFC 6797).
    pub(crate) transport: Option<HeaderValue>,
    /// Whether pictures of clients are fetched from where they are.
    remote_logos: bool,
    /// The provider's own origin.
    origin: String,
    /// The address of the script for passkeys.
    pub(super) passkey_script: String,
}

impl Appearance {
    /// Reads the theme of `config`, if it has one.
    ///
    /// # Errors
    /// [`IdentityError::Config`] names what is wrong with it.
    pub(crate) fn compile(
        config: &PagesConfig,
        base_url: &str,
        base_path: &str,
    ) -> Result<Self, IdentityError> {
        let wrong = |message: String| IdentityError::Config {
            path: vec!["identity".into(), "pages".into(), "theme".into()],
            message,
        };
        let (theme, texts) = match &config.theme {
            None => (None, Vec::new()),
            Some(directory) => {
                let read = Theme::read(directory, base_path);
                let (theme, texts) = read.map_err(|error| wrong(error.to_string()))?;
                (Some(theme), texts)
            }
        };
        let languages = Languages::with(&texts).map_err(|error| wrong(error.to_string()))?;
        let transport = match (base_url.starts_with("https://"), config.hsts_seconds) {
            (false, _) | (_, 0) => None,
            (true, seconds) => HeaderValue::from_str(&format!("max-age={seconds}")).ok(),
        };
        let origin = Url::parse(base_url).map(|url| url.origin().ascii_serialization());
        Ok(Self {
            languages,
            theme,
            transport,
            remote_logos: config.remote_logos,
            passkey_script: format!("{base_path}/oauth2/{}", script::address()),
            origin: origin.unwrap_or_default(),
        })
    }

    /// The theme, if there is one.
    pub(crate) fn theme(&self) -> Option<&Theme> {
        self.theme.as_ref()
    }

    /// The tags of the languages of the pages (BCP 47).
    pub(crate) fn languages(&self) -> Vec<&str> {
        self.languages.tags().collect()
    }

    /// The origin from which a client's picture is shown: none at all for one
    /// that is part of its address, and `None` if it is not to be shown.
    pub(super) fn logo_source(&self, logo: &str) -> Option<Option<String>> {
        if logo.starts_with("data:image/") {
            return Some(None);
        }
        let url = Url::parse(logo).ok()?;
        let origin = origin(&url)?;
        if origin == self.origin {
            return Some(None);
        }
        (self.remote_logos && url.scheme() == "https").then_some(Some(origin))
    }
}
