//! Selectors over labels that are numbers: of pods (`LabelSelector`) and of nodes (`NodeSelectorTerm`).

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::symbols::{Labels, Sym, Symbols};

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Sym,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Test {
    In(Box<[Sym]>),
    NotIn(Box<[Sym]>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
    /// What cannot be understood matches nothing.
    Never,
}

impl Requirement {
    fn new(symbols: &mut Symbols, key: &str, operator: &str, values: &[String]) -> Requirement {
        let number = |values: &[String]| match values {
            [one] => one.parse().ok(),
            _ => None,
        };
        let mut all = |values: &[String]| {
            let mut all: Vec<Sym> = values.iter().map(|v| symbols.of(v)).collect();
            all.sort_unstable();
            all.dedup();
            all.into_boxed_slice()
        };
        let test = match operator {
            "In" => Test::In(all(values)),
            "NotIn" => Test::NotIn(all(values)),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            "Gt" => number(values).map_or(Test::Never, Test::Greater),
            "Lt" => number(values).map_or(Test::Never, Test::Less),
            _ => Test::Never,
        };
        let key = symbols.of(key);
        Requirement { key, test }
    }

    /// A label that must have this value.
    pub fn equal(key: Sym, value: Sym) -> Requirement {
        let test = Test::In(Box::new([value]));
        Requirement { key, test }
    }

    fn matches(&self, symbols: &Symbols, labels: &Labels) -> bool {
        self.holds(symbols, labels.get(self.key))
    }

    fn holds(&self, symbols: &Symbols, value: Option<Sym>) -> bool {
        let number = || value.and_then(|v| symbols.text(v).parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.contains(&v)),
            Test::NotIn(values) => value.is_none_or(|v| !values.contains(&v)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Greater(than) => number().is_some_and(|n| n > *than),
            Test::Less(than) => number().is_some_and(|n| n < *than),
            Test::Never => false,
        }
    }
}

/// Which pods, or namespaces, by their labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    /// `None` selects nothing.
    all_of: Option<Box<[Requirement]>>,
}

impl Selector {
    /// A selector as a pod names it: absent selects nothing, empty selects everything; `and` are labels it must have too.
    pub fn of(
        symbols: &mut Symbols,
        selector: Option<&LabelSelector>,
        and: &[(Sym, Sym)],
    ) -> Selector {
        let Some(selector) = selector else {
            return Selector { all_of: None };
        };
        let mut all: Vec<Requirement> = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            all.push(Requirement::equal(symbols.of(key), symbols.of(value)));
        }
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.as_deref().unwrap_or_default();
            let (key, operator) = (&expression.key, &expression.operator);
            all.push(Requirement::new(symbols, key, operator, values));
        }
        for &(key, value) in and {
            let wanted = Requirement::equal(key, value);
            if !all.contains(&wanted) {
                all.push(wanted);
            }
        }
        Selector {
            all_of: Some(all.into()),
        }
    }

    /// Everything but this label with this value (`mismatchLabelKeys`).
    pub fn other_than(key: Sym, value: Sym) -> Selector {
        let not = Requirement {
            key,
            test: Test::NotIn(Box::new([value])),
        };
        Selector {
            all_of: Some(Box::new([not])),
        }
    }

    /// Both must match.
    pub fn and(self, other: Selector) -> Selector {
        let all_of = self.all_of.zip(other.all_of).map(|(a, b)| {
            let mut all = a.into_vec();
            all.extend(b);
            all.into_boxed_slice()
        });
        Selector { all_of }
    }

    /// Whether these labels are selected.
    pub fn matches(&self, symbols: &Symbols, labels: &Labels) -> bool {
        let all = self.all_of.as_ref();
        all.is_some_and(|all| all.iter().all(|r| r.matches(symbols, labels)))
    }
}

/// One term of a node selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Box<[Requirement]>,
    /// On `metadata.name`, the only field there is.
    names: Box<[Requirement]>,
}

impl NodeTerm {
    /// A term as a pod writes it.
    pub fn of(symbols: &mut Symbols, term: &NodeSelectorTerm) -> NodeTerm {
        let mut requirements = |all: Option<&Vec<NodeSelectorRequirement>>| {
            let all = all.into_iter().flatten();
            all.map(|r| {
                let values = r.values.as_deref().unwrap_or_default();
                Requirement::new(symbols, &r.key, &r.operator, values)
            })
            .collect()
        };
        NodeTerm {
            labels: requirements(term.match_expressions.as_ref()),
            names: requirements(term.match_fields.as_ref()),
        }
    }

    /// Whether a node of this name and these labels is meant. An empty term means none.
    pub fn matches(&self, symbols: &Symbols, name: Sym, labels: &Labels) -> bool {
        let is_empty = self.labels.is_empty() && self.names.is_empty();
        !is_empty
            && self.labels.iter().all(|r| r.matches(symbols, labels))
            && self.names.iter().all(|r| r.holds(symbols, Some(name)))
    }

    /// The only nodes it can mean, if it says so by name (NodeAffinity's `PreFilter`).
    pub fn named(&self) -> Option<Vec<Sym>> {
        let mut named: Option<Vec<Sym>> = None;
        for requirement in &self.names {
            if let Test::In(values) = &requirement.test {
                named = Some(match named {
                    None => values.to_vec(),
                    Some(both) => both.into_iter().filter(|n| values.contains(n)).collect(),
                });
            }
        }
        named
    }
}
