//! The mounts of one container (`makeMounts` of upstream's kubelet).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::layout::PodDirectory;
use super::sub_path::{self, Part};
use super::{Volume, Volumes};
use crate::cri;

/// What a container's mounts are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The whole environment, for `subPathExpr`.
    pub(super) env: &'a BTreeMap<String, String>,
    /// The pod's volumes.
    pub(super) volumes: &'a Volumes,
    /// The pod's directory.
    pub(super) pod: &'a PodDirectory,
    /// Whether the runtime can make everything under a mount read-only as well.
    pub(super) deep_read_only: bool,
}

/// The mounts in the order of the spec; parts of volumes are mounted for them.
pub(super) fn mounts(container: &Container, place: Place<'_>) -> Result<Vec<cri::Mount>, String> {
    let asked = container.volume_mounts.iter().flatten().enumerate();
    asked
        .map(|(nth, mount)| {
            let volume = place.volumes.get(&mount.name).ok_or_else(|| {
                format!(
                    "cannot find volume {:?} to mount into container {:?}",
                    mount.name, container.name
                )
            })?;
            one(container, (nth, mount), volume, place)
        })
        .collect()
}

fn one(
    container: &Container,
    (nth, mount): (usize, &VolumeMount),
    volume: &Volume,
    place: Place<'_>,
) -> Result<cri::Mount, String> {
    let part = part(mount, place.env)?;
    let readonly = mount.read_only.unwrap_or_default() || volume.read_only;
    let mut made = cri::Mount {
        container_path: absolute(&mount.mount_path),
        readonly,
        propagation: propagation(mount) as i32,
        recursive_read_only: deep_read_only(mount, place.deep_read_only)?,
        ..cri::Mount::default()
    };
    if let Some(image) = &volume.image {
        made.image = Some(cri::ImageSpec {
            image: image.clone(),
            ..cri::ImageSpec::default()
        });
        made.image_sub_path = part;
        return Ok(made);
    }
    made.host_path = match part.as_str() {
        "" => text(&volume.host_path),
        part => {
            let target = place.pod.sub_path(&mount.name, &container.name, nth);
            let part = Part {
                volume: (&mount.name, &volume.host_path),
                path: part,
                container: &container.name,
                target: &target,
            };
            text(&sub_path::prepare(part).map_err(|why| told(&why))?)
        }
    };
    Ok(made)
}

// Upstream's text does not say why; the log does.
fn told(why: &sub_path::Refused) -> String {
    if let Some(cause) = std::error::Error::source(why) {
        tracing::warn!(%why, %cause, "a part of a volume is refused");
    }
    why.to_string()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

fn propagation(mount: &VolumeMount) -> cri::MountPropagation {
    match mount.mount_propagation.as_deref() {
        Some("Bidirectional") => cri::MountPropagation::Bidirectional,
        Some("HostToContainer") => cri::MountPropagation::HostToContainer,
        _ => cri::MountPropagation::Private,
    }
}

// Upstream's `resolveRecursiveReadOnly`.
fn deep_read_only(mount: &VolumeMount, can: bool) -> Result<bool, String> {
    let asked = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if asked == "Disabled" {
        return Ok(false);
    }
    let refused = |why: &str| {
        let name = &mount.name;
        Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not {why}"
        ))
    };
    if mount.read_only != Some(true) {
        return refused("read-only");
    }
    match mount.mount_propagation.as_deref() {
        None | Some("None") => {}
        Some(other) => return refused(&format!("compatible with propagation {other:?}")),
    }
    match (asked, can) {
        ("Enabled", false) => refused("supported by the runtime"),
        (_, can) => Ok(can),
    }
}

/// Which part of the volume: `subPath`, or `subPathExpr` with the container's environment in it.
fn part(mount: &VolumeMount, env: &BTreeMap<String, String>) -> Result<String, String> {
    let fixed = mount.sub_path.clone().unwrap_or_default();
    let part = match mount.sub_path_expr.as_deref() {
        None | Some("") => fixed,
        Some(expression) => expanded(expression, env)?,
    };
    sub_path::check(&part).map_err(|why| why.to_string())?;
    Ok(part)
}

// A variable that is missing or empty is an error here, other than in commands.
fn expanded(expression: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    let mut missing = BTreeSet::new();
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let variable = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        rest = match (after.strip_prefix('$'), variable) {
            (Some(after), _) => {
                out.push('$');
                after
            }
            (None, Some((name, after))) => {
                match env.get(name).filter(|value| !value.is_empty()) {
                    Some(value) => out.push_str(value),
                    None => {
                        missing.insert(name);
                    }
                }
                after
            }
            (None, None) => {
                out.push('$');
                after
            }
        };
    }
    out.push_str(rest);
    match missing.is_empty() {
        true => Ok(out),
        false => {
            let names: Vec<&str> = missing.into_iter().collect();
            Err(format!("missing value for {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_are_expanded_with_the_environment() {
        let env = BTreeMap::from([
            ("A".to_owned(), "x".to_owned()),
            ("E".to_owned(), String::new()),
        ]);
        for (expression, wanted) in [
            ("a/$(A)/b", Ok("a/x/b")),
            ("$(A)$(A)", Ok("xx")),
            ("$$(A)", Ok("$(A)")),
            ("$A", Ok("$A")),
            ("$(A", Ok("$(A")),
            ("end$", Ok("end$")),
            ("$(B)/$(E)", Err("missing value for B, E")),
        ] {
            let found = expanded(expression, &env);
            assert_eq!(
                found.as_deref().map_err(String::as_str),
                wanted,
                "{expression}"
            );
        }
    }

    fn container(mounts: serde_json::Value) -> Container {
        serde_json::from_value(json!({"name": "c", "volumeMounts": mounts})).unwrap()
    }

    fn volumes() -> Volumes {
        let plain = |path: &str, read_only| Volume {
            host_path: path.into(),
            read_only,
            image: None,
        };
        let image = Volume {
            host_path: Default::default(),
            read_only: true,
            image: Some("docker.io/a:1".into()),
        };
        [
            ("empty".to_owned(), plain("/v/empty", false)),
            ("config".to_owned(), plain("/v/config", true)),
            ("image".to_owned(), image),
        ]
        .into()
    }

    fn made(asked: &Container, deep_read_only: bool) -> Result<Vec<cri::Mount>, String> {
        let place = Place {
            env: &BTreeMap::new(),
            volumes: &volumes(),
            pod: &PodDirectory::at(Path::new("/nowhere")),
            deep_read_only,
        };
        mounts(asked, place)
    }

    #[test]
    fn everything_under_a_mount_is_read_only_where_the_runtime_can() {
        let asked = |mode: &str, read_only: bool, propagation: &str| {
            container(
                json!([{"name": "empty", "mountPath": "/a", "readOnly": read_only,
                "recursiveReadOnly": mode, "mountPropagation": propagation}]),
            )
        };
        let refused = "volume \"empty\" requested recursive read-only mode, but it is not ";
        for (mode, read_only, propagation, can, wanted) in [
            ("Disabled", false, "None", true, Ok(false)),
            ("IfPossible", true, "None", false, Ok(false)),
            ("IfPossible", true, "None", true, Ok(true)),
            ("Enabled", true, "None", true, Ok(true)),
            (
                "Enabled",
                true,
                "None",
                false,
                Err("supported by the runtime"),
            ),
            ("Enabled", false, "None", true, Err("read-only")),
            (
                "Enabled",
                true,
                "Bidirectional",
                true,
                Err("compatible with propagation \"Bidirectional\""),
            ),
        ] {
            let found = made(&asked(mode, read_only, propagation), can);
            let found = found.map(|mounts| mounts[0].recursive_read_only);
            assert_eq!(
                found,
                wanted.map_err(|why| format!("{refused}{why}")),
                "{mode}"
            );
        }
    }

    #[test]
    fn mounts_say_how_they_are_to_be_mounted() {
        let asked = container(json!([
            {"name": "empty", "mountPath": "/a", "mountPropagation": "HostToContainer"},
            {"name": "empty", "mountPath": "b", "readOnly": true},
            {"name": "config", "mountPath": "/c", "mountPropagation": "Bidirectional"},
            {"name": "image", "mountPath": "/d", "subPath": "usr"}]));
        let found = made(&asked, false).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|m| {
                (
                    m.container_path.as_str(),
                    m.host_path.as_str(),
                    m.readonly,
                    m.propagation,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("/a", "/v/empty", false, 1),
                ("/b", "/v/empty", true, 0),
                ("/c", "/v/config", true, 2),
                ("/d", "", true, 0)
            ]
        );
        assert_eq!(found[3].image.as_ref().unwrap().image, "docker.io/a:1");
        assert_eq!(found[3].image_sub_path, "usr");
    }

    #[test]
    fn mounts_that_cannot_be_are_told_in_upstreams_words() {
        for (mount, wanted) in [
            (
                json!({"name": "x", "mountPath": "/a"}),
                "cannot find volume \"x\" to mount into container \"c\"",
            ),
            (
                json!({"name": "empty", "mountPath": "/a", "subPathExpr": "$(X)"}),
                "missing value for X",
            ),
            (
                json!({"name": "empty", "mountPath": "/a", "subPathExpr": "/tmp"}),
                "error SubPath `/tmp` must not be an absolute path",
            ),
            (
                json!({"name": "empty", "mountPath": "/a", "subPath": "a/.."}),
                "unable to provision SubPath `a/..`: must not contain '..'",
            ),
            (
                json!({"name": "empty", "mountPath": "/a", "subPath": "a"}),
                "failed to create subPath directory for volumeMount \"empty\" of container \"c\"",
            ),
        ] {
            let told = made(&container(json!([mount])), false);
            assert_eq!(told.unwrap_err(), wanted);
        }
    }
}
