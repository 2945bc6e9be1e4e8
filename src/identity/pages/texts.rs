//! What the pages say, in every language that they speak.

/// The texts of one language.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) lang: &'static str,
    pub(super) sign_in: &'static str,
    pub(super) to_continue: &'static str,
    pub(super) user_name: &'static str,
    pub(super) password: &'static str,
    pub(super) failed: &'static str,
    pub(super) busy: &'static str,
    pub(super) stale: &'static str,
    pub(super) consent: &'static str,
    pub(super) asks_for: &'static str,
    pub(super) approve: &'static str,
    pub(super) deny: &'static str,
    pub(super) policy: &'static str,
    pub(super) terms: &'static str,
    pub(super) signed_in_as: &'static str,
    pub(super) error: &'static str,
    pub(super) error_hint: &'static str,
    pub(super) going_on: &'static str,
    pub(super) go_on: &'static str,
    pub(super) sign_out: &'static str,
    pub(super) sign_out_ask: &'static str,
    pub(super) signed_out: &'static str,
    pub(super) signed_out_hint: &'static str,
    pub(super) device: &'static str,
    pub(super) device_enter: &'static str,
    pub(super) device_code: &'static str,
    pub(super) device_wrong: &'static str,
    pub(super) device_guesses: &'static str,
    pub(super) device_ask: &'static str,
    pub(super) device_asks_for: &'static str,
    pub(super) device_shows: &'static str,
    pub(super) device_warning: &'static str,
    pub(super) device_approved: &'static str,
    pub(super) device_approved_hint: &'static str,
    pub(super) device_denied: &'static str,
    pub(super) device_denied_hint: &'static str,
    /// What the known scopes mean; of others, the name is shown.
    scopes: [(&'static str, &'static str); 6],
}

impl Texts {
    /// What a scope means to its user.
    pub(super) fn scope<'a>(&self, name: &'a str) -> &'a str {
        let known = self.scopes.iter().find(|(known, _)| *known == name);
        known.map_or(name, |(_, text)| text)
    }
}

/// The languages; the first one is for whoever reads none of them.
pub(super) static LANGUAGES: [Texts; 2] = [
    Texts {
        lang: "en",
        sign_in: "Sign in",
        to_continue: "to continue to",
        user_name: "User name",
        password: "Password",
        failed: "The user name or the password is not right, or the account can't be used now.",
        busy: "Many people are signing in just now. Please try again in a moment.",
        stale: "This page had become too old, or your browser keeps no cookies. Please try again.",
        consent: "Allow access?",
        asks_for: "asks for:",
        approve: "Allow",
        deny: "Don't allow",
        policy: "Privacy policy",
        terms: "Terms of service",
        signed_in_as: "Signed in as",
        error: "Something went wrong",
        error_hint: "The application that brought you here made a request that can't be answered. \
                     Please go back and try again, or tell whoever runs the application.",
        going_on: "One moment",
        go_on: "Continue",
        sign_out: "Sign out",
        sign_out_ask: "Do you want to sign out?",
        signed_out: "Signed out",
        signed_out_hint: "You are signed out. You can close this window.",
        device: "Connect a device",
        device_enter: "Enter the code that your device shows.",
        device_code: "Code",
        device_wrong: "No device waits with this code. Please compare it with the one that your \
                       device shows; if it is the same, ask the device for a new one.",
        device_guesses: "There were too many wrong codes. Please try again in some minutes.",
        device_ask: "Is this your device?",
        device_asks_for: "runs on the device and asks for:",
        device_shows: "Your device shows the code",
        device_warning: "Allow it only if you have the device in front of you and the codes are \
                         the same. If somebody sent you this code, don't allow it.",
        device_approved: "Your device is connected",
        device_approved_hint: "It goes on by itself in a moment. You can close this window.",
        device_denied: "The device gets no access",
        device_denied_hint: "It was told so. You can close this window.",
        scopes: [
            ("openid", "Know who you are"),
            ("profile", "Your profile: name, language, time zone"),
            ("email", "Your e-mail address"),
            ("phone", "Your phone number"),
            ("address", "Your postal address"),
            ("offline_access", "Access while you are not signed in"),
        ],
    },
    Texts {
        lang: "de",
        sign_in: "Anmelden",
        to_continue: "und weiter zu",
        user_name: "Benutzername",
        password: "Passwort",
        failed: "Benutzername oder Passwort stimmen nicht, oder das Konto ist zurzeit gesperrt.",
        busy: "Gerade melden sich viele Menschen an. Bitte gleich noch einmal versuchen.",
        stale: "Diese Seite war zu alt, oder Ihr Browser speichert keine Cookies. Bitte noch \
                einmal versuchen.",
        consent: "Zugriff erlauben?",
        asks_for: "bittet um:",
        approve: "Erlauben",
        deny: "Nicht erlauben",
        policy: "Datenschutzerklärung",
        terms: "Nutzungsbedingungen",
        signed_in_as: "Angemeldet als",
        error: "Das hat nicht geklappt",
        error_hint: "Die Anwendung, von der Sie kommen, hat eine Anfrage gestellt, die nicht \
                     beantwortet werden kann. Bitte gehen Sie zurück und versuchen Sie es noch \
                     einmal, oder wenden Sie sich an den Betreiber der Anwendung.",
        going_on: "Einen Augenblick",
        go_on: "Weiter",
        sign_out: "Abmelden",
        sign_out_ask: "Möchten Sie sich abmelden?",
        signed_out: "Abgemeldet",
        signed_out_hint: "Sie sind abgemeldet und können dieses Fenster schließen.",
        device: "Gerät verbinden",
        device_enter: "Geben Sie den Code ein, den Ihr Gerät anzeigt.",
        device_code: "Code",
        device_wrong: "Mit diesem Code wartet kein Gerät. Bitte vergleichen Sie ihn mit dem, den \
                       Ihr Gerät anzeigt; ist es derselbe, lassen Sie sich dort einen neuen geben.",
        device_guesses: "Das waren zu viele falsche Codes. Bitte in einigen Minuten noch einmal \
                         versuchen.",
        device_ask: "Ist das Ihr Gerät?",
        device_asks_for: "läuft auf dem Gerät und bittet um:",
        device_shows: "Ihr Gerät zeigt den Code",
        device_warning: "Erlauben Sie es nur, wenn Sie das Gerät vor sich haben und die Codes \
                         gleich sind. Hat Ihnen jemand diesen Code geschickt, lehnen Sie ab.",
        device_approved: "Ihr Gerät ist verbunden",
        device_approved_hint: "Dort geht es gleich von selbst weiter. Sie können dieses Fenster \
                               schließen.",
        device_denied: "Das Gerät erhält keinen Zugriff",
        device_denied_hint: "Es weiß nun Bescheid. Sie können dieses Fenster schließen.",
        scopes: [
            ("openid", "Erfahren, wer Sie sind"),
            ("profile", "Ihr Profil: Name, Sprache, Zeitzone"),
            ("email", "Ihre E-Mail-Adresse"),
            ("phone", "Ihre Telefonnummer"),
            ("address", "Ihre Postanschrift"),
            (
                "offline_access",
                "Zugriff, auch wenn Sie nicht angemeldet sind",
            ),
        ],
    },
];

/// The texts for whoever asked in these ways: `ui_locales` (OpenID Connect Core
/// §3.1.2.1) counts for more than `Accept-Language` (RFC 9110 §12.5.4).
pub(super) fn choose(ui_locales: Option<&str>, accept: Option<&str>) -> &'static Texts {
    let named = |tag: &str| {
        let primary = tag.split(['-', '_']).next().unwrap_or_default();
        LANGUAGES
            .iter()
            .find(|texts| texts.lang.eq_ignore_ascii_case(primary))
    };
    let by_request = ui_locales.unwrap_or_default().split(' ').find_map(named);
    let by_browser = || {
        let mut wishes: Vec<_> = accept
            .unwrap_or_default()
            .split(',')
            .take(20)
            .filter_map(|wish| {
                let (tag, weight) = wish.split_once(';').unwrap_or((wish, "q=1"));
                let weight: f32 = weight.trim().strip_prefix("q=")?.parse().ok()?;
                Some((named(tag.trim())?, weight))
            })
            .filter(|(_, weight)| *weight > 0.0)
            .collect();
        // Stable: of equal wishes the first one wins.
        wishes.sort_by(|one, other| other.1.total_cmp(&one.1));
        wishes.first().map(|(texts, _)| *texts)
    };
    by_request.or_else(by_browser).unwrap_or(&LANGUAGES[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_the_wished_one_that_is_spoken() {
        let lang = |ui, accept| choose(ui, accept).lang;
        assert_eq!(lang(None, None), "en");
        assert_eq!(lang(None, Some("de-AT,en;q=0.5")), "de");
        assert_eq!(lang(None, Some("en;q=0.5, de;q=0.9")), "de");
        assert_eq!(lang(None, Some("fr, de;q=0, *;q=0.1")), "en");
        assert_eq!(lang(Some("fr-CA de"), Some("en")), "de");
        assert_eq!(lang(Some("tlh"), Some("de")), "de");
        assert_eq!(lang(None, Some(";;q=x,,de;q=nan,\u{7f}")), "en");
    }
}
