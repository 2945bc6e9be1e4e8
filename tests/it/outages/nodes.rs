//! Two nodes on one PostgreSQL database, of which one hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{add_service, sign_in};
use crate::stores::postgres::Cluster;
use crate::support::door::IDENTITY;
use crate::support::{Door, Setup, eventually, http};

async fn node(database: &str) -> Door {
    let identity = format!("\n  base_url: http://door.test{IDENTITY}");
    let setup = Setup::new().identity(&identity).store(database);
    setup.start().await
}

/// Signs users in, one after another, until it is told to stop.
fn load(door: &Door, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<()> {
    let (url, stop) = (door.proxy_url("/oauth2/access_token"), stop.clone());
    tokio::spawn(async move {
        while !stop.load(Ordering::Acquire) {
            let form = [
                ("grant_type", "password"),
                ("username", "alice"),
                ("password", "Ch4ng31t-alice"),
                ("scope", "openid"),
                ("client_id", "orders"),
                ("client_secret", "orders-secret"),
            ];
            let _ = http::try_send(http::client().post(&url).form(&form)).await;
        }
    })
}

/// Whether a node has the writers' lock and says nothing.
async fn is_held(asked: &sqlx::PgPool) -> bool {
    let held = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                 WHERE locktype = 'advisory' AND granted AND state LIKE 'idle in transaction%'";
    let held = sqlx::query_scalar::<_, i64>(held).fetch_one(asked).await;
    held.expect("an answer") > 0
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn a_node_that_hangs_with_the_lock_of_writers_stops_no_other_one() {
    let cluster = Cluster::start("");
    let database = cluster.database("hung");
    let (hung, other) = (node(&database).await, node(&database).await);
    let asked = sqlx::PgPool::connect(&database).await.expect("connected");
    for round in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let loads: Vec<_> = (0..4).map(|_| load(&hung, &stop)).collect();
        eventually("the node to hang with the lock", || async {
            hung.signal("STOP");
            // The server does what it was told before.
            for _ in 0..10 {
                if is_held(&asked).await {
                    return Some(());
                }
            }
            hung.signal("CONT");
            None
        })
        .await;
        for n in 0..3 {
            add_service(&other, &format!("s{round}-{n}"))
                .await
                .expect(201);
            sign_in(&other).await.expect(200);
        }
        stop.store(true, Ordering::Release);
        hung.signal("CONT");
        for load in loads {
            load.await.expect("no panic");
        }
        // Its transaction was lost, not its connections.
        sign_in(&hung).await.expect(200);
        eventually("the entities of the other node", || async {
            let path = format!("/services/s{round}-2");
            (hung.admin_get(&path).await.status == 200).then_some(())
        })
        .await;
    }
}
