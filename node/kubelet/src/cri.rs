//! The container runtime as CRI v1 has it: a trait with one method per call, and the client of a runtime behind a
//! Unix socket. Hollow nodes answer the same calls and run nothing.

mod client;
mod messages;

pub use client::Client;
pub(crate) use client::unix_channel;
pub use messages::*;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tonic::Status;

/// What a call comes to.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Status>>;

/// Whether the runtime does not know the thing: for stop, remove and status that is as good as done.
pub fn is_not_found(status: &Status) -> bool {
    status.code() == tonic::Code::NotFound
}

/// One line per unary call: the trait's method and the client's. The word at the end is how long it may take.
macro_rules! calls {
    ($( $(#[$doc:meta])* $method:ident($request:ident) -> $response:ident = $path:literal, $limit:ident; )*) => {
        /// Every call of CRI that a kubelet makes. What a runtime does not have is `Unimplemented`.
        pub trait Runtime: Send + Sync {
            $( $(#[$doc])*
            fn $method(&self, _: $request) -> Answer<'_, $response> {
                Box::pin(async { Err(Status::unimplemented(concat!("unknown method ", $path))) })
            } )*

            /// What happens to containers, as it happens.
            fn container_events(&self) -> Answer<'_, BoxStream<'static, Result<ContainerEventResponse, Status>>> {
                Box::pin(async { Err(Status::unimplemented("unknown method GetContainerEvents")) })
            }
        }

        impl Runtime for Client {
            $( fn $method(&self, request: $request) -> Answer<'_, $response> {
                let limit = client::Limit::$limit(self, &request);
                Box::pin(self.unary(concat!("/runtime.v1.", $path), request, limit))
            } )*

            fn container_events(&self) -> Answer<'_, BoxStream<'static, Result<ContainerEventResponse, Status>>> {
                Box::pin(self.events())
            }
        }
    };
}

calls! {
    /// Who the runtime is.
    version(VersionRequest) -> VersionResponse = "RuntimeService/Version", usual;
    /// Makes and starts a sandbox.
    run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse = "RuntimeService/RunPodSandbox", twice;
    /// Stops a sandbox with all in it and gives back its network.
    stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse = "RuntimeService/StopPodSandbox", usual;
    /// Removes a sandbox with all in it.
    remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse = "RuntimeService/RemovePodSandbox", usual;
    /// A sandbox in detail.
    pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse = "RuntimeService/PodSandboxStatus", usual;
    /// The sandboxes that match.
    list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse = "RuntimeService/ListPodSandbox", usual;
    /// Makes a container in a sandbox.
    create_container(CreateContainerRequest) -> CreateContainerResponse = "RuntimeService/CreateContainer", usual;
    /// Starts it.
    start_container(StartContainerRequest) -> StartContainerResponse = "RuntimeService/StartContainer", usual;
    /// Stops it, by force when the time given is over.
    stop_container(StopContainerRequest) -> StopContainerResponse = "RuntimeService/StopContainer", stopping;
    /// Removes it.
    remove_container(RemoveContainerRequest) -> RemoveContainerResponse = "RuntimeService/RemoveContainer", usual;
    /// The containers that match.
    list_containers(ListContainersRequest) -> ListContainersResponse = "RuntimeService/ListContainers", usual;
    /// A container in detail.
    container_status(ContainerStatusRequest) -> ContainerStatusResponse = "RuntimeService/ContainerStatus", usual;
    /// Changes the limits of a container.
    update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse = "RuntimeService/UpdateContainerResources", usual;
    /// Tells the runtime that a log file was moved away.
    reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse = "RuntimeService/ReopenContainerLog", usual;
    /// Runs a command in a container to its end.
    exec_sync(ExecSyncRequest) -> ExecSyncResponse = "RuntimeService/ExecSync", executing;
    /// Where a command can be run with its streams.
    exec(ExecRequest) -> ExecResponse = "RuntimeService/Exec", usual;
    /// Where the streams of a container can be had.
    attach(AttachRequest) -> AttachResponse = "RuntimeService/Attach", usual;
    /// Where ports of a sandbox can be had.
    port_forward(PortForwardRequest) -> PortForwardResponse = "RuntimeService/PortForward", usual;
    /// The usage of one container.
    container_stats(ContainerStatsRequest) -> ContainerStatsResponse = "RuntimeService/ContainerStats", usual;
    /// The usage of the containers that match.
    list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse = "RuntimeService/ListContainerStats", usual;
    /// The usage of one sandbox.
    pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse = "RuntimeService/PodSandboxStats", usual;
    /// The usage of the sandboxes that match.
    list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse = "RuntimeService/ListPodSandboxStats", usual;
    /// Tells the runtime the addresses of the node's pods.
    update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse = "RuntimeService/UpdateRuntimeConfig", usual;
    /// Whether the runtime and its network are ready.
    status(StatusRequest) -> StatusResponse = "RuntimeService/Status", usual;
    /// Writes a checkpoint of a container.
    checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse = "RuntimeService/CheckpointContainer", usual;
    /// How the runtime manages cgroups.
    runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse = "RuntimeService/RuntimeConfig", usual;
    /// Tells the runtime that a pod's cgroup was changed.
    update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse = "RuntimeService/UpdatePodSandboxResources", usual;
    /// The images on this node.
    list_images(ListImagesRequest) -> ListImagesResponse = "ImageService/ListImages", usual;
    /// One image, if it is here.
    image_status(ImageStatusRequest) -> ImageStatusResponse = "ImageService/ImageStatus", usual;
    /// Fetches an image; that takes as long as it takes.
    pull_image(PullImageRequest) -> PullImageResponse = "ImageService/PullImage", none;
    /// Removes an image.
    remove_image(RemoveImageRequest) -> RemoveImageResponse = "ImageService/RemoveImage", usual;
    /// Where images are stored and how much they take.
    image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse = "ImageService/ImageFsInfo", usual;
}
