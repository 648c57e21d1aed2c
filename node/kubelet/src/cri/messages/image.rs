//! Images and where they are stored.

use super::*;

messages! {
    ImageSpec {
        "1" image: String [string];
        "2" annotations: StringMap [btree_map = "string, string"];
        "18" user_specified_image: String [string];
        "19" runtime_handler: String [string];
        "20" image_ref: String [string];
    }
    ImageFilter { "1" image: Option<ImageSpec> [message, optional]; }
    ListImagesRequest { "1" filter: Option<ImageFilter> [message, optional]; }
    Image {
        "1" id: String [string];
        "2" repo_tags: Vec<String> [string, repeated];
        "3" repo_digests: Vec<String> [string, repeated];
        "4" size: u64 [uint64];
        "5" uid: Option<Int64Value> [message, optional];
        "6" username: String [string];
        "7" spec: Option<ImageSpec> [message, optional];
        "8" pinned: bool [bool];
    }
    ListImagesResponse { "1" images: Vec<Image> [message, repeated]; }
    ImageStatusRequest {
        "1" image: Option<ImageSpec> [message, optional];
        "2" verbose: bool [bool];
    }
    ImageStatusResponse {
        "1" image: Option<Image> [message, optional];
        "2" info: StringMap [btree_map = "string, string"];
    }
    AuthConfig {
        "1" username: String [string];
        "2" password: String [string];
        "3" auth: String [string];
        "4" server_address: String [string];
        "5" identity_token: String [string];
        "6" registry_token: String [string];
    }
    PullImageRequest {
        "1" image: Option<ImageSpec> [message, optional];
        "2" auth: Option<AuthConfig> [message, optional];
        "3" sandbox_config: Option<PodSandboxConfig> [message, optional];
    }
    PullImageResponse { "1" image_ref: String [string]; }
    RemoveImageRequest { "1" image: Option<ImageSpec> [message, optional]; }
    RemoveImageResponse {}
    ImageFsInfoRequest {}
    ImageFsInfoResponse {
        "1" image_filesystems: Vec<FilesystemUsage> [message, repeated];
        "2" container_filesystems: Vec<FilesystemUsage> [message, repeated];
    }
}
