//! What a sign-in proved, and what is demanded of one: methods (`amr`, RFC
//! 8176) and classes made of them (`acr`).

use super::config::{AuthenticationClass, RealmSettings};
use doorward_core::model::user::schema::RecordError;

/// The methods by which a user signed in, each once, in the order of their use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Methods(Vec<String>);

/// Name and password.
pub(super) const PASSWORD: &str = "pwd";
/// A one-time code, from an app or a list.
pub(super) const CODE: &str = "otp";
/// Possession of a private key: a passkey.
pub(super) const KEY: &str = "pop";
/// That key can't leave its device.
pub(super) const DEVICE_KEY: &str = "hwk";
/// That key is kept by software, which may copy it to other devices.
pub(super) const SOFT_KEY: &str = "swk";
/// Somebody was present.
pub(super) const PRESENCE: &str = "user";
/// Two factors of different kinds.
pub(super) const SEVERAL: &str = "mfa";
/// Another provider signed the user in.
pub(super) const ELSEWHERE: &str = "fed";

/// Every word that a class may ask for.
const WORDS: [&str; 8] = [
    PASSWORD, CODE, KEY, DEVICE_KEY, SOFT_KEY, PRESENCE, SEVERAL, ELSEWHERE,
];

impl Methods {
    /// These methods.
    pub(super) fn of<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let mut methods = Self::default();
        methods.add(words);
        methods
    }

    /// A name and its password, and nothing else.
    pub(super) fn password() -> Self {
        Self::of([PASSWORD])
    }

    /// Adds methods that were used just now.
    pub(super) fn add<'w>(&mut self, words: impl IntoIterator<Item = &'w str>) {
        for word in words {
            if !self.has(word) {
                self.0.push(word.to_owned());
            }
        }
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.0.iter().any(|known| known == word)
    }

    pub(super) fn words(&self) -> &[String] {
        &self.0
    }

    /// Those that a class asks for and these lack.
    pub(super) fn missing<'w>(&self, wanted: &'w [String]) -> Vec<&'w str> {
        let missing = wanted.iter().filter(|word| !self.has(word));
        missing.map(String::as_str).collect()
    }
}

impl From<&[String]> for Methods {
    fn from(words: &[String]) -> Self {
        Self::of(words.iter().map(String::as_str))
    }
}

/// What somebody demands of a sign-in. It is met by any one of the classes, or
/// by any sign-in if there are none; and by a second factor if that is asked
/// for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Known classes, the dearest first.
    classes: Vec<String>,
    /// Whether one of the classes must be reached; otherwise it is a wish.
    essential: bool,
    /// Whether there must be a second factor.
    second_factor: bool,
}

/// A class was insisted on that the realm does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownClass;

impl Demand {
    /// That there be a second factor, if `wanted`.
    pub(super) fn second_factor(wanted: bool) -> Self {
        Self {
            second_factor: wanted,
            ..Self::default()
        }
    }

    /// Adds the demand for a second factor, if `wanted`.
    pub(super) fn with_second_factor(self, wanted: bool) -> Self {
        Self {
            second_factor: self.second_factor || wanted,
            ..self
        }
    }

    /// Adds the wish for one of these classes; those that the realm does not
    /// have are left out.
    pub(super) fn wish<'c>(
        mut self,
        settings: &RealmSettings,
        classes: impl IntoIterator<Item = &'c str>,
    ) -> Self {
        for value in classes {
            let known = class(settings, value).is_some();
            if known && !self.classes.iter().any(|one| one == value) {
                self.classes.push(value.to_owned());
            }
        }
        self
    }

    /// As [`Demand::wish`], but one of them must be reached.
    ///
    /// # Errors
    /// [`UnknownClass`] when the realm has none of them.
    pub(super) fn insist<'c>(
        self,
        settings: &RealmSettings,
        classes: impl IntoIterator<Item = &'c str>,
    ) -> Result<Self, UnknownClass> {
        // What is insisted on counts for more than any wish.
        let only = Self {
            classes: Vec::new(),
            essential: true,
            ..self
        };
        let insists = only.wish(settings, classes);
        if insists.classes.is_empty() {
            Err(UnknownClass)
        } else {
            Ok(insists)
        }
    }

    /// Whether it must be met, and is more than a wish.
    pub(super) fn is_strict(&self) -> bool {
        self.essential || self.second_factor
    }

    /// What it takes to meet it, in the order of what is liked most: the
    /// methods that `methods` lack. Empty: it is met. Never more than the
    /// realm has classes.
    pub(super) fn lacks(&self, settings: &RealmSettings, methods: &Methods) -> Vec<Vec<String>> {
        let second = self.second_factor && !methods.has(SEVERAL);
        let of_class = |value: &String| {
            let class = class(settings, value)?;
            let mut missing: Vec<String> = methods
                .missing(&class.methods)
                .into_iter()
                .map(str::to_owned)
                .collect();
            if second && !missing.iter().any(|word| word == SEVERAL) {
                missing.push(SEVERAL.to_owned());
            }
            Some(missing)
        };
        let mut ways: Vec<_> = self.classes.iter().filter_map(of_class).collect();
        if self.classes.is_empty() && second {
            ways.push(vec![SEVERAL.to_owned()]);
        }
        // One that is reached already is as good as any.
        if ways.iter().any(Vec::is_empty) {
            Vec::new()
        } else {
            ways
        }
    }

    /// The class to tell whoever made the demand: of those that were reached the
    /// one that it likes most, or else the strongest.
    pub(super) fn achieved_class<'s>(
        &self,
        settings: &'s RealmSettings,
        methods: &Methods,
    ) -> &'s str {
        let reached = |value: &String| {
            let class = class(settings, value)?;
            is_reached(class, methods).then_some(class.value.as_str())
        };
        let wished = self.classes.iter().find_map(reached);
        wished.unwrap_or_else(|| strongest(settings, methods))
    }
}

fn is_reached(class: &AuthenticationClass, methods: &Methods) -> bool {
    methods.missing(&class.methods).is_empty()
}

fn class<'s>(settings: &'s RealmSettings, value: &str) -> Option<&'s AuthenticationClass> {
    settings
        .acr_values
        .iter()
        .find(|class| class.value == value)
}

/// The strongest class that these methods reach.
pub(super) fn strongest<'s>(settings: &'s RealmSettings, methods: &Methods) -> &'s str {
    let mut classes = settings.acr_values.iter().rev();
    let reached = classes.find(|class| is_reached(class, methods));
    reached.map_or(NO_CLASS, |class| class.value.as_str())
}

/// What a sign-in is of that reaches no class: level 0 of OpenID Connect Core
/// §2.
pub(super) const NO_CLASS: &str = "0";

/// Most classes of a realm.
const CLASSES_MAX: usize = 32;

/// Refuses classes that nobody could name or reach.
pub(super) fn check(classes: &[AuthenticationClass]) -> Result<(), RecordError> {
    let wrong = |at: String, text: &str| Err(RecordError::new(at, text));
    if classes.len() > CLASSES_MAX {
        return wrong("acr_values".to_owned(), "must be at most 32 classes");
    }
    for (index, class) in classes.iter().enumerate() {
        let at = format!("acr_values[{index}]");
        let value = &class.value;
        let visible = value.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        if value.is_empty() || value.len() > 255 || !visible {
            let text = "must be 1 to 255 visible characters, without blanks";
            return wrong(format!("{at}.value"), text);
        }
        if classes[..index].iter().any(|other| other.value == *value) {
            return wrong(format!("{at}.value"), "stands there twice");
        }
        let unknown = |word: &String| !WORDS.contains(&word.as_str());
        if let Some(word) = class.methods.iter().position(unknown) {
            let text = "must be pwd, otp, pop, hwk, swk, user, mfa or fed";
            return wrong(format!("{at}.methods[{word}]"), text);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> RealmSettings {
        RealmSettings::default()
    }

    fn two() -> Methods {
        Methods::of([PASSWORD, CODE, SEVERAL])
    }

    #[test]
    fn the_strongest_class_that_was_reached_is_told() {
        let settings = settings();
        assert_eq!(strongest(&settings, &Methods::password()), "0");
        assert_eq!(strongest(&settings, &two()), "mfa");
        let passkey = Methods::of([KEY, SOFT_KEY, PRESENCE, SEVERAL]);
        assert_eq!(strongest(&settings, &passkey), "phr");
    }

    #[test]
    fn a_wish_is_answered_in_its_own_words_where_it_is_met() {
        let settings = settings();
        let wish =
            Demand::default().wish(&settings, ["gold", "phr", "https://refeds.org/profile/mfa"]);
        assert_eq!(
            wish.achieved_class(&settings, &two()),
            "https://refeds.org/profile/mfa"
        );
        assert_eq!(wish.achieved_class(&settings, &Methods::password()), "0");
        assert!(wish.lacks(&settings, &two()).is_empty());
        assert!(!wish.is_strict());
    }

    #[test]
    fn what_is_insisted_on_is_not_downgraded() {
        let settings = settings();
        let none = Demand::default().insist(&settings, ["gold"]);
        assert_eq!(none, Err(UnknownClass));
        let phr = Demand::default().wish(&settings, ["mfa"]);
        let phr = phr.insist(&settings, ["gold", "phr"]).expect("known");
        assert!(phr.is_strict());
        let lacks = phr.lacks(&settings, &two());
        assert_eq!(lacks, [[KEY.to_owned()]]);
        let lacks = phr.lacks(&settings, &Methods::password());
        assert_eq!(lacks, [[SEVERAL.to_owned(), KEY.to_owned()]]);
    }

    #[test]
    fn a_demanded_second_factor_is_added_to_every_wish() {
        let settings = settings();
        let demand = Demand::second_factor(true);
        let lacks = demand.lacks(&settings, &Methods::password());
        assert_eq!(lacks, [[SEVERAL.to_owned()]]);
        assert!(demand.lacks(&settings, &two()).is_empty());
        let wish = demand.wish(&settings, ["0"]);
        assert!(!wish.lacks(&settings, &Methods::password()).is_empty());
        assert!(wish.is_strict());
    }

    #[test]
    fn classes_that_cannot_be_are_named() {
        let class = |value: &str, word: &str| AuthenticationClass {
            value: value.to_owned(),
            methods: vec![word.to_owned()],
        };
        for (classes, at) in [
            (vec![class("", "mfa")], "acr_values[0].value"),
            (vec![class("a b", "mfa")], "acr_values[0].value"),
            (
                vec![class("a", "mfa"), class("a", "pwd")],
                "acr_values[1].value",
            ),
            (vec![class("a", "iris")], "acr_values[0].methods[0]"),
        ] {
            assert_eq!(check(&classes).expect_err(at).path, at);
        }
        assert!(check(&settings().acr_values).is_ok());
    }
}
