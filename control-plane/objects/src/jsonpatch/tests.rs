#![allow(clippy::unwrap_used, reason = "tests")]
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn patched(doc: Value, patch: Value) -> Result<Value, String> {
    json_patch(&doc, &patch).map_err(|e| e.to_string())
}

#[test]
fn operations_follow_the_rfc_and_upstreams_deviations() {
    let table = [
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/b", "value": 2}]),
            json!({"a": 1, "b": 2}),
        ),
        (
            json!({"a": [1, 3]}),
            json!([{"op": "add", "path": "/a/1", "value": 2}]),
            json!({"a": [1, 2, 3]}),
        ),
        (
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/-", "value": 2}]),
            json!({"a": [1, 2]}),
        ),
        (
            json!({"a": [1, 2]}),
            json!([{"op": "remove", "path": "/a/-1"}]),
            json!({"a": [1]}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "remove", "path": "/a"}]),
            json!({}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "/a", "value": 2}]),
            json!({"a": 2}),
        ),
        (
            json!({}),
            json!([{"op": "replace", "path": "/new", "value": 2}]),
            json!({"new": 2}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "", "value": {"b": 2}}]),
            json!({"b": 2}),
        ),
        (
            json!({"a": {"x": 1}}),
            json!([{"op": "move", "from": "/a/x", "path": "/b"}]),
            json!({"a": {}, "b": 1}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "copy", "from": "/a", "path": "/b"}]),
            json!({"a": 1, "b": 1}),
        ),
        (
            json!({"a/b": {"m~n": 1}}),
            json!([{"op": "replace", "path": "/a~1b/m~0n", "value": 2}]),
            json!({"a/b": {"m~n": 2}}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 1}]),
            json!({"a": 1}),
        ),
        (
            json!({}),
            json!([{"op": "test", "path": "/a", "value": null}]),
            json!({}),
        ),
        (
            json!({}),
            json!([{"op": "add", "path": "/a"}]),
            json!({"a": null}),
        ),
    ];
    for (doc, patch, expected) in table {
        assert_eq!(patched(doc, patch.clone()), Ok(expected), "{patch}");
    }
}

#[test]
fn failures_carry_upstreams_texts() {
    let table = [
        (
            json!([{"op": "test", "path": "/a", "value": 2}]),
            "testing value /a failed: test failed",
        ),
        (
            json!([{"op": "remove", "path": "/x"}]),
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            json!([{"op": "add", "path": "/x/y", "value": 1}]),
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        (
            json!([{"op": "replace", "path": "/x/y", "value": 1}]),
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (
            json!([{"op": "replace", "path": "/l/5", "value": 1}]),
            "replace operation does not apply: doc is missing key: /l/5: missing value",
        ),
        (
            json!([{"op": "add", "path": "/l/5", "value": 1}]),
            "error in add for path: '/l/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            json!([{"op": "move", "from": "/x/y", "path": "/b"}]),
            "move operation does not apply: doc is missing from path: /x/y: missing value",
        ),
        (
            json!([{"op": "frob", "path": "/a"}]),
            "Unexpected kind: frob",
        ),
        (
            json!([{"op": "remove"}]),
            "remove operation failed to decode path: missing value",
        ),
        (
            json!({}),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            json!([1]),
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
    ];
    for (patch, text) in table {
        let error = patched(json!({"a": 1, "l": [1]}), patch).unwrap_err();
        assert_eq!(error, text);
    }
}

#[test]
fn size_limits_hold() {
    let many: Value =
        vec![json!({"op": "test", "path": "", "value": {}}); MAX_OPERATIONS + 1].into();
    let error = json_patch(&json!({}), &many).unwrap_err();
    assert_eq!(
        error,
        JsonPatchError::TooManyOperations {
            got: MAX_OPERATIONS + 1
        }
    );
    let doc = json!({"a": "x".repeat(MAX_COPIED_BYTES / 2)});
    let copies = json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "copy", "from": "/a", "path": "/c"}]);
    let error = json_patch(&doc, &copies).unwrap_err().to_string();
    assert!(error.starts_with("Unable to complete the copy"), "{error}");
}

#[test]
fn merge_patches_merge_maps_and_delete_nulls() {
    let table = [
        (
            json!({"a": 1, "b": 2}),
            json!({"a": null, "c": 3}),
            json!({"b": 2, "c": 3}),
        ),
        (
            json!({"a": {"x": 1}}),
            json!({"a": {"y": 2}}),
            json!({"a": {"x": 1, "y": 2}}),
        ),
        (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
        (
            json!({}),
            json!({"a": {"b": {"c": null}}}),
            json!({"a": {"b": {}}}),
        ),
        (
            json!({}),
            json!({"a": [{"b": null}, null]}),
            json!({"a": [{}, null]}),
        ),
        (json!({"a": {"x": 1}}), json!({"a": "s"}), json!({"a": "s"})),
        (
            json!({"a": "s"}),
            json!({"a": {"x": 1, "y": null}}),
            json!({"a": {"x": 1}}),
        ),
    ];
    for (doc, patch, expected) in table {
        assert_eq!(merge_patch(&doc, &patch), Ok(expected), "{patch}");
    }
    assert!(merge_patch(&json!({}), &json!([])).is_err());
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(Value::from),
        "[a-c/~0-9-]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let key = prop_oneof!["[a-c0-9~/-]{0,2}", "op|path|from|value"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..3)
                .prop_map(|m| m.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn arbitrary_operation() -> impl Strategy<Value = Value> {
    let pointer = "(/[a-c0-9~-]{0,2}){0,3}";
    (
        "add|remove|replace|move|copy|test",
        pointer,
        pointer,
        arbitrary_json(),
    )
        .prop_map(
            |(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}),
        )
}

proptest! {
    #[test]
    fn no_patch_panics(
        doc in arbitrary_json(),
        patch in proptest::collection::vec(arbitrary_operation(), 0..4),
        other in arbitrary_json(),
    ) {
        let _ = json_patch(&doc, &Value::from(patch));
        let _ = json_patch(&doc, &other);
        let _ = merge_patch(&doc, &other);
    }

    #[test]
    fn a_merge_patch_is_idempotent(doc in arbitrary_json(), patch in arbitrary_json()) {
        if let Ok(once) = merge_patch(&doc, &patch) {
            prop_assert_eq!(merge_patch(&once, &patch), Ok(once));
        }
    }
}
