//! An image as one file: the layout of the OCI specification, with the list that `docker load` reads beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::digest;
use crate::tar::{self, Entry, Kind};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// How a container of an image is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Settings {
    /// The program and its first arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments that a pod may replace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Variables, as `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Who it runs as, such as `65534` or `1000:1000`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Where it starts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Ports it listens on, such as `8080/tcp`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub exposed_ports: BTreeMap<String, Value>,
}

impl Settings {
    /// Adds a port, `8080` or `8080/udp`.
    pub fn expose(&mut self, port: &str) {
        let port = match port.contains('/') {
            true => port.to_owned(),
            false => format!("{port}/tcp"),
        };
        self.exposed_ports.insert(port, json!({}));
    }
}

/// An image that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// The digest of its manifest: what tells this image from others.
    pub digest: String,
    /// Its whole names.
    pub names: Vec<String>,
}

/// The names that runtimes know a short name by: `busybox` is `docker.io/library/busybox:latest`.
pub fn whole_name(name: &str) -> String {
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let is_host = first.contains(['.', ':']) || first == "localhost";
    let path = match (is_host, first.is_empty()) {
        (true, _) => name.to_owned(),
        (false, true) => format!("docker.io/library/{rest}"),
        (false, false) => format!("docker.io/{name}"),
    };
    let last = path.rsplit('/').next().unwrap_or_default();
    match last.contains(':') || path.contains('@') {
        true => path,
        false => format!("{path}:latest"),
    }
}

/// An image to put together. A layer is a tar archive.
#[derive(Debug, Clone)]
pub struct Image {
    /// What it is called.
    pub names: Vec<String>,
    /// How a container of it is started.
    pub settings: Settings,
    /// What is in it; images may share layers.
    pub layers: Vec<Arc<Vec<u8>>>,
}

/// Puts an image together. A layer is a tar archive.
pub fn build(names: &[String], settings: &Settings, layers: &[Vec<u8>]) -> Archive {
    let image = Image {
        names: names.to_vec(),
        settings: settings.clone(),
        layers: layers.iter().cloned().map(Arc::new).collect(),
    };
    let parts = Parts::of(&image);
    Archive {
        digest: digest(&parts.manifest),
        bytes: write(&[(&image, &parts)]),
        names: parts.names,
    }
}

/// Puts images together into one archive; what they share is in it once.
pub fn bundle(images: &[Image]) -> Vec<u8> {
    let parts: Vec<Parts> = images.iter().map(Parts::of).collect();
    let all: Vec<(&Image, &Parts)> = images.iter().zip(&parts).collect();
    write(&all)
}

/// The documents of an image.
struct Parts {
    names: Vec<String>,
    diffs: Vec<String>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Parts {
    fn of(image: &Image) -> Parts {
        let diffs: Vec<String> = image.layers.iter().map(|layer| digest(layer)).collect();
        let config = text(&json!({
            "architecture": architecture(),
            "os": "linux",
            "config": image.settings,
            "rootfs": {"type": "layers", "diff_ids": diffs},
            "history": diffs.iter().map(|_| json!({"created_by": "kyanite image build"})).collect::<Vec<_>>(),
        }));
        let layers = image.layers.iter().map(|layer| descriptor(LAYER, layer));
        let manifest = text(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": layers.collect::<Vec<_>>(),
        }));
        Parts {
            names: image.names.iter().map(|name| whole_name(name)).collect(),
            diffs,
            config,
            manifest,
        }
    }

    // containerd names images by its own annotation; the specification's has the tag alone.
    fn indexed(&self) -> impl Iterator<Item = Value> {
        self.names.iter().map(|name| {
            let mut one = descriptor(MANIFEST, &self.manifest);
            let tag = name.rsplit(':').next().unwrap_or_default();
            one["annotations"] = json!({
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": tag,
            });
            one["platform"] = json!({"architecture": architecture(), "os": "linux"});
            one
        })
    }

    fn for_docker(&self) -> Value {
        let layers: Vec<String> = self.diffs.iter().map(|layer| blob(layer)).collect();
        json!({"Config": blob(&digest(&self.config)), "RepoTags": self.names, "Layers": layers})
    }
}

fn write(images: &[(&Image, &Parts)]) -> Vec<u8> {
    let manifests: Vec<Value> = images.iter().flat_map(|(_, p)| p.indexed()).collect();
    let docker: Vec<Value> = images.iter().map(|(_, p)| p.for_docker()).collect();
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    let mut blobs = BTreeMap::new();
    for (image, parts) in images {
        let layers = parts.diffs.iter().zip(&image.layers);
        blobs.extend(layers.map(|(digest, layer)| (blob(digest), layer.as_slice())));
        let documents = [&parts.config, &parts.manifest];
        blobs.extend(documents.map(|content| (blob(&digest(content)), content.as_slice())));
    }
    let mut files = vec![
        (
            "oci-layout".to_owned(),
            text(&json!({"imageLayoutVersion": "1.0.0"})),
        ),
        ("index.json".to_owned(), text(&index)),
        ("manifest.json".to_owned(), text(&json!(docker))),
    ];
    files.extend(
        blobs
            .into_iter()
            .map(|(path, content)| (path, content.to_vec())),
    );
    tar::write(&entries(files))
}

fn entries(files: Vec<(String, Vec<u8>)>) -> Vec<Entry> {
    let directory = |path: &str| Entry {
        path: path.to_owned(),
        mode: 0o755,
        kind: Kind::Directory,
    };
    let mut entries = vec![directory("blobs"), directory("blobs/sha256")];
    entries.extend(files.into_iter().map(|(path, content)| Entry {
        path,
        mode: 0o644,
        kind: Kind::File(content),
    }));
    entries
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The images in an archive, as this crate, Docker or others write them: name and digest of the manifest, where there
/// is one.
pub fn contents(archive: &[u8]) -> Vec<(String, String)> {
    let entries = tar::read(archive);
    let find = |name: &str| {
        let mut all = entries.iter();
        let entry = all.find(|entry| entry.path.trim_start_matches("./") == name)?;
        match &entry.kind {
            Kind::File(content) => serde_json::from_slice::<Value>(content).ok(),
            _ => None,
        }
    };
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if let Some(index) = find("index.json") {
        let images = list(&index["manifests"]).into_iter().map(|image| {
            let name = &image["annotations"]["io.containerd.image.name"];
            (string(name), string(&image["digest"]))
        });
        return images.collect();
    }
    let docker = find("manifest.json")
        .map(|value| list(&value))
        .unwrap_or_default();
    let names = docker.iter().flat_map(|image| list(&image["RepoTags"]));
    names.map(|name| (string(&name), String::new())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_those_of_docker() {
        for (short, whole) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("me/web:1", "docker.io/me/web:1"),
            ("localhost/web", "localhost/web:latest"),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
        ] {
            assert_eq!(whole_name(short), whole);
        }
    }

    #[test]
    fn the_same_image_is_the_same_bytes_and_everything_is_under_its_digest() {
        let mut settings = Settings {
            entrypoint: vec!["/web".to_owned()],
            ..Settings::default()
        };
        settings.expose("8080");
        let layers = [b"one".to_vec(), b"two".to_vec()];
        let names = ["a.test/web:1".to_owned(), "web".to_owned()];
        let image = build(&names, &settings, &layers);
        assert_eq!(image, build(&names, &settings, &layers));
        let entries = tar::read(&image.bytes);
        let mut blobs = 0;
        for entry in &entries {
            let Some(hash) = entry.path.strip_prefix("blobs/sha256/") else {
                continue;
            };
            let Kind::File(content) = &entry.kind else {
                panic!("a blob is a file")
            };
            assert_eq!(digest(content), format!("sha256:{hash}"));
            blobs += 1;
        }
        assert_eq!(blobs, 4, "two layers, configuration, manifest");
        let listed = contents(&image.bytes);
        assert_eq!(listed[0], ("a.test/web:1".to_owned(), image.digest.clone()));
        assert_eq!(listed[1].0, "docker.io/library/web:latest");
    }

    #[test]
    fn images_of_a_bundle_share_what_they_have_in_common() {
        let image = |name: &str, own: &[u8]| Image {
            names: vec![name.to_owned()],
            settings: Settings::default(),
            layers: vec![Arc::new(b"both".to_vec()), Arc::new(own.to_vec())],
        };
        let bundle = bundle(&[image("a.test/one:1", b"one"), image("a.test/two:1", b"two")]);
        let names: Vec<String> = contents(&bundle)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a.test/one:1", "a.test/two:1"]);
        let entries = tar::read(&bundle);
        let blobs = entries
            .iter()
            .filter(|e| e.path.starts_with("blobs/sha256/"));
        assert_eq!(
            blobs.count(),
            7,
            "three layers, two configurations, two manifests"
        );
    }
}
