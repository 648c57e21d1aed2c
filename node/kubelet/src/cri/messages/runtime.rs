//! The runtime itself: version, health, configuration.

use super::*;

enumerations! {
    CgroupDriver { Systemd = 0, Cgroupfs = 1 }
}

messages! {
    VersionRequest { "1" version: String [string]; }
    VersionResponse {
        "1" version: String [string];
        "2" runtime_name: String [string];
        "3" runtime_version: String [string];
        "4" runtime_api_version: String [string];
    }
    NetworkConfig { "1" pod_cidr: String [string]; }
    RuntimeConfig { "1" network_config: Option<NetworkConfig> [message, optional]; }
    UpdateRuntimeConfigRequest { "1" runtime_config: Option<RuntimeConfig> [message, optional]; }
    UpdateRuntimeConfigResponse {}
    RuntimeCondition {
        "1" r#type: String [string];
        "2" status: bool [bool];
        "3" reason: String [string];
        "4" message: String [string];
    }
    RuntimeStatus { "1" conditions: Vec<RuntimeCondition> [message, repeated]; }
    StatusRequest { "1" verbose: bool [bool]; }
    RuntimeHandlerFeatures {
        "1" recursive_read_only_mounts: bool [bool];
        "2" user_namespaces: bool [bool];
    }
    RuntimeHandler {
        "1" name: String [string];
        "2" features: Option<RuntimeHandlerFeatures> [message, optional];
    }
    RuntimeFeatures {
        "1" supplemental_groups_policy: bool [bool];
        "2" user_namespaces_host_network: bool [bool];
    }
    StatusResponse {
        "1" status: Option<RuntimeStatus> [message, optional];
        "2" info: StringMap [btree_map = "string, string"];
        "3" runtime_handlers: Vec<RuntimeHandler> [message, repeated];
        "4" features: Option<RuntimeFeatures> [message, optional];
    }
    RuntimeConfigRequest {}
    RuntimeConfigResponse { "1" linux: Option<LinuxRuntimeConfiguration> [message, optional]; }
    LinuxRuntimeConfiguration { "1" cgroup_driver: i32 [enumeration = "CgroupDriver"]; }
}
