//! Which writes a webhook or a policy is for: rules, selectors, and the versions in which an object could also be seen.
//!
//! Pure: upstream's `apiserver/pkg/admission/plugin/webhook/predicates` and `policy/matching`.

use std::sync::Arc;

use kinds::resources::Resource;
use kube_kit::selector::LabelSelector;
use serde_json::Value;

use super::Attributes;
use super::shape::{items, text};

/// What a configuration says about the writes it is for.
#[derive(Debug)]
pub(super) struct Matcher {
    namespaces: LabelSelector,
    objects: LabelSelector,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: String,
}

/// A write that matches: the version of the resource in which it does.
#[derive(Debug, Clone)]
pub(super) struct Matched {
    pub(super) resource: Arc<Resource>,
}

impl Matcher {
    /// From a webhook (`rules`) or a policy's `matchConstraints` (`resourceRules`).
    pub(super) fn read(config: &Value, rules: &str) -> Matcher {
        // What does not parse was refused when it was written, and selects nothing.
        let selector = |field: &str| match config.get(field) {
            None | Some(Value::Null) => LabelSelector::everything(),
            Some(selector) => {
                LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())
            }
        };
        let read = |field: &str| items(&config[field]).iter().map(Rule::read).collect();
        Matcher {
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            rules: read(rules),
            excluded: read("excludeResourceRules"),
            equivalent: text(&config["matchPolicy"]) != "Exact",
        }
    }

    /// Whether rules may be left out: those of a binding, which then adds nothing to its policy's.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Whether the labels of the namespace are needed to decide.
    pub(super) fn asks_namespace(&self) -> bool {
        !self.namespaces.is_everything()
    }

    /// Whether the rules are for a write, and as what of the resources that are served.
    pub(super) fn by_rules(
        &self,
        attributes: &Attributes<'_>,
        served: &[Arc<Resource>],
    ) -> Option<Matched> {
        let excluded = |resource: &Resource| {
            self.excluded
                .iter()
                .any(|r| r.matches(attributes, resource))
        };
        let included =
            |resource: &Resource| self.rules.iter().any(|r| r.matches(attributes, resource));
        let own = attributes.resource();
        if excluded(own) {
            return None;
        }
        if included(own) {
            let resource = Arc::clone(own);
            return Some(Matched { resource });
        }
        if !self.equivalent {
            return None;
        }
        let below = attributes.subresource;
        let others = || {
            equivalents(own, served)
                .filter(move |other| below.is_empty() || other.subresource(below).is_some())
        };
        if others().any(|other| excluded(other)) {
            return None;
        }
        let found = others().find(|other| included(other)).cloned();
        found.map(|resource| Matched { resource })
    }

    /// Whether the object's labels, as they are or as they are to be, are selected.
    pub(super) fn by_object(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> bool {
        if self.objects.is_everything() {
            return true;
        }
        let selected = |object: &Value| {
            object["metadata"].is_object()
                && self.objects.matches_labels(&object["metadata"]["labels"])
        };
        object.is_some_and(selected) || attributes.old.is_some_and(selected)
    }

    /// Whether the labels of a namespace are selected.
    pub(super) fn by_namespace(&self, labels: &Value) -> bool {
        self.namespaces.matches_labels(labels)
    }
}

/// The same objects in other versions, and events in the other group.
fn equivalents<'s>(
    own: &'s Resource,
    served: &'s [Arc<Resource>],
) -> impl Iterator<Item = &'s Arc<Resource>> {
    served.iter().filter(move |other| {
        let twin = other.kind == own.kind && other.stored == own.stored;
        twin && other.gv != own.gv && other.plural == own.plural
    })
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let list = |field: &str| -> Vec<String> {
            let found = items(&rule[field]).iter();
            found.map(|item| text(item).to_owned()).collect()
        };
        Rule {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            names: list("resourceNames"),
            scope: text(&rule["scope"]).to_owned(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let named = |list: &[String], wanted: &str| {
            list.iter().any(|known| known == "*" || known == wanted)
        };
        self.in_scope(attributes, resource)
            && named(&self.operations, attributes.operation.as_str())
            && named(&self.groups, resource.gv.group)
            && named(&self.versions, resource.gv.version)
            && self
                .resources
                .iter()
                .any(|r| covers(r, resource.plural, attributes.subresource))
            && (self.names.is_empty()
                || (!attributes.name.is_empty() && self.names.iter().any(|n| n == attributes.name)))
    }

    fn in_scope(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        // A namespace is itself of the cluster, whatever its path says.
        let namespaced = resource.namespaced && !attributes.namespace().is_empty();
        match self.scope.as_str() {
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => true,
        }
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/scale`, `*` (no subresource), `*/*`.
fn covers(rule: &str, plural: &str, subresource: &str) -> bool {
    let (resource, below) = match rule.split_once('/') {
        Some((resource, below)) => (resource, Some(below)),
        None => (rule, None),
    };
    let resource_fits = resource == "*" || resource == plural;
    let below_fits = match below {
        None => subresource.is_empty(),
        Some("*") => true,
        Some(below) => below == subresource,
    };
    resource_fits && below_fits
}

#[cfg(test)]
mod tests {
    use super::super::{Operation, trial};
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_are_covered_with_what_is_below_only_when_the_rule_says_so() {
        let cases = [
            ("pods", "pods", "", true),
            ("pods", "pods", "log", false),
            ("pods/log", "pods", "log", true),
            ("pods/*", "pods", "log", true),
            ("pods/*", "pods", "", true),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/scale", "deployments", "scale", true),
            ("*/*", "pods", "exec", true),
        ];
        for (rule, plural, below, wanted) in cases {
            assert_eq!(
                covers(rule, plural, below),
                wanted,
                "{rule} {plural}/{below}"
            );
        }
    }

    #[test]
    fn a_rule_for_one_version_matches_the_others_unless_it_is_exact() {
        let config = |policy: &str| {
            json!({"matchPolicy": policy, "rules": [{"operations": ["CREATE"], "apiGroups": ["autoscaling"],
                "apiVersions": ["v2"], "resources": ["horizontalpodautoscalers"], "scope": "*"}]})
        };
        let call = trial::call(("autoscaling", "v1", "horizontalpodautoscalers"), "a", "b");
        let create = trial::attributes(&call, Operation::Create, "", None);
        let exact = Matcher::read(&config("Exact"), "rules");
        assert!(exact.by_rules(&create, kinds::resources::all()).is_none());
        let matched = Matcher::read(&config("Equivalent"), "rules")
            .by_rules(&create, kinds::resources::all());
        assert_eq!(matched.expect("matches").resource.gv.version, "v2");
        let update = trial::attributes(&call, Operation::Update, "", None);
        assert!(
            Matcher::read(&config("Equivalent"), "rules")
                .by_rules(&update, kinds::resources::all())
                .is_none()
        );
    }

    #[test]
    fn either_state_of_an_object_may_be_selected() {
        let config = json!({"objectSelector": {"matchLabels": {"a": "b"}}});
        let matcher = Matcher::read(&config, "rules");
        let call = trial::call(("", "v1", "configmaps"), "a", "b");
        let (with, without) = (
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {}}),
        );
        for (old, new, wanted) in [
            (&with, &without, true),
            (&without, &with, true),
            (&without, &without, false),
        ] {
            let update = trial::attributes(&call, Operation::Update, "", Some(old));
            assert_eq!(matcher.by_object(&update, Some(new)), wanted);
        }
    }
}
