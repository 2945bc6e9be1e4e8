mod nested_routers;

use tempfile::TempDir;

use super::build_context::testing;
use super::*;

/// Route files in a directory of their own.
struct Files {
    directory: TempDir,
    files: RouteFiles,
    routes: Arc<Routes>,
}

fn environment(name: &str) -> Option<String> {
    match name {
        "RATE_N" => Some("6".to_owned()),
        "SECRET_RATE" => Some("Tops3cret-duration".to_owned()),
        _ => None,
    }
}

impl Files {
    fn new() -> Self {
        let mut files = RouteFiles::new(testing::parts(), Arc::default());
        files.environment = environment;
        Self {
            directory: TempDir::new().expect("a directory"),
            files,
            routes: Arc::default(),
        }
    }

    fn with(files: &[(&str, &str)]) -> Self {
        let mut new = Self::new();
        for (name, text) in files {
            new.write(name, text);
        }
        new.load();
        new
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("written");
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.directory.path().join(name)).expect("removed");
    }

    /// Loads what lies directly in the directory.
    fn load(&mut self) {
        let found = documents(self.directory.path()).expect("a directory");
        let read = |file: PathBuf| Source {
            text: build_context::read(&file),
            file,
        };
        self.routes = self.files.load(found.into_iter().map(read).collect());
    }

    /// Names of the routes in force, in order.
    fn names(&self) -> Vec<String> {
        self.routes
            .iter()
            .map(|route| route.name().to_owned())
            .collect()
    }

    fn state(&self, id: &str) -> State {
        self.files.board().read().find(id).expect("a file").state
    }

    /// What is wrong, without the directory.
    fn errors(&self) -> Vec<String> {
        let report = self.files.board().read();
        report.errors().map(|error| self.short(error)).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let report = self.files.board().read();
        let warnings = report.files.iter().flat_map(|file| &file.warnings);
        warnings.map(|warning| self.short(warning)).collect()
    }

    fn short(&self, line: &str) -> String {
        let directory = self.directory.path().display().to_string();
        line.replace(&format!("{directory}/"), "")
    }
}

/// What is wrong with one file.
fn errors(text: &str) -> Vec<String> {
    Files::with(&[("r.json", text)]).errors()
}

fn error(text: &str) -> String {
    errors(text).into_iter().next().unwrap_or_default()
}

/// A route with a throttle of this `config`.
fn throttled(config: &str) -> String {
    format!(
        "{{\"name\": \"t\", \"baseURI\": \"http://127.0.0.1:9\",\n\"handler\": {{\"type\": \"Chain\", \
         \"config\": {{\n\"filters\": [{{\"type\": \"ThrottlingFilter\", \"name\": \"limit\", \
         \"config\": {config}}}],\n\"handler\": \"ReverseProxyHandler\"}}}}}}"
    )
}

const RATE: &str = "{\"rate\": {\"numberOfRequests\": 6, \"duration\": \"10 s\"}}";

fn throttle_of(files: &Files, name: &str) -> Arc<dyn doorward_plugin_api::filter::Filter> {
    let entries = files.files.file_set.filters_of(name);
    entries.into_iter().next().expect("a filter")
}

#[test]
fn every_way_to_write_a_rate_loads() {
    for number in [
        "6",
        "\"6\"",
        "\"${integer('6')}\"",
        "\"&{rate.n}\"",
        "\"&{no.such|6}\"",
        "\"&{no.such|&{rate.n}}\"",
        "{\"$int\": \"&{rate.n|7}\"}",
    ] {
        let config = format!(
            "{{\"rate\": {{\"numberOfRequests\": {number}, \"duration\": \"10 seconds\"}}}}"
        );
        assert_eq!(errors(&throttled(&config)), [""; 0], "{number}");
    }
}

#[test]
fn a_wrong_rate_is_told_with_line_and_key() {
    let text = throttled("{\"rate\": {\"numberOfRequests\": 6,\n\"duration\": \"10\"}}");
    let error = error(&text);
    let place = "r.json:4: handler.config.filters[0].config.rate.duration: ";
    assert!(error.starts_with(place), "{error}");
}

#[test]
fn what_a_token_gives_is_in_no_message() {
    let text = throttled("{\"rate\": {\"numberOfRequests\": 6, \"duration\": \"&{secret.rate}\"}}");
    let error = error(&text);
    assert!(error.contains("rate.duration"), "{error}");
    assert!(!error.to_lowercase().contains("s3cret"), "{error}");
}

#[test]
fn an_unresolved_token_is_an_error_that_names_its_variable() {
    let error = error("{\"handler\": \"ClientHandler\",\n\"baseURI\": \"http://&{app.host}\"}");
    assert!(error.starts_with("r.json:2: baseURI: "), "{error}");
    assert!(error.contains("APP_HOST"), "{error}");
}

#[test]
fn properties_come_before_the_environment() {
    let text = "{\"properties\": {\"rate\": {\"n\": 3}, \"host\": \"a\"},\n\
                \"name\": \"&{rate.n}-&{host}\", \"condition\": \"${host == 'a'}\",\n\
                \"baseURI\": \"http://&{host}:1\", \"handler\": \"ClientHandler\"}";
    let files = Files::with(&[("r.json", text)]);
    assert_eq!(
        (files.errors().len(), files.names()),
        (0, vec!["3-a".to_owned()])
    );
}

#[test]
fn properties_of_another_file_are_found_and_followed() {
    let mut files = Files::with(&[
        ("p/props.json", "{\"who\": \"one\"}"),
        ("p/lines.properties", "who = two\n"),
        (
            "r.json",
            "{\"properties\": {\"$location\": \"p/props.json\"}, \"name\": \"&{who}\", \
             \"handler\": \"ClientHandler\"}",
        ),
        (
            "s.json",
            "{\"properties\": {\"$location\": \"${fileToUrl('DIR/p/lines.properties')}\"}, \
             \"name\": \"&{who}\", \"handler\": \"ClientHandler\"}",
        ),
    ]);
    let text = std::fs::read_to_string(files.directory.path().join("s.json")).expect("the file");
    let directory = files.directory.path().display().to_string();
    files.write("s.json", &text.replace("DIR", &directory));
    files.load();
    assert_eq!(files.errors(), [""; 0]);
    assert_eq!(files.names(), ["one", "two"]);
    assert!(files.files.is_current());
    files.write("p/props.json", "{\"who\": \"other\"}");
    assert!(!files.files.is_current());
    files.load();
    assert_eq!(files.names(), ["other", "two"]);
}

#[test]
fn names_decide_the_order_and_files_without_one_have_their_id() {
    let files = Files::with(&[
        ("9-x.json", "{\"handler\": \"ClientHandler\"}"),
        ("10-x.yaml", "handler: ClientHandler\n"),
        (
            "a.json",
            "{\"name\": \"zz\", \"handler\": \"ClientHandler\"}",
        ),
        ("z.yml", "{name: B, handler: ClientHandler}\n"),
    ]);
    assert_eq!(files.names(), ["10-x", "9-x", "B", "zz"]);
}

#[test]
fn a_name_or_id_belongs_to_one_file() {
    let named = |name: &str| format!("{{\n\"name\": \"{name}\", \"handler\": \"ClientHandler\"}}");
    let mut files = Files::with(&[("a.json", &named("x")), ("b.json", &named("x"))]);
    assert_eq!(files.names(), ["x"]);
    let told = files.errors();
    assert!(
        told[0].starts_with("b.json:2: name: 'x' is the name of "),
        "{told:?}"
    );
    assert!(told[0].contains("a.json"), "{told:?}");
    // The file that has it in force keeps it, whatever the files are called.
    files.write("0.json", &named("x"));
    files.load();
    assert_eq!(
        (files.state("a"), files.state("0")),
        (State::Loaded, State::Refused)
    );
    // And gives it to the next one when it goes.
    files.remove("a.json");
    files.load();
    assert_eq!((files.names().len(), files.state("0")), (1, State::Loaded));

    let files = Files::with(&[
        ("a.json", &named("x")),
        ("a.yaml", "name: y\nhandler: ClientHandler\n"),
    ]);
    assert_eq!(files.names(), ["x"]);
    assert!(
        files.errors()[0].contains("'a' is the id of "),
        "{:?}",
        files.errors()
    );
}

#[test]
fn a_broken_file_keeps_its_last_good_version_until_it_goes() {
    let mut files = Files::with(&[
        ("a.json", &throttled(RATE)),
        ("b.json", "{\"handler\": \"ClientHandler\"}"),
    ]);
    let before = throttle_of(&files, "a.json");
    for broken in ["", "{", "{\"handler\": {\"type\": \"NoSuchFilter\"}}", "[]"] {
        files.write("a.json", broken);
        files.load();
        assert_eq!(files.state("t"), State::Stale, "{broken}");
        assert_eq!(files.names(), ["b", "t"]);
        assert!(Arc::ptr_eq(&before, &throttle_of(&files, "a.json")));
    }
    files.write("a.json", &format!("\n{}", throttled(RATE)));
    files.load();
    assert_eq!(files.state("t"), State::Loaded);
    assert!(
        Arc::ptr_eq(&before, &throttle_of(&files, "a.json")),
        "buckets are kept"
    );
    files.write("a.json", "{");
    files.load();
    files.remove("a.json");
    files.load();
    assert_eq!(files.names(), ["b"]);
    assert_eq!(files.errors(), [""; 0]);
}

#[test]
fn a_filter_runs_on_while_it_says_the_same() {
    let heap = |rate: u32| {
        format!(
            "{{\"heap\": [{{\"name\": \"p\", \"type\": \"MappedThrottlingPolicy\", \"config\": \
             {{\"throttlingRateMapper\": \"${{request.method}}\", \"throttlingRatesMapping\": {{}}, \
             \"defaultRate\": {{\"numberOfRequests\": {rate}, \"duration\": \"1 s\"}}}}}}],\n\
             \"handler\": {{\"type\": \"Chain\", \"config\": {{\"filters\": [FIRST{{\"type\": \
             \"ThrottlingFilter\", \"config\": {{\"throttlingRatePolicy\": \"p\"}}}}], \
             \"handler\": \"ClientHandler\"}}}}}}"
        )
    };
    let mut files = Files::with(&[("a.json", &heap(6).replace("FIRST", ""))]);
    assert_eq!(files.errors(), [""; 0]);
    let first = throttle_of(&files, "a.json");
    // Something in front of it changes nothing.
    let group = "{\"type\": \"ChainOfFilters\", \"config\": {\"filters\": []}},";
    files.write("a.json", &heap(6).replace("FIRST", group));
    files.load();
    assert!(Arc::ptr_eq(&first, &throttle_of(&files, "a.json")));
    // The policy that it names does.
    files.write("a.json", &heap(7).replace("FIRST", group));
    files.load();
    assert_eq!(files.errors(), [""; 0]);
    assert!(!Arc::ptr_eq(&first, &throttle_of(&files, "a.json")));
}

#[test]
fn heap_errors_are_told_by_name() {
    let with = |heap: &str| {
        error(&format!(
            "{{\"handler\": \"ClientHandler\",\n\"heap\": {heap}}}"
        ))
    };
    for (heap, message) in [
        (
            "[{\"name\": \"a\", \"type\": \"ChainOfFilters\", \"config\": {\"filters\": [\"b\"]}},\n\
             {\"name\": \"b\", \"type\": \"ChainOfFilters\", \"config\": {\"filters\": [\"a\"]}}]",
            "r.json:3: heap[1].config.filters[0]: circular reference: a -> b -> a",
        ),
        (
            "[{\"name\": \"a\", \"type\": \"ClientHandler\"},\n{\"name\": \"a\", \"type\": \"ClientHandler\"}]",
            "r.json:3: heap[1].name: an object is called 'a' already, on line 2",
        ),
        (
            "[{\"type\": \"ClientHandler\"}]",
            "r.json:2: heap[0]: required field missing: name",
        ),
        (
            "[{\"name\": \"a\"}]",
            "r.json:2: heap[0]: required field missing: type",
        ),
        ("[5]", "r.json:2: heap[0]: expected an object"),
        ("5", "r.json:2: heap: expected an array of objects"),
        (
            "[{\"name\": \"p\", \"type\": \"DefaultRateThrottlingPolicy\", \"config\": \
             {\"defaultRate\": {\"numberOfRequests\": 1, \"duration\": \"1 s\"}, \
             \"delegateThrottlingRatePolicy\": \"p\"}}]",
            "r.json:2: heap[0].config.delegateThrottlingRatePolicy",
        ),
    ] {
        let told = with(heap);
        assert!(told.starts_with(message), "{told}");
    }
}

#[test]
fn unknown_and_unserved_types_are_told_what_to_use() {
    let of = |name: &str| error(&format!("{{\"handler\": {{\"type\": \"{name}\"}}}}"));
    let unknown = of("NoSuchHandler");
    assert!(
        unknown.starts_with("r.json:1: handler.type: 'NoSuchHandler' is no known type"),
        "{unknown}"
    );
    assert!(
        unknown.contains("ThrottlingFilter") && unknown.contains("Chain,"),
        "{unknown}"
    );
    let refused = of("ScriptableHandler");
    assert!(
        refused.contains("ScriptableHandler is not served: "),
        "{refused}"
    );
    let filter = of("ChainOfFilters");
    assert!(filter.contains("is not a handler"), "{filter}");
}

#[test]
fn names_are_those_of_the_heap_then_of_what_is_around_it() {
    let files = Files::with(&[
        (
            "config.json",
            "{\"heap\": [{\"name\": \"limit\", \"type\": \"ThrottlingFilter\", \"config\": RATE},\n\
             {\"name\": \"_router\", \"type\": \"Router\", \"config\": {\"directory\": \"routes\"}}],\n\
             \"properties\": {\"who\": \"outer\"}, \"handler\": \"_router\"}"
                .replace("RATE", RATE)
                .as_str(),
        ),
        (
            "routes/a.json",
            "{\"name\": \"a-&{who}\", \"handler\": {\"type\": \"Chain\", \"config\": {\"filters\": \
             [\"limit\"], \"handler\": \"ClientHandler\"}}}",
        ),
        (
            "routes/b.json",
            "{\"properties\": {\"who\": \"inner\"}, \"name\": \"b-&{who}\", \"heap\": [{\"name\": \
             \"limit\", \"type\": \"ChainOfFilters\", \"config\": {\"filters\": []}}], \"handler\": \
             {\"type\": \"Chain\", \"config\": {\"filters\": [\"limit\"], \"handler\": \
             \"ClientHandler\"}}}",
        ),
        ("routes/c.json", "{\"handler\": \"nobody\"}"),
    ]);
    let report = files.files.board().read();
    let shown: Vec<_> = report
        .files
        .iter()
        .map(|file| (file.id.as_str(), file.name.as_str(), file.state.as_str()))
        .collect();
    assert_eq!(
        shown,
        [
            ("config", "config", "loaded"),
            ("config/a", "a-outer", "loaded"),
            ("config/b", "b-inner", "loaded"),
            ("config/c", "c", "refused"),
        ]
    );
    let told = files.errors();
    assert!(
        told[0].starts_with("routes/c.json:1: handler: no object is called 'nobody'"),
        "{told:?}"
    );
    assert!(told[0].contains("_router, limit"), "{told:?}");
}

#[test]
fn handlers_of_every_kind_load() {
    let files = Files::with(&[(
        "r.json",
        r#"{
  // As people write them.
  "baseURI": "http://app.example:8081/ignored",
  "condition": "${find(request.uri.path, '^/x')}",
  "_id": "r", "capture": "all", "myDecorator": {"a": 1},
  "handler": {"type": "DispatchHandler", "capture": "entity", "config": {"bindings": [
    {"condition": "${request.method == 'PUT'}", "baseURI": "https://other:8443",
     "handler": {"type": "ReverseProxyHandler", "config": {"soTimeout": "30 s",
       "connectionTimeout": "2 seconds", "hostnameVerifier": "ALLOW_ALL",
       "retries": {"enabled": true, "count": 3, "delay": "1 s"},
       "tls": {"type": "ClientTlsOptions", "config": {"trustManager": {"type": "TrustAllManager"}}},
       "connections": 64, "typo": 1}}},
    {"handler": {"type": "Chain", "config": {"filters": [
      {"type": "ConditionEnforcementFilter", "config": {"condition": "${request.method != 'GET'}",
        "failureHandler": {"type": "StaticResponseHandler", "config": {"status": 405}}}},
      {"type": "ConditionalFilter", "config": {"condition": true, "delegate": {
        "type": "ChainOfFilters", "config": {"filters": []}}}},
      {"type": "SwitchFilter", "config": {
        "onRequest": [{"condition": "${request.method == 'TRACE'}", "handler": "teapot"}],
        "onResponse": [{"condition": "${response.status.code == 502}", "handler": "teapot"}]}}
    ], "handler": {"type": "Delegate", "timer": true, "config": {"delegate": "ClientHandler"}}}}}
  ]}},
  "heap": [{"name": "teapot", "type": "StaticResponseHandler", "config": {
    "status": "${integer('418')}", "reason": "I'm a teapot",
    "headers": {"Content-Type": ["text/plain"], "X-One": "${request.method}"},
    "entity": ["line one",
      "line two"]}}]
}"#,
    )]);
    assert_eq!(files.errors(), [""; 0]);
    let warnings = files.warnings().join("\n");
    for told in [
        "myDecorator: is taken for a decorator and has no effect",
        "config.typo: is not known and has no effect",
        "retries.delay: has no effect here",
        "config.connections: has no effect here",
    ] {
        assert!(warnings.contains(told), "{told} is not in\n{warnings}");
    }
}

#[test]
fn a_root_that_there_is_not_is_null_with_a_warning() {
    let files = Files::with(&[(
        "r.json",
        r#"{"condition": "${find(reqest.uri.path, '^/a')}", "handler": {"type": "Chain", "config": {
  "filters": [
    {"type": "ThrottlingFilter", "config": {
      "requestGroupingPolicy": "${nowhere.user}",
      "rate": {"numberOfRequests": 6, "duration": "1 s"}}},
    {"type": "HeaderFilter", "config": {"messageType": "REQUEST",
      "add": {"X-A": ["${somewhere['a']}"]}}}
  ], "handler": "ClientHandler"}}}"#,
    )]);
    assert_eq!(files.errors(), [""; 0]);
    let warnings = files.warnings();
    for (line, place, told) in [
        (
            "r.json:1: ",
            "condition",
            "there is no `reqest`; did you mean `request`?",
        ),
        (
            "r.json:3: ",
            "requestGroupingPolicy",
            "there is no `nowhere`",
        ),
        ("r.json:6: ", "add", "there is no `somewhere`"),
    ] {
        let found = warnings.iter().any(|warning| {
            warning.starts_with(line) && warning.contains(place) && warning.contains(told)
        });
        assert!(found, "{line}{place}: {told} is not in {warnings:#?}");
    }
}

#[test]
fn wrong_fields_are_told_by_line_and_key() {
    for (handler, message) in [
        (
            r#"{"type": "Chain", "config": {"filters": [], "handler": 5}}"#,
            "handler.config.handler: expected the name",
        ),
        (
            r#"{"type": "Chain", "config": {"filters": {}, "handler": "ClientHandler"}}"#,
            "handler.config.filters: expected an array",
        ),
        (
            r#"{"type": "Chain", "config": {"filters": []}}"#,
            "handler.config.handler: is required",
        ),
        (
            r#"{"type": "Chain", "config": {"filters": ["ClientHandler"], "handler": "ClientHandler"}}"#,
            "filters[0]: is not a filter",
        ),
        (
            r#"{"type": "Chain", "config": []}"#,
            "handler.config: expected an object",
        ),
        (r#"{"type": 5}"#, "handler.type: expected a string"),
        (
            r#"{"type": "StaticResponseHandler", "config": {}}"#,
            "config.status: is required",
        ),
        (
            r#"{"type": "StaticResponseHandler", "config": {"status": 99}}"#,
            "config.status: value should be",
        ),
        (
            r#"{"type": "StaticResponseHandler", "config": {"status": 200, "headers": {"a b": "c"}}}"#,
            "config.headers.a b: is not the name",
        ),
        (
            r#"{"type": "StaticResponseHandler", "config": {"status": 200, "entity": "${request.nope}"}}"#,
            "config.entity: column",
        ),
        (
            r#"{"type": "DispatchHandler", "config": {}}"#,
            "config.bindings: is required",
        ),
        (
            r#"{"type": "DispatchHandler", "config": {"bindings": [{"condition": "${response.status.code == 1}", "handler": "ClientHandler"}]}}"#,
            "bindings[0].condition: looks at the response",
        ),
        (
            r#"{"type": "Chain", "config": {"handler": "ClientHandler", "filters": [{"type": "HttpBasicAuthFilter", "config": {"username": "u", "password": "p", "failureHandler": "ClientHandler"}}]}}"#,
            "config.failureHandler: must answer by itself",
        ),
        (
            r#"{"type": "ClientHandler", "config": {"soTimeout": "10"}}"#,
            "config.soTimeout: ",
        ),
        (
            r#"{"type": "ClientHandler", "baseURI": "ftp://x"}"#,
            "handler.baseURI: ",
        ),
    ] {
        let told = error(&format!("{{\"handler\":\n{handler}}}"));
        assert!(
            told.starts_with("r.json:2: ") && told.contains(message),
            "{told}"
        );
    }
    let told =
        error("{\"handler\": \"ClientHandler\", \"condition\": \"${response.status.code == 1}\"}");
    assert!(told.contains("condition: looks at the response"), "{told}");
    let told = error("{\"name\": \"x\", \"condition\": true}");
    assert_eq!(told, "r.json:1: required field missing: handler");
}

#[test]
fn a_thousand_files_load_and_an_unchanged_one_is_not_built_again() {
    let mut files = Files::new();
    for i in 0..1000 {
        files.write(
            &format!("r{i}.json"),
            &throttled(RATE).replace("\"t\"", &format!("\"t{i}\"")),
        );
    }
    files.load();
    assert_eq!((files.names().len(), files.errors().len()), (1000, 0));
    let before = files.routes.clone();
    files.write(
        "r7.json",
        "{\"name\": \"t7\", \"handler\": \"ClientHandler\"}",
    );
    files.load();
    let same = before.iter().zip(files.routes.iter());
    assert_eq!(same.filter(|(old, new)| Arc::ptr_eq(old, new)).count(), 999);
}

#[test]
fn route_files_without_handlers_of_ours_are_never_half_in_force() {
    let files = Files::with(&[(
        "a.json",
        "{\"handler\": \"ClientHandler\", \"heap\": [{\"name\": \"x\", \"type\": \"Nope\"}]}",
    )]);
    assert_eq!(files.state("a"), State::Refused);
    assert!(files.routes.is_empty());
    let good = Files::with(&[("a.json", "{\"handler\": \"ClientHandler\"}")]);
    assert_eq!(good.names(), ["a"]);
}
