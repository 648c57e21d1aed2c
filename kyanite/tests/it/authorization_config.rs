//! Who may do what, decided by a chain with a webhook in it, from a file that is read again.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{HookServer, Pki, Replica, eventually_async, exchange};

/// Yes for config maps, no for the system's, and no opinion on anything else.
fn judge(_: &str, review: &Value) -> Value {
    let asked = &review["spec"]["resourceAttributes"];
    let status = match (&asked["namespace"], &asked["resource"]) {
        (ns, _) if ns == "kube-system" => {
            json!({"allowed": false, "denied": true, "reason": "hands off"})
        }
        (_, resource) if resource == "configmaps" => json!({"allowed": true, "reason": "why not"}),
        _ => json!({"allowed": false}),
    };
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status})
}

fn kubeconfig(pki: &Pki, hook: &HookServer, path: &str) -> PathBuf {
    let file = pki.path(&format!("hook{}.conf", path.replace('/', "-")));
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hook",
        "clusters": [{"name": "hook", "cluster": {"server": format!("{}{path}", hook.url),
            "certificate-authority-data": hook.authority}}],
        "contexts": [{"name": "hook", "context": {"cluster": "hook"}}],
    });
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

fn chain(kubeconfig: &Path) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration",
        "authorizers": [
            {"type": "Webhook", "name": "hook.example", "webhook": {
                "timeout": "1s", "subjectAccessReviewVersion": "v1",
                "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
                "matchConditions": [{"expression": "request.user.startsWith('hook:')"}],
            }},
            {"type": "RBAC", "name": "rbac"},
        ],
    })
}

/// What somebody is answered.
async fn ask(server: &Replica, user: &str, path: &str) -> (u16, String) {
    let request = http::Request::get(path)
        .header("impersonate-user", user)
        .body(Vec::new())
        .unwrap();
    exchange(&server.client, request).await.unwrap()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn a_webhook_decides_for_those_its_conditions_name_and_its_file_is_read_again() {
    let hook = HookServer::start(judge);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(decisions(&hook));
}

async fn decisions(hook: &HookServer) {
    let pki = Pki::new();
    let file = pki.path("authorization.json");
    let good = chain(&kubeconfig(&pki, hook, "/authorize"));
    std::fs::write(&file, good.to_string()).unwrap();
    let flags = [format!("--authorization-config={}", file.display())];
    let server = Replica::alone(&pki, &flags).await;
    let asked = || hook.seen.bodies.lock().unwrap().len();

    assert_eq!(ask(&server, "hook:jane", MAPS).await.0, 200);
    let review = hook.seen.bodies.lock().unwrap()[0].clone();
    assert_eq!(review["apiVersion"], "authorization.k8s.io/v1");
    assert_eq!(review["spec"]["user"], "hook:jane");
    assert_eq!(
        review["spec"]["resourceAttributes"],
        json!({"namespace": "default", "verb": "list", "version": "v1", "resource": "configmaps"})
    );
    assert_eq!(ask(&server, "hook:jane", MAPS).await.0, 200);
    assert_eq!(asked(), 1, "an answer is believed for a while");
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(
        ask(&server, "hook:jane", secrets).await.0,
        403,
        "RBAC has the last word"
    );
    let (code, said) = ask(
        &server,
        "hook:jane",
        "/api/v1/namespaces/kube-system/configmaps",
    )
    .await;
    assert_eq!(code, 403);
    assert!(said.contains("hands off"), "{said}");
    let before = asked();
    assert_eq!(ask(&server, "joe", MAPS).await.0, 403);
    assert_eq!(asked(), before, "joe is none of its business");

    // What asks inside a request gets the same answer.
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "hook:ann", "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "configmaps"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, answer) = server.post(path, &review).await;
    assert_eq!(code, 201, "{answer}");
    assert!(
        answer.contains("\"allowed\":true") && answer.contains("why not"),
        "{answer}"
    );

    // A file that makes no sense changes nothing, and is counted.
    let broken = good.to_string().replace("hook:", "hook:').nonsense(('");
    std::fs::write(&file, broken).unwrap();
    let failures =
        "apiserver_authorization_config_controller_automatic_reloads_total{status=\"failure\"}";
    eventually_async("the broken file was looked at", async || {
        let (_, page) = server.get("/metrics").await;
        page.contains(failures).then_some(()).ok_or(page.len())
    })
    .await;
    assert_eq!(ask(&server, "hook:jane", MAPS).await.0, 200);

    // One that does makes a difference: its webhook never answers, and its failure is a no.
    let hanging = chain(&kubeconfig(&pki, hook, "/hang"));
    std::fs::write(&file, hanging.to_string()).unwrap();
    eventually_async("the new chain is in force", async || {
        match ask(&server, "hook:jane", MAPS).await {
            (500, said) if said.contains("no answer within 1s") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(ask(&server, "joe", MAPS).await.0, 403, "others are served");
    assert_eq!(server.get(MAPS).await.0, 200);
    let (_, page) = server.get("/metrics").await;
    for line in [
        "apiserver_authorization_webhook_evaluations_total{name=\"hook.example\",result=\"timeout\"}",
        "apiserver_authorization_match_condition_exclusions_total{name=\"hook.example\"}",
        "apiserver_authorization_decisions_total{type=\"Webhook\",name=\"hook.example\",decision=\"allowed\"}",
    ] {
        assert!(page.contains(line), "{line}");
    }
}
