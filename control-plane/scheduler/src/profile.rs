//! The table of plugins, and profiles: which of them place a pod, and with what weight.

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};

/// What scheduling is made of, by upstream's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are upstream's")]
pub enum Plugin {
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
}

/// A row of the table: a plugin, its name, and its weight where it scores.
#[derive(Debug)]
pub struct Entry {
    /// Which.
    pub plugin: Plugin,
    /// Its name in configurations and metrics.
    pub name: &'static str,
    /// Its weight by default; zero if it does not score.
    pub weight: i64,
}

const fn entry(plugin: Plugin, name: &'static str, weight: i64) -> Entry {
    Entry {
        plugin,
        name,
        weight,
    }
}

/// The default plugins in the order in which they are asked (upstream's `getDefaultPlugins`).
///
/// The four of volumes have their place between resources and spreading: a pod with claims is held back by `VolumeBinding`
/// until somebody has bound them; the other three have nothing to say yet.
#[rustfmt::skip]
pub const PLUGINS: [Entry; 18] = [
    entry(Plugin::SchedulingGates, "SchedulingGates", 0),
    entry(Plugin::PrioritySort, "PrioritySort", 0),
    entry(Plugin::NodeUnschedulable, "NodeUnschedulable", 0),
    entry(Plugin::NodeName, "NodeName", 0),
    entry(Plugin::TaintToleration, "TaintToleration", 3),
    entry(Plugin::NodeAffinity, "NodeAffinity", 2),
    entry(Plugin::NodePorts, "NodePorts", 0),
    entry(Plugin::NodeResourcesFit, "NodeResourcesFit", 1),
    entry(Plugin::VolumeRestrictions, "VolumeRestrictions", 0),
    entry(Plugin::NodeVolumeLimits, "NodeVolumeLimits", 0),
    entry(Plugin::VolumeBinding, "VolumeBinding", 0),
    entry(Plugin::VolumeZone, "VolumeZone", 0),
    entry(Plugin::PodTopologySpread, "PodTopologySpread", 2),
    entry(Plugin::InterPodAffinity, "InterPodAffinity", 2),
    entry(Plugin::DefaultPreemption, "DefaultPreemption", 0),
    entry(Plugin::NodeResourcesBalancedAllocation, "NodeResourcesBalancedAllocation", 1),
    entry(Plugin::ImageLocality, "ImageLocality", 1),
    entry(Plugin::DefaultBinder, "DefaultBinder", 0),
];

impl Plugin {
    /// By its name.
    pub fn named(name: &str) -> Option<Plugin> {
        let found = PLUGINS.iter().find(|entry| entry.name == name);
        found.map(|entry| entry.plugin)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = PLUGINS.iter().find(|entry| entry.plugin == self);
        found.map_or("", |entry| entry.name)
    }
}

/// How the use of resources is scored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// The emptier the better.
    LeastAllocated,
    /// The fuller the better.
    MostAllocated,
    /// As a curve says: points of use in percent and score from 0 to 10.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// How pods of one `schedulerName` are placed.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The name that pods say.
    pub name: String,
    filters: Vec<Plugin>,
    weights: Vec<(Plugin, i64)>,
    /// How many percent of the nodes are looked at once enough are feasible; `None`: all of them.
    pub percentage: Option<u8>,
    /// How the use of resources is scored.
    pub strategy: Strategy,
    /// Which resources, with their weights.
    pub resources: Vec<(String, i64)>,
    /// Which resources are to be used evenly.
    pub balanced: Vec<String>,
    /// Extended resources that need not fit, or groups of them.
    pub ignored_resources: Vec<String>,
    /// Groups of extended resources that need not fit.
    pub ignored_groups: Vec<String>,
    /// What a pod's required affinity counts for those it wants near.
    pub hard_affinity_weight: i64,
    /// Whether wishes of existing pods count only for pods with wishes.
    pub ignores_others_wishes: bool,
    /// For pods without spread constraints of their own; `None`: the system's.
    pub default_spread: Option<Vec<TopologySpreadConstraint>>,
    /// Node affinity of every pod of this profile.
    pub added_affinity: Option<NodeAffinity>,
    /// Preemption looks at this many percent of the possible nodes.
    pub candidates_percent: usize,
    /// And at this many at least.
    pub candidates_least: usize,
}

impl Profile {
    /// Upstream's defaults.
    pub fn new(name: &str) -> Profile {
        let weights = PLUGINS.iter().filter(|entry| entry.weight > 0);
        Profile {
            name: name.into(),
            filters: PLUGINS.iter().map(|entry| entry.plugin).collect(),
            weights: weights.map(|e| (e.plugin, e.weight)).collect(),
            percentage: None,
            strategy: Strategy::LeastAllocated,
            resources: vec![("cpu".into(), 1), ("memory".into(), 1)],
            balanced: vec!["cpu".into(), "memory".into()],
            ignored_resources: Vec::new(),
            ignored_groups: Vec::new(),
            hard_affinity_weight: 1,
            ignores_others_wishes: false,
            default_spread: None,
            added_affinity: None,
            candidates_percent: 10,
            candidates_least: 100,
        }
    }

    /// Whether a plugin may refuse nodes.
    pub fn filters(&self, plugin: Plugin) -> bool {
        self.filters.contains(&plugin)
    }

    /// A plugin's weight; zero if it does not score.
    pub fn weight(&self, plugin: Plugin) -> i64 {
        let found = self.weights.iter().find(|(p, _)| *p == plugin);
        found.map_or(0, |(_, weight)| *weight)
    }

    /// A plugin refuses nodes, or no longer does.
    pub fn set_filter(&mut self, plugin: Plugin, is_on: bool) {
        self.filters.retain(|p| *p != plugin);
        if is_on {
            self.filters.push(plugin);
        }
    }

    /// A plugin scores with this weight, or not at all.
    pub fn set_weight(&mut self, plugin: Plugin, weight: i64) {
        self.weights.retain(|(p, _)| *p != plugin);
        if weight > 0 {
            self.weights.push((plugin, weight));
        }
    }
}
