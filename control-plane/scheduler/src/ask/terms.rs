//! What a pod says about other pods.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Ask;
use crate::selector::Selector;
use crate::symbols::{Labels, Sym, Symbols};

/// Some pods, and how near is near.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    namespaces: Box<[Sym]>,
    /// Namespaces by their labels, besides.
    namespace_selector: Option<Selector>,
    selector: Selector,
    /// The label whose value two nodes share that are near each other.
    pub key: Sym,
}

impl Term {
    /// Whether it means pods of this kind; `namespace` are the labels of their namespace.
    pub fn matches(&self, symbols: &Symbols, pod: &Ask, namespace: &Labels) -> bool {
        let by_labels = |s: &Selector| s.matches(symbols, namespace);
        let is_inside = self.namespaces.contains(&pod.namespace)
            || self.namespace_selector.as_ref().is_some_and(by_labels);
        is_inside && self.selector.matches(symbols, &pod.labels)
    }
}

/// A term with its weight: negative for those it would rather be far from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Preference {
    /// Negative: rather not near them.
    pub weight: i32,
    /// Near whom.
    pub term: Term,
}

/// What a spread constraint does when it cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenUnsatisfiable {
    /// The pod waits.
    DoNotSchedule,
    /// The pod goes where the skew is least.
    ScheduleAnyway,
}

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spread {
    /// The label whose values are the domains.
    pub key: Sym,
    /// By how many pods domains may differ.
    pub max_skew: i32,
    /// Fewer domains than this count as having an empty one.
    pub min_domains: i32,
    /// Hard or soft.
    pub when: WhenUnsatisfiable,
    /// Which pods are counted, in the pod's own namespace.
    pub selector: Selector,
    /// Whether only nodes that the pod selects are counted.
    pub honor_affinity: bool,
    /// Whether only nodes whose taints the pod bears are counted.
    pub honor_taints: bool,
    /// Whether it is the profile's own: then nodes without the label are not left out.
    pub is_system_default: bool,
}

/// A pod while its terms are read.
pub(super) struct Owner<'a> {
    pub(super) symbols: &'a mut Symbols,
    pub(super) namespace: Sym,
    pub(super) labels: &'a Labels,
}

impl Owner<'_> {
    /// Near whom it must be, and near whom it must not.
    pub(super) fn required(
        &mut self,
        affinity: Option<&api::Affinity>,
    ) -> (Box<[Term]>, Box<[Term]>) {
        let near = affinity.and_then(|a| a.pod_affinity.as_ref());
        let near = near.and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let far = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
        let far = far.and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let mut read = |terms: Option<&Vec<api::PodAffinityTerm>>| {
            let terms = terms.into_iter().flatten();
            terms.map(|term| self.term(term)).collect()
        };
        (read(near), read(far))
    }

    pub(super) fn preferred(&mut self, affinity: Option<&api::Affinity>) -> Box<[Preference]> {
        let near = affinity.and_then(|a| a.pod_affinity.as_ref());
        let near = near.and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let far = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
        let far = far.and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let near = near.into_iter().flatten().map(|term| (1, term));
        let far = far.into_iter().flatten().map(|term| (-1, term));
        near.chain(far)
            .map(|(sign, weighted)| Preference {
                weight: sign * weighted.weight,
                term: self.term(&weighted.pod_affinity_term),
            })
            .collect()
    }

    fn term(&mut self, term: &api::PodAffinityTerm) -> Term {
        let named = term.namespaces.as_deref().unwrap_or_default();
        let by_labels = term.namespace_selector.as_ref();
        let namespaces = match (named, by_labels) {
            ([], None) => Box::from([self.namespace]),
            (named, _) => named.iter().map(|n| self.symbols.of(n)).collect(),
        };
        let with = self.values(term.match_label_keys.as_deref());
        let selector = self.selector(term.label_selector.as_ref(), &with);
        let selector = self.without(selector, term.mismatch_label_keys.as_deref());
        Term {
            namespaces,
            namespace_selector: by_labels.map(|s| Selector::of(self.symbols, Some(s), &[])),
            selector,
            key: self.symbols.of(&term.topology_key),
        }
    }

    pub(super) fn spread(&mut self, constraint: &api::TopologySpreadConstraint) -> Spread {
        let with = self.values(constraint.match_label_keys.as_deref());
        let selector = self.selector(constraint.label_selector.as_ref(), &with);
        spread(self.symbols, constraint, selector, false)
    }

    // The labels of the pod itself by these keys (`matchLabelKeys`); the API server adds them to the selector too.
    fn values(&mut self, keys: Option<&[String]>) -> Vec<(Sym, Sym)> {
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| {
            let key = self.symbols.of(key);
            Some((key, self.labels.get(key)?))
        })
        .collect()
    }

    fn selector(&mut self, selector: Option<&LabelSelector>, with: &[(Sym, Sym)]) -> Selector {
        Selector::of(self.symbols, selector, with)
    }

    fn without(&mut self, selector: Selector, keys: Option<&[String]>) -> Selector {
        let keys = self.values(keys);
        keys.into_iter().fold(selector, |selector, (key, value)| {
            selector.and(Selector::other_than(key, value))
        })
    }
}

fn spread(
    symbols: &mut Symbols,
    constraint: &api::TopologySpreadConstraint,
    selector: Selector,
    is_system_default: bool,
) -> Spread {
    Spread {
        key: symbols.of(&constraint.topology_key),
        max_skew: constraint.max_skew,
        min_domains: constraint.min_domains.unwrap_or(1),
        when: match constraint.when_unsatisfiable.as_str() {
            "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
            _ => WhenUnsatisfiable::DoNotSchedule,
        },
        selector,
        honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        is_system_default,
    }
}

pub(super) fn default_spread(
    symbols: &mut Symbols,
    constraint: &api::TopologySpreadConstraint,
    selector: Selector,
) -> Spread {
    spread(symbols, constraint, selector, true)
}
