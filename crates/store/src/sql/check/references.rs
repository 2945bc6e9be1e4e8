//! Whether what records refer to is there, where the database itself does not
//! see to it.

use super::{Builder, FINDINGS, Finding, Report, Tx};
use crate::StoreError;

/// A table, how its records are named, and what has to be there.
struct Reference {
    table: &'static str,
    record: &'static str,
    to: &'static str,
    fits: &'static str,
}

const REFERENCES: &[Reference] = &[
    Reference {
        table: "refresh_tokens",
        record: "grant_id",
        to: "clients",
        fits: "o.realm = t.realm AND o.client_id = t.client_id",
    },
    Reference {
        table: "codes",
        record: "client_id",
        to: "clients",
        fits: "o.realm = t.realm AND o.client_id = t.client_id",
    },
    Reference {
        table: "sessions",
        record: "sid",
        to: "users",
        fits: "o.id = t.user_id AND o.realm = t.realm",
    },
    Reference {
        table: "user_attr",
        record: "user_id",
        to: "users",
        fits: "o.id = t.user_id AND o.realm = t.realm",
    },
];

pub(super) async fn all(tx: &mut Tx, tell: Report<'_>) -> Result<(), StoreError> {
    for reference in REFERENCES {
        let mut select = Builder::new("SELECT t.");
        select.push(reference.record).push(" AS record FROM ");
        select
            .push(reference.table)
            .push(" t WHERE NOT EXISTS (SELECT 1 FROM ");
        select
            .push(reference.to)
            .push(" o WHERE ")
            .push(reference.fits);
        select.push(") LIMIT ").push_bind(FINDINGS);
        for row in select.build().all(&mut *tx).await? {
            tell(Finding {
                table: reference.table,
                record: row.text("record")?,
                problem: format!("refers to one of {} that there is not", reference.to),
            });
        }
    }
    Ok(())
}
