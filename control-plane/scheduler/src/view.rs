//! The cluster as pods of one kind see it: for every node whether it will do and how good it is, kept up to date by
//! the cluster's log of changes. A burst of equal pods costs one change of one node for each of them.

mod best;
mod local;
mod tally;

use std::collections::HashMap;
use std::sync::Arc;

use crate::ask::Ask;
use crate::cluster::{AskId, Cluster, NOWHERE, Row};
use crate::profile::{Plugin, Profile};
use crate::symbols::Sym;
use crate::verdict::{Verdict, Why};

use best::Best;
use local::Scoring;
pub(crate) use tally::Lows;
use tally::{Influence, Role, Tally};

/// What one kind of pod makes of every node.
#[derive(Debug)]
pub struct View {
    /// What the pods ask for.
    pub ask: Arc<Ask>,
    profile: Arc<Profile>,
    scoring: Scoring,
    /// Up to which change it is true.
    seen: (u64, u64),
    images_seen: u64,
    rows: usize,
    /// What each node says by itself, without looking at others.
    pub(crate) local: Vec<Verdict>,
    /// Whether the pod selects the node, and whether it bears its taints: for those who count only such nodes.
    selected: Vec<bool>,
    bearable: Vec<bool>,
    /// The score that depends on the node alone, weights and all.
    base: Vec<i64>,
    /// Taints that advise against it; weights of what the pod would rather have.
    unwelcome: Vec<i32>,
    preference: Vec<i32>,
    unwelcome_rows: usize,
    /// Counts of neighbours, by place.
    pub(crate) tallies: Vec<Tally>,
    influences: HashMap<AskId, Box<[Influence]>>,
    best: Option<Best>,
}

/// What a pod's neighbours would be on one node if some came or went: a change for each tally.
pub(crate) type Shift = Vec<i64>;

impl View {
    /// A view of the cluster as it is.
    pub fn new(cluster: &mut Cluster, ask: Arc<Ask>, profile: Arc<Profile>) -> View {
        let scoring = Scoring::new(cluster, &ask, &profile);
        let mut view = View {
            scoring,
            ask,
            profile,
            seen: (0, 0),
            images_seen: 0,
            rows: 0,
            local: Vec::new(),
            selected: Vec::new(),
            bearable: Vec::new(),
            base: Vec::new(),
            unwelcome: Vec::new(),
            preference: Vec::new(),
            unwelcome_rows: 0,
            tallies: Vec::new(),
            influences: HashMap::new(),
            best: None,
        };
        view.rebuild(cluster);
        view
    }

    /// Brings it up to date.
    pub fn refresh(&mut self, cluster: &mut Cluster) {
        let (changes, upheavals) = cluster.age();
        let images_moved = self.images_seen != cluster.image_age() && !self.ask.images.is_empty();
        if self.seen.1 != upheavals || (images_moved && self.scoring.knows_images(cluster)) {
            return self.rebuild(cluster);
        }
        self.images_seen = cluster.image_age();
        let Some(dirty) = cluster.changed_since(self.seen.0) else {
            return self.rebuild(cluster);
        };
        self.grow(cluster.nodes.len());
        for row in dirty {
            self.update(cluster, row);
        }
        self.seen = (changes, upheavals);
    }

    fn rebuild(&mut self, cluster: &mut Cluster) {
        self.tallies.clear();
        self.influences.clear();
        self.best = None;
        self.unwelcome_rows = 0;
        self.rows = 0;
        for column in [&mut self.unwelcome, &mut self.preference] {
            column.clear();
        }
        self.local.clear();
        self.base.clear();
        self.selected.clear();
        self.bearable.clear();
        self.scoring = Scoring::new(cluster, &self.ask, &self.profile);
        self.own_tallies(cluster);
        self.grow(cluster.nodes.len());
        for row in 0..cluster.nodes.len() {
            self.update(cluster, row);
        }
        self.seen = cluster.age();
        self.images_seen = cluster.image_age();
    }

    fn grow(&mut self, rows: usize) {
        if rows == self.rows {
            return;
        }
        self.rows = rows;
        self.local.resize(rows, Verdict::of(Why::Absent));
        self.base.resize(rows, 0);
        self.selected.resize(rows, false);
        self.bearable.resize(rows, false);
        self.unwelcome.resize(rows, 0);
        self.preference.resize(rows, 0);
        self.tallies.iter_mut().for_each(|t| t.grow(rows));
        self.best = None;
    }

    fn update(&mut self, cluster: &mut Cluster, row: Row) {
        let node = &cluster.nodes[row];
        let was_unwelcome = self.unwelcome[row] != 0;
        let is_present = node.is_present;
        if let (true, Some(name)) = (is_present, node.name) {
            self.selected[row] = self.ask.selects(&cluster.symbols, name, &node.labels);
            self.bearable[row] = self.ask.bears_hard(&node.taints);
            self.unwelcome[row] = self.ask.unwelcome(&node.taints);
            self.preference[row] = self.preferred(cluster, name, row);
            let facts = (self.selected[row], self.bearable[row]);
            self.local[row] = self.scoring.verdict(cluster, &self.ask, row, facts);
            self.base[row] = self.scoring.score(cluster, row);
        } else {
            self.selected[row] = false;
            self.unwelcome[row] = 0;
            self.local[row] = Verdict::of(Why::Absent);
        }
        self.unwelcome_rows += usize::from(self.unwelcome[row] != 0);
        self.unwelcome_rows -= usize::from(was_unwelcome);
        if self.looks_at_neighbours(cluster) {
            self.count(cluster, row, is_present);
        }
        if let Some(best) = &mut self.best {
            best.set(row, self.local[row].fits().then_some(self.base[row]));
        }
    }

    fn preferred(&self, cluster: &Cluster, name: Sym, row: Row) -> i32 {
        match self.ask.preferred_nodes.is_empty() && self.scoring.added_preference.is_empty() {
            true => 0,
            false => {
                let labels = &cluster.nodes[row].labels;
                let added = self.scoring.added_preference.iter();
                let added = added.filter(|(_, term)| term.matches(&cluster.symbols, name, labels));
                let added: i32 = added.map(|(weight, _)| weight).sum();
                added + self.ask.preference(&cluster.symbols, name, labels)
            }
        }
    }

    // Where nobody says anything about others, nobody has to be counted.
    fn looks_at_neighbours(&self, cluster: &Cluster) -> bool {
        !self.tallies.is_empty() || cluster.has_terms()
    }

    /// The place's domain of a row, or [`NOWHERE`].
    fn domain(cluster: &Cluster, place: usize, row: Row) -> u32 {
        let place = &cluster.topology.places[place];
        place.domains.get(row).copied().unwrap_or(NOWHERE)
    }

    /// The best node of all if that can be told without looking at each, and whether it could be told.
    pub fn quick_best(&mut self, chance: &mut impl FnMut(u64) -> u64) -> Option<Option<Row>> {
        let has_wishes = self.unwelcome_rows > 0
            || !self.ask.preferred_nodes.is_empty()
            || !self.scoring.added_preference.is_empty()
            || !self.tallies.iter().all(Tally::is_idle)
            || self.profile.percentage.is_some();
        if has_wishes {
            self.best = None;
            return None;
        }
        let (local, base) = (&self.local, &self.base);
        let best = self.best.get_or_insert_with(|| {
            let scores = local.iter().zip(base);
            Best::new(scores.map(|(verdict, base)| verdict.fits().then_some(*base)))
        });
        Some(best.pick(chance))
    }

    /// What each tally has at least, for spreading.
    pub(crate) fn lows(&self) -> Vec<Lows> {
        self.tallies.iter().map(Tally::lows).collect()
    }

    /// What a node says when its neighbours are looked at too, were they shifted so.
    pub(crate) fn beyond(
        &self,
        cluster: &Cluster,
        row: Row,
        lows: &[Lows],
        shift: &[i64],
    ) -> Verdict {
        let count = |at: usize, tally: &Tally, domain: u32| {
            tally.at(domain) + shift.get(at).copied().unwrap_or_default()
        };
        let mut gathers = None;
        let mut anyone = false;
        for (at, tally) in self.tallies.iter().enumerate() {
            let domain = View::domain(cluster, tally.place, row);
            match tally.role {
                Role::Spread(constraint) => {
                    if domain == NOWHERE {
                        return Verdict::of(Why::SpreadLabel);
                    }
                    let constraint = &self.ask.spread[constraint];
                    let delta = match tally.counts(row) {
                        true => shift.get(at).copied().unwrap_or_default(),
                        false => 0,
                    };
                    let low =
                        lows[at].with(domain, tally.at(domain), delta, constraint.min_domains);
                    let skew = tally.at(domain) + delta + i64::from(tally.counts_itself) - low;
                    if skew > i64::from(constraint.max_skew) {
                        return Verdict::of(Why::Spread);
                    }
                }
                Role::Affinity => {
                    let near = domain != NOWHERE && count(at, tally, domain) > 0;
                    if domain == NOWHERE {
                        return Verdict::of(Why::PodAffinity);
                    }
                    gathers = Some(gathers.unwrap_or(true) && near);
                    anyone |= tally.total + shift.get(at).copied().unwrap_or_default() > 0;
                }
                Role::AntiAffinity if domain != NOWHERE && count(at, tally, domain) > 0 => {
                    return Verdict::of(Why::PodAntiAffinity);
                }
                Role::ExistingAntiAffinity if domain != NOWHERE && count(at, tally, domain) > 0 => {
                    return Verdict::of(Why::ExistingAntiAffinity);
                }
                _ => {}
            }
            // Tallies are in the order of the plugins, and affinity's own rules come first.
            let next = self.tallies.get(at + 1).map(|t| t.role);
            if gathers == Some(false) && next != Some(Role::Affinity) {
                // The first of a group that wants to be together may go anywhere.
                if anyone || !self.scoring.matches_itself {
                    return Verdict::of(Why::PodAffinity);
                }
                gathers = None;
            }
        }
        Verdict::FITS
    }

    /// Gets to know those who may come, so that every tally they can change is there before any is read.
    pub(crate) fn expect<'a>(
        &mut self,
        cluster: &mut Cluster,
        asks: impl IntoIterator<Item = &'a Arc<Ask>>,
    ) {
        for ask in asks {
            self.influence_of(cluster, ask);
        }
    }

    /// What an ask's pod on a node changes for each tally there, `times` of it.
    pub(crate) fn shift(
        &mut self,
        cluster: &mut Cluster,
        ask: &Arc<Ask>,
        is_ending: bool,
        times: i64,
        shift: &mut Shift,
    ) {
        let influences = self.influence_of(cluster, ask);
        shift.resize(self.tallies.len(), 0);
        for influence in influences.iter() {
            let by = if is_ending {
                influence.ending
            } else {
                influence.staying
            };
            shift[influence.tally] += times * by;
        }
    }

    /// The profile that places these pods.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub(crate) fn verdict_with(&self, cluster: &Cluster, row: Row, used: &local::Used) -> Verdict {
        self.scoring.verdict_with(cluster, &self.ask, row, used)
    }

    fn filters(&self, plugin: Plugin) -> bool {
        self.profile.filters(plugin)
    }
}

pub(crate) use local::Used;

pub mod scan;
