//! Which users a filter finds, and in which pages.

use super::*;

#[tokio::test]
async fn filters_select_users() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for (name, profile) in [
        (
            "ann",
            json!({"title": "Boss", "emails": [{"value": "ann@x.org", "type": "work"}]}),
        ),
        (
            "bob",
            json!({"emails": [
            {"value": "bob@home.org", "type": "home"}, {"value": "bob@x.org", "type": "work"}]}),
        ),
        ("cid", json!({"title": "Clerk"})),
    ] {
        store
            .insert_user(&user(name, profile), None)
            .await
            .expect("inserted");
    }
    let boss = compare("title", Op::Equal, "boss");
    assert_eq!(names(store, boss.clone()).await, ["ann"]);
    assert_eq!(
        names(store, Filter::Not(Box::new(boss))).await,
        ["bob", "cid"]
    );
    assert_eq!(
        names(store, compare("title", Op::NotEqual, "boss")).await,
        ["bob", "cid"]
    );
    assert_eq!(
        names(store, compare("userName", Op::Greater, "ann")).await,
        ["bob", "cid"]
    );
    assert_eq!(
        names(store, compare("emails.value", Op::EndsWith, "x.org")).await,
        ["ann", "bob"]
    );
    assert_eq!(
        names(store, compare("emails.value", Op::StartsWith, "bob@")).await,
        ["bob"]
    );
    assert_eq!(
        names(store, compare("emails.value", Op::Contains, "home")).await,
        ["bob"]
    );
    let emails = schema::find("emails").expect("an attribute");
    assert_eq!(names(store, Filter::Present(emails)).await, ["ann", "bob"]);
    let element = |op, text| {
        Filter::Element(
            emails,
            Box::new(Filter::And(vec![
                compare("emails.type", Op::Equal, "work"),
                compare("emails.value", op, text),
            ])),
        )
    };
    assert_eq!(names(store, element(Op::Contains, "bob")).await, ["bob"]);
    // The home address does not stand in for the one at work.
    assert!(names(store, element(Op::Contains, "home")).await.is_empty());
    let hostile = compare("userName", Op::Equal, "x' OR '1'='1");
    assert!(names(store, hostile).await.is_empty());
    let active = compare("accountStatus", Op::Equal, "active");
    assert_eq!(names(store, active).await.len(), 3);
}

#[tokio::test]
async fn pages_follow_one_another_and_count_all() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "c"] {
        fixture
            .store
            .insert_user(&user(name, json!({})), None)
            .await
            .expect("inserted");
    }
    let mut query = UserQuery {
        filter: Filter::Always,
        sort: Vec::new(),
        after: None,
        skip: 0,
        limit: 2,
    };
    let first = fixture.store.users("/", &query).await.expect("a page");
    assert_eq!((first.users.len(), first.total, first.more), (2, 3, true));
    query.after = Some("b".to_owned());
    let last = fixture.store.users("/", &query).await.expect("a page");
    assert_eq!((last.users.len(), last.total, last.more), (1, 3, false));
    let uncounted = fixture.store.users_uncounted("/", &query).await;
    assert_eq!(uncounted.expect("a page").len(), 1);
}
