//! Pod sandboxes.

use super::*;

enumerations! {
    Protocol { Tcp = 0, Udp = 1, Sctp = 2 }
    NamespaceMode { Pod = 0, Container = 1, Node = 2, Target = 3 }
    SupplementalGroupsPolicy { Merge = 0, Strict = 1 }
    ProfileType { RuntimeDefault = 0, Unconfined = 1, Localhost = 2 }
    PodSandboxState { Ready = 0, NotReady = 1 }
}

messages! {
    DnsConfig {
        "1" servers: Vec<String> [string, repeated];
        "2" searches: Vec<String> [string, repeated];
        "3" options: Vec<String> [string, repeated];
    }
    PortMapping {
        "1" protocol: i32 [enumeration = "Protocol"];
        "2" container_port: i32 [int32];
        "3" host_port: i32 [int32];
        "4" host_ip: String [string];
    }
    IdMapping {
        "1" host_id: u32 [uint32];
        "2" container_id: u32 [uint32];
        "3" length: u32 [uint32];
    }
    UserNamespace {
        "1" mode: i32 [enumeration = "NamespaceMode"];
        "2" uids: Vec<IdMapping> [message, repeated];
        "3" gids: Vec<IdMapping> [message, repeated];
    }
    NamespaceOption {
        "1" network: i32 [enumeration = "NamespaceMode"];
        "2" pid: i32 [enumeration = "NamespaceMode"];
        "3" ipc: i32 [enumeration = "NamespaceMode"];
        "4" target_id: String [string];
        "5" userns_options: Option<UserNamespace> [message, optional];
    }
    SecurityProfile {
        "1" profile_type: i32 [enumeration = "ProfileType"];
        "2" localhost_ref: String [string];
    }
    SeLinuxOption {
        "1" user: String [string];
        "2" role: String [string];
        "3" r#type: String [string];
        "4" level: String [string];
    }
    LinuxSandboxSecurityContext {
        "1" namespace_options: Option<NamespaceOption> [message, optional];
        "2" selinux_options: Option<SeLinuxOption> [message, optional];
        "3" run_as_user: Option<Int64Value> [message, optional];
        "4" readonly_rootfs: bool [bool];
        "5" supplemental_groups: Vec<i64> [int64, repeated];
        "6" privileged: bool [bool];
        "7" seccomp_profile_path: String [string];
        "8" run_as_group: Option<Int64Value> [message, optional];
        "9" seccomp: Option<SecurityProfile> [message, optional];
        "10" apparmor: Option<SecurityProfile> [message, optional];
        "11" supplemental_groups_policy: i32 [enumeration = "SupplementalGroupsPolicy"];
    }
    LinuxPodSandboxConfig {
        "1" cgroup_parent: String [string];
        "2" security_context: Option<LinuxSandboxSecurityContext> [message, optional];
        "3" sysctls: StringMap [btree_map = "string, string"];
        "4" overhead: Option<LinuxContainerResources> [message, optional];
        "5" resources: Option<LinuxContainerResources> [message, optional];
    }
    PodSandboxMetadata {
        "1" name: String [string];
        "2" uid: String [string];
        "3" namespace: String [string];
        "4" attempt: u32 [uint32];
    }
    PodSandboxConfig {
        "1" metadata: Option<PodSandboxMetadata> [message, optional];
        "2" hostname: String [string];
        "3" log_directory: String [string];
        "4" dns_config: Option<DnsConfig> [message, optional];
        "5" port_mappings: Vec<PortMapping> [message, repeated];
        "6" labels: StringMap [btree_map = "string, string"];
        "7" annotations: StringMap [btree_map = "string, string"];
        "8" linux: Option<LinuxPodSandboxConfig> [message, optional];
    }
    RunPodSandboxRequest {
        "1" config: Option<PodSandboxConfig> [message, optional];
        "2" runtime_handler: String [string];
    }
    RunPodSandboxResponse { "1" pod_sandbox_id: String [string]; }
    StopPodSandboxRequest { "1" pod_sandbox_id: String [string]; }
    StopPodSandboxResponse {}
    RemovePodSandboxRequest { "1" pod_sandbox_id: String [string]; }
    RemovePodSandboxResponse {}
    PodSandboxStatusRequest {
        "1" pod_sandbox_id: String [string];
        "2" verbose: bool [bool];
    }
    PodIp { "1" ip: String [string]; }
    PodSandboxNetworkStatus {
        "1" ip: String [string];
        "2" additional_ips: Vec<PodIp> [message, repeated];
    }
    Namespace { "2" options: Option<NamespaceOption> [message, optional]; }
    LinuxPodSandboxStatus { "1" namespaces: Option<Namespace> [message, optional]; }
    PodSandboxStatus {
        "1" id: String [string];
        "2" metadata: Option<PodSandboxMetadata> [message, optional];
        "3" state: i32 [enumeration = "PodSandboxState"];
        "4" created_at: i64 [int64];
        "5" network: Option<PodSandboxNetworkStatus> [message, optional];
        "6" linux: Option<LinuxPodSandboxStatus> [message, optional];
        "7" labels: StringMap [btree_map = "string, string"];
        "8" annotations: StringMap [btree_map = "string, string"];
        "9" runtime_handler: String [string];
    }
    PodSandboxStatusResponse {
        "1" status: Option<PodSandboxStatus> [message, optional];
        "2" info: StringMap [btree_map = "string, string"];
        "3" containers_statuses: Vec<ContainerStatus> [message, repeated];
        "4" timestamp: i64 [int64];
    }
    PodSandboxStateValue { "1" state: i32 [enumeration = "PodSandboxState"]; }
    PodSandboxFilter {
        "1" id: String [string];
        "2" state: Option<PodSandboxStateValue> [message, optional];
        "3" label_selector: StringMap [btree_map = "string, string"];
    }
    ListPodSandboxRequest { "1" filter: Option<PodSandboxFilter> [message, optional]; }
    PodSandbox {
        "1" id: String [string];
        "2" metadata: Option<PodSandboxMetadata> [message, optional];
        "3" state: i32 [enumeration = "PodSandboxState"];
        "4" created_at: i64 [int64];
        "5" labels: StringMap [btree_map = "string, string"];
        "6" annotations: StringMap [btree_map = "string, string"];
        "7" runtime_handler: String [string];
    }
    ListPodSandboxResponse { "1" items: Vec<PodSandbox> [message, repeated]; }
    PortForwardRequest {
        "1" pod_sandbox_id: String [string];
        "2" port: Vec<i32> [int32, repeated];
    }
    PortForwardResponse { "1" url: String [string]; }
    UpdatePodSandboxResourcesRequest {
        "1" pod_sandbox_id: String [string];
        "2" overhead: Option<LinuxContainerResources> [message, optional];
        "3" resources: Option<LinuxContainerResources> [message, optional];
    }
    UpdatePodSandboxResourcesResponse {}
}
