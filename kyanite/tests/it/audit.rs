//! The audit log and the audit webhook, with kubectl's requests in them.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{HookServer, Kubectl, ServerOptions, eventually};

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: ["system:apiserver"]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps]}]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- {level: Metadata, nonResourceURLs: [/version]}
"#;

/// Words that live as long as the process does, as flags of a test's server must.
fn leaked(words: Vec<String>) -> Vec<&'static str> {
    let words = words.into_iter();
    words
        .map(|word| &*Box::leak(word.into_boxed_str()))
        .collect()
}

fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn is_about(event: &Value, verb: &str, resource: &str, name: &str) -> bool {
    event["verb"] == verb
        && event["objectRef"]["resource"] == resource
        && event["objectRef"]["name"] == name
}

#[test]
fn requests_are_in_the_log_as_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    let flags = leaked(vec![
        "--controllers=".into(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ]);
    let Some(kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    kubectl
        .run("create configmap recorded --from-literal=a=b")
        .ok();
    kubectl
        .run("create secret generic hidden --from-literal=password=open-sesame")
        .ok();
    kubectl.run("get configmap missing").exits_with(1);
    kubectl
        .run("get configmap recorded --as=jane")
        .exits_with(1);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("open-sesame") && !text.contains("b3Blbi1zZXNhbWU"));
    assert!(!text.contains("managedFields"));
    let events = events(&log);
    let find = |verb: &str, resource: &str, name: &str| {
        let found = events
            .iter()
            .find(|event| is_about(event, verb, resource, name));
        found
            .unwrap_or_else(|| panic!("{verb} {resource} {name} in {text}"))
            .clone()
    };
    let created = find("create", "configmaps", "recorded");
    assert_eq!(created["kind"], "Event");
    assert_eq!(created["apiVersion"], "audit.k8s.io/v1");
    assert_eq!(created["stage"], "ResponseComplete");
    assert_eq!(created["requestObject"]["data"]["a"], "b");
    assert_eq!(created["responseObject"]["data"]["a"], "b");
    assert_eq!(
        created["responseStatus"],
        json!({"metadata": {}, "code": 201})
    );
    assert_eq!(
        created["annotations"]["authorization.k8s.io/decision"],
        "allow"
    );
    assert!(
        created["userAgent"]
            .as_str()
            .unwrap()
            .starts_with("kubectl")
    );
    assert_eq!(created["sourceIPs"], json!(["127.0.0.1"]));
    let secret = find("create", "secrets", "hidden");
    assert_eq!(secret["level"], "Metadata");
    assert_eq!(secret.get("requestObject"), None);
    let missing = find("get", "configmaps", "missing");
    assert_eq!(missing["responseStatus"]["code"], 404);
    assert_eq!(missing["responseStatus"]["reason"], "NotFound");
    // kubectl asks for the version in her name, too.
    let by_jane = |event: &&Value| event["impersonatedUser"]["username"] == "jane";
    let refused = |event: &&Value| is_about(event, "get", "configmaps", "recorded");
    let jane = events.iter().filter(by_jane).find(refused).unwrap();
    assert_eq!(
        jane["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(jane["responseStatus"]["code"], 403);
    let metrics = kubectl.run("get --raw /metrics").ok().stdout;
    for name in ["apiserver_audit_event_total", "apiserver_audit_level_total"] {
        assert!(metrics.contains(name), "{name}");
    }
}

#[test]
fn records_that_are_too_large_lose_their_objects_and_watches_are_recorded_to_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, log) = (dir.path().join("policy.yaml"), dir.path().join("audit.log"));
    std::fs::write(&policy, POLICY).unwrap();
    let flags = leaked(vec![
        "--controllers=".into(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-truncate-enabled".into(),
        "--audit-log-truncate-max-event-size=4000".into(),
    ]);
    let Some(kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    let large = "x".repeat(5000);
    kubectl
        .run(&format!("create configmap large --from-literal=a={large}"))
        .ok();
    kubectl
        .run("create configmap small --from-literal=a=b")
        .ok();
    let found = events(&log);
    let find = |name: &str| {
        let about = |event: &&Value| is_about(event, "create", "configmaps", name);
        found.iter().find(about).unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(
        find("large")["annotations"]["audit.k8s.io/truncated"],
        "true"
    );
    assert_eq!(find("large").get("requestObject"), None);
    assert_eq!(find("small")["requestObject"]["data"]["a"], "b");

    let _ = kubectl.run("get --raw /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1");
    let stages = || -> Vec<Value> {
        let watch = |event: &Value| event["verb"] == "watch";
        let watches = events(&log).into_iter().filter(watch);
        watches.map(|event| event["stage"].clone()).collect()
    };
    eventually("the watch has ended", || {
        stages() == ["ResponseStarted", "ResponseComplete"]
    });
}

fn take(_: &str, _: &Value) -> Value {
    json!({})
}

#[test]
fn records_are_sent_to_a_server_in_batches() {
    let hook = HookServer::start(take);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("webhook.conf");
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("{}/audit", hook.url),
            "certificate-authority-data": hook.authority}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}]});
    std::fs::write(&config, text.to_string()).unwrap();
    let flags = leaked(vec![
        "--controllers=".into(),
        "--audit-policy-file=kube-audit-admin".into(),
        format!("--audit-webhook-config-file={}", config.display()),
        "--audit-webhook-batch-max-wait=200ms".into(),
    ]);
    let Some(kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    kubectl.run("create configmap sent --from-literal=a=b").ok();
    eventually("the record arrives", || {
        let bodies = hook.seen.bodies.lock().unwrap();
        let lists = bodies.iter().filter(|body| body["kind"] == "EventList");
        let mut items =
            lists.flat_map(|list| list["items"].as_array().cloned().unwrap_or_default());
        items.any(|event| is_about(&event, "create", "configmaps", "sent"))
    });
}

#[test]
fn a_policy_that_cannot_be_read_stops_the_server() {
    let run = |words: &str| {
        let mut command = std::process::Command::new(crate::harness::KYANITE);
        crate::harness::Finished::run(command.args(words.split(' ')), "")
    };
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("policy.yaml");
    std::fs::write(
        &policy,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []",
    )
    .unwrap();
    let home = dir.path().join("home");
    let words = format!(
        "up --foreground --nodes=0 --port=0 --data-dir={} --kubeconfig={} --audit-policy-file={}",
        home.display(),
        dir.path().join("config").display(),
        policy.display()
    );
    run(&words)
        .exits_with(1)
        .complains("loaded illegal policy with 0 rules");
}
