//! Strategic merge patch: a merge patch that knows, from [`schema`](crate::schema), which lists
//! merge by key.
//!
//! Rules of `apimachinery/pkg/util/strategicpatch`, for the server's side only (a patch onto an
//! object, never a patch onto a patch). Parts the table knows nothing about (raw extensions, the
//! values of maps) merge like a plain merge patch.

mod order;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::gotext;
use crate::schema::{Field, FieldType, TypeRef};

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Why a strategic merge patch was refused.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum StrategicError {
    /// The patch is no JSON object (upstream: 400).
    #[error("invalid JSON document")]
    NotAnObject,
    /// A `$deleteFromPrimitiveList` key names no list (upstream: 400).
    #[error("invalid patch format of primitive list")]
    DeleteListFormat,
    /// `$retainKeys` is no list, or the patch sets a key it does not retain (upstream: 400).
    #[error("invalid patch format of retainKeys")]
    RetainKeysFormat,
    /// A `$setElementOrder` key names no list (upstream: 400).
    #[error("invalid patch format of setElementOrder list")]
    SetOrderFormat,
    /// A merging list holds lists (upstream: 422).
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// Everything else upstream answers with a plain error (a 500 whose message is this text).
    #[error("{0}")]
    Unprocessable(String),
}

type Outcome<T> = Result<T, StrategicError>;

fn refuse<T>(message: impl Into<String>) -> Outcome<T> {
    Err(StrategicError::Unprocessable(message.into()))
}

fn no_merge_key<T>(map: &Fields, key: &str) -> Outcome<T> {
    let map = gotext::plain(&Value::Object(map.clone()));
    refuse(format!(
        "map: {map} does not contain declared merge key: {key}"
    ))
}

fn bad_type<T>(expected: &str, found: &Value) -> Outcome<T> {
    refuse(format!(
        "expected a {expected}, but received a {}",
        gotext::type_name(found)
    ))
}

/// Applies a strategic merge patch to an object of type `ty`.
pub fn strategic_patch(ty: TypeRef, doc: &Value, patch: &Value) -> Outcome<Value> {
    let (Value::Object(doc), Value::Object(patch)) = (doc, patch) else {
        return Err(StrategicError::NotAnObject);
    };
    merge_map(doc.clone(), patch.clone(), Some(ty)).map(Value::Object)
}

/// What the table says about one field, seen from a strategic merge patch.
#[derive(Clone, Copy)]
struct Rule {
    /// The type of the value, or of the list's elements; `None` where the table ends.
    ty: Option<TypeRef>,
    merge: bool,
    replace: bool,
    merge_key: Option<&'static str>,
}

impl Rule {
    const PLAIN: Self = Self {
        ty: None,
        merge: false,
        replace: false,
        merge_key: None,
    };

    fn of(ty: Option<TypeRef>, key: &str) -> Self {
        ty.and_then(|t| t.get().field(key))
            .map_or(Self::PLAIN, Self::of_field)
    }

    fn of_field(field: &'static Field) -> Self {
        Self {
            ty: object_type(&field.ty),
            merge: field.patch.merge,
            replace: field.patch.replace,
            merge_key: field.patch.merge_key,
        }
    }
}

fn object_type(ty: &FieldType) -> Option<TypeRef> {
    match ty {
        FieldType::Object(ty) => Some(*ty),
        FieldType::List(element) => object_type(element),
        FieldType::Scalar(_) | FieldType::Map(_) => None,
    }
}

fn merge_map(mut original: Fields, mut patch: Fields, ty: Option<TypeRef>) -> Outcome<Fields> {
    if let Some(directive) = patch.get(DIRECTIVE).cloned() {
        return directed_map(&directive, patch);
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, ty)?;
    for (key, value) in patch {
        match key.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => {
                let field = rest
                    .strip_prefix('/')
                    .ok_or(StrategicError::DeleteListFormat)?;
                delete_from_list(&mut original, field, value, ty)?;
            }
            None => merge_field(&mut original, key, value, ty)?,
        }
    }
    Ok(original)
}

fn directed_map(directive: &Value, mut patch: Fields) -> Outcome<Fields> {
    match directive.as_str() {
        Some("replace") => {
            patch.remove(DIRECTIVE);
            Ok(patch)
        }
        Some("delete") => Ok(Fields::new()),
        _ => unknown_directive(directive, &patch),
    }
}

fn unknown_directive<T>(directive: &Value, map: &Fields) -> Outcome<T> {
    let map = gotext::plain(&Value::Object(map.clone()));
    refuse(format!(
        "unknown patch type: {} in map: {map}",
        gotext::plain(directive)
    ))
}

fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Outcome<()> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(retained) = retained else {
        return Err(StrategicError::RetainKeysFormat);
    };
    let is_retained = |key: &str| retained.iter().any(|v| v.as_str() == Some(key));
    let is_exempt = |key: &str, value: &Value| {
        value.is_null() || key.starts_with(DELETE_FROM_LIST) || key.starts_with(SET_ORDER)
    };
    if patch
        .iter()
        .any(|(key, value)| !is_exempt(key, value) && !is_retained(key))
    {
        return Err(StrategicError::RetainKeysFormat);
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

fn delete_from_list(
    original: &mut Fields,
    key: &str,
    items: Value,
    ty: Option<TypeRef>,
) -> Outcome<()> {
    if items.is_null() {
        original.remove(key);
        return Ok(());
    }
    if let (Some(Value::Array(current)), Value::Array(items)) = (original.get_mut(key), items) {
        *current = merge_list(std::mem::take(current), items, Rule::of(ty, key), true)?;
    }
    Ok(())
}

fn merge_field(
    original: &mut Fields,
    key: String,
    value: Value,
    ty: Option<TypeRef>,
) -> Outcome<()> {
    let merged = match (original.remove(&key), value) {
        (_, Value::Null) => None,
        (Some(Value::Object(current)), Value::Object(value)) => {
            let rule = Rule::of(ty, &key);
            let merged = if rule.replace {
                value
            } else {
                merge_map(current, value, rule.ty)?
            };
            Some(Value::Object(merged))
        }
        (Some(Value::Array(current)), Value::Array(value)) => {
            let rule = Rule::of(ty, &key);
            let merged = if rule.merge {
                merge_list(current, value, rule, false)?
            } else {
                value
            };
            Some(Value::Array(merged))
        }
        (_, value) => cleaned(value),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// A value taken over whole: without null fields and without anything that carries `$patch`.
fn cleaned(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, v)| !v.is_null());
            Some(
                kept.filter_map(|(k, v)| Some((k, cleaned(v)?)))
                    .collect::<Fields>()
                    .into(),
            )
        }
        Value::Array(items) => Some(items.into_iter().filter_map(cleaned).collect()),
        scalar => Some(scalar),
    }
}

/// Merges the lists that have a `$setElementOrder`, and takes them out of the patch.
fn merge_ordered_lists(
    original: &mut Fields,
    patch: &mut Fields,
    ty: Option<TypeRef>,
) -> Outcome<()> {
    let directives: Vec<_> = patch
        .keys()
        .filter(|k| k.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let wanted = list_or_type_error(patch.remove(&directive))?.unwrap_or_default();
        let key = directive
            .strip_prefix(SET_ORDER)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or(StrategicError::SetOrderFormat)?;
        merge_ordered_list(original, patch, key, &wanted, ty)?;
    }
    Ok(())
}

fn list_or_type_error(value: Option<Value>) -> Outcome<Option<Vec<Value>>> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => bad_type("[]interface {}", &other),
    }
}

fn merge_ordered_list(
    original: &mut Fields,
    patch: &mut Fields,
    key: &str,
    wanted: &[Value],
    ty: Option<TypeRef>,
) -> Outcome<()> {
    let live = list_or_type_error(original.get(key).cloned())?;
    let patched = list_or_type_error(patch.get(key).cloned())?;
    let rule = rule_of_list(ty, key)?;
    order::check(
        patched.as_deref().unwrap_or_default(),
        wanted,
        rule.merge_key,
    )?;
    let merged = match (live.clone(), patched.clone()) {
        (None, None) => return Ok(()),
        (Some(live), None) => live,
        (None, Some(patched)) => patched
            .into_iter()
            .filter_map(cleaned_of_directives)
            .collect(),
        (Some(live), Some(patched)) if rule.merge => merge_list(live, patched, rule, false)?,
        (Some(_), Some(patched)) => patched,
    };
    let live = live.unwrap_or_default();
    let elements = Elements::of(&live, patched.as_deref().unwrap_or_default())?;
    let merged = order::arrange(merged, wanted, &live, rule.merge_key, elements)?;
    original.insert(key.to_owned(), Value::Array(merged));
    patch.remove(key);
    Ok(())
}

// Unlike `cleaned`, nulls stay: upstream only takes directives out of a list it orders.
fn cleaned_of_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => Some(
            map.into_iter()
                .filter_map(|(k, v)| Some((k, cleaned_of_directives(v)?)))
                .collect::<Fields>()
                .into(),
        ),
        Value::Array(items) => Some(
            items
                .into_iter()
                .filter_map(cleaned_of_directives)
                .collect(),
        ),
        scalar => Some(scalar),
    }
}

fn rule_of_list(ty: Option<TypeRef>, key: &str) -> Outcome<Rule> {
    let Some(ty) = ty else { return Ok(Rule::PLAIN) };
    match ty.get().field(key) {
        Some(field) => Ok(Rule::of_field(field)),
        None => refuse(format!(
            "unable to find api field in struct {} for the json field {}",
            ty.get().name.rsplit('.').next().unwrap_or_default(),
            gotext::quoted(key)
        )),
    }
}

/// What a merging list holds; all its elements have one type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    Maps,
    Scalars,
}

impl Elements {
    fn of(left: &[Value], right: &[Value]) -> Outcome<Self> {
        let mut elements = left.iter().chain(right);
        let Some(first) = elements.next() else {
            return refuse("no elements in any of the given slices");
        };
        if first.is_array() {
            return Err(StrategicError::ListOfLists);
        }
        if elements.any(|e| gotext::type_name(e) != gotext::type_name(first)) {
            let (left, right) = (gotext::plain_list(left), gotext::plain_list(right));
            return refuse(format!(
                "list element types are not identical: [{left} {right}]"
            ));
        }
        Ok(if first.is_object() {
            Self::Maps
        } else {
            Self::Scalars
        })
    }
}

fn merge_list(
    live: Vec<Value>,
    patch: Vec<Value>,
    rule: Rule,
    is_deletion: bool,
) -> Outcome<Vec<Value>> {
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    match (Elements::of(&live, &patch)?, rule.merge_key) {
        (Elements::Scalars, _) if is_deletion => {
            let gone: HashSet<String> = patch.iter().map(Value::to_string).collect();
            let stays = |item: &Value| !gone.contains(&item.to_string());
            Ok(live.into_iter().filter(stays).collect())
        }
        (Elements::Scalars, _) => {
            let merged = distinct(live.iter().chain(&patch).cloned().collect());
            order::arrange(merged, &patch, &live, None, Elements::Scalars)
        }
        (Elements::Maps, None) => refuse("cannot merge lists without merge key for struct"),
        (Elements::Maps, Some(key)) => {
            let (live, patch) = without_directives(live, patch, key)?;
            let merged = merge_elements(live.clone(), &patch, key, rule.ty)?;
            order::arrange(merged, &patch, &live, Some(key), Elements::Maps)
        }
    }
}

// Which of several equal ones stays does not matter: the order is settled afterwards.
fn distinct(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::with_capacity(items.len());
    let is_new = |item: &Value| seen.insert(item.to_string());
    items.into_iter().filter(is_new).collect()
}

/// Carries out the elements that only hold a `$patch`, and answers what remains of both lists.
fn without_directives(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Outcome<(Vec<Value>, Vec<Value>)> {
    let mut kept = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replaces = false;
    for element in patch {
        let Some((fields, directive)) = directive_of(&element) else {
            kept.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let Some(value) = fields.get(key) else {
                    return no_merge_key(fields, key);
                };
                gone.insert(value.to_string());
            }
            Some("replace") => replaces = true,
            Some("merge") => return refuse("merging lists cannot yet be specified in the patch"),
            _ => return unknown_directive(directive, fields),
        }
    }
    let is_gone = |value: &Value| gone.contains(&value.to_string());
    live.retain(|item| !item.get(key).is_some_and(is_gone));
    Ok(if replaces {
        (kept, Vec::new())
    } else {
        (live, kept)
    })
}

fn directive_of(element: &Value) -> Option<(&Fields, &Value)> {
    let fields = element.as_object()?;
    Some((fields, fields.get(DIRECTIVE)?))
}

fn merge_elements(
    mut live: Vec<Value>,
    patch: &[Value],
    key: &str,
    ty: Option<TypeRef>,
) -> Outcome<Vec<Value>> {
    let mut places = HashMap::with_capacity(live.len());
    for (place, item) in live.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(value.to_string()).or_insert(place);
        }
    }
    for element in patch {
        let Value::Object(fields) = element else {
            return bad_type("map[string]interface {}", element);
        };
        let Some(value) = fields.get(key) else {
            return no_merge_key(fields, key);
        };
        let place = *places.entry(value.to_string()).or_insert(live.len());
        match live.get_mut(place) {
            Some(Value::Object(current)) => {
                *current = merge_map(std::mem::take(current), fields.clone(), ty)?;
            }
            _ => live.push(element.clone()),
        }
    }
    Ok(live)
}

#[cfg(test)]
mod tests;
