//! Changes that wait for a yes: what one does is shown first, then it is made, and for
//! an hour it can be taken back.

use axum::response::Response;
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::ApiAnswer;
use super::difference::{self, Confirmation, Conflict, Line};
use super::error::PageError;
use super::session::Role;
use super::undo_log::{UndoEntry, change_id};
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
    /// Who may make one.
    const ROLE: Role;
    /// How one is taken back.
    type Reversal: Send;

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

    /// The same change of the record as it is now; `None`: it is not made any more.
    fn rebased(
        &self,
        visit: &Visit,
    ) -> impl Future<Output = Result<Option<Self>, PageError>> + Send
    where
        Self: Sized;

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
        async { show(visit, self, self.outlook(visit).await?) }
    }

    /// The same for a change whose record somebody else has changed meanwhile.
    fn ask_after(
        &self,
        visit: &Visit,
        conflict: Conflict,
    ) -> impl Future<Output = Result<Response, PageError>> + Send {
        async {
            let aside = Aside {
                conflict: Some(conflict),
                refusal: None,
            };
            show_beside(visit, self, self.outlook(visit).await?, aside)
        }
    }
}

/// What is said beside a difference.
#[derive(Default)]
struct Aside<'a> {
    conflict: Option<Conflict>,
    /// What the Admin API said, if it refused the change.
    refusal: Option<&'a ApiAnswer>,
}

/// Shows what the change does, and asks for a yes.
pub(crate) fn show<C: Change>(
    visit: &Visit,
    change: &C,
    outlook: Outlook<C::Reversal>,
) -> Result<Response, PageError> {
    show_beside(visit, change, outlook, Aside::default())
}

fn show_beside<C: Change>(
    visit: &Visit,
    change: &C,
    outlook: Outlook<C::Reversal>,
    aside: Aside<'_>,
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
        conflict: aside.conflict,
    };
    confirmation.show(visit, change, aside.refusal)
}

/// Makes the change that was shown, if what it is of is still what it was shown for.
pub(crate) async fn apply<C: Change>(visit: &Visit) -> Result<Response, PageError> {
    let change: C = difference::confirmed(visit, C::CONTEXT)?;
    let outlook = match change.outlook(visit).await {
        Err(PageError::Changed(_)) => return overtaken(visit, &change).await,
        outlook => outlook?,
    };
    let (method, target, body) = change.request();
    let id = change_id();
    let api = visit.api_for(&id);
    let answer = api.send(method, &target, body.as_ref()).await?;
    if answer.status == StatusCode::PRECONDITION_FAILED {
        return overtaken(visit, &change).await;
    }
    if !answer.status.is_success() {
        return match change.again(visit, &answer).await? {
            Some(form) => Ok(form),
            None => {
                let aside = Aside {
                    refusal: Some(&answer),
                    conflict: None,
                };
                show_beside(visit, &change, outlook, aside)
            }
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
    let kept = UndoEntry {
        kind: C::KIND,
        role: C::ROLE,
        change: back,
    };
    visit.parts().undo.keep(id, kept, visit.now_ms()).await;
}

/// Somebody else was faster: shows what the change does to the record as it is now. What
/// undoes another change is not made then.
async fn overtaken<C: Change>(visit: &Visit, change: &C) -> Result<Response, PageError> {
    let PageError::Changed(trail) = change.changed() else {
        return Err(change.changed());
    };
    if change.undoes().is_some() {
        return Err(PageError::Changed(trail));
    }
    match change.rebased(visit).await? {
        None => Err(PageError::Changed(trail)),
        Some(change) => {
            let conflict = Conflict::find(visit, *trail, &Value::Null, &Value::Null).await;
            change.ask_after(visit, conflict).await
        }
    }
}
