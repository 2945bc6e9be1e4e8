use super::super::tests::entry;
use super::*;

fn written(template: &str, entry: &Entry<'_>) -> String {
    let mut out = String::new();
    let template = Template::parse(template).expect("a template");
    template.write(&mut out, entry);
    out
}

fn refused(template: &str) -> String {
    Template::parse(template).expect_err(template)
}

#[test]
fn fields_stand_between_the_text_of_the_template() {
    let mut entry = entry();
    entry.path = "/x";
    assert_eq!(
        written(
            "{{{method}}} {path}\t{status} {total_ms} {upstream_ms} {service}",
            &entry
        ),
        "{GET} /x\t200 1.234 0.987 -\n"
    );
}

#[test]
fn a_client_on_a_unix_socket_has_no_address() {
    let mut entry = entry();
    entry.client = std::net::Ipv4Addr::UNSPECIFIED.into();
    assert_eq!(written("{client_ip} {method}", &entry), "unix: GET\n");
}

#[test]
fn every_field_can_be_written() {
    for (name, _) in Field::NAMES {
        let line = written(&format!("{{{name}}}"), &entry());
        assert!(line.len() > 1, "{name}");
    }
}

#[test]
fn unknown_fields_are_told_with_the_one_that_is_near() {
    assert_eq!(
        refused("{clientip}"),
        "'{clientip}' is no field; did you mean {client_ip}?"
    );
    assert!(refused("{zzzzzzzz}").contains("there are time, time_clf"));
}

#[test]
fn templates_that_can_not_be_told_apart_again_are_refused() {
    for template in [
        "",
        "no field",
        "{a",
        "a}",
        "{status}{path}",
        "\"{path}",
        "{path}\n",
        "{}",
    ] {
        refused(template);
    }
}

#[test]
fn values_forge_neither_lines_nor_fields() {
    let values = [
        "a b",
        "a\nb",
        "a\r\n127.0.0.1 - - forged",
        "\" 200 \"",
        "\\\" 200 \\",
        "a|b",
        "a\u{85}b\u{2028}c\u{202e}d\u{1b}[2J",
        "\t",
    ];
    for value in values {
        let mut entry = entry();
        (entry.user_agent, entry.host) = (value, value);
        let line = written("{host}|{host}| \"{user_agent}\" end", &entry);
        let body = line.strip_suffix("\" end\n").expect("the end");
        let is_harmless = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        assert!(body.bytes().all(is_harmless), "{line}");
        let (plain, quoted) = body.split_once("| \"").expect("a quotation");
        assert_eq!(plain.matches('|').count(), 1, "{line}");
        assert!(!plain.contains([' ', '"']), "{line}");
        assert!(!quoted.contains('"'), "{line}");
    }
}

#[test]
fn referers_lose_what_may_be_secret() {
    let mut entry = entry();
    entry.more.referer = Some("https://a.test/cb?code=hush#token");
    assert_eq!(written("{referer}", &entry), "https://a.test/cb\n");
}
