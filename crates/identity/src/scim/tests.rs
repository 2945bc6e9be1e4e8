//! What the store finds, against the filter asked of each record in memory.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use super::record::{self, RecordBase};
use super::{filter, parse_filter};
use crate::records::new_user;
use doorward_core::clock::random_uuid;
use doorward_core::model::query::{Filter, SortKey, UserQuery};
use doorward_core::model::user::{User, fold, schema};
use doorward_store::{self as store, Store};

const ENTERPRISE: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";

/// Few words, so that filters find something; of several forms and lengths.
fn word() -> impl Strategy<Value = String> {
    let short = prop::sample::select(vec![
        "a",
        "A",
        "ab",
        "b",
        "Ba",
        "ß",
        "ẞ",
        "ss",
        "é",
        "e\u{301}",
        "_",
        "%",
        "\\\\",
        "",
        "a b",
        "x\\\"y",
        "'",
        "ａ",
        "\u{10FFFF}",
        "\u{FFFF}",
        "😀",
    ]);
    prop_oneof![9 => short.prop_map(str::to_owned), 1 => long()]
}

/// Texts about as long as what is in an index of PostgreSQL, alike up to there.
fn long() -> impl Strategy<Value = String> {
    let lengths = prop::sample::select(vec![398_usize, 399, 400, 401]);
    let begins = prop::sample::select(vec!["q", "é"]);
    let ends = prop::sample::select(vec!["", "a", "b", "Ba"]);
    let parts = (begins, lengths, ends);
    parts.prop_map(|(begin, length, end)| begin.repeat(length) + end)
}

/// A word of a question: also with what no text holds.
fn asked() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec!["\\u0000", "a\\u0000b", "\\uFFFF"]);
    prop_oneof![9 => word(), 1 => odd.prop_map(str::to_owned)]
}

fn plain(word: &str) -> String {
    serde_json::from_str(&format!("\"{word}\"")).expect("a string of JSON")
}

fn person() -> impl Strategy<Value = Value> {
    let element = || (word(), word(), prop::option::of(any::<bool>()));
    let elements = || prop::collection::vec(element(), 0..3);
    let parts = (
        word(),
        prop::option::of(word()),
        any::<bool>(),
        elements(),
        elements(),
    );
    parts.prop_map(|(title, given, active, emails, addresses)| {
        let mut primary = false;
        let mut first = |wanted: Option<bool>| {
            let flag = wanted.map(|wanted| wanted && !primary);
            primary |= flag == Some(true);
            flag
        };
        let emails: Vec<Value> = emails
            .iter()
            .map(|(value, kind, flag)| {
                json!({"value": plain(value), "type": plain(kind), "primary": first(*flag)})
            })
            .collect();
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|(street, town, _)| json!({"streetAddress": plain(street), "locality": plain(town)}))
            .collect();
        json!({
            "userName": format!("u{}", random_uuid()),
            "title": plain(&title), "accountStatus": if active { "Active" } else { "Deactivated" },
            "name": {"givenName": given.as_deref().map(plain)},
            "emails": emails, "addresses": addresses, "ims": [plain(&title)],
            "preferences": if active { json!({"a": 1}) } else { json!({}) },
            ENTERPRISE: {"department": given.as_deref().map(plain), "manager": {"value": plain(&title)}},
        })
    })
}

fn test() -> impl Strategy<Value = String> {
    let paths = vec![
        "title",
        "name.givenName",
        "emails",
        "emails.type",
        "emails.value",
        "addresses.formatted",
        "addresses.locality",
        "ims",
        "externalId",
        "accountStatus",
        "userName",
        "displayName",
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department",
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:manager.value",
        "shoeSize",
    ];
    let ops = vec!["eq", "ne", "co", "sw", "ew", "gt", "ge", "lt", "le"];
    let compare = (
        prop::sample::select(paths),
        prop::sample::select(ops),
        asked(),
    )
        .prop_map(|(path, op, word)| format!("{path} {op} \"{word}\""));
    let present = prop::sample::select(vec![
        "title pr",
        "name pr",
        "emails pr",
        "preferences pr",
        "emails.primary pr",
        "groups pr",
        "addresses.formatted pr",
        "active eq true",
        "active ne true",
        "emails.primary eq true",
        "emails.primary ne false",
        "title eq null",
        "meta.created ge \"2020-01-01T00:00:00Z\"",
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User pr",
        "true",
        "false",
    ]);
    prop_oneof![4 => compare, 1 => present.prop_map(str::to_owned)]
}

fn inside() -> impl Strategy<Value = String> {
    let ops = vec!["eq", "ne", "co", "sw", "ew", "gt"];
    let compare = (
        prop::sample::select(vec!["type", "value"]),
        prop::sample::select(ops),
        word(),
    )
        .prop_map(|(path, op, word)| format!("{path} {op} \"{word}\""));
    let flag = prop::sample::select(vec!["primary eq true", "primary pr", "not (type pr)"]);
    prop_oneof![3 => compare, 1 => flag.prop_map(str::to_owned)]
}

fn question() -> impl Strategy<Value = String> {
    let element = (inside(), inside(), prop::sample::select(vec!["and", "or"]))
        .prop_map(|(one, other, word)| format!("emails[{one} {word} {other}]"));
    let leaf = prop_oneof![4 => test(), 1 => element];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} and {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} or {b})")),
            inner.clone().prop_map(|inner| format!("not ({inner})")),
            inner.prop_map(|inner| format!("!({inner})")),
        ]
    })
}

async fn found(store: &Store, filter: Filter, limit: u32) -> (Vec<String>, u64) {
    let mut query = UserQuery {
        filter,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit,
    };
    let (mut names, mut total) = (Vec::new(), None);
    loop {
        let page = store.users("/", &query).await.expect("a page");
        names.extend(page.users.iter().map(|user| user.user_name.clone()));
        assert_eq!(*total.get_or_insert(page.total), page.total);
        match page.users.last().filter(|_| page.more) {
            Some(last) => query.after = Some(last.user_name.clone()),
            None => return (names, total.unwrap_or_default()),
        }
    }
}

/// Puts `people` into `store`, and asks it and each record the same questions.
async fn compare(store: &Store, people: &[Value], questions: &[String]) {
    let mut users: Vec<User> = Vec::new();
    for person in people {
        let record: &Map<String, Value> = person.as_object().expect("a record");
        let user = new_user("/", record).expect("a user");
        store.insert_user(&user, None).await.expect("inserted");
        users.push(user);
    }
    users.sort_by(|a, b| a.user_name.cmp(&b.user_name));
    let base = RecordBase::first("http://localhost");
    for question in questions.iter().filter(|one| one.len() <= 4096) {
        let filter = parse_filter(question).expect("a filter");
        let fits = |user: &&User| {
            let mut record = record::user(user, &[], &base);
            record.insert("active".to_owned(), json!(user.active));
            filter::evaluate::record(&filter, &record)
        };
        let expected: Vec<_> = users
            .iter()
            .filter(fits)
            .map(|user| user.user_name.clone())
            .collect();
        for limit in [4, 1000] {
            let (names, total) = found(store, filter.clone(), limit).await;
            assert_eq!(names, expected, "{question}");
            assert_eq!(total, expected.len() as u64, "{question}");
        }
    }
    compare_order(store, &mut users).await;
    for user in users {
        store
            .delete_user(user.id, None, 0, None)
            .await
            .expect("deleted");
    }
}

/// What a record is sorted by: the primary value or else the first.
fn sorted_by(user: &User, path: &str) -> Option<String> {
    let (name, part) = path.split_once('.').unwrap_or((path, ""));
    let value = match user.profile.get(name)? {
        Value::Array(values) => {
            let primary = values.iter().find(|one| one["primary"] == true);
            primary.or(values.first())?.get(part)?
        }
        Value::Object(members) => members.get(part)?,
        plain => plain,
    };
    value.as_str().map(fold)
}

/// Sorts `users` in memory and in the store.
async fn compare_order(store: &Store, users: &mut [User]) {
    for path in ["title", "name.givenName", "emails.value"] {
        let attribute = schema::find(path).expect("an attribute");
        for descending in [false, true] {
            users.sort_by(|a, b| a.user_name.cmp(&b.user_name));
            users.sort_by(|a, b| {
                let (a, b) = (sorted_by(a, path), sorted_by(b, path));
                let order = a.is_none().cmp(&b.is_none()).then(a.cmp(&b));
                if descending { order.reverse() } else { order }
            });
            let query = UserQuery {
                filter: Filter::Always,
                sort: vec![SortKey {
                    attribute,
                    descending,
                }],
                after: None,
                skip: 0,
                limit: 1000,
            };
            let page = store.users("/", &query).await.expect("a page");
            let names = |users: &[User]| -> Vec<_> {
                users.iter().map(|user| user.user_name.clone()).collect()
            };
            assert_eq!(names(&page.users), names(users), "{path} {descending}");
        }
    }
}

#[test]
fn the_store_finds_what_the_records_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = store::testing::url(directory.path());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store: Arc<Store> = runtime.block_on(store::open(&url)).expect("a store");
    let mut runner = TestRunner::new(Config {
        cases: 24,
        failure_persistence: None,
        ..Config::default()
    });
    let all = (
        prop::collection::vec(person(), 1..12),
        prop::collection::vec(question(), 24),
    );
    let ran = runner.run(&all, |(people, questions)| {
        runtime.block_on(compare(&store, &people, &questions));
        Ok(())
    });
    ran.expect("no difference");
}
