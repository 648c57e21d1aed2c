//! Every subject of the bootstrap policy, and some who are in none of it, asked about everything the policy
//! mentions and about the neighbourhood of it.

use std::collections::BTreeSet;

use access::rbac::{self, Kind, Rbac};
use access::{Attributes, ResourceTarget, Target, User};
use serde_json::{Value, json};

use crate::{golden, naive};

/// One question without the user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    verb: String,
    /// Group, resource, subresource, name; or a path.
    target: Result<[String; 4], String>,
    namespace: &'static str,
}

impl Question {
    fn attributes<'a>(&'a self, user: &'a User) -> Attributes<'a> {
        let target = match &self.target {
            Ok([group, resource, subresource, name]) => Target::Resource(ResourceTarget {
                namespace: self.namespace,
                group,
                version: "v1",
                resource,
                subresource,
                name,
                ..ResourceTarget::default()
            }),
            Err(path) => Target::Path(path),
        };
        Attributes {
            user,
            verb: &self.verb,
            target,
        }
    }
}

const NAMESPACES: [&str; 4] = ["", "kube-system", "kube-public", "team"];

/// For each permission of a rule: the question it answers, and the same with one thing changed.
fn questions(policy: &[Value]) -> BTreeSet<Question> {
    let list = |rule: &Value, field: &str| -> Vec<String> {
        let items = rule[field].as_array().into_iter().flatten();
        items.map(|i| i.as_str().unwrap().to_owned()).collect()
    };
    let literal = |text: &String, other: &str| match text.as_str() {
        "*" => other.to_owned(),
        text => text.replace('*', "any"),
    };
    let mut questions = BTreeSet::new();
    let rules = policy
        .iter()
        .flat_map(|role| role["rules"].as_array())
        .flatten();
    for rule in rules {
        for verb in list(rule, "verbs").iter().map(|verb| literal(verb, "get")) {
            for path in list(rule, "nonResourceURLs") {
                questions.extend(around_path(&verb, &literal(&path, "/anything")));
            }
            for group in list(rule, "apiGroups") {
                for resource in list(rule, "resources") {
                    let names = list(rule, "resourceNames");
                    let name = names.first().map_or("", String::as_str);
                    let (group, resource) = (
                        literal(&group, "example.com"),
                        literal(&resource, "widgets"),
                    );
                    questions.extend(around_resource(&verb, &group, &resource, name));
                }
            }
        }
    }
    questions
}

fn around_path(verb: &str, path: &str) -> Vec<Question> {
    [
        (verb, path.to_owned()),
        ("post", path.to_owned()),
        (verb, format!("{path}/below")),
        (verb, format!("/x{path}")),
    ]
    .map(|(verb, path)| Question {
        verb: verb.into(),
        target: Err(path),
        namespace: "",
    })
    .into()
}

fn around_resource(verb: &str, group: &str, resource: &str, name: &str) -> Vec<Question> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let other_subresource = if subresource.is_empty() { "status" } else { "" };
    let ask = |namespaces: &[&'static str], verb: &str, rest: [&str; 3]| -> Vec<Question> {
        let [group, subresource, name] = rest;
        let target = [group, resource, subresource, name].map(str::to_owned);
        let ask = |namespace: &&'static str| Question {
            verb: verb.into(),
            target: Ok(target.clone()),
            namespace,
        };
        namespaces.iter().map(ask).collect()
    };
    let neighbours = [
        (verb, [group, subresource, "other-name"]),
        (verb, [group, other_subresource, name]),
        (verb, ["other.example.com", subresource, name]),
        ("impersonate", [group, subresource, name]),
        ("delete", [group, subresource, name]),
        ("list", [group, subresource, ""]),
    ];
    let mut questions = ask(&NAMESPACES, verb, [group, subresource, name]);
    for (verb, rest) in neighbours {
        questions.extend(ask(&["", "team"], verb, rest));
    }
    questions
}

/// Everybody a binding names, with the groups authentication would give them, and others.
fn users(policy: &[Value]) -> Vec<User> {
    let user = |name: &str, groups: &[&str]| User {
        name: name.into(),
        groups: groups.iter().map(|g| g.to_string()).collect(),
        ..User::default()
    };
    let account = |namespace: &str, name: &str| {
        let group = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", &group, "system:authenticated"];
        user(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &groups,
        )
    };
    let subjects = policy
        .iter()
        .flat_map(|b| b["subjects"].as_array())
        .flatten();
    let mut users: Vec<User> = subjects
        .map(|subject| {
            let name = subject["name"].as_str().unwrap();
            match subject["kind"].as_str().unwrap() {
                "User" => user(name, &["system:authenticated"]),
                "Group" => user("member", &[name]),
                _ => account(subject["namespace"].as_str().unwrap(), name),
            }
        })
        .collect();
    users.extend([
        User::anonymous(),
        user("somebody", &["system:authenticated"]),
        user("root", &["system:masters", "system:authenticated"]),
        user(
            "system:bootstrap:abcdef",
            &["system:bootstrappers", "system:authenticated"],
        ),
        user("system:node:a", &["system:nodes", "system:authenticated"]),
        user("system:apiserver", &["system:masters"]),
        user("kube-scheduler", &["system:kube-scheduler"]),
        account("default", "default"),
        account("default", "replicaset-controller"),
    ]);
    users.sort_by(|a, b| (&a.name, &a.groups).cmp(&(&b.name, &b.groups)));
    users.dedup();
    users
}

/// People who have the roles meant for people, in a namespace of their own.
fn people() -> Vec<Value> {
    ["admin", "edit", "view", "cluster-admin"]
        .map(|role| {
            json!({
                "kind": "RoleBinding",
                "metadata": {"name": role, "namespace": "team"},
                "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": format!("{role}-of-team")}],
            })
        })
        .into()
}

/// The objects in an index, aggregated roles filled as their controller fills them, until nothing changes.
fn index(objects: &[Value]) -> Rbac {
    let mut objects = objects.to_vec();
    loop {
        let before = objects.clone();
        for role in &mut objects {
            let selectors = &role["aggregationRule"]["clusterRoleSelectors"];
            if let Some(selectors) = selectors.as_array() {
                let name = role["metadata"]["name"].as_str().unwrap();
                let roles = before.iter().filter(|o| o["kind"] == "ClusterRole");
                let rules = rbac::aggregate(name, selectors, roles).unwrap();
                role["rules"] = rules.iter().map(rbac::Rule::to_json).collect();
            }
        }
        if objects == before {
            break;
        }
    }
    let rbac = Rbac::default();
    for object in &objects {
        let kind = match object["kind"].as_str().unwrap() {
            "Role" => Kind::Role,
            "ClusterRole" => Kind::ClusterRole,
            "RoleBinding" => Kind::RoleBinding,
            _ => Kind::ClusterRoleBinding,
        };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        rbac.apply(kind, text("namespace"), text("name"), Some(object));
    }
    rbac
}

#[test]
fn every_bootstrap_subject_may_do_what_the_golden_files_say_and_no_more() {
    let Some(mut objects) = golden::policy() else {
        return;
    };
    objects.extend(people());
    let rbac = index(&objects);
    let questions = questions(&objects);
    let users = users(&objects);
    let mut answers = [0, 0];
    for user in &users {
        let own = naive::grants(&objects, user);
        for question in &questions {
            let asked = question.attributes(user);
            let expected = own.allow(&asked);
            let decision = rbac.authorize(&asked);
            assert_eq!(
                decision.is_allowed(),
                expected,
                "{user:?} {question:?}: {decision:?}"
            );
            answers[usize::from(expected)] += 1;
        }
    }
    let [refused, allowed] = answers;
    eprintln!(
        "{} cases: {} subjects, {} questions, {allowed} allowed, {refused} refused",
        allowed + refused,
        users.len(),
        questions.len()
    );
    assert!(
        allowed >= 300 && refused >= 300,
        "{allowed} allowed, {refused} refused"
    );
}
