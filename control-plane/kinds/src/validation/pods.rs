//! Pods: containers, volumes, security, where they may run.

pub(super) mod affinity;
pub(super) mod container;
pub(super) mod container_env;
pub(super) mod container_mounts;
pub(super) mod pod;
pub(super) mod pod_annotations;
pub(super) mod pod_resize;
pub(super) mod pod_security;
pub(super) mod pod_spec;
pub(super) mod pod_status;
pub(super) mod pod_update;
pub(super) mod pod_windows;
pub(super) mod probe;
pub(super) mod resources;
pub(super) mod volume;
pub(super) mod volume_legacy;
pub(super) mod volume_paths;
pub(super) mod volume_projected;
