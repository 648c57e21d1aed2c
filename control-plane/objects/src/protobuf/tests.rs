#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;
use crate::schema::{kind, lookup};

fn pod() -> TypeRef {
    kind("", "v1", "Pod").unwrap()
}

#[test]
fn zeros_that_are_not_pointers_are_written() {
    let reference = lookup("core.v1.LocalObjectReference").unwrap();
    assert_eq!(encode_message(reference, &json!({})).unwrap(), [0x0a, 0]);
    let env = lookup("core.v1.EnvVar").unwrap();
    assert_eq!(
        encode_message(env, &json!({"name": "a"})).unwrap(),
        [0x0a, 1, b'a', 0x12, 0]
    );
}

#[test]
fn objects_travel_in_an_envelope() {
    let namespace = kind("", "v1", "Namespace").unwrap();
    let object = normalize(namespace, json!({"metadata": {"name": "x"}}))
        .unwrap()
        .value;
    let bytes = encode_object(namespace, "v1", "Namespace", &object).unwrap();
    assert_eq!(&bytes[..21], b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace");
    assert_eq!(&bytes[bytes.len() - 4..], [0x1a, 0, 0x22, 0]);
    let (api_version, kind, decoded) = decode_object(&bytes).unwrap();
    assert_eq!((api_version.as_str(), kind.as_str()), ("v1", "Namespace"));
    assert_eq!(
        decoded,
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}, "spec": {}, "status": {},
        })
    );
}

#[test]
fn a_list_of_encoded_items_equals_the_encoded_list() {
    let (list, pod) = (kind("", "v1", "PodList").unwrap(), pod());
    let items: Vec<_> = ["a", "b"]
        .map(|name| {
            normalize(pod, json!({"metadata": {"name": name}}))
                .unwrap()
                .value
        })
        .into();
    let metadata = json!({"resourceVersion": "7"});
    let whole = json!({"metadata": metadata, "items": items});
    let encoded: Vec<_> = items
        .iter()
        .map(|item| encode_message(pod, item).unwrap())
        .collect();
    assert_eq!(
        encode_list(
            "v1",
            "PodList",
            &metadata,
            encoded.iter().map(Vec::as_slice)
        )
        .unwrap(),
        encode_object(list, "v1", "PodList", &whole).unwrap()
    );
}

#[test]
fn watch_frames_carry_their_length() {
    let frame = watch_frame("ADDED", b"xyz");
    assert_eq!(frame, b"\0\0\0\x0e\x0a\x05ADDED\x12\x05\x0a\x03xyz");
}

#[test]
fn the_envelope_is_checked() {
    assert_eq!(open(b"").unwrap_err(), DecodeError::Empty);
    assert_eq!(open(b"k8s\0").unwrap_err(), DecodeError::EmptyBody);
    assert_eq!(
        open(b"{}").unwrap_err().to_string(),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
}

#[test]
fn packed_numbers_and_unknown_fields_are_accepted() {
    let context = lookup("core.v1.PodSecurityContext").unwrap();
    let groups = context.get().field("supplementalGroups").unwrap().number;
    let tag = u8::try_from(groups << 3).unwrap();
    // Packed 1 and 2, then an unpacked 3, then unknown field 200 in each wire type.
    let mut bytes = vec![tag | 2, 2, 1, 2, tag, 3];
    bytes.extend([0xc0, 0x0c, 5]);
    bytes.extend([0xc1, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([0xc2, 0x0c, 1, 0xff]);
    bytes.extend([0xc3, 0x0c, 0x08, 1, 0xc4, 0x0c]);
    bytes.extend([0xc5, 0x0c, 0, 0, 0, 0]);
    assert_eq!(
        decode_message(context, &bytes).unwrap(),
        json!({"supplementalGroups": [1, 2, 3]})
    );
}

#[test]
fn repeated_messages_merge() {
    let name = [0x0a, 3, 0x0a, 1, b'a'];
    let namespace = [0x0a, 3, 0x1a, 1, b'n'];
    let decoded = decode_message(pod(), &[name, namespace].concat()).unwrap();
    assert_eq!(decoded["metadata"], json!({"name": "a", "namespace": "n"}));
}

#[test]
fn hostile_bytes_are_refused() {
    let table: [(&[u8], WireError); 7] = [
        (&[0x0a], WireError::Truncated),
        (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], WireError::Truncated),
        (&[0xff; 11], WireError::Overflow),
        (&[0x00], WireError::Tag(0, 0)),
        (&[0x0f], WireError::Tag(1, 7)),
        (
            &[0x08, 1],
            WireError::WireType {
                found: 0,
                field: "metadata".into(),
            },
        ),
        (&[0x0a, 3, 0x0a, 1, 0xff], WireError::Utf8),
    ];
    for (bytes, want) in table {
        assert_eq!(
            decode_message(pod(), bytes).unwrap_err(),
            DecodeError::Wire(want)
        );
    }
}

#[test]
fn deep_nesting_is_refused() {
    let schema = lookup("apiextensions.v1.JSONSchemaProps").unwrap();
    let not = schema.get().field("not").unwrap().number;
    let mut bytes = Vec::new();
    for _ in 0..200 {
        let mut writer = Writer::default();
        writer.bytes_field(not, &bytes);
        bytes = writer.finish();
    }
    let error = decode_message(schema, &bytes).unwrap_err();
    assert_eq!(error, DecodeError::Wire(WireError::Depth(100)));
}

#[test]
fn what_is_not_in_normal_form_is_refused() {
    let error = encode_message(pod(), &json!({"spec": {"nodeName": 1}})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot encode core.v1.PodSpec.nodeName as protobuf: 1 is not a string"
    );
}
