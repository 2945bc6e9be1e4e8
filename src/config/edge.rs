//! What the edge of a site does for all routes.

use super::{Config, Finding};
use doorward_core::yaml::PathSegment;
use doorward_gateway::edge::error_pages::ErrorPages;

impl Config {
    pub(super) fn check_edge(&self, at: &mut impl FnMut(&str, String)) {
        let proxy = &self.proxy;
        let no_tls = proxy.tls.is_none() && proxy.trusted_ips.is_empty();
        let no_effect =
            "has no effect: neither proxy.tls nor a proxy of proxy.trusted_ips speaks TLS";
        if no_tls && proxy.https_redirect.is_on() {
            at("proxy.https_redirect", no_effect.to_owned());
        }
        if let Some(hsts) = &proxy.hsts {
            if no_tls {
                at("proxy.hsts", no_effect.to_owned());
            }
            if let Err(message) = hsts.check() {
                at("proxy.hsts.preload", message);
            }
        }
        if let Some(Err((key, message))) = proxy.compression.as_ref().map(|section| section.check())
        {
            at(&format!("proxy.compression.{key}"), message);
        }
        if let Err((key, message)) = proxy.health.check() {
            at(&format!("proxy.health.{key}"), message);
        }
    }

    /// The first page for failures that can't be shown.
    pub(super) fn error_page_finding(&self) -> Option<Finding> {
        let refused = ErrorPages::read(&self.proxy.error_pages).err()?;
        // A status is a key, not a place in a list.
        let path = ["proxy", "error_pages", &refused.key].map(PathSegment::from);
        Some((path.to_vec(), refused.message))
    }
}
