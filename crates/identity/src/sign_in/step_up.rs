//! What is still missing when a user has shown something, and how it is had.
//!
//! Between two steps nothing is kept here, and there is no session: the browser
//! carries what was shown, under a digest that binds it to this browser, this
//! page and this request. A change of the user's record ends it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Proof, SignIn, begin, trusted_browser};
use crate::Call;
use crate::config::SecondFactor;
use crate::context::{Demand, Methods, SEVERAL};
use crate::error::Fault;
use crate::factors::{self, gives};
use crate::login::settle;
use crate::pages::FormError;
use doorward_core::model::factor::{Kind, StoredFactor};
use doorward_core::model::grant::StoredSession;
use doorward_core::model::user::User;

/// How long the steps of a sign-in may take, in milliseconds.
const STEPS_MS: i64 = 15 * 60 * 1000;

/// A sign-in that is under way, as the browser carries it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartialAuthentication {
    user_id: Uuid,
    /// Of the user's record: another one ends the sign-in.
    version: i64,
    pub(super) methods: Vec<String>,
    /// When the page was first shown on which it was begun, if that is known.
    #[serde(default)]
    shown_ms: Option<i64>,
    /// The session that is made stronger, and when its user signed in.
    session: Option<(String, i64)>,
    /// The methods that there must be in the end.
    wanted: Vec<String>,
    /// Whether the user may get a factor on the way.
    may_enrol: bool,
    until_ms: i64,
    /// What was asked for last.
    #[serde(rename = "asked")]
    pub(super) step: StepChallenge,
}

/// What the page with the next step asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StepChallenge {
    /// Whether a factor is to be made, and not shown.
    pub(super) enrols: bool,
    /// Of the ceremony with a passkey.
    pub(super) challenge: String,
    /// What authenticators are to call the user.
    pub(super) handle: String,
    /// The key that an app is to take over.
    pub(super) secret: String,
}

/// What a user is to do next.
#[derive(Clone, Debug)]
pub(super) enum StepPrompt {
    /// To show one of these.
    Show {
        code: bool,
        recovery: bool,
        passkeys: Vec<StoredFactor>,
    },
    /// To get one of these kinds, beside what is there.
    Enrol {
        kinds: Vec<Kind>,
        known: Vec<StoredFactor>,
    },
}

/// The next step of a sign-in.
#[derive(Debug)]
pub(crate) struct NextStep {
    pub(super) user: User,
    pub(super) partial: PartialAuthentication,
    pub(super) prompt: StepPrompt,
}

/// What a demand means for a user who is signed in.
#[derive(Debug)]
pub(crate) enum MissingFactor {
    /// It is met, or a wish that can't be.
    Nothing,
    /// It must be met and can't be.
    Unmet,
    /// It must be met, by this step.
    Next(Box<NextStep>),
    /// It is a wish, which this step would meet.
    Wished(Box<NextStep>),
}

/// What follows now that `user` has shown who they are by `methods`, on a page
/// that was first shown at `shown_ms` if that is known: a session, or the step
/// that is missing. Whoever asks what the realm asks of everybody
/// asks here; what requests demand besides is asked of the session.
pub(crate) async fn complete(
    call: &Call,
    user: &User,
    methods: Methods,
    shown_ms: Option<i64>,
) -> Result<SignIn, Fault> {
    let wanted = if requires_second_factor(call, user, &methods).await? {
        vec![SEVERAL.to_owned()]
    } else {
        Vec::new()
    };
    let partial = PartialAuthentication {
        user_id: user.id,
        version: user.version,
        methods: methods.words().to_vec(),
        shown_ms,
        session: None,
        wanted,
        may_enrol: call.realm.settings.second_factor == SecondFactor::Required,
        until_ms: call.now_ms + STEPS_MS,
        step: StepChallenge::default(),
    };
    advance(call, user.clone(), partial).await
}

/// Whether the realm asks this user for a second factor beyond `methods`.
pub(crate) async fn requires_second_factor(
    call: &Call,
    user: &User,
    methods: &Methods,
) -> Result<bool, Fault> {
    let setting = call.realm.settings.second_factor;
    if methods.has(SEVERAL) || setting == SecondFactor::Off {
        return Ok(false);
    }
    let factors = call.state.store.factors(user.id).await?;
    if factors.is_empty() {
        return Ok(setting == SecondFactor::Required);
    }
    Ok(!trusted_browser::remembers(call, user, &factors).await?)
}

/// What `demand` and the realm ask of the user of a session besides what was shown.
/// The realm may ask for more than when the session began.
pub(crate) async fn missing_factor(
    call: &Call,
    (session, user): (&StoredSession, &User),
    demand: &Demand,
) -> Result<MissingFactor, Fault> {
    let proof = Proof::of(session);
    let settings = &call.realm.settings;
    // Who may choose chose when the session began.
    let by_realm = settings.second_factor == SecondFactor::Required
        && requires_second_factor(call, user, &proof.methods).await?;
    let demand = demand.clone().with_second_factor(by_realm);
    let lacks = demand.lacks(settings, &proof.methods);
    let met = lacks.is_empty();
    for wanted in lacks {
        let partial = PartialAuthentication {
            user_id: user.id,
            version: user.version,
            methods: session.amr.clone(),
            shown_ms: None,
            session: Some((session.sid.clone(), session.auth_ms)),
            wanted,
            may_enrol: demand.is_strict(),
            until_ms: call.now_ms + STEPS_MS,
            step: StepChallenge::default(),
        };
        if let Some(prompt) = plan(call, user, &partial).await? {
            let next = Box::new(NextStep {
                user: user.clone(),
                partial,
                prompt,
            });
            return Ok(if demand.is_strict() {
                MissingFactor::Next(next)
            } else {
                MissingFactor::Wished(next)
            });
        }
    }
    if met || !demand.is_strict() {
        Ok(MissingFactor::Nothing)
    } else {
        Ok(MissingFactor::Unmet)
    }
}

/// Begins the session, if nothing is missing any more, or says what is next.
pub(super) async fn advance(
    call: &Call,
    user: User,
    partial: PartialAuthentication,
) -> Result<SignIn, Fault> {
    let methods = Methods::from(partial.methods.as_slice());
    if methods.missing(&partial.wanted).is_empty() {
        let proof = Proof {
            methods,
            auth_ms: partial.session.as_ref().map_or(call.now_ms, |(_, ms)| *ms),
        };
        return begin(call, &user, &proof, partial.shown_ms).await;
    }
    match plan(call, &user, &partial).await? {
        Some(prompt) => Ok(SignIn::Next(Box::new(NextStep {
            user,
            partial,
            prompt,
        }))),
        None => {
            doorward_net::telemetry::warn_limited!(user_id = %user.id, "a user can't get what the sign-in asks for");
            Ok(SignIn::Again(FormError::Unmet))
        }
    }
}

/// The next step towards what is wanted; `None`: there is none.
async fn plan(
    call: &Call,
    user: &User,
    partial: &PartialAuthentication,
) -> Result<Option<StepPrompt>, Fault> {
    let store = &call.state.store;
    let has = store.factors(user.id).await?;
    let recovery = !has.is_empty() && store.recovery_codes_left(user.id).await? > 0;
    let usable = factors::usable(call);
    let methods = Methods::from(partial.methods.as_slice());
    let missing = methods.missing(&partial.wanted);
    // No step that leads nowhere: all of it can be had, or nothing is asked.
    let mut ways: Vec<Kind> = has.iter().map(|factor| factor.kind).collect();
    ways.extend(recovery.then_some(Kind::Totp));
    ways.retain(|kind| usable.contains(kind));
    if partial.may_enrol {
        ways.extend(factors::kinds(call));
    }
    let to_be_had = |word: &&str| ways.iter().any(|kind| gives(*kind).contains(word));
    if !missing.iter().all(to_be_had) {
        return Ok(None);
    }
    // Best what gives all at once; or else one after the other.
    let fits = |kind: Kind| missing.iter().all(|word| gives(kind).contains(word));
    let helps = |kind: Kind| missing.iter().any(|word| gives(kind).contains(word));
    for fit in [&fits as &(dyn Fn(Kind) -> bool + Sync), &helps] {
        let passkeys = fit(Kind::Passkey) && usable.contains(&Kind::Passkey);
        let prompt = show(&has, fit(Kind::Totp), passkeys, recovery && fit(Kind::Totp));
        if prompt.is_some() {
            return Ok(prompt);
        }
        if !partial.may_enrol {
            continue;
        }
        let kinds = factors::kinds(call).into_iter();
        let kinds: Vec<_> = kinds.filter(|kind| fit(*kind)).collect();
        if kinds.is_empty() {
            continue;
        }
        if !has.is_empty() && !methods.has(SEVERAL) {
            // Who knows the password alone must not add what lets them in.
            let passkeys = usable.contains(&Kind::Passkey);
            return Ok(show(&has, true, passkeys, recovery));
        }
        return Ok(Some(StepPrompt::Enrol { kinds, known: has }));
    }
    Ok(None)
}

/// The question for what the user has of these, if it is anything.
fn show(has: &[StoredFactor], totp: bool, passkeys: bool, recovery: bool) -> Option<StepPrompt> {
    let of = |kind| has.iter().filter(move |factor| factor.kind == kind);
    let code = totp && of(Kind::Totp).next().is_some();
    let passkeys: Vec<_> = if passkeys {
        of(Kind::Passkey).cloned().collect()
    } else {
        Vec::new()
    };
    (code || recovery || !passkeys.is_empty()).then_some(StepPrompt::Show {
        code,
        recovery,
        passkeys,
    })
}

impl PartialAuthentication {
    /// Its user, if nothing happened that ends the sign-in.
    pub(super) async fn user(&self, call: &Call) -> Result<Option<User>, Fault> {
        if call.now_ms >= self.until_ms {
            return Ok(None);
        }
        let store = &call.state.store;
        let realm = &call.realm;
        let Some(user) = store.user(&realm.path, self.user_id).await? else {
            return Ok(None);
        };
        settle(&call.state, realm, &user).await?;
        let found = store.user(&realm.path, self.user_id).await?;
        let same = found.filter(|user| user.active && user.version == self.version);
        let Some((sid, _)) = &self.session else {
            return Ok(same);
        };
        // What was shown in a session that has ended is not shown any more.
        let session = crate::sessions::of_browser(call).await?;
        let lives =
            session.is_some_and(|(session, user)| session.sid == *sid && user.id == self.user_id);
        Ok(same.filter(|_| lives))
    }

    /// Adds what was shown just now, beside what was shown before.
    pub(super) fn shown(mut self, words: &[&'static str]) -> Self {
        let mut methods = Methods::from(self.methods.as_slice());
        methods.add(words.iter().copied().chain([SEVERAL]));
        self.methods = methods.words().to_vec();
        self.step = StepChallenge::default();
        self
    }
}
