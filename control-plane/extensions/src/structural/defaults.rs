//! Defaults must be values of their own schema, and stand where defaults can be filled in.

use serde_json::Value;

use super::{Place, Problems, below};
use crate::coerce::{self, Source};
use crate::schema::Node;
use crate::validate::{self, At};

pub(super) fn check(place: &Place<'_>, problems: &mut Problems) {
    let root = &place.path;
    for name in ["apiVersion", "kind", "metadata"] {
        let own = &place.schema["properties"][name];
        if !own["default"].is_null() {
            let at = format!("{root}.properties[{name}].default");
            problems.forbidden(
                &at,
                "must not be set in top-level apiVersion, kind or metadata",
            );
        }
    }
    for (schema, path) in below(place.schema, root) {
        if !path.ends_with("[metadata]") {
            node(schema, &path, problems);
        }
    }
}

fn node(schema: &Value, path: &str, problems: &mut Problems) {
    let default = &schema["default"];
    if !default.is_null() {
        value(schema, default, &format!("{path}.default"), problems);
    }
    for (schema, path) in below(schema, path) {
        node(schema, &path, problems);
    }
}

fn value(schema: &Value, default: &Value, at: &str, problems: &mut Problems) {
    let node = Node::read(schema);
    // A default is looked at as a field, so that what holds for any value holds for it.
    let holder = Node {
        properties: vec![("default".to_owned(), node.clone())],
        ..Node::default()
    };
    let object = serde_json::json!({ "default": default });
    let pruned = coerce::normalize(&holder, object.clone(), Source::Storage);
    if pruned.is_ok_and(|pruned| pruned.value != object) {
        problems.invalid(at, default, "must not have unknown fields");
    }
    let mut filled = default.clone();
    coerce::default(&node, &mut filled);
    for mut error in validate::check(&node, &filled, None, &At::ROOT.key("default")) {
        error.field = error.field.replacen("default", at, 1);
        error.message = error.message.replacen(": default", &format!(": {at}"), 1);
        problems.0.push(error);
    }
}
