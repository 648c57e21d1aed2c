//! What changed between two values of one shape.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{entries, items, path_element};
use crate::fieldset::{FieldSet, PathElement, equal};
use crate::shape::{Atom, Form, ListAtom, MapAtom, Shape};

/// The paths that differ between two values; no path is in two of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// In the old value only.
    pub removed: FieldSet,
    /// In both, with different leaves.
    pub modified: FieldSet,
    /// In the new value only.
    pub added: FieldSet,
}

impl Comparison {
    /// Applies `filter` to all three sets.
    #[must_use]
    pub fn filtered(self, filter: impl Fn(FieldSet) -> FieldSet) -> Self {
        Self {
            removed: filter(self.removed),
            modified: filter(self.modified),
            added: filter(self.added),
        }
    }
}

/// Compares two values.
pub fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Comparison {
    let mut walk = Walk {
        path: Vec::new(),
        out: Comparison::default(),
    };
    walk.values(shape, Some(old), Some(new));
    walk.out
}

struct Walk {
    path: Vec<PathElement>,
    out: Comparison,
}

impl Walk {
    fn values(&mut self, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) {
        let atom = shape.atom();
        let (was, is) = (atom.narrowed(old), atom.narrowed(new));
        let is_leaf = match (old, new) {
            (_, None) => self.form(&was, old, new),
            (None, _) => self.form(&is, old, new),
            _ if was.forms() == is.forms() => self.form(&is, old, new),
            // The value changed its form: both forms are walked, the other side counts as empty.
            _ => {
                self.form(&was, old, new);
                self.form(&is, old, new)
            }
        };
        match (old, new) {
            _ if is_leaf => {}
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            _ => {}
        }
    }

    /// Walks one form of the value; whether it was a leaf.
    fn form(&mut self, atom: &Atom<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match atom.form() {
            Form::Map(map) => self.maps(&map, old, new),
            Form::Scalar(_) => self.leaf(old, new),
            Form::List(list) => self.lists(&list, old, new),
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(old), Some(new)) if !equal(old, new) => self.out.modified.insert(&self.path),
            _ => {}
        }
        true
    }

    // Two empty values are a leaf, so that empty and null stay different.
    fn maps(&mut self, map: &MapAtom<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        let (olds, news) = (entries(old), entries(new));
        if map.is_atomic || (olds.is_empty() && news.is_empty()) {
            return self.leaf(old, new);
        }
        let names: BTreeSet<&String> = olds.keys().chain(news.keys()).collect();
        for name in names {
            let shape = map.entry(name).unwrap_or(Shape::DEDUCED);
            let (old, new) = (olds.get(name), news.get(name));
            self.below(PathElement::Field(name.clone()), |walk| {
                walk.values(shape, old, new)
            });
        }
        false
    }

    fn lists(&mut self, list: &ListAtom<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        let (olds, news) = (items(old), items(new));
        if list.kind.is_atomic() || (olds.is_empty() && news.is_empty()) {
            return self.leaf(old, new);
        }
        let mut by_element: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in olds {
            if let Ok(element) = path_element(list, item) {
                by_element.entry(element).or_default().0.push(item);
            }
        }
        for item in news {
            if let Ok(element) = path_element(list, item) {
                by_element.entry(element).or_default().1.push(item);
            }
        }
        for (element, (olds, news)) in by_element {
            self.below(element, |walk| walk.elements(list.element, &olds, &news));
        }
        false
    }

    // Elements that share a key are compared as one value; going from one element to several (or
    // back) removes one side's fields and marks the key itself.
    fn elements(&mut self, shape: Shape<'_>, olds: &[&Value], news: &[&Value]) {
        match (olds, news) {
            ([] | [_], [] | [_]) => {
                self.values(shape, olds.first().copied(), news.first().copied());
            }
            ([_, _, ..], [_, _, ..]) => {
                let is_same = olds.len() == news.len()
                    && olds.iter().zip(news).all(|(old, new)| equal(old, new));
                if !is_same {
                    self.out.modified.insert(&self.path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = news.first() {
                    self.values(shape, None, Some(new));
                }
                self.out.removed.insert(&self.path);
            }
            _ => {
                if let Some(old) = olds.first() {
                    self.values(shape, Some(old), None);
                }
                self.out.added.insert(&self.path);
            }
        }
    }

    fn below(&mut self, element: PathElement, visit: impl FnOnce(&mut Self)) {
        self.path.push(element);
        visit(self);
        self.path.pop();
    }
}
