//! Where things are on a node. All but the last group is upstream's contract.

/// The configuration, as custom data lays it down.
pub const CONFIG: &str = "/opt/azure/containers/aks-node-controller-config.json";
/// The directory that `provision-wait` watches.
pub const CONTAINERS: &str = "/opt/azure/containers";
/// Exists once a run has ended, well or not; comes after [`RESULT`].
pub const COMPLETE: &str = "/opt/azure/containers/provision.complete";
/// The same for the first half of a two-stage image bake.
pub const BASE_PREP_COMPLETE: &str = "/opt/azure/containers/base_prep.complete";
/// How the last run ended.
pub const RESULT: &str = "/var/log/azure/aks/provision.json";
/// The log: one JSON object per line.
pub const LOG: &str = "/var/log/azure/aks-node-controller.log";
/// What happened, for people; its end is `Output` of the result.
pub const TRANSCRIPT: &str = "/var/log/azure/cluster-provision.log";
/// Where the Azure guest agent collects events.
pub const EVENTS: &str = "/var/log/azure/Microsoft.Azure.Extensions.CustomScript/events";

/// The engine's journal.
pub const STATE: &str = "/var/lib/aks-node-controller";
/// What lasts only as long as the machine is up; in memory, so it works when the disk does not.
pub const VOLATILE: &str = "/run/aks-node-controller";
/// Held by the run that is under way.
pub const LOCK: &str = "/run/aks-node-controller/lock";
/// What the run under way has done so far.
pub const PROGRESS: &str = "/run/aks-node-controller/progress";
/// Stands in for [`RESULT`] when the disk does not take it.
pub const VOLATILE_RESULT: &str = "/run/aks-node-controller/provision.json";
/// Stands in for [`COMPLETE`] when the disk does not take it.
pub const VOLATILE_COMPLETE: &str = "/run/aks-node-controller/provision.complete";
