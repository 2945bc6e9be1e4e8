use std::io::Cursor;

use serde_json::json;

use super::*;
use doorward_core::model::user::schema;

fn csv(text: &str) -> Result<Vec<Result<Record, ImportError>>, ImportError> {
    let known = |path: &str| schema::find(path).is_some();
    let records = CsvRecords::new(Cursor::new(text.as_bytes().to_vec()), known)?;
    Ok(records.collect())
}

fn ldif(text: &str) -> Vec<Result<Record, ImportError>> {
    LdifRecords::new(Cursor::new(text.as_bytes().to_vec()), "uid").collect()
}

fn plain(password: Option<&ImportedPassword>) -> &str {
    match password {
        Some(ImportedPassword::Plain(text)) => text.expose(),
        _ => "",
    }
}

fn found(record: Result<Record, ImportError>) -> ImportedUser {
    let record = record.expect("readable");
    record.found.expect("good").expect("a person")
}

#[test]
fn columns_are_named_as_in_scim() {
    let text = "\u{feff}userName,password,name.givenName,emails.value,emails.type,emails[1].value,\
                active,meta.created,preferences\r\n\
                anna,\"a \"\"b\"\", c\",Anna,a@x.example,work,b@x.example,yes,2020,\"{\"\"a\"\": 1}\"\r\n\
                \r\nbert,,,,,b@y.example,FALSE,,\n";
    let mut records = csv(text).expect("a file").into_iter();
    let anna = found(records.next().expect("anna"));
    assert_eq!(plain(anna.password.as_ref()), "a \"b\", c");
    let wanted = json!({"userName": "anna", "name": {"givenName": "Anna"}, "active": true,
        "emails": [{"value": "a@x.example", "type": "work"}, {"value": "b@x.example"}],
        "preferences": {"a": 1}});
    assert_eq!(Value::Object(anna.record), wanted);
    let bert = records.next().expect("bert");
    assert_eq!(bert.as_ref().expect("readable").line, 4);
    let bert = found(bert).record;
    assert_eq!(bert["emails"], json!([{"value": "b@y.example"}]));
    assert_eq!(bert["active"], json!(false));
}

#[test]
fn a_header_that_names_nothing_is_refused() {
    for (text, word) in [
        ("", "empty"),
        ("name.givenName\nx\n", "`userName`"),
        ("userName,shoeSize\n", "`shoeSize`"),
        ("userName,emails[x].value\n", "`emails[x].value`"),
        ("userName,emails[64].value\n", "`emails[64].value`"),
        ("userName,name.given.name\n", "`name.given.name`"),
    ] {
        let error = csv(text).expect_err(text).to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_bad_line_of_csv_is_refused_alone() {
    let text = "userName,password,passwordHash,emails.primary\n\
                a,hush-1,hush-2,\n\
                b,x\n\
                c,,,maybe\n\
                d,,,\n";
    let records: Vec<_> = csv(text).expect("a file");
    let refused = |index: usize| {
        let record = records[index].as_ref().expect("readable");
        let error = record.found.as_ref().expect_err("refused");
        assert!(!error.contains("hush"), "{error}");
        (record.line, error.as_str())
    };
    assert!(refused(0).1.contains("give one of them"));
    assert_eq!(refused(1), (3, "the line has 2 values, the first one 4"));
    assert_eq!(refused(2).1, "primary: must be true or false");
    assert!(records[3].as_ref().expect("readable").found.is_ok());
}

#[test]
fn a_quote_that_nobody_closes_does_not_fill_the_memory() {
    let text = format!("userName\n\"{}", "x\n".repeat(RECORD_MAX));
    let mut records = csv(&text).expect("a header").into_iter();
    let error = records.next().expect("an item").expect_err("too long");
    assert!(error.to_string().contains("1 MiB"), "{error}");
    assert!(records.next().is_none());
}

#[test]
fn entries_of_a_directory_become_users() {
    let text = "version: 1\n\
        # people,\n  and a comment that goes on\n\
        dn: ou=people,dc=example\nobjectClass: organizationalUnit\nou: people\n\n\n\
        dn: uid=anna,ou=people,dc=example\nobjectClass: top\nobjectClass: inetOrgPerson\n\
        uid: anna\nuid: second\ncn: Anna Blume\ncn;lang-de: Anna B.\nsn: Bl\n ume\n\
        givenName:: QW5uYQ==\nmail: a@x.example\nmail: b@x.example\n\
        telephoneNumber: +49 1\nmobile: +49 2\nl: Hannover\npostalCode: 30159\n\
        userPassword:: e1NTSEF9Y29HamZza1doNjFSUm01dFpVU3VqWXBISXpWL1QrbTk=\n\
        jpegPhoto:: /9j/4AAQ\n\n\
        dn: uid=bert,dc=example\r\nobjectclass: person\r\nuid: bert\r\nsn: B\r\n\
        userPassword: pl:ain\r\nnsAccountLock: TRUE\r\n";
    let mut records = ldif(text).into_iter();
    let unit = records.next().expect("an entry").expect("readable");
    assert!(matches!(unit.found, Ok(None)), "{unit:?}");
    let anna = records.next().expect("anna");
    assert_eq!(anna.as_ref().expect("readable").line, 9);
    let anna = found(anna);
    assert!(
        matches!(&anna.password, Some(ImportedPassword::Hash(hash)) if hash.expose().starts_with("{SSHA}"))
    );
    let wanted = json!({
        "userName": "anna",
        "name": {"formatted": "Anna Blume", "familyName": "Blume", "givenName": "Anna"},
        "emails": [{"value": "a@x.example", "type": "work", "primary": true},
                   {"value": "b@x.example", "type": "work"}],
        "phoneNumbers": [{"value": "+49 1", "type": "work", "primary": true},
                         {"value": "+49 2", "type": "mobile"}],
        "addresses": [{"locality": "Hannover", "postalCode": "30159", "type": "work"}],
    });
    assert_eq!(Value::Object(anna.record.clone()), wanted);
    let ready = anna.ready("/", 7).expect("a user");
    assert_eq!(ready.import.user.created_ms, 7);
    assert!(ready.import.user.password_hash.is_some() && ready.password.is_none());
    let bert = found(records.next().expect("bert"));
    assert_eq!(plain(bert.password.as_ref()), "pl:ain");
    let bert = bert.ready("/", 7).expect("a user");
    assert!(!bert.import.user.active && bert.import.says_active);
    assert!(records.next().is_none());
}

#[test]
fn what_is_no_entry_of_ldif_is_refused_alone() {
    for (record, word) in [
        ("dn: uid=a\nchangetype: delete\n", "is a change"),
        ("dn: uid=a\ncontrol: 1.2.3 true\n", "is a change"),
        ("dn: uid=a\nuid: a\ncn:< file:///etc/passwd\n", "not read"),
        ("dn: uid=a\nuid:: ???\n", "no base64"),
        ("dn: uid=a\nuid:: //79\n", "no UTF-8"),
        ("uid: a\n", "begin with `dn:`"),
        (
            "dn: uid=a\nobjectClass: person\nsn: x\n",
            "no attribute uid",
        ),
        ("dn: uid=a\njunk\n", "no colon"),
    ] {
        let text = format!("{record}\ndn: uid=b\nuid: b\n");
        let records = ldif(&text);
        assert_eq!(records.len(), 2, "{record}");
        let first = records[0].as_ref().expect("readable");
        let error = first.found.as_ref().expect_err(record);
        assert!(error.contains(word), "{error}");
        assert!(records[1].as_ref().expect("readable").found.is_ok());
    }
}

#[test]
fn endless_lines_and_records_of_ldif_are_refused() {
    for text in [
        format!("dn: {}", "x".repeat(2 * RECORD_MAX)),
        format!("dn: x\n{}", format!(" {}\n", "x".repeat(70_000)).repeat(20)),
        format!(
            "dn: x\n{}",
            format!("cn: {}\n", "x".repeat(70_000)).repeat(70)
        ),
    ] {
        let records = ldif(&text);
        assert!(matches!(records.last(), Some(Err(_))));
    }
}

#[test]
fn a_user_that_cannot_be_is_refused_with_the_reason() {
    let refused = |record: Value, password: Option<ImportedPassword>| {
        let record = record.as_object().cloned().expect("an object");
        let error = ImportedUser { record, password }.ready("/", 1);
        error.expect_err("refused")
    };
    let error = refused(json!({"userName": " a"}), None);
    assert!(error.contains("userName"), "{error}");
    let hash = ImportedPassword::Hash(Secret::new("{CRYPT}$1$salt$hash"));
    let error = refused(json!({"userName": "a"}), Some(hash));
    assert!(
        error.contains("not known") && !error.contains("$1$"),
        "{error}"
    );
    let error = refused(json!({"userName": "a", "title": "x\u{0}"}), None);
    assert!(
        error.contains("U+0000") || error.contains("control"),
        "{error}"
    );
}
