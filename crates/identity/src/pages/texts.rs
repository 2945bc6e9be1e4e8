//! What the pages say, in every language that they speak.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use chrono::{DateTime, SecondsFormat};
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

/// Makes the struct of the texts, and what reads one out of a mapping. All are alike, and
/// a derived reader of so many fields is the largest function of the program.
macro_rules! texts {
    ($(#[$about:meta])* $kind:vis struct $name:ident {
        $($(#[$doc:meta])* $seen:vis $text:ident,)*
    }) => {
        $(#[$about])*
        $kind struct $name {
            /// Its tag (BCP 47).
            pub(super) lang: String,
            /// What the known scopes mean; of others, the name is shown.
            scopes: BTreeMap<String, String>,
            $($(#[$doc])* $seen $text: String,)*
        }

        impl $name {
            /// Those of the language with this tag.
            ///
            /// # Errors
            /// The name of a text that is missing or none, or that there is not.
            fn read(lang: String, mut texts: Map<String, Value>) -> Result<Self, String> {
                let mut wrong = None;
                let scopes = take_scopes(&mut texts, &mut wrong);
                let mut take = |name: &str| take_text(&mut texts, name, &mut wrong);
                let read = Self { lang, scopes, $($text: take(stringify!($text)),)* };
                match wrong.or_else(|| texts.keys().next().cloned()) {
                    None => Ok(read),
                    Some(name) => Err(name),
                }
            }
        }
    };
}

/// The text of this name, which is gone from there afterwards.
fn take_text(texts: &mut Map<String, Value>, name: &str, wrong: &mut Option<String>) -> String {
    if let Some(Value::String(text)) = texts.remove(name) {
        return text;
    }
    wrong.get_or_insert_with(|| name.to_owned());
    String::new()
}

/// The texts of scopes, which are gone from there afterwards.
fn take_scopes(
    texts: &mut Map<String, Value>,
    wrong: &mut Option<String>,
) -> BTreeMap<String, String> {
    let Some(Value::Object(mut scopes)) = texts.remove("scopes") else {
        wrong.get_or_insert_with(|| "scopes".to_owned());
        return BTreeMap::new();
    };
    let names: Vec<_> = scopes.keys().cloned().collect();
    let texts = names.into_iter().map(|name| {
        let text = take_text(&mut scopes, &name, wrong);
        (name, text)
    });
    texts.collect()
}

texts! {
    /// The texts of one language.
    #[derive(Clone, Debug)]
    pub(crate) struct Texts {
        /// How it is written: `ltr` or `rtl`.
        pub(super) dir,
        /// Who runs the provider; the alternative of the theme's logo.
        pub(super) brand,
        /// The button that signs in, and the title of its page.
        pub(super) sign_in,
        /// What stands above the form.
        pub(super) welcome,
        pub(super) to_continue,
        pub(super) user_name,
        pub(super) password,
        pub(super) failed,
        pub(super) busy,
        pub(super) stale,
        pub(super) consent,
        pub(super) asks_for,
        pub(super) approve,
        pub(super) deny,
        pub(super) policy,
        pub(super) terms,
        pub(super) signed_in_as,
        pub(super) other_account,
        pub(super) vouched_by,
        pub(super) goes_to,
        /// What a token for a server lets a client do.
        pub(super) at_server,
        pub(super) error,
        pub(super) error_hint,
        pub(super) error_client,
        pub(super) going_on,
        pub(super) go_on,
        pub(super) sign_out,
        pub(super) sign_out_ask,
        pub(super) signed_out,
        pub(super) signed_out_hint,
        pub(super) device,
        pub(super) device_enter,
        pub(super) device_code,
        pub(super) device_wrong,
        pub(super) device_guesses,
        pub(super) device_ask,
        pub(super) device_asks_for,
        pub(super) device_shows,
        pub(super) device_warning,
        pub(super) device_approved,
        pub(super) device_approved_hint,
        pub(super) device_denied,
        pub(super) device_denied_hint,
        pub(super) federation_or,
        pub(super) federation_with,
        pub(super) federation_cancelled,
        pub(super) federation_silent,
        pub(super) federation_failed,
        pub(super) federation_nobody,
        pub(super) signing_in_as,
        pub(super) or,
        pub(super) factor,
        pub(super) factor_code_hint,
        pub(super) factor_code,
        pub(super) factor_wrong,
        pub(super) factor_tries,
        pub(super) factor_full,
        pub(super) factor_missing,
        pub(super) remember_browser,
        pub(super) recovery_use,
        pub(super) recovery_code,
        pub(super) needs_script,
        pub(crate) passkey,
        pub(super) passkey_sign_in,
        pub(super) passkey_use,
        pub(super) passkey_add,
        pub(super) passkey_name,
        pub(super) passkey_failed,
        pub(super) passkey_known,
        pub(super) passkey_wrong,
        pub(super) enrol,
        pub(super) enrol_hint,
        pub(crate) totp,
        pub(super) totp_add,
        pub(super) totp_scan,
        pub(super) totp_picture,
        pub(super) totp_type,
        pub(super) totp_name,
        pub(super) totp_confirm,
        pub(super) totp_finish,
        pub(super) recovery,
        pub(super) recovery_hint,
        pub(super) recovery_kept,
        pub(super) account,
        pub(super) account_sessions,
        pub(super) account_this,
        pub(super) account_since,
        pub(super) account_used,
        pub(super) account_never,
        pub(super) account_end,
        pub(super) account_end_others,
        pub(super) account_more_sessions,
        /// When something was: less than a minute, an hour, a day ago, with `{n}`;
        /// and the day, with `{y}`, `{m}` and `{d}`.
        pub(super) ago_now,
        pub(super) ago_minutes,
        pub(super) ago_hours,
        pub(super) ago_day,
        pub(super) account_consents,
        pub(super) account_no_consents,
        pub(super) account_withdraw,
        pub(super) account_factors,
        pub(super) account_no_factors,
        pub(super) account_added,
        pub(super) account_copied,
        pub(super) account_rename,
        pub(super) account_name,
        pub(super) account_remove,
        pub(super) account_codes_left,
        pub(super) account_new_codes,
        pub(super) account_back,
        pub(super) account_password,
        pub(super) recent,
        pub(super) password_refused,
        pub(super) password_current,
        pub(super) password_new,
        pub(super) password_change,
        pub(super) password_note,
        pub(super) account_add,
        pub(super) account_add_hint,
        pub(super) account_clients,
        pub(super) account_unknown,
        pub(super) account_links,
        pub(super) account_no_links,
        pub(super) account_link,
        pub(super) account_unlink,
        pub(super) account_last_way,
        pub(super) federation_unlinkable,
        pub(super) forgot,
        pub(super) forgot_title,
        pub(super) forgot_hint,
        pub(super) forgot_name,
        pub(super) forgot_send,
        pub(super) forgot_sent,
        pub(super) forgot_sent_hint,
        pub(super) reset_title,
        pub(super) reset_new,
        pub(super) reset_again,
        pub(super) reset_save,
        pub(super) reset_differ,
        pub(super) reset_gone,
        pub(super) reset_gone_hint,
        pub(super) reset_done,
        pub(super) reset_done_hint,
        pub(super) password_short,
        pub(super) password_long,
        pub(super) password_control,
        pub(super) password_own,
        pub(super) password_breached,
        pub(super) password_guessable,
        pub(super) mail_reset_subject,
        pub(super) mail_reset_text,
    }
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
            let texts = Texts::read(lang, texts);
            Arc::new(texts.expect("every text was checked against ours"))
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
