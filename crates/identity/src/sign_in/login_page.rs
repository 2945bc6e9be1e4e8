//! A page of ours on which people sign in.

use std::collections::BTreeMap;

use axum::response::Response;

use super::step_up::{NextStep, PartialAuthentication, StepPrompt, advance};
use super::{SignIn, by_password, complete, trusted_browser};
use crate::authorize::{Browser, redirect};
use crate::context::Methods;
use crate::error::Fault;
use crate::factors::{
    self, Answer, EnrolmentResult, FactorCheck, FactorProof, NewPasskey, NewSecret, new_challenge,
};
use crate::federation::ProviderChoices;
use crate::forbidden_page::forbidden_page;
use crate::login::is_confined;
use crate::pages::{self, Applicant, Ceremony, FormError, FormParts, Frame};
use crate::{Call, password_reset, sessions};
use doorward_core::model::factor::Kind;
use doorward_core::model::user::User;
use doorward_core::model::user::name_place::NamePlace;

/// The fields of the forms.
#[derive(Debug, Default)]
pub(crate) struct Fields<'f>(BTreeMap<&'static str, &'f str>);

impl<'f> Fields<'f> {
    /// What the forms of sign-in hold. None of it is a parameter of a client's.
    pub(crate) const NAMES: [&'static str; 8] = [
        "csrf",
        NamePlace::Username.name(),
        "password",
        STEP,
        CODE,
        PASSKEY,
        "doorward_name",
        "doorward_remember",
    ];

    /// Those of a form that has `get`.
    pub(crate) fn read(get: impl Fn(&str) -> Option<&'f str>) -> Self {
        let value = |name: &'static str| Some((name, get(name)?));
        Self(Self::NAMES.into_iter().filter_map(value).collect())
    }

    /// The field, unless it is absent or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&'f str> {
        self.0.get(name).copied().filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> &'f str {
        self.get(name).unwrap_or_default()
    }

    /// Whether name and password are to be looked at.
    fn is_password(&self) -> bool {
        self.get("password").is_some() && self.get(PASSKEY).is_none()
    }

    /// Whether it is a form of sign-in at all.
    pub(crate) fn signs_in(&self) -> bool {
        self.get("password").is_some() || self.get(STEP).is_some()
    }
}

/// What a partial authentication from another page is bound to: the page and the
/// request that it was begun for.
fn resume_purpose<'a>(call: &'a Call, to: &'a str) -> [&'a str; 3] {
    ["arrival", &call.realm.path, to]
}

/// A partial authentication as the parameter [`RESUME`] of an address of ours carries it
/// to the page `to` that the user goes on to.
pub(crate) fn resume_parameter(
    call: &Call,
    browser: &Browser,
    to: &str,
    next: &NextStep,
) -> String {
    browser.carry(call, &resume_purpose(call, to), &next.partial)
}

/// The parameter that carries a partial authentication.
pub(crate) const RESUME: &str = "doorward_arrived";

/// What was shown before, sealed.
pub(crate) const STEP: &str = "doorward_step";
/// A typed code.
pub(crate) const CODE: &str = "doorward_code";
/// What a browser answered in a ceremony.
pub(crate) const PASSKEY: &str = "doorward_passkey";

/// Where people sign in, and where that leads.
pub(crate) struct LoginPage<'a> {
    pub(crate) call: &'a Call,
    pub(crate) browser: &'a Browser,
    pub(crate) frame: &'a Frame,
    /// For whom they sign in.
    pub(crate) applicant: Applicant<'a>,
    /// What leads back here from other providers.
    pub(crate) choices: &'a ProviderChoices,
    /// What tells the forms from those of other pages and requests.
    pub(crate) purpose: Vec<&'a str>,
    /// Where the forms go.
    pub(crate) action: String,
    /// When this browser was first shown the request, as a mark.
    pub(crate) since: String,
    /// The same, where it is known.
    pub(crate) shown_ms: Option<i64>,
    /// Where a user goes who is signed in.
    pub(crate) next: String,
}

impl LoginPage<'_> {
    /// The form that asks for name and password, or for a passkey.
    pub(crate) fn show(&self, name: &str, failed: Option<FormError>) -> Response {
        let form = self.form();
        let ceremony = self.passkey_alone();
        let what = (name, ceremony.as_ref());
        let mut response = pages::sign_in(self.frame, self.applicant, &form, what, failed);
        self.browser.remember(self.call, &mut response);
        response
    }

    /// What a passkey that needs no name is asked for.
    fn passkey_alone(&self) -> Option<Ceremony> {
        let live = &self.call.live;
        let party = live.relying_party.as_ref();
        let party = party.filter(|_| self.call.realm.settings.factors.passkeys_alone)?;
        let challenge = new_challenge();
        Some(Ceremony {
            creates: false,
            options: factors::request(party, &challenge, None),
            step: self
                .browser
                .carry(self.call, &self.steps("passkey"), &challenge),
        })
    }

    fn form(&self) -> FormParts {
        FormParts {
            action: self.action.clone(),
            csrf: self.browser.token(&self.purpose),
            since: self.since.clone(),
            provider_links: self.choices.provider_links(self.call, self.browser),
            forgot: password_reset::address(self.call),
        }
    }

    /// What seals of this page and kind are bound to.
    fn steps<'s>(&'s self, kind: &'s str) -> Vec<&'s str> {
        let mut purpose = vec![kind, self.call.realm.path.as_str()];
        purpose.extend(&self.purpose);
        purpose
    }

    /// Answers one of the forms.
    pub(crate) async fn submitted(&self, fields: &Fields<'_>) -> Result<Response, Fault> {
        let name = fields.text(NamePlace::Username.name());
        let csrf = fields.get("csrf");
        if !self.browser.sent(self.call, &self.purpose, csrf) {
            return Ok(self.show(name, Some(FormError::Stale)));
        }
        // The form for name and password carries what a passkey would need.
        let step = fields.get(STEP).filter(|_| !fields.is_password());
        if let Some(step) = step {
            return self.step(step, fields).await;
        }
        let typed = NamePlace::Username.says(name);
        let shown = (&typed, fields.text("password"));
        let came = by_password(self.call, shown, self.shown_ms).await?;
        Ok(self.lead(name, came))
    }

    /// Shows what came of a step.
    pub(crate) fn lead(&self, name: &str, came: SignIn) -> Response {
        match came {
            SignIn::Forbidden => forbidden_page(),
            SignIn::Again(failed) => self.show(name, Some(failed)),
            SignIn::Next(next) => self.show_next(*next, None),
            SignIn::Done(token) => {
                let mut response = redirect(self.call, &self.next);
                sessions::set_cookie(self.call, &mut response, &token);
                response
            }
        }
    }

    /// The page of the step that somebody has to take who was signed in
    /// elsewhere; `None`: nobody was.
    pub(crate) async fn resume(
        &self,
        resume_parameter: Option<&str>,
    ) -> Result<Option<Response>, Fault> {
        let call = self.call;
        let purpose = resume_purpose(call, &self.choices.to);
        let partial = resume_parameter.and_then(|text| self.browser.brought(call, &purpose, text));
        let Some(partial): Option<PartialAuthentication> = partial else {
            return Ok(None);
        };
        let Some(user) = partial.user(call).await? else {
            return Ok(Some(self.show("", Some(FormError::Stale))));
        };
        let came = advance(call, user, partial).await?;
        Ok(Some(self.lead("", came)))
    }

    /// The page of the next step.
    pub(crate) fn show_next(&self, next: NextStep, failed: Option<FormError>) -> Response {
        let NextStep {
            user,
            partial,
            prompt,
        } = next;
        let mut response = match prompt {
            StepPrompt::Show { .. } => self.show_factors(&user, partial, &prompt, failed),
            StepPrompt::Enrol { kinds, known } => {
                self.show_enrolment(&user, partial, (&kinds, &known), failed)
            }
        };
        self.browser.remember(self.call, &mut response);
        response
    }

    fn show_factors(
        &self,
        user: &User,
        mut partial: PartialAuthentication,
        prompt: &StepPrompt,
        failed: Option<FormError>,
    ) -> Response {
        let StepPrompt::Show {
            code,
            recovery,
            passkeys,
        } = prompt
        else {
            return self.show("", failed);
        };
        partial.step.enrols = false;
        partial.step.challenge = new_challenge();
        let step = self.browser.carry(self.call, &self.steps("step"), &partial);
        let live = &self.call.live;
        let party = live.relying_party.as_ref().filter(|_| !passkeys.is_empty());
        let ceremony = party.map(|party| Ceremony {
            creates: false,
            options: factors::request(party, &partial.step.challenge, Some(passkeys)),
            step: step.clone(),
        });
        let shown = pages::Factors {
            user_name: &user.user_name,
            step: &step,
            code: *code,
            recovery: *recovery,
            ceremony: ceremony.as_ref(),
            remember: self.call.realm.settings.factors.remember_browser_days,
            again: &self.next,
        };
        pages::factor(self.frame, self.applicant, &self.form(), &shown, failed)
    }

    fn show_enrolment(
        &self,
        user: &User,
        mut partial: PartialAuthentication,
        (kinds, known): (&[Kind], &[doorward_core::model::factor::StoredFactor]),
        failed: Option<FormError>,
    ) -> Response {
        let call = self.call;
        partial.step.enrols = true;
        partial.step.challenge = new_challenge();
        // Who mistyped a code need not scan another picture.
        let secret = NewSecret::parse(&partial.step.secret);
        let secret = secret.or_else(|| kinds.contains(&Kind::Totp).then(NewSecret::make));
        partial.step.secret = secret.as_ref().map(NewSecret::text).unwrap_or_default();
        let live = &call.live;
        let party = live.relying_party.as_ref();
        let party = party.filter(|_| kinds.contains(&Kind::Passkey));
        let options = party.map(|party| {
            let (options, handle) =
                factors::creation(call, party, user, &partial.step.challenge, known);
            partial.step.handle = handle;
            options
        });
        let step = self.browser.carry(call, &self.steps("step"), &partial);
        let ceremony = options.map(|options| Ceremony {
            creates: true,
            options,
            step: step.clone(),
        });
        let totp = secret.map(|secret| secret.shown(call, user, step));
        let shown = pages::Enrolment {
            user_name: &user.user_name,
            totp: totp.as_ref(),
            ceremony: ceremony.as_ref(),
            again: &self.next,
            of_account: false,
        };
        pages::enrol(self.frame, self.applicant, &self.form(), &shown, failed)
    }

    /// Answers the form of a step.
    async fn step(&self, step: &str, fields: &Fields<'_>) -> Result<Response, Fault> {
        let call = self.call;
        let alone: Option<String> = self.browser.brought(call, &self.steps("passkey"), step);
        if let Some(challenge) = alone {
            let came = self.by_passkey(&challenge, fields).await?;
            return Ok(self.lead("", came));
        }
        let partial: Option<PartialAuthentication> =
            self.browser.brought(call, &self.steps("step"), step);
        let Some(partial) = partial else {
            return Ok(self.show("", Some(FormError::Stale)));
        };
        let Some(user) = partial.user(call).await? else {
            return Ok(self.show("", Some(FormError::Stale)));
        };
        if partial.step.enrols {
            self.enrolled(user, partial, fields).await
        } else {
            self.shown(user, partial, fields).await
        }
    }

    /// Signs in whoever has the passkey that answered.
    async fn by_passkey(&self, challenge: &str, fields: &Fields<'_>) -> Result<SignIn, Fault> {
        let call = self.call;
        let again = Ok(SignIn::Again(FormError::Passkey));
        if !call.realm.settings.factors.passkeys_alone {
            return again;
        }
        let Some(answer) = fields.get(PASSKEY).and_then(Answer::parse) else {
            return again;
        };
        let checked = factors::check_passkey(call, challenge, &answer, None).await?;
        let Some((user, shown)) = checked else {
            return again;
        };
        if is_confined(call, &user.user_name) {
            return Ok(SignIn::Forbidden);
        }
        complete(call, &user, Methods::of(shown.words), self.shown_ms).await
    }

    /// Takes in what a user showed in the next step.
    async fn shown(
        &self,
        user: User,
        partial: PartialAuthentication,
        fields: &Fields<'_>,
    ) -> Result<Response, Fault> {
        let call = self.call;
        let (checked, wrong) = match fields.get(PASSKEY) {
            Some(text) => {
                let challenge = &partial.step.challenge;
                (
                    by_own_passkey(call, &user, challenge, text).await?,
                    FormError::Passkey,
                )
            }
            None => {
                let typed = fields.text(CODE);
                (
                    factors::check_code(call, &user, typed).await?,
                    FormError::Code,
                )
            }
        };
        let shown = match checked {
            FactorCheck::Right(shown) => shown,
            FactorCheck::Wrong => return self.again(user, partial, wrong).await,
            FactorCheck::Locked => return self.again(user, partial, FormError::Tries).await,
        };
        let remembered = fields.get("doorward_remember").and(shown.factor);
        let came = advance(call, user.clone(), partial.shown(&shown.words)).await?;
        let done = matches!(came, SignIn::Done(_));
        let mut response = self.lead("", came);
        if let Some(factor) = remembered.filter(|_| done) {
            trusted_browser::remember(call, &mut response, &user, factor);
        }
        Ok(response)
    }

    /// Takes in a factor that a user got on the way.
    async fn enrolled(
        &self,
        user: User,
        partial: PartialAuthentication,
        fields: &Fields<'_>,
    ) -> Result<Response, Fault> {
        let call = self.call;
        // Judged now: since the page was shown, the user may have got a factor.
        let room = factors::room(&Methods::from(partial.methods.as_slice()));
        let (enrolled, wrong) = match fields.get(PASSKEY) {
            Some(text) => {
                let step = &partial.step;
                let ceremony = (step.challenge.as_str(), step.handle.as_str());
                let name = fields.get("doorward_name");
                let name = factors::name(name, &self.frame.texts().passkey);
                let enrolled = enrol_passkey(call, &user, ceremony, (&name, room), text).await?;
                (enrolled, FormError::Passkey)
            }
            None => {
                let name = factors::name(fields.get("doorward_name"), &self.frame.texts().totp);
                let typed = fields.text(CODE);
                let enrolled = match NewSecret::parse(&partial.step.secret) {
                    Some(secret) => secret.enrol(call, &user, (&name, room), typed).await?,
                    None => EnrolmentResult::Wrong,
                };
                (enrolled, FormError::Code)
            }
        };
        let (shown, codes) = match enrolled {
            EnrolmentResult::Done(shown, codes) => (shown, codes),
            EnrolmentResult::Wrong => return self.again(user, partial, wrong).await,
            EnrolmentResult::Locked => return self.again(user, partial, FormError::Tries).await,
            EnrolmentResult::Full if room == 1 => {
                return self.again(user, partial, FormError::Stale).await;
            }
            EnrolmentResult::Full => return self.again(user, partial, FormError::Full).await,
        };
        let came = advance(call, user, partial.shown(&shown.words)).await?;
        let Some(codes) = codes else {
            return Ok(self.lead("", came));
        };
        // They are shown now or never; what else is missing is asked for after.
        let mut response = pages::recovery(self.frame, &codes, &self.next);
        if let SignIn::Done(token) = came {
            sessions::set_cookie(call, &mut response, &token);
        }
        Ok(response)
    }

    /// The page of the same step, because something was wrong.
    async fn again(
        &self,
        user: User,
        partial: PartialAuthentication,
        failed: FormError,
    ) -> Result<Response, Fault> {
        let step = partial.step.clone();
        Ok(match advance(self.call, user, partial).await? {
            SignIn::Next(mut next) => {
                next.partial.step = step;
                self.show_next(*next, Some(failed))
            }
            came => self.lead("", came),
        })
    }
}

/// Checks a passkey of a known user.
pub(crate) async fn by_own_passkey(
    call: &Call,
    user: &User,
    challenge: &str,
    answer: &str,
) -> Result<FactorCheck, Fault> {
    let Some(answer) = Answer::parse(answer) else {
        return Ok(FactorCheck::Wrong);
    };
    let checked = factors::check_passkey(call, challenge, &answer, Some(user.id)).await?;
    let right = |(_, shown): (User, FactorProof)| FactorCheck::Right(shown);
    Ok(checked.map_or(FactorCheck::Wrong, right))
}

/// Enrols the passkey that a browser made, if its user has fewer than `most`
/// factors.
pub(crate) async fn enrol_passkey(
    call: &Call,
    user: &User,
    (challenge, handle): (&str, &str),
    (name, most): (&str, u32),
    answer: &str,
) -> Result<EnrolmentResult, Fault> {
    let Some(answer) = Answer::parse(answer) else {
        return Ok(EnrolmentResult::Wrong);
    };
    let new = NewPasskey {
        challenge,
        handle,
        name,
        most,
    };
    new.enrol(call, user, &answer).await
}
