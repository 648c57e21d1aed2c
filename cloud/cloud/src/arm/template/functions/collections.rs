//! Functions on lists, objects and what counts as one: a table of them.

use serde_json::{Map, Value, json};

use super::{Arguments, LONGEST, number, plain, text};
use crate::arm::document;

type Function = fn(Arguments<'_>) -> Option<Value>;

const FUNCTIONS: &[(&str, Function)] = &[
    ("array", array),
    ("createarray", |a| Some(json!(a))),
    ("createobject", create_object),
    ("length", length),
    ("empty", is_empty),
    ("contains", contains),
    ("first", |a| {
        end(a, |all| all.first(), |text| text.chars().next())
    }),
    ("last", |a| {
        end(a, |all| all.last(), |text| text.chars().last())
    }),
    ("skip", |a| list(elements(a)?.iter().skip(count(a)?))),
    ("take", take),
    ("range", range),
    ("indexof", index_of),
    ("union", union),
    ("intersection", intersection),
    ("items", items),
    ("objectkeys", |a| {
        Some(json!(a.first()?.as_object()?.keys().collect::<Vec<_>>()))
    }),
    ("flatten", |a| {
        list(elements(a)?.iter().filter_map(Value::as_array).flatten())
    }),
    ("tryget", try_get),
];

/// Calls a function of this table.
pub(super) fn call(name: &str, a: Arguments<'_>) -> Option<Value> {
    let (_, function) = FUNCTIONS.iter().find(|(own, _)| *own == name)?;
    function(a)
}

fn elements<'a>(a: Arguments<'a>) -> Option<&'a Vec<Value>> {
    a.first()?.as_array()
}

fn count(a: Arguments<'_>) -> Option<usize> {
    Some(number(a, 1)? as usize)
}

fn list<'v>(values: impl Iterator<Item = &'v Value>) -> Option<Value> {
    Some(json!(values.collect::<Vec<_>>()))
}

fn array(a: Arguments<'_>) -> Option<Value> {
    Some(match a.first()? {
        Value::Array(all) => json!(all),
        one => json!([one]),
    })
}

fn create_object(a: Arguments<'_>) -> Option<Value> {
    let pairs = a.chunks_exact(2);
    let pairs = pairs.map(|pair| (plain(&pair[0]), pair[1].clone()));
    Some(Value::Object(pairs.collect::<Map<_, _>>()))
}

fn length(a: Arguments<'_>) -> Option<Value> {
    Some(json!(match a.first()? {
        Value::Array(all) => all.len(),
        Value::Object(map) => map.len(),
        other => other.as_str()?.chars().count(),
    }))
}

fn is_empty(a: Arguments<'_>) -> Option<Value> {
    Some(json!(match a.first()? {
        Value::Array(all) => all.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Null => true,
        _ => false,
    }))
}

fn contains(a: Arguments<'_>) -> Option<Value> {
    Some(json!(match a.first()? {
        Value::Array(all) => all.contains(a.get(1)?),
        Value::Object(map) => map.keys().any(|key| key.eq_ignore_ascii_case(text(a, 1))),
        other => other.as_str()?.contains(text(a, 1)),
    }))
}

/// One end of a list or of a text; nothing of an empty one.
fn end(
    a: Arguments<'_>,
    of_list: fn(&[Value]) -> Option<&Value>,
    of_text: fn(&str) -> Option<char>,
) -> Option<Value> {
    Some(match a.first()? {
        Value::Array(all) => of_list(all).cloned().unwrap_or_default(),
        other => json!(
            of_text(other.as_str()?)
                .map(String::from)
                .unwrap_or_default()
        ),
    })
}

fn take(a: Arguments<'_>) -> Option<Value> {
    match a.first()? {
        Value::Array(all) => list(all.iter().take(count(a)?)),
        other => {
            let letters = other.as_str()?.chars().take(count(a)?);
            Some(json!(letters.collect::<String>()))
        }
    }
}

fn range(a: Arguments<'_>) -> Option<Value> {
    let (from, count) = (number(a, 0)?, number(a, 1)?);
    if !(0..=LONGEST as i64).contains(&count) {
        return None;
    }
    Some(json!((from..from.checked_add(count)?).collect::<Vec<_>>()))
}

fn index_of(a: Arguments<'_>) -> Option<Value> {
    let found = elements(a)?.iter().position(|v| Some(v) == a.get(1));
    Some(json!(found.map_or(-1, |at| at as i64)))
}

fn union(a: Arguments<'_>) -> Option<Value> {
    if a.first()?.is_object() {
        let mut all = Value::Object(Map::new());
        a.iter().for_each(|one| document::overlay(&mut all, one));
        return Some(all);
    }
    let mut all: Vec<Value> = Vec::new();
    for one in a.iter().filter_map(Value::as_array).flatten() {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
    Some(json!(all))
}

fn intersection(a: Arguments<'_>) -> Option<Value> {
    let has = |other: &Value, one: &Value| other.as_array().is_some_and(|all| all.contains(one));
    let common = |one: &&Value| a[1..].iter().all(|other| has(other, one));
    list(elements(a)?.iter().filter(common))
}

fn items(a: Arguments<'_>) -> Option<Value> {
    let pairs = a.first()?.as_object()?.iter();
    let pairs = pairs.map(|(key, value)| json!({"key": key, "value": value}));
    Some(json!(pairs.collect::<Vec<_>>()))
}

fn try_get(a: Arguments<'_>) -> Option<Value> {
    let mut at = a.first()?;
    for step in &a[1..] {
        at = match (step.as_str(), step.as_u64()) {
            (Some(name), _) => &at[name],
            (_, Some(index)) => &at[index as usize],
            _ => &Value::Null,
        };
    }
    Some(at.clone())
}
