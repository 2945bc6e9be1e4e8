//! What new passwords must be like.
//!
//! It is asked where somebody chooses a password: command line, SCIM, change
//! and reset. Judging one takes a while: [`Rules::check`] runs on the bounded
//! pool that hashes passwords, never on a thread that serves requests.

mod breached_passwords;

use std::sync::Arc;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::config::PasswordPolicy;
use super::password::PASSWORD_MAX;
use breached_passwords::BreachedPasswords;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::schema::RecordError;
use doorward_core::model::user::{User, fold};

/// How much of a password is judged: the time grows with the square, and what
/// is hard to guess in its first hundred characters stays so.
const JUDGED: usize = 100;

/// Most words of the user that are looked for in the password.
const WORDS: usize = 32;

/// Why a password can't be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It has fewer characters than this.
    #[error("the password must have at least {0} characters")]
    TooShort(u32),
    /// It has more bytes than this.
    #[error("the password must have at most {0} bytes")]
    TooLong(u32),
    /// It has characters that nobody can type everywhere.
    #[error("the password must have no control characters")]
    Control,
    /// It is the user's name or address.
    #[error("the password must not be the user's name or e-mail address")]
    Own,
    /// It stands in the list of passwords that leaked.
    #[error("the password is known from leaks elsewhere; choose another one")]
    Breached,
    /// It is too easy to guess.
    #[error("the password is too easy to guess; choose a longer or less common one")]
    Guessable,
    /// The list of passwords that leaked can't be read.
    #[error("the password can't be compared with the list of leaked ones now")]
    Unchecked,
}

/// All that is wrong with a password, as one text.
pub fn refusal_text(violations: &[Violation]) -> String {
    let texts: Vec<_> = violations.iter().map(Violation::to_string).collect();
    texts.join("; ")
}

/// The rules of a realm, ready for use.
#[derive(Debug, Default)]
pub struct Rules {
    policy: PasswordPolicy,
    breached: Option<BreachedPasswords>,
}

impl Rules {
    /// The rules that `policy` describes; those of `above` where it is the
    /// same.
    ///
    /// # Errors
    /// What in the policy can't be; the line that is wrong in its list.
    pub(super) fn read(
        policy: &PasswordPolicy,
        above: &Arc<Self>,
    ) -> Result<Arc<Self>, RecordError> {
        if *policy == above.policy {
            return Ok(Arc::clone(above));
        }
        let wrong =
            |name: &str, text: String| Err(RecordError::new(name, text).below("password_policy"));
        let longest = u32::try_from(PASSWORD_MAX).unwrap_or(u32::MAX);
        if !(1..=64).contains(&policy.min_length) {
            return wrong("min_length", "must be from 1 to 64".to_owned());
        }
        if !(64..=longest).contains(&policy.max_length) {
            return wrong("max_length", format!("must be from 64 to {longest}"));
        }
        if policy.min_score > 4 {
            return wrong("min_score", "must be from 0 to 4".to_owned());
        }
        let breached = match &policy.breached_list {
            None => None,
            Some(path) => match BreachedPasswords::open(path) {
                Ok(list) => Some(list),
                Err(error) => return wrong("breached_list", error.to_string()),
            },
        };
        Ok(Arc::new(Self {
            policy: policy.clone(),
            breached,
        }))
    }

    /// Whether a password can be one at all: its length alone, for any thread.
    pub(super) fn check_length(&self, password: &str) -> Result<(), Violation> {
        let most = self.policy.max_length;
        if u32::try_from(password.len()).map_or(true, |length| length > most) {
            return Err(Violation::TooLong(most));
        }
        let least = self.policy.min_length;
        let length = prepared(password).chars().count();
        if u32::try_from(length).is_ok_and(|length| length < least) {
            return Err(Violation::TooShort(least));
        }
        Ok(())
    }

    /// Judges a new password; `own` are texts that tell of its user. It takes
    /// milliseconds, and may read a file.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn check(&self, password: &str, own: &[String]) -> Result<(), Vec<Violation>> {
        self.check_length(password).map_err(|wrong| vec![wrong])?;
        let password = prepared(password);
        let mut wrong = Vec::new();
        if password.chars().any(char::is_control) {
            wrong.push(Violation::Control);
        }
        let folded = fold(&password);
        if own.iter().any(|text| fold(text) == folded) {
            wrong.push(Violation::Own);
        }
        match self.breached.as_ref().map(|list| list.has(&password)) {
            None | Some(Ok(false)) => {}
            Some(Ok(true)) => wrong.push(Violation::Breached),
            Some(Err(error)) => {
                tracing::error!(%error, "the list of leaked passwords can't be read");
                wrong.push(Violation::Unchecked);
            }
        }
        if self.policy.min_score > 0 && score(&password, own) < self.policy.min_score {
            wrong.push(Violation::Guessable);
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

fn score(password: &str, own: &[String]) -> u8 {
    let end = password.char_indices().nth(JUDGED);
    let judged = end.map_or(password, |(end, _)| &password[..end]);
    let own: Vec<_> = own.iter().map(String::as_str).take(WORDS).collect();
    u8::from(zxcvbn::zxcvbn(judged, &own).score())
}

/// A password in the one form in which new ones are hashed: composed, with
/// plain blanks, and nothing else changed (RFC 8265 §4.2, OpaqueString).
pub(super) fn prepared(password: &str) -> String {
    let plain = password.is_ascii() || is_nfc_quick(password.chars()) == IsNormalized::Yes;
    let blank = |letter: char| {
        // The separators of Unicode (category Zs) but the blank itself.
        matches!(
            letter,
            '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
        )
    };
    let letters = password.chars();
    let letters = letters.map(|letter| if blank(letter) { ' ' } else { letter });
    if plain {
        return letters.collect();
    }
    letters.nfc().collect()
}

/// The same as a secret.
pub(super) fn prepared_secret(password: &Secret) -> Secret {
    Secret::new(prepared(password.expose()))
}

/// What tells of a user: names and addresses, whole and in parts.
pub fn own_texts(user: &User) -> Vec<String> {
    let mut texts = vec![user.user_name.clone()];
    let text = |value: Option<&serde_json::Value>| value?.as_str().map(str::to_owned);
    let profile = &user.profile;
    for name in ["displayName", "nickName"] {
        texts.extend(text(profile.get(name)));
    }
    if let Some(name) = profile.get("name") {
        let parts = ["givenName", "familyName", "middleName"].iter();
        texts.extend(parts.filter_map(|part| text(name.get(part))));
    }
    for (list, member) in [("emails", "value"), ("phoneNumbers", "value")] {
        let all = profile.get(list).and_then(|all| all.as_array());
        let all = all.into_iter().flatten();
        texts.extend(all.filter_map(|one| text(one.get(member))));
    }
    let parts: Vec<_> = texts
        .iter()
        .flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()))
        .filter(|part| part.chars().count() > 3)
        .map(str::to_owned)
        .collect();
    let locals = texts.iter().filter_map(|text| text.split_once('@'));
    let locals: Vec<_> = locals.map(|(local, _)| local.to_owned()).collect();
    texts.extend(locals);
    texts.extend(parts);
    texts.retain(|text| !text.is_empty() && text.len() <= 255);
    texts.truncate(WORDS);
    texts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(policy: serde_json::Value) -> Result<Arc<Rules>, RecordError> {
        let policy = serde_json::from_value(policy).expect("a policy");
        Rules::read(&policy, &Arc::default())
    }

    fn wrong(rules: &Rules, password: &str) -> Vec<Violation> {
        let own = ["demo".to_owned(), "demo.user@example.com".to_owned()];
        rules.check(password, &own).err().unwrap_or_default()
    }

    #[test]
    fn length_counts_in_characters_and_bytes() {
        let rules = rules(json!({"min_score": 0, "max_length": 64})).expect("rules");
        assert_eq!(wrong(&rules, "sieben7"), [Violation::TooShort(8)]);
        assert_eq!(wrong(&rules, "äöüßäöüß"), []);
        // Seven letters, whoever typed them.
        assert_eq!(wrong(&rules, "a\u{308}bcdefg"), [Violation::TooShort(8)]);
        assert_eq!(wrong(&rules, &"ß".repeat(33)), [Violation::TooLong(64)]);
    }

    #[test]
    fn a_password_of_a_megabyte_is_refused_by_its_length_alone() {
        let rules = Rules::default();
        let huge = "a".repeat(1 << 20);
        assert_eq!(rules.check_length(&huge), Err(Violation::TooLong(1024)));
        assert_eq!(wrong(&rules, &huge), [Violation::TooLong(1024)]);
    }

    #[test]
    fn what_everybody_guesses_first_is_refused() {
        let usual = Rules::default();
        assert_eq!(wrong(&usual, "password"), [Violation::Guessable]);
        assert_eq!(wrong(&usual, "DEMO.USER@example.com")[0], Violation::Own);
        assert_eq!(wrong(&usual, "Tr0ub4dour-and-3"), []);
        assert_eq!(wrong(&usual, "tab\there-and-now"), [Violation::Control]);
        let strict = rules(json!({"min_score": 4})).expect("rules");
        assert_eq!(wrong(&strict, "Summer2024"), [Violation::Guessable]);
        assert_eq!(wrong(&strict, "vexing umbrella of nine kelp"), []);
    }

    #[test]
    fn a_policy_that_cannot_be_is_refused_by_name() {
        for (policy, name) in [
            (json!({"min_length": 0}), "min_length"),
            (json!({"max_length": 2000}), "max_length"),
            (json!({"max_length": 20}), "max_length"),
            (json!({"min_score": 5}), "min_score"),
            (json!({"breached_list": "/nowhere"}), "breached_list"),
        ] {
            let error = rules(policy).expect_err(name);
            assert_eq!(error.path, format!("password_policy.{name}"));
        }
    }

    #[test]
    fn passwords_are_composed_and_blanks_made_plain_and_nothing_else() {
        assert_eq!(prepared("a\u{308}\u{a0}\u{3000}B"), "\u{e4}  B");
        assert_eq!(prepared("Ａ ﬁ"), "Ａ ﬁ");
        assert_eq!(prepared(" x "), " x ");
    }

    #[test]
    fn names_and_addresses_of_the_user_are_looked_for() {
        let record = json!({
            "userName": "alice@example.com",
            "name": {"givenName": "Alice", "familyName": "Liddell"},
            "emails": [{"value": "white.rabbit@example.com"}],
        });
        let record = record.as_object().expect("an object");
        let user = super::super::new_user("/", record).expect("a user");
        let own = own_texts(&user);
        for text in ["alice@example.com", "Liddell", "white.rabbit", "rabbit"] {
            assert!(own.iter().any(|one| one == text), "{text}");
        }
        let verdict = Rules::default().check("White.Rabbit", &own);
        assert_eq!(verdict.expect_err("an own text")[0], Violation::Own);
    }
}
