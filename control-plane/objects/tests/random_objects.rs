//! Random objects of every kind of the table: what every codec must hold for all of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use objects::decode::{ContentType, builtin, decode};
use objects::normalize::normalize;
use objects::testing::{Seed, object};
use objects::{json, protobuf, schema, yaml};
use serde_json::Value;

/// Objects drawn of each kind.
const ROUNDS: u64 = 3;

fn every_kind(mut check: impl FnMut(&str, schema::TypeRef, Value)) {
    for (group, version, kind, ty) in schema::kinds() {
        let name = format!("{group}/{version} {kind}");
        for round in 0..ROUNDS {
            check(&name, ty, object(ty, &mut Seed::new(round)));
        }
    }
}

#[test]
fn the_normal_form_is_normal() {
    every_kind(|name, ty, object| {
        let again = normalize(ty, object.clone()).unwrap();
        assert_eq!(again.value, object, "{name}");
        assert!(again.unknown.is_empty(), "{name}: {:?}", again.unknown);
    });
}

#[test]
fn json_and_yaml_text_read_back_identically() {
    every_kind(|name, ty, object| {
        let text = object.to_string();
        let parsed = json::parse_as(ty, text.as_bytes()).unwrap();
        assert!(parsed.strict.is_empty(), "{name}: {:?}", parsed.strict);
        assert_eq!(normalize(ty, parsed.value).unwrap().value, object, "{name}");
        let text = yaml::to_string(&object);
        let parsed = yaml::parse(text.as_bytes()).unwrap();
        assert_eq!(
            normalize(ty, parsed.value).unwrap().value,
            object,
            "{name}\n{text}"
        );
    });
}

#[test]
fn protobuf_reads_back_identically() {
    every_kind(|name, ty, object| {
        let bytes = protobuf::encode_message(ty, &object).unwrap();
        let back = protobuf::decode_message(ty, &bytes).unwrap();
        assert_eq!(back, object, "{name}");
        assert_eq!(
            protobuf::encode_message(ty, &back).unwrap(),
            bytes,
            "{name}"
        );
    });
}

/// Flips, drops, repeats or inserts a few bytes.
fn mutate(bytes: &mut Vec<u8>, seed: &mut Seed) {
    for _ in 0..1 + seed.below(4) {
        let at = usize::try_from(seed.below(bytes.len() as u64 + 1)).unwrap();
        let byte = seed.draw().to_le_bytes()[0];
        match seed.below(4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.truncate(at),
            _ => bytes.insert(at, byte),
        }
    }
}

#[test]
fn broken_bytes_are_refused_or_read_but_never_panic() {
    let mut seed = Seed::new(99);
    let pod = schema::kind("", "v1", "Pod").unwrap();
    let crd = schema::kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    for round in 0..300 {
        for (ty, api_version, kind) in [
            (pod, "v1", "Pod"),
            (crd, "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ] {
            let object = object(ty, &mut Seed::new(round));
            let mut encoded = protobuf::encode_object(ty, api_version, kind, &object).unwrap();
            let mut text = object.to_string().into_bytes();
            mutate(&mut encoded, &mut seed);
            mutate(&mut text, &mut seed);
            for content in [ContentType::Protobuf, ContentType::Json, ContentType::Yaml] {
                let bytes = if content == ContentType::Protobuf {
                    &encoded
                } else {
                    &text
                };
                if let Ok(decoded) = decode(content, bytes, None, builtin) {
                    // Whatever was accepted is in normal form and can be written again.
                    let again = normalize(ty, decoded.object.clone()).unwrap().value;
                    assert_eq!(again, decoded.object);
                    protobuf::encode_message(ty, &again).unwrap();
                }
            }
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut seed = Seed::new(5);
    let pod = schema::kind("", "v1", "Pod").unwrap();
    for _ in 0..5_000 {
        let length = seed.below(64);
        let bytes: Vec<u8> = (0..length).map(|_| seed.draw().to_le_bytes()[0]).collect();
        let _ = protobuf::decode_message(pod, &bytes);
        let _ = protobuf::decode_object(&[protobuf::MAGIC.as_slice(), &bytes].concat());
        let _ = json::parse(&bytes);
        let _ = yaml::parse(&bytes);
    }
}
