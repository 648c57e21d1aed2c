#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::{BufMut as _, Bytes};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use prost::Message as _;
use serde_json::json;
use tokio::net::UnixListener;

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};

use super::super::mounting;
use super::messages::*;
use super::*;
use crate::volumes::own_mounts::in_own_mounts;
use crate::volumes::{Mounts as _, NodeVolumes};

type Calls = Arc<Mutex<Vec<String>>>;

/// A driver that mounts memory.
fn answer(path: &str, message: &[u8], endpoint: &str, calls: &Calls) -> Vec<u8> {
    let call = path.rsplit('/').next().unwrap();
    let note = |what: &str| calls.lock().unwrap().push(format!("{call} {what}"));
    match call {
        "GetInfo" => PluginInfo {
            kind: "CSIPlugin".into(),
            name: "test.csi".into(),
            endpoint: endpoint.into(),
            supported_versions: vec!["1.0.0".into()],
        }
        .encode_to_vec(),
        "NotifyRegistrationStatus" => {
            let status = RegistrationStatus::decode(message).unwrap();
            note(&status.plugin_registered.to_string());
            vec![]
        }
        "NodeGetInfo" => NodeGetInfoResponse {
            node_id: "node-id".into(),
            max_volumes_per_node: 7,
            accessible_topology: None,
        }
        .encode_to_vec(),
        "NodeGetCapabilities" => {
            let rpc = Some(Rpc { kind: 1 });
            let capabilities = vec![NodeServiceCapability { rpc }];
            NodeGetCapabilitiesResponse { capabilities }.encode_to_vec()
        }
        "NodeStageVolume" => {
            let request = NodeStageVolumeRequest::decode(message).unwrap();
            assert!(request.staging_target_path.ends_with("/globalmount"));
            note(&format!(
                "{} {:?} {:?}",
                request.volume_id, request.secrets, request.publish_context
            ));
            vec![]
        }
        "NodePublishVolume" => {
            let request = NodePublishVolumeRequest::decode(message).unwrap();
            fs::create_dir(&request.target_path).unwrap();
            mounting::tmpfs(request.target_path.as_ref(), None).unwrap();
            note(&format!(
                "{} {}",
                request.volume_id,
                request.volume_context.len()
            ));
            vec![]
        }
        "NodeUnpublishVolume" => {
            let request = NodeUnpublishVolumeRequest::decode(message).unwrap();
            mounting::end(request.target_path.as_ref()).unwrap();
            note(&request.volume_id);
            vec![]
        }
        "NodeUnstageVolume" => {
            note(&NodeUnstageVolumeRequest::decode(message).unwrap().volume_id);
            vec![]
        }
        other => panic!("{other}"),
    }
}

/// gRPC by hand: five bytes, the message, and a good end.
fn serve(socket: &Path, endpoint: &Path, calls: &Calls) {
    let listener = UnixListener::bind(socket).unwrap();
    let (endpoint, calls) = (text(endpoint), Arc::clone(calls));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (endpoint, calls) = (endpoint.clone(), Arc::clone(&calls));
            let service = service_fn(move |request: Request<Incoming>| {
                let (endpoint, calls) = (endpoint.clone(), Arc::clone(&calls));
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let message = answer(&path, &body[5..], &endpoint, &calls);
                    let mut framed = vec![0];
                    framed.put_u32(u32::try_from(message.len()).unwrap());
                    framed.extend(message);
                    let mut end = HeaderMap::new();
                    end.insert("grpc-status", http::HeaderValue::from_static("0"));
                    let frames = [Frame::data(Bytes::from(framed)), Frame::trailers(end)];
                    let frames = futures::stream::iter(frames.map(Ok::<_, Infallible>));
                    let mut response = Response::new(StreamBody::new(frames));
                    let kind = http::HeaderValue::from_static("application/grpc");
                    response.headers_mut().insert("content-type", kind);
                    Ok::<_, Infallible>(response)
                }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

#[async_trait]
impl Announcements for Heard {
    async fn added(&self, driver: &DriverOnNode) -> Result<(), String> {
        let text = format!("+{} {} {:?}", driver.name, driver.node_id, driver.limit);
        self.0.lock().unwrap().push(text);
        Ok(())
    }

    async fn removed(&self, name: &str) -> Result<(), String> {
        self.0.lock().unwrap().push(format!("-{name}"));
        Ok(())
    }
}

/// One claim, its volume, and its attachment.
struct Cluster;

#[async_trait]
impl Objects for Cluster {
    async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>, kube::Error> {
        Ok(None)
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Option<Arc<Secret>>, kube::Error> {
        let secret = json!({"metadata": {"name": name}, "data": {"key": "eA=="}});
        Ok(Some(Arc::new(serde_json::from_value(secret).unwrap())))
    }

    async fn token(
        &self,
        _: &str,
        _: &str,
        _: TokenRequestSpec,
    ) -> Result<TokenRequest, kube::Error> {
        Ok(TokenRequest::default())
    }

    async fn claim(
        &self,
        _: &str,
        _: &str,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, kube::Error> {
        let claim = json!({"metadata": {"uid": "7"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        Ok(Some(Arc::new(serde_json::from_value(claim).unwrap())))
    }

    async fn persistent_volume(
        &self,
        _: &str,
    ) -> Result<Option<Arc<PersistentVolume>>, kube::Error> {
        let volume = json!({"metadata": {}, "spec": {"claimRef": {"uid": "7"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "test.csi", "volumeHandle": "handle", "fsType": "ext4", "volumeAttributes": {"a": "b"},
                "nodeStageSecretRef": {"name": "s", "namespace": "n"}}}});
        Ok(Some(Arc::new(serde_json::from_value(volume).unwrap())))
    }

    async fn csi_driver(&self, _: &str) -> Result<Option<Arc<CSIDriver>>, kube::Error> {
        let driver = json!({"metadata": {}, "spec": {"podInfoOnMount": true}});
        Ok(Some(Arc::new(serde_json::from_value(driver).unwrap())))
    }

    async fn attachment(&self, name: &str) -> Result<Option<Arc<VolumeAttachment>>, kube::Error> {
        assert_eq!(name, format!("csi-{}", sha256("handletest.csinode")));
        let attachment = json!({"metadata": {}, "spec": {"attacher": "a", "nodeName": "node", "source": {}},
            "status": {"attached": true, "attachmentMetadata": {"lun": "3"}}});
        Ok(Some(Arc::new(serde_json::from_value(attachment).unwrap())))
    }
}

fn pod(uid: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": uid},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "securityContext": {"fsGroup": 99},
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}}))
    .unwrap()
}

#[test]
fn drivers_register_and_their_volumes_come_and_go_with_pods() {
    in_own_mounts(|| async {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let (registrations, endpoint) = (root.join("plugins_registry"), root.join("csi.sock"));
        let calls = Calls::default();
        let heard = Arc::new(Heard::default());
        let registry = Arc::new(Registry::default());
        let announcements = Arc::clone(&heard) as Arc<dyn Announcements>;
        tokio::spawn(Arc::clone(&registry).watch(registrations.clone(), announcements));
        while !registrations.exists() {
            tokio::task::yield_now().await;
        }
        serve(&endpoint, &endpoint, &calls);
        serve(&registrations.join("test.csi-reg.sock"), &endpoint, &calls);
        let until = async |what: &str, is_so: &dyn Fn() -> bool| {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
            while !is_so() {
                assert!(tokio::time::Instant::now() < deadline, "never: {what}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        until("the driver is registered", &|| {
            !calls.lock().unwrap().is_empty()
        })
        .await;
        assert_eq!(
            heard.0.lock().unwrap().as_slice(),
            ["+test.csi node-id Some(7)"]
        );

        let objects: Arc<dyn Objects> = Arc::new(Cluster);
        let in_use = Arc::new(InUse::default());
        in_use.tell(["kubernetes.io/csi/test.csi^handle".to_owned()].into());
        let csi = Csi::new(
            Arc::clone(&registry),
            Arc::clone(&objects),
            Arc::clone(&in_use),
            "node",
            root,
        );
        let volumes = NodeVolumes::new(objects).with_csi(Arc::new(csi));
        let directory = |uid: &str| root.join("pods").join(uid);
        for uid in ["one", "two"] {
            let ready = volumes.mount(&pod(uid), &directory(uid)).await.unwrap();
            let path = &ready["v"].host_path;
            assert!(
                path.ends_with("volumes/kubernetes.io~csi/pv/mount"),
                "{path:?}"
            );
            let group = std::os::unix::fs::MetadataExt::gid(&fs::metadata(path).unwrap());
            assert_eq!(group, 99);
            // The next turn of the pod asks for nothing.
            volumes.mount(&pod(uid), &directory(uid)).await.unwrap();
        }
        for uid in ["one", "two"] {
            assert_eq!(in_use.names().len(), 1);
            volumes.unmount(uid, &directory(uid)).await.unwrap();
            volumes.unmount(uid, &directory(uid)).await.unwrap();
            assert!(!directory(uid).join("volumes").exists());
        }
        let stage = "NodeStageVolume handle {\"key\": \"x\"} {\"lun\": \"3\"}";
        let publish = "NodePublishVolume handle 6";
        assert_eq!(
            calls.lock().unwrap().as_slice(),
            [
                "NotifyRegistrationStatus true",
                stage,
                publish,
                stage,
                publish,
                "NodeUnpublishVolume handle",
                "NodeUnpublishVolume handle",
                "NodeUnstageVolume handle",
            ]
        );
        assert!(in_use.names().is_empty());
        fs::remove_file(registrations.join("test.csi-reg.sock")).unwrap();
        until("the driver is gone", &|| registry.get("test.csi").is_err()).await;
    });
}
