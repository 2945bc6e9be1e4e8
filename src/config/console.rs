//! The console as a client of the identity provider in this process.

use super::Config;
use doorward_console::Listeners;

impl Config {
    /// The origins under which people sign in at the console.
    pub fn console_origins(&self) -> Vec<String> {
        let admin = &self.admin;
        admin.console.settings.origins(&Listeners {
            plain: std::slice::from_ref(&admin.listen),
            tls: admin.tls.as_ref().map_or(&[], |tls| &tls.listen),
            hosts: &admin.hosts,
        })
    }

    /// Declares the console as a client, unless the file does, and lets it be
    /// reached under its address.
    pub(super) fn complete_console(&mut self) {
        let console = &self.admin.console;
        if !console.is_on || console.settings.roles.is_none() {
            return;
        }
        if let Some(host) = console.settings.host()
            && !self.admin.hosts.contains(&host)
        {
            self.admin.hosts.push(host);
        }
        let origins = self.console_origins();
        let settings = &self.admin.console.settings;
        let (Some(identity), Some(client)) = (&mut self.identity, settings.client(&origins)) else {
            return;
        };
        let path = settings.realm();
        // A realm that the file does not have is told later.
        if path != "/" && !identity.realms.contains_key(path) {
            return;
        }
        let realm = identity.realms.entry(path.to_owned()).or_default();
        let mut declared = realm.clients.iter();
        if !declared.any(|one| one.client_id == client.client_id) {
            realm.clients.push(client);
        }
    }

    pub(super) fn check_console(&self, at: &mut impl FnMut(&str, String)) {
        let identity = self.identity.as_ref();
        let realms = identity
            .map(|identity| -> Vec<&str> { identity.realms.keys().map(String::as_str).collect() });
        let has_token = self.admin.token.is_some();
        let settings = &self.admin.console.settings;
        for (key, message) in settings.check(has_token, realms.as_deref()) {
            at(&format!("admin.console.{key}"), message);
        }
    }
}
