#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::Rule;
use crate::{Attributes, ResourceTarget, Target, User};

/// `verb group resource[/subresource] name` or `verb /path` as a question.
fn allows(rule: &Rule, question: &str) -> bool {
    let user = User::default();
    let words: Vec<&str> = question.split(' ').collect();
    let target = match words[..] {
        [_, path] => Target::Path(path),
        [_, group, resource, name] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let part = |text| if text == "-" { "" } else { text };
            Target::Resource(ResourceTarget {
                group: part(group),
                resource,
                subresource,
                name: part(name),
                ..ResourceTarget::default()
            })
        }
        _ => panic!("not a question: {question}"),
    };
    rule.allows(&Attributes {
        user: &user,
        verb: words[0],
        target,
    })
}

#[test]
fn a_rule_allows_what_upstream_lets_it_allow() {
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]});
    let scale = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]});
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    let named = json!({"verbs": ["get", "create"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]});
    let paths = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*", "/x**"]});
    let every_path = json!({"verbs": ["get"], "nonResourceURLs": ["*"]});
    let cases = [
        (&pods, "get - pods -", true),
        (&pods, "get - pods p", true),
        (&pods, "get - pods/log p", true),
        (&pods, "get - pods/exec p", false),
        (&pods, "list - pods -", false),
        (&pods, "get apps pods p", false),
        (&pods, "get /pods", false),
        (&scale, "patch apps deployments/scale d", true),
        (&scale, "patch apps deployments d", false),
        (&scale, "patch apps deployments/autoscale d", false),
        (&all, "delete x.io things/sub t", true),
        (&all, "get /healthz", false),
        (&named, "get - secrets a", true),
        (&named, "get - secrets b", false),
        (&named, "create - secrets -", false),
        (&paths, "get /healthz", true),
        (&paths, "get /healthz/etcd", false),
        (&paths, "get /api/v1", true),
        (&paths, "get /api", false),
        (&paths, "get /xyz", true),
        (&paths, "post /healthz", false),
        (&every_path, "get /anything", true),
        (&every_path, "get - pods p", false),
    ];
    for (rule, question, expected) in cases {
        let compiled = Rule::from_json(rule);
        assert_eq!(
            allows(&compiled, question),
            expected,
            "{question} by {rule}"
        );
    }
}

#[test]
fn a_rule_covers_what_upstream_lets_it_cover() {
    let rule = |text: &str| {
        // `verbs groups resources names urls`, comma-separated, `-` for none and `core` for "".
        let lists: Vec<Vec<String>> = text
            .split(' ')
            .map(|list| match list {
                "-" => Vec::new(),
                list => list.split(',').map(|i| i.replace("core", "")).collect(),
            })
            .collect();
        let [
            verbs,
            api_groups,
            resources,
            resource_names,
            non_resource_urls,
        ] = <[_; 5]>::try_from(lists).unwrap();
        Rule {
            verbs,
            api_groups,
            resources,
            resource_names,
            non_resource_urls,
        }
    };
    for (own, wanted, covered) in [
        ("get,list core,apps pods - -", "get core pods - -", true),
        ("* * * - -", "get core pods/log x -", true),
        ("get core pods - -", "get core pods a -", true),
        ("get core pods a -", "get core pods - -", false),
        ("get core pods a -", "get core pods b -", false),
        ("get core pods - -", "* core pods - -", false),
        ("get core pods - -", "get core pods/log - -", false),
        ("get core */log - -", "get core pods/log - -", true),
        ("get core */log - -", "get core */log - -", true),
        ("get core pods - -", "get core pods/ - -", false),
        ("get core * - -", "get core * - -", true),
        ("get - - - /api/*", "get - - - /api/v1", true),
        ("get - - - /api/*", "get - - - /api/*", true),
        ("get - - - /api/v1", "get - - - /api/*", false),
        ("get - - - *", "get - - - /anything", true),
        ("get - - a /x", "get - - - /x", false),
        ("get core pods - -", "get - - - /x", false),
    ] {
        assert_eq!(
            rule(own).covers(&rule(wanted)),
            covered,
            "{own} covers {wanted}"
        );
    }
}

#[test]
fn a_rule_prints_and_writes_as_upstream() {
    let json = json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a\"b"], "verbs": ["get", "list"]});
    let rule = Rule::from_json(&json);
    assert_eq!(rule.to_json(), json);
    assert_eq!(
        rule.to_string(),
        r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a\"b"], Verbs:["get" "list"]}"#
    );
}
