//! Counts of neighbours by place, for spreading, gathering and keeping apart.

use std::sync::Arc;

use super::View;
use crate::ask::{Ask, Spread, WhenUnsatisfiable};
use crate::cluster::{AskId, Cluster, NOWHERE, Row};
use crate::profile::Plugin;
use crate::symbols::Sym;

/// What is counted. The order is that of the plugins, and within them of what they look at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Pods that a hard spread constraint selects.
    Spread(usize),
    /// Pods that match all the terms of the pod's affinity.
    Affinity,
    /// Pods that match a term of its anti-affinity.
    AntiAffinity,
    /// Pods with a term of anti-affinity that it matches.
    ExistingAntiAffinity,
    /// Pods that a soft spread constraint selects.
    SoftSpread(usize),
    /// Weights of wishes, its own and others'.
    Wishes,
}

/// One count, by node and by domain.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) role: Role,
    /// Which label makes domains.
    pub(crate) place: usize,
    by_row: Vec<i64>,
    by_domain: Vec<i64>,
    /// How many nodes that count are in each domain; only for spreading.
    members: Vec<u32>,
    is_member: Vec<bool>,
    /// How many nodes have anything to count.
    busy: usize,
    /// The sum.
    pub(crate) total: i64,
    /// Whether the pod would be counted itself.
    pub(crate) counts_itself: bool,
}

/// How much one pod changes a tally.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Influence {
    pub(crate) tally: usize,
    pub(crate) staying: i64,
    pub(crate) ending: i64,
}

/// The least count of any domain, and the least of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lows {
    least: i64,
    domain: u32,
    next: i64,
    domains: usize,
}

impl Lows {
    /// The least count, were this domain's changed.
    pub(crate) fn with(&self, domain: u32, count: i64, change: i64, min_domains: i32) -> i64 {
        let wanted = usize::try_from(min_domains).unwrap_or_default();
        if self.domains < wanted {
            return 0;
        }
        let shifted = count + change;
        match domain == self.domain {
            true => shifted.min(self.next),
            false if change == 0 => self.least,
            false => shifted.min(self.least),
        }
    }
}

impl Tally {
    fn new(role: Role, place: usize, rows: usize) -> Tally {
        let mut tally = Tally {
            role,
            place,
            by_row: Vec::new(),
            by_domain: Vec::new(),
            members: Vec::new(),
            is_member: Vec::new(),
            busy: 0,
            total: 0,
            counts_itself: false,
        };
        tally.grow(rows);
        tally
    }

    pub(super) fn grow(&mut self, rows: usize) {
        self.by_row.resize(rows, 0);
        if matches!(self.role, Role::Spread(_) | Role::SoftSpread(_)) {
            self.is_member.resize(rows, false);
        }
    }

    /// The count of a domain.
    pub(crate) fn at(&self, domain: u32) -> i64 {
        let found = self.by_domain.get(domain as usize);
        found.copied().unwrap_or_default()
    }

    /// Whether it says the same of every node: nobody is kept away or wished for.
    pub(super) fn is_idle(&self) -> bool {
        let is_silent = matches!(
            self.role,
            Role::AntiAffinity | Role::ExistingAntiAffinity | Role::Wishes
        );
        is_silent && self.busy == 0
    }

    /// The count of one node.
    pub(crate) fn on(&self, row: Row) -> i64 {
        self.by_row[row]
    }

    /// Whether pods on this node are counted.
    pub(crate) fn counts(&self, row: Row) -> bool {
        self.is_member.get(row).copied().unwrap_or_default()
    }

    /// The least counts of domains in which nodes count.
    pub(crate) fn lows(&self) -> Lows {
        let mut lows = Lows {
            least: i64::from(i32::MAX),
            domain: NOWHERE,
            next: i64::from(i32::MAX),
            domains: 0,
        };
        if !matches!(self.role, Role::Spread(_)) {
            return lows;
        }
        for (domain, members) in self.members.iter().enumerate() {
            if *members == 0 {
                continue;
            }
            lows.domains += 1;
            let count = self.by_domain[domain];
            if count < lows.least {
                lows.next = lows.least;
                (lows.least, lows.domain) = (count, u32::try_from(domain).unwrap_or(NOWHERE));
            } else {
                lows.next = lows.next.min(count);
            }
        }
        lows
    }

    fn set(&mut self, row: Row, domain: u32, count: i64, is_member: bool) {
        let before = std::mem::replace(&mut self.by_row[row], count);
        if domain == NOWHERE {
            self.by_row[row] = 0;
            return;
        }
        let domain = domain as usize;
        if self.by_domain.len() <= domain {
            self.by_domain.resize(domain + 1, 0);
            self.members.resize(domain + 1, 0);
        }
        self.by_domain[domain] += count - before;
        self.total += count - before;
        self.busy += usize::from(count != 0);
        self.busy -= usize::from(before != 0);
        if let Some(was) = self.is_member.get_mut(row) {
            let was = std::mem::replace(was, is_member);
            self.members[domain] += u32::from(is_member);
            self.members[domain] -= u32::from(was);
        }
    }
}

impl View {
    /// The tallies that the pod's own words ask for.
    pub(super) fn own_tallies(&mut self, cluster: &mut Cluster) {
        let ask = Arc::clone(&self.ask);
        for (at, spread) in ask.spread.iter().enumerate() {
            let (role, is_on) = match spread.when {
                WhenUnsatisfiable::DoNotSchedule => {
                    (Role::Spread(at), self.filters(Plugin::PodTopologySpread))
                }
                WhenUnsatisfiable::ScheduleAnyway => {
                    let weight = self.profile.weight(Plugin::PodTopologySpread);
                    (Role::SoftSpread(at), weight > 0)
                }
            };
            if is_on {
                let tally = self.tally(cluster, role, spread.key);
                self.tallies[tally].counts_itself =
                    spread.selector.matches(&cluster.symbols, &ask.labels);
            }
        }
        if self.filters(Plugin::InterPodAffinity) {
            for term in &ask.affinity {
                self.tally(cluster, Role::Affinity, term.key);
            }
            for term in &ask.anti_affinity {
                self.tally(cluster, Role::AntiAffinity, term.key);
            }
        }
        if self.profile.weight(Plugin::InterPodAffinity) > 0 {
            for wish in &ask.preferred_pods {
                self.tally(cluster, Role::Wishes, wish.term.key);
            }
        }
    }

    // Tallies stay in the order of their roles; influences name them by number, so those that exist keep theirs by being
    // made anew when a new one has to go between.
    fn tally(&mut self, cluster: &mut Cluster, role: Role, key: Sym) -> usize {
        let place = cluster.topology.number(key, &cluster.nodes);
        let same = |tally: &Tally| tally.role == role && tally.place == place;
        if let Some(known) = self.tallies.iter().position(same) {
            return known;
        }
        let at = self.tallies.partition_point(|tally| tally.role <= role);
        self.tallies.insert(at, Tally::new(role, place, self.rows));
        for influence in self.influences.values_mut().flatten() {
            if influence.tally >= at {
                influence.tally += 1;
            }
        }
        at
    }

    /// Counts the neighbours on one node anew.
    pub(super) fn count(&mut self, cluster: &mut Cluster, row: Row, is_present: bool) {
        let shares = match is_present {
            true => cluster.nodes[row].shares.clone(),
            false => Vec::new(),
        };
        // New tallies may come up while asks are looked at for the first time.
        for share in &shares {
            self.learn(cluster, share.ask);
        }
        let mut counts = vec![0; self.tallies.len()];
        for share in &shares {
            for influence in &self.influences[&share.ask] {
                counts[influence.tally] += i64::from(share.staying) * influence.staying
                    + i64::from(share.ending) * influence.ending;
            }
        }
        let has_all_keys = self.has_all_keys(cluster, row);
        for (at, &sum) in counts.iter().enumerate() {
            let domain = View::domain(cluster, self.tallies[at].place, row);
            let (counts, hard) = match self.tallies[at].role {
                Role::Spread(constraint) => (
                    self.includes(&self.ask.spread[constraint], row),
                    has_all_keys.0,
                ),
                Role::SoftSpread(constraint) => (
                    self.includes(&self.ask.spread[constraint], row),
                    has_all_keys.1,
                ),
                _ => (true, true),
            };
            let is_member = is_present && counts && hard;
            let sum = if is_member { sum } else { 0 };
            self.tallies[at].set(row, domain, sum, is_member);
        }
    }

    // Whether pods on this node count for a constraint (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
    fn includes(&self, spread: &Spread, row: Row) -> bool {
        (!spread.honor_affinity || self.selected[row])
            && (!spread.honor_taints || self.bearable[row])
    }

    // Whether a node has the labels of all hard constraints, and of all soft ones that do not come from the profile.
    fn has_all_keys(&self, cluster: &Cluster, row: Row) -> (bool, bool) {
        let (mut hard, mut soft) = (true, true);
        for tally in &self.tallies {
            let is_missing = View::domain(cluster, tally.place, row) == NOWHERE;
            match tally.role {
                Role::Spread(_) => hard &= !is_missing,
                Role::SoftSpread(at) if !self.ask.spread[at].is_system_default => {
                    soft &= !is_missing;
                }
                _ => {}
            }
        }
        (hard, soft)
    }

    /// Whether a node is left out when soft constraints are scored.
    pub(super) fn is_ignored(&self, cluster: &Cluster, row: Row) -> bool {
        !self.has_all_keys(cluster, row).1
    }

    fn learn(&mut self, cluster: &mut Cluster, id: AskId) {
        if !self.influences.contains_key(&id) {
            let ask = Arc::clone(cluster.ask(id));
            let influences = self.influence_of(cluster, &ask);
            self.influences.insert(id, influences);
        }
    }

    /// What a pod that asks this does to the tallies of this view where it is.
    pub(super) fn influence_of(
        &mut self,
        cluster: &mut Cluster,
        other: &Arc<Ask>,
    ) -> Box<[Influence]> {
        let mut found: Vec<(Role, Sym, i64, i64)> = Vec::new();
        self.spread_influence(cluster, other, &mut found);
        if self.ask.has_terms() || other.has_terms() {
            self.affinity_influence(cluster, other, &mut found);
        }
        // Those first that make tallies, so that numbers are settled.
        for &(role, key, ..) in &found {
            self.tally(cluster, role, key);
        }
        let found = found.into_iter();
        found
            .map(|(role, key, staying, ending)| Influence {
                tally: self.tally(cluster, role, key),
                staying,
                ending,
            })
            .collect()
    }

    // Pods that are being deleted count no more for spreading.
    fn spread_influence(
        &self,
        cluster: &Cluster,
        other: &Ask,
        found: &mut Vec<(Role, Sym, i64, i64)>,
    ) {
        for tally in &self.tallies {
            let (Role::Spread(at) | Role::SoftSpread(at)) = tally.role else {
                continue;
            };
            let spread = &self.ask.spread[at];
            if other.namespace == self.ask.namespace
                && spread.selector.matches(&cluster.symbols, &other.labels)
            {
                found.push((tally.role, spread.key, 1, 0));
            }
        }
    }

    fn affinity_influence(
        &self,
        cluster: &Cluster,
        other: &Ask,
        found: &mut Vec<(Role, Sym, i64, i64)>,
    ) {
        let (ask, symbols) = (&self.ask, &cluster.symbols);
        let (here, there) = (
            cluster.namespace(ask.namespace),
            cluster.namespace(other.namespace),
        );
        if self.filters(Plugin::InterPodAffinity) {
            let mut near = ask.affinity.iter();
            if near.len() > 0 && near.all(|term| term.matches(symbols, other, there)) {
                for term in &ask.affinity {
                    found.push((Role::Affinity, term.key, 1, 1));
                }
            }
            for term in ask
                .anti_affinity
                .iter()
                .filter(|t| t.matches(symbols, other, there))
            {
                found.push((Role::AntiAffinity, term.key, 1, 1));
            }
            for term in other
                .anti_affinity
                .iter()
                .filter(|t| t.matches(symbols, ask, here))
            {
                found.push((Role::ExistingAntiAffinity, term.key, 1, 1));
            }
        }
        let ignores = self.profile.ignores_others_wishes && ask.preferred_pods.is_empty();
        if self.profile.weight(Plugin::InterPodAffinity) == 0 || ignores {
            return;
        }
        for wish in ask
            .preferred_pods
            .iter()
            .filter(|w| w.term.matches(symbols, other, there))
        {
            found.push((
                Role::Wishes,
                wish.term.key,
                wish.weight.into(),
                wish.weight.into(),
            ));
        }
        let hard = self.profile.hard_affinity_weight;
        for term in other
            .affinity
            .iter()
            .filter(|t| hard > 0 && t.matches(symbols, ask, here))
        {
            found.push((Role::Wishes, term.key, hard, hard));
        }
        for wish in other
            .preferred_pods
            .iter()
            .filter(|w| w.term.matches(symbols, ask, here))
        {
            found.push((
                Role::Wishes,
                wish.term.key,
                wish.weight.into(),
                wish.weight.into(),
            ));
        }
    }
}
