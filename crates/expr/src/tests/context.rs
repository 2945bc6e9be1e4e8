//! Roots and members.

use super::*;

#[test]
fn the_request_is_read_by_its_members() {
    check_texts(&[
        ("${request.method}", "POST"),
        ("${request.version}", "HTTP/1.1"),
        ("${request.headers['X-User'][0]}", "ada"),
        ("${request.headers['x-USER'][1]}", "bob"),
        ("${request.headers['X-User'].values[1]}", "bob"),
        ("${request.headers['X-User'].firstValue}", "ada"),
        ("${request.headers.getFirst('X-User')}", "ada"),
        ("${request.headers.get('X-User')[1]}", "bob"),
        ("${request.headers[toLowerCase('X-USER')][0]}", "ada"),
        (
            "${request.headers[contexts.client.userAgent == 'probe/1' ? 'X-User' : 'Host'][0]}",
            "ada",
        ),
        ("${request.headers.Host[0]}", "api.example.com:8080"),
        ("${request.cookies['sid'][1].value}", "s2"),
        ("${request.cookies.theme[0].value}", "dark"),
        ("${request.cookies['sid'][0].name}", "sid"),
        ("${request.queryParams['page'][1]}", "3"),
        ("${request.queryParams['q'][0]}", "x y"),
        ("${request.form['q'][0]}", "x y"),
        ("${request.form['name'][0]}", "Käthe"),
        ("${request.form['page'][2]}", "9"),
        ("${request.entity.form['page'][0]}", "9"),
        ("${request.entity.string}", "page=9&name=K%C3%A4the"),
        ("is ${request.entity}", "is page=9&name=K%C3%A4the"),
        (
            "${encodeBase64(request.entity.bytes)}",
            "cGFnZT05Jm5hbWU9SyVDMyVBNHRoZQ==",
        ),
    ]);
    check_truth(&[
        ("${empty request.queryParams}", false),
        ("${empty request.headers['None']}", true),
        ("${request.entity.empty}", false),
        ("${request.cookies['sid'][0] != null}", true),
        ("${request.cookies['none'][0] != null}", false),
        ("${empty request.cookies}", false),
    ]);
    assert_eq!(value_of("${length(request.headers)}"), Value::Integer(6));
}

#[test]
fn the_target_is_read_by_its_parts() {
    check_texts(&[
        ("${request.uri.scheme}", "https"),
        ("${request.uri.host}", "api.example.com"),
        ("${request.uri.authority}", "api.example.com:8080"),
        ("${request.uri.rawAuthority}", "api.example.com:8080"),
        ("${request.uri.path}", "/Users/a b"),
        ("${request.uri.rawPath}", "/Users/a%20b"),
        ("${request.uri.pathElements[1]}", "a b"),
        ("${request.uri.query}", "page=2&page=3&q=x+y"),
        ("${request.uri.rawQuery}", "page=2&page=3&q=x+y"),
        (
            "${request.uri.toString()}",
            "https://api.example.com:8080/Users/a%20b?page=2&page=3&q=x+y",
        ),
        (
            "${toString(request.uri)}",
            "https://api.example.com:8080/Users/a%20b?page=2&page=3&q=x+y",
        ),
        (
            "to ${contexts.router.originalUri}",
            "to https://api.example.com:8080/asked/first?x=1",
        ),
        ("${contexts.router.originalUri.path}", "/asked/first"),
        ("${contexts.router.remainingUri}", "/asked/first"),
        ("${contexts.router.matchedUri}", ""),
        ("${contexts.router.baseUri}", "https://api.example.com:8080"),
    ]);
    check_integers(&[("${request.uri.port}", 8080)]);
    check_null(&[
        "${request.uri.fragment}",
        "${request.uri.rawFragment}",
        "${request.uri.userInfo}",
        "${contexts.router.uriTemplateVariables['x']}",
    ]);
    check_truth(&[("${empty contexts.router.uriTemplateVariables}", true)]);
    let read = |uri: &str, source: &str| {
        let request = Request::get(uri)
            .body(())
            .expect("a request")
            .into_parts()
            .0;
        let expression = Expression::compile(source).expect("compiles");
        expression
            .evaluate(&Scope::new(&request, client()))
            .into_owned()
    };
    assert_eq!(
        read("http://u:p%40@[::1]:81/x", "${request.uri.host}"),
        text("[::1]")
    );
    assert_eq!(
        read("http://u:p%40@[::1]:81/x", "${request.uri.port}"),
        Value::Integer(81)
    );
    assert_eq!(
        read("http://u:p%40@[::1]:81/x", "${request.uri.userInfo}"),
        text("u:p@")
    );
    assert_eq!(
        read("http://u:p%40@[::1]:81/x", "${request.uri.rawUserInfo}"),
        text("u:p%40")
    );
    assert_eq!(
        read("http://h/x", "${request.uri.port}"),
        Value::Integer(80)
    );
    assert_eq!(read("/x%zz", "${request.uri.path}"), text("/x%zz"));
    assert_eq!(read("/x%ff", "${request.uri.path}"), text("/x\u{fffd}"));
}

#[test]
fn the_body_is_read_as_json() {
    let body: &[u8] =
        br#"{"user": {"id": "u1", "tags": ["x", "y"]}, "n": 3, "f": 1.5, "no": null}"#;
    for (source, expected) in [
        ("${request.entity.json.user.id}", text("u1")),
        ("${request.entity.json['user'].tags[1]}", text("y")),
        ("${request.entity.json.n + 1}", Value::Integer(4)),
        ("${request.entity.json.f}", Value::Float(1.5)),
        ("${request.entity.json.no}", Value::Null),
        ("${request.entity.json.none.deeper}", Value::Null),
        (
            "${length(request.entity.json.user.tags)}",
            Value::Integer(2),
        ),
        (
            "${toString(request.entity.json.user)}",
            text("{id=u1, tags=[x, y]}"),
        ),
        ("${toJson(request.entity.string).user.id}", text("u1")),
    ] {
        assert_eq!(value_with_body(source, Some(body)), expected, "{source}");
    }
    let json = "${request.entity.json.user}";
    assert_eq!(value_with_body(json, Some(b"{\"user\": ")), Value::Null);
    assert_eq!(value_with_body(json, None), Value::Null);
    let deep = "[".repeat(60_000);
    assert_eq!(value_with_body(json, Some(deep.as_bytes())), Value::Null);
}

#[test]
fn the_answer_is_read_by_its_members() {
    check_texts(&[
        ("${response.status.reasonPhrase}", "Not Found"),
        ("${response.headers['X-Up'][0]}", "yes"),
        ("${response.cookies['sid'][0].value}", "r1"),
        ("${response.cookies['sid'][0].path}", "/app"),
        ("${response.cookies['sid'][0].maxAge}", "60"),
    ]);
    check_integers(&[("${response.status.code}", 404)]);
    check_truth(&[
        ("${response.status.clientError}", true),
        ("${response.status.serverError}", false),
        (
            "${response.status.code == 404 and response.headers['X-Up'] != null}",
            true,
        ),
        ("${response.cookies['sid'][0].secure}", true),
        ("${response.cookies['sid'][0].httpOnly}", false),
    ]);
    for source in [
        "${response}",
        "${response.status.code}",
        "${response.headers['X-Up'][0]}",
        "${response.cookies['sid'][0].value}",
    ] {
        assert_eq!(value_without_anything(source), Value::Null, "{source}");
    }
}

#[test]
fn contexts_are_read_by_their_members() {
    check_texts(&[
        ("${contexts.client.remoteAddress}", "192.0.2.7"),
        ("${contexts.client.localAddress}", "198.51.100.1"),
        ("${contexts.client.userAgent}", "probe/1"),
        ("${contexts.oauth2.accessToken.token}", "abc.def"),
        ("${contexts.oauth2.accessToken.scopes[1]}", "mail"),
        ("${contexts.oauth2.accessToken.info.sub}", "demo"),
        ("${contexts.oauth2.accessToken.info['sub']}", "demo"),
        ("${contexts.oauth2.accessToken.info.act.sub}", "robot"),
        ("${contexts.oauth2.accessToken.info.aud[1]}", "b"),
        (
            "${contexts['oauth2']['accessToken']['info']['sub']}",
            "demo",
        ),
        ("${attributes.openid.user_info.sub}", "demo"),
        ("${attributes.openid.sub}", "demo"),
        ("${attributes.openid[toLowerCase('SUB')]}", "demo"),
        ("${contexts.openid.iss}", "http://op"),
        (
            "${contexts.attributes.attributes.openid.id_token_claims.iss}",
            "http://op",
        ),
        ("${contexts.transactionId.transactionId.value}", "tx-1"),
        ("${contexts.transactionId.transactionId}", "tx-1"),
    ]);
    check_integers(&[
        ("${contexts.client.remotePort}", 4711),
        ("${contexts.client.localPort}", 8000),
        (
            "${contexts.oauth2.accessToken.expiresAt}",
            1_700_000_000_000,
        ),
    ]);
    check_truth(&[
        ("${contexts.client.isSecure}", true),
        ("${contexts.client.isExternal}", true),
        ("${empty contexts.client.certificates}", true),
        ("${contexts.client.certificate == null}", true),
        ("${empty session}", true),
        ("${contexts.oauth2 != null}", true),
    ]);
    check_null(&[
        "${contexts.client.remoteUser}",
        "${contexts.client.certificates[0].subject}",
        "${session.user}",
        "${session['user'].name}",
        "${contexts.session.a.b[0]}",
    ]);
    for source in [
        "${contexts.oauth2}",
        "${contexts.oauth2.accessToken.info.sub}",
        "${attributes.openid}",
        "${contexts.client.localAddress}",
        "${contexts.transactionId.transactionId.value}",
        "${request.entity.string}",
    ] {
        assert_eq!(value_without_anything(source), Value::Null, "{source}");
    }
    assert_eq!(
        value_without_anything("${empty attributes.openid}"),
        Value::Bool(true)
    );
}

#[test]
fn the_process_is_read_when_the_configuration_is_loaded() {
    let path = std::env::var("PATH").expect("a PATH");
    assert_eq!(at_load("${env['PATH']}"), Ok(text(&path)));
    assert_eq!(at_load("${env.PATH}"), Ok(text(&path)));
    assert_eq!(at_load("${system['file.separator']}"), Ok(text("/")));
    check_null(&[
        "${env['DOORWARD_NO_SUCH_VARIABLE']}",
        "${system['no.such.property']}",
        "${system.user.home}",
    ]);
}

#[test]
fn what_must_be_read_before_is_known_at_load() {
    for (source, body, response) in [
        ("${request.uri.path}", false, false),
        ("${request.headers['Content-Type'][0]}", false, false),
        ("${request.queryParams['a'][0]}", false, false),
        ("${request.form['a'][0]}", true, false),
        ("${request.entity.string}", true, false),
        ("${request.entity.json.a}", true, false),
        ("${request.entity.form['a']}", true, false),
        ("x${true ? request.entity : 'a'}", true, false),
        ("${response.status.code}", false, true),
        ("${response.headers['A'][0]}", false, true),
        ("${response.cookies['A'][0].value}", false, true),
        ("${empty response}", false, true),
    ] {
        let expression = Expression::compile(source).expect(source);
        assert_eq!(expression.needs_body(), body, "{source}");
        assert_eq!(expression.needs_response(), response, "{source}");
    }
    let form = Expression::compile("${request.form['a'][0]}").expect("compiles");
    assert!(form.needs_body_of(&parts()));
    assert!(!form.needs_body_of(&Request::new(()).into_parts().0));
}

#[test]
fn cookies_are_a_map() {
    check_texts(&[
        (
            "${request.cookies[keyMatch(request.cookies,'^th.*')][0].value}",
            "dark",
        ),
        (
            "${request.cookies[keyMatch(request.cookies,'s.d')][1].value}",
            "s2",
        ),
        (
            "${response.cookies[keyMatch(response.cookies,'s.d')][0].value}",
            "r1",
        ),
        ("${request.cookies.get('theme')[0]}", "dark"),
    ]);
    check_truth(&[
        ("${request.cookies.containsKey('sid')}", true),
        ("${request.cookies.containsKey('none')}", false),
        ("${empty request.cookies}", false),
        (
            "${request.cookies[keyMatch(request.cookies,'none')] == null}",
            true,
        ),
    ]);
    check_integers(&[
        ("${length(request.cookies)}", 2),
        ("${length(request.queryParams)}", 2),
    ]);
    let refused = Expression::compile("${request.cookies[request.method][0].path}");
    let error = refused.expect_err("only the value");
    assert!(error.message.contains("`value`"), "{error}");
}

#[test]
fn a_byte_that_is_no_text_hides_no_other_cookie() {
    let mut request = parts();
    let value = HeaderValue::from_bytes(b"bad=\xe9; sid=x").expect("a value");
    request.headers.insert("cookie", value);
    let read = |source: &str| {
        let expression = Expression::compile(source).expect(source);
        let scope = Scope::new(&request, client());
        expression.evaluate(&scope).into_owned()
    };
    assert_eq!(read("${request.cookies['sid'][0].value}"), text("x"));
    assert_eq!(read("${request.cookies['bad'][0].value}"), text("é"));
}

#[test]
fn the_scheme_is_the_one_that_a_filter_set() {
    let (request, ()) = Request::get("https://up.test/x")
        .body(())
        .expect("valid")
        .into_parts();
    let scheme = Expression::compile("${request.uri.scheme}").expect("compiles");
    let first = Uri::from_static("/x");
    let mut scope = Scope::new(&request, client());
    // What a client writes there is not believed.
    assert_eq!(scheme.text(&scope).as_deref(), Some("http"));
    scope.original = Some(&first);
    assert_eq!(scheme.text(&scope).as_deref(), Some("https"));
}
