//! The schemas of consumers, and of their groups.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{checks, common};
use doorward_core::model::schema::{Field, Schema, Type, Violations};

/// The fields of a consumer.
pub fn consumer() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let name = |name| Field::new(name, Type::checked(checks::some_text)).unique();
        let mut fields = common();
        fields.extend([name("username"), name("custom_id")]);
        Schema::new(fields).check(some_name)
    });
    &SCHEMA
}

/// The fields of a group of consumers.
pub fn consumer_group() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        let name = Field::new("name", Type::checked(checks::some_text));
        fields.push(name.required().unique());
        Schema::new(fields)
    });
    &SCHEMA
}

/// The fields of the membership of a consumer in a group.
pub fn group_membership() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        fields.extend([
            Field::new("consumer", Type::Foreign("consumers")).required(),
            Field::new("consumer_group", Type::Foreign("consumer_groups")).required(),
        ]);
        Schema::new(fields)
    });
    &SCHEMA
}

fn some_name(consumer: &Map<String, Value>, violations: &mut Violations) {
    let is_set = |field: &str| consumer.get(field).is_some_and(|value| !value.is_null());
    if !is_set("username") && !is_set("custom_id") {
        violations
            .put_entity("at least one of these fields must be non-empty: 'custom_id', 'username'");
    }
}
