#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn defaulted(name: &str, mut object: Value) -> Value {
    let ty = schema::lookup(name).unwrap();
    apply(ty, &mut object);
    let once = object.clone();
    apply(ty, &mut object);
    assert_eq!(object, once, "defaults of {name} applied twice");
    object
}

#[test]
fn every_line_of_the_table_names_a_type_that_is_met() {
    let met: HashSet<&str> = reachable_types()
        .iter()
        .flat_map(|ty| inlined_names(*ty))
        .collect();
    let fills = table::FILLS.iter().map(|(name, _, _)| *name);
    for name in fills.chain(RULES.iter().map(|(name, _)| *name)) {
        assert!(met.contains(name), "{name}");
    }
    assert!(plans().contains_key(&schema::lookup("apps.v1.DeploymentList").unwrap()));
    assert!(!plans().contains_key(&schema::lookup("coordination.v1.Lease").unwrap()));
}

fn container() -> Value {
    json!({"name": "app", "image": "nginx:1.25", "resources": {}})
}

fn defaulted_container() -> Value {
    json!({
        "name": "app", "image": "nginx:1.25", "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
    })
}

// What every pod spec gets, with these restarts.
fn defaulted_spec(restart_policy: &str) -> Value {
    json!({
        "containers": [defaulted_container()], "dnsPolicy": "ClusterFirst",
        "restartPolicy": restart_policy, "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30
    })
}

fn template(restart_policy: Option<&str>) -> Value {
    let mut template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container()]}});
    if let Some(policy) = restart_policy {
        template["spec"]["restartPolicy"] = policy.into();
    }
    template
}

fn defaulted_template(restart_policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": defaulted_spec(restart_policy)})
}

#[test]
fn workloads_get_what_users_see() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let cases = [
        (
            "apps.v1.Deployment",
            json!({"selector": selector, "strategy": {}, "template": template(None)}),
            json!({
                "selector": selector, "template": defaulted_template("Always"), "replicas": 1,
                "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}
                }
            }),
        ),
        (
            "apps.v1.DaemonSet",
            json!({"selector": selector, "updateStrategy": {}, "template": template(None)}),
            json!({
                "selector": selector, "template": defaulted_template("Always"),
                "revisionHistoryLimit": 10,
                "updateStrategy": {
                    "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}
                }
            }),
        ),
        (
            "apps.v1.StatefulSet",
            json!({
                "selector": selector, "updateStrategy": {}, "template": template(None),
                "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {}, "status": {}}]
            }),
            json!({
                "selector": selector, "template": defaulted_template("Always"), "replicas": 1,
                "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "volumeClaimTemplates": [{
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"},
                    "spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}
                }]
            }),
        ),
        (
            "batch.v1.Job",
            json!({"template": template(Some("Never"))}),
            json!({
                "template": defaulted_template("Never"), "backoffLimit": 6,
                "completionMode": "NonIndexed", "completions": 1, "parallelism": 1,
                "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed",
                "suspend": false
            }),
        ),
        (
            "batch.v1.CronJob",
            json!({"schedule": "@daily", "jobTemplate": {"metadata": {}, "spec": {"template": template(Some("OnFailure"))}}}),
            json!({
                "schedule": "@daily", "concurrencyPolicy": "Allow", "suspend": false,
                "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
                "jobTemplate": {"metadata": {}, "spec": {"template": defaulted_template("OnFailure")}}
            }),
        ),
    ];
    for (ty, spec, expected) in cases {
        let object = defaulted(
            ty,
            json!({"metadata": {"name": "w", "labels": {"x": "y"}}, "spec": spec}),
        );
        assert_eq!(object["spec"], expected, "{ty}");
        assert_eq!(
            object["metadata"],
            json!({"name": "w", "labels": {"x": "y"}}),
            "{ty}"
        );
    }
}

#[test]
fn jobs_follow_their_own_fields() {
    let job = |spec: Value| defaulted("batch.v1.Job", json!({"metadata": {}, "spec": spec}));
    let parallel = job(json!({"parallelism": 3, "template": template(Some("Never"))}));
    assert!(parallel["spec"].get("completions").is_none());
    assert_eq!(parallel["metadata"]["labels"], json!({"app": "a"}));
    let indexed = job(json!({"completions": 3, "backoffLimitPerIndex": 1, "podFailurePolicy": {}}));
    assert_eq!(indexed["spec"]["backoffLimit"], json!(2147483647));
    assert_eq!(indexed["spec"]["podReplacementPolicy"], json!("Failed"));
    assert_eq!(indexed["spec"]["parallelism"], json!(1));
}

#[test]
fn only_pods_get_what_belongs_to_pods() {
    let spec = json!({
        "hostNetwork": true, "serviceAccount": "robot", "terminationGracePeriodSeconds": -1,
        "containers": [{
            "name": "app", "image": "nginx", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
        }]
    });
    let pod = defaulted(
        "core.v1.Pod",
        json!({"metadata": {}, "spec": spec, "status": {}}),
    );
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["resources"]["requests"],
        json!({"cpu": "500m", "memory": "1Gi"})
    );
    assert_eq!(
        container["ports"],
        json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}])
    );
    assert_eq!(container["imagePullPolicy"], json!("Always"));
    assert_eq!(pod["spec"]["enableServiceLinks"], json!(true));
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], json!(1));
    assert_eq!(pod["spec"]["serviceAccountName"], json!("robot"));
    let template = defaulted(
        "core.v1.PodTemplate",
        json!({"template": {"metadata": {}, "spec": spec}}),
    );
    let container = &template["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({"cpu": "500m"}));
    assert_eq!(
        container["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}])
    );
    assert!(
        template["template"]["spec"]
            .get("enableServiceLinks")
            .is_none()
    );
}

#[test]
fn resources_of_a_pod_as_a_whole_are_completed() {
    let pod = |own: Value| {
        let containers = json!([
            {"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"hugepages-2Mi": "4Mi"}}},
            {"name": "b", "resources": {"requests": {"cpu": "500m"}}}
        ]);
        let spec = json!({"containers": containers, "resources": own});
        defaulted(
            "core.v1.Pod",
            json!({"metadata": {}, "spec": spec, "status": {}}),
        )["spec"]["resources"]
            .clone()
    };
    assert_eq!(
        pod(json!({"limits": {"cpu": "4", "memory": "1Gi"}})),
        json!({
            "limits": {"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
            "requests": {"cpu": "1500m", "memory": "1Gi", "hugepages-2Mi": "4Mi"}
        })
    );
    assert_eq!(pod(json!({})), json!({}));
}

#[test]
fn probes_volumes_and_references() {
    let spec = json!({
        "containers": [{
            "name": "a", "image": "x:1", "resources": {},
            "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 80}},
            "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/x"}}},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        }],
        "volumes": [
            {"name": "none"},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "host", "hostPath": {"path": "/x"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "image", "image": {"reference": "x"}},
            {"name": "disk", "azureDisk": {"diskName": "d", "diskURI": "u"}}
        ]
    });
    let spec = defaulted(
        "core.v1.PodTemplateSpec",
        json!({"metadata": {}, "spec": spec}),
    )["spec"]
        .clone();
    let container = &spec["containers"][0];
    let numbers = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
    let mut http = numbers.clone();
    http["httpGet"] = json!({"port": 80, "path": "/", "scheme": "HTTP"});
    assert_eq!(container["livenessProbe"], http);
    assert_eq!(
        container["readinessProbe"]["grpc"],
        json!({"port": 80, "service": ""})
    );
    assert_eq!(
        container["lifecycle"]["preStop"]["httpGet"]["scheme"],
        json!("HTTP")
    );
    assert_eq!(
        container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"],
        json!("v1")
    );
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "none", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "host", "hostPath": {"path": "/x", "type": ""}},
            {"name": "token", "projected": {
                "defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]
            }},
            {"name": "image", "image": {"reference": "x", "pullPolicy": "Always"}},
            {"name": "disk", "azureDisk": {
                "diskName": "d", "diskURI": "u", "cachingMode": "ReadWrite", "fsType": "ext4",
                "kind": "Shared", "readOnly": false
            }}
        ])
    );
}

#[test]
fn services_get_their_defaults() {
    let service = |spec: Value| {
        let object = json!({"metadata": {}, "spec": spec, "status": {"loadBalancer": {}}});
        defaulted("core.v1.Service", object)["spec"].clone()
    };
    assert_eq!(
        service(json!({"ports": [{"port": 80, "targetPort": 0}]})),
        json!({
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]
        })
    );
    assert_eq!(
        service(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"})),
        json!({
            "type": "LoadBalancer", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Cluster",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true
        })
    );
    let named = service(json!({"type": "ExternalName", "externalName": "a.b"}));
    assert_eq!(
        named,
        json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"})
    );
    assert_eq!(
        service(json!({"externalIPs": ["1.2.3.4"]}))["externalTrafficPolicy"],
        json!("Cluster")
    );
}

#[test]
fn small_objects_get_their_defaults() {
    let cases = [
        (
            "core.v1.Secret",
            json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
            json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}}),
        ),
        ("core.v1.ConfigMap", json!({"data": null}), json!({})),
        (
            "core.v1.Namespace",
            json!({"metadata": {"name": "n"}, "status": {}}),
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}, "status": {"phase": "Active"}}),
        ),
        (
            "core.v1.Node",
            json!({"spec": {"podCIDRs": ["10.0.0.0/24"]}, "status": {"capacity": {"cpu": "100u"}}}),
            json!({
                "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
                "status": {"capacity": {"cpu": "1m"}, "allocatable": {"cpu": "1m"}}
            }),
        ),
        (
            "core.v1.LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
            json!({"spec": {"limits": [{
                "type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
                "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"}
            }]}}),
        ),
        (
            "rbac.v1.RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r", "apiGroup": ""}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
            json!({
                "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [
                    {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
                    {"kind": "ServiceAccount", "name": "s"}
                ]
            }),
        ),
        (
            "networking.v1.NetworkPolicy",
            json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}}),
            json!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}], "policyTypes": ["Ingress", "Egress"]}}),
        ),
        (
            "flowcontrol.v1.FlowSchema",
            json!({"spec": {"matchingPrecedence": 0}}),
            json!({"spec": {"matchingPrecedence": 1000}}),
        ),
        (
            "admissionregistration.v1.ValidatingWebhookConfiguration",
            json!({"webhooks": [{"name": "w", "clientConfig": {"service": {}}, "rules": [{"operations": ["CREATE"]}]}]}),
            json!({"webhooks": [{
                "name": "w", "clientConfig": {"service": {"port": 443}}, "failurePolicy": "Fail",
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "timeoutSeconds": 10, "rules": [{"operations": ["CREATE"], "scope": "*"}]
            }]}),
        ),
        (
            "core.v1.ReplicationController",
            json!({"metadata": {}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
            json!({
                "metadata": {"labels": {"a": "b"}},
                "spec": {"replicas": 1, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}}}
            }),
        ),
        (
            "storage.v1.VolumeAttachment",
            json!({"spec": {"source": {"inlineVolumeSpec": {"csi": {}}}}}),
            json!({"spec": {"source": {"inlineVolumeSpec": {"csi": {}}}}}),
        ),
        (
            "core.v1.PersistentVolume",
            json!({"spec": {}, "status": {}}),
            json!({"spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}),
        ),
        (
            "apiextensions.v1.CustomResourceDefinition",
            json!({"spec": {"names": {"kind": "Foo"}, "versions": [{"name": "v1", "storage": true}]}, "status": {}}),
            json!({
                "spec": {
                    "conversion": {"strategy": "None"},
                    "names": {"kind": "Foo", "singular": "foo", "listKind": "FooList"},
                    "versions": [{"name": "v1", "storage": true}]
                },
                "status": {"storedVersions": ["v1"]}
            }),
        ),
    ];
    for (ty, object, expected) in cases {
        assert_eq!(defaulted(ty, object), expected, "{ty}");
    }
}

#[test]
fn autoscalers_get_their_defaults() {
    let v2 = |spec: Value| {
        defaulted(
            "autoscaling.v2.HorizontalPodAutoscaler",
            json!({"metadata": {}, "spec": spec}),
        )["spec"]
            .clone()
    };
    assert_eq!(
        v2(json!({"maxReplicas": 3})),
        json!({
            "maxReplicas": 3, "minReplicas": 1,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]
        })
    );
    let behavior =
        v2(json!({"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}))["behavior"].clone();
    assert_eq!(behavior["scaleUp"]["policies"].as_array().unwrap().len(), 2);
    assert_eq!(behavior["scaleUp"]["stabilizationWindowSeconds"], json!(0));
    assert_eq!(behavior["scaleDown"]["selectPolicy"], json!("Disabled"));
    assert!(
        behavior["scaleDown"]
            .get("stabilizationWindowSeconds")
            .is_none()
    );
    let v1 = defaulted(
        "autoscaling.v1.HorizontalPodAutoscaler",
        json!({"metadata": {}, "spec": {}}),
    );
    assert_eq!(
        v1["spec"],
        json!({"minReplicas": 1, "targetCPUUtilizationPercentage": 80})
    );
}

/// An object of a type whose parts are there or not as the bytes decide.
pub(crate) fn generated(
    ty: TypeRef,
    depth: usize,
    choices: &mut impl Iterator<Item = u8>,
) -> Value {
    let mut map = Map::new();
    for field in ty.get().json_fields() {
        if choices.next().unwrap_or(0).is_multiple_of(3) && depth > 0 {
            map.insert(
                field.name.to_owned(),
                generated_field(&field.ty, depth - 1, choices),
            );
        }
    }
    Value::Object(map)
}

fn generated_field(ty: &FieldType, depth: usize, choices: &mut impl Iterator<Item = u8>) -> Value {
    let choice = choices.next().unwrap_or(0);
    match ty {
        FieldType::Object(ty) => generated(*ty, depth, choices),
        FieldType::List(inner) => (0..choice % 3)
            .map(|_| generated_field(inner, depth, choices))
            .collect(),
        FieldType::Map(inner) => json!({ "key": generated_field(inner, depth, choices) }),
        FieldType::Scalar(scalar) => generated_scalar(*scalar, choice),
    }
}

fn generated_scalar(scalar: Scalar, choice: u8) -> Value {
    match scalar {
        Scalar::Bool => choice.is_multiple_of(2).into(),
        Scalar::Int32 | Scalar::Int64 => (i64::from(choice) - 8).into(),
        Scalar::Uint32 | Scalar::Uint64 => choice.into(),
        Scalar::Quantity => format!("{choice}u").into(),
        Scalar::IntOrString => choice.into(),
        Scalar::String => ["", "Always", "Container", "10.0.0.1"][usize::from(choice % 4)].into(),
        // These have forms of their own that no default looks at.
        _ => Value::Null,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn defaults_change_nothing_twice_and_keep_the_normal_form(
        kind in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 400),
    ) {
        let mut types: Vec<&str> = schema::kinds().map(|(_, _, _, ty)| ty.get().name).collect();
        types.sort_unstable();
        let ty = schema::lookup(types[kind.index(types.len())]).unwrap();
        let object = generated(ty, 8, &mut bytes.into_iter());
        let mut object = objects::normalize::normalize(ty, object).unwrap().value;
        apply(ty, &mut object);
        let once = object.clone();
        apply(ty, &mut object);
        prop_assert_eq!(&once, &object);
        let again = objects::normalize::normalize(ty, object.clone()).unwrap().value;
        prop_assert_eq!(again, object);
    }
}
