//! What the pages say, in every language that they speak.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use chrono::{DateTime, SecondsFormat};
use serde::Deserialize;
use serde_json::{Map, Value};

use doorward_core::yaml::{Document, DocumentError};

/// Longest text that a theme may give, in bytes.
const TEXT_MAX: usize = 2000;

/// A moment, as a page tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// In the words of the page.
    pub(crate) text: String,
    /// To the minute, in UTC.
    pub(crate) exact: String,
    /// For programs (RFC 3339).
    pub(crate) machine: String,
}

/// The texts of one language.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Texts {
    /// Its tag (BCP 47).
    #[serde(skip)]
    pub(super) lang: String,
    /// How it is written: `ltr` or `rtl`.
    pub(super) dir: String,
    /// Who runs the provider; the alternative of the theme's logo.
    pub(super) brand: String,
    /// The button that signs in, and the title of its page.
    pub(super) sign_in: String,
    /// What stands above the form.
    pub(super) welcome: String,
    pub(super) to_continue: String,
    pub(super) user_name: String,
    pub(super) password: String,
    pub(super) failed: String,
    pub(super) busy: String,
    pub(super) stale: String,
    pub(super) consent: String,
    pub(super) asks_for: String,
    pub(super) approve: String,
    pub(super) deny: String,
    pub(super) policy: String,
    pub(super) terms: String,
    pub(super) signed_in_as: String,
    pub(super) other_account: String,
    pub(super) vouched_by: String,
    pub(super) goes_to: String,
    /// What a token for a server lets a client do.
    pub(super) at_server: String,
    pub(super) error: String,
    pub(super) error_hint: String,
    pub(super) error_client: String,
    pub(super) going_on: String,
    pub(super) go_on: String,
    pub(super) sign_out: String,
    pub(super) sign_out_ask: String,
    pub(super) signed_out: String,
    pub(super) signed_out_hint: String,
    pub(super) device: String,
    pub(super) device_enter: String,
    pub(super) device_code: String,
    pub(super) device_wrong: String,
    pub(super) device_guesses: String,
    pub(super) device_ask: String,
    pub(super) device_asks_for: String,
    pub(super) device_shows: String,
    pub(super) device_warning: String,
    pub(super) device_approved: String,
    pub(super) device_approved_hint: String,
    pub(super) device_denied: String,
    pub(super) device_denied_hint: String,
    pub(super) federation_or: String,
    pub(super) federation_with: String,
    pub(super) federation_cancelled: String,
    pub(super) federation_silent: String,
    pub(super) federation_failed: String,
    pub(super) federation_nobody: String,
    pub(super) signing_in_as: String,
    pub(super) or: String,
    pub(super) factor: String,
    pub(super) factor_code_hint: String,
    pub(super) factor_code: String,
    pub(super) factor_wrong: String,
    pub(super) factor_tries: String,
    pub(super) factor_full: String,
    pub(super) factor_missing: String,
    pub(super) remember_browser: String,
    pub(super) recovery_use: String,
    pub(super) recovery_code: String,
    pub(super) needs_script: String,
    pub(crate) passkey: String,
    pub(super) passkey_sign_in: String,
    pub(super) passkey_use: String,
    pub(super) passkey_add: String,
    pub(super) passkey_name: String,
    pub(super) passkey_failed: String,
    pub(super) passkey_known: String,
    pub(super) passkey_wrong: String,
    pub(super) enrol: String,
    pub(super) enrol_hint: String,
    pub(crate) totp: String,
    pub(super) totp_add: String,
    pub(super) totp_scan: String,
    pub(super) totp_picture: String,
    pub(super) totp_type: String,
    pub(super) totp_name: String,
    pub(super) totp_confirm: String,
    pub(super) totp_finish: String,
    pub(super) recovery: String,
    pub(super) recovery_hint: String,
    pub(super) recovery_kept: String,
    pub(super) account: String,
    pub(super) account_sessions: String,
    pub(super) account_this: String,
    pub(super) account_since: String,
    pub(super) account_used: String,
    pub(super) account_never: String,
    pub(super) account_end: String,
    pub(super) account_end_others: String,
    pub(super) account_more_sessions: String,
    /// When something was: less than a minute, an hour, a day ago, with `{n}`;
    /// and the day, with `{y}`, `{m}` and `{d}`.
    pub(super) ago_now: String,
    pub(super) ago_minutes: String,
    pub(super) ago_hours: String,
    pub(super) ago_day: String,
    pub(super) account_consents: String,
    pub(super) account_no_consents: String,
    pub(super) account_withdraw: String,
    pub(super) account_factors: String,
    pub(super) account_no_factors: String,
    pub(super) account_added: String,
    pub(super) account_copied: String,
    pub(super) account_rename: String,
    pub(super) account_name: String,
    pub(super) account_remove: String,
    pub(super) account_codes_left: String,
    pub(super) account_new_codes: String,
    pub(super) account_back: String,
    pub(super) account_password: String,
    pub(super) recent: String,
    pub(super) password_refused: String,
    pub(super) password_current: String,
    pub(super) password_new: String,
    pub(super) password_change: String,
    pub(super) password_note: String,
    pub(super) account_add: String,
    pub(super) account_add_hint: String,
    pub(super) account_clients: String,
    pub(super) account_unknown: String,
    pub(super) account_links: String,
    pub(super) account_no_links: String,
    pub(super) account_link: String,
    pub(super) account_unlink: String,
    pub(super) account_last_way: String,
    pub(super) federation_unlinkable: String,
    pub(super) forgot: String,
    pub(super) forgot_title: String,
    pub(super) forgot_hint: String,
    pub(super) forgot_name: String,
    pub(super) forgot_send: String,
    pub(super) forgot_sent: String,
    pub(super) forgot_sent_hint: String,
    pub(super) reset_title: String,
    pub(super) reset_new: String,
    pub(super) reset_again: String,
    pub(super) reset_save: String,
    pub(super) reset_differ: String,
    pub(super) reset_gone: String,
    pub(super) reset_gone_hint: String,
    pub(super) reset_done: String,
    pub(super) reset_done_hint: String,
    pub(super) password_short: String,
    pub(super) password_long: String,
    pub(super) password_control: String,
    pub(super) password_own: String,
    pub(super) password_breached: String,
    pub(super) password_guessable: String,
    pub(super) mail_reset_subject: String,
    pub(super) mail_reset_text: String,
    /// What the known scopes mean; of others, the name is shown.
    scopes: BTreeMap<String, String>,
}

impl Texts {
    /// When something was, as people read it: nobody has told in which time zone
    /// they are.
    pub(crate) fn moment(&self, ms: i64, now_ms: i64) -> Moment {
        let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
        let seconds = (now_ms - ms).max(0) / 1000;
        let count = |text: &str, n: i64| text.replace("{n}", &n.to_string());
        let text = match seconds {
            0..60 => self.ago_now.clone(),
            60..3600 => count(&self.ago_minutes, seconds / 60),
            3600..86_400 => count(&self.ago_hours, seconds / 3600),
            _ => {
                let day = self.ago_day.replace("{y}", &time.format("%Y").to_string());
                let day = day.replace("{m}", &time.format("%m").to_string());
                day.replace("{d}", &time.format("%d").to_string())
            }
        };
        Moment {
            text,
            exact: time.format("%Y-%m-%d %H:%M UTC").to_string(),
            machine: time.to_rfc3339_opts(SecondsFormat::Secs, true),
        }
    }

    /// What a scope means to its user, or a server that a token is for.
    pub(super) fn scope<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        if let Some(text) = self.scopes.get(name) {
            return Cow::Borrowed(text);
        }
        if name.starts_with("https://") || name.starts_with("http://") {
            return Cow::Owned(self.at_server.replace("{server}", name));
        }
        Cow::Borrowed(name)
    }
}

/// Our own texts, as they stand in the files.
static OURS: LazyLock<Vec<(&'static str, Map<String, Value>)>> = LazyLock::new(|| {
    [
        ("en", include_str!("../../templates/texts/en.yaml")),
        ("de", include_str!("../../templates/texts/de.yaml")),
    ]
    .into_iter()
    .map(|(lang, text)| {
        let document = Document::parse_unresolved(text, Path::new(lang));
        let value = document.expect("our own texts are YAML").take_value();
        let texts = value.as_object().cloned();
        (lang, texts.expect("our own texts are a mapping"))
    })
    .collect()
});

/// The languages of the pages; the first one is for whoever reads none of them.
#[derive(Clone, Debug)]
pub(super) struct Languages(Vec<Arc<Texts>>);

impl Languages {
    /// Ours, and those of a theme: it may replace single texts, and what a new
    /// language lacks is English.
    ///
    /// # Errors
    /// The text that there is not, or that can't be.
    pub(super) fn with(theme: &[(String, Document)]) -> Result<Self, DocumentError> {
        let mut all: Vec<(String, Map<String, Value>)> = OURS
            .iter()
            .map(|(lang, texts)| ((*lang).to_owned(), texts.clone()))
            .collect();
        for (lang, document) in theme {
            let known = all.iter().position(|(known, _)| known == lang);
            let mut texts = all[known.unwrap_or(0)].1.clone();
            overlay(document, &mut texts)?;
            match known {
                Some(index) => all[index].1 = texts,
                None => all.push((lang.clone(), texts)),
            }
        }
        let read = |(lang, texts): (String, Map<String, Value>)| {
            let texts = serde_json::from_value::<Texts>(Value::Object(texts));
            let texts = texts.expect("every text was checked against ours");
            Arc::new(Texts { lang, ..texts })
        };
        Ok(Self(all.into_iter().map(read).collect()))
    }

    /// The tags of the languages.
    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|texts| texts.lang.as_str())
    }

    /// The texts for this tag: of that very language, or of the one that it is
    /// a kind of.
    fn named(&self, tag: &str) -> Option<&Arc<Texts>> {
        let tag = tag.trim().replace('_', "-");
        let primary = tag.split('-').next().unwrap_or_default();
        let known = |name: &str| {
            let mut all = self.0.iter();
            all.find(|texts| texts.lang.eq_ignore_ascii_case(name))
        };
        known(&tag).or_else(|| known(primary))
    }

    /// The texts for whoever asked in these ways: `ui_locales` (OpenID Connect
    /// Core §3.1.2.1) counts for more than `Accept-Language` (RFC 9110 §12.5.4).
    pub(super) fn choose(&self, ui_locales: Option<&str>, accept: Option<&str>) -> Arc<Texts> {
        let by_request = ui_locales.unwrap_or_default().split(' ').take(20);
        let by_request = by_request.filter_map(|tag| self.named(tag)).next();
        let by_browser = || {
            let mut wishes: Vec<_> = accept
                .unwrap_or_default()
                .split(',')
                .take(20)
                .filter_map(|wish| {
                    let (tag, weight) = wish.split_once(';').unwrap_or((wish, "q=1"));
                    let weight: f32 = weight.trim().strip_prefix("q=")?.parse().ok()?;
                    Some((self.named(tag)?, weight))
                })
                .filter(|(_, weight)| *weight > 0.0)
                .collect();
            // Stable: of equal wishes the first one wins.
            wishes.sort_by(|one, other| other.1.total_cmp(&one.1));
            wishes.first().map(|(texts, _)| *texts)
        };
        Arc::clone(by_request.or_else(by_browser).unwrap_or(&self.0[0]))
    }
}

/// Puts the texts of a theme in the place of others.
fn overlay(document: &Document, texts: &mut Map<String, Value>) -> Result<(), DocumentError> {
    let wrong = |path: &[&str], message: &str| {
        let path: Vec<_> = path.iter().map(|name| (*name).into()).collect();
        Err(document.error(&path, message))
    };
    let Some(given) = document.value().as_object() else {
        return wrong(&[], "must be a mapping of texts");
    };
    let legal = |text: &Value| text.as_str().is_some_and(|text| text.len() <= TEXT_MAX);
    for (name, text) in given {
        match (texts.get_mut(name), text) {
            (None, _) => return wrong(&[name], "is no text of the pages"),
            (Some(Value::Object(known)), Value::Object(scopes)) => {
                for (scope, text) in scopes {
                    if !legal(text) {
                        return wrong(&[name, scope], "must be a text of at most 2000 bytes");
                    }
                    known.insert(scope.clone(), text.clone());
                }
            }
            (Some(Value::Object(_)), _) => return wrong(&[name], "must be a mapping"),
            (Some(_), text) if !legal(text) => {
                return wrong(&[name], "must be a text of at most 2000 bytes");
            }
            (Some(_), text) if name == "dir" && text != "ltr" && text != "rtl" => {
                return wrong(&[name], "must be ltr or rtl");
            }
            (Some(known), text) => known.clone_from(text),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theme(lang: &str, text: &str) -> Result<Languages, String> {
        let document = Document::parse_unresolved(text, Path::new("t.yaml")).expect("YAML");
        let languages = Languages::with(&[(lang.to_owned(), document)]);
        languages.map_err(|error| error.to_string())
    }

    #[test]
    fn the_language_is_the_wished_one_that_is_spoken() {
        let languages = theme("pt-BR", "sign_in: Entrar").expect("languages");
        let lang = |ui, accept| languages.choose(ui, accept).lang.clone();
        assert_eq!(lang(None, None), "en");
        assert_eq!(lang(None, Some("de-AT,en;q=0.5")), "de");
        assert_eq!(lang(None, Some("en;q=0.5, de;q=0.9")), "de");
        assert_eq!(lang(None, Some("fr, de;q=0, *;q=0.1")), "en");
        assert_eq!(lang(Some("fr-CA de"), Some("en")), "de");
        assert_eq!(lang(Some("tlh"), Some("de")), "de");
        assert_eq!(lang(None, Some(";;q=x,,de;q=nan,\u{7f}")), "en");
        assert_eq!(lang(Some("pt_br"), None), "pt-BR");
        assert_eq!(lang(Some("pt"), None), "en");
    }

    #[test]
    fn a_theme_replaces_texts_and_adds_languages() {
        let text = "sign_in: Log in\nscopes: {email: Mail, pay: Pay for you}\n";
        let languages = theme("en", text).expect("languages");
        let english = languages.choose(None, None);
        assert_eq!(english.sign_in, "Log in");
        assert_eq!(english.password, "Password");
        assert_eq!(
            (&*english.scope("pay"), &*english.scope("x")),
            ("Pay for you", "x")
        );
        let server = english.scope("https://mcp.example/mcp");
        assert_eq!(server, "Act for you at https://mcp.example/mcp");
        assert_eq!(english.scope("phone"), "Your phone number");
        let french = theme("fr", "dir: ltr\nsign_in: Se connecter\n").expect("languages");
        assert_eq!(french.choose(Some("fr"), None).sign_in, "Se connecter");
        assert_eq!(french.choose(Some("fr"), None).password, "Password");
        assert_eq!(french.tags().collect::<Vec<_>>(), ["en", "de", "fr"]);
    }

    #[test]
    fn a_text_that_is_none_is_refused_with_its_line() {
        for (text, told) in [
            ("a: b", "t.yaml:1: a: is no text of the pages"),
            ("sign_in: [x]", "t.yaml:1: sign_in: must be a text"),
            ("scopes: x", "t.yaml:1: scopes: must be a mapping"),
            (
                "sign_in: x\nscopes: {a: {}}",
                "t.yaml:2: scopes.a: must be a text",
            ),
            ("dir: up", "t.yaml:1: dir: must be ltr or rtl"),
            ("- x", "t.yaml:1: must be a mapping"),
        ] {
            let error = theme("en", text).expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
