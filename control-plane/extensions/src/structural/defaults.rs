//! Defaults must be values of their own schema, and stand where defaults can be filled in.

use serde_json::Value;

use super::{Place, Problems, below};
use crate::coerce::{self, Source};
use crate::schema::{Additional, Node};
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
        if !path.ends_with("[metadata]") && !path.ends_with(".additionalProperties") {
            node(schema, &path, problems);
        }
    }
}

fn node(schema: &Value, path: &str, problems: &mut Problems) {
    let default = &schema["default"];
    if !default.is_null() {
        value(schema, default, &format!("{path}.default"), problems);
    }
    // Upstream does not look below keys that are not known.
    for (schema, path) in below(schema, path) {
        if !path.ends_with(".additionalProperties") {
            node(schema, &path, problems);
        }
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
    if pruned.is_ok_and(|pruned| !pruned.unknown.is_empty()) {
        problems.invalid(at, default, "must not have unknown fields");
    }
    let node = without_mixed(node);
    for mut error in validate::check(&node, default, None, &At::ROOT.key("default")) {
        error.field = error.field.replacen("default", at, 1);
        // Upstream's text does not say where the default itself stands.
        error.message = error.message.replacen(": default", ": ", 1);
        problems.0.push(error);
    }
}

// A default that may be a number or a text is held to neither.
fn without_mixed(mut node: Node) -> Node {
    node.int_or_string = false;
    let below = std::mem::take(&mut node.properties).into_iter();
    node.properties = below
        .map(|(name, below)| (name, without_mixed(below)))
        .collect();
    node.items = node.items.map(|below| Box::new(without_mixed(*below)));
    if let Additional::Schema(below) = node.additional {
        node.additional = Additional::Schema(Box::new(without_mixed(*below)));
    }
    node
}
