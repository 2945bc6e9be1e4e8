//! One page of users or groups: how many satisfy a filter, and which come next.
//!
//! A condition on an indexed attribute is answered from its index, in one pass
//! over it that also counts: what few records satisfy is then sorted; what many
//! do is met soon by whoever walks along the names, and need not be sorted.

use std::collections::HashSet;
use std::time::Duration;

use super::dialect::Dialect;
use super::filter::{self, Records};
use super::operation::{self, Origin};
use super::{Builder, Database, Row, Tx, compare, write_doc};
use crate::StoreError;
use doorward_core::model::query::{Filter, Op, Operand, SortKey, UserQuery};
use doorward_core::model::user::schema::Attribute;

/// How long a list may take. A million records are sorted by an attribute in less.
const LIMIT: Duration = Duration::from_secs(10);

/// Rows of a page, with what a list says of all pages.
pub(super) struct Page {
    pub(super) rows: Vec<Row>,
    pub(super) total: u64,
    pub(super) more: bool,
}

/// Whether a list says how many records there are on all pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Total {
    /// All of them are counted, which takes as long as reading them.
    Counted,
    /// `total` is the number of rows of the page.
    Omitted,
}

struct Query<'q> {
    records: Records,
    total: Total,
    realm: &'q str,
    dialect: Dialect,
    asked: &'q UserQuery,
}

/// The page of `asked`.
pub(super) async fn read(
    readers: &Database,
    (records, total): (Records, Total),
    realm: &str,
    asked: &UserQuery,
) -> Result<Page, StoreError> {
    let query = Query {
        records,
        total,
        realm,
        dialect: readers.dialect(),
        asked,
    };
    if filter::is_unique(&asked.filter) && asked.after.is_none() {
        return query.unique(readers).await;
    }
    // One read transaction: the count and the page speak of the same moment.
    if filter::is_look_up(records, &asked.filter) {
        let mut note = operation::begin(
            readers.system(),
            Origin::Resource(records.resource()),
            false,
        );
        let mut tx = readers.snapshot().await?;
        let page = query.listed(&mut tx).await;
        operation::settle(&mut note, &page);
        return page;
    }
    let mut note = operation::begin(
        readers.system(),
        Origin::Resource(records.resource()),
        false,
    );
    let mut listing = readers.listing(LIMIT).await?;
    let page = query.listed(&mut listing.tx).await;
    operation::settle(&mut note, &page);
    page
}

impl Query<'_> {
    fn key(&self) -> &'static str {
        match self.records {
            Records::Users => "u.user_key",
            Records::Groups => "u.name_key",
        }
    }

    fn select(&self, what: &'static str) -> Builder {
        let mut select = Builder::new("SELECT ");
        select.push(what).push(match self.records {
            Records::Users => " FROM users u WHERE ",
            Records::Groups => " FROM user_groups u WHERE ",
        });
        select
    }

    /// Appends what the realm and the filter demand.
    fn push_conditions(&self, select: &mut Builder) {
        let filter = &self.asked.filter;
        select.push(if filter::leads(self.records, filter) {
            self.dialect.unindexed_realm_is()
        } else {
            "u.realm = "
        });
        select.push_bind(self.realm).push(" AND ");
        filter::push(select, self.dialect, (self.records, self.realm), filter);
    }

    /// At most one record: one statement, no order, no count.
    async fn unique(&self, readers: &Database) -> Result<Page, StoreError> {
        let mut select = self.select("u.*");
        select.about(self.records.resource());
        self.push_conditions(&mut select);
        let mut rows = select.build().all(readers).await?;
        let total = count_of(&rows);
        if self.asked.skip > 0 || self.asked.limit == 0 {
            rows.clear();
        }
        Ok(Page {
            rows,
            total,
            more: false,
        })
    }

    async fn listed(&self, tx: &mut Tx) -> Result<Page, StoreError> {
        match Driver::of(self.records, self.asked) {
            Some(driver) => self.driven(tx, &driver).await,
            None => self.plain(tx).await,
        }
    }

    async fn plain(&self, tx: &mut Tx) -> Result<Page, StoreError> {
        let mut select = self.select("u.*");
        select.about(self.records.resource());
        self.push_conditions(&mut select);
        let (rows, more) = self.page(tx, select).await?;
        let whole = self.asked.skip == 0 && self.asked.after.is_none() && self.asked.limit > 0;
        if self.total == Total::Omitted || (whole && !more) {
            let total = count_of(&rows);
            return Ok(Page { rows, total, more });
        }
        let mut count = self.select("count(*) AS total");
        self.push_conditions(&mut count);
        let total = total(count.build().one(tx).await?)?;
        Ok(Page { rows, total, more })
    }

    /// The rows of the page that `select` finds, and whether others follow.
    async fn page(&self, tx: &mut Tx, mut select: Builder) -> Result<(Vec<Row>, bool), StoreError> {
        let limit = usize::try_from(self.asked.limit).unwrap_or(usize::MAX);
        if limit == 0 {
            return Ok((Vec::new(), false));
        }
        if let Some(after) = self
            .asked
            .after
            .as_ref()
            .filter(|_| self.asked.sort.is_empty())
        {
            let after = after.as_str();
            select
                .push(" AND ")
                .push(self.key())
                .push(" > ")
                .push_bind(after);
        }
        select.push(" ORDER BY ");
        for key in &self.asked.sort {
            self.push_sort(&mut select, key);
        }
        select
            .push(self.key())
            .push(" LIMIT ")
            .push_bind(i64::from(self.asked.limit) + 1)
            .push(" OFFSET ")
            .push_bind(i64::from(self.asked.skip));
        let mut rows = select.build().all(&mut *tx).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok((rows, more))
    }

    /// Of several values the primary one counts, or else the first.
    fn push_sort(&self, select: &mut Builder, key: &SortKey) {
        match filter::column(self.records, key.attribute) {
            Some(column) => {
                select.push(column);
            }
            None => {
                select
                    .push("(SELECT ")
                    .push(self.dialect.whole_value())
                    .push(" FROM user_attr a WHERE a.user_id = u.id AND a.path = ")
                    .push_bind(key.attribute.path)
                    .push(" ORDER BY ");
                if key.attribute.is_many() {
                    let parent = key.attribute.path.split('.').next().unwrap_or_default();
                    select
                        .push(
                            "CASE WHEN EXISTS (SELECT 1 FROM user_attr p WHERE p.user_id = a.user_id
                                  AND p.idx = a.idx AND p.text = 'true' AND p.path = ",
                        )
                        .push_bind(format!("{parent}.primary"))
                        .push(") THEN 0 ELSE 1 END, ");
                }
                select.push("a.idx LIMIT 1)");
            }
        }
        select.push(if key.descending {
            " DESC NULLS FIRST, "
        } else {
            " ASC NULLS LAST, "
        });
    }

    async fn driven(&self, tx: &mut Tx, driver: &Driver<'_>) -> Result<Page, StoreError> {
        let most = driver.few(self.asked.limit);
        let mut select = self.drive(driver, "SELECT a.user_id AS id");
        select
            .push(" LIMIT ")
            .push_bind(i64::try_from(most).unwrap_or(i64::MAX) + 1);
        let found = select.build().all(&mut *tx).await?;
        if found.len() <= most {
            let ids = found.iter().map(|row| row.text("id"));
            let ids: HashSet<String> = ids.collect::<Result<_, _>>()?;
            let mut select = self.select("u.*");
            select.about(self.records.resource());
            select.push("u.id IN (");
            let list = write_doc(&ids)?;
            self.dialect.push_each_text(&mut select, list);
            select.push(")");
            let (rows, more) = self.page(tx, select).await?;
            let total = u64::try_from(ids.len()).unwrap_or(u64::MAX);
            return Ok(Page { rows, total, more });
        }
        let counted = match self.total {
            Total::Counted => Some(self.count(tx, driver).await?),
            Total::Omitted => None,
        };
        let mut walk = self.select("u.*");
        walk.push("u.realm = ")
            .push_bind(self.realm)
            .push(" AND EXISTS (SELECT 1 FROM user_attr a WHERE a.user_id = u.id AND a.path = ")
            .push_bind(driver.attribute.path)
            .push(" AND ");
        compare::push_value(&mut walk, self.dialect, driver.op, driver.operand);
        walk.push(")");
        self.push_rest(&mut walk, driver);
        let (rows, more) = self.page(tx, walk).await?;
        let total = counted.unwrap_or_else(|| count_of(&rows));
        Ok(Page { rows, total, more })
    }

    /// How many users the index of the driver's attribute leads to.
    async fn count(&self, tx: &mut Tx, driver: &Driver<'_>) -> Result<u64, StoreError> {
        let count = if driver.attribute.is_many() {
            "SELECT count(DISTINCT a.user_id) AS total"
        } else {
            "SELECT count(*) AS total"
        };
        let count = self.drive(driver, count);
        total(count.build().one(&mut *tx).await?)
    }

    /// Users by the index of the driver's attribute.
    fn drive(&self, driver: &Driver<'_>, what: &'static str) -> Builder {
        let mut select = Builder::new(what);
        select.push(" FROM user_attr a");
        if !driver.rest.is_empty() {
            // In this order: the index first (SQLite, query planner).
            select.push(" CROSS JOIN users u");
        }
        select.push(" WHERE a.realm = ").push_bind(self.realm);
        select
            .push(" AND a.path = ")
            .push_bind(driver.attribute.path)
            .push(" AND ");
        compare::push_value(&mut select, self.dialect, driver.op, driver.operand);
        if !driver.rest.is_empty() {
            select.push(" AND u.id = a.user_id");
        }
        self.push_rest(&mut select, driver);
        select
    }

    fn push_rest(&self, select: &mut Builder, driver: &Driver<'_>) {
        for one in &driver.rest {
            select.push(" AND ");
            filter::push(select, self.dialect, (self.records, self.realm), one);
        }
    }
}

fn count_of(rows: &[Row]) -> u64 {
    u64::try_from(rows.len()).unwrap_or(u64::MAX)
}

fn total(row: Option<Row>) -> Result<u64, StoreError> {
    let total = row.map_or(Ok(0), |row| row.int("total"))?;
    Ok(u64::try_from(total).unwrap_or_default())
}

/// The comparison whose index is read, and what else must hold.
struct Driver<'f> {
    attribute: &'static Attribute,
    op: Op,
    operand: &'f Operand,
    rest: Vec<&'f Filter>,
}

impl<'f> Driver<'f> {
    fn of(records: Records, asked: &'f UserQuery) -> Option<Self> {
        let alone = filter::is_unique(&asked.filter);
        if records != Records::Users || !asked.sort.is_empty() || alone {
            return None;
        }
        let mut parts = Vec::new();
        filter::flatten(&asked.filter, &mut parts);
        let own = parts
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some((filter::rank(one)?, Some(at), *one)));
        // What is true of an element must be true of the user; and more must.
        let implied = parts
            .iter()
            .filter_map(|one| filter::lead(one))
            .filter_map(|one| Some((filter::rank(one)?, None, one)));
        let best = own.chain(implied).min_by_key(|(rank, ..)| *rank);
        let (_, at, Filter::Compare(attribute, op, operand)) = best? else {
            return None;
        };
        if let Some(at) = at {
            parts.remove(at);
        }
        Some(Self {
            attribute,
            op: *op,
            operand,
            rest: parts,
        })
    }

    /// How many are few: sorting them costs about as much as walking along a
    /// million names to the end of the page would, were there more.
    fn few(&self, limit: u32) -> usize {
        let few = (u64::from(limit.max(1)) * 1_000_000).isqrt();
        usize::try_from(few).unwrap_or(usize::MAX)
    }
}
