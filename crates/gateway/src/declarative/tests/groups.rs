//! Groups of consumers, their members and their plugins.

use super::*;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};

/// A consumer in two groups, as the imitated gateway's tools write it.
const IN_GROUPS: &str = "_format_version: '3.0'
consumer_groups:
- name: gold
  plugins:
  - name: request-termination
    config: {status_code: 418}
- name: silver
  consumers:
  - username: anna
  - {id: 6ba7b810-9dad-11d1-80b4-00c04fd430c8, username: null, custom_id: null}
- name: bronze
consumers:
- username: anna
  groups:
  - {name: gold, tags: [a]}
- username: bert
  id: 6ba7b810-9dad-11d1-80b4-00c04fd430c8
consumer_group_consumers:
- {consumer: bert, consumer_group: bronze}
plugins:
- name: throttling
  consumer_group: gold
  config: {rate: {numberOfRequests: 1, duration: 1 s}}
";

#[test]
fn groups_hold_consumers_in_each_way_that_files_write_it() {
    let declared = good(IN_GROUPS);
    let consumers = all::<Consumer>(&declared.entities);
    let groups = all::<ConsumerGroup>(&declared.entities);
    let members = all::<GroupMembership>(&declared.entities);
    let name = |id| {
        let mut found = consumers.iter().filter(|one| one.value.id == id);
        found.next().and_then(|one| one.value.username.clone())
    };
    let group = |id| {
        let mut found = groups.iter().filter(|one| one.value.id == id);
        found.next().map(|one| one.value.name.clone())
    };
    let mut pairs: Vec<_> = members
        .iter()
        .filter_map(|one| {
            Some((
                group(one.value.consumer_group.id)?,
                name(one.value.consumer.id)?,
            ))
        })
        .collect();
    pairs.sort();
    let expected = [
        ("bronze", "bert"),
        ("gold", "anna"),
        ("silver", "anna"),
        ("silver", "bert"),
    ];
    assert_eq!(
        pairs,
        expected.map(|(group, name)| (group.to_owned(), name.to_owned()))
    );
    let of_gold = all::<Plugin>(&declared.entities).into_iter();
    let of_gold = of_gold.filter_map(|one| group(one.value.consumer_group?.id));
    assert_eq!(of_gold.collect::<Vec<_>>(), ["gold", "gold"]);
}

#[test]
fn an_export_of_groups_reads_back_as_it_was() {
    let declared = good(IN_GROUPS);
    let mut entities = Entities::default();
    for item in &declared.entities.items {
        item.clone().put(&mut entities);
    }
    let again = good(&export(&entities));
    let docs = |declared: &Declared| {
        let items = declared.entities.items.iter();
        let mut docs: Vec<_> = items
            .map(|item| (item.kind(), item.id(), item.doc()))
            .collect();
        docs.sort_by_key(|(kind, id, _)| (*kind, *id));
        docs
    };
    assert_eq!(docs(&again), docs(&declared));
}

#[test]
fn groups_and_members_that_nobody_declares_are_told_by_line_and_key() {
    let text = "_format_version: '3.0'
consumer_groups:
- name: gold
  consumers:
  - username: nobody
  - 7
  - {username: anna, keyauth_credentials: []}
consumers:
- username: anna
  groups:
  - name: silver
  - {tags: [a]}
consumer_group_consumers:
- {consumer: anna, consumer_group: lead}
plugins:
- name: cors
  consumer_group: gold
- name: throttling
  consumer_group: tin
  config: {rate: {numberOfRequests: 1, duration: 1 s}}
";
    assert_eq!(
        bad(text),
        [
            "r.yaml:5: consumer_groups[0].consumers[0]: no consumer named 'nobody' is declared",
            "r.yaml:6: consumer_groups[0].consumers[1]: expected a name, or a record with username or id",
            "r.yaml:7: consumer_groups[0].consumers[2].keyauth_credentials: unknown field",
            "r.yaml:11: consumers[0].groups[0]: no consumer_group named 'silver' is declared",
            "r.yaml:12: consumers[0].groups[1]: expected a name, or a record with name or id",
            "r.yaml:14: consumer_group_consumers[0].consumer_group: no consumer_group named 'lead' is declared",
            "r.yaml:17: plugins[0].consumer_group: value must be null",
            "r.yaml:19: plugins[1].consumer_group: no consumer_group named 'tin' is declared",
        ]
    );
}

#[test]
fn a_member_is_declared_once() {
    let text = "_format_version: '3.0'
consumer_groups:
- {name: gold, consumers: [anna]}
consumers:
- {username: anna, groups: [gold]}
";
    assert_eq!(
        bad(text),
        ["r.yaml:5: consumers[0].groups[0]: is declared already at r.yaml:3"]
    );
}
