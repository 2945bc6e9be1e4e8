//! The refusals that the page on the broker lists are those that the program answers.

use std::collections::BTreeMap;

use super::*;

const PAGE: &str = include_str!("../../../docs/token-broker.md");

/// What the page says of a refusal.
#[derive(Debug)]
struct Row {
    status: String,
    /// What stands in backticks before a parenthesis.
    shown: Vec<String>,
    /// What stands in parentheses: the status, if it is another one, and the faults.
    fault: Option<(Option<u16>, Vec<String>)>,
}

/// The rows of the table whose head ends so, by their causes.
fn rows(head: &str) -> BTreeMap<String, Row> {
    let (_, rest) = PAGE
        .split_once(&format!("\n| | status | {head} |\n"))
        .expect(head);
    let rows = rest
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with("| "));
    let spans = |text: &str| -> Vec<String> {
        let spans = text.split('`').skip(1).step_by(2);
        spans.map(str::to_owned).collect()
    };
    let row = |row: &str| {
        let mut cells = row.trim_matches(['|', ' ']).split(" | ").map(str::to_owned);
        let mut next = || cells.next().expect("a cell");
        let (cause, status, codes) = (next(), next(), next());
        let (shown, fault) = match codes.split_once(" (") {
            Some((shown, fault)) => (shown, Some(fault)),
            None => (&*codes, None),
        };
        let fault = fault.map(|fault| {
            let status = fault.split(' ').next().and_then(|word| word.parse().ok());
            (status, spans(fault))
        });
        let row = Row {
            status,
            shown: spans(shown),
            fault,
        };
        (cause, row)
    };
    rows.map(row).collect()
}

/// A refusal of each cause, to be compared with the page.
#[derive(Default)]
struct Answers(BTreeMap<&'static str, Vec<Answer>>);

impl Answers {
    fn add(&mut self, cause: &'static str, answer: Answer) {
        self.0.entry(cause).or_default().push(answer);
    }

    /// Each row has its answers, and each of them a row.
    fn compare(&self, rows: &BTreeMap<String, Row>, fits: impl Fn(&Answer, &Row) -> bool) {
        let causes: Vec<_> = rows.keys().collect();
        assert_eq!(self.0.keys().collect::<Vec<_>>(), causes);
        for (cause, answers) in &self.0 {
            let row = &rows[*cause];
            for answer in answers {
                assert!(fits(answer, row), "{cause}: {answer:?} is not {row:?}");
            }
        }
    }
}

/// Whether a text of the page, in which `…` is any, is what an answer says.
fn is_text(listed: &str, said: &str) -> bool {
    match listed.split_once('…') {
        Some((start, end)) => said.starts_with(start) && said.ends_with(end),
        None => listed == said,
    }
}

fn errorcode(answer: &Answer) -> Value {
    answer.json()["fault"]["detail"]["errorcode"].clone()
}

/// Flows of tokens of the broker's own, of which some end at once, and none for the rest.
const OWN_FLOWS: &str = ", proxy: weather, flows: [\
    {name: token, condition: '(proxy.pathsuffix MatchesPath \"/token\")', \
     operation: GenerateAccessToken, external_authorization: false},\
    {name: brief, condition: '(proxy.pathsuffix MatchesPath \"/brief\")', \
     operation: GenerateAccessToken, external_authorization: false, expires_in: 1000},\
    {name: write, condition: '(proxy.pathsuffix MatchesPath \"/api**\") and (request.verb = \"PUT\")', \
     operation: VerifyAccessToken, scope: [WRITE]},\
    {name: api, condition: 'proxy.pathsuffix MatchesPath \"/api**\"', operation: VerifyAccessToken}]";

#[tokio::test]
async fn refusals_of_protected_paths_in_the_page_are_those_of_the_program() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, OWN_FLOWS).await;
    for product in [
        json!({"name": "little", "api_resources": ["/api/x"], "quota": 1,
               "quota_time_unit": "day", "scopes": ["READ"]}),
        json!({"name": "elsewhere", "proxies": ["other"]}),
        json!({"name": "none"}),
    ] {
        door.admin_post("/broker/products", &product)
            .await
            .expect(201);
    }
    let application = json!({"name": "a", "developer": "dev@example.com", "products": ["little"]});
    let made = door.admin_post("/broker/applications", &application).await;
    let made = made.expect(201).json();
    let client = [
        ("grant_type", "client_credentials".to_owned()),
        ("client_id", text(&made, "consumer_key")),
        ("client_secret", text(&made, "consumer_secret")),
    ];
    let token = |path: &'static str| {
        let request = http::client().post(door.proxy_url(path)).form(&client);
        async {
            text(
                &http::send(request).await.expect(200).json(),
                "access_token",
            )
        }
    };
    let mut answers = Answers::default();
    let unknown = "no token, another scheme, an unknown token";
    answers.add(unknown, door.get("any.test", "/weather/api/x").await);
    answers.add(
        unknown,
        door.get_as("nobodys", "any.test", "/weather/api/x").await,
    );
    let basic = http::client().get(door.proxy_url("/weather/api/x"));
    answers.add(unknown, http::send(basic.basic_auth("a", Some("b"))).await);
    let brief = token("/weather/brief").await;
    let expired = eventually("the token expires", || async {
        let answer = door.get_as(&brief, "any.test", "/weather/api/x").await;
        (answer.status == 401).then_some(answer)
    });
    answers.add("expired", expired.await);
    let good = token("/weather/token").await;
    let call = |path: &'static str| door.get_as(&good, "any.test", path);
    answers.add("the path is in no product", call("/weather/api/y").await);
    answers.add("no flow", call("/weather/other").await);
    let write = http::client().put(door.proxy_url("/weather/api/x"));
    let write = http::send(write.bearer_auth(&good).body("b")).await;
    answers.add("a scope is missing", write);
    let used = eventually("the quota is used up", || async {
        let answer = call("/weather/api/x").await;
        (answer.status != 200).then_some(answer)
    });
    let used = used.await;
    assert!(!used.header("retry-after").is_empty());
    answers.add("the product's quota is used up", used);
    let path = format!("/broker/applications/{}", text(&made, "id"));
    let change = |change: Value| changed(&door, &path, change);
    change(json!({"products": ["elsewhere"]})).await;
    let cause = "no product for this proxy and environment";
    answers.add(cause, call("/weather/api/x").await);
    change(json!({"products": ["none"]})).await;
    door.admin_delete("/broker/products/none").await.expect(204);
    answers.add("none of its products exists", call("/weather/api/x").await);
    change(json!({"products": ["weather"], "status": "pending"})).await;
    let cause = "application or developer not approved, or gone";
    answers.add(cause, call("/weather/api/x").await);
    change(json!({"status": "approved"})).await;
    call("/weather/api/x").await.expect(200);
    let end = json!({"token": good});
    door.admin_post("/broker/tokens/revoke", &end)
        .await
        .expect(204);
    answers.add("revoked", call("/weather/api/x").await);
    answers.compare(&rows("errorcode"), |answer, row| {
        let has_challenge = !answer.header("www-authenticate").is_empty();
        row.status.split(',').next() == Some(&answer.status.to_string())
            && errorcode(answer) == row.shown[0]
            && has_challenge == (answer.status == 401)
    });
}

/// A provider that answers each user in a way of its own.
async fn provider() -> Upstream {
    Upstream::start(|seen| {
        let form = String::from_utf8_lossy(&seen.body).into_owned();
        let asked = |word: &str| form.contains(&format!("username={word}&"));
        let good = json!({"access_token": "provided", "expires_in": 60});
        match () {
            () if asked("gone") => Reply::Close,
            () if asked("fail") => Reply::Json(503, json!({})),
            () if asked("none") => Reply::Json(200, json!({"token": "x"})),
            () if form.contains("client_secret=wrong") => {
                Reply::Json(401, json!({"error": "invalid_client"}))
            }
            () if asked("deny") => Reply::Json(400, json!({"error": "invalid_grant"})),
            () => Reply::Json(200, good),
        }
    })
    .await
}

/// The flows that are there without any, with tokens and refresh tokens that end soon at
/// one path, and with the fault of each refusal if `short` is not.
fn provided(short: bool) -> String {
    format!(
        ", flows: [\
    {{condition: 'proxy.pathsuffix MatchesPath \"/access_token\"', \
     operation: GenerateAccessToken, generate_error_response: {short}}},\
    {{condition: 'proxy.pathsuffix MatchesPath \"/brief\"', operation: GenerateAccessToken, \
     generate_error_response: {short}, expires_in: 2000, refresh_token_expires_in: 1000}},\
    {{condition: 'proxy.pathsuffix MatchesPath \"/refresh_token\"', \
     operation: RefreshAccessToken, generate_error_response: {short}}},\
    {{operation: VerifyAccessToken}}]"
    )
}

/// A refusal of each cause that the table of the token endpoint has.
async fn refusals_of_the_token_endpoint(door: &Door) -> Answers {
    let mut answers = Answers::default();
    for (cause, name, value) in [
        ("unknown client, wrong secret", "client_id", Some("other")),
        (
            "unknown client, wrong secret",
            "client_secret",
            Some("wrong"),
        ),
        ("no client", "client_id", None),
        ("no or another grant type", "grant_type", None),
        ("no or another grant type", "grant_type", Some("implicit")),
        ("a field is missing, or there twice", "username", None),
        ("a field is missing, or there twice", "password", None),
        ("no scope that products have", "scope", Some("none")),
        ("the provider said no", "username", Some("deny")),
        (
            "the provider gave no answer, or another status",
            "username",
            Some("gone"),
        ),
        (
            "the provider gave no answer, or another status",
            "username",
            Some("fail"),
        ),
        ("its answer has no access token", "username", Some("none")),
    ] {
        answers.add(cause, ask(door, &with(name, value)).await);
    }
    let mut twice = FORM.to_vec();
    twice.push(("username", "demo"));
    answers.add(
        "a field is missing, or there twice",
        ask(door, &twice).await,
    );
    let refresh = |token: String| {
        let form = [
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", token),
            ("client_id", "orders".to_owned()),
            ("client_secret", "orders-secret".to_owned()),
        ];
        let request = http::client().post(door.proxy_url("/weather/refresh_token"));
        http::send(request.form(&form))
    };
    let cause = "a refresh token that is not good";
    answers.add(cause, refresh("nobodys".to_owned()).await);
    let brief = post(door, "/weather/brief", &FORM).await.expect(200).json();
    // Its access token ends after it, and can be asked for without being spent.
    eventually("both tokens expire", || async {
        let token = text(&brief, "access_token");
        let answer = door.get_as(&token, "any.test", "/weather/api").await;
        (answer.status == 401).then_some(())
    })
    .await;
    answers.add(cause, refresh(text(&brief, "refresh_token")).await);
    let application = json!({"name": "p", "developer": "dev@example.com",
                             "products": ["weather"], "status": "pending"});
    let made = door.admin_post("/broker/applications", &application).await;
    let made = made.expect(201).json();
    let mut form = FORM.to_vec();
    let (key, secret) = (text(&made, "consumer_key"), text(&made, "consumer_secret"));
    form.retain(|(name, _)| !name.starts_with("client_"));
    form.extend([("client_id", &*key), ("client_secret", &*secret)]);
    answers.add("application not approved", ask(door, &form).await);
    answers
}

#[tokio::test]
async fn refusals_of_the_token_endpoint_in_the_page_are_those_of_the_program() {
    let (upstream, provider) = (Upstream::echo().await, provider().await);
    let rows = rows("`ErrorCode`, `Error`");
    let door = brokered(&upstream, &provider.url("/token"), &provided(true)).await;
    let answers = refusals_of_the_token_endpoint(&door).await;
    answers.compare(&rows, |answer, row| {
        let body = answer.json();
        if row.status != answer.status.to_string() {
            return false;
        }
        match (body["ErrorCode"].as_str(), body["Error"].as_str()) {
            (Some(code), Some(text)) => {
                let mut texts = row.shown[1..].iter();
                row.shown[0] == code && texts.any(|listed| is_text(listed, text))
            }
            _ => errorcode(answer) == row.shown[0],
        }
    });
    for (cause, row) in &rows {
        let said: Vec<_> = answers.0[&**cause].iter().map(Answer::json).collect();
        for listed in row.shown.iter().skip(1) {
            let mut said = said.iter().filter_map(|body| body["Error"].as_str());
            assert!(said.any(|said| is_text(listed, said)), "{cause}: {listed}");
        }
    }
    let door = brokered(&upstream, &provider.url("/token"), &provided(false)).await;
    let faults = refusals_of_the_token_endpoint(&door).await;
    faults.compare(&rows, |answer, row| {
        let Some((status, codes)) = &row.fault else {
            return !errorcode(answer).is_null();
        };
        let status = status.map_or(row.status.clone(), |status| status.to_string());
        let mut codes = codes.iter();
        answer.status.to_string() == status && codes.any(|code| errorcode(answer) == *code)
    });
}

#[tokio::test]
async fn the_command_of_the_page_ends_one_token() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let token = text(&ask(&door, &FORM).await.expect(200).json(), "access_token");
    let call = || door.get_as(&token, "any.test", "/weather/x");
    call().await.expect(200);
    let (_, block) = PAGE
        .split_once("ends_one_token -->\n```sh\n")
        .expect("the block");
    let (command, _) = block.split_once("\n```").expect("its end");
    door.write("token.txt", &format!("{token}\n"));
    let output = door.shell(command);
    assert!(output.status.success(), "{output:?}");
    eventually("the token is refused", || async {
        (call().await.status == 401).then_some(())
    })
    .await;
}
