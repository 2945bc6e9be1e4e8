//! The page on accounts, against what the program takes.

use std::collections::BTreeMap;

use super::page_tables::cells;
use super::tables::{compare, help, rows_below, section};
use super::{names, page, part};
use crate::support::Setup;

#[test]
fn options_of_the_import_of_users_are_those_of_the_program() {
    let page = page("accounts.md");
    let rows = rows_below(&section(&page, "## Import"), "option");
    let listed = rows.into_iter().flat_map(names);
    let listed = listed.filter_map(|name| name.strip_prefix("--")?.split(' ').next());
    let flags = help(&["users", "import"]);
    let flags = flags
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"));
    let flags = flags.filter_map(|flag| flag.split(' ').next());
    // What other commands of users take as well.
    let general = ["config", "store", "realm", "json"];
    let known = flags.filter(|flag| !general.contains(flag));
    compare(
        "accounts.md",
        &known.map(str::to_owned).collect(),
        &listed.map(str::to_owned).collect(),
    );
}

#[test]
fn bounds_of_stored_hashes_in_the_page_are_those_of_the_program() {
    let page = page("accounts.md");
    let source = include_str!("../../../crates/identity/src/stored_hash.rs");
    let number = |name: &str| {
        let (_, rest) = source.split_once(&format!("const {name}: ")).expect(name);
        let (_, rest) = rest.split_once(" = ").expect(name);
        let value = rest.split(';').next().unwrap_or_default().replace('_', "");
        let factors = value.split('*').map(|one| one.trim().parse::<u64>());
        factors.map(|one| one.expect(name)).product::<u64>()
    };
    let rows = rows_below(&page.lines().collect::<Vec<_>>(), "kind | forms | most");
    let most: BTreeMap<_, _> = rows
        .into_iter()
        .map(cells)
        .map(|cells| (cells[0], *cells.get(2).unwrap_or(&"")))
        .collect();
    let rounds = number("ITERATIONS_MAX");
    assert_eq!(
        most["PBKDF2 with SHA-1, 256, 384, 512"],
        format!("{rounds} rounds")
    );
    assert_eq!(most["bcrypt"], format!("cost {}", number("BCRYPT_MAX")));
    let argon2 = format!(
        "{} MiB; memory times passes {} GiB; 64 lanes",
        number("MEMORY_MAX") >> 10,
        number("WRITTEN_MAX") >> 20
    );
    assert_eq!(most["Argon2i, d, id"], argon2);
    assert!(source.contains("p_cost() > 64"));
}

/// Hashes that other implementations made: those of the unit tests, with and without the
/// envelopes of directories.
fn hashes() -> Vec<String> {
    let tests = include_str!("../../../crates/identity/src/stored_hash/tests.rs");
    let known = part(tests, "const KNOWN: &[&str] = &[", "\n];").split('"');
    let mut known: Vec<_> = known.skip(1).step_by(2).map(str::to_owned).collect();
    let bcrypt = known[0].clone();
    known.push(format!("{{BCRYPT}}{bcrypt}"));
    let bare = known.iter().find_map(|hash| hash.strip_prefix("{ARGON2}"));
    known.push(bare.expect("a hash of Argon2id").to_owned());
    known
}

/// How a form of the page, or a hash, begins, in small letters and whatever its digest is.
fn beginning(form: &str) -> String {
    let form = form.split('…').next().unwrap_or_default();
    let form = form.split("ROUNDS").next().unwrap_or_default();
    let mut form = form.to_lowercase();
    if form.contains("pbkdf2") || form.starts_with("{s") {
        for digest in ["sha1", "sha256", "sha384", "sha512"] {
            for mark in ["-", "_"] {
                form = form.replacen(&format!("{mark}{digest}"), "", 1);
            }
        }
        for bits in ["256}", "384}", "512}"] {
            form = form.replace(bits, "}");
        }
    }
    form
}

#[test]
fn forms_of_stored_hashes_in_the_page_are_those_that_the_program_reads() {
    let page = page("accounts.md");
    let rows = rows_below(&page.lines().collect::<Vec<_>>(), "kind | forms | most");
    let forms: Vec<_> = rows
        .iter()
        .flat_map(|row| cells(row)[1].split('`').skip(1).step_by(2))
        .map(beginning)
        .collect();
    assert!(forms.len() > 14, "{forms:?}");
    let hashes = hashes();
    let beginnings: Vec<_> = hashes.iter().map(|hash| beginning(hash)).collect();
    let is_of = |form: &String| beginnings.iter().any(|hash| hash.starts_with(form));
    let untried: Vec<_> = forms.iter().filter(|form| !is_of(form)).collect();
    assert!(
        untried.is_empty(),
        "no hash is tried of the forms {untried:?}"
    );
    let is_told = |hash: &&String| forms.iter().any(|form| hash.starts_with(form));
    let untold: Vec<_> = beginnings.iter().filter(|hash| !is_told(hash)).collect();
    assert!(untold.is_empty(), "docs/accounts.md lacks {untold:?}");
    // And what the reader looks for.
    let source = include_str!("../../../crates/identity/src/stored_hash/read.rs");
    let reader = part(source, "pub(super) fn hash(", "\n}");
    let mut marks = 0;
    for call in ["starts_with(\"", "strip_prefix(\""] {
        for mark in reader.split(call).skip(1) {
            let mark = mark.split('"').next().unwrap_or_default();
            marks += 1;
            let told = format!("`{mark}");
            assert!(page.contains(&told), "docs/accounts.md lacks {mark}");
        }
    }
    assert_eq!(marks, 7, "beginnings that the reader looks for");
}

#[test]
fn hashes_of_each_form_of_the_page_are_imported_and_costly_ones_are_not() {
    let door = Setup::new().lay_out();
    let hashes = hashes();
    let costly = [
        (hashes[0].replace("$04$", "$16$"), "cost 15"),
        (hashes[6].replace("m=64", "m=1048576"), "256 MiB"),
        (hashes[11].replace("$1000$", "$5000001$"), "5000000"),
    ];
    let mut file = "userName,passwordHash\n".to_owned();
    let all = hashes.iter().chain(costly.iter().map(|(hash, _)| hash));
    for (number, hash) in all.enumerate() {
        file.push_str(&format!("user{number},\"{hash}\"\n"));
    }
    door.write("users.csv", &file);
    let arguments = ["users", "import", "users.csv", "-c", "doorward.yaml"];
    let output = door.run(&arguments);
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8(said).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{said}");
    for (number, hash) in hashes.iter().enumerate() {
        assert!(!said.contains(&format!("user{number}:")), "{hash}: {said}");
    }
    for (hash, bound) in &costly {
        assert!(said.contains(bound), "{hash}: {said}");
    }
    let listed = door.run(&["users", "list", "-c", "doorward.yaml"]);
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let added = listed.lines().filter(|line| line.contains("user")).count();
    assert_eq!(added, hashes.len(), "{listed}");
}
