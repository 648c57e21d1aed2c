//! Values with a [`Shape`]: checking, merging, comparing, and taking parts out of them.
//!
//! Rules of `structured-merge-diff/typed`. Everything but [`validate`] expects values that passed
//! it; duplicate keys in lists are allowed in live objects and refused in applied ones.

mod compare;
mod prune;
mod reconcile;
mod validate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use compare::{Comparison, compare};
pub use prune::{extract_items, remove_items, with_named_fields};
pub use reconcile::reconciled;
pub use validate::{Duplicates, SchemaErrors, validate};

use crate::fieldset::{FieldSet, Literal, PathElement};
use crate::shape::{Form, Keyed, ListAtom, MapAtom, Shape};

/// Merges `config` into `live`: leaves come from `config`, nothing is removed, and lists follow
/// the order of `config` where it says anything about it.
pub fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    merge_values(shape, Some(live), Some(config)).unwrap_or(Value::Null)
}

fn merge_values(shape: Shape<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    // With both sides there, a value whose type changed takes the form the right side has.
    let atom = match right {
        Some(_) => shape.atom().narrowed(right),
        None => shape.atom().narrowed(left),
    };
    match atom.form() {
        Form::Map(map) => merge_maps(&map, left, right),
        Form::Scalar(_) => keep_right(left, right),
        Form::List(list) => merge_lists(&list, left, right),
    }
}

fn keep_right(left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    right.or(left).cloned()
}

fn merge_maps(map: &MapAtom<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let (l, r) = (entries(left), entries(right));
    if map.is_atomic || (l.is_empty() && r.is_empty()) {
        return keep_right(left, right);
    }
    let names: BTreeSet<&String> = l.keys().chain(r.keys()).collect();
    let merged: Map<_, _> = names
        .into_iter()
        .filter_map(|name| {
            let shape = map.entry(name).unwrap_or(Shape::DEDUCED);
            Some((name.clone(), merge_values(shape, l.get(name), r.get(name))?))
        })
        .collect();
    (!merged.is_empty()).then_some(Value::Object(merged))
}

fn entries(value: Option<&Value>) -> &Map<String, Value> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.and_then(Value::as_object).unwrap_or(&EMPTY)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn merge_lists(list: &ListAtom<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let (l, r) = (items(left), items(right));
    if list.kind.is_atomic() || (l.is_empty() && r.is_empty()) {
        return keep_right(left, right);
    }
    let merged = ListMerge::new(list, l, r).run();
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// Two keyed lists on their way into one.
struct ListMerge<'v, 's> {
    element: Shape<'s>,
    left: Vec<(PathElement, &'v Value)>,
    right: Vec<(PathElement, &'v Value)>,
}

impl<'v, 's> ListMerge<'v, 's> {
    fn new(list: &ListAtom<'s>, left: &'v [Value], right: &'v [Value]) -> Self {
        let indexed = |items: &'v [Value]| -> Vec<_> {
            items
                .iter()
                .filter_map(|i| Some((path_element(list, i).ok()?, i)))
                .collect()
        };
        Self {
            element: list.element,
            left: indexed(left),
            right: indexed(right),
        }
    }

    /// Walks both lists at once. Elements of both sides appear in the right side's order, and each
    /// left-only element stays behind the elements it followed.
    fn run(&self) -> Vec<Value> {
        let left_by = self.left_by_element();
        let right_by: BTreeMap<_, _> = self.right.iter().map(|(e, v)| (e, *v)).collect();
        let both = |e: &&PathElement| left_by.contains_key(e);
        let mut shared: VecDeque<_> = self.right.iter().map(|(e, _)| e).filter(both).collect();
        let mut merged = BTreeSet::new();
        let mut out = Vec::with_capacity(self.left.len().max(self.right.len()));
        let (mut l, mut r) = (0, 0);
        while l < self.left.len() || r < self.right.len() {
            if let (Some((le, _)), Some((re, _))) = (self.left.get(l), self.right.get(r))
                && le != re
                && right_by.contains_key(le)
                && shared.front().is_some_and(|next| *next != le)
            {
                // Shared, but another shared element comes first on the right.
                l += 1;
                continue;
            }
            if let Some((element, item)) = self.left.get(l)
                && self.right.get(r).is_none_or(|(re, _)| re != element)
            {
                if !right_by.contains_key(element) {
                    out.extend(merge_values(self.element, Some(item), None));
                    l += 1;
                    continue;
                }
                if merged.contains(element) {
                    l += 1;
                }
            } else if l < self.left.len() {
                l += 1;
            }
            if let Some((element, item)) = self.right.get(r) {
                merged.insert(element);
                let left = left_by.get(element).copied();
                out.extend(merge_values(self.element, left, Some(item)));
                r += 1;
                if shared.front() == Some(&element) {
                    shared.pop_front();
                }
            }
        }
        out
    }

    // Duplicates do not merge with anything: they count as null.
    fn left_by_element(&self) -> BTreeMap<&PathElement, &'v Value> {
        let mut by_element = BTreeMap::new();
        for (element, item) in &self.left {
            by_element
                .entry(element)
                .and_modify(|v| *v = &Value::Null)
                .or_insert(*item);
        }
        by_element
    }
}

/// How a path names one element of a keyed list.
pub(crate) fn path_element(list: &ListAtom<'_>, item: &Value) -> Result<PathElement, String> {
    match list.kind {
        Keyed::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Keyed::Set => set_element(item),
        Keyed::ByNames(_) | Keyed::ByValues(_) => key_element(list, item),
    }
}

fn set_element(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".to_owned())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        scalar => Ok(PathElement::Value(Literal(scalar.clone()))),
    }
}

fn key_element(list: &ListAtom<'_>, item: &Value) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let declared = list.element.atom().map;
    let names = list.kind.names();
    let value_of = |name: &str| {
        fields
            .get(name)
            .cloned()
            .or_else(|| declared.as_ref().and_then(|d| d.default_of(name)))
    };
    let keys: Vec<_> = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), Literal(value_of(name)?))))
        .collect();
    if keys.is_empty() {
        let names: Vec<_> = names.iter().map(|n| crate::gotext::quoted(n)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    Ok(PathElement::key(keys))
}

/// Every leaf, list element and map entry that `value` mentions.
pub fn field_set(shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(shape, value, &mut Vec::new(), &mut set);
    set
}

fn collect(shape: Shape<'_>, value: &Value, path: &mut Vec<PathElement>, set: &mut FieldSet) {
    match shape.atom().narrowed(Some(value)).form() {
        Form::Map(map) if map.is_atomic => set.insert(path),
        Form::Map(map) => collect_entries(&map, entries(Some(value)), path, set),
        Form::Scalar(_) => set.insert(path),
        Form::List(list) if list.kind.is_atomic() => set.insert(path),
        Form::List(list) => collect_items(&list, items(Some(value)), path, set),
    }
}

fn collect_entries(
    map: &MapAtom<'_>,
    entries: &Map<String, Value>,
    path: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    for (name, value) in entries {
        path.push(PathElement::Field(name.clone()));
        let declared = map.field(name);
        collect(
            declared.or(map.entry(name)).unwrap_or(Shape::DEDUCED),
            value,
            path,
            set,
        );
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if is_empty || declared.is_none() {
            set.insert(path);
        }
        path.pop();
    }
}

// Elements that share a key cannot be told apart: only the key itself is owned.
fn collect_items(
    list: &ListAtom<'_>,
    items: &[Value],
    path: &mut Vec<PathElement>,
    set: &mut FieldSet,
) {
    let mut by_element: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = path_element(list, item) {
            by_element.entry(element).or_default().push(item);
        }
    }
    for (element, items) in by_element {
        path.push(element);
        if let [item] = items.as_slice() {
            collect(list.element, item, path, set);
        }
        set.insert(path);
        path.pop();
    }
}

#[cfg(test)]
mod tests;
