//! What is the same for all entities: create, read, list, update, delete;
//! flat, nested under a parent, and from a child to its parent.

use std::sync::Arc;

use axum::response::Response;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::State;
use super::call::Call;
use super::certificates::ServerNames;
use super::credentials::SecretInput;
use super::draft::{self, Draft, Key};
use super::error::ApiError;
use super::list::{Page, Scope};
use super::{reply, version};
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::schema::Violations;
use doorward_gateway::control::{Change, ChangeError};
use doorward_gateway::entities::{Entities, Item, Kind, Origin, Record, typed};
use doorward_gateway::records::Resource;
use doorward_gateway::schemas;

/// The future that every handler returns.
pub(super) type Answer = BoxFuture<'static, Result<Response, ApiError>>;

/// `/things`.
pub(super) fn collection<T: Resource>(call: Call) -> Answer {
    Box::pin(async move { collection_of::<T>(call, None).await })
}

/// `/things/{thing}`.
pub(super) fn item<T: Resource>(call: Call) -> Answer {
    Box::pin(async move {
        let key = call.key(0);
        item_of::<T>(call, None, key).await
    })
}

/// `/parents/{parent}/things`.
pub(super) fn children<P: Resource, T: Resource>(call: Call) -> Answer {
    Box::pin(async move {
        let owner = Owner::of::<P, T>(call.key(0));
        collection_of::<T>(call, Some(owner)).await
    })
}

/// `/parents/{parent}/things/{thing}`.
pub(super) fn child<P: Resource, T: Resource>(call: Call) -> Answer {
    Box::pin(async move {
        let owner = Owner::of::<P, T>(call.key(0));
        let key = call.key(1);
        item_of::<T>(call, Some(owner), key).await
    })
}

/// `/things/{thing}/parent`: the parent, reached from its child.
pub(super) fn parent<T: Resource, P: Resource>(call: Call) -> Answer {
    Box::pin(async move {
        let key = call.key(0);
        match call.method {
            Method::GET => {
                let entities = call.state.control.entities();
                let child = found::<T>(&entities, &key, call.disclosure().now_ms)?;
                let id = referenced::<P, T>(child).ok_or(ApiError::NotFound)?;
                let parent = found::<P>(&entities, &Key::Id(id), call.disclosure().now_ms)?;
                shown(&call, &entities, parent)
            }
            _ => write_parent::<T, P>(call, key).await,
        }
    })
}

/// Whose children a nested path is about.
pub(super) struct Owner {
    field: &'static str,
    key: Key,
    find: fn(&Entities, &Key) -> Option<Uuid>,
}

impl Owner {
    /// The record `P` that `key` names, as the owner of records `T`.
    pub(super) fn of<P: Resource, T: Resource>(key: Key) -> Self {
        Self {
            field: link::<P, T>(),
            key,
            find: |entities, key| draft::find::<P>(entities, key).map(|r| r.value.id()),
        }
    }
}

/// The field by which records `T` refer to records `P`.
fn link<P: Resource, T: Resource>() -> &'static str {
    let mut links = T::KIND.links().iter();
    let link = links.find(|link| link.to == P::KIND);
    link.map_or(P::KIND.singular(), |link| link.field)
}

/// The field and id that the children of `owner` carry.
fn owned(
    entities: &Entities,
    owner: Option<&Owner>,
) -> Result<Option<(&'static str, Uuid)>, ApiError> {
    let Some(owner) = owner else {
        return Ok(None);
    };
    let id = (owner.find)(entities, &owner.key).ok_or(ApiError::NotFound)?;
    Ok(Some((owner.field, id)))
}

fn belongs<T: Resource>(record: &Record<T>, owner: Option<(&'static str, Uuid)>) -> bool {
    owner.is_none_or(|owner| record.value.references().contains(&owner))
}

async fn collection_of<T: Resource>(
    call: Call,
    owner: Option<Owner>,
) -> Result<Response, ApiError> {
    if call.method == Method::GET {
        let entities = call.state.control.entities();
        let owner = owned(&entities, owner.as_ref())?;
        let disclosure = call.disclosure();
        let page = Page::of(call.query)?;
        return Ok(page.answer::<T>(&entities, &call.path, owner, disclosure));
    }
    create::<T>(call, owner).await
}

/// Makes a record of the arguments.
pub(super) async fn create<T: Resource>(
    call: Call,
    owner: Option<Owner>,
) -> Result<Response, ApiError> {
    let mut new = Draft::of(&call)?;
    let names = ServerNames::of(T::KIND, &mut new)?;
    let secret = SecretInput::read::<T>(&call, &mut new, false).await?;
    let now_ms = new.now_ms;
    let doc = call
        .state
        .control
        .change(
            |entities| {
                let owner = owned(entities, owner.as_ref())?;
                let record = draft::create::<T>(entities, new, owner)?;
                written(&call, entities, record, (names, &secret), now_ms)
            },
            call.audit(),
        )
        .await?;
    Ok(reply::json(StatusCode::CREATED, &doc))
}

/// Makes the record in the place of `key` anew.
pub(super) async fn replace<T: Resource>(call: Call, key: Key) -> Result<Response, ApiError> {
    item_of::<T>(call, None, key).await
}

/// One record, alone or as a child of `owner`: a PUT makes it the child of `owner`, all
/// else is for those that are.
pub(super) async fn item_of<T: Resource>(
    call: Call,
    owner: Option<Owner>,
    key: Key,
) -> Result<Response, ApiError> {
    let owner = owner.as_ref();
    match call.method {
        Method::GET => {
            let entities = call.state.control.entities();
            let owner = owned(&entities, owner)?;
            let record = found::<T>(&entities, &key, call.disclosure().now_ms)?;
            if !belongs(record, owner) {
                return Err(ApiError::NotFound);
            }
            shown(&call, &entities, record)
        }
        Method::DELETE => delete::<T>(&call, owner, &key).await,
        _ => {
            let mut new = Draft::of(&call)?;
            let names = ServerNames::of(T::KIND, &mut new)?;
            let patch = call.method == Method::PATCH;
            let secret = SecretInput::read::<T>(&call, &mut new, patch).await?;
            let now_ms = new.now_ms;
            let version = new.version.take();
            let write = |entities: &Entities| {
                let owner = owned(entities, owner)?;
                let mut new = new;
                let old = draft::find::<T>(entities, &key);
                let old = old.filter(|old| !patch || !old.value.is_over(now_ms));
                // A PUT takes the record from another parent.
                if patch && old.is_some_and(|old| !belongs(old, owner)) {
                    return Err(ApiError::NotFound);
                }
                if !patch || old.is_some() {
                    let expected = call.expected(version.as_deref());
                    version::check(&expected, old.map(|old| &**old), entities)?;
                }
                // A PUT replaces the names of a certificate, too.
                let names = match T::KIND {
                    Kind::Certificate if !patch => {
                        ServerNames::with_key(names.unwrap_or_default(), &key).map(Some)?
                    }
                    _ => names,
                };
                if !patch {
                    secret.keep(old, &mut new);
                }
                let record = match old {
                    Some(old) if patch => draft::update::<T>(entities, old, new, owner)?,
                    // Of plugins, the one that stands is looked for first.
                    None if patch && (owner.is_some() || T::KIND == Kind::Plugin) => {
                        return Err(ApiError::NotFound);
                    }
                    None if patch => return Err(key.absent::<T>()),
                    _ => draft::replace::<T>(entities, &key, new, owner)?,
                };
                written(&call, entities, record, (names, &secret), now_ms)
            };
            let doc = call.state.control.change(write, call.audit()).await?;
            Ok(reply::json(StatusCode::OK, &doc))
        }
    }
}

/// Deletes a record, if it is still of the version that was named.
async fn delete<T: Resource>(
    call: &Call,
    owner: Option<&Owner>,
    key: &Key,
) -> Result<Response, ApiError> {
    let delete = |entities: &Entities| {
        let owner = owned(entities, owner)?;
        let found = draft::find::<T>(entities, key);
        match found {
            Some(record) if !belongs(record, owner) => return Err(ApiError::NotFound),
            // Before anything else that could be said against it.
            Some(record) => {
                if let Origin::File(file) = &record.origin {
                    let file = file.to_path_buf();
                    return Err(ApiError::Change(ChangeError::FileOwned { file }));
                }
            }
            // Below its parent a record is looked for first.
            None if owner.is_some() => return Err(ApiError::NotFound),
            None => {}
        }
        version::check(&call.expected(None), found.map(|old| &**old), entities)?;
        let change = found.map(|record| Change::delete::<T>(record.value.id()));
        Ok((change.into_iter().collect(), ()))
    };
    call.state.control.change(delete, call.audit()).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

/// PATCH and PUT of a parent through its child; a PUT where there is none
/// makes one.
async fn write_parent<T: Resource, P: Resource>(
    call: Call,
    key: Key,
) -> Result<Response, ApiError> {
    let mut new = Draft::of(&call)?;
    let names = ServerNames::of(P::KIND, &mut new)?;
    let patch = call.method == Method::PATCH;
    let secret = SecretInput::read::<P>(&call, &mut new, patch).await?;
    let now_ms = new.now_ms;
    let version = new.version.take();
    let write = |entities: &Entities| {
        let child = found::<T>(entities, &key, now_ms)?;
        let old = referenced::<P, T>(child);
        let old = old.and_then(|id| P::table(entities).get(id));
        if !patch || old.is_some() {
            let expected = call.expected(version.as_deref());
            version::check(&expected, old.map(|old| &**old), entities)?;
        }
        match old {
            Some(old) => {
                let key = Key::Id(old.value.id());
                let record = if patch {
                    draft::update::<P>(entities, old, new, None)?
                } else {
                    draft::replace::<P>(entities, &key, new, None)?
                };
                written(&call, entities, record, (names, &secret), now_ms)
            }
            None if patch => Err(ApiError::NotFound),
            None => {
                let parent = draft::create::<P>(entities, new, None)?;
                let field = link::<P, T>().to_owned();
                let link = Map::from_iter([(field, json!({"id": parent.value.id()}))]);
                let link = Draft::internal(link, now_ms);
                let child = draft::relink::<T>(child, link)?;
                let (mut changes, doc) =
                    written(&call, entities, parent, (names, &secret), now_ms)?;
                changes.push(Change::put(child));
                Ok((changes, doc))
            }
        }
    };
    let doc = call.state.control.change(write, call.audit()).await?;
    Ok(reply::json(StatusCode::OK, &doc))
}

fn found<'a, T: Resource>(
    entities: &'a Entities,
    key: &Key,
    now_ms: i64,
) -> Result<&'a Arc<Record<T>>, ApiError> {
    let record = draft::find::<T>(entities, key);
    let record = record.filter(|record| !record.value.is_over(now_ms));
    record.ok_or(ApiError::NotFound)
}

fn referenced<P: Resource, T: Resource>(child: &Record<T>) -> Option<Uuid> {
    let field = link::<P, T>();
    let mut references = child.value.references().into_iter();
    references.find(|(of, _)| *of == field).map(|(_, id)| id)
}

/// The changes that put `record` in force, and how it is shown then.
fn written<T: Resource>(
    call: &Call,
    entities: &Entities,
    record: Record<T>,
    (names, secret): (Option<ServerNames>, &SecretInput),
    now_ms: i64,
) -> Result<(Vec<Change>, Value), ApiError> {
    let id = record.value.id();
    refuse_expired(entities, &record, now_ms)?;
    let mut doc = secret.shown(&record, entities);
    let record = secret.stored(record);
    // What counts for nothing any more keeps nobody from its name.
    let unique = record.value.unique();
    let others = unique
        .iter()
        .filter_map(|unique| T::table(entities).find(unique));
    let over = others.filter(|other| other.value.id() != id && other.value.is_over(now_ms));
    let mut changes: Vec<Change> = over
        .filter(|other| other.origin == Origin::Store)
        .map(|other| Change::delete::<T>(other.value.id()))
        .collect();
    let mut of_names = Vec::new();
    if let Some(names) = names {
        names.assign(entities, id, now_ms, &mut doc, &mut of_names)?;
    }
    if Scope::of(&call.query)? == Scope::Declared {
        let version = call.state.versions.of_written(&record, &doc);
        doc.insert(version::VERSION.to_owned(), version.into());
    }
    changes.push(Change::put(record));
    changes.append(&mut of_names);
    Ok((changes, Value::Object(doc)))
}

/// Refuses the certificate of an authority whose time is over: its word would count
/// for ever, since a trust anchor's dates are not looked at again. One that is there
/// already stays as it is.
pub(super) fn refuse_expired(
    entities: &Entities,
    item: &dyn Item,
    now_ms: i64,
) -> Result<(), ApiError> {
    let Some(new) = typed::<CaCertificate>(item) else {
        return Ok(());
    };
    let old = entities.ca_certificates.get(new.value.id);
    let is_old = old.is_some_and(|old| old.value.cert_digest == new.value.cert_digest);
    let over = |end| end < now_ms / 1000;
    if is_old || !schemas::cert_end(&new.value.cert).is_some_and(over) {
        return Ok(());
    }
    let mut violations = Violations::default();
    violations.put_entity("certificate expired, \"Not After\" time is in the past");
    Err(violations.into())
}

/// Whether what a path names by its child is not there: nothing can be done to it,
/// whatever the method.
pub(super) fn has_no_parent<T: Resource, P: Resource>(state: &State, key: &Key) -> bool {
    let entities = state.control.entities();
    let child = found::<T>(&entities, key, state.clock.now_ms());
    !child.is_ok_and(|child| referenced::<P, T>(child).is_some())
}

/// What is asked for by its key is shown wherever it comes from.
fn shown<T: Resource>(
    call: &Call,
    entities: &Entities,
    record: &Record<T>,
) -> Result<Response, ApiError> {
    let shown = shown_doc(call, entities, record)?;
    Ok(reply::json(StatusCode::OK, &Value::Object(shown)))
}

/// The same as a document.
pub(super) fn shown_doc<T: Resource>(
    call: &Call,
    entities: &Entities,
    record: &Record<T>,
) -> Result<Map<String, Value>, ApiError> {
    let scope = Scope::of(&call.query)?;
    let mut shown = scope.show(record, entities, call.disclosure());
    // What a file declares is not changed here, and has no version.
    if scope == Scope::Declared && record.origin == Origin::Store {
        let version = call.state.versions.of(record, entities);
        shown.insert(version::VERSION.to_owned(), version.into());
    }
    Ok(shown)
}
