#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::{Value, json};

use super::*;

const SUBSCRIPTION: &str = "11111111-2222-3333-4444-555555555555";

fn cluster() -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/g (test)/providers/Microsoft.ContainerService/managedClusters/c"
    )
    .replace(' ', "")
}

fn ca() -> &'static str {
    // base64 of "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
}

fn token() -> Value {
    json!({
        "azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}},
        "node": {"kubelet": {"serverURL": "https://10.0.0.1:6443/", "caCertData": ca()}},
    })
}

fn arc() -> Value {
    json!({"azure": {
        "subscriptionId": SUBSCRIPTION, "tenantId": "t",
        "servicePrincipal": {"clientId": "app", "clientSecret": "hush"},
        "arc": {"machineName": "edge-1"},
        "targetCluster": {"resourceId": cluster(), "location": "westus"},
    }})
}

fn no_files(path: &str) -> Result<String, String> {
    match path {
        "/secret" => Ok("from a file\n".to_owned()),
        _ => Err("no such file".to_owned()),
    }
}

fn accepted(value: &Value) -> Accepted {
    read(&value.to_string(), &no_files).unwrap_or_else(|p| panic!("{p:?}"))
}

fn problems(value: &Value) -> Vec<String> {
    let found = read(&value.to_string(), &no_files).unwrap_err();
    found.into_iter().map(|p| p.path).collect()
}

fn with(mut base: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut base;
    for name in pointer.split('.') {
        at = &mut at[name];
    }
    *at = value;
    base
}

#[test]
fn a_bootstrap_token_and_a_server_are_enough() {
    let Accepted { config, warnings } = accepted(&token());
    assert_eq!(warnings, [""; 0]);
    assert_eq!(config.join.name(), "bootstrap token");
    assert_eq!(config.node.server, "https://10.0.0.1:6443");
    assert!(config.node.authority.contains("BEGIN CERTIFICATE"));
    assert_eq!(config.components.kubelet, Kubelet::Own);
    assert_eq!((config.node.max_pods, config.node.image_gc_high), (110, 85));
}

#[test]
fn era_a_means_arc_with_the_principal_as_its_credentials() {
    let config = accepted(&arc()).config;
    let Join::Arc(arc) = &config.join else {
        panic!("{:?}", config.join)
    };
    assert_eq!(
        (arc.machine.as_str(), arc.group.as_str()),
        ("edge-1", "g(test)")
    );
    assert_eq!(arc.location, "westus");
    assert!(
        !arc.assigns_roles,
        "era A waits unless it is told to assign"
    );
    // The tenant of the README's example, which has none beside the principal.
    let Some(Credentials::Secret { tenant, .. }) = &config.credentials else {
        panic!("{:?}", config.credentials)
    };
    assert_eq!(tenant, "t");
}

#[test]
fn each_way_to_join_is_read_as_its_era_means_it() {
    let principal = |extra: Value| {
        let mut value = arc();
        value["azure"].as_object_mut().unwrap().remove("arc");
        for (name, inner) in extra.as_object().unwrap() {
            value["azure"][name] = inner.clone();
        }
        accepted(&value).config
    };
    let cases = [
        (json!({}), "service principal"),
        (json!({"arc": {"enabled": false}}), "service principal"),
        (json!({"arc": {"enabled": true}}), "Arc"),
    ];
    for (extra, name) in cases {
        assert_eq!(principal(extra.clone()).join.name(), name, "{extra}");
    }
    let enabled = principal(json!({"arc": {"enabled": true}}));
    assert!(matches!(
        enabled.join,
        Join::Arc(Arc {
            assigns_roles: true,
            ..
        })
    ));
    let mut managed = arc();
    let azure = managed["azure"].as_object_mut().unwrap();
    azure.remove("arc");
    azure.remove("servicePrincipal");
    azure.insert("managedIdentity".into(), json!({}));
    assert_eq!(
        accepted(&managed).config.join,
        Join::ManagedIdentity(String::new())
    );
}

#[test]
fn newer_names_count_as_the_older_ones_which_win() {
    let mut value = token();
    value["components"] =
        json!({"kubernetes": "v1.33.1", "containerd": "2.0.4", "sandboxImage": "pause:3.9"});
    value["networking"] = json!({"dnsServiceIP": "10.1.0.10", "cniVersion": "1.6.0"});
    value["containerd"] = json!({"version": "1.7.20"});
    let config = accepted(&value).config;
    assert!(
        matches!(&config.components.kubelet, Kubelet::Upstream { version, .. } if version == "1.33.1")
    );
    assert_eq!(config.components.containerd, "1.7.20");
    assert_eq!(
        (config.node.dns.as_str(), config.components.cni.as_str()),
        ("10.1.0.10", "1.6.0")
    );
    assert_eq!(config.components.pause_image, "pause:3.9");
    let bare = with(
        token(),
        "node.kubelet",
        json!({"clusterFQDN": "c.hcp.example", "caCertData": ca()}),
    );
    assert_eq!(accepted(&bare).config.node.server, "https://c.hcp.example");
}

#[test]
fn unknown_fields_are_warned_about_with_what_was_probably_meant() {
    let cases = [
        ("azure.tenantID", Some("azure.tenantId")),
        ("azure.arc.machinename", Some("azure.arc.machineName")),
        (
            "node.kubelet.imageGcHighTreshold",
            Some("node.kubelet.imageGCHighThreshold"),
        ),
        ("node.dnsServiceIP", Some("node.kubelet.dnsServiceIP")),
        ("contianerd", Some("containerd")),
        ("azure.weather", None),
        ("somethingElse", None),
    ];
    for (path, meant) in cases {
        assert_eq!(known(path).as_deref(), meant, "{path}");
    }
    let value = with(token(), "azure.tenantID", json!("t"));
    let warnings = accepted(&value).warnings;
    assert_eq!(
        warnings,
        ["`azure.tenantID` is not known and has no effect: did you mean `azure.tenantId`?"]
    );
    let quiet = accepted(&with(token(), "npd", json!({"version": "v1"}))).warnings;
    assert!(quiet[0].contains("no effect"), "{quiet:?}");
}

#[test]
fn every_problem_is_named_at_once_with_its_field() {
    let value = json!({
        "azure": {"bootstrapToken": {"token": "short"}, "cloud": "Moon", "targetCluster": {"resourceId": "/subscriptions/x"}},
        "agent": {"nodeName": "No_Name"},
        "node": {"maxPods": "many", "labels": {"a b": "c"}, "taints": ["x:Never"],
            "kubelet": {"imageGCLowThreshold": 90, "nodeIP": "here", "caCertData": "?"}},
    });
    assert_eq!(
        problems(&value),
        [
            "node.maxPods",
            "azure.targetCluster.resourceId",
            "node.kubelet.caCertData",
            "azure.cloud",
            "azure.bootstrapToken.token",
            "node.kubelet.serverURL",
            "agent.nodeName",
            "node.kubelet.imageGCLowThreshold",
            "node.kubelet.nodeIP",
            "node.labels",
            "node.taints",
        ]
    );
}

#[test]
fn one_thing_wrong_is_one_problem() {
    let cases: &[(Value, &str)] = &[
        (
            with(
                token(),
                "azure.bootstrapToken.token",
                json!("ABCDEF.0123456789abcdef"),
            ),
            "azure.bootstrapToken.token",
        ),
        (
            with(token(), "azure.managedIdentity", json!({})),
            "azure.managedIdentity",
        ),
        (
            with(token(), "node.kubelet.serverURL", json!("http://x")),
            "node.kubelet.serverURL",
        ),
        (
            with(token(), "node.kubelet", json!({"serverURL": "x"})),
            "node.kubelet.caCertData",
        ),
        (
            with(token(), "kubernetes", json!({"kubelet": "mine"})),
            "kubernetes.kubelet",
        ),
        (
            with(
                token(),
                "node.labels",
                json!({"kubernetes.azure.com/managed": "true"}),
            ),
            "node.labels",
        ),
        (with(token(), "node", json!([])), "node"),
        (
            with(
                arc(),
                "azure.targetCluster",
                json!({"resourceId": cluster()}),
            ),
            "azure.targetCluster.location",
        ),
        (
            with(arc(), "azure.targetCluster", json!(null)),
            "azure.targetCluster.resourceId",
        ),
        (
            with(arc(), "azure.servicePrincipal.clientSecret", json!(null)),
            "azure.servicePrincipal.clientSecret",
        ),
        (
            with(
                arc(),
                "azure.servicePrincipal",
                json!({"clientId": "a", "clientSecretFile": "/nowhere"}),
            ),
            "azure.servicePrincipal.clientSecretFile",
        ),
        (json!([]), "(file)"),
    ];
    for (value, path) in cases {
        assert_eq!(
            problems(value).first().map(String::as_str),
            Some(*path),
            "{value}"
        );
    }
    let missing = read("{", &no_files).unwrap_err();
    assert!(missing[0].cause.contains("is not JSON"));
}

#[test]
fn a_name_that_nobody_knows_is_said_beside_what_is_missing() {
    let mut value = arc();
    let azure = value["azure"].as_object_mut().unwrap();
    let tenant = azure.remove("tenantId").unwrap();
    azure.insert("tenantID".into(), tenant);
    let found = read(&value.to_string(), &no_files).unwrap_err();
    let last = found.last().unwrap();
    assert_eq!(last.path, "azure.tenantID");
    assert!(last.remedy.contains("`azure.tenantId`"), "{last:?}");
    assert!(
        found.iter().any(|p| p.path == "azure.tenantId"),
        "{found:?}"
    );
}

#[test]
fn secrets_may_lie_in_files_and_never_show() {
    let principal = json!({"clientId": "a", "clientSecretFile": "/secret"});
    let config = accepted(&with(arc(), "azure.servicePrincipal", principal)).config;
    let Some(Credentials::Secret { secret, .. }) = &config.credentials else {
        panic!()
    };
    assert_eq!(secret.0, "from a file");
    let shown = format!("{config:?} {:?}", accepted(&token()).config);
    assert!(!shown.contains("from a file") && !shown.contains("0123456789abcdef"));
}
