#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

fn now() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn quota(hard: Value, used: Value) -> Quota {
    Quota::of(&json!({ "metadata": { "name": "q" }, "status": { "hard": hard, "used": used } }))
}

fn scoped(spec: Value) -> Quota {
    Quota::of(&json!({
        "metadata": { "name": "q" }, "spec": spec,
        "status": { "hard": { "pods": "1" }, "used": { "pods": "0" } },
    }))
}

fn create<'a>(new: &'a Value) -> Write<'a> {
    Write {
        subresource: "",
        new,
        old: None,
        now: now(),
    }
}

fn pod(requests: Value) -> Value {
    json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": requests } }] } })
}

fn measure(group: &str, resource: &str) -> Measure {
    Measure::of(&GroupResource::new(group, resource)).unwrap()
}

fn used(amounts: &Amounts) -> Value {
    amounts_to_value(amounts)
}

#[test]
fn a_pod_that_fits_is_added_to_what_is_used() {
    let quotas = [quota(
        json!({ "pods": "2", "requests.cpu": "2", "services": "5" }),
        json!({ "pods": "1", "requests.cpu": "500m", "services": "0" }),
    )];
    let pod = pod(json!({ "cpu": "750m" }));
    let changed = charge(&quotas, &Measure::Pods, &create(&pod)).unwrap();
    assert_eq!(changed.len(), 1);
    assert_eq!(
        used(&changed[0].1),
        json!({ "pods": "2", "requests.cpu": "1250m", "services": "0" })
    );
}

#[test]
fn what_does_not_fit_is_refused_in_upstreams_words() {
    for (hard, used, pod, refusal) in [
        (
            json!({ "cpu": "1", "memory": "1Gi", "pods": "5" }),
            json!({ "cpu": "500m", "memory": "1Gi", "pods": "1" }),
            pod(json!({ "cpu": "750m", "memory": "64Mi" })),
            "exceeded quota: q, requested: cpu=750m,memory=64Mi, used: cpu=500m,memory=1Gi, \
             limited: cpu=1,memory=1Gi",
        ),
        (
            json!({ "limits.memory": "1Gi", "cpu": "1" }),
            json!({}),
            pod(json!({})),
            "failed quota: q: must specify cpu for: c; limits.memory for: c",
        ),
        (
            json!({ "pods": "1", "count/pods": "1" }),
            json!({ "pods": "0" }),
            pod(json!({})),
            "status unknown for quota: q, resources: count/pods,pods",
        ),
        (
            json!({ "requests.nvidia.com/gpu": "1" }),
            json!({ "requests.nvidia.com/gpu": "1" }),
            pod(json!({ "nvidia.com/gpu": "1" })),
            "exceeded quota: q, requested: requests.nvidia.com/gpu=1, used: \
             requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1",
        ),
    ] {
        let refused = charge(&[quota(hard, used)], &Measure::Pods, &create(&pod));
        assert_eq!(refused.unwrap_err(), refusal);
    }
}

#[test]
fn quotas_about_other_things_or_without_status_do_not_count() {
    let quotas = [
        quota(json!({ "services": "0" }), json!({ "services": "0" })),
        quota(Value::Null, Value::Null),
    ];
    assert_eq!(
        charge(&quotas, &Measure::Pods, &create(&pod(json!({})))).unwrap(),
        []
    );
}

#[test]
fn scopes_decide_which_pods_count() {
    let plain = pod(json!({}));
    let asking = pod(json!({ "cpu": "1" }));
    let with = |field: &str, value: Value| {
        let mut pod = plain.clone();
        pod["spec"][field] = value;
        pod
    };
    let ending = with("activeDeadlineSeconds", json!(5));
    let important = with("priorityClassName", json!("high"));
    let far = with(
        "affinity",
        json!({ "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "podAffinityTerm": { "namespaces": ["x"] } }] } }),
    );
    let named = |scope: &str| json!({ "scopes": [scope] });
    let selected = |operator: &str, values: Value| {
        json!({ "scopeSelector": { "matchExpressions": [
            { "scopeName": "PriorityClass", "operator": operator, "values": values }] } })
    };
    for (spec, pod, counts) in [
        (named("Terminating"), &ending, true),
        (named("Terminating"), &plain, false),
        (named("NotTerminating"), &plain, true),
        (named("BestEffort"), &plain, true),
        (named("BestEffort"), &asking, false),
        (named("NotBestEffort"), &asking, true),
        (named("PriorityClass"), &important, true),
        (named("PriorityClass"), &plain, false),
        (selected("In", json!(["high"])), &important, true),
        (selected("In", json!(["low"])), &important, false),
        (selected("NotIn", json!(["high"])), &plain, true),
        (selected("DoesNotExist", json!([])), &plain, true),
        (named("CrossNamespacePodAffinity"), &far, true),
        (named("CrossNamespacePodAffinity"), &plain, false),
        (named("VolumeAttributesClass"), &plain, false),
    ] {
        let changed = charge(&[scoped(spec.clone())], &Measure::Pods, &create(pod)).unwrap();
        assert_eq!(!changed.is_empty(), counts, "{spec} {pod}");
    }
}

#[test]
fn pods_that_are_over_cost_only_their_count() {
    let mut pod = pod(json!({ "cpu": "1" }));
    let count_only = json!({ "count/pods": "1" });
    pod["status"] = json!({ "phase": "Succeeded" });
    assert_eq!(used(&Measure::Pods.usage(&pod, now())), count_only);
    pod["status"] = json!({ "phase": "Running" });
    pod["metadata"] = json!({
        "deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30,
    });
    assert_eq!(used(&Measure::Pods.usage(&pod, now())), count_only);
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(90);
    assert_eq!(used(&Measure::Pods.usage(&pod, now()))["cpu"], "1");
}

#[test]
fn pods_cost_what_they_hold_while_they_are_resized() {
    let mut pod = pod(json!({ "cpu": "2" }));
    pod["spec"]["overhead"] = json!({ "cpu": "250m" });
    let cpu = |pod: &Value| used(&Measure::Pods.usage(pod, now()))["requests.cpu"].clone();
    assert_eq!(cpu(&pod), "2250m");
    pod["status"] = json!({ "containerStatuses": [{
        "name": "c", "resources": { "requests": { "cpu": "1" } }, "allocatedResources": { "cpu": "3" } }] });
    assert_eq!(cpu(&pod), "3250m");
    pod["status"]["containerStatuses"][0]["allocatedResources"]["cpu"] = json!("1");
    assert_eq!(cpu(&pod), "2250m");
    pod["status"]["conditions"] = json!([{ "type": "PodResizePending", "reason": "Infeasible" }]);
    assert_eq!(cpu(&pod), "1250m");
    pod["spec"]["resources"] = json!({ "requests": { "cpu": "5" } });
    assert_eq!(cpu(&pod), "5250m");
}

#[test]
fn services_cost_ports_and_balancers() {
    let ports = json!([{ "port": 1, "nodePort": 30000 }, { "port": 2 }]);
    let service = |ty: &str, allocate: Value| json!({ "spec": { "type": ty, "ports": ports, "allocateLoadBalancerNodePorts": allocate } });
    for (service, node_ports, balancers) in [
        (service("ClusterIP", Value::Null), "0", "0"),
        (service("NodePort", Value::Null), "2", "0"),
        (service("LoadBalancer", json!(true)), "2", "1"),
        (service("LoadBalancer", json!(false)), "1", "1"),
    ] {
        assert_eq!(
            used(&Measure::Services.usage(&service, now())),
            json!({
                "count/services": "1", "services": "1",
                "services.nodeports": node_ports, "services.loadbalancers": balancers,
            })
        );
    }
}

#[test]
fn volume_claims_cost_storage_by_class_and_updates_only_what_is_added() {
    let claim = |storage: &str| json!({ "spec": { "storageClassName": "gold", "resources": { "requests": { "storage": storage } } } });
    let name = "gold.storageclass.storage.k8s.io/requests.storage";
    let quotas = [quota(json!({ name: "10Gi" }), json!({ name: "8Gi" }))];
    let (old, new) = (claim("8Gi"), claim("9Gi"));
    let write = Write {
        old: Some(&old),
        ..create(&new)
    };
    let changed = charge(&quotas, &Measure::VolumeClaims, &write).unwrap();
    assert_eq!(used(&changed[0].1), json!({ name: "9Gi" }));
    let shrunk = Write {
        old: Some(&new),
        ..create(&old)
    };
    assert_eq!(
        charge(&quotas, &Measure::VolumeClaims, &shrunk).unwrap(),
        []
    );
    assert!(charge(&quotas, &Measure::VolumeClaims, &create(&new)).is_err());
    let usage = Measure::VolumeClaims.usage(&claim("1500m"), now());
    assert_eq!(used(&usage)["requests.storage"], "2");
}

#[test]
fn device_claims_cost_the_worst_case() {
    let claim = json!({ "spec": { "devices": { "requests": [
        { "exactly": { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2 } },
        { "firstAvailable": [
            { "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1 },
            { "deviceClassName": "gpu", "allocationMode": "All" } ] },
    ] } } });
    assert_eq!(
        used(&Measure::DeviceClaims.usage(&claim, now())),
        json!({
            "count/resourceclaims.resource.k8s.io": "1",
            "gpu.deviceclass.resource.k8s.io/devices": "34",
        })
    );
}

#[test]
fn everything_else_is_counted_and_some_things_never_are() {
    let deployments = measure("apps", "deployments");
    assert!(deployments.tracks("count/deployments.apps"));
    assert!(!deployments.tracks("deployments"));
    let secrets = measure("", "secrets");
    assert!(secrets.tracks("secrets") && secrets.tracks("count/secrets"));
    assert_eq!(Measure::of(&GroupResource::new("", "events")), None);
    assert!(!deployments.concerns(false, "", &Value::Null, &Value::Null));
    assert!(!deployments.concerns(true, "scale", &Value::Null, &Value::Null));
}

#[test]
fn a_namespace_is_counted_from_its_objects() {
    let quota = json!({
        "spec": {
            "hard": { "pods": "5", "requests.cpu": "4", "secrets": "3", "count/widgets.example.com": "1" },
        },
        "status": { "hard": {}, "used": { "count/widgets.example.com": "1", "cpu": "1" } },
    });
    let tracked = tracked_resources(&quota);
    let names: Vec<&str> = tracked.iter().map(|r| r.resource.as_str()).collect();
    assert_eq!(names, ["pods", "secrets", "widgets"]);
    let objects = BTreeMap::from([
        (
            GroupResource::new("", "pods"),
            vec![pod(json!({ "cpu": "1" })), pod(json!({ "cpu": "500m" }))],
        ),
        (GroupResource::new("", "secrets"), vec![]),
    ]);
    let status = next_status(&quota, &objects, now()).unwrap();
    assert_eq!(
        status,
        json!({
            "hard": quota["spec"]["hard"],
            "used": {
                "pods": "2", "requests.cpu": "1500m", "secrets": "0", "count/widgets.example.com": "1",
            },
        })
    );
    let mut settled = quota.clone();
    settled["status"] = status;
    assert_eq!(next_status(&settled, &objects, now()), None);
}

#[test]
fn a_status_gives_back_when_an_amount_falls() {
    let status = |cpu: &str, pods: &str| json!({ "used": { "cpu": cpu, "pods": pods } });
    assert!(gives_back(&status("1", "2"), &status("900m", "3")));
    assert!(!gives_back(&status("1", "2"), &status("1000m", "3")));
    assert!(!gives_back(&json!({}), &status("0", "0")));
}
