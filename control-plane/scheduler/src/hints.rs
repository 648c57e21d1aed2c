//! What may make a pod placeable that was not: upstream's queueing hints, by plugin.

use crate::profile::Plugin;

/// Something changed in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A node came.
    NodeAdded,
    /// A node's labels changed.
    NodeLabels,
    /// A node's taints changed, or it was uncordoned.
    NodeTaints,
    /// A node has more or less to give.
    NodeResources,
    /// A pod was placed, or its labels changed.
    PodPlaced,
    /// A pod has gone from its node, or asks for less.
    PodGone,
    /// Labels of a namespace changed.
    Namespace,
    /// A claim or volume changed.
    Volume,
}

/// Whom an event may help: by the plugins that refused.
#[rustfmt::skip]
const WAKES: [(Plugin, &[Event]); 7] = [
    (Plugin::NodeUnschedulable, &[Event::NodeAdded, Event::NodeTaints]),
    (Plugin::TaintToleration, &[Event::NodeAdded, Event::NodeTaints]),
    (Plugin::NodeAffinity, &[Event::NodeAdded, Event::NodeLabels]),
    (Plugin::NodePorts, &[Event::NodeAdded, Event::PodGone]),
    (Plugin::NodeResourcesFit, &[Event::NodeAdded, Event::NodeResources, Event::PodGone]),
    (Plugin::PodTopologySpread, &[Event::NodeAdded, Event::NodeLabels, Event::NodeTaints, Event::PodPlaced, Event::PodGone]),
    (Plugin::InterPodAffinity, &[Event::NodeAdded, Event::NodeLabels, Event::PodPlaced, Event::PodGone, Event::Namespace]),
];

/// Whether a pod that these plugins refused may be placeable after this event.
pub fn wakes(event: Event, plugins: &[Plugin]) -> bool {
    // Who was refused by nobody in particular waits for anything: there were no nodes.
    plugins.is_empty()
        || plugins.iter().any(|plugin| match plugin {
            Plugin::VolumeBinding => matches!(event, Event::Volume | Event::NodeAdded),
            plugin => WAKES
                .iter()
                .any(|(of, events)| of == plugin && events.contains(&event)),
        })
}
