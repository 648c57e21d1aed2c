//! The order of a merged list: what the patch asks for first, then the live order.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{DIRECTIVE, Elements, Outcome, SET_ORDER, bad_type, no_merge_key, refuse};
use crate::gotext;

/// Whether the patched elements appear in `wanted`, in the same relative order.
pub(super) fn check(patch: &[Value], wanted: &[Value], key: Option<&str>) -> Outcome<()> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut wanted_left = wanted.iter();
    for element in elements_to_find(patch, key)? {
        loop {
            let Some(candidate) = wanted_left.next() else {
                return refuse(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                    gotext::plain_list(patch),
                    gotext::plain_list(wanted)
                ));
            };
            if identity(element, key)? == identity(candidate, key)? {
                break;
            }
        }
    }
    Ok(())
}

// Elements that carry a directive need no place in the order.
fn elements_to_find<'p>(patch: &'p [Value], key: Option<&str>) -> Outcome<Vec<&'p Value>> {
    if key.is_some()
        && let Some(scalar) = patch.iter().find(|e| !e.is_object())
    {
        return bad_type("map[string]interface {}", scalar);
    }
    Ok(patch
        .iter()
        .filter(|e| e.get(DIRECTIVE).is_none())
        .collect())
}

/// What identifies an element: its merge key's value, or the element itself.
fn identity<'v>(element: &'v Value, key: Option<&str>) -> Outcome<&'v Value> {
    let Some(key) = key else { return Ok(element) };
    let fields = fields_of(element)?;
    match fields.get(key) {
        Some(value) => Ok(value),
        None => no_merge_key(fields, key),
    }
}

fn fields_of(element: &Value) -> Outcome<&Map<String, Value>> {
    match element {
        Value::Object(fields) => Ok(fields),
        other => bad_type("map[string]interface {}", other),
    }
}

/// Orders `merged`: elements in `wanted` follow that list, the others follow `live`, and the two
/// interleave by their places in `live`.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    live: &[Value],
    key: Option<&str>,
    elements: Elements,
) -> Outcome<Vec<Value>> {
    let asked_for = Places::of(wanted, key);
    let mut patched = Vec::new();
    let mut live_only = Vec::new();
    for element in merged {
        identity(&element, key)?;
        match asked_for.of_element(&element) {
            Some(_) => patched.push(element),
            None => live_only.push(element),
        }
    }
    let key = if elements == Elements::Maps {
        key
    } else {
        None
    };
    let patched = sorted(patched, wanted, key, elements)?;
    let live_only = sorted(live_only, live, key, elements)?;
    Ok(interleaved(live_only, patched, &Places::of(live, key)))
}

fn place_value<'v>(element: &'v Value, key: Option<&str>) -> Option<&'v Value> {
    match key {
        Some(key) => element.get(key),
        None => Some(element),
    }
}

/// Where the elements of a list stand, by what identifies them: looked up once for each, however long the list is.
struct Places<'k> {
    key: Option<&'k str>,
    first: HashMap<Option<String>, usize>,
}

impl<'k> Places<'k> {
    fn of(order: &[Value], key: Option<&'k str>) -> Places<'k> {
        let mut first = HashMap::with_capacity(order.len());
        for (place, element) in order.iter().enumerate() {
            first.entry(written(element, key)).or_insert(place);
        }
        Places { key, first }
    }

    fn of_element(&self, element: &Value) -> Option<usize> {
        self.first.get(&written(element, self.key)).copied()
    }
}

// Two values are equal when they are written the same: the keys of objects are sorted.
fn written(element: &Value, key: Option<&str>) -> Option<String> {
    place_value(element, key).map(Value::to_string)
}

/// What Go sorts by insertion (`sort.Slice`'s `maxInsertion`).
const SHORT: usize = 12;

// Upstream's comparison is not a strict order when an element has no place: for short lists only the same algorithm
// gives the same answer, and for long ones Go promises none.
fn sorted(
    items: Vec<Value>,
    order: &[Value],
    key: Option<&str>,
    elements: Elements,
) -> Outcome<Vec<Value>> {
    if elements == Elements::Maps {
        items
            .iter()
            .chain(order)
            .try_for_each(|item| identity(item, key).map(|_| ()))?;
    }
    let is_deletion = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
    let (deletions, items): (Vec<_>, Vec<_>) = items.into_iter().partition(is_deletion);
    let places = Places::of(order, key);
    let mut placed: Vec<(Option<usize>, Value)> = items
        .into_iter()
        .map(|item| (places.of_element(&item), item))
        .collect();
    match placed.len() <= SHORT {
        true => insertion_sort(&mut placed),
        false => placed.sort_by_key(|(place, _)| *place),
    }
    let mut items: Vec<Value> = placed.into_iter().map(|(_, item)| item).collect();
    items.extend(deletions);
    Ok(items)
}

fn insertion_sort(items: &mut [(Option<usize>, Value)]) {
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            let is_less = match (items[at].0, items[at - 1].0) {
                (Some(this), Some(previous)) => this < previous,
                _ => true,
            };
            if !is_less {
                break;
            }
            items.swap(at, at - 1);
        }
    }
}

/// Inserts each live-only element before the first patched one that stood after it in `live`.
fn interleaved(live_only: Vec<Value>, patched: Vec<Value>, live: &Places<'_>) -> Vec<Value> {
    let mut out = Vec::with_capacity(live_only.len() + patched.len());
    let mut left = live_only.into_iter().peekable();
    for right in patched {
        let right_place = live.of_element(&right);
        while let (Some(next), Some(right_place)) = (left.peek(), right_place) {
            if live.of_element(next).is_none_or(|p| p >= right_place) {
                break;
            }
            out.extend(left.next());
        }
        out.push(right);
    }
    out.extend(left);
    out
}
