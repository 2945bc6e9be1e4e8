//! The administrator rule (interface 5.5 and 7): who may sign in as `amadmin`,
//! and the ways around it that are closed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use doorward_core::model::user::name;
use doorward_core::model::user::name_place::NamePlace;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::support::{Answer, Door, Issuer, Setup, Upstream, http, raw};

/// A provider with an administrator, confined to `allow`.
fn guarded(allow: &str) -> Setup {
    let guard = format!(
        "  plugins:\n  - name: request-guard\n    config:\n      \
         header_names: [X-Service-Username, X-OpenAM-Username]\n      \
         parameter_names: [username, value]\n      \
         values: [amadmin]\n      allow: [{allow}]\n"
    );
    guarded_by(&guard, "")
}

/// The same with this guard, and these settings of the realm.
fn guarded_by(guard: &str, settings: &str) -> Setup {
    let identity = format!(
        "
  base_url: http://@PROXY@
  realms:
    /:
{settings}      users:
        - {{userName: amAdmin, password: Ch4ng31t}}
        - {{userName: demo, password: Ch4ng31t}}
      clients:
        - client_id: app
          client_secret: app-secret
          grant_types: [password, \"urn:ietf:params:oauth:grant-type:jwt-bearer\"]
          scope: openid
    /staff:
      users: [{{userName: amadmin, password: Ch4ng31t}}]
"
    );
    // The guard belongs to the service that the setup declares first.
    Setup::new().identity(&identity).services(guard)
}

const ELSEWHERE: &str = "192.0.2.1";
const PATH: &str = "/json/realms/root/authenticate";

async fn sign_in(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client()
        .post(door.proxy_url(path))
        .header("x-service-password", "Ch4ng31t");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

#[track_caller]
fn assert_forbidden_page(answer: &Answer) {
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert!(answer.header("content-type").starts_with("text/html"));
    assert!(answer.body.contains("<title>403 Forbidden</title>"));
}

#[tokio::test]
async fn the_administrator_signs_in_from_a_permitted_address_only() {
    let door = guarded("127.0.0.1").start().await;
    let admin = [("x-service-username", "amadmin")];
    let answer = sign_in(&door, PATH, &admin).await.expect(200);
    assert!(answer.json()["tokenId"].is_string());

    let door = guarded(ELSEWHERE).start().await;
    for name in ["amadmin", "AMADMIN", "amAdmin"] {
        let answer = sign_in(&door, PATH, &[("x-service-username", name)]).await;
        assert_forbidden_page(&answer);
    }
    assert_forbidden_page(&sign_in(&door, PATH, &[("X-OpenAM-Username", "amadmin")]).await);
}

#[tokio::test]
async fn other_users_sign_in_from_any_address() {
    let door = guarded(ELSEWHERE).start().await;
    let demo = [("x-service-username", "demo")];
    sign_in(&door, PATH, &demo).await.expect(200);
    let unknown = [("x-service-username", "amadmin2")];
    sign_in(&door, PATH, &unknown).await.expect(401);
}

#[tokio::test]
async fn an_encoded_word_is_no_way_around() {
    let door = guarded(ELSEWHERE).start().await;
    for name in [
        "=?utf-8?q?amadmin?=",
        "=?UTF-8?B?YW1hZG1pbg==?=",
        "=?iso-8859-1?Q?=61madmin?=",
        "=?utf-8?q?am?= =?utf-8?b?YWRtaW4=?=",
        "\"amadmin\"",
    ] {
        assert_forbidden_page(&sign_in(&door, PATH, &[("x-service-username", name)]).await);
    }
}

#[tokio::test]
async fn a_repeated_header_is_no_way_around() {
    let door = guarded(ELSEWHERE).start().await;
    for (first, second) in [("demo", "amadmin"), ("amadmin", "demo")] {
        let both = [
            ("x-service-username", first),
            ("x-service-username", second),
        ];
        assert_forbidden_page(&sign_in(&door, PATH, &both).await);
        let twins = [
            ("x-service-username", first),
            ("x_service_username", second),
        ];
        assert_forbidden_page(&sign_in(&door, PATH, &twins).await);
        let pairs = [("x-service-username", first), ("x-openam-username", second)];
        assert_forbidden_page(&sign_in(&door, PATH, &pairs).await);
    }
}

#[tokio::test]
async fn no_form_of_the_path_is_a_way_around() {
    let door = guarded(ELSEWHERE).start().await;
    for path in [
        "/json/authenticate",
        "/json/realms/root/authenticate",
        "/json/root/authenticate",
        "/json/realms/root/realms/staff/authenticate",
        "/json/realms/staff/authenticate",
        "/json/staff/authenticate",
        "/json/authenticate?realm=/staff",
        "/json/./authenticate",
        "/json//authenticate",
        "/json/%61uthenticate",
    ] {
        let answer = sign_in(&door, path, &[("x-service-username", "amadmin")]).await;
        assert!(
            matches!(answer.status, 400 | 403),
            "{path}: {}",
            answer.status
        );
    }
}

#[tokio::test]
async fn http_2_is_no_way_around() {
    let door = guarded(ELSEWHERE).start().await;
    let client = http::builder()
        .http2_prior_knowledge()
        .build()
        .expect("a client");
    let request = client
        .post(door.proxy_url(PATH))
        .header("x-service-username", "amadmin")
        .header("x-service-password", "Ch4ng31t");
    assert_forbidden_page(&http::send(request).await);
}

#[tokio::test]
async fn forwarded_headers_of_an_untrusted_peer_are_no_way_around() {
    let door = guarded("10.1.2.3").start().await;
    for header in [
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
        "client-ip",
        "true-client-ip",
    ] {
        let value = if header == "forwarded" {
            "for=10.1.2.3"
        } else {
            "10.1.2.3"
        };
        let headers = [("x-service-username", "amadmin"), (header, value)];
        assert_forbidden_page(&sign_in(&door, PATH, &headers).await);
    }
}

#[tokio::test]
async fn a_trusted_proxy_vouches_for_the_address() {
    let trusting = r#"{listen: ["@PROXY@"], trusted_ips: ["127.0.0.1"]}"#;
    let door = guarded("10.1.2.0/24").proxy(trusting).start().await;
    let from = async |chain: &str| {
        let headers = [
            ("x-service-username", "amadmin"),
            ("x-forwarded-for", chain),
        ];
        sign_in(&door, PATH, &headers).await
    };
    from("10.1.2.3").await.expect(200);
    from("::ffff:10.1.2.3").await.expect(200);
    assert_forbidden_page(&from("192.0.2.1").await);
    // What stands left of the first stranger may be made up.
    assert_forbidden_page(&from("10.1.2.3, 192.0.2.1").await);
}

#[tokio::test]
async fn a_client_with_an_ipv4_mapped_address_is_the_ipv4_client() {
    let door = guarded("\"::ffff:127.0.0.1\"").start().await;
    let admin = [("x-service-username", "amadmin")];
    sign_in(&door, PATH, &admin).await.expect(200);
}

/// The callbacks that `authenticate` asks for.
async fn callbacks(door: &Door) -> Value {
    let answer = http::send(http::client().post(door.proxy_url(PATH))).await;
    answer.expect(200).json()
}

#[tokio::test]
async fn a_callback_is_no_way_around() {
    let door = guarded(ELSEWHERE).start().await;
    let mut form = callbacks(&door).await;
    form["callbacks"][1]["input"][0]["value"] = json!("Ch4ng31t");
    let submit =
        async |form: &Value| http::send(http::client().post(door.proxy_url(PATH)).json(form)).await;
    form["callbacks"][0]["input"][0]["value"] = json!("AmAdmin");
    assert_forbidden_page(&submit(&form).await);
    form["callbacks"][0]["input"][0]["value"] = json!("demo");
    submit(&form).await.expect(200);
}

#[tokio::test]
async fn the_password_grant_is_no_way_around() {
    let door = guarded(ELSEWHERE).start().await;
    let grant = async |user: &str| {
        door.token_request(&[
            ("grant_type", "password"),
            ("client_id", "app"),
            ("client_secret", "app-secret"),
            ("username", user),
            ("password", "Ch4ng31t"),
            ("scope", "openid"),
        ])
        .await
    };
    assert_forbidden_page(&grant("amadmin").await);
    grant("demo").await.expect(200);
}

#[tokio::test]
async fn a_body_in_chunks_is_looked_at_and_one_too_long_is_refused() {
    let door = guarded(ELSEWHERE).start().await;
    let head = |framing: &str| {
        format!(
            "POST /oauth2/access_token HTTP/1.1\r\nHost: a\r\n{framing}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        )
    };
    let chunked =
        head("Transfer-Encoding: chunked") + "9\r\nusername=\r\n7\r\namadmin\r\n0\r\n\r\n";
    let answer = raw::exchange(&door.proxy(), chunked.as_bytes()).await;
    assert_eq!(answer.expect("an answer").status, 403);

    let pad = format!("pad={}&username=amadmin", "x".repeat(70_000));
    let long = head(&format!("Content-Length: {}", pad.len())) + &pad;
    let answer = raw::exchange(&door.proxy(), long.as_bytes()).await;
    assert_eq!(answer.expect("an answer").status, 413);
}

#[tokio::test]
async fn a_body_that_was_looked_at_reaches_the_upstream_whole() {
    let upstream = Upstream::echo().await;
    let service = format!(
        "- name: api\n  url: {}\n  routes: [{{hosts: [api.test]}}]\n  plugins:\n  \
         - {{name: request-guard, config: {{header_names: [x], parameter_names: [user], \
         values: [root]}}}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let body = format!("pad={}&user=anna", "x".repeat(60_000));
    let request = http::client()
        .post(door.proxy_url("/"))
        .header("host", "api.test")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body.clone());
    http::send(request).await.expect(200);
    assert_eq!(String::from_utf8_lossy(&upstream.last().body), body);

    let nobody_is_allowed = http::client()
        .get(door.proxy_url("/?user=ROOT"))
        .header("host", "api.test");
    assert_forbidden_page(&http::send(nobody_is_allowed).await);
}

/// Everything that sign-in takes for `amadmin` with one letter written otherwise.
fn spellings() -> Vec<String> {
    let letters = ('\0'..=char::MAX).filter_map(|letter| {
        let folded = name::key(letter.encode_utf8(&mut [0; 4]));
        let fits = !folded.is_empty() && "amadmin".contains(&folded);
        fits.then(|| "amadmin".replacen(&folded, &letter.to_string(), 1))
    });
    letters.collect()
}

/// A request that names `user` in `place`, with the right password.
fn naming(door: &Door, place: NamePlace, user: &str) -> RequestBuilder {
    let post = |path: &str| http::client().post(door.proxy_url(path));
    let password = "Ch4ng31t";
    match place {
        NamePlace::Username => post("/oauth2/access_token").form(&[
            ("grant_type", "password"),
            ("client_id", "app"),
            ("client_secret", "app-secret"),
            ("username", user),
            ("password", password),
            ("scope", "openid"),
        ]),
        NamePlace::CallbackValue => post(PATH).json(&json!({"authId": "x", "callbacks": [
            {"type": "NameCallback", "input": [{"name": "IDToken1", "value": user}]},
            {"type": "PasswordCallback", "input": [{"name": "IDToken2", "value": password}]},
        ]})),
        NamePlace::IndexValue => {
            let user: String = form_urlencoded::byte_serialize(user.as_bytes()).collect();
            let path = format!("{PATH}?authIndexType=user&authIndexValue={user}");
            post(&path).header("x-service-password", password)
        }
        NamePlace::ServiceHeader | NamePlace::OpenAmHeader => post(PATH)
            .header(place.name(), user.as_bytes())
            .header(place.name().replace("username", "password"), password),
        NamePlace::Basic => http::client()
            .get(door.proxy_url("/plain/x"))
            .basic_auth(user, Some(password)),
    }
}

/// A service whose plugin takes passwords.
fn plain(more: &str) -> String {
    format!(
        "- name: plain\n  protocol: internal\n  host: echo\n  routes: [{{paths: [/plain]}}]\n  \
         plugins:\n  - {{name: openid-connect, config: {{issuer: 'http://@PROXY@/oauth2', \
         client_id: [app], client_secret: [app-secret], auth_methods: [password]}}}}\n{more}"
    )
}

#[tokio::test]
async fn no_letter_that_sign_in_takes_for_another_is_a_way_around_in_any_place() {
    let guard = "  - {name: request-guard, config: {header_names: [X-Service-Username, \
                 X-OpenAM-Username], values: [amadmin], allow: [192.0.2.1]}}\n";
    let door = guarded_without_list().services(&plain(guard)).start().await;
    let spellings = spellings();
    assert!(spellings.len() > 100, "{}", spellings.len());
    for place in NamePlace::ALL {
        for user in &spellings {
            let answer = http::send(naming(&door, *place, user)).await;
            assert_eq!(answer.status, 403, "{place:?} {user}: {}", answer.body);
        }
        let other = http::send(naming(&door, *place, "demo")).await;
        assert_ne!(other.status, 403, "{place:?}: {}", other.body);
    }
    // As an RFC 2047 word, and on the page for people.
    for user in &spellings {
        let word = format!("=?utf-8?b?{}?=", STANDARD.encode(user));
        assert_forbidden_page(&sign_in(&door, PATH, &[("x-service-username", &word)]).await);
        let page = http::client().post(door.proxy_url("/oauth2/authorize/login"));
        let form = [("username", user.as_str()), ("password", "Ch4ng31t")];
        assert_forbidden_page(&http::send(page.form(&form)).await);
    }
}

/// As [`guarded`], with the list of parameters that the plugin has by itself.
fn guarded_without_list() -> Setup {
    guarded_by(
        "  plugins:\n  - name: request-guard\n    config:\n      \
         header_names: [X-Service-Username, X-OpenAM-Username]\n      \
         values: [amadmin]\n      allow: [192.0.2.1]\n",
        "",
    )
}

#[tokio::test]
async fn an_administrator_who_is_confined_by_the_realm_gets_in_by_no_place() {
    let settings = "      settings: {admin_addresses: [192.0.2.1]}\n";
    let door = guarded_by("", settings).services(&plain("")).start().await;
    for place in NamePlace::ALL {
        for user in ["amadmin", "AMADMIN", "\u{ff41}madmin", "\u{430}madmin"] {
            let answer = http::send(naming(&door, *place, user)).await;
            assert!(answer.status >= 400, "{place:?} {user}: {}", answer.body);
            assert!(!answer.body.contains("token\""), "{place:?} {user}");
        }
    }
    // By callbacks that are right in all else, too.
    let mut form = callbacks(&door).await;
    form["callbacks"][0]["input"][0]["value"] = json!("amadmin");
    form["callbacks"][1]["input"][0]["value"] = json!("Ch4ng31t");
    let submitted = http::client().post(door.proxy_url(PATH)).json(&form);
    assert_forbidden_page(&http::send(submitted).await);
    for place in [
        NamePlace::Username,
        NamePlace::ServiceHeader,
        NamePlace::Basic,
    ] {
        http::send(naming(&door, place, "demo")).await.expect(200);
    }
}

#[tokio::test]
async fn an_assertion_about_the_administrator_obeys_the_addresses() {
    let issuer = Issuer::start().await;
    for (allowed, status) in [("192.0.2.1", 400), ("127.0.0.1", 200)] {
        let settings = format!(
            "      settings:\n        admin_addresses: [{allowed}]\n        trusted_issuers: \
             [{{issuer: 'https://trusted.example', jwks_uri: '{}/keys'}}]\n",
            issuer.url()
        );
        let door = guarded_by("", &settings).start().await;
        let ask = async |user: &str| {
            let claims = issuer.claims_with(json!({
                "iss": "https://trusted.example", "sub": user, "jti": format!("{user}-{allowed}"),
                "aud": door.proxy_url("/oauth2"), "nbf": null,
            }));
            door.token_request(&[
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("client_id", "app"),
                ("client_secret", "app-secret"),
                ("assertion", &issuer.sign(&claims)),
                ("scope", "openid"),
            ])
            .await
        };
        ask("demo").await.expect(200);
        ask("amadmin").await.expect(status);
    }
}

#[tokio::test]
async fn every_configuration_that_is_shipped_confines_the_administrator() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for entry in std::fs::read_dir(root.join("conf")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let provider = text.lines().any(|line| line == "identity:");
        let served = text.contains("host: identity");
        if provider {
            let set = text.lines().map(str::trim);
            let mut set = set.filter(|line| line.starts_with("admin_addresses: ["));
            assert!(set.next().is_some(), "{}", path.display());
        }
        if served {
            assert!(text.contains("name: request-guard"), "{}", path.display());
            assert!(!text.contains("parameter_names"), "{}", path.display());
        }
        seen += usize::from(provider) + usize::from(served);
    }
    assert_eq!(seen, 5);
}
