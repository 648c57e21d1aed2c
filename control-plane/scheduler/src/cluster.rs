//! The cluster as columns: nodes are rows, each property of theirs is an array. What is derived from it
//! (`view`) hears of changes by node, through a log, and never has to look at all nodes again.

mod columns;
mod topology;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;

use crate::ask::{Ask, Effect, HostPort, Taint, with_tag};
use crate::symbols::{Labels, Sym, Symbols};

pub use columns::{CPU, Columns, MEMORY};
pub use topology::{NOWHERE, Topology};

/// A node's row.
pub type Row = usize;

/// How many changes are remembered; a view that is further behind is made anew.
const LOG: usize = 4096;

/// What distinct pods ask for, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AskId(pub u32);

/// A pod on a node, or on its way there.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Unique for ever.
    pub uid: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// What it asked for.
    pub ask: Arc<Ask>,
    /// The same as a number.
    pub ask_id: AskId,
    /// Where it is.
    pub row: Row,
    /// How important it is.
    pub priority: i32,
    /// Since when it runs, in nanoseconds; later than any time while it does not.
    pub started: i128,
    /// Whether it is being deleted.
    pub is_ending: bool,
    /// Whether only this scheduler knows yet that it is there.
    pub is_assumed: bool,
}

/// How many pods that ask the same are on a node.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// What they ask for.
    pub ask: AskId,
    /// Those that stay.
    pub staying: u32,
    /// Those that are being deleted.
    pub ending: u32,
}

/// One node.
#[derive(Debug, Default)]
pub struct Node {
    /// Its name.
    pub name: Option<Sym>,
    /// Whether there is such a node; pods may outlive it for a while.
    pub is_present: bool,
    /// Labels.
    pub labels: Labels,
    /// Taints.
    pub taints: Box<[Taint]>,
    /// Whether it is cordoned.
    pub is_unschedulable: bool,
    /// Images that are there.
    pub images: Box<[Sym]>,
    /// The pods on it, by what they ask for.
    pub shares: Vec<Share>,
    /// Ports that are taken.
    pub ports: Vec<HostPort>,
    /// The pods on it.
    pub pods: Vec<Arc<str>>,
}

/// An image, and where it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Image {
    /// Its size.
    pub bytes: i64,
    /// On how many nodes.
    pub nodes: u32,
}

/// Everything the scheduler knows of nodes and of pods on nodes.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Texts.
    pub symbols: Symbols,
    /// The rows.
    pub nodes: Vec<Node>,
    /// Amounts by resource.
    pub columns: Columns,
    /// Labels as places.
    pub topology: Topology,
    rows: HashMap<Sym, Row>,
    free: Vec<Row>,
    present: usize,
    pods: HashMap<Arc<str>, Placed>,
    asks: HashMap<Arc<Ask>, AskId>,
    ask_by_id: HashMap<AskId, (Arc<Ask>, usize)>,
    next_ask: u32,
    namespaces: HashMap<Sym, Labels>,
    images: HashMap<Sym, Image>,
    log: VecDeque<Row>,
    /// How many changes there ever were.
    changes: u64,
    /// Goes up when places change, so that sums over them have to be made anew.
    upheavals: u64,
    /// Goes up when images or the number of nodes change.
    image_changes: u64,
    with_terms: usize,
}

static NO_LABELS: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);

impl Cluster {
    /// An empty one.
    pub fn new() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.columns = Columns::new(&mut cluster.symbols);
        cluster
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.present
    }

    /// How many pods are on nodes.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// The row of a node.
    pub fn row(&self, name: &str) -> Option<Row> {
        let row = *self.rows.get(&self.symbols.known(name)?)?;
        self.nodes[row].is_present.then_some(row)
    }

    /// The name of a row's node.
    pub fn name(&self, row: Row) -> &str {
        self.nodes[row]
            .name
            .map_or("", |name| self.symbols.text(name))
    }

    /// A pod on a node.
    pub fn pod(&self, uid: &str) -> Option<&Placed> {
        self.pods.get(uid)
    }

    /// Whether any pod on a node says anything about other pods.
    pub fn has_terms(&self) -> bool {
        self.with_terms > 0
    }

    /// What these pods ask for.
    pub fn ask(&self, id: AskId) -> &Arc<Ask> {
        &self.ask_by_id[&id].0
    }

    /// The labels of a namespace.
    pub fn namespace(&self, name: Sym) -> &Labels {
        self.namespaces.get(&name).unwrap_or(&NO_LABELS)
    }

    /// An image, if any node has it.
    pub fn image(&self, name: Sym) -> Option<Image> {
        self.images.get(&name).copied()
    }

    /// How many changes there ever were, and how often places changed.
    pub fn age(&self) -> (u64, u64) {
        (self.changes, self.upheavals)
    }

    /// How often images changed.
    pub fn image_age(&self) -> u64 {
        self.image_changes
    }

    /// The rows that changed since, some more than once; `None` if that is forgotten.
    pub fn changed_since(&self, then: u64) -> Option<Vec<Row>> {
        let count = usize::try_from(self.changes - then).ok()?;
        let skipped = self.log.len().checked_sub(count)?;
        Some(self.log.range(skipped..).copied().collect())
    }

    fn note(&mut self, row: Row) {
        self.changes += 1;
        self.log.push_back(row);
        if self.log.len() > LOG {
            self.log.pop_front();
        }
    }

    /// Labels of a namespace are these now.
    pub fn set_namespace<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) {
        let name = self.symbols.of(name);
        let labels = Labels::of(&mut self.symbols, labels);
        let before = self.namespaces.insert(name, labels.clone());
        if before.unwrap_or_default() != labels {
            self.upheavals += 1;
        }
    }

    /// A namespace is gone.
    pub fn remove_namespace(&mut self, name: &str) {
        let name = self.symbols.of(name);
        if self.namespaces.remove(&name).is_some() {
            self.upheavals += 1;
        }
    }

    /// A node is as it says now; tells whether anything changed that matters, and which kinds of things.
    pub fn set_node(&mut self, node: &api::Node) -> NodeChange {
        let name = self
            .symbols
            .of(node.metadata.name.as_deref().unwrap_or_default());
        let row = self.row_for(name);
        let mut change = NodeChange {
            row,
            is_new: !self.nodes[row].is_present,
            ..NodeChange::default()
        };
        if change.is_new {
            self.nodes[row].is_present = true;
            self.present += 1;
            self.image_changes += 1;
        }
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let labels = Labels::of(&mut self.symbols, node.metadata.labels.iter().flatten());
        let taints = self.taints(spec.and_then(|s| s.taints.as_deref()).unwrap_or_default());
        let images = status.and_then(|s| s.images.as_deref()).unwrap_or_default();
        self.set_images(row, images);
        let is_unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or_default();
        let allocatable = status.and_then(|s| s.allocatable.as_ref());
        let more = self.columns.allocate(&mut self.symbols, row, allocatable);
        let old = &mut self.nodes[row];
        change.resources = more;
        change.labels = old.labels != labels;
        change.taints = old.taints != taints || old.is_unschedulable != is_unschedulable;
        (old.taints, old.is_unschedulable) = (taints, is_unschedulable);
        if change.labels {
            old.labels = labels;
            self.topology.place(row, &self.nodes[row].labels);
            if !change.is_new {
                self.upheavals += 1;
            }
        }
        if change.is_new || change.labels || change.taints || change.resources {
            self.note(row);
        }
        change
    }

    fn taints(&mut self, taints: &[api::Taint]) -> Box<[Taint]> {
        let symbols = &mut self.symbols;
        let taints = taints.iter().filter_map(|taint| {
            Some(Taint {
                key: symbols.of(&taint.key),
                value: symbols.of(taint.value.as_deref().unwrap_or_default()),
                effect: Effect::of(&taint.effect)?,
            })
        });
        taints.collect()
    }

    fn set_images(&mut self, row: Row, images: &[api::ContainerImage]) {
        let mut names = Vec::new();
        let mut sizes = Vec::new();
        for image in images {
            for name in image.names.iter().flatten() {
                names.push(self.symbols.of(&with_tag(name)));
                sizes.push(image.size_bytes.unwrap_or_default());
            }
        }
        if *self.nodes[row].images == *names {
            return;
        }
        self.forget_images(row);
        for (&name, bytes) in names.iter().zip(sizes) {
            let image = self.images.entry(name).or_default();
            image.nodes += 1;
            image.bytes = bytes;
        }
        self.nodes[row].images = names.into();
    }

    fn forget_images(&mut self, row: Row) {
        self.image_changes += 1;
        for name in std::mem::take(&mut self.nodes[row].images) {
            if let Some(image) = self.images.get_mut(&name) {
                image.nodes -= 1;
                if image.nodes == 0 {
                    self.images.remove(&name);
                }
            }
        }
    }

    /// A node is gone; its pods stay known until they are gone too.
    pub fn remove_node(&mut self, name: &str) {
        let Some(row) = self.row(name) else { return };
        self.forget_images(row);
        let node = &mut self.nodes[row];
        node.is_present = false;
        node.labels = Labels::default();
        node.taints = Box::default();
        self.present -= 1;
        self.topology.place(row, &Labels::default());
        self.columns.allocate(&mut self.symbols, row, None);
        self.upheavals += 1;
        self.note(row);
        self.free_if_empty(row);
    }

    fn free_if_empty(&mut self, row: Row) {
        let node = &mut self.nodes[row];
        if !node.is_present
            && node.pods.is_empty()
            && let Some(name) = node.name.take()
        {
            self.rows.remove(&name);
            self.free.push(row);
        }
    }

    fn row_for(&mut self, name: Sym) -> Row {
        if let Some(&row) = self.rows.get(&name) {
            return row;
        }
        let row = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.columns.grow(self.nodes.len());
            self.topology.grow(self.nodes.len());
            self.nodes.len() - 1
        });
        self.nodes[row].name = Some(name);
        self.rows.insert(name, row);
        row
    }

    /// A pod is on a node now, for all that is known. Replaces what was known of it.
    pub fn place(&mut self, pod: Pod<'_>, node: &str) -> Row {
        self.displace(pod.uid);
        let name = self.symbols.of(node);
        let row = self.row_for(name);
        let ask_id = self.number(&pod.ask);
        let placed = Placed {
            uid: pod.uid.into(),
            namespace: pod.namespace.into(),
            name: pod.name.into(),
            ask: Arc::clone(&self.ask_by_id[&ask_id].0),
            ask_id,
            row,
            priority: pod.priority,
            started: pod.started.unwrap_or(i128::MAX),
            is_ending: pod.is_ending,
            is_assumed: pod.is_assumed,
        };
        let node = &mut self.nodes[row];
        share(&mut node.shares, ask_id, pod.is_ending, 1);
        node.ports.extend(placed.ask.ports.iter());
        node.pods.push(Arc::clone(&placed.uid));
        self.columns.take(row, &placed.ask.requests, 1);
        self.with_terms += usize::from(placed.ask.has_terms());
        self.pods.insert(Arc::clone(&placed.uid), placed);
        self.note(row);
        row
    }

    /// Whether all that matters of a pod on a node is known already; from now on it is known to everybody.
    pub fn confirm(
        &mut self,
        uid: &str,
        node: &str,
        ask: &Arc<Ask>,
        priority: i32,
        is_ending: bool,
        started: Option<i128>,
    ) -> bool {
        let row = self
            .symbols
            .known(node)
            .and_then(|name| self.rows.get(&name));
        let Some(&row) = row else { return false };
        let Some(known) = self.pods.get_mut(uid) else {
            return false;
        };
        let is_same = known.row == row
            && (Arc::ptr_eq(&known.ask, ask) || known.ask == *ask)
            && known.priority == priority
            && known.is_ending == is_ending;
        if is_same {
            known.is_assumed = false;
            known.started = started.unwrap_or(i128::MAX);
        }
        is_same
    }

    /// The same ask, shared if it is known already.
    pub fn same(&self, ask: Ask) -> Arc<Ask> {
        match self.asks.get_key_value(&ask) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(ask),
        }
    }

    /// A pod is on no node any more; gives back what was known of it.
    pub fn displace(&mut self, uid: &str) -> Option<Placed> {
        let placed = self.pods.remove(uid)?;
        let node = &mut self.nodes[placed.row];
        share(&mut node.shares, placed.ask_id, placed.is_ending, -1);
        for port in &placed.ask.ports {
            if let Some(at) = node.ports.iter().position(|p| p == port) {
                node.ports.swap_remove(at);
            }
        }
        if let Some(at) = node.pods.iter().position(|p| **p == *uid) {
            node.pods.swap_remove(at);
        }
        self.columns.take(placed.row, &placed.ask.requests, -1);
        self.with_terms -= usize::from(placed.ask.has_terms());
        self.forget_number(placed.ask_id);
        self.note(placed.row);
        self.free_if_empty(placed.row);
        Some(placed)
    }

    fn number(&mut self, ask: &Arc<Ask>) -> AskId {
        if let Some(&id) = self.asks.get(ask) {
            self.ask_by_id
                .get_mut(&id)
                .expect("numbered asks are kept")
                .1 += 1;
            return id;
        }
        let id = AskId(self.next_ask);
        self.next_ask += 1;
        self.asks.insert(Arc::clone(ask), id);
        self.ask_by_id.insert(id, (Arc::clone(ask), 1));
        id
    }

    // Numbers are never used again, so that what views remember of them stays true.
    fn forget_number(&mut self, id: AskId) {
        let Some((_, users)) = self.ask_by_id.get_mut(&id) else {
            return;
        };
        *users -= 1;
        if *users == 0
            && let Some((ask, _)) = self.ask_by_id.remove(&id)
        {
            self.asks.remove(&ask);
        }
    }
}

/// What changed of a node, for those who wait for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeChange {
    /// Its row.
    pub row: Row,
    /// It was not there before.
    pub is_new: bool,
    /// Its labels.
    pub labels: bool,
    /// Its taints, or whether it is cordoned.
    pub taints: bool,
    /// What can be had of it.
    pub resources: bool,
}

/// A pod that is to be placed.
#[derive(Debug, Clone)]
pub struct Pod<'a> {
    /// Unique for ever.
    pub uid: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// What it asks for.
    pub ask: Arc<Ask>,
    /// How important it is.
    pub priority: i32,
    /// Since when it runs.
    pub started: Option<i128>,
    /// Whether it is being deleted.
    pub is_ending: bool,
    /// Whether nobody but this scheduler knows yet.
    pub is_assumed: bool,
}

fn share(shares: &mut Vec<Share>, ask: AskId, is_ending: bool, by: i32) {
    let at = shares.iter().position(|share| share.ask == ask);
    let at = at.unwrap_or_else(|| {
        shares.push(Share {
            ask,
            staying: 0,
            ending: 0,
        });
        shares.len() - 1
    });
    let share = &mut shares[at];
    let count = match is_ending {
        true => &mut share.ending,
        false => &mut share.staying,
    };
    *count = count.saturating_add_signed(by);
    if share.staying + share.ending == 0 {
        shares.swap_remove(at);
    }
}
