//! The order of a merged list: what the patch asks for first, then the live order.

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
    let mut patched = Vec::new();
    let mut live_only = Vec::new();
    for element in merged {
        let id = identity(&element, key)?;
        let is_wanted = wanted.iter().any(|w| place_value(w, key) == Some(id));
        if is_wanted {
            patched.push(element)
        } else {
            live_only.push(element)
        }
    }
    let key = if elements == Elements::Maps {
        key
    } else {
        None
    };
    let patched = sorted(patched, wanted, key, elements)?;
    let live_only = sorted(live_only, live, key, elements)?;
    Ok(interleaved(live_only, patched, live, key))
}

fn place_value<'v>(element: &'v Value, key: Option<&str>) -> Option<&'v Value> {
    match key {
        Some(key) => element.get(key),
        None => Some(element),
    }
}

fn place(order: &[Value], element: &Value, key: Option<&str>) -> Option<usize> {
    let id = place_value(element, key);
    order.iter().position(|o| place_value(o, key) == id)
}

// Go sorts short slices by insertion, and upstream's comparison is not a strict order when an
// element has no place: only the same algorithm gives the same answer.
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
    let (deletions, mut items): (Vec<_>, Vec<_>) = items.into_iter().partition(is_deletion);
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            let places = (
                place(order, &items[at], key),
                place(order, &items[at - 1], key),
            );
            let is_less = match places {
                (Some(this), Some(previous)) => this < previous,
                _ => true,
            };
            if !is_less {
                break;
            }
            items.swap(at, at - 1);
        }
    }
    items.extend(deletions);
    Ok(items)
}

/// Inserts each live-only element before the first patched one that stood after it in `live`.
fn interleaved(
    live_only: Vec<Value>,
    patched: Vec<Value>,
    live: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let mut out = Vec::with_capacity(live_only.len() + patched.len());
    let mut left = live_only.into_iter().peekable();
    for right in patched {
        let right_place = place(live, &right, key);
        while let (Some(next), Some(right_place)) = (left.peek(), right_place) {
            if place(live, next, key).is_none_or(|p| p >= right_place) {
                break;
            }
            out.extend(left.next());
        }
        out.push(right);
    }
    out.extend(left);
    out
}
