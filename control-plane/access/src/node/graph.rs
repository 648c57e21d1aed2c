//! What is tied to which node.
//!
//! ```text
//! node ◄─ pod ◄─ secret, config map, service account, resource claim, volume claim ◄─ volume ◄─ secret
//! node ◄─ volume attachment, resource slice, pod certificate request
//! ```
//!
//! Everything to the right of a pod is kept as a count per node, so that a question is one lookup; only volumes
//! are followed to their claims when somebody asks.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::Kind;
use super::references::{self, Thing, ThingKind};

/// What one object ties to one node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ties {
    node: Box<str>,
    things: Box<[Thing]>,
}

/// A persistent volume that is bound to a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Volume {
    claim: Thing,
    secrets: Vec<Thing>,
}

/// An object's part in the graph, read before the graph is locked.
#[derive(Debug)]
pub(super) enum Change {
    Ties(Thing, Option<Ties>),
    Volume(String, Option<Volume>),
}

impl Change {
    pub(super) fn of(kind: Kind, namespace: &str, name: &str, object: Option<&Value>) -> Change {
        let own = match kind {
            Kind::PersistentVolume => {
                let bound = object.and_then(references::of_persistent_volume);
                let volume = bound.map(|(claim, secrets)| Volume { claim, secrets });
                return Change::Volume(name.into(), volume);
            }
            Kind::Pod => Thing::new(ThingKind::Pod, namespace, name),
            Kind::VolumeAttachment => Thing::new(ThingKind::VolumeAttachment, "", name),
            Kind::ResourceSlice => Thing::new(ThingKind::Slice, "", name),
            Kind::PodCertificateRequest => {
                Thing::new(ThingKind::PodCertificateRequest, namespace, name)
            }
        };
        let ties = object.and_then(|object| {
            let node = object["spec"]["nodeName"].as_str()?;
            let things = match kind {
                Kind::Pod => references::of_pod(namespace, name, object),
                _ => vec![own.clone()],
            };
            (!node.is_empty()).then(|| Ties {
                node: node.into(),
                things: things.into(),
            })
        });
        Change::Ties(own, ties)
    }
}

/// How many objects tie a thing to each node; sorted. Pods are many, and each is tied to one node.
#[derive(Debug, Default)]
struct Nodes(Vec<(Box<str>, u32)>);

impl Nodes {
    fn find(&self, node: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(node))
    }

    fn tie(&mut self, node: &str) {
        match self.find(node) {
            Ok(found) => self.0[found].1 += 1,
            Err(place) => {
                // A vector that grows by itself begins with room for four.
                self.0.reserve_exact(usize::from(self.0.is_empty()));
                self.0.insert(place, (node.into(), 1));
            }
        }
    }

    fn untie(&mut self, node: &str) {
        let Ok(found) = self.find(node) else {
            return;
        };
        self.0[found].1 -= 1;
        if self.0[found].1 == 0 {
            self.0.remove(found);
        }
    }
}

/// What is tied to which node.
#[derive(Debug, Default)]
pub(super) struct Graph {
    ties: HashMap<Thing, Ties>,
    nodes: HashMap<Thing, Nodes>,
    volumes: HashMap<String, Volume>,
    /// The volumes that need a secret.
    secrets: HashMap<Thing, BTreeSet<String>>,
}

impl Graph {
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            // A pod's status changes often, what it refers to hardly ever.
            Change::Ties(own, ties) if self.ties.get(&own) == ties.as_ref() => {}
            Change::Volume(name, volume) if self.volumes.get(&name) == volume.as_ref() => {}
            Change::Ties(own, ties) => self.replace_ties(own, ties),
            Change::Volume(name, volume) => self.replace_volume(name, volume),
        }
    }

    fn replace_ties(&mut self, own: Thing, ties: Option<Ties>) {
        if let Some(old) = self.ties.remove(&own) {
            for thing in &old.things {
                self.untie(thing, &old.node);
            }
        }
        if let Some(ties) = ties {
            for thing in &ties.things {
                let nodes = self.nodes.entry(thing.clone()).or_default();
                nodes.tie(&ties.node);
            }
            self.ties.insert(own, ties);
        }
    }

    fn untie(&mut self, thing: &Thing, node: &str) {
        let Some(nodes) = self.nodes.get_mut(thing) else {
            return;
        };
        nodes.untie(node);
        if nodes.0.is_empty() {
            self.nodes.remove(thing);
        }
    }

    fn replace_volume(&mut self, name: String, volume: Option<Volume>) {
        if let Some(old) = self.volumes.remove(&name) {
            for secret in &old.secrets {
                if let Some(volumes) = self.secrets.get_mut(secret) {
                    volumes.remove(&name);
                    if volumes.is_empty() {
                        self.secrets.remove(secret);
                    }
                }
            }
        }
        if let Some(volume) = volume {
            for secret in &volume.secrets {
                let volumes = self.secrets.entry(secret.clone()).or_default();
                volumes.insert(name.clone());
            }
            self.volumes.insert(name, volume);
        }
    }

    /// Whether a thing is tied to a node.
    pub(super) fn ties(&self, thing: &Thing, node: &str) -> bool {
        match thing.kind {
            ThingKind::Volume => thing.namespace.is_empty() && self.volume_ties(&thing.name, node),
            ThingKind::Secret => {
                let volumes = self.secrets.get(thing).into_iter().flatten();
                self.directly(thing, node) || { volumes }.any(|v| self.volume_ties(v, node))
            }
            _ => self.directly(thing, node),
        }
    }

    fn directly(&self, thing: &Thing, node: &str) -> bool {
        let nodes = self.nodes.get(thing);
        nodes.is_some_and(|nodes| nodes.find(node).is_ok())
    }

    fn volume_ties(&self, volume: &str, node: &str) -> bool {
        let volume = self.volumes.get(volume);
        volume.is_some_and(|volume| self.directly(&volume.claim, node))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.ties.is_empty()
            && self.nodes.is_empty()
            && self.volumes.is_empty()
            && self.secrets.is_empty()
    }
}
