//! What a pod may know of itself through files: metadata and resources (`pkg/volume/downwardapi`). Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube_kit::quantity::Quantity;
use kube_kit::selector::quoted;

use super::payload::{File, Payload, mode_of};

/// What a node offers to pods: the default of a limit that is not set.
pub type Allocatable = BTreeMap<String, Quantity>;

/// Why a file of the downward API cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unknown {
    /// A field that volumes do not offer.
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    /// A resource that cannot be asked for.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// A container that the pod lacks.
    #[error("container {0} not found")]
    Container(String),
    /// A number that is none.
    #[error("cannot parse quantity {0}")]
    Quantity(String),
}

/// The files of a downwardAPI volume.
pub(super) fn payload(
    pod: &Pod,
    files: &[DownwardAPIVolumeFile],
    default_mode: u32,
    allocatable: &Allocatable,
) -> Result<Payload, Unknown> {
    let file = |item: &DownwardAPIVolumeFile| {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_value(pod, &field.field_path)?,
            (None, Some(resource)) => resource_value(pod, resource, allocatable)?,
            (None, None) => String::new(),
        };
        let file = File {
            data: text.into_bytes(),
            mode: mode_of(item.mode, default_mode),
            owner: None,
        };
        Ok((item.path.clone(), file))
    };
    files.iter().map(file).collect()
}

/// The text of a metadata field.
pub(super) fn field_value(pod: &Pod, path: &str) -> Result<String, Unknown> {
    let meta = &pod.metadata;
    let subscript = path
        .strip_suffix("']")
        .and_then(|start| start.split_once("['"));
    if let Some((field, key)) = subscript {
        let map = match field {
            "metadata.labels" => &meta.labels,
            "metadata.annotations" => &meta.annotations,
            _ => return Err(Unknown::Field(path.into())),
        };
        let found = map.as_ref().and_then(|map| map.get(key));
        return Ok(found.cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "metadata.name" => meta.name.clone().unwrap_or_default(),
        "metadata.namespace" => meta.namespace.clone().unwrap_or_default(),
        "metadata.uid" => meta.uid.clone().unwrap_or_default(),
        other => return Err(Unknown::Field(other.into())),
    })
}

// `FormatMap`: sorted, Go's quotes, no newline at the end.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines = lines.map(|(key, value)| format!("{key}={}", quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// The text of a container's request or limit, in units of the divisor and rounded up.
pub(super) fn resource_value(
    pod: &Pod,
    asked: &ResourceFieldSelector,
    allocatable: &Allocatable,
) -> Result<String, Unknown> {
    let named = asked.container_name.as_deref().unwrap_or_default();
    let container = container(pod, named).ok_or_else(|| Unknown::Container(named.into()))?;
    container_resource(
        container,
        &asked.resource,
        asked.divisor.as_ref(),
        allocatable,
    )
}

/// The same for a container that is at hand.
pub(super) fn container_resource(
    container: &Container,
    resource: &str,
    divisor: Option<&ApiQuantity>,
    allocatable: &Allocatable,
) -> Result<String, Unknown> {
    let unsupported = || Unknown::Resource(resource.into());
    let (kind, name) = resource.split_once('.').ok_or_else(unsupported)?;
    let known =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    let resources = container.resources.as_ref();
    let map = match kind {
        "limits" => resources.and_then(|r| r.limits.as_ref()),
        "requests" => resources.and_then(|r| r.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    if !known {
        return Err(unsupported());
    }
    let own = map.and_then(|map| map.get(name)).map(parse).transpose()?;
    // A limit that is not set is what the node has (`MergeContainerResourceLimits`).
    let value = match (own, kind) {
        (Some(own), _) if !own.is_zero() => own.nanos(),
        (_, "limits") => allocatable.get(name).map_or(0, Quantity::nanos),
        _ => 0,
    };
    let divisor = divisor.map(parse).transpose()?.map(|d| d.nanos());
    let divisor = divisor.filter(|d| *d > 0).unwrap_or(1_000_000_000);
    Ok(rounded_up(value, divisor).to_string())
}

// CPU in thousandths first, as upstream: finer parts round up there already.
fn rounded_up(value: i128, divisor: i128) -> i128 {
    (value + divisor - 1).div_euclid(divisor)
}

fn parse(text: &ApiQuantity) -> Result<Quantity, Unknown> {
    text.0
        .parse()
        .map_err(|_| Unknown::Quantity(text.0.clone()))
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let all = spec.containers.iter();
    let mut all = all.chain(spec.init_containers.iter().flatten());
    all.find(|container| container.name == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": "1"},
                "annotations": {"k": "two\nlines \"quoted\""}},
            "spec": {"containers": [{"name": "c", "resources": {
                "limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}}]}}))
        .unwrap()
    }

    #[test]
    fn fields_are_written_as_upstream_writes_them() {
        for (path, wanted) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "n"),
            ("metadata.uid", "u"),
            ("metadata.labels", "a=\"1\"\nb=\"2\""),
            ("metadata.annotations", "k=\"two\\nlines \\\"quoted\\\"\""),
            ("metadata.labels['b']", "2"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['k']", "two\nlines \"quoted\""),
        ] {
            assert_eq!(field_value(&pod(), path).unwrap(), wanted, "{path}");
        }
        assert!(field_value(&pod(), "status.podIP").is_err());
    }

    #[test]
    fn resources_are_rounded_up_in_units_of_the_divisor() {
        let node = Allocatable::from([
            ("cpu".to_owned(), "4".parse().unwrap()),
            ("memory".to_owned(), "1Gi".parse().unwrap()),
            ("ephemeral-storage".to_owned(), "10Gi".parse().unwrap()),
        ]);
        for (resource, divisor, wanted) in [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("1m"), "1500"),
            ("requests.cpu", None, "1"),
            ("requests.cpu", Some("0"), "1"),
            ("limits.memory", None, "67108864"),
            ("limits.memory", Some("1Mi"), "64"),
            ("requests.memory", None, "0"),
            ("limits.ephemeral-storage", Some("1Gi"), "10"),
            ("requests.ephemeral-storage", None, "0"),
        ] {
            let asked = ResourceFieldSelector {
                container_name: Some("c".into()),
                resource: resource.into(),
                divisor: divisor.map(|d| ApiQuantity(d.into())),
            };
            let found = resource_value(&pod(), &asked, &node).unwrap();
            assert_eq!(found, wanted, "{resource} {divisor:?}");
        }
    }
}
