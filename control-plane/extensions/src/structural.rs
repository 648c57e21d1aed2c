//! Which schemas a definition may have.
//!
//! Each file is one of upstream's passes; texts are theirs. On an update a pass binds only definitions that kept
//! its rules before: what an older server let in can still be changed.

mod defaults;
mod forbidden;
mod invariants;
mod lists;

use kinds::field::{Errors, FieldError, Reason};
use serde_json::Value;

/// The errors of one pass, with their places as text.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<FieldError>);

impl Problems {
    fn push(&mut self, reason: Reason, field: &str, message: String) {
        self.0.push(FieldError {
            reason,
            field: field.to_owned(),
            message,
        });
    }

    fn required(&mut self, field: &str, detail: &str) {
        self.push(Reason::Required, field, format!("Required value: {detail}"));
    }

    fn forbidden(&mut self, field: &str, detail: &str) {
        self.push(Reason::Forbidden, field, format!("Forbidden: {detail}"));
    }

    fn invalid(&mut self, field: &str, value: &Value, detail: &str) {
        self.push(
            Reason::Invalid,
            field,
            format!("Invalid value: {value}: {detail}"),
        );
    }

    fn not_supported(&mut self, field: &str, value: &Value, allowed: &[&str]) {
        let all: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        let message = format!(
            "Unsupported value: {value}: supported values: {}",
            all.join(", ")
        );
        self.push(Reason::NotSupported, field, message);
    }
}

/// One schema of a definition, and where it stands.
struct Place<'d> {
    schema: &'d Value,
    path: String,
    has_status: bool,
    version: &'d Value,
    /// Where the rest of the version stands.
    within: String,
}

type Pass = fn(&Place<'_>, &mut Problems);

const PASSES: [Pass; 3] = [forbidden::check, invariants::check, lists::check];

/// What is wrong with the schemas of a definition, given what it was before.
pub fn check(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let before = errors.0.len();
    let mut run = |pass: Pass| {
        let had = old.is_some_and(|old| !problems(old, pass).0.is_empty());
        if !had {
            errors.0.extend(problems(definition, pass).0);
        }
        errors.0.len() == before
    };
    let in_order = PASSES.into_iter().fold(true, |_, pass| run(pass));
    // Defaults are values of schemas: they are only looked at where those are in order.
    if in_order {
        run(defaults::check);
    }
}

fn problems(definition: &Value, pass: Pass) -> Problems {
    let mut problems = Problems::default();
    for place in places(definition) {
        pass(&place, &mut problems);
    }
    problems
}

// A schema that all versions share stands in `spec.validation` to upstream's eyes.
fn places(definition: &Value) -> Vec<Place<'_>> {
    let all = definition["spec"]["versions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let schema = |version: &'_ Value| version["schema"]["openAPIV3Schema"].clone();
    let shared = all
        .windows(2)
        .all(|pair| schema(&pair[0]) == schema(&pair[1]));
    let place = |(i, version)| Place {
        schema: deep(version),
        path: match shared {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{i}].schema.openAPIV3Schema"),
        },
        has_status: all
            .iter()
            .any(|v: &Value| v["subresources"]["status"].is_object())
            && version["subresources"]["status"].is_object(),
        version,
        within: format!("spec.versions[{i}]"),
    };
    let mut places: Vec<Place<'_>> = all.iter().enumerate().map(place).collect();
    places.retain(|place| place.schema.is_object());
    if shared {
        places.truncate(1);
    }
    places
}

fn deep(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

/// Whether a schema says this.
fn is(schema: &Value, key: &str) -> bool {
    schema[key] == true
}

fn text<'s>(schema: &'s Value, key: &str) -> &'s str {
    schema[key].as_str().unwrap_or_default()
}

/// The schemas below one, outside its junctors, with their places.
fn below<'s>(schema: &'s Value, path: &str) -> Vec<(&'s Value, String)> {
    let mut all = Vec::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        all.push((schema, format!("{path}.properties[{name}]")));
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            all.push((&schema[key], format!("{path}.{key}")));
        }
    }
    all
}

/// The schemas in the junctors of one, with their places.
fn junctors<'s>(schema: &'s Value, path: &str) -> Vec<(&'s Value, String)> {
    let mut all = Vec::new();
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, schema) in schema[key].as_array().into_iter().flatten().enumerate() {
            all.push((schema, format!("{path}.{key}[{i}]")));
        }
    }
    if schema["not"].is_object() {
        all.push((&schema["not"], format!("{path}.not")));
    }
    all
}

#[cfg(test)]
mod tests;
