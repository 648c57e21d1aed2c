//! One pod at a time: which node, or why none. The cluster, what kinds of pods make of it, and who is promised a node.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ask::Ask;
use crate::cluster::{Cluster, Row};
use crate::profile::Profile;
use crate::ties::Ties;
use crate::verdict::{Diagnosis, Verdict};
use crate::view::scan::{Found, Sample, what_if};
use crate::view::{Used, View};

/// How many kinds of pods are remembered, and how many of their columns' rows in all.
const VIEWS: usize = 64;
const VIEW_ROWS: usize = 400_000;

/// Below this many nodes all of them are looked at, whatever the percentage (upstream's `minFeasibleNodesToFind`).
const FEWEST: usize = 100;

/// A pod that waits for a node.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// Unique for ever.
    pub uid: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// What it asks for.
    pub ask: Arc<Ask>,
    /// How important it is.
    pub priority: i32,
    /// Whether it may take the place of others.
    pub may_preempt: bool,
    /// What else it is tied to.
    pub ties: Arc<Ties>,
}

/// A pod that was promised a node, on which others still are.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    pub(crate) uid: Arc<str>,
    pub(crate) ask: Arc<Ask>,
    pub(crate) priority: i32,
    pub(crate) node: Arc<str>,
}

/// Where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// To this row.
    Row(Row),
    /// Nowhere: there are no nodes at all.
    NoNodes,
    /// Nowhere, as each node says.
    Nowhere(Diagnosis),
}

struct Remembered {
    view: View,
    used: u64,
}

/// The pure part of the scheduler.
pub struct Placement {
    /// Nodes and pods on them.
    pub cluster: Cluster,
    profiles: Vec<Arc<Profile>>,
    views: HashMap<Arc<Ask>, Remembered>,
    uses: u64,
    pub(crate) promises: HashMap<Arc<str>, Promise>,
    chance: u64,
    next_row: Row,
}

impl Placement {
    /// An empty cluster; `seed` decides between equals.
    pub fn new(profiles: Vec<Profile>, seed: u64) -> Placement {
        Placement {
            cluster: Cluster::new(),
            profiles: profiles.into_iter().map(Arc::new).collect(),
            views: HashMap::new(),
            uses: 0,
            promises: HashMap::new(),
            chance: seed | 1,
            next_row: 0,
        }
    }

    /// The profile of pods with this `schedulerName`.
    pub fn profile_named(&self, name: &str) -> Option<usize> {
        self.profiles.iter().position(|p| p.name == name)
    }

    /// A profile.
    pub fn profile(&self, number: usize) -> &Arc<Profile> {
        &self.profiles[number]
    }

    /// Where this pod goes; first to the node it was promised, if that will do.
    pub fn place(&mut self, pod: &Waiting) -> Place {
        if self.cluster.node_count() == 0 {
            return Place::NoNodes;
        }
        let mut view = self.take_view(&pod.ask);
        let place = self.place_by(&mut view, pod);
        self.keep_view(view);
        place
    }

    fn place_by(&mut self, view: &mut View, pod: &Waiting) -> Place {
        let rivals = self.rivals(pod);
        let asks = rivals.values().flatten().map(|rival| &rival.ask);
        view.expect(&mut self.cluster, asks);
        if let Some(row) = self.promised(pod)
            && self.judge(view, row, &rivals).fits()
        {
            return Place::Row(row);
        }
        if rivals.is_empty() {
            let mut chance = self.chance;
            let best = view.quick_best(&mut |below| random(&mut chance, below));
            self.chance = chance;
            if let Some(Some(row)) = best {
                return Place::Row(row);
            }
        }
        let sample = self.sample(view.profile());
        let (found, looked) = view.scan(
            &mut self.cluster,
            sample,
            |view, cluster, row| match rivals.get(&row) {
                Some(rivals) => with_rivals(view, cluster, row, rivals),
                None => Verdict::FITS,
            },
        );
        if sample.is_some() {
            self.next_row = (self.next_row + looked) % self.cluster.nodes.len().max(1);
        }
        match found {
            Found::Best(rows, _) => Place::Row(rows[self.random_below(rows.len())]),
            Found::None(diagnosis) => Place::Nowhere(diagnosis),
        }
    }

    /// The best nodes for this pod and their score: for comparison.
    pub fn best(&mut self, pod: &Waiting) -> Found {
        let mut view = self.take_view(&pod.ask);
        let (found, _) = view.scan(&mut self.cluster, None, |_, _, _| Verdict::FITS);
        self.keep_view(view);
        found
    }

    // Upstream's `numFeasibleNodesToFind` where a percentage is given. Where none is, upstream looks at ever fewer nodes as
    // they become more, for the sake of speed; here all are looked at.
    fn sample(&self, profile: &Profile) -> Option<Sample> {
        let nodes = self.cluster.node_count();
        let percentage = usize::from(profile.percentage.filter(|p| *p < 100)?);
        if nodes < FEWEST {
            return None;
        }
        Some(Sample {
            from: self.next_row,
            enough: (nodes * percentage / 100).max(FEWEST),
        })
    }

    fn promised(&self, pod: &Waiting) -> Option<Row> {
        let promise = self.promises.get(&pod.uid)?;
        self.cluster.row(&promise.node)
    }

    // Pods that were promised a node and are not less important: a node must do with them on it, too.
    pub(crate) fn rivals(&self, pod: &Waiting) -> HashMap<Row, Vec<Promise>> {
        let mut rivals: HashMap<Row, Vec<Promise>> = HashMap::new();
        for promise in self.promises.values() {
            if promise.uid != pod.uid
                && promise.priority >= pod.priority
                && let Some(row) = self.cluster.row(&promise.node)
            {
                rivals.entry(row).or_default().push(promise.clone());
            }
        }
        rivals
    }

    fn judge(&mut self, view: &mut View, row: Row, rivals: &HashMap<Row, Vec<Promise>>) -> Verdict {
        if !view.local[row].fits() {
            return view.local[row];
        }
        let lows = view.lows();
        let verdict = view.beyond(&self.cluster, row, &lows, &[]);
        match (verdict.fits(), rivals.get(&row)) {
            (true, Some(rivals)) => with_rivals(view, &mut self.cluster, row, rivals),
            _ => verdict,
        }
    }

    /// This pod is promised this node until it is placed or the promise is withdrawn.
    pub fn promise(&mut self, pod: &Waiting, node: &str) {
        let promise = Promise {
            uid: Arc::clone(&pod.uid),
            ask: Arc::clone(&pod.ask),
            priority: pod.priority,
            node: node.into(),
        };
        self.promises.insert(Arc::clone(&pod.uid), promise);
    }

    /// Nothing is promised to this pod any more; tells whether something was.
    pub fn withdraw(&mut self, uid: &str) -> bool {
        self.promises.remove(uid).is_some()
    }

    /// The pods that were promised this node and are less important than this.
    pub fn lesser_promises(&self, node: &str, priority: i32) -> Vec<Arc<str>> {
        let promises = self.promises.values();
        let lesser = promises.filter(|p| *p.node == *node && p.priority < priority);
        lesser.map(|p| Arc::clone(&p.uid)).collect()
    }

    pub(crate) fn take_view(&mut self, ask: &Arc<Ask>) -> View {
        self.uses += 1;
        match self.views.remove(ask) {
            Some(mut known) => {
                known.view.refresh(&mut self.cluster);
                known.view
            }
            None => {
                let profile = Arc::clone(&self.profiles[ask.profile]);
                View::new(&mut self.cluster, Arc::clone(ask), profile)
            }
        }
    }

    pub(crate) fn keep_view(&mut self, view: View) {
        let rows = self.cluster.nodes.len().max(1);
        let most = VIEWS.min(VIEW_ROWS / rows).max(4);
        while self.views.len() >= most {
            let oldest = self.views.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(ask, _)| Arc::clone(ask)) else {
                break;
            };
            self.views.remove(&oldest);
        }
        let used = self.uses;
        self.views
            .insert(Arc::clone(&view.ask), Remembered { view, used });
    }

    pub(crate) fn random_below(&mut self, below: usize) -> usize {
        let below = u64::try_from(below).unwrap_or(u64::MAX);
        usize::try_from(random(&mut self.chance, below)).unwrap_or_default()
    }
}

fn with_rivals(view: &mut View, cluster: &mut Cluster, row: Row, rivals: &[Promise]) -> Verdict {
    let (mut used, mut shift) = (Used::default(), Vec::new());
    for rival in rivals {
        used.change(&rival.ask, 1);
        view.shift(cluster, &rival.ask, false, 1, &mut shift);
    }
    let lows = view.lows();
    what_if(view, cluster, row, &lows, &used, &shift)
}

// A xorshift: chance decides between equals only, and tests want the same again.
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D) % below.max(1)
}
