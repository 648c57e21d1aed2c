//! One rule of a role, read once and then matched without allocation.

use std::fmt;

use kube_kit::selector::quoted;
use serde_json::{Map, Value};

use crate::{Attributes, Target};

const ALL: &str = "*";

/// A policy rule: verbs on resources, or verbs on paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What may be done; `*` for everything.
    pub verbs: Vec<String>,
    /// In which API groups; `*` for all.
    pub api_groups: Vec<String>,
    /// To which resources: `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// To which objects only; none for all.
    pub resource_names: Vec<String>,
    /// On which paths, a trailing `*` for everything below.
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// The rule as the API writes it. Fields of a wrong type count as absent: what could be stored was validated.
    pub fn from_json(rule: &Value) -> Rule {
        let list = |field: &str| strings(&rule[field]);
        Rule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// All rules of a role.
    pub fn all_from_json(rules: &Value) -> Vec<Rule> {
        rules
            .as_array()
            .into_iter()
            .flatten()
            .map(Rule::from_json)
            .collect()
    }

    /// The rule as the API writes it: verbs always, the rest where there is something.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        for (field, list) in [
            ("apiGroups", &self.api_groups),
            ("nonResourceURLs", &self.non_resource_urls),
            ("resourceNames", &self.resource_names),
            ("resources", &self.resources),
            ("verbs", &self.verbs),
        ] {
            if field == "verbs" || !list.is_empty() {
                object.insert(field.into(), list.as_slice().into());
            }
        }
        Value::Object(object)
    }

    /// Whether the rule permits what is asked for.
    pub fn allows(&self, asked: &Attributes) -> bool {
        if !has_or_all(&self.verbs, asked.verb) {
            return false;
        }
        match &asked.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|u| url_covers(u, path)),
            Target::Resource(target) => {
                has_or_all(&self.api_groups, target.group)
                    && self
                        .resources
                        .iter()
                        .any(|r| resource_matches(r, target.resource, target.subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, target.name))
            }
        }
    }

    /// The same permissions as rules of one verb on one resource (and name) or path each, so that any other
    /// rule covers each of them wholly or not at all.
    pub fn broken_down(&self) -> Vec<Rule> {
        let one = |value: &String| vec![value.clone()];
        let mut single = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let rule = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        single.push(rule);
                        continue;
                    }
                    single.extend(self.resource_names.iter().map(|name| Rule {
                        resource_names: one(name),
                        ..rule.clone()
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            single.extend(self.verbs.iter().map(|verb| Rule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Rule::default()
            }));
        }
        single
    }

    /// Whether every permission of a broken-down rule is among this rule's.
    pub fn covers(&self, single: &Rule) -> bool {
        let all_or_each = |own: &[String], wanted: &[String]| {
            has(own, ALL) || wanted.iter().all(|item| has(own, item))
        };
        all_or_each(&self.verbs, &single.verbs)
            && all_or_each(&self.api_groups, &single.api_groups)
            && single.resources.iter().all(|r| self.covers_resource(r))
            && self.covers_names(&single.resource_names)
            && single
                .non_resource_urls
                .iter()
                .all(|path| self.non_resource_urls.iter().any(|u| url_covers(u, path)))
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        let of_any = |own: &str| {
            let subresource = wanted.split_once('/').map(|(_, subresource)| subresource);
            subresource.is_some() && own.strip_prefix("*/") == subresource
        };
        let mut own = self.resources.iter();
        own.any(|own| own == ALL || own == wanted || of_any(own))
    }

    // A rule for named objects covers nothing that is meant for all objects.
    fn covers_names(&self, wanted: &[String]) -> bool {
        self.resource_names.is_empty()
            || (!wanted.is_empty() && wanted.iter().all(|name| has(&self.resource_names, name)))
    }
}

/// As escalation messages print a rule: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted_list(list)))
        .collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// Go's `%q` of a list of strings.
pub(super) fn quoted_list(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(" "))
}

/// The strings of a JSON list.
fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|i| i.as_str().map(str::to_owned))
        .collect()
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|i| i == item)
}

fn has_or_all(list: &[String], item: &str) -> bool {
    list.iter().any(|i| i == ALL || i == item)
}

/// Whether a rule's resource is the one asked for: `*`, `pods`, `pods/log` or `*/log`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.strip_suffix(subresource)
        .and_then(|rest| rest.strip_suffix('/'))
        .is_some_and(|rest| rest == ALL || rest == resource)
}

/// Whether a rule's path is the one asked for; every `*` at its end is taken off, as upstream does.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests;
