//! Why a pod cannot run on a node, in eight bytes, and the sentences people read about it.

use std::collections::HashMap;

use crate::cluster::Cluster;
use crate::profile::Plugin;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Why {
    /// Nothing.
    Fits = 0,
    /// There is no such node.
    Absent,
    /// The pod names other nodes.
    Unnamed,
    /// It is cordoned.
    Unschedulable,
    /// It has a taint the pod does not bear.
    Taint,
    /// The pod selects others.
    Affinity,
    /// The profile selects others.
    AddedAffinity,
    /// A port is taken.
    Ports,
    /// Too little is left.
    Resources,
    /// It has no place to spread by.
    SpreadLabel,
    /// Its place has too many such pods.
    Spread,
    /// It is not near those the pod must be near.
    PodAffinity,
    /// It is near those the pod must not be near.
    PodAntiAffinity,
    /// It is near pods that do not want this one near.
    ExistingAntiAffinity,
}

struct Text {
    why: Why,
    plugin: Plugin,
    /// Whether taking other pods away cannot help.
    is_final: bool,
    text: &'static str,
}

const fn text(why: Why, plugin: Plugin, is_final: bool, text: &'static str) -> Text {
    Text {
        why,
        plugin,
        is_final,
        text,
    }
}

/// What upstream's plugins say.
#[rustfmt::skip]
const TEXTS: [Text; 12] = [
    text(Why::Unnamed, Plugin::NodeAffinity, true, "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    text(Why::Unschedulable, Plugin::NodeUnschedulable, true, "node(s) were unschedulable"),
    text(Why::Taint, Plugin::TaintToleration, true, "node(s) had untolerated taint(s)"),
    text(Why::Affinity, Plugin::NodeAffinity, true, "node(s) didn't match Pod's node affinity/selector"),
    text(Why::AddedAffinity, Plugin::NodeAffinity, true, "node(s) didn't match scheduler-enforced node affinity"),
    text(Why::Ports, Plugin::NodePorts, false, "node(s) didn't have free ports for the requested pod ports"),
    text(Why::Resources, Plugin::NodeResourcesFit, false, ""),
    text(Why::SpreadLabel, Plugin::PodTopologySpread, true, "node(s) didn't match pod topology spread constraints (missing required label)"),
    text(Why::Spread, Plugin::PodTopologySpread, false, "node(s) didn't match pod topology spread constraints"),
    text(Why::PodAffinity, Plugin::InterPodAffinity, true, "node(s) didn't match pod affinity rules"),
    text(Why::PodAntiAffinity, Plugin::InterPodAffinity, false, "node(s) didn't match pod anti-affinity rules"),
    text(Why::ExistingAntiAffinity, Plugin::InterPodAffinity, false, "node(s) didn't satisfy existing pods anti-affinity rules"),
];

/// A node's answer to a pod: what is wrong, and with resources which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict(u64);

const PODS: u64 = 1 << 8;
const FIRST_RESOURCE: u32 = 9;
const LAST_RESOURCE: u32 = 62;
const FINAL: u64 = 1 << 63;

impl Verdict {
    /// The pod may run there.
    pub const FITS: Verdict = Verdict(0);

    /// Something is wrong.
    pub const fn of(why: Why) -> Verdict {
        Verdict(why as u64)
    }

    /// Whether the pod may run there.
    pub fn fits(self) -> bool {
        self.0 == 0
    }

    /// Too many pods are there.
    pub fn too_many_pods(self) -> Verdict {
        Verdict(self.0 | Why::Resources as u64 | PODS)
    }

    /// Too little is left of the resource in this column; `never`: there is too little even without other pods.
    pub fn insufficient(self, column: usize, never: bool) -> Verdict {
        let bit = u32::try_from(column).map_or(LAST_RESOURCE, |c| FIRST_RESOURCE + c);
        let is_final = if never { FINAL } else { 0 };
        Verdict(self.0 | Why::Resources as u64 | 1 << bit.min(LAST_RESOURCE) | is_final)
    }

    /// What is wrong.
    pub fn why(self) -> Why {
        let low = self.0 & 0xff;
        let row = TEXTS.iter().find(|row| row.why as u64 == low);
        match row {
            Some(row) => row.why,
            None if low == Why::Absent as u64 => Why::Absent,
            None => Why::Fits,
        }
    }

    /// Whether taking other pods away cannot help (`UnschedulableAndUnresolvable`).
    pub fn is_final(self) -> bool {
        let why = self.why();
        let row = TEXTS.iter().find(|row| row.why == why);
        self.0 & FINAL != 0 || row.is_none_or(|row| row.is_final)
    }

    /// Who says so.
    pub fn plugin(self) -> Option<Plugin> {
        let why = self.why();
        let row = TEXTS.iter().find(|row| row.why == why);
        row.map(|row| row.plugin)
    }

    fn reasons(self, cluster: &Cluster) -> Vec<String> {
        let why = self.why();
        if why != Why::Resources {
            let row = TEXTS.iter().find(|row| row.why == why);
            return row.map(|row| row.text.to_owned()).into_iter().collect();
        }
        let mut reasons = Vec::new();
        if self.0 & PODS != 0 {
            reasons.push("Too many pods".to_owned());
        }
        for (column, resource) in cluster.columns.all.iter().enumerate() {
            let bit = FIRST_RESOURCE + u32::try_from(column).unwrap_or(LAST_RESOURCE);
            if bit <= LAST_RESOURCE && self.0 & (1 << bit) != 0 {
                reasons.push(format!(
                    "Insufficient {}",
                    cluster.symbols.text(resource.name)
                ));
            }
        }
        reasons
    }
}

/// Counts of reasons, as one sentence: upstream's `FitError`.
#[derive(Debug, Default)]
pub struct Sentence {
    reasons: HashMap<String, usize>,
}

impl Sentence {
    /// So many nodes said this.
    pub fn add(&mut self, reason: impl Into<String>, nodes: usize) {
        *self.reasons.entry(reason.into()).or_default() += nodes;
    }

    /// `0/3 nodes are available: …`, reasons in the order of their texts.
    pub fn text(&self, nodes: usize) -> String {
        let mut reasons: Vec<String> = self
            .reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.sort();
        match reasons.is_empty() {
            true => format!("0/{nodes} nodes are available:"),
            false => format!("0/{nodes} nodes are available: {}.", reasons.join(", ")),
        }
    }
}

/// Why no node is feasible: each row's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// By row.
    pub verdicts: Vec<Verdict>,
}

impl Diagnosis {
    /// The sentence about filters.
    pub fn sentence(&self, cluster: &Cluster) -> String {
        let mut counts: HashMap<Verdict, usize> = HashMap::new();
        for &verdict in &self.verdicts {
            if verdict.why() != Why::Absent {
                *counts.entry(verdict).or_default() += 1;
            }
        }
        let mut sentence = Sentence::default();
        for (verdict, count) in counts {
            for reason in verdict.reasons(cluster) {
                sentence.add(reason, count);
            }
        }
        sentence.text(cluster.node_count())
    }

    /// Which plugins refused.
    pub fn plugins(&self) -> Vec<Plugin> {
        let mut plugins: Vec<Plugin> = Vec::new();
        for verdict in &self.verdicts {
            if let Some(plugin) = verdict.plugin()
                && !plugins.contains(&plugin)
            {
                plugins.push(plugin);
            }
        }
        plugins
    }
}

/// The reasons of one verdict, for sentences about single nodes.
pub fn reasons(verdict: Verdict, cluster: &Cluster) -> Vec<String> {
    verdict.reasons(cluster)
}
