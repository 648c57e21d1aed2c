//! The objects that pods refer to: config maps and secrets for environments and volumes, tokens of service accounts.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, ServiceAccount,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Where the objects come from.
#[async_trait]
pub trait Objects: Send + Sync {
    /// A config map; `None` if there is none.
    async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ConfigMap>>, kube::Error>;

    /// A secret; `None` if there is none.
    async fn secret(&self, namespace: &str, name: &str)
    -> Result<Option<Arc<Secret>>, kube::Error>;

    /// A token of a service account that is bound to a pod.
    async fn token(
        &self,
        namespace: &str,
        service_account: &str,
        spec: TokenRequestSpec,
    ) -> Result<TokenRequest, kube::Error>;

    /// A claim to a persistent volume; `None` if there is none.
    async fn claim(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, kube::Error> {
        Ok(None)
    }

    /// The file system behind a claim has grown to this size.
    async fn claim_grew(
        &self,
        _namespace: &str,
        _name: &str,
        _size: &Quantity,
    ) -> Result<(), kube::Error> {
        Ok(())
    }

    /// A persistent volume; `None` if there is none.
    async fn persistent_volume(
        &self,
        _name: &str,
    ) -> Result<Option<Arc<PersistentVolume>>, kube::Error> {
        Ok(None)
    }

    /// What a CSI driver says of itself; `None` if it says nothing.
    async fn csi_driver(&self, _name: &str) -> Result<Option<Arc<CSIDriver>>, kube::Error> {
        Ok(None)
    }

    /// The attachment of a volume to this node; `None` if there is none.
    async fn attachment(&self, _name: &str) -> Result<Option<Arc<VolumeAttachment>>, kube::Error> {
        Ok(None)
    }

    /// All trust bundles of the cluster.
    async fn trust_bundles(&self) -> Result<Vec<ClusterTrustBundle>, kube::Error> {
        Ok(Vec::new())
    }

    /// A class of runtimes; `None` if there is none.
    async fn runtime_class(&self, _name: &str) -> Result<Option<RuntimeClass>, kube::Error> {
        Ok(None)
    }
}

/// Asks the API server each time.
#[derive(Clone)]
pub struct Live(pub Client);

#[async_trait]
impl Objects for Live {
    async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ConfigMap>>, kube::Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.0.clone(), namespace);
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Secret>>, kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.0.clone(), namespace);
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn token(
        &self,
        namespace: &str,
        service_account: &str,
        spec: TokenRequestSpec,
    ) -> Result<TokenRequest, kube::Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.0.clone(), namespace);
        let request = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        api.create_token_request(service_account, &PostParams::default(), &request)
            .await
    }

    async fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.0.clone(), namespace);
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn claim_grew(
        &self,
        namespace: &str,
        name: &str,
        size: &Quantity,
    ) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.0.clone(), namespace);
        // Nodes may not read the status alone.
        let claim = api.get(name).await?;
        let over = ["FileSystemResizePending", "Resizing"];
        let conditions = claim.status.and_then(|s| s.conditions).unwrap_or_default();
        let over = conditions
            .iter()
            .filter(|c| over.contains(&c.type_.as_str()))
            .map(|c| json!({"$patch": "delete", "type": c.type_}));
        let over: Vec<Value> = over.collect();
        let mut patch = json!({"status": {"capacity": {"storage": size.0},
            "allocatedResourceStatuses": {"storage": null}}});
        if !over.is_empty() {
            patch["status"]["conditions"] = Value::Array(over);
        }
        api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map(drop)
    }

    async fn persistent_volume(
        &self,
        name: &str,
    ) -> Result<Option<Arc<PersistentVolume>>, kube::Error> {
        let api: Api<PersistentVolume> = Api::all(self.0.clone());
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn csi_driver(&self, name: &str) -> Result<Option<Arc<CSIDriver>>, kube::Error> {
        let api: Api<CSIDriver> = Api::all(self.0.clone());
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn attachment(&self, name: &str) -> Result<Option<Arc<VolumeAttachment>>, kube::Error> {
        let api: Api<VolumeAttachment> = Api::all(self.0.clone());
        Ok(api.get_opt(name).await?.map(Arc::new))
    }

    async fn trust_bundles(&self) -> Result<Vec<ClusterTrustBundle>, kube::Error> {
        let api: Api<ClusterTrustBundle> = Api::all(self.0.clone());
        Ok(api.list(&ListParams::default()).await?.items)
    }

    async fn runtime_class(&self, name: &str) -> Result<Option<RuntimeClass>, kube::Error> {
        Api::all(self.0.clone()).get_opt(name).await
    }
}
