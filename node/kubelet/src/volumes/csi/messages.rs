//! The messages of CSI's node service and of plugin registration that a kubelet needs, with the names and field numbers
//! of their own texts.

use std::collections::BTreeMap;

use prost::Message;

macro_rules! messages {
    ($( $name:ident { $( $tag:tt $field:ident: $type:ty [$($kind:tt)*]; )* } )*) => { $(
        #[derive(Clone, PartialEq, Message)]
        pub(crate) struct $name {
            $( #[prost($($kind)*, tag = $tag)] pub(crate) $field: $type, )*
        }
    )* };
}

type StringMap = BTreeMap<String, String>;

messages! {
    InfoRequest {}
    PluginInfo {
        "1" kind: String [string];
        "2" name: String [string];
        "3" endpoint: String [string];
        "4" supported_versions: Vec<String> [string, repeated];
    }
    RegistrationStatus {
        "1" plugin_registered: bool [bool];
        "2" error: String [string];
    }
    RegistrationStatusResponse {}
    NodeGetInfoRequest {}
    Topology { "1" segments: StringMap [btree_map = "string, string"]; }
    NodeGetInfoResponse {
        "1" node_id: String [string];
        "2" max_volumes_per_node: i64 [int64];
        "3" accessible_topology: Option<Topology> [message, optional];
    }
    NodeGetCapabilitiesRequest {}
    Rpc { "1" kind: i32 [int32]; }
    NodeServiceCapability { "1" rpc: Option<Rpc> [message, optional]; }
    NodeGetCapabilitiesResponse { "1" capabilities: Vec<NodeServiceCapability> [message, repeated]; }
    BlockVolume {}
    MountVolume {
        "1" fs_type: String [string];
        "2" mount_flags: Vec<String> [string, repeated];
        "3" volume_mount_group: String [string];
    }
    AccessMode { "1" mode: i32 [int32]; }
    VolumeCapability {
        "1" block: Option<BlockVolume> [message, optional];
        "2" mount: Option<MountVolume> [message, optional];
        "3" access_mode: Option<AccessMode> [message, optional];
    }
    NodeStageVolumeRequest {
        "1" volume_id: String [string];
        "2" publish_context: StringMap [btree_map = "string, string"];
        "3" staging_target_path: String [string];
        "4" volume_capability: Option<VolumeCapability> [message, optional];
        "5" secrets: StringMap [btree_map = "string, string"];
        "6" volume_context: StringMap [btree_map = "string, string"];
    }
    NodeStageVolumeResponse {}
    NodeUnstageVolumeRequest {
        "1" volume_id: String [string];
        "2" staging_target_path: String [string];
    }
    NodeUnstageVolumeResponse {}
    NodePublishVolumeRequest {
        "1" volume_id: String [string];
        "2" publish_context: StringMap [btree_map = "string, string"];
        "3" staging_target_path: String [string];
        "4" target_path: String [string];
        "5" volume_capability: Option<VolumeCapability> [message, optional];
        "6" readonly: bool [bool];
        "7" secrets: StringMap [btree_map = "string, string"];
        "8" volume_context: StringMap [btree_map = "string, string"];
    }
    NodePublishVolumeResponse {}
    NodeUnpublishVolumeRequest {
        "1" volume_id: String [string];
        "2" target_path: String [string];
    }
    NodeUnpublishVolumeResponse {}
    CapacityRange {
        "1" required_bytes: i64 [int64];
        "2" limit_bytes: i64 [int64];
    }
    NodeExpandVolumeRequest {
        "1" volume_id: String [string];
        "2" volume_path: String [string];
        "3" capacity_range: Option<CapacityRange> [message, optional];
        "4" staging_target_path: String [string];
        "5" volume_capability: Option<VolumeCapability> [message, optional];
        "6" secrets: StringMap [btree_map = "string, string"];
    }
    NodeExpandVolumeResponse { "1" capacity_bytes: i64 [int64]; }
    NodeGetVolumeStatsRequest {
        "1" volume_id: String [string];
        "2" volume_path: String [string];
        "3" staging_target_path: String [string];
    }
    VolumeUsage {
        "1" available: i64 [int64];
        "2" total: i64 [int64];
        "3" used: i64 [int64];
        "4" unit: i32 [int32];
    }
    NodeGetVolumeStatsResponse { "1" usage: Vec<VolumeUsage> [message, repeated]; }
}

/// The access mode of a volume by the API's names; several drivers refuse what is too much.
pub(super) fn access_mode(modes: &[String]) -> i32 {
    let has = |mode: &str| modes.iter().any(|own| own == mode);
    match () {
        () if has("ReadWriteMany") => 5,
        () if has("ReadWriteOncePod") => 6,
        () if has("ReadOnlyMany") && has("ReadWriteOnce") => 5,
        () if has("ReadOnlyMany") => 3,
        () => 1,
    }
}
