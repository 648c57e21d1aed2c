//! Containers.

use super::*;

enumerations! {
    MountPropagation { Private = 0, HostToContainer = 1, Bidirectional = 2 }
    ContainerState { Created = 0, Running = 1, Exited = 2, Unknown = 3 }
    ContainerEventType { Created = 0, Started = 1, Stopped = 2, Deleted = 3 }
}

messages! {
    Mount {
        "1" container_path: String [string];
        "2" host_path: String [string];
        "3" readonly: bool [bool];
        "4" selinux_relabel: bool [bool];
        "5" propagation: i32 [enumeration = "MountPropagation"];
        "6" uid_mappings: Vec<IdMapping> [message, repeated];
        "7" gid_mappings: Vec<IdMapping> [message, repeated];
        "8" recursive_read_only: bool [bool];
        "9" image: Option<ImageSpec> [message, optional];
        "10" image_sub_path: String [string];
    }
    HugepageLimit {
        "1" page_size: String [string];
        "2" limit: u64 [uint64];
    }
    LinuxContainerResources {
        "1" cpu_period: i64 [int64];
        "2" cpu_quota: i64 [int64];
        "3" cpu_shares: i64 [int64];
        "4" memory_limit_in_bytes: i64 [int64];
        "5" oom_score_adj: i64 [int64];
        "6" cpuset_cpus: String [string];
        "7" cpuset_mems: String [string];
        "8" hugepage_limits: Vec<HugepageLimit> [message, repeated];
        "9" unified: StringMap [btree_map = "string, string"];
        "10" memory_swap_limit_in_bytes: i64 [int64];
    }
    Capability {
        "1" add_capabilities: Vec<String> [string, repeated];
        "2" drop_capabilities: Vec<String> [string, repeated];
        "3" add_ambient_capabilities: Vec<String> [string, repeated];
    }
    LinuxContainerSecurityContext {
        "1" capabilities: Option<Capability> [message, optional];
        "2" privileged: bool [bool];
        "3" namespace_options: Option<NamespaceOption> [message, optional];
        "4" selinux_options: Option<SeLinuxOption> [message, optional];
        "5" run_as_user: Option<Int64Value> [message, optional];
        "6" run_as_username: String [string];
        "7" readonly_rootfs: bool [bool];
        "8" supplemental_groups: Vec<i64> [int64, repeated];
        "9" apparmor_profile: String [string];
        "10" seccomp_profile_path: String [string];
        "11" no_new_privs: bool [bool];
        "12" run_as_group: Option<Int64Value> [message, optional];
        "13" masked_paths: Vec<String> [string, repeated];
        "14" readonly_paths: Vec<String> [string, repeated];
        "15" seccomp: Option<SecurityProfile> [message, optional];
        "16" apparmor: Option<SecurityProfile> [message, optional];
        "17" supplemental_groups_policy: i32 [enumeration = "SupplementalGroupsPolicy"];
    }
    LinuxContainerConfig {
        "1" resources: Option<LinuxContainerResources> [message, optional];
        "2" security_context: Option<LinuxContainerSecurityContext> [message, optional];
    }
    LinuxContainerUser {
        "1" uid: i64 [int64];
        "2" gid: i64 [int64];
        "3" supplemental_groups: Vec<i64> [int64, repeated];
    }
    ContainerMetadata {
        "1" name: String [string];
        "2" attempt: u32 [uint32];
    }
    Device {
        "1" container_path: String [string];
        "2" host_path: String [string];
        "3" permissions: String [string];
    }
    CdiDevice { "1" name: String [string]; }
    ContainerConfig {
        "1" metadata: Option<ContainerMetadata> [message, optional];
        "2" image: Option<ImageSpec> [message, optional];
        "3" command: Vec<String> [string, repeated];
        "4" args: Vec<String> [string, repeated];
        "5" working_dir: String [string];
        "6" envs: Vec<KeyValue> [message, repeated];
        "7" mounts: Vec<Mount> [message, repeated];
        "8" devices: Vec<Device> [message, repeated];
        "9" labels: StringMap [btree_map = "string, string"];
        "10" annotations: StringMap [btree_map = "string, string"];
        "11" log_path: String [string];
        "12" stdin: bool [bool];
        "13" stdin_once: bool [bool];
        "14" tty: bool [bool];
        "15" linux: Option<LinuxContainerConfig> [message, optional];
        "17" cdi_devices: Vec<CdiDevice> [message, repeated];
        "18" stop_signal: i32 [int32];
    }
    CreateContainerRequest {
        "1" pod_sandbox_id: String [string];
        "2" config: Option<ContainerConfig> [message, optional];
        "3" sandbox_config: Option<PodSandboxConfig> [message, optional];
    }
    CreateContainerResponse { "1" container_id: String [string]; }
    StartContainerRequest { "1" container_id: String [string]; }
    StartContainerResponse {}
    StopContainerRequest {
        "1" container_id: String [string];
        "2" timeout: i64 [int64];
    }
    StopContainerResponse {}
    RemoveContainerRequest { "1" container_id: String [string]; }
    RemoveContainerResponse {}
    ContainerStateValue { "1" state: i32 [enumeration = "ContainerState"]; }
    ContainerFilter {
        "1" id: String [string];
        "2" state: Option<ContainerStateValue> [message, optional];
        "3" pod_sandbox_id: String [string];
        "4" label_selector: StringMap [btree_map = "string, string"];
    }
    ListContainersRequest { "1" filter: Option<ContainerFilter> [message, optional]; }
    Container {
        "1" id: String [string];
        "2" pod_sandbox_id: String [string];
        "3" metadata: Option<ContainerMetadata> [message, optional];
        "4" image: Option<ImageSpec> [message, optional];
        "5" image_ref: String [string];
        "6" state: i32 [enumeration = "ContainerState"];
        "7" created_at: i64 [int64];
        "8" labels: StringMap [btree_map = "string, string"];
        "9" annotations: StringMap [btree_map = "string, string"];
        "10" image_id: String [string];
    }
    ListContainersResponse { "1" containers: Vec<Container> [message, repeated]; }
    ContainerStatusRequest {
        "1" container_id: String [string];
        "2" verbose: bool [bool];
    }
    ContainerResources { "1" linux: Option<LinuxContainerResources> [message, optional]; }
    ContainerUser { "1" linux: Option<LinuxContainerUser> [message, optional]; }
    ContainerStatus {
        "1" id: String [string];
        "2" metadata: Option<ContainerMetadata> [message, optional];
        "3" state: i32 [enumeration = "ContainerState"];
        "4" created_at: i64 [int64];
        "5" started_at: i64 [int64];
        "6" finished_at: i64 [int64];
        "7" exit_code: i32 [int32];
        "8" image: Option<ImageSpec> [message, optional];
        "9" image_ref: String [string];
        "10" reason: String [string];
        "11" message: String [string];
        "12" labels: StringMap [btree_map = "string, string"];
        "13" annotations: StringMap [btree_map = "string, string"];
        "14" mounts: Vec<Mount> [message, repeated];
        "15" log_path: String [string];
        "16" resources: Option<ContainerResources> [message, optional];
        "17" image_id: String [string];
        "18" user: Option<ContainerUser> [message, optional];
    }
    ContainerStatusResponse {
        "1" status: Option<ContainerStatus> [message, optional];
        "2" info: StringMap [btree_map = "string, string"];
    }
    UpdateContainerResourcesRequest {
        "1" container_id: String [string];
        "2" linux: Option<LinuxContainerResources> [message, optional];
        "4" annotations: StringMap [btree_map = "string, string"];
    }
    UpdateContainerResourcesResponse {}
    ReopenContainerLogRequest { "1" container_id: String [string]; }
    ReopenContainerLogResponse {}
    CheckpointContainerRequest {
        "1" container_id: String [string];
        "2" location: String [string];
        "3" timeout: i64 [int64];
    }
    CheckpointContainerResponse {}
    ExecSyncRequest {
        "1" container_id: String [string];
        "2" cmd: Vec<String> [string, repeated];
        "3" timeout: i64 [int64];
    }
    ExecSyncResponse {
        "1" stdout: Vec<u8> [bytes = "vec"];
        "2" stderr: Vec<u8> [bytes = "vec"];
        "3" exit_code: i32 [int32];
    }
    ExecRequest {
        "1" container_id: String [string];
        "2" cmd: Vec<String> [string, repeated];
        "3" tty: bool [bool];
        "4" stdin: bool [bool];
        "5" stdout: bool [bool];
        "6" stderr: bool [bool];
    }
    ExecResponse { "1" url: String [string]; }
    AttachRequest {
        "1" container_id: String [string];
        "2" stdin: bool [bool];
        "3" tty: bool [bool];
        "4" stdout: bool [bool];
        "5" stderr: bool [bool];
    }
    AttachResponse { "1" url: String [string]; }
    GetEventsRequest {}
    ContainerEventResponse {
        "1" container_id: String [string];
        "2" container_event_type: i32 [enumeration = "ContainerEventType"];
        "3" created_at: i64 [int64];
        "4" pod_sandbox_status: Option<PodSandboxStatus> [message, optional];
        "5" containers_statuses: Vec<ContainerStatus> [message, repeated];
    }
}
