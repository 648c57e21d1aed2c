//! Taking fields out of a value, by path.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::path_element;
use crate::fieldset::{FieldSet, PathElement};
use crate::shape::{Form, ListAtom, MapAtom, Shape};

/// `value` without the fields and elements in `set`.
pub fn remove_items(shape: Shape<'_>, value: &Value, set: &FieldSet) -> Value {
    take(shape, value, set, Keep::Others)
}

/// Only the fields and elements of `value` that are in `set`.
pub fn extract_items(shape: Shape<'_>, value: &Value, set: &FieldSet) -> Value {
    take(shape, value, set, Keep::Named)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// What the set does not name.
    Others,
    /// What the set names.
    Named,
}

fn take(shape: Shape<'_>, value: &Value, set: &FieldSet, keep: Keep) -> Value {
    let whole = || {
        if keep == Keep::Named {
            value.clone()
        } else {
            Value::Null
        }
    };
    match (shape.atom().narrowed(Some(value)).form(), value) {
        (Form::Scalar(_), _) => value.clone(),
        (Form::Map(map), _) if map.is_atomic => whole(),
        (Form::List(list), _) if list.kind.is_atomic() => whole(),
        (_, Value::Object(entries)) if entries.is_empty() => whole(),
        (_, Value::Array(items)) if items.is_empty() => whole(),
        (Form::Map(map), Value::Object(entries)) => {
            let kept = take_entries(&map, entries, set, keep);
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        (Form::List(list), Value::Array(items)) => {
            let kept = take_elements(&list, items, set, keep);
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        _ => Value::Null,
    }
}

fn take_entries(
    map: &MapAtom<'_>,
    entries: &Map<String, Value>,
    set: &FieldSet,
    keep: Keep,
) -> Map<String, Value> {
    let take_entry = |(name, value): (&String, &Value)| {
        let element = PathElement::Field(name.clone());
        let shape = map.entry(name).unwrap_or(Shape::DEDUCED);
        let kept = match (set.has_member(&element), set.below(&element), keep) {
            (true, _, Keep::Others) | (false, None, Keep::Named) => return None,
            (true, None, Keep::Named) => take(shape, value, &FieldSet::default(), keep),
            (_, Some(below), _) => take(shape, value, below, keep),
            (false, None, Keep::Others) => value.clone(),
        };
        Some((name.clone(), kept))
    };
    entries.iter().filter_map(take_entry).collect()
}

fn take_elements(list: &ListAtom<'_>, items: &[Value], set: &FieldSet, keep: Keep) -> Vec<Value> {
    let take_element = |item: &Value| {
        let element = path_element(list, item).ok()?;
        match (set.has_member(&element), set.below(&element), keep) {
            (true, _, Keep::Others) | (false, None, Keep::Named) => None,
            (_, Some(below), _) => Some(take(list.element, item, below, keep)),
            _ => Some(item.clone()),
        }
    };
    items.iter().filter_map(take_element).collect()
}

/// The set with every struct field that has something below it added as a member: removing
/// `a.b.c` and nothing else of `a` must be able to remove `a`. Entries of maps are not added.
pub fn with_named_fields(shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    named(Some(shape), set)
}

fn named(shape: Option<Shape<'_>>, set: &FieldSet) -> FieldSet {
    let atom = shape.map(Shape::atom);
    let map = atom.as_ref().and_then(|a| a.map);
    let list = atom.as_ref().and_then(|a| a.list);
    let mut members: BTreeSet<PathElement> = set.members().cloned().collect();
    let mut children = Vec::new();
    for (element, child) in set.children() {
        let shape = match (element, &map, &list) {
            (PathElement::Field(name), Some(map), _) => {
                if map.field(name).is_some() {
                    members.insert(element.clone());
                }
                map.entry(name)
            }
            (PathElement::Key(_), _, Some(list)) => Some(list.element),
            _ => None,
        };
        children.push((element.clone(), named(shape, child)));
    }
    FieldSet::from_parts(members, children)
}
