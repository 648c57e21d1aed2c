#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Mutex;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use serde_json::{Value, json};

use super::*;
use crate::volumes::mounting;
use crate::volumes::own_mounts::in_own_mounts;

#[derive(Default)]
struct Fake {
    objects: Mutex<HashMap<String, Value>>,
    tokens: Mutex<u32>,
}

impl Fake {
    fn put(&self, key: &str, value: Value) {
        self.objects.lock().unwrap().insert(key.into(), value);
    }

    fn get<T: serde::de::DeserializeOwned>(&self, key: String) -> Option<Arc<T>> {
        let found = self.objects.lock().unwrap().get(&key).cloned();
        found.map(|value| Arc::new(serde_json::from_value(value).unwrap()))
    }
}

#[async_trait]
impl Objects for Fake {
    async fn config_map(&self, _: &str, name: &str) -> Result<Option<Arc<ConfigMap>>, kube::Error> {
        Ok(self.get(format!("configmap/{name}")))
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Option<Arc<Secret>>, kube::Error> {
        Ok(self.get(format!("secret/{name}")))
    }

    async fn token(
        &self,
        _: &str,
        account: &str,
        spec: TokenRequestSpec,
    ) -> Result<TokenRequest, kube::Error> {
        let mut count = self.tokens.lock().unwrap();
        *count += 1;
        let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
        Ok(serde_json::from_value(json!({
            "metadata": {}, "spec": {"audiences": [], "expirationSeconds": spec.expiration_seconds},
            "status": {"token": format!("{account}-{count}"), "expirationTimestamp": expires.to_string()}}))
        .unwrap())
    }

    async fn claim(
        &self,
        _: &str,
        name: &str,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, kube::Error> {
        Ok(self.get(format!("claim/{name}")))
    }

    async fn persistent_volume(
        &self,
        name: &str,
    ) -> Result<Option<Arc<PersistentVolume>>, kube::Error> {
        Ok(self.get(format!("pv/{name}")))
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    pod: PathBuf,
    objects: Arc<Fake>,
    volumes: NodeVolumes,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let objects = Arc::new(Fake::default());
        Bench {
            pod: dir.path().join("pods/uid"),
            _dir: dir,
            volumes: NodeVolumes::new(Arc::clone(&objects) as Arc<dyn Objects>),
            objects,
        }
    }

    async fn mount(&self, pod: &Pod) -> Result<Volumes, VolumeError> {
        self.volumes.mount(pod, &self.pod).await
    }
}

fn pod(volumes: Value, context: Value) -> Pod {
    let names = volumes.as_array().unwrap().iter();
    let mounts: Vec<Value> = names
        .map(|v| json!({"name": v["name"], "mountPath": format!("/{}", v["name"].as_str().unwrap())}))
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "uid", "labels": {"a": "b"}},
        "spec": {"serviceAccountName": "sa", "securityContext": context, "volumes": volumes,
            "containers": [{"name": "c", "volumeMounts": mounts}]}}))
    .unwrap()
}

#[test]
fn empty_directories_are_made_once_and_belong_to_the_pod() {
    in_own_mounts(|| async {
        let bench = Bench::new();
        let pod = pod(
            json!([{"name": "disk", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "unused", "emptyDir": {}}]),
            json!({"fsGroup": 4321}),
        );
        let ready = bench.mount(&pod).await.unwrap();
        let (disk, memory) = (&ready["disk"].host_path, &ready["memory"].host_path);
        assert!(disk.ends_with("volumes/kubernetes.io~empty-dir/disk"));
        for path in [disk, memory] {
            let found = fs::metadata(path).unwrap();
            assert_eq!(
                (found.mode() & 0o7777, found.gid()),
                (0o2777, 4321),
                "{path:?}"
            );
        }
        assert!(mounting::is_mount_point(memory).unwrap());
        assert!(
            fs::write(memory.join("big"), vec![0; 2 << 20]).is_err(),
            "over its size"
        );
        fs::write(disk.join("kept"), "x").unwrap();
        fs::set_permissions(disk, fs::Permissions::from_mode(0o700)).unwrap();
        bench.mount(&pod).await.unwrap();
        assert_eq!(
            fs::metadata(disk).unwrap().mode() & 0o777,
            0o700,
            "the pod's own choice stays"
        );
        assert!(disk.join("kept").exists());
        bench.volumes.unmount("uid", &bench.pod).await.unwrap();
        assert!(mounting::under(&bench.pod).unwrap().is_empty());
        assert!(!bench.pod.join("volumes").exists());
        bench.volumes.unmount("uid", &bench.pod).await.unwrap();
    });
}

#[test]
fn files_are_in_memory_and_follow_their_objects() {
    in_own_mounts(|| async {
        let bench = Bench::new();
        bench
            .objects
            .put("configmap/c", json!({"metadata": {}, "data": {"k": "1"}}));
        bench
            .objects
            .put("secret/s", json!({"metadata": {}, "data": {"p": "eA=="}}));
        let pod = pod(
            json!([{"name": "config", "configMap": {"name": "c", "defaultMode": 0o400}},
                {"name": "optional", "configMap": {"name": "none", "optional": true}},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "all", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                    {"configMap": {"name": "c", "items": [{"key": "k", "path": "deep/k"}]}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}}]),
            json!({}),
        );
        let ready = bench.mount(&pod).await.unwrap();
        let read = |volume: &str, path: &str| {
            fs::read_to_string(ready[volume].host_path.join(path)).unwrap()
        };
        assert!(ready.values().all(|volume| volume.read_only));
        assert_eq!(read("config", "k"), "1");
        assert_eq!(
            fs::metadata(ready["config"].host_path.join("k"))
                .unwrap()
                .mode()
                & 0o777,
            0o400
        );
        assert_eq!(read("secret", "p"), "x");
        assert_eq!(read("all", "token"), "sa-1");
        assert_eq!(read("all", "deep/k"), "1");
        assert_eq!(read("all", "labels"), "a=\"b\"");
        assert!(!mounting::is_mount_point(&ready["config"].host_path).unwrap());
        assert!(mounting::is_mount_point(&ready["secret"].host_path).unwrap());
        bench.objects.put(
            "configmap/c",
            json!({"metadata": {}, "data": {"k": "2", "l": "3"}}),
        );
        bench.objects.put(
            "configmap/none",
            json!({"metadata": {}, "data": {"now": "here"}}),
        );
        bench.mount(&pod).await.unwrap();
        assert_eq!(
            read("config", "k") + &read("config", "l") + &read("all", "deep/k"),
            "232"
        );
        assert_eq!(read("optional", "now"), "here");
        assert_eq!(
            *bench.objects.tokens.lock().unwrap(),
            1,
            "a token that lasts is kept"
        );
        assert_eq!(
            mounting::under(&bench.pod).unwrap().len(),
            2,
            "nothing is mounted twice"
        );
        bench.volumes.unmount("uid", &bench.pod).await.unwrap();
        assert!(!bench.pod.join("volumes").exists());
    });
}

#[test]
fn parts_of_volumes_are_mounted_and_taken_down() {
    in_own_mounts(|| async {
        let bench = Bench::new();
        bench
            .objects
            .put("configmap/c", json!({"metadata": {}, "data": {"k": "1"}}));
        let mut pod = pod(
            json!([{"name": "config", "configMap": {"name": "c"}}, {"name": "disk", "emptyDir": {}}]),
            json!({}),
        );
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        *container = serde_json::from_value(json!({"name": "c", "volumeMounts": [
            {"name": "config", "mountPath": "/f", "subPath": "k"},
            {"name": "disk", "mountPath": "/d", "subPathExpr": "$(NAME)/logs"}]}))
        .unwrap();
        let container = container.clone();
        let ready = bench.mount(&pod).await.unwrap();
        let env = BTreeMap::from([("NAME".to_owned(), "p".to_owned())]);
        let mounts = || {
            bench
                .volumes
                .container_mounts(&pod, &container, &env, &ready, &bench.pod)
        };
        let made = mounts().await.unwrap();
        assert!(
            made[0].host_path.ends_with("volume-subpaths/config/c/0"),
            "{}",
            made[0].host_path
        );
        assert_eq!(fs::read_to_string(&made[0].host_path).unwrap(), "1");
        fs::write(format!("{}/x", made[1].host_path), "").unwrap();
        assert!(ready["disk"].host_path.join("p/logs/x").exists());
        assert_eq!(
            mounts().await.unwrap(),
            made,
            "a restarted container finds them as they were"
        );
        assert_eq!(mounting::under(&bench.pod).unwrap().len(), 2);
        // Something of the pod's own inside the volume, and a teardown that begins in the middle.
        let inner = ready["disk"].host_path.join("p/logs");
        mounting::tmpfs(&inner, Some(1 << 20)).unwrap();
        mounting::end(made[0].host_path.as_ref()).unwrap();
        fs::remove_dir_all(bench.pod.join("plugins")).unwrap();
        bench.volumes.unmount("uid", &bench.pod).await.unwrap();
        assert!(mounting::under(&bench.pod).unwrap().is_empty());
        assert!(!bench.pod.join("volume-subpaths").exists());
        assert!(!bench.pod.join("volumes").exists());
    });
}

#[test]
fn local_volumes_are_mounted_and_their_content_stays() {
    in_own_mounts(|| async {
        let bench = Bench::new();
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("data"), "x").unwrap();
        bench.objects.put(
            "claim/c",
            json!({"metadata": {"uid": "7"}, "spec": {"volumeName": "pv"},
            "status": {"phase": "Bound"}}),
        );
        bench.objects.put(
            "pv/pv",
            json!({"metadata": {}, "spec": {"local": {"path": source.path()},
            "claimRef": {"uid": "7"}}}),
        );
        let pod = pod(
            json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]),
            json!({"fsGroup": 77}),
        );
        let ready = bench.mount(&pod).await.unwrap();
        assert!(
            ready["v"]
                .host_path
                .ends_with("kubernetes.io~local-volume/pv")
        );
        assert_eq!(
            fs::metadata(ready["v"].host_path.join("data"))
                .unwrap()
                .gid(),
            77
        );
        bench.volumes.unmount("uid", &bench.pod).await.unwrap();
        assert!(source.path().join("data").exists());
    });
}

#[tokio::test]
async fn what_cannot_be_mounted_is_told_in_upstreams_words() {
    let bench = Bench::new();
    bench.objects.put(
        "claim/pending",
        json!({"metadata": {}, "spec": {}, "status": {"phase": "Pending"}}),
    );
    bench
        .objects
        .put("configmap/c", json!({"metadata": {}, "data": {}}));
    for (volume, wanted) in [
        (
            json!({"name": "v", "configMap": {"name": "y"}}),
            "MountVolume.SetUp failed for volume \"v\" : configmap \"y\" not found",
        ),
        (
            json!({"name": "v", "secret": {"secretName": "y"}}),
            "MountVolume.SetUp failed for volume \"v\" : secret \"y\" not found",
        ),
        (
            json!({"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}),
            "MountVolume.SetUp failed for volume \"v\" : configmap references non-existent config key: k",
        ),
        (
            json!({"name": "v", "projected": {"sources": [{"secret": {"name": "a"}}, {"configMap": {"name": "b"}}]}}),
            "MountVolume.SetUp failed for volume \"v\" : [secret \"a\" not found, configmap \"b\" not found]",
        ),
        (
            json!({"name": "v", "hostPath": {"path": "/nowhere/at/all", "type": "Directory"}}),
            "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: /nowhere/at/all is not a directory",
        ),
        (
            json!({"name": "v", "persistentVolumeClaim": {"claimName": "pending"}}),
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC n/pending: PVC is not bound",
        ),
    ] {
        let told = bench
            .mount(&pod(json!([volume]), json!({})))
            .await
            .unwrap_err();
        assert_eq!(
            (told.reason, told.message.as_str()),
            ("FailedMount", wanted)
        );
    }
}
