//! Changes that wait for a yes: what one does is shown first, then it is made, and for
//! an hour it can be taken back.

use axum::response::Response;
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::ApiAnswer;
use super::difference::{self, Confirmation, Line};
use super::error::PageError;
use super::session::Role;
use super::undo_log::{Kept, change_id};
use super::visit::Visit;

/// What is known of a change before it is made.
pub(crate) struct Outlook<R> {
    /// What is changed, by name.
    pub(crate) name: String,
    pub(crate) lines: Vec<Line>,
    /// How the change is taken back, but for what only its answer tells.
    pub(crate) reversal: Option<R>,
    /// What does not come back.
    pub(crate) note: &'static str,
}

/// A change of a record that the Admin API makes.
pub(crate) trait Change: Serialize + DeserializeOwned + Send + Sync {
    /// What the seal of these changes is for.
    const CONTEXT: &'static str;
    /// Where they are made.
    const APPLY: &'static str;
    /// What the undo log calls them.
    const KIND: &'static str;
    /// How one is taken back.
    type Reversal: Send;

    /// Who may make it.
    fn role(&self) -> Role;

    /// The change that this one takes back.
    fn undoes(&self) -> Option<&str>;

    /// The request to the Admin API that makes it.
    fn request(&self) -> (Method, String, Option<Value>);

    /// What the change does to what is there now, if the visitor may make it.
    fn outlook(
        &self,
        visit: &Visit,
    ) -> impl Future<Output = Result<Outlook<Self::Reversal>, PageError>> + Send;

    /// The entry of the navigation that it belongs to.
    fn section(&self) -> &'static str;

    /// Where it leads who says no.
    fn back(&self) -> String;

    fn is_deletion(&self) -> bool;

    /// The refusal of it, as its record has changed since.
    fn changed(&self) -> PageError;

    /// The change that takes this one back, as `answer` completes it.
    fn reversed(&self, reversal: Self::Reversal, answer: &ApiAnswer) -> Option<Self>
    where
        Self: Sized;

    /// The form again with what the Admin API did not like; `None`: there is no form
    /// for it.
    fn again(
        &self,
        visit: &Visit,
        answer: &ApiAnswer,
    ) -> impl Future<Output = Result<Option<Response>, PageError>> + Send;

    /// Where it leads when it is done.
    fn done(&self, visit: &Visit, answer: &ApiAnswer) -> Result<Response, PageError>;

    /// Shows what the change does, and asks for a yes.
    fn ask(&self, visit: &Visit) -> impl Future<Output = Result<Response, PageError>> + Send {
        async { show(visit, self, self.outlook(visit).await?, None) }
    }
}

/// The difference; with what the Admin API said, if it refused the change.
fn show<C: Change>(
    visit: &Visit,
    change: &C,
    outlook: Outlook<C::Reversal>,
    refusal: Option<&ApiAnswer>,
) -> Result<Response, PageError> {
    let confirmation = Confirmation {
        subject: outlook.name,
        section: change.section().to_owned(),
        lines: outlook.lines,
        address: C::APPLY.to_owned(),
        context: C::CONTEXT.to_owned(),
        back: change.back(),
        is_deletion: change.is_deletion(),
        note: outlook.note,
    };
    confirmation.show(visit, change, refusal)
}

/// Makes the change that was shown, if what it is of is still what it was shown for.
pub(crate) async fn apply<C: Change>(visit: &Visit) -> Result<Response, PageError> {
    let change: C = difference::confirmed(visit, C::CONTEXT)?;
    let outlook = change.outlook(visit).await?;
    let (method, target, body) = change.request();
    let id = change_id();
    let api = visit.api_for(&id);
    let answer = api.send(method, &target, body.as_ref()).await?;
    if answer.status == StatusCode::PRECONDITION_FAILED {
        return Err(change.changed());
    }
    if !answer.status.is_success() {
        return match change.again(visit, &answer).await? {
            Some(form) => Ok(form),
            None => show(visit, &change, outlook, Some(&answer)),
        };
    }
    let undo = &visit.parts().undo;
    if let Some(undone) = change.undoes() {
        undo.forget(undone).await;
    }
    let back = outlook.reversal;
    if let Some(back) = back.and_then(|back| change.reversed(back, &answer)) {
        keep(visit, id, &back).await;
    }
    change.done(visit, &answer)
}

/// Keeps what takes the change `id` back.
pub(crate) async fn keep<C: Change>(visit: &Visit, id: String, back: &C) {
    let kept = Kept {
        kind: C::KIND,
        role: back.role(),
        change: back,
    };
    visit.parts().undo.keep(id, kept, visit.now_ms()).await;
}
