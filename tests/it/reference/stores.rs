//! The page on stores, against what an address of a database may say.

use std::process::Output;

use doorward_store::{POSTGRES_PARAMETERS, POSTGRES_PASSED_OVER, POSTGRES_SSL_MODES};

use super::tables::{compare, rows_below};
use super::{names, page};
use crate::support::{Door, Setup};

#[test]
fn parameters_of_database_addresses_in_the_page_are_those_of_the_program() {
    let page = page("stores.md");
    let lines: Vec<_> = page.lines().collect();
    let rows = rows_below(&lines, "parameter of the address");
    let listed = rows.iter().flat_map(|row| names(row)).map(str::to_owned);
    let known = POSTGRES_PARAMETERS.iter().map(|&name| name.to_owned());
    compare("stores.md", &known.collect(), &listed.collect());
    let below = "These parameters are taken and have no effect";
    let line = lines.iter().find(|line| line.starts_with(below));
    let listed: Vec<_> = line
        .expect("a line")
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    assert_eq!(listed, POSTGRES_PASSED_OVER);
    let row = rows.iter().find(|row| names(row) == ["sslmode"]);
    let cell = row.expect("a row").split(" | ").nth(1).expect("a cell");
    let (modes, rest) = cell.split_once(". ").expect("a sentence");
    let modes: Vec<_> = modes.split('`').skip(1).step_by(2).collect();
    assert_eq!(modes, POSTGRES_SSL_MODES);
    assert!(rest.contains("`verify-full`"), "{rest}");
}

fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    let printed = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(printed).expect("UTF-8")
}

/// A door whose file names this store in its third line.
fn laid_out(address: &str) -> Door {
    let door = Setup::new().lay_out();
    let file = format!("# The file\n# of this door\nstore: \"{address}\"\n");
    door.write("doorward.yaml", &file);
    door
}

#[test]
fn a_wrong_parameter_of_a_database_address_is_refused_with_its_line() {
    let page = page("stores.md");
    let address = "postgres://doorward:sesame@db.test/doorward";
    let (_, shown) = page.split_once("\ndoorward: ").expect("what is printed");
    let shown = shown.lines().next().expect("a line");
    let door = laid_out(&format!("{address}?sslmode=verify_full"));
    for command in ["check", "run"] {
        let said = refusal(&door.run(&[command, "-c", "doorward.yaml"]));
        assert!(said.contains(shown), "{command}: {said}");
        assert!(!said.contains("sesame"), "{command}: {said}");
    }
    for (rest, told) in [
        ("?sslmod=require", "did you mean `sslmode`?"),
        ("?sslmode=require&sslmode=disable", "`sslmode` twice"),
        ("?sslcrl=/a.pem", "unknown parameter `sslcrl`"),
        ("?port=65536", "from 1 to 65535"),
        ("#part", "%23"),
    ] {
        let door = laid_out(&format!("{address}{rest}"));
        let said = refusal(&door.run(&["check", "-c", "doorward.yaml"]));
        assert!(said.contains("doorward.yaml:3: store: "), "{said}");
        assert!(said.contains(told), "{said}");
        let store = format!("{address}{rest}");
        let output = door.run(&["store", "check", "--store", &store]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(told), "{said}");
        assert!(!said.contains("sesame"), "{said}");
    }
}

#[test]
fn a_wrong_variable_that_a_database_address_takes_is_refused() {
    let door = laid_out("postgres://doorward@db.test/doorward");
    for (variable, value) in [("PGSSLMODE", "verify"), ("PGPORT", "http")] {
        let mut command = door.command(&["check", "-c", "doorward.yaml"]);
        let output = command.env(variable, value).output();
        let said = refusal(&output.expect("it starts"));
        let told = format!("doorward.yaml:3: store: takes {variable}: ");
        assert!(said.contains(&told), "{said}");
    }
}
