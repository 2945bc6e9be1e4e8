//! Logins that are being answered, or have been: each is answered once, so that
//! whoever has begun one can't have the provider asked about any number of codes.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use quick_cache::sync::Cache;

use crate::decide::refusal::Refusal;
use crate::provider::single_flight::{Digest, digest_of};

/// Most logins that are remembered as over.
const OVER: usize = 16 * 1024;

/// What has become of logins, by the digests of their states.
pub(crate) struct CallbackReplay {
    /// As many as there are claims, which end with their questions.
    under_way: DashMap<Digest, PendingCode>,
    over: Cache<Digest, ()>,
}

/// A login whose code the provider is being asked about.
struct PendingCode {
    code: Digest,
    claims: usize,
}

/// The right to ask the provider about the code of a login. While there is one,
/// nobody may ask about another code of that login.
pub(crate) struct CodeClaim {
    callback_replay: Arc<CallbackReplay>,
    state: Digest,
}

impl CallbackReplay {
    pub(crate) fn new() -> Self {
        Self {
            under_way: DashMap::new(),
            over: Cache::new(OVER),
        }
    }

    /// Checks that a login is not over.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`].
    pub(crate) fn check(&self, state: &str) -> Result<(), Refusal> {
        self.check_digest(&digest_of([state.as_bytes()]))
    }

    fn check_digest(&self, state: &Digest) -> Result<(), Refusal> {
        match self.over.get(state) {
            Some(()) => Err(Refusal::LoginRepeated),
            None => Ok(()),
        }
    }

    /// Remembers that a login is over.
    pub(crate) fn end(&self, state: &str) {
        self.over.insert(digest_of([state.as_bytes()]), ());
    }

    /// Claims a login for a code. The same code may be claimed more than once:
    /// whoever comes with it at the same time asks the same question.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`] if it is over, or claimed for another code.
    pub(crate) fn claim(self: &Arc<Self>, state: &str, code: &str) -> Result<CodeClaim, Refusal> {
        let [state, code] = [state, code].map(|text| digest_of([text.as_bytes()]));
        let entry = self.under_way.entry(state);
        // A login is over before it is let go.
        self.check_digest(&state)?;
        match entry {
            Entry::Occupied(pending) if pending.get().code != code => {
                return Err(Refusal::LoginRepeated);
            }
            Entry::Occupied(mut pending) => pending.get_mut().claims += 1,
            Entry::Vacant(vacant) => drop(vacant.insert(PendingCode { code, claims: 1 })),
        }
        Ok(CodeClaim {
            callback_replay: Arc::clone(self),
            state,
        })
    }
}

impl CodeClaim {
    /// Asks. The login is over with the answer; where the provider gave none, its
    /// user may come again.
    ///
    /// # Errors
    /// [`Refusal::LoginRepeated`] if it is over meanwhile, and as the question.
    pub(crate) async fn redeem<T>(
        self,
        question: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        self.callback_replay.check_digest(&self.state)?;
        let outcome = question.await;
        if !matches!(&outcome, Err(refusal) if refusal.is_silence()) {
            self.callback_replay.over.insert(self.state, ());
        }
        outcome
    }
}

impl Drop for CodeClaim {
    fn drop(&mut self) {
        if let Entry::Occupied(mut pending) = self.callback_replay.under_way.entry(self.state) {
            pending.get_mut().claims -= 1;
            if pending.get().claims == 0 {
                pending.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_login_is_claimed_for_one_code_until_its_question_is_over() {
        let callback_replay = Arc::new(CallbackReplay::new());
        let claim = |code| callback_replay.claim("state", code);
        let (one, again) = (claim("a").expect("claimed"), claim("a").expect("the same"));
        assert_eq!(claim("b").err(), Some(Refusal::LoginRepeated));
        assert!(callback_replay.claim("other", "b").is_ok());
        drop(again);
        assert_eq!(claim("b").err(), Some(Refusal::LoginRepeated));
        let silent = one.redeem(async { Err::<(), _>(Refusal::ProviderTimeout) });
        assert_eq!(silent.await, Err(Refusal::ProviderTimeout));
        assert!(callback_replay.under_way.is_empty(), "nothing was said");
        let (one, late) = (claim("b").expect("claimed"), claim("b").expect("the same"));
        let refused = one.redeem(async { Err::<(), _>(Refusal::WrongCredentials) });
        assert_eq!(refused.await, Err(Refusal::WrongCredentials));
        let asked = late.redeem(async { Ok(()) });
        assert_eq!(asked.await, Err(Refusal::LoginRepeated));
        assert_eq!(claim("b").err(), Some(Refusal::LoginRepeated));
        assert!(callback_replay.under_way.is_empty());
    }
}
