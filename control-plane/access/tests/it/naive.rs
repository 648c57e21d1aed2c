//! RBAC read straight from the objects, slowly and without any of the crate's code: the documentation's rules,
//! to hold the crate's answers against.

use access::{Attributes, Target, User};
use serde_json::Value;

/// The rules a user has, each with the namespace it counts in (none for everywhere).
pub(crate) struct Grants<'a>(Vec<(Option<&'a str>, &'a Value)>);

/// What the bindings grant a user.
pub(crate) fn grants<'a>(objects: &'a [Value], user: &User) -> Grants<'a> {
    let own = objects.iter().filter(|object| {
        items(&object["subjects"]).any(|subject| is_subject(subject, object, user))
    });
    let rules = own.flat_map(|binding| {
        let role = role_of(objects, binding).unwrap();
        let namespace = binding["metadata"]["namespace"].as_str();
        rules(objects, role)
            .into_iter()
            .map(move |rule| (namespace, rule))
    });
    Grants(rules.collect())
}

impl Grants<'_> {
    /// Whether some rule permits what is asked for.
    pub(crate) fn allow(&self, asked: &Attributes) -> bool {
        let counts = |granted: Option<&str>| match (&asked.target, granted) {
            (_, None) => true,
            (Target::Resource(target), Some(namespace)) => target.namespace == namespace,
            (Target::Path(_), Some(_)) => false,
        };
        let mut rules = self.0.iter().filter(|(granted, _)| counts(*granted));
        rules.any(|(_, rule)| rule_allows(rule, asked))
    }
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn is_subject(subject: &Value, binding: &Value, user: &User) -> bool {
    let name = subject["name"].as_str().unwrap();
    match kind(subject) {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        _ => {
            let own = subject["namespace"].as_str();
            let namespace = own.or(binding["metadata"]["namespace"].as_str()).unwrap();
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
    }
}

fn role_of<'a>(objects: &'a [Value], binding: &Value) -> Option<&'a Value> {
    let wanted = &binding["roleRef"];
    objects.iter().find(|object| {
        let in_place = match kind(object) {
            "Role" => object["metadata"]["namespace"] == binding["metadata"]["namespace"],
            "ClusterRole" => true,
            _ => false,
        };
        in_place && object["kind"] == wanted["kind"] && object["metadata"]["name"] == wanted["name"]
    })
}

/// A role's rules, those of the roles it is the sum of included, however deep.
fn rules<'a>(objects: &'a [Value], role: &'a Value) -> Vec<&'a Value> {
    let mut rules: Vec<&Value> = items(&role["rules"]).collect();
    for selector in items(&role["aggregationRule"]["clusterRoleSelectors"]) {
        let labels = selector["matchLabels"].as_object().unwrap();
        let parts = objects.iter().filter(|object| {
            let has = |(key, value): (&String, &Value)| object["metadata"]["labels"][key] == *value;
            kind(object) == "ClusterRole" && labels.iter().all(has)
        });
        rules.extend(parts.flat_map(|part| self::rules(objects, part)));
    }
    rules
}

fn lists(list: &Value, wanted: &[&str]) -> bool {
    items(list).any(|item| wanted.contains(&item.as_str().unwrap()))
}

fn rule_allows(rule: &Value, asked: &Attributes) -> bool {
    if !lists(&rule["verbs"], &["*", asked.verb]) {
        return false;
    }
    match &asked.target {
        Target::Path(path) => items(&rule["nonResourceURLs"]).any(|url| {
            let url = url.as_str().unwrap();
            let prefix = url.strip_suffix('*');
            url == *path || prefix.is_some_and(|prefix| path.starts_with(prefix))
        }),
        Target::Resource(target) => {
            let resource = match target.subresource {
                "" => target.resource.to_owned(),
                subresource => format!("{}/{subresource}", target.resource),
            };
            let of_any = match target.subresource {
                "" => "*".to_owned(),
                subresource => format!("*/{subresource}"),
            };
            let all_names = items(&rule["resourceNames"]).next().is_none();
            lists(&rule["apiGroups"], &["*", target.group])
                && lists(&rule["resources"], &["*", &resource, &of_any])
                && (all_names || lists(&rule["resourceNames"], &[target.name]))
        }
    }
}
