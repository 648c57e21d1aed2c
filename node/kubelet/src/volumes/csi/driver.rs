//! Calls to a driver over its Unix socket.

use std::path::Path;
use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::messages::*;
use crate::cri::unix_channel;

/// Upstream's bound for one call.
const LONGEST: Duration = Duration::from_secs(2 * 60);

/// What drivers may be able to do that matters here.
const STAGE: i32 = 1;
const STATS: i32 = 2;
const EXPAND: i32 = 3;
const MOUNT_GROUP: i32 = 6;

/// A driver, or its registration.
#[derive(Debug, Clone)]
pub(super) struct Driver(Channel);

impl Driver {
    pub(super) fn at(socket: &Path) -> Driver {
        Driver(unix_channel(socket))
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = async {
            let mut grpc = Grpc::new(self.0.clone());
            grpc.ready().await.map_err(|error| {
                Status::unavailable(format!("the driver cannot be reached: {error}"))
            })?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            grpc.unary(Request::new(request), path, codec).await
        };
        let answer = tokio::time::timeout(LONGEST, call).await;
        let late = |_| Err(Status::deadline_exceeded("context deadline exceeded"));
        answer.unwrap_or_else(late).map(tonic::Response::into_inner)
    }

    pub(super) async fn plugin_info(&self) -> Result<PluginInfo, Status> {
        let path = "/pluginregistration.Registration/GetInfo";
        self.call(path, InfoRequest {}).await
    }

    /// Tells a plugin what became of its registration.
    pub(super) async fn notify(&self, outcome: Result<(), String>) {
        let path = "/pluginregistration.Registration/NotifyRegistrationStatus";
        let status = RegistrationStatus {
            plugin_registered: outcome.is_ok(),
            error: outcome.err().unwrap_or_default(),
        };
        let told: Result<RegistrationStatusResponse, Status> = self.call(path, status).await;
        if let Err(error) = told {
            tracing::debug!(%error, "a plugin does not want to know whether it is registered");
        }
    }

    pub(super) async fn node_info(&self) -> Result<NodeGetInfoResponse, Status> {
        self.call("/csi.v1.Node/NodeGetInfo", NodeGetInfoRequest {})
            .await
    }

    /// What the driver can do beyond the least.
    pub(super) async fn abilities(&self) -> Result<Abilities, Status> {
        let path = "/csi.v1.Node/NodeGetCapabilities";
        let answer: NodeGetCapabilitiesResponse =
            self.call(path, NodeGetCapabilitiesRequest {}).await?;
        let kinds = answer.capabilities.into_iter().filter_map(|one| one.rpc);
        let kinds: Vec<i32> = kinds.map(|rpc| rpc.kind).collect();
        Ok(Abilities {
            stages: kinds.contains(&STAGE),
            measures: kinds.contains(&STATS),
            expands: kinds.contains(&EXPAND),
            gives_groups: kinds.contains(&MOUNT_GROUP),
        })
    }

    pub(super) async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), Status> {
        let done: NodeStageVolumeResponse =
            self.call("/csi.v1.Node/NodeStageVolume", request).await?;
        let NodeStageVolumeResponse {} = done;
        Ok(())
    }

    pub(super) async fn unstage(&self, request: NodeUnstageVolumeRequest) -> Result<(), Status> {
        let done: NodeUnstageVolumeResponse =
            self.call("/csi.v1.Node/NodeUnstageVolume", request).await?;
        let NodeUnstageVolumeResponse {} = done;
        Ok(())
    }

    pub(super) async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), Status> {
        let done: NodePublishVolumeResponse =
            self.call("/csi.v1.Node/NodePublishVolume", request).await?;
        let NodePublishVolumeResponse {} = done;
        Ok(())
    }

    pub(super) async fn unpublish(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Result<(), Status> {
        let done: NodeUnpublishVolumeResponse = self
            .call("/csi.v1.Node/NodeUnpublishVolume", request)
            .await?;
        let NodeUnpublishVolumeResponse {} = done;
        Ok(())
    }

    /// Lets a file system grow with its volume; how large it is then.
    pub(super) async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<i64, Status> {
        let done: NodeExpandVolumeResponse =
            self.call("/csi.v1.Node/NodeExpandVolume", request).await?;
        Ok(done.capacity_bytes)
    }

    pub(super) async fn measure(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<Vec<VolumeUsage>, Status> {
        let answer: NodeGetVolumeStatsResponse = self
            .call("/csi.v1.Node/NodeGetVolumeStats", request)
            .await?;
        Ok(answer.usage)
    }
}

/// What a driver can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    pub(super) stages: bool,
    pub(super) measures: bool,
    pub(super) expands: bool,
    pub(super) gives_groups: bool,
}
