//! Compares our codecs with upstream's published samples: one filled-in object of every kind, as
//! JSON, YAML and protobuf. Runs only when `KYANITE_FIXTURES` names a directory that has them
//! under `kubernetes-1.36/golden`.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use objects::decode::{ContentType, Decoded, GroupVersionKind, builtin, decode};
use objects::{json, normalize, protobuf, schema, yaml};

/// Kinds that no API server serves; they are not in the table.
const NOT_SERVED: [&str; 3] = [
    "admission.k8s.io.v1beta1.AdmissionReview",
    "apidiscovery.k8s.io.v2beta1.APIGroupDiscovery",
    "imagepolicy.k8s.io.v1alpha1.ImageReview",
];

fn golden_directory() -> Option<PathBuf> {
    let Some(fixtures) = std::env::var_os("KYANITE_FIXTURES") else {
        eprintln!("SKIPPED: KYANITE_FIXTURES not set; no samples to compare with");
        return None;
    };
    Some(PathBuf::from(fixtures).join("kubernetes-1.36/golden"))
}

/// `apps.v1.Deployment` and `core.v1.Pod`: the group may itself have dots.
fn split(sample: &str) -> (&str, &str, &str) {
    let (rest, kind) = sample.rsplit_once('.').unwrap();
    let (group, version) = rest.rsplit_once('.').unwrap();
    (if group == "core" { "" } else { group }, version, kind)
}

fn samples(directory: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(directory)
        .unwrap()
        .map(|e| e.unwrap().file_name());
    names
        .filter_map(|n| n.to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect()
}

fn check(directory: &Path, sample: &str) -> Result<(), String> {
    let read = |extension: &str| std::fs::read(directory.join(format!("{sample}.{extension}")));
    let (json_bytes, yaml_bytes) = (read("json").unwrap(), read("yaml").unwrap());
    let protobuf_bytes = read("pb").unwrap();
    let (group, version, kind) = split(sample);
    let ty = schema::kind(group, version, kind).ok_or("not in the table")?;
    // A watch event has no type of its own in JSON.
    let default: Option<GroupVersionKind> =
        (kind == "WatchEvent").then(|| GroupVersionKind::new(group, version, kind));

    let decoded = |content, bytes: &[u8]| -> Result<Decoded, String> {
        decode(content, bytes, default.as_ref(), builtin).map_err(|e| format!("{content:?}: {e}"))
    };
    let from_json = decoded(ContentType::Json, &json_bytes)?;
    same("strict", &from_json.strict, &Vec::<String>::new())?;
    let mut upstream = json::parse(&json_bytes).unwrap().value;
    if default.is_some() {
        upstream["apiVersion"] = from_json.gvk.api_version().into();
        upstream["kind"] = kind.into();
    }
    same("normal form", &from_json.object, &upstream)?;
    same(
        "yaml",
        &decoded(ContentType::Yaml, &yaml_bytes)?.object,
        &from_json.object,
    )?;
    same(
        "protobuf",
        &decoded(ContentType::Protobuf, &protobuf_bytes)?.object,
        &from_json.object,
    )?;

    let written = yaml::to_string(&from_json.object);
    same(
        "written yaml",
        &yaml::parse(written.as_bytes()).unwrap().value,
        &from_json.object,
    )?;
    let (api_version, kind) = match &default {
        None => (from_json.gvk.api_version(), kind),
        Some(_) => (String::new(), ""),
    };
    let encoded = protobuf::encode_object(ty, &api_version, kind, &from_json.object)
        .map_err(|e| e.to_string())?;
    same("protobuf bytes", &encoded, &protobuf_bytes)?;
    if !kind.is_empty() {
        let again = normalize::normalize(ty, from_json.object.clone())
            .unwrap()
            .value;
        same("normalized twice", &again, &from_json.object)?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    let (ours, theirs) = (format!("{ours:?}"), format!("{theirs:?}"));
    let at = ours
        .bytes()
        .zip(theirs.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let window = |text: &str| {
        let bytes = &text.as_bytes()[at.saturating_sub(80)..text.len().min(at + 80)];
        String::from_utf8_lossy(bytes).into_owned()
    };
    Err(format!(
        "{what}:\n  ours   …{}…\n  theirs …{}…",
        window(&ours),
        window(&theirs)
    ))
}

#[test]
fn every_sample_of_upstream_agrees() {
    let Some(directory) = golden_directory() else {
        return;
    };
    let samples = samples(&directory);
    assert!(
        samples.len() > 150,
        "only {} samples in {}",
        samples.len(),
        directory.display()
    );
    let failures: Vec<_> = samples
        .iter()
        .filter(|s| !NOT_SERVED.contains(&s.as_str()))
        .filter_map(|s| check(&directory, s).err().map(|e| format!("{s}: {e}")))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
