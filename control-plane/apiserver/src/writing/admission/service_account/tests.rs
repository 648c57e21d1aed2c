use super::*;

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})
}

#[test]
fn a_pod_is_given_the_volume_that_programs_expect() {
    let mut pod = pod(json!({
        "initContainers": [{"name": "i"}],
        "containers": [
            {"name": "a", "volumeMounts": [{"name": "x", "mountPath": "/x"}]},
            {"name": "own", "volumeMounts": [{"name": "mine", "mountPath": MOUNT_PATH}]},
        ],
        "volumes": [{"name": "x", "emptyDir": {}}],
    }));
    equip(&mut pod, &json!({}), "kube-api-access-abcde");
    let mount = json!({"name": "kube-api-access-abcde", "readOnly": true, "mountPath": MOUNT_PATH});
    let spec = &pod["spec"];
    assert_eq!(spec["initContainers"][0]["volumeMounts"], json!([mount]));
    assert_eq!(spec["containers"][0]["volumeMounts"][1], mount);
    assert_eq!(items(&spec["containers"][1]["volumeMounts"]).len(), 1);
    let volume = json!({"name": "kube-api-access-abcde", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            "path": "namespace"}]}},
    ]}});
    assert_eq!(spec["volumes"][1], volume);
}

#[test]
fn a_volume_of_that_name_is_used_as_it_is() {
    let volumes = json!([{"name": "kube-api-access-own", "emptyDir": {}}]);
    let mut pod = pod(json!({"containers": [{"name": "a"}], "volumes": volumes}));
    equip(&mut pod, &json!({}), "kube-api-access-abcde");
    assert_eq!(pod["spec"]["volumes"], volumes);
    let mount = &pod["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["name"], "kube-api-access-own");
}

#[test]
fn the_pod_decides_about_its_token_before_the_account_does() {
    for (of_pod, of_account, mounted) in [
        (Value::Null, Value::Null, true),
        (Value::Null, json!(false), false),
        (json!(true), json!(false), true),
        (json!(false), json!(true), false),
    ] {
        let mut pod =
            pod(json!({"containers": [{"name": "a"}], "automountServiceAccountToken": of_pod}));
        equip(
            &mut pod,
            &json!({"automountServiceAccountToken": of_account}),
            "kube-api-access-x",
        );
        assert_eq!(
            !items(&pod["spec"]["volumes"]).is_empty(),
            mounted,
            "{of_pod} {of_account}"
        );
    }
}

#[test]
fn pull_secrets_come_from_the_account_only_where_the_pod_has_none() {
    let account = json!({"imagePullSecrets": [{"name": "a"}, {"name": "b"}]});
    let mut bare = pod(json!({}));
    equip(&mut bare, &account, "v");
    assert_eq!(
        bare["spec"]["imagePullSecrets"],
        account["imagePullSecrets"]
    );
    let mut own = pod(json!({"imagePullSecrets": [{"name": "c"}]}));
    equip(&mut own, &account, "v");
    assert_eq!(own["spec"]["imagePullSecrets"], json!([{"name": "c"}]));
}

#[test]
fn mirror_pods_refer_to_nothing() {
    for (spec, refused) in [
        (json!({}), None),
        (
            json!({"serviceAccountName": "default"}),
            Some("a mirror pod may not reference service accounts"),
        ),
        (
            json!({"volumes": [{"secret": {"secretName": "s"}}]}),
            Some("a mirror pod may not reference secrets"),
        ),
        (
            json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
            Some("a mirror pod may not use ServiceAccountToken volume projections"),
        ),
    ] {
        assert_eq!(check_mirror(&pod(spec.clone())).err(), refused, "{spec}");
    }
}

#[test]
fn an_account_may_limit_its_pods_to_its_own_secrets() {
    let account = |enforce: &str| {
        json!({"metadata": {"name": "robot", "annotations": {ENFORCE_MOUNTABLE: enforce}},
            "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]})
    };
    let env = |name: &str| json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]);
    let suffix = "is not allowed because service account robot does not reference that secret";
    for (spec, refused) in [
        (
            json!({"volumes": [{"secret": {"secretName": "mine"}}]}),
            None,
        ),
        (
            json!({"volumes": [{"secret": {"secretName": "other"}}]}),
            Some(format!("volume with secret.secretName=\"other\" {suffix}")),
        ),
        (
            json!({"containers": [{"name": "c", "env": env("other")}]}),
            Some(format!(
                "container c with envVar E referencing secret.secretName=\"other\" {suffix}"
            )),
        ),
        (
            json!({"containers": [{"name": "c", "env": env("mine")}]}),
            None,
        ),
        (
            json!({"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "other"}}]}]}),
            Some(format!(
                "init container i with envFrom referencing secret.secretName=\"other\" {suffix}"
            )),
        ),
        (
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]}),
            Some(
                "imagePullSecrets[1].name=\"other\" is not allowed because service account robot \
                 does not reference that imagePullSecret"
                    .to_owned(),
            ),
        ),
    ] {
        let pod = pod(spec.clone());
        assert_eq!(
            check_mountable(&pod, &account("true")).err(),
            refused,
            "{spec}"
        );
        assert!(check_mountable(&pod, &account("false")).is_ok(), "{spec}");
    }
    let debug = pod(json!({"ephemeralContainers": [{"name": "d", "env": env("other")}]}));
    assert!(check_ephemeral(&debug, &account("true")).is_err());
    assert!(check_mountable(&debug, &account("true")).is_ok());
}
