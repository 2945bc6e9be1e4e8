//! The SQLite file: no room for it, away, in other hands.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{about_store, add_service, refused_for_now, sign_in, survived, writes_are_refused};
use crate::support::{Door, Setup, Upstream};

const HEALTH: [&str; 3] = ["health", "-c", "doorward.yaml"];

#[tokio::test]
async fn a_disk_that_was_full_is_written_to_at_once_when_it_has_room() {
    let mut door = Setup::new().bears_full_files().start().await;
    add_service(&door, "before").await.expect(201);
    sign_in(&door).await.expect(200);
    for _ in 0..3 {
        // The file is longer already, and so is its log.
        door.limit_files(Some(4096));
        for _ in 0..3 {
            writes_are_refused(&door, "refused").await;
        }
        let about = about_store(&door).await;
        let error = about["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("writes fail: "), "{about}");
        door.limit_files(None);
        sign_in(&door).await.expect(200);
        add_service(&door, "after").await.expect(201);
        assert_eq!(
            about_store(&door).await,
            serde_json::json!({"reachable": true})
        );
        door.admin_delete("/services/after").await.expect(204);
    }
    add_service(&door, "after").await.expect(201);
    let log = door.log_text();
    assert!(log.contains("writes to the store fail"), "{log}");
    assert!(log.contains("writes to the store succeed again"), "{log}");
    survived(&mut door, &["before", "after"], &["refused"]).await;
}

/// A file system of so many KiB.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn mount(at: &'a Path, kib: u32) -> Option<Self> {
        fs::create_dir(at).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "small"]);
        let mounted = mount.arg(at).stderr(Stdio::null()).status();
        mounted.is_ok_and(|done| done.success()).then_some(Self(at))
    }

    fn fill(&self) {
        let mut rest = fs::File::create(self.0.join("rest")).expect("a file");
        let zeros = [0; 512];
        while std::io::Write::write_all(&mut rest, &zeros).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("rest")).expect("removed");
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[tokio::test]
#[ignore = "needs root, to mount a small file system"]
async fn a_full_file_system_is_written_to_at_once_when_it_has_room() {
    let mut door = Setup::new()
        .store("sqlite:@DIR@/small/doorward.db")
        .lay_out();
    let directory = door.path("small");
    let Some(small) = Small::mount(&directory, 8 * 1024) else {
        eprintln!("skipped: only root may mount a file system, where that is allowed at all");
        return;
    };
    door.start().await;
    add_service(&door, "before").await.expect(201);
    for _ in 0..2 {
        small.fill();
        let mut refused = 0;
        // What the log has already is room as well.
        while refused < 3 {
            let answer = sign_in(&door).await;
            if answer.status != 200 {
                refused_for_now(&answer);
                refused += 1;
            }
        }
        small.make_room();
        sign_in(&door).await.expect(200);
    }
    add_service(&door, "after").await.expect(201);
    survived(&mut door, &["before", "after"], &[]).await;
    door.kill();
}

/// Nothing of the store answers, and the gateway does.
async fn is_away(door: &Door, why: &str) {
    writes_are_refused(door, "refused").await;
    let about = about_store(door).await;
    assert_eq!(about["reachable"], false, "{about}");
    let error = about["error"].as_str().unwrap_or_default();
    assert!(error.contains(why), "{why}: {about}");
    refused_for_now(&door.admin_get("/status/ready").await);
    assert_eq!(door.run(&HEALTH).status.code(), Some(1));
    let alive = door.run(&[&HEALTH[..], &["--live"]].concat());
    assert_eq!(alive.status.code(), Some(0));
    door.get("api.test", "/").await.expect(200);
}

async fn is_back(door: &Door, name: &str) {
    add_service(door, name).await.expect(201);
    sign_in(door).await.expect(200);
    assert_eq!(about_store(door).await["reachable"], true);
    door.admin_get("/status/ready").await.expect(200);
    assert_eq!(door.run(&HEALTH).status.code(), Some(0));
}

#[tokio::test]
async fn a_file_that_goes_is_missed_and_nothing_is_written_into_the_void() {
    let upstream = Upstream::echo().await;
    let mut door = Setup::new().start().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    add_service(&door, "before").await.expect(201);
    let path = |name: &str| door.path(name);
    let rename = |from: &str, to: &str| {
        fs::rename(path(from), path(to)).expect("renamed");
    };
    // Deleted: another link keeps it, for it to come back.
    let kept = path("data/kept.db");
    fs::hard_link(path("data/doorward.db"), &kept).expect("linked");
    fs::remove_file(path("data/doorward.db")).expect("deleted");
    is_away(&door, "was deleted").await;
    let log = door.log_text();
    assert!(log.contains("the store's file is gone"), "{log}");
    // Replaced, as a backup would be put there.
    fs::copy(&kept, path("data/doorward.db")).expect("copied");
    is_away(&door, "another file is in the place").await;
    rename("data/kept.db", "data/doorward.db");
    is_back(&door, "returned").await;
    rename("data", "moved");
    is_away(&door, "was deleted").await;
    rename("moved", "data");
    is_back(&door, "moved").await;
    // What was committed last is in the log.
    rename("data/doorward.db-wal", "data/log");
    is_away(&door, "doorward.db-wal").await;
    rename("data/log", "data/doorward.db-wal");
    is_back(&door, "logged").await;
    let all = ["before", "returned", "moved", "logged"];
    survived(&mut door, &all, &["refused"]).await;
}

#[tokio::test]
async fn a_second_server_on_one_sqlite_file_is_refused_and_says_whose_it_is() {
    let mut door = Setup::new().start().await;
    let url = format!("sqlite:{}", door.path("data/doorward.db").display());
    let mut second = Setup::new().store(&url).lay_out();
    second.spawn();
    assert_eq!(second.wait_exit().await.code(), Some(2));
    let said = second.take_log();
    assert!(said.contains(&format!("process {};", door.pid())), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    // Those who administer the store are no servers.
    for arguments in [&["users", "list"][..], &["realms", "add", "/staff"]] {
        let config = ["-c", "doorward.yaml"];
        let output = second.run(&[arguments, &config].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
    sign_in(&door).await.expect(200);
    // Nothing is left of a lock when its process is killed.
    door.kill();
    second.start().await;
    sign_in(&second).await.expect(200);
}
