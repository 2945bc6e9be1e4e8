use super::*;
use doorward_core::model::query::{Op, Operand};
use doorward_core::model::user::schema::{self, USER};

fn parse(text: &str) -> Result<Filter, FilterError> {
    super::parse(&USER, text)
}

fn attribute(path: &str) -> &'static Attribute {
    schema::find(path).expect("an attribute")
}

fn test(path: &str, op: Op, text: &str) -> Filter {
    Filter::Compare(attribute(path), op, Operand::Text(text.to_owned()))
}

fn error(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn names_and_operators_have_no_case_and_texts_are_folded() {
    let expected = test("userName", Op::Equal, "demo");
    for text in [
        "userName eq \"demo\"",
        "USERNAME EQ \"Demo\"",
        "  username   eq   \"d\\u0065mo\"  ",
        "urn:ietf:params:scim:schemas:core:2.0:User:userName eq \"demo\"",
        "/userName eq \"demo\"",
    ] {
        assert_eq!(parse(text).as_ref(), Ok(&expected), "{text}");
    }
}

#[test]
fn and_binds_tighter_than_or_and_not_tightest() {
    let (a, b, c) = (
        test("title", Op::Equal, "a"),
        test("title", Op::Equal, "b"),
        test("title", Op::Equal, "c"),
    );
    let all = |parts| Filter::And(parts);
    let any = |parts| Filter::Or(parts);
    let not = |filter| Filter::Not(Box::new(filter));
    let (ta, tb, tc) = ("title eq \"a\"", "title eq \"b\"", "title eq \"c\"");
    for (text, expected) in [
        (
            format!("{ta} or {tb} and {tc}"),
            any(vec![a.clone(), all(vec![b.clone(), c.clone()])]),
        ),
        (
            format!("({ta} or {tb}) and {tc}"),
            all(vec![any(vec![a.clone(), b.clone()]), c.clone()]),
        ),
        (
            format!("not ({ta}) and {tb}"),
            all(vec![not(a.clone()), b.clone()]),
        ),
        (
            format!("NOT({ta} Or {tb})"),
            not(any(vec![a.clone(), b.clone()])),
        ),
        (format!("!({ta})"), not(a.clone())),
        (
            "true or false".to_owned(),
            any(vec![Filter::Always, Filter::Never]),
        ),
    ] {
        assert_eq!(parse(&text), Ok(expected), "{text}");
    }
}

#[test]
fn value_paths_speak_of_one_element() {
    let inner = Filter::And(vec![
        test("emails.type", Op::Equal, "work"),
        test("emails.value", Op::Contains, "@x"),
    ]);
    assert_eq!(
        parse("emails[type eq \"work\" and value co \"@X\"]"),
        Ok(Filter::Element(attribute("emails"), Box::new(inner)))
    );
    assert_eq!(
        parse("emails co \"x\""),
        Ok(test("emails.value", Op::Contains, "x"))
    );
    assert!(error("emails[emails[type eq \"a\"]]").starts_with("brackets"));
    assert!(error("title[type eq \"a\"]").contains("no sub-attributes"));
}

#[test]
fn dates_are_instants_whatever_their_zone() {
    let expected = Operand::Instant(1_767_225_600_000);
    for text in [
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00+01:00",
        "2026-01-01T00:00:00.000Z",
    ] {
        let filter = parse(&format!("meta.lastModifed gt \"{text}\""));
        let wanted = Filter::Compare(
            attribute("meta.lastModified"),
            Op::Greater,
            expected.clone(),
        );
        assert_eq!(filter, Ok(wanted), "{text}");
    }
    assert!(error("meta.created gt \"yesterday\"").starts_with("expected an instant"));
    assert!(error("meta.created co \"2026\"").contains("co, sw and ew at character 14"));
}

#[test]
fn null_means_no_value_and_unknown_attributes_have_none() {
    let present = Filter::Present(attribute("title"));
    assert_eq!(
        parse("title eq null"),
        Ok(Filter::Not(Box::new(present.clone())))
    );
    assert_eq!(parse("title ne null"), Ok(present));
    for (text, expected) in [
        ("shoeSize eq 43", Filter::Never),
        ("shoeSize ne 43", Filter::Always),
        ("shoeSize eq null", Filter::Always),
        ("shoeSize ne null", Filter::Never),
        ("shoeSize pr", Filter::Never),
        ("shoes[size gt 43]", Filter::Never),
        ("password sw \"a\"", Filter::Never),
        (
            "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:userName pr",
            Filter::Never,
        ),
        ("enterprise.department pr", Filter::Never),
    ] {
        assert_eq!(parse(text), Ok(expected), "{text}");
    }
}

#[test]
fn booleans_are_compared_by_eq_and_ne_only() {
    assert_eq!(
        parse("emails.primary eq True"),
        Err(FilterError {
            position: 19,
            message: "expected a value: a string in double quotes, a number, true, false or null"
                .to_owned(),
        })
    );
    assert_eq!(
        parse("emails.primary eq true"),
        Ok(test("emails.primary", Op::Equal, "true"))
    );
    assert!(error("active gt true").contains("eq and ne"));
}

#[test]
fn errors_say_where() {
    for (text, message) in [
        ("", "expected an attribute at character 1 of the filter"),
        (
            "userName",
            "expected an operator (eq ne co sw ew gt ge lt le pr) at character 9 of the filter",
        ),
        (
            "userName is \"x\"",
            "expected an operator (eq ne co sw ew gt ge lt le pr) at character 10 of the filter",
        ),
        (
            "userName eq demo",
            "expected a value: a string in double quotes, a number, true, false or null at character 13 of the filter",
        ),
        (
            "userName eq \"demo",
            "the string does not end at character 13 of the filter",
        ),
        (
            "userName eq 5",
            "expected a string in double quotes at character 13 of the filter",
        ),
        ("(userName pr", "expected `)` at character 13 of the filter"),
        (
            "userName pr userName pr",
            "expected `and`, `or` or the end at character 13 of the filter",
        ),
        (
            "userName pr and",
            "expected an attribute at character 16 of the filter",
        ),
        (
            "a.b.c pr",
            "expected an attribute at character 1 of the filter",
        ),
        (
            "name eq \"x\"",
            "name a sub-attribute to compare at character 6 of the filter",
        ),
        (
            "title eq \"\u{e4}\" x",
            "expected `and`, `or` or the end at character 14 of the filter",
        ),
    ] {
        assert_eq!(error(text), message, "{text}");
    }
}

#[test]
fn a_depth_bomb_is_refused_without_harm() {
    assert!(error(&"(".repeat(4000)).starts_with("nested deeper than 32 levels"));
    assert!(error(&"!".repeat(4000)).starts_with("nested deeper than 32 levels"));
    assert!(error(&"not (".repeat(800)).starts_with("nested deeper than 32 levels"));
    let deep = format!("{}userName pr{}", "(".repeat(32), ")".repeat(32));
    assert!(parse(&deep).is_ok());
    assert!(error(&"x".repeat(5000)).starts_with("more than 4096 bytes"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_near_filter_makes_the_parser_panic(
        text in "(userName|emails|\\(|\\)|\\[|\\]| |eq|not|and|\"a\"|\"|\\\\|1|null|!|ä){0,20}"
    ) {
        let _ = parse(&text);
    }
}

#[test]
fn the_extension_is_named_by_its_urn() {
    let urn = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
    assert_eq!(
        parse(&format!("{urn}:department eq \"Sales\"")),
        Ok(test("enterprise.department", Op::Equal, "sales"))
    );
    assert_eq!(
        parse(&format!("{urn}:manager.value eq \"Q\"")),
        Ok(test("enterprise.manager.value", Op::Equal, "Q"))
    );
    assert_eq!(
        parse(&format!("{urn} pr")),
        Ok(Filter::Present(attribute("enterprise")))
    );
}
