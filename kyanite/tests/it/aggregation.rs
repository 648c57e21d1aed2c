//! Another API server behind this one: a small HTTPS server of the test, which kubectl reaches as a resource.

use serde_json::{Value, json};

use crate::harness::{HookServer, Kubectl, ServerOptions, eventually};

fn respond(path: &str, _: &Value) -> Value {
    let gadget = json!({"apiVersion": "behind.example.com/v1", "kind": "Gadget",
        "metadata": {"name": "one", "namespace": "default"}});
    match path.split('?').next().unwrap_or_default() {
        "/apis/behind.example.com/v1" => json!({"kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": "behind.example.com/v1", "resources": [{"name": "gadgets", "singularName": "gadget",
                "namespaced": true, "kind": "Gadget", "verbs": ["get", "list"]}]}),
        "/openapi/v2" => json!({"swagger": "2.0", "paths": {
            "/apis/behind.example.com/v1/namespaces/{namespace}/gadgets": {"get": {"operationId": "listGadgets",
                "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.behind.v1.Gadget"}}}}},
            "/apis/other.example.com/v1/things": {"get": {"operationId": "listThings"}}},
            "definitions": {"com.example.behind.v1.Gadget": {"type": "object", "description": "A gadget is behind.",
                "x-kubernetes-group-version-kind": [{"group": "behind.example.com", "version": "v1", "kind": "Gadget"}],
                "properties": {"part": {"type": "string", "description": "Which part it is."}}}}}),
        "/apis/behind.example.com/v1/namespaces/default/gadgets" => json!({"kind": "GadgetList",
            "apiVersion": "behind.example.com/v1", "metadata": {}, "items": [gadget]}),
        _ => gadget,
    }
}

fn registration(hook: &HookServer, port: u16) -> String {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.behind.example.com"},
        "spec": {"group": "behind.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
            "caBundle": hook.authority, "service": {"namespace": "default", "name": "backend", "port": port}}})
    .to_string()
}

#[test]
fn another_servers_resources_are_reached_through_this_one() {
    let hook = HookServer::start(respond);
    let port: u16 = hook.url.rsplit(':').next().unwrap().parse().unwrap();
    let flags = vec!["--controllers="];
    let Some(kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    kubectl.create(&registration(&hook, port));
    let condition = |field: &str| {
        kubectl.field(
            "apiservice/v1.behind.example.com",
            &format!(".status.conditions[0].{field}"),
        )
    };
    eventually("a server without a Service is not there", || {
        condition("message") == "service/backend in \"default\" is not present"
    });
    kubectl
        .run("get --raw /apis/behind.example.com/v1/namespaces/default/gadgets/one")
        .exits_with(1)
        .complains("ServiceUnavailable");
    // A name that leads to this machine stands in for an address inside of a cluster.
    kubectl.create(
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend", "namespace": "default"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}})
        .to_string(),
    );
    eventually("it is there", || {
        condition("message") == "all checks passed"
    });
    assert_eq!(condition("status"), "True");
    eventually("kubectl finds its kinds", || {
        kubectl
            .run("api-resources --api-group=behind.example.com")
            .stdout
            .contains("gadgets")
    });
    kubectl.run("get gadgets").ok().prints("one");
    let document = kubectl.run("get --raw /openapi/v2").ok().stdout;
    assert!(
        document.contains("A gadget is behind."),
        "its types are in the document of everything"
    );
    assert!(
        !document.contains("listThings"),
        "and nothing that it does not serve here"
    );
    // This printer reads the same document as protobuf.
    kubectl
        .run("explain gadget.part --output=plaintext-openapiv2")
        .ok()
        .prints("Which part it is.");
    kubectl
        .run("get gadget one --as=jane --as-group=system:masters")
        .ok()
        .prints("one");
    let heads = hook.seen.heads.lock().unwrap().join("\n");
    assert!(heads.contains("x-remote-user: jane"), "{heads}");
    assert!(heads.contains("x-remote-group: system:masters"), "{heads}");
    assert!(
        heads.contains("x-remote-user: system:kube-aggregator"),
        "{heads}"
    );
    assert!(
        !heads.contains("authorization:") && !heads.contains("impersonate-user"),
        "{heads}"
    );
    kubectl
        .run("get --raw /apis/behind.example.com")
        .ok()
        .prints("\"preferredVersion\"");
    kubectl.run("delete service backend").ok();
    eventually("it is gone", || condition("reason") == "ServiceNotFound");
    kubectl.run("delete apiservice v1.behind.example.com").ok();
    eventually("nothing is left of it", || {
        kubectl
            .run("get --raw /apis/behind.example.com")
            .stderr
            .contains("NotFound")
    });
    // Those of this server are always there.
    assert_eq!(
        kubectl.field("apiservice/v1.apps", ".status.conditions[0].message"),
        "Local APIServices are always available"
    );
}
