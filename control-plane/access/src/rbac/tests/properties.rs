//! The compiled index against a naive reading of the same objects.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::rbac::{Kind, Rbac, Rule};
use crate::{Attributes, ResourceTarget, Target, User};

const VERBS: &[&str] = &["get", "list", "create", "*"];
const GROUPS: &[&str] = &["", "apps", "*"];
const RESOURCES: &[&str] = &["pods", "pods/log", "nodes/log", "*/log", "nodes", "*"];
const NAMES: &[&str] = &["a", "b"];
const PATHS: &[&str] = &["/x", "/x/*", "/y", "*"];
const NAMESPACES: &[&str] = &["n1", "n2"];
const ROLES: &[&str] = &["r1", "r2", "r3"];

fn some_of(items: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(items, 0..=items.len().min(2))
}

fn one_of(items: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(items)
}

fn rule() -> impl Strategy<Value = Value> {
    (some_of(VERBS), some_of(GROUPS), some_of(RESOURCES), some_of(NAMES), some_of(PATHS), any::<bool>()).prop_map(
        |(verbs, groups, resources, names, paths, named)| {
            let names = if named { names } else { Vec::new() };
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names, "nonResourceURLs": paths})
        },
    )
}

/// `(kind, namespace, name, object)`; a later one of the same key replaces an earlier one.
type Stored = (Kind, &'static str, &'static str, Value);

fn role() -> impl Strategy<Value = Stored> {
    let rules = prop::collection::vec(rule(), 0..3);
    (any::<bool>(), one_of(NAMESPACES), one_of(ROLES), rules).prop_map(
        |(cluster, namespace, name, rules)| {
            let object = json!({ "rules": rules });
            match cluster {
                true => (Kind::ClusterRole, "", name, object),
                false => (Kind::Role, namespace, name, object),
            }
        },
    )
}

fn subject() -> impl Strategy<Value = Value> {
    prop_oneof![
        one_of(&["u1", "u2"]).prop_map(|name| json!({"kind": "User", "name": name})),
        one_of(&["g1", "g2"]).prop_map(|name| json!({"kind": "Group", "name": name})),
        (one_of(&["", "n1", "n2"]), one_of(&["s1"])).prop_map(
            |(ns, name)| json!({"kind": "ServiceAccount", "name": name, "namespace": ns})
        ),
    ]
}

fn binding() -> impl Strategy<Value = Stored> {
    let subjects = prop::collection::vec(subject(), 0..3);
    (
        any::<bool>(),
        any::<bool>(),
        one_of(NAMESPACES),
        one_of(&["b1", "b2", "b3"]),
        one_of(ROLES),
        subjects,
    )
        .prop_map(|(cluster, cluster_role, namespace, name, role, subjects)| {
            let kind = if cluster || cluster_role {
                "ClusterRole"
            } else {
                "Role"
            };
            let object = json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects});
            match cluster {
                true => (Kind::ClusterRoleBinding, "", name, object),
                false => (Kind::RoleBinding, namespace, name, object),
            }
        })
}

/// Changes in the order they happen; a null object is a deletion.
fn history() -> impl Strategy<Value = Vec<Stored>> {
    let change = (prop_oneof![role(), binding()], 0..5).prop_map(|(mut stored, chance)| {
        if chance == 0 {
            stored.3 = Value::Null;
        }
        stored
    });
    prop::collection::vec(change, 0..24)
}

fn asker() -> impl Strategy<Value = User> {
    let names = one_of(&[
        "u1",
        "u2",
        "system:serviceaccount:n1:s1",
        "system:serviceaccount:n2:s1",
    ]);
    (names, some_of(&["g1", "g2"])).prop_map(|(name, groups)| super::user(name, &groups))
}

fn apply(rbac: &Rbac, history: &[Stored]) {
    for (kind, namespace, name, object) in history {
        rbac.apply(
            *kind,
            namespace,
            name,
            Some(object).filter(|o| !o.is_null()),
        );
    }
}

/// What is left of a history.
fn survivors(history: &[Stored]) -> Vec<&Stored> {
    let key = |s: &Stored| (s.0 as u8, s.1, s.2);
    let last = |(at, stored): (usize, &Stored)| {
        !history[at + 1..]
            .iter()
            .any(|later| key(later) == key(stored))
    };
    let kept = history.iter().enumerate().filter(|(at, s)| last((*at, s)));
    kept.map(|(_, stored)| stored)
        .filter(|s| !s.3.is_null())
        .collect()
}

fn holds(list: &Value, test: impl Fn(&str) -> bool) -> bool {
    list.as_array()
        .into_iter()
        .flatten()
        .any(|item| test(item.as_str().unwrap()))
}

/// The raw rules a user has in a namespace, by walking everything.
fn naive_rules<'a>(objects: &[&'a Stored], user: &User, namespace: &str) -> Vec<&'a Value> {
    let mut rules = Vec::new();
    for (kind, binding_namespace, _, object) in objects.iter().copied() {
        let counts = match kind {
            Kind::ClusterRoleBinding => true,
            Kind::RoleBinding => *binding_namespace == namespace,
            _ => false,
        };
        let is_user = |subject: &Value| {
            let name = subject["name"].as_str().unwrap();
            match subject["kind"].as_str().unwrap() {
                "User" => name == user.name,
                "Group" => user.groups.iter().any(|g| g == name),
                _ => {
                    let ns =
                        Some(subject["namespace"].as_str().unwrap()).filter(|ns| !ns.is_empty());
                    let ns = ns.unwrap_or(binding_namespace);
                    !ns.is_empty() && user.name == format!("system:serviceaccount:{ns}:{name}")
                }
            }
        };
        if !counts || !object["subjects"].as_array().unwrap().iter().any(is_user) {
            continue;
        }
        let (role_kind, role_namespace) = match object["roleRef"]["kind"].as_str().unwrap() {
            "ClusterRole" => (Kind::ClusterRole, ""),
            _ => (Kind::Role, *binding_namespace),
        };
        let role = objects.iter().find(|(kind, ns, name, _)| {
            *kind == role_kind && *ns == role_namespace && object["roleRef"]["name"] == **name
        });
        rules.extend(
            role.into_iter()
                .flat_map(|r| r.3["rules"].as_array().unwrap()),
        );
    }
    rules
}

fn naive_allows(rule: &Value, asked: &Attributes) -> bool {
    let verb = holds(&rule["verbs"], |v| v == "*" || v == asked.verb);
    let rest = match &asked.target {
        Target::Path(path) => holds(&rule["nonResourceURLs"], |u| {
            u == *path
                || u.strip_suffix('*')
                    .is_some_and(|prefix| path.starts_with(prefix))
        }),
        Target::Resource(t) => {
            let full = match t.subresource {
                "" => t.resource.to_owned(),
                sub => format!("{}/{sub}", t.resource),
            };
            let of_any = format!("*/{}", t.subresource);
            let named = rule["resourceNames"]
                .as_array()
                .is_some_and(|n| !n.is_empty());
            holds(&rule["apiGroups"], |g| g == "*" || g == t.group)
                && holds(&rule["resources"], |r| {
                    r == "*" || r == full || (!t.subresource.is_empty() && r == of_any)
                })
                && (!named || holds(&rule["resourceNames"], |n| n == t.name))
        }
    };
    verb && rest
}

/// Everything that can be asked with the words above.
fn questions<'a>(user: &'a User, namespace: &'static str) -> Vec<Attributes<'a>> {
    let mut all = Vec::new();
    for verb in ["get", "list", "create", "patch"] {
        all.extend(["/x", "/x/1", "/y", "/z"].map(|path| Attributes {
            user,
            verb,
            target: Target::Path(path),
        }));
        for group in ["", "apps", "batch"] {
            for (resource, subresource) in [
                ("pods", ""),
                ("pods", "log"),
                ("nodes", "log"),
                ("nodes", ""),
                ("jobs", ""),
            ] {
                for name in ["", "a", "b", "c"] {
                    let target = ResourceTarget {
                        namespace,
                        group,
                        resource,
                        subresource,
                        name,
                        ..Default::default()
                    };
                    all.push(Attributes {
                        user,
                        verb,
                        target: Target::Resource(target),
                    });
                }
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn decisions_equal_those_of_a_naive_evaluator(
        history in history(), user in asker(), namespace in one_of(&["", "n1", "n2"]),
    ) {
        let rbac = Rbac::default();
        apply(&rbac, &history);
        let objects = survivors(&history);
        for asked in questions(&user, namespace) {
            let scope = if matches!(asked.target, Target::Path(_)) { "" } else { namespace };
            let expected = naive_rules(&objects, &user, scope).iter().any(|rule| naive_allows(rule, &asked));
            prop_assert_eq!(rbac.authorize(&asked).is_allowed(), expected, "{:?}", asked);
        }
    }

    #[test]
    fn nothing_is_uncovered_exactly_when_each_permission_is_in_some_held_rule(
        history in history(), user in asker(), wanted in prop::collection::vec(rule(), 0..3),
    ) {
        let rbac = Rbac::default();
        apply(&rbac, &history);
        let objects = survivors(&history);
        let held = naive_rules(&objects, &user, "n1");
        let wanted_rules: Vec<Rule> = wanted.iter().map(Rule::from_json).collect();
        let uncovered = rbac.uncovered(&user, "n1", &wanted_rules);
        let expected = wanted.iter().all(|rule| naive_covers(&held, rule));
        prop_assert_eq!(uncovered.is_empty(), expected, "{:?}", uncovered);
    }
}

/// Whether each permission of a rule is in one of the held rules. A wildcard is a permission like any other,
/// which only a wildcard (or, for a path, a shorter prefix) holds.
fn naive_covers(held: &[&Value], wanted: &Value) -> bool {
    let list = |field: &str| -> Vec<String> {
        wanted[field]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i.as_str().unwrap().to_owned())
            .collect()
    };
    let names = match list("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    let unnamed = |rule: &Value| rule["resourceNames"].as_array().unwrap().is_empty();
    list("verbs").iter().all(|verb| {
        let with_verb: Vec<&&Value> = held
            .iter()
            .filter(|h| holds(&h["verbs"], |v| v == "*" || v == verb))
            .collect();
        let resources = list("apiGroups").iter().all(|group| {
            list("resources").iter().all(|resource| {
                names.iter().all(|name| {
                    with_verb.iter().any(|rule| {
                        let of_any = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
                        holds(&rule["apiGroups"], |g| g == "*" || g == group)
                            && holds(&rule["resources"], |r| {
                                r == "*" || r == resource || Some(r) == of_any.as_deref()
                            })
                            && (unnamed(rule)
                                || name
                                    .as_ref()
                                    .is_some_and(|n| holds(&rule["resourceNames"], |r| r == n)))
                    })
                })
            })
        });
        let paths = list("nonResourceURLs").iter().all(|path| {
            with_verb.iter().any(|rule| {
                unnamed(rule)
                    && holds(&rule["nonResourceURLs"], |u| {
                        u == path
                            || u.strip_suffix('*')
                                .is_some_and(|prefix| path.starts_with(prefix))
                    })
            })
        });
        resources && paths
    })
}
