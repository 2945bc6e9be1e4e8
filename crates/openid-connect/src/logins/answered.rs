//! Logins that are being answered, or have been: each is answered once, so that
//! whoever has begun one can't have the provider asked about any number of codes.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use quick_cache::sync::Cache;

use crate::refusal::Refusal;
use crate::single_flight::{Digest, digest_of};

/// Most logins that are remembered as over.
const OVER: usize = 16 * 1024;

/// What has become of logins, by the digests of their states.
pub(super) struct Answered {
    /// As many as there are claims, which end with their questions.
    under_way: DashMap<Digest, UnderWay>,
    over: Cache<Digest, ()>,
}

/// A login whose code the provider is being asked about.
struct UnderWay {
    code: Digest,
    claims: usize,
}

/// The right to ask the provider about the code of a login. While there is one,
/// nobody may ask about another code of that login.
pub(in super::super) struct Claim {
    answered: Arc<Answered>,
    state: Digest,
}

impl Answered {
    pub(super) fn new() -> Self {
        Self {
            under_way: DashMap::new(),
            over: Cache::new(OVER),
        }
    }

    /// Checks that a login is not over.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`].
    pub(super) fn check(&self, state: &str) -> Result<(), Refusal> {
        self.check_digest(&digest_of([state.as_bytes()]))
    }

    fn check_digest(&self, state: &Digest) -> Result<(), Refusal> {
        match self.over.get(state) {
            Some(()) => Err(Refusal::LoginRepeated),
            None => Ok(()),
        }
    }

    /// Remembers that a login is over.
    pub(super) fn end(&self, state: &str) {
        self.over.insert(digest_of([state.as_bytes()]), ());
    }

    /// Claims a login for a code. The same code may be claimed more than once:
    /// whoever comes with it at the same time asks the same question.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`] if it is over, or claimed for another code.
    pub(super) fn claim(self: &Arc<Self>, state: &str, code: &str) -> Result<Claim, Refusal> {
        let [state, code] = [state, code].map(|text| digest_of([text.as_bytes()]));
        let entry = self.under_way.entry(state);
        // A login is over before it is let go.
        self.check_digest(&state)?;
        match entry {
            Entry::Occupied(known) if known.get().code != code => {
                return Err(Refusal::LoginRepeated);
            }
            Entry::Occupied(mut known) => known.get_mut().claims += 1,
            Entry::Vacant(vacant) => drop(vacant.insert(UnderWay { code, claims: 1 })),
        }
        Ok(Claim {
            answered: Arc::clone(self),
            state,
        })
    }
}

impl Claim {
    /// Asks. The login is over with the answer; where the provider gave none, its
    /// user may come again.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`] if it is over meanwhile, and as the question.
    pub(in super::super) async fn ask<T>(
        self,
        question: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        self.answered.check_digest(&self.state)?;
        let outcome = question.await;
        if !matches!(&outcome, Err(refusal) if refusal.is_silence()) {
            self.answered.over.insert(self.state, ());
        }
        outcome
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Entry::Occupied(mut known) = self.answered.under_way.entry(self.state) {
            known.get_mut().claims -= 1;
            if known.get().claims == 0 {
                known.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_login_is_claimed_for_one_code_until_its_question_is_over() {
        let answered = Arc::new(Answered::new());
        let claim = |code| answered.claim("state", code);
        let (one, again) = (claim("a").expect("claimed"), claim("a").expect("the same"));
        assert_eq!(claim("b").err(), Some(Refusal::LoginRepeated));
        assert!(answered.claim("other", "b").is_ok());
        drop(again);
        assert_eq!(claim("b").err(), Some(Refusal::LoginRepeated));
        let silent = one.ask(async { Err::<(), _>(Refusal::ProviderTimeout) });
        assert_eq!(silent.await, Err(Refusal::ProviderTimeout));
        assert!(answered.under_way.is_empty(), "nothing was said");
        let (one, late) = (claim("b").expect("claimed"), claim("b").expect("the same"));
        let refused = one.ask(async { Err::<(), _>(Refusal::WrongCredentials) });
        assert_eq!(refused.await, Err(Refusal::WrongCredentials));
        let asked = late.ask(async { Ok(()) });
        assert_eq!(asked.await, Err(Refusal::LoginRepeated));
        assert_eq!(claim("b").err(), Some(Refusal::LoginRepeated));
        assert!(answered.under_way.is_empty());
    }
}
