use serde_json::json;

use super::*;

fn of(script: &str, args: Value) -> Result<String, Unread> {
    translated(script, args.as_object().expect("an object"))
}

#[test]
fn a_script_that_compares_and_chooses_becomes_an_expression() {
    let sample = "/**\n * Script to throttle access\n */\n\
        import org.forgerock.openig.filter.throttling.ThrottlingRate\n\
        if (request.headers['X-Forwarded-For'].values[0] == 'accounts') {\n\
        \x20   return new ThrottlingRate(6, '10 seconds')\n\
        } else {\n    return null\n}\n";
    for (script, args, wanted) in [
        (
            sample,
            json!({}),
            "${(request.headers['X-Forwarded-For'].values[0] == 'accounts') ? \
             '6/10 seconds' : (null)}",
        ),
        (
            "if (contexts.oauth2.accessToken.info.status == status) \
             { return new ThrottlingRate(rate, duration) } else { return null }",
            json!({"status": "gold", "rate": 6, "duration": "10 seconds"}),
            "${(contexts.oauth2.accessToken.info.status == 'gold') ? '6/10 seconds' : (null)}",
        ),
        (
            "def group = request.headers.get('X-Group')?.firstValue\n\
             if (group == null) return null\n\
             if (group.equals(\"a\") || !group.startsWith('b')) {\n\
             return new ThrottlingRate(1, '1 s'); }\nnew ThrottlingRate(2, '1 s')",
            json!({}),
            "${request.headers['X-Group'].firstValue == null ? null : \
             request.headers['X-Group'].firstValue == 'a' || \
             !request.headers['X-Group'].firstValue.startsWith'b' ? '1/1 s' : '2/1 s'}",
        ),
        (
            "request.method == 'GET' && x ? new a.b.ThrottlingRate(1, '1 s') : null",
            json!({"x": true}),
            "${request.method == 'GET' && true ? '1/1 s' : null}",
        ),
        ("return null", json!({}), "${null}"),
        ("", json!({}), "${null}"),
    ] {
        let found = of(script, args).unwrap_or_else(|error| panic!("{script}: {error:?}"));
        let plain = |text: &str| text.replace(['(', ')', ' '], "");
        assert_eq!(plain(&found), plain(wanted), "{script}");
        doorward_expr::Expression::compile(&found).expect("an expression");
    }
}

#[test]
fn what_does_more_than_choosing_is_told_with_its_line() {
    for (script, line) in [
        ("\nnew File('/etc/passwd').text", 2),
        ("println('x')", 1),
        ("for (a in b) {}", 1),
        ("return \"${request.method}\"", 1),
        ("return new ThrottlingRate(n, '1 s')", 1),
        ("if (a) { return null", 1),
        ("'x'.execute()", 1),
        ("return http.send(request).get()", 1),
        ("if (request.headers['A']) { return null }", 1),
        ("if (request.method.execute() == 'a') { return null }", 1),
        (
            "def n = 1\nif (request.method == 'GET') {\nn = 2 }\nreturn null",
            3,
        ),
        ("return null\n}", 2),
    ] {
        let error = of(script, json!({})).expect_err(script);
        assert_eq!(error.line, line, "{script}: {}", error.what);
    }
    let bomb = "(".repeat(10_000);
    assert!(of(&format!("if {bomb}"), json!({})).is_err());
    let ways = "if (request.method == 'A') { def b = 2 }\n".repeat(40);
    assert!(of(&(ways + "return new ThrottlingRate(1, '1 s')"), json!({})).is_err());
}
