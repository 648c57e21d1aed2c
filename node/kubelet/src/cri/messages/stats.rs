//! Usage of containers and sandboxes.

use super::*;

messages! {
    FilesystemIdentifier { "1" mountpoint: String [string]; }
    FilesystemUsage {
        "1" timestamp: i64 [int64];
        "2" fs_id: Option<FilesystemIdentifier> [message, optional];
        "3" used_bytes: Option<UInt64Value> [message, optional];
        "4" inodes_used: Option<UInt64Value> [message, optional];
    }
    ContainerStatsRequest { "1" container_id: String [string]; }
    ContainerStatsResponse { "1" stats: Option<ContainerStats> [message, optional]; }
    ContainerStatsFilter {
        "1" id: String [string];
        "2" pod_sandbox_id: String [string];
        "3" label_selector: StringMap [btree_map = "string, string"];
    }
    ListContainerStatsRequest { "1" filter: Option<ContainerStatsFilter> [message, optional]; }
    ListContainerStatsResponse { "1" stats: Vec<ContainerStats> [message, repeated]; }
    ContainerAttributes {
        "1" id: String [string];
        "2" metadata: Option<ContainerMetadata> [message, optional];
        "3" labels: StringMap [btree_map = "string, string"];
        "4" annotations: StringMap [btree_map = "string, string"];
    }
    ContainerStats {
        "1" attributes: Option<ContainerAttributes> [message, optional];
        "2" cpu: Option<CpuUsage> [message, optional];
        "3" memory: Option<MemoryUsage> [message, optional];
        "4" writable_layer: Option<FilesystemUsage> [message, optional];
        "5" swap: Option<SwapUsage> [message, optional];
    }
    CpuUsage {
        "1" timestamp: i64 [int64];
        "2" usage_core_nano_seconds: Option<UInt64Value> [message, optional];
        "3" usage_nano_cores: Option<UInt64Value> [message, optional];
    }
    MemoryUsage {
        "1" timestamp: i64 [int64];
        "2" working_set_bytes: Option<UInt64Value> [message, optional];
        "3" available_bytes: Option<UInt64Value> [message, optional];
        "4" usage_bytes: Option<UInt64Value> [message, optional];
        "5" rss_bytes: Option<UInt64Value> [message, optional];
        "6" page_faults: Option<UInt64Value> [message, optional];
        "7" major_page_faults: Option<UInt64Value> [message, optional];
    }
    SwapUsage {
        "1" timestamp: i64 [int64];
        "2" swap_available_bytes: Option<UInt64Value> [message, optional];
        "3" swap_usage_bytes: Option<UInt64Value> [message, optional];
    }
    NetworkInterfaceUsage {
        "1" name: String [string];
        "2" rx_bytes: Option<UInt64Value> [message, optional];
        "3" rx_errors: Option<UInt64Value> [message, optional];
        "4" tx_bytes: Option<UInt64Value> [message, optional];
        "5" tx_errors: Option<UInt64Value> [message, optional];
    }
    NetworkUsage {
        "1" timestamp: i64 [int64];
        "2" default_interface: Option<NetworkInterfaceUsage> [message, optional];
        "3" interfaces: Vec<NetworkInterfaceUsage> [message, repeated];
    }
    ProcessUsage {
        "1" timestamp: i64 [int64];
        "2" process_count: Option<UInt64Value> [message, optional];
    }
    PodSandboxAttributes {
        "1" id: String [string];
        "2" metadata: Option<PodSandboxMetadata> [message, optional];
        "3" labels: StringMap [btree_map = "string, string"];
        "4" annotations: StringMap [btree_map = "string, string"];
    }
    LinuxPodSandboxStats {
        "1" cpu: Option<CpuUsage> [message, optional];
        "2" memory: Option<MemoryUsage> [message, optional];
        "3" network: Option<NetworkUsage> [message, optional];
        "4" process: Option<ProcessUsage> [message, optional];
        "5" containers: Vec<ContainerStats> [message, repeated];
    }
    PodSandboxStats {
        "1" attributes: Option<PodSandboxAttributes> [message, optional];
        "2" linux: Option<LinuxPodSandboxStats> [message, optional];
    }
    PodSandboxStatsRequest { "1" pod_sandbox_id: String [string]; }
    PodSandboxStatsResponse { "1" stats: Option<PodSandboxStats> [message, optional]; }
    PodSandboxStatsFilter {
        "1" id: String [string];
        "2" label_selector: StringMap [btree_map = "string, string"];
    }
    ListPodSandboxStatsRequest { "1" filter: Option<PodSandboxStatsFilter> [message, optional]; }
    ListPodSandboxStatsResponse { "1" stats: Vec<PodSandboxStats> [message, repeated]; }
}
