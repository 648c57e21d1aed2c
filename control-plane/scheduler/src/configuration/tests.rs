#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::profile::{Plugin, Strategy};

fn document(more: &Value) -> Value {
    let mut document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
    });
    for (field, value) in more.as_object().unwrap() {
        document[field] = value.clone();
    }
    document
}

#[test]
fn what_is_not_said_is_as_upstream_has_it() {
    let read = Configuration::of(&document(&json!({}))).unwrap();
    assert!(read.leader_elect);
    let [profile] = &read.profiles[..] else {
        panic!("{read:?}");
    };
    assert_eq!(profile.name, "default-scheduler");
    assert_eq!(profile.weight(Plugin::TaintToleration), 3);
    assert_eq!(profile.strategy, Strategy::LeastAllocated);
    assert_eq!(read.election("us".into()).name, "kube-scheduler");
}

#[test]
fn profiles_choose_plugins_weights_and_arguments() {
    let read = Configuration::of(&document(&json!({
        "percentageOfNodesToScore": 50,
        "podMaxBackoffSeconds": 20,
        "profiles": [{
            "schedulerName": "packing",
            "plugins": {
                "multiPoint": { "disabled": [{ "name": "ImageLocality" }] },
                "score": { "disabled": [{ "name": "PodTopologySpread" }], "enabled": [{ "name": "NodeResourcesFit", "weight": 5 }] },
            },
            "pluginConfig": [
                { "name": "NodeResourcesFit", "args": { "scoringStrategy": { "type": "MostAllocated", "resources": [{ "name": "cpu", "weight": 3 }] } } },
                { "name": "InterPodAffinity", "args": { "hardPodAffinityWeight": 7 } },
            ],
        }],
    })))
    .unwrap();
    let profile = &read.profiles[0];
    assert_eq!(profile.percentage, Some(50));
    assert_eq!(read.backoff.most.as_secs(), 20);
    assert_eq!(profile.weight(Plugin::ImageLocality), 0);
    assert!(!profile.filters(Plugin::ImageLocality));
    assert_eq!(profile.weight(Plugin::PodTopologySpread), 0);
    assert!(profile.filters(Plugin::PodTopologySpread));
    assert_eq!(profile.weight(Plugin::NodeResourcesFit), 5);
    assert_eq!(profile.strategy, Strategy::MostAllocated);
    assert_eq!(profile.resources, [("cpu".to_owned(), 3)]);
    assert_eq!(profile.hard_affinity_weight, 7);
}

#[test]
fn what_is_wrong_is_named_by_its_path() {
    for (more, expected) in [
        (json!({ "profile": [] }), "profile: unknown field"),
        (
            json!({ "kind": "Pod" }),
            "kind: must be a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1",
        ),
        (
            json!({ "profiles": [{ "plugin": {} }] }),
            "profiles[0].plugin: unknown field",
        ),
        (
            json!({ "profiles": [{ "plugins": { "scores": {} } }] }),
            "profiles[0].plugins.scores: unknown field",
        ),
        (
            json!({ "profiles": [{ "plugins": { "score": { "enabled": [{ "name": "Coscheduling" }] } } }] }),
            "profiles[0].plugins.score.enabled[0].name: is no plugin that exists here",
        ),
        (
            json!({ "profiles": [{ "pluginConfig": [{ "name": "NodeResourcesFit", "args": { "scoringStrategy": { "typ": "" } } }] }] }),
            "profiles[0].pluginConfig[0].args.scoringStrategy.typ: unknown field",
        ),
        (
            json!({ "percentageOfNodesToScore": 101 }),
            "percentageOfNodesToScore: not in valid range [0-100]",
        ),
        (
            json!({ "podInitialBackoffSeconds": 20 }),
            "podMaxBackoffSeconds: must be greater than or equal to podInitialBackoffSeconds",
        ),
        (
            json!({ "leaderElection": { "leaseDuration": "soon" } }),
            "leaderElection.leaseDuration: must be a duration such as 15s",
        ),
        (
            json!({ "profiles": [{}, {}] }),
            "profiles[1].schedulerName: is the name of another profile already",
        ),
    ] {
        let error = Configuration::of(&document(&more)).unwrap_err().to_string();
        let expected = format!("the scheduler's configuration is wrong: {expected}");
        assert_eq!(error, expected, "{more}");
    }
}
