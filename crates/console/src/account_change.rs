//! Changes of users and groups: the difference first, then the change, and for an
//! hour the way back.

use axum::response::Response;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use doorward_core::model::user::name;

use super::account_outlook::{creation, deletion, member_names, reversal, update, with};
use super::accounts::{self, ACCOUNTS_CHANGED_BY, GROUPS, USERS, has_identity};
use super::api::ApiAnswer;
use super::change::{self, Change};
use super::difference::{self, Conflict, Line};
use super::error::PageError;
use super::session::Role;
use super::trail::Trail;
use super::visit::Visit;
use super::{form_base, frame, groups, path, record, user_form};

/// Members that a deleted group can be made with anew: a page of the Admin API.
const MEMBERS: &str = "1000";

/// A change of a user or a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AccountChange {
    /// The path of the realm; "": `/`.
    pub(crate) realm: String,
    pub(crate) what: What,
    /// The change that this one takes back.
    pub(crate) undoes: Option<String>,
}

/// What is changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    CreateUser {
        body: Value,
    },
    PatchUser {
        id: String,
        version: i64,
        patch: Map<String, Value>,
    },
    DeleteUser {
        id: String,
        version: i64,
    },
    ResetFactors {
        id: String,
        /// The version of the factors that are shown, once they are.
        #[serde(default)]
        seen: Option<String>,
    },
    CreateGroup {
        body: Value,
    },
    PatchGroup {
        id: String,
        version: i64,
        patch: Map<String, Value>,
    },
    /// A group is of another version once somebody came in or left.
    DeleteGroup {
        id: String,
        version: i64,
    },
    /// A user comes into a group, or goes.
    Member {
        group: String,
        user: String,
        comes: bool,
    },
}

/// What is known of a change before it is made.
type Outlook = change::Outlook<What>;

impl AccountChange {
    pub(crate) fn new(realm: &str, what: What) -> Self {
        Self {
            realm: realm.to_owned(),
            what,
            undoes: None,
        }
    }

    /// Shows the change that `patch` makes of a record by its form. Where somebody else
    /// has changed the record meanwhile, that is shown as well.
    pub(crate) async fn save(
        visit: &Visit,
        now: &Value,
        patch: fn(&Visit, &Value) -> Map<String, Value>,
        what: fn(String, i64, Map<String, Value>) -> What,
    ) -> Result<Response, PageError> {
        let seen = accounts::version(visit)?;
        let version = now["version"].as_i64().unwrap_or_default();
        let (realm, id) = (visit.field("realm"), visit.param(0).to_owned());
        let base = form_base::of(visit);
        if seen == version || base.is_null() {
            let change = Self::new(realm, what(id, seen, patch(visit, now)));
            return change.ask(visit).await;
        }
        let patch = difference::onto(&base, now, patch(visit, &base));
        let change = Self::new(realm, what(id, version, patch));
        let PageError::Changed(trail) = change.changed() else {
            return Err(PageError::Stale);
        };
        let conflict = Conflict::find(visit, *trail, &base, now).await;
        change.ask_after(visit, conflict).await
    }

    fn target(&self, list: &str, parts: &[&str], version: Option<i64>) -> String {
        let version = version.map_or_else(String::new, |version| version.to_string());
        let query = [("realm", self.realm.as_str()), ("version", &version)];
        path::with_query(&path::join(list, parts.iter().copied()), query)
    }

    async fn user(&self, visit: &Visit, id: &str) -> Result<Value, PageError> {
        let target = self.target("/identity/users", &[id], None);
        visit.api().get(&target).await
    }

    /// The user, whom the store owns.
    async fn own_user(&self, visit: &Visit, id: &str) -> Result<Value, PageError> {
        let user = self.user(visit, id).await?;
        if user["owner"] == "file" {
            return Err(PageError::FileUser);
        }
        Ok(user)
    }

    async fn group(&self, visit: &Visit, id: &str) -> Result<Value, PageError> {
        let target = self.target("/identity/groups", &[id], None);
        visit.api().get(&target).await
    }

    /// The second factors of a user.
    async fn factors(&self, visit: &Visit, id: &str) -> Result<Value, PageError> {
        let target = self.target("/identity/users", &[id, "factors"], None);
        visit.api().get(&target).await
    }

    /// The first members of a group.
    async fn members(&self, visit: &Visit, id: &str) -> Result<Value, PageError> {
        let members = self.target("/identity/groups", &[id, "members"], None);
        let members = path::with_query(&members, [("size", MEMBERS)]);
        visit.api().get(&members).await
    }

    /// The same change of what is there now and will be shown.
    async fn at_sight(&self, visit: &Visit) -> Result<Self, PageError> {
        let mut change = self.clone();
        if let What::ResetFactors { id, seen } = &mut change.what {
            *seen = Some(record::text(&self.factors(visit, id).await?["version"]));
        }
        Ok(change)
    }

    async fn factors_outlook(
        &self,
        visit: &Visit,
        (id, seen): (&str, Option<&str>),
    ) -> Result<Outlook, PageError> {
        let user = self.user(visit, id).await?;
        let factors = self.factors(visit, id).await?;
        if seen.is_some_and(|seen| factors["version"] != seen) {
            return Err(self.changed());
        }
        let factors = factors["data"].as_array().into_iter().flatten();
        let lines = factors.map(|factor| Line {
            name: record::text(&factor["kind"]),
            before: record::text(&factor["name"]),
            after: record::text(&Value::Null),
        });
        Ok(Outlook {
            name: record::text(&user["userName"]),
            lines: lines.collect(),
            reversal: None,
            note: visit.texts.no_factors_back,
        })
    }

    async fn group_end(&self, visit: &Visit, id: &str, version: i64) -> Result<Outlook, PageError> {
        let group = self.group(visit, id).await?;
        self.spares_own_role(visit, &group)?;
        let members = self.members(visit, id).await?;
        let has_more = members["offset"].is_string();
        let members = members["data"].as_array().cloned().unwrap_or_default();
        let mut outlook = deletion(&group, "displayName", version)?;
        if !members.is_empty() {
            outlook.lines.push(Line {
                name: "members".to_owned(),
                before: member_names(&members, has_more),
                after: record::text(&Value::Null),
            });
        }
        if has_more {
            outlook.note = visit.texts.no_group_back;
            return Ok(outlook);
        }
        let ids: Vec<_> = members.iter().map(|member| member["id"].clone()).collect();
        let mut body = json!({"displayName": group["displayName"], "members": ids});
        if group["externalId"].is_string() {
            body["externalId"] = group["externalId"].clone();
        }
        outlook.reversal = Some(What::CreateGroup { body });
        outlook.note = visit.texts.group_comes_back;
        Ok(outlook)
    }

    async fn member_outlook(
        &self,
        visit: &Visit,
        group: &Value,
        user: &str,
        comes: bool,
    ) -> Result<Outlook, PageError> {
        let id = record::text(&group["id"]);
        let user = self.user(visit, user).await?;
        let groups = user["groups"].as_array().into_iter().flatten();
        let is_member = groups.clone().any(|one| one["value"] == id.as_str());
        let user_id = record::text(&user["id"]);
        if !comes && self.is_own(visit, &user_id) {
            self.spares_own_role(visit, group)?;
        }
        let (name, none) = (record::text(&user["userName"]), record::text(&Value::Null));
        let (before, after) = if comes { (none, name) } else { (name, none) };
        let line = Line {
            name: "members".to_owned(),
            before,
            after,
        };
        let differs = comes != is_member;
        Ok(Outlook {
            name: record::text(&group["displayName"]),
            lines: if differs { vec![line] } else { Vec::new() },
            reversal: differs.then_some(What::Member {
                group: id,
                user: user_id,
                comes: !comes,
            }),
            note: "",
        })
    }

    /// Whether this is the visitor's own account.
    fn is_own(&self, visit: &Visit, id: &str) -> bool {
        let person = visit.person();
        person.is_some_and(|person| person.id.to_string().eq_ignore_ascii_case(id))
    }

    /// Refuses a change that would take the visitor's own account away.
    fn spares_own_account(&self, visit: &Visit, id: &str) -> Result<(), PageError> {
        if self.is_own(visit, id) {
            Err(PageError::OwnAccount)
        } else {
            Ok(())
        }
    }

    /// Refuses a change after which the visitor, who is in `group`, is no owner.
    fn spares_own_role(&self, visit: &Visit, group: &Value) -> Result<(), PageError> {
        let Some(person) = visit.person() else {
            return Ok(());
        };
        if group["realm"] != person.realm.as_str() {
            return Ok(());
        }
        let gone = name::key(group["displayName"].as_str().unwrap_or_default());
        let is_gone = |one: &&String| name::key(one) == gone;
        if !visit.groups().iter().any(|one| is_gone(&one)) {
            return Ok(());
        }
        let left = visit.groups().iter().filter(|one| !is_gone(one));
        let left: Vec<String> = left.cloned().collect();
        if visit.role_of(&left) == Some(Role::Owner) {
            Ok(())
        } else {
            Err(PageError::LastOwnerGroup)
        }
    }

    /// Where it is about, and where it leads when it is done.
    fn page(&self, answer: Option<&ApiAnswer>) -> String {
        let list = |list: &str| path::with_query(list, [("realm", self.realm.as_str())]);
        let made = answer.and_then(|answer| answer.body["id"].as_str());
        let is_done = answer.is_some();
        match &self.what {
            What::CreateUser { .. } => match made {
                Some(id) => accounts::address(id, &self.realm),
                None => list(USERS),
            },
            What::CreateGroup { .. } => match made {
                Some(id) => accounts::group_address(id, &self.realm),
                None => list(GROUPS),
            },
            What::DeleteUser { .. } if is_done => list(USERS),
            What::DeleteGroup { .. } if is_done => list(GROUPS),
            What::PatchUser { id, .. }
            | What::DeleteUser { id, .. }
            | What::ResetFactors { id, .. } => accounts::address(id, &self.realm),
            What::PatchGroup { id, .. } | What::DeleteGroup { id, .. } => {
                accounts::group_address(id, &self.realm)
            }
            What::Member { group, .. } => accounts::group_address(group, &self.realm),
        }
    }

    fn is_of_user(&self) -> bool {
        matches!(
            self.what,
            What::CreateUser { .. }
                | What::PatchUser { .. }
                | What::DeleteUser { .. }
                | What::ResetFactors { .. }
        )
    }
}

impl Change for AccountChange {
    const CONTEXT: &'static str = "accounts";
    const KIND: &'static str = "Account";
    const APPLY: &'static str = "/console/identity/apply";
    const ROLE: Role = ACCOUNTS_CHANGED_BY;
    type Reversal = What;

    fn undoes(&self) -> Option<&str> {
        self.undoes.as_deref()
    }

    async fn ask(&self, visit: &Visit) -> Result<Response, PageError> {
        let change = self.at_sight(visit).await?;
        let outlook = change.outlook(visit).await?;
        change::show(visit, &change, outlook)
    }

    fn request(&self) -> (Method, String, Option<Value>) {
        let users = |parts: &[&str]| self.target("/identity/users", parts, None);
        let groups = |parts: &[&str]| self.target("/identity/groups", parts, None);
        let versioned = |patch: &Map<String, Value>, version: i64| {
            let mut body = patch.clone();
            body.insert("version".to_owned(), version.into());
            Some(Value::Object(body))
        };
        match &self.what {
            What::CreateUser { body } => (Method::POST, users(&[]), Some(body.clone())),
            What::PatchUser { id, version, patch } => {
                (Method::PATCH, users(&[id]), versioned(patch, *version))
            }
            What::DeleteUser { id, version } => {
                let target = self.target("/identity/users", &[id], Some(*version));
                (Method::DELETE, target, None)
            }
            What::ResetFactors { id, seen } => {
                let version = seen.as_deref().unwrap_or_default();
                let target = path::with_query(&users(&[id, "factors"]), [("version", version)]);
                (Method::DELETE, target, None)
            }
            What::CreateGroup { body } => (Method::POST, groups(&[]), Some(body.clone())),
            What::PatchGroup { id, version, patch } => {
                (Method::PATCH, groups(&[id]), versioned(patch, *version))
            }
            What::DeleteGroup { id, version } => {
                let target = self.target("/identity/groups", &[id], Some(*version));
                (Method::DELETE, target, None)
            }
            What::Member { group, user, comes } => {
                let method = if *comes { Method::PUT } else { Method::DELETE };
                (method, groups(&[group, "members", user]), None)
            }
        }
    }

    async fn outlook(&self, visit: &Visit) -> Result<Outlook, PageError> {
        has_identity(visit)?;
        match &self.what {
            What::CreateUser { body } => Ok(creation(body, "userName", |id, version| {
                What::DeleteUser { id, version }
            })),
            What::CreateGroup { body } => Ok(creation(body, "displayName", |id, version| {
                What::DeleteGroup { id, version }
            })),
            What::PatchUser { id, version, patch } => {
                let user = self.own_user(visit, id).await?;
                if patch.get("accountStatus").is_some_and(|to| to != "Active") {
                    self.spares_own_account(visit, id)?;
                }
                let mut outlook = update(&user, "userName", *version, patch)?;
                outlook.reversal = reversal(&user, patch).map(|patch| What::PatchUser {
                    id: id.clone(),
                    version: 0,
                    patch,
                });
                if patch.contains_key("password") {
                    outlook.note = visit.texts.no_password_back;
                }
                Ok(outlook)
            }
            What::DeleteUser { id, version } => {
                self.spares_own_account(visit, id)?;
                let user = self.own_user(visit, id).await?;
                Ok(Outlook {
                    note: visit.texts.no_user_back,
                    ..deletion(&user, "userName", *version)?
                })
            }
            What::ResetFactors { id, seen } => {
                self.factors_outlook(visit, (id, seen.as_deref())).await
            }
            What::PatchGroup { id, version, patch } => {
                let group = self.group(visit, id).await?;
                if patch.contains_key("displayName") {
                    self.spares_own_role(visit, &group)?;
                }
                let mut outlook = update(&group, "displayName", *version, patch)?;
                outlook.reversal = reversal(&group, patch).map(|patch| What::PatchGroup {
                    id: id.clone(),
                    version: 0,
                    patch,
                });
                Ok(outlook)
            }
            What::DeleteGroup { id, version } => self.group_end(visit, id, *version).await,
            What::Member { group, user, comes } => {
                let group = self.group(visit, group).await?;
                self.member_outlook(visit, &group, user, *comes).await
            }
        }
    }

    fn section(&self) -> &'static str {
        if self.is_of_user() { USERS } else { GROUPS }
    }

    fn back(&self) -> String {
        self.page(None)
    }

    fn is_deletion(&self) -> bool {
        matches!(
            self.what,
            What::DeleteUser { .. } | What::DeleteGroup { .. }
        )
    }

    fn changed(&self) -> PageError {
        PageError::changed(match &self.what {
            What::PatchUser { id, .. }
            | What::DeleteUser { id, .. }
            | What::ResetFactors { id, .. } => Trail::of_user(id),
            What::PatchGroup { id, .. } | What::DeleteGroup { id, .. } => Trail::of_group(id),
            What::Member { group, .. } => Trail::of_group(group),
            What::CreateUser { .. } | What::CreateGroup { .. } => Trail::default(),
        })
    }

    fn reversed(&self, mut what: What, answer: &ApiAnswer) -> Option<Self> {
        let made = record::text(&answer.body["id"]);
        let now = answer.body["version"].as_i64();
        match &mut what {
            What::PatchUser { version, .. } | What::PatchGroup { version, .. } => *version = now?,
            What::DeleteUser { id, version } | What::DeleteGroup { id, version } => {
                *id = made;
                *version = now?;
            }
            What::CreateUser { .. }
            | What::CreateGroup { .. }
            | What::ResetFactors { .. }
            | What::Member { .. } => {}
        }
        Some(Self::new(&self.realm, what))
    }

    async fn rebased(&self, visit: &Visit) -> Result<Option<Self>, PageError> {
        let mut change = self.clone();
        match &mut change.what {
            What::PatchUser { patch, .. } | What::PatchGroup { patch, .. }
                if difference::has_whole_members(patch) =>
            {
                return Ok(None);
            }
            What::PatchUser { id, version, .. } => {
                *version = self.own_user(visit, id).await?["version"]
                    .as_i64()
                    .unwrap_or(0);
            }
            What::PatchGroup { id, version, .. } => {
                *version = self.group(visit, id).await?["version"]
                    .as_i64()
                    .unwrap_or(0);
            }
            _ => return Ok(None),
        }
        Ok(Some(change))
    }

    async fn again(
        &self,
        visit: &Visit,
        answer: &ApiAnswer,
    ) -> Result<Option<Response>, PageError> {
        let realm = &self.realm;
        let form = match &self.what {
            What::CreateUser { body } => {
                user_form::FORM.again(visit, realm, (&Value::Null, body), answer)
            }
            What::PatchUser { id, patch, .. } if !patch.contains_key("accountStatus") => {
                let user = self.user(visit, id).await?;
                user_form::FORM.again(visit, realm, (&user, &with(&user, patch)), answer)
            }
            What::CreateGroup { body } if self.undoes.is_none() => {
                groups::FORM.again(visit, realm, (&Value::Null, body), answer)
            }
            What::PatchGroup { id, patch, .. } => {
                let group = self.group(visit, id).await?;
                groups::FORM.again(visit, realm, (&group, &with(&group, patch)), answer)
            }
            _ => return Ok(None),
        };
        form.map(Some)
    }

    fn done(&self, _: &Visit, answer: &ApiAnswer) -> Result<Response, PageError> {
        let page = self.page(Some(answer));
        Ok(frame::lead(&path::with_query(&page, [("done", "change")])))
    }
}

/// `POST /identity/apply`: makes the change that was shown.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    change::apply::<AccountChange>(&visit).await
}
