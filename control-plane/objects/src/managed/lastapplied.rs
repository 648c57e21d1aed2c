//! From client-side to server-side apply: `kubectl`'s last-applied annotation.

use serde_json::{Map, Value};

use super::conflict::Conflicts;
use super::entries::{Managers, Operation};
use super::{Request, ownership};
use crate::fieldset::FieldSet;
use crate::merge::{Duplicates, compare, field_set, validate};
use crate::shape::Shape;

/// The only manager the annotation concerns.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Applies; fields that client-side apply set and that still have that value are no conflict for
/// `kubectl`, they are taken over.
pub(super) fn apply(
    shape: Shape<'_>,
    live: &Value,
    config: &Value,
    managers: Managers,
    request: &Request<'_>,
) -> Result<(Option<Value>, Managers), Conflicts> {
    let id = request.id(Operation::Apply);
    let run = |request: &Request<'_>| {
        ownership::apply(shape, live, config, managers.clone(), &id, request)
    };
    let conflicts = match run(request) {
        Err(conflicts) if request.manager == KUBECTL => conflicts,
        outcome => return outcome,
    };
    let Some(ours) = unchanged_since_last_applied(shape, live, request) else {
        return Err(conflicts);
    };
    let left: Vec<_> = conflicts
        .0
        .into_iter()
        .filter(|c| !ours.has(&c.path.0))
        .collect();
    if left.is_empty() {
        run(&Request {
            force: true,
            ..*request
        })
    } else {
        Err(Conflicts(left))
    }
}

/// The fields of the annotation's configuration that are the same in the live object.
fn unchanged_since_last_applied(
    shape: Shape<'_>,
    live: &Value,
    request: &Request<'_>,
) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(request.api_version) {
        return None;
    }
    validate(shape, live, Duplicates::Refused).ok()?;
    validate(shape, &last, Duplicates::Refused).ok()?;
    let changes = compare(shape, &last, live);
    let applied = field_set(shape, &last);
    Some(
        applied
            .difference(&changes.modified)
            .difference(&changes.added)
            .difference(&changes.removed),
    )
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object
        .pointer("/metadata/annotations")?
        .get(ANNOTATION)?
        .as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Keeps the annotation, where there is one, in step with what was applied, so that client-side
/// apply still works afterwards.
pub(super) fn refresh_annotation(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let text = configuration_text(config);
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), text.into());
    if size_of(annotations) > MAX_ANNOTATIONS_BYTES {
        annotations.remove(ANNOTATION);
    }
}

// Go's encoder escapes what matters inside HTML and ends with a newline.
fn configuration_text(config: &Value) -> String {
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    let text = config.to_string();
    let text = text
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026");
    text + "\n"
}

fn size_of(annotations: &Map<String, Value>) -> usize {
    annotations
        .iter()
        .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
        .sum()
}
