//! What is authorized is what is executed: whoever may use one verb gets nothing done by any other, however the
//! request is written down.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::{Person, Server};

const PLACE: &str = "namespaces/one-verb/configmaps";
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Collection, object, what hangs below one, and both in the old form of a watch.
const PATHS: [&str; 5] = ["", "/a", "/a/status", "watch ", "watch /a"];
const QUERIES: [&str; 7] = [
    "",
    "watch=1",
    "watch=false",
    "watch=true&dryRun=All",
    "dryRun=All",
    "fieldSelector=metadata.name%3Db",
    "limit=1&labelSelector=no%3Done",
];

/// The names and versions of what is there.
type State = BTreeMap<String, String>;

fn state(admin: &Person<'_>) -> State {
    let list = admin.get(&format!("/api/v1/{PLACE}")).ok();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let mine = items.iter().map(|item| &item["metadata"]);
    mine.filter(|metadata| metadata["name"] != "kube-root-ca.crt")
        .map(|metadata| {
            let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
            (text("name"), text("resourceVersion"))
        })
        .collect()
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

/// One way to write down a request.
struct Request {
    method: &'static str,
    path: &'static str,
    query: &'static str,
    body: Value,
}

impl Request {
    fn url(&self) -> String {
        let (root, rest) = match self.path.strip_prefix("watch ") {
            Some(rest) => ("/api/v1/watch", rest),
            None => ("/api/v1", self.path),
        };
        // However it is asked for, a watch ends.
        format!("{root}/{PLACE}{rest}?timeoutSeconds=1&{}", self.query)
    }

    fn changes_nothing(&self) -> bool {
        self.query.contains("dryRun") || self.body.get("dryRun").is_some()
    }
}

fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    for (method, path) in METHODS
        .iter()
        .flat_map(|m| PATHS.iter().map(move |p| (*m, *p)))
    {
        let bodies = match method {
            "POST" => vec![config_map("c")],
            "PUT" => vec![config_map("a")],
            "PATCH" => vec![json!({"data": {"k": "w"}})],
            "DELETE" => vec![
                Value::Null,
                json!({"dryRun": ["All"]}),
                json!({"preconditions": {"uid": "another"}, "dryRun": ["All"]}),
            ],
            _ => vec![Value::Null],
        };
        for query in QUERIES {
            all.extend(bodies.iter().cloned().map(|body| Request {
                method,
                path,
                query,
                body,
            }));
        }
    }
    all
}

/// Whether the difference between two states is one that a verb makes.
fn fits(verb: &str, before: &State, after: &State) -> bool {
    let is_gone = |name: &&String| !after.contains_key(*name);
    let gone: Vec<&String> = before.keys().filter(is_gone).collect();
    let new = after.keys().filter(|name| !before.contains_key(*name));
    let is_changed = |(name, version): &(&String, &String)| {
        after.get(*name).is_some_and(|later| later != *version)
    };
    let changed: Vec<&String> = before
        .iter()
        .filter(is_changed)
        .map(|(name, _)| name)
        .collect();
    let done = (gone.as_slice(), new.count(), changed.as_slice());
    match verb {
        "create" => matches!(done, ([], 0 | 1, [])),
        "update" | "patch" => {
            matches!(done, ([], 0, [] | [_])) && changed.iter().all(|n| *n == "a")
        }
        "delete" => matches!(done, ([] | [_], 0, [])) && gone.iter().all(|n| *n == "a"),
        "deletecollection" => matches!(done, (_, 0, [])),
        _ => before == after,
    }
}

/// Whether an answer shows what a verb may show.
fn shows(verb: &str, text: &str) -> bool {
    let is_event = text.starts_with("{\"type\":");
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    match answer["kind"].as_str() {
        Some("Status") | None if !is_event => true,
        Some("ConfigMapList") => matches!(verb, "list" | "deletecollection"),
        Some("ConfigMap") => !matches!(verb, "list" | "watch" | "deletecollection"),
        _ => is_event && verb == "watch",
    }
}

#[test]
fn who_may_use_one_verb_gets_nothing_else_done() {
    let server = Server::start();
    let admin = server.admin();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one-verb"}});
    admin.post("/api/v1/namespaces", &namespace).ok();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/one-verb";
    for verb in VERBS {
        let role = json!({"metadata": {"name": verb}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps", "configmaps/status"], "verbs": [verb]}]});
        admin.post(&format!("{rbac}/roles"), &role).ok();
        let binding = json!({"metadata": {"name": verb},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": verb},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": verb}]});
        admin.post(&format!("{rbac}/rolebindings"), &binding).ok();
        let mut done = 0;
        let mut before = State::new();
        for request in requests() {
            for name in ["a", "b"] {
                if !before.contains_key(name) {
                    admin.post(&format!("/api/v1/{PLACE}"), &config_map(name));
                }
            }
            before = state(&admin);
            let (code, text) = ask(&server, verb, &request);
            let what = format!(
                "{verb}: {} {} {}",
                request.method,
                request.url(),
                request.body
            );
            let after = state(&admin);
            if code == 403 {
                assert_eq!(before, after, "{what} is forbidden");
                continue;
            }
            assert!(
                fits(verb, &before, &after),
                "{what} did {before:?} -> {after:?}"
            );
            assert!(
                !request.changes_nothing() || before == after,
                "{what} was a trial"
            );
            assert!(shows(verb, &text), "{what} shows {text}");
            done += usize::from(code < 300);
            before = after;
        }
        assert!(done > 0, "{verb} can be used at all");
    }
}

fn ask(server: &Server, user: &str, request: &Request) -> (u16, String) {
    let media = match request.method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match &request.body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let built = http::Request::builder()
        .method(request.method)
        .uri(request.url())
        .header("content-type", media)
        .header("impersonate-user", user);
    server.send(built.body(body).expect("a legal request"))
}
