//! What the edge of a site does for all routes.

use super::Config;

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
        if let Err((key, message)) = proxy.health.check() {
            at(&format!("proxy.health.{key}"), message);
        }
    }
}
