//! Values that are bound to statements.

use sqlx::query::Query;
use sqlx::{Encode, SqlStr, Type};
use uuid::Uuid;

use doorward_core::model::grant::TokenHash;

/// A value that is bound to a statement; without one it is null.
#[derive(Clone)]
pub(super) enum Value {
    Text(Option<String>),
    Int(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

/// The statement with its values, as the driver takes it.
pub(super) fn query<'q, DB>(text: SqlStr, values: &'q [Value]) -> Query<'q, DB, DB::Arguments>
where
    DB: sqlx::Database,
    Option<&'q str>: Encode<'q, DB> + Type<DB>,
    Option<i64>: Encode<'q, DB> + Type<DB>,
    Option<&'q [u8]>: Encode<'q, DB> + Type<DB>,
{
    values
        .iter()
        .fold(sqlx::query(text), |query, value| match value {
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Int(number) => query.bind(*number),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
        })
}

macro_rules! into_value {
    ($($variant:ident: $($from:ty => $made:expr),+;)+) => { $($(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(Some($made(value)))
            }
        }

        impl From<Option<$from>> for Value {
            fn from(value: Option<$from>) -> Self {
                Self::$variant(value.map($made))
            }
        }
    )+)+ };
}

into_value! {
    Text: &str => str::to_owned, &String => String::clone, String => std::convert::identity,
        Uuid => |id: Uuid| id.to_string();
    Int: i64 => std::convert::identity, u32 => i64::from, bool => i64::from;
    Bytes: &[u8] => <[u8]>::to_vec, &Vec<u8> => Vec::clone, Vec<u8> => std::convert::identity,
        TokenHash => |hash: TokenHash| hash.0.to_vec();
}
