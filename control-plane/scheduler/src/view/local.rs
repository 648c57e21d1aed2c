//! What a node says by itself: cordon, taints, affinity, ports and resources, and the score of what it would be left with.

use crate::ask::{ANY_ADDRESS, Ask, Effect, HostPort, Taint};
use crate::cluster::{CPU, Cluster, Columns, MEMORY, Row};
use crate::profile::{Plugin, Profile, Strategy};
use crate::selector::NodeTerm;
use crate::symbols::Sym;
use crate::verdict::{Verdict, Why};

/// The best score of a plugin.
pub(crate) const BEST: i64 = 100;

/// Below this much of an image a node is not preferred for it; above the other, times images, not any more.
const IMAGE_LEAST: i64 = 23 * 1024 * 1024;
const IMAGE_MOST: i64 = 1000 * 1024 * 1024;

/// Where a resource is, what the pod wants of it, and how much that counts.
#[derive(Debug, Clone, Copy)]
struct Scored {
    column: usize,
    wanted: i64,
    weight: i64,
}

/// What does not change from node to node.
#[derive(Debug)]
pub(super) struct Scoring {
    filters: Filters,
    /// Columns that must have room, and how much.
    needed: Vec<(usize, i64)>,
    used: Vec<Scored>,
    balanced: Vec<Scored>,
    strategy: Strategy,
    weights: Weights,
    any_address: Sym,
    bears_cordon: bool,
    images: Box<[Sym]>,
    had_images: bool,
    /// Node affinity of the profile.
    added_required: Option<Box<[NodeTerm]>>,
    pub(super) added_preference: Box<[(i32, NodeTerm)]>,
    /// Whether the pod is one of those it must be near.
    pub(super) matches_itself: bool,
}

#[derive(Debug)]
struct Filters {
    cordon: bool,
    taints: bool,
    affinity: bool,
    ports: bool,
    resources: bool,
}

#[derive(Debug)]
struct Weights {
    fit: i64,
    balanced: i64,
    images: i64,
}

/// What is used on a node, were some pods gone and others there.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// More pods, or fewer.
    pub(crate) pods: i64,
    /// More of a resource, or less.
    pub(crate) amounts: Vec<(Sym, i64)>,
    /// Ports that are taken besides.
    pub(crate) ports_taken: Vec<HostPort>,
    /// Ports that are free after all.
    pub(crate) ports_freed: Vec<HostPort>,
}

impl Used {
    /// A pod comes (1) or goes (-1).
    pub(crate) fn change(&mut self, ask: &Ask, by: i64) {
        self.pods += by;
        for &(resource, amount) in &ask.requests.amounts {
            match self.amounts.iter_mut().find(|(r, _)| *r == resource) {
                Some((_, sum)) => *sum += by * amount,
                None => self.amounts.push((resource, by * amount)),
            }
        }
        let (to, from) = match by > 0 {
            true => (&mut self.ports_taken, &mut self.ports_freed),
            false => (&mut self.ports_freed, &mut self.ports_taken),
        };
        for port in &ask.ports {
            match from.iter().position(|p| p == port) {
                Some(at) => drop(from.swap_remove(at)),
                None => to.push(*port),
            }
        }
    }

    fn amount(&self, resource: Sym) -> i64 {
        let found = self.amounts.iter().find(|(r, _)| *r == resource);
        found.map_or(0, |(_, amount)| *amount)
    }
}

impl Scoring {
    pub(super) fn new(cluster: &mut Cluster, ask: &Ask, profile: &Profile) -> Scoring {
        let cordon = Taint {
            key: cluster.symbols.of("node.kubernetes.io/unschedulable"),
            value: cluster.symbols.of(""),
            effect: Effect::NoSchedule,
        };
        let added = profile.added_affinity.as_ref();
        let (added_required, added_preference) =
            crate::ask::node_affinity(&mut cluster.symbols, added);
        let here = cluster.namespace(ask.namespace);
        let mut near = ask.affinity.iter();
        Scoring {
            filters: Filters {
                cordon: profile.filters(Plugin::NodeUnschedulable),
                taints: profile.filters(Plugin::TaintToleration),
                affinity: profile.filters(Plugin::NodeAffinity),
                ports: profile.filters(Plugin::NodePorts),
                resources: profile.filters(Plugin::NodeResourcesFit),
            },
            matches_itself: near.all(|term| term.matches(&cluster.symbols, ask, here)),
            needed: needed(cluster, ask, profile),
            used: scored(cluster, ask, &profile.resources, true),
            balanced: balanced(cluster, ask, profile),
            strategy: profile.strategy.clone(),
            weights: Weights {
                fit: profile.weight(Plugin::NodeResourcesFit),
                balanced: profile.weight(Plugin::NodeResourcesBalancedAllocation),
                images: profile.weight(Plugin::ImageLocality),
            },
            any_address: cluster.symbols.of(ANY_ADDRESS),
            bears_cordon: ask.bears(&cordon),
            had_images: any_image(cluster, &ask.images),
            images: ask.images.clone(),
            added_required,
            added_preference,
        }
    }

    /// Whether any node has an image that the pod runs.
    pub(super) fn knows_images(&self, cluster: &Cluster) -> bool {
        // Also when one was there and is gone: its score is in the columns.
        self.had_images || self.weights.images > 0 && any_image(cluster, &self.images)
    }

    /// What a node says; `facts`: whether the pod selects it and bears its taints.
    pub(super) fn verdict(
        &self,
        cluster: &Cluster,
        ask: &Ask,
        row: Row,
        facts: (bool, bool),
    ) -> Verdict {
        let node = &cluster.nodes[row];
        let (is_selected, is_bearable) = facts;
        let filters = &self.filters;
        if let (Some(named), Some(name)) = (&ask.named_nodes, node.name)
            && filters.affinity
            && !named.contains(&name)
        {
            return Verdict::of(Why::Unnamed);
        }
        if filters.cordon && node.is_unschedulable && !self.bears_cordon {
            return Verdict::of(Why::Unschedulable);
        }
        if filters.taints && !is_bearable {
            return Verdict::of(Why::Taint);
        }
        if filters.affinity {
            if let (Some(added), Some(name)) = (&self.added_required, node.name)
                && !added
                    .iter()
                    .any(|t| t.matches(&cluster.symbols, name, &node.labels))
            {
                return Verdict::of(Why::AddedAffinity);
            }
            if !is_selected {
                return Verdict::of(Why::Affinity);
            }
        }
        self.room(cluster, ask, row, None)
    }

    /// Ports and resources alone, with these changes.
    pub(super) fn verdict_with(
        &self,
        cluster: &Cluster,
        ask: &Ask,
        row: Row,
        used: &Used,
    ) -> Verdict {
        self.room(cluster, ask, row, Some(used))
    }

    fn room(&self, cluster: &Cluster, ask: &Ask, row: Row, used: Option<&Used>) -> Verdict {
        if self.filters.ports
            && !ask.ports.is_empty()
            && self.ports_collide(cluster, ask, row, used)
        {
            return Verdict::of(Why::Ports);
        }
        if !self.filters.resources {
            return Verdict::FITS;
        }
        let mut verdict = Verdict::FITS;
        let columns = &cluster.columns;
        let pods = columns.pods[row] + used.map_or(0, |used| used.pods);
        if pods + 1 > columns.pods_allowed[row] {
            verdict = verdict.too_many_pods();
        }
        for &(column, wanted) in &self.needed {
            let resource = &columns.all[column];
            let more = used.map_or(0, |used| used.amount(resource.name));
            let (allocatable, requested) =
                (resource.allocatable[row], resource.requested[row] + more);
            if wanted > allocatable - requested {
                verdict = verdict.insufficient(column, wanted > allocatable);
            }
        }
        verdict
    }

    fn ports_collide(&self, cluster: &Cluster, ask: &Ask, row: Row, used: Option<&Used>) -> bool {
        let taken = &cluster.nodes[row].ports;
        let collides =
            |port: &HostPort| ask.ports.iter().any(|p| p.collides(port, self.any_address));
        let Some(used) = used else {
            return taken.iter().any(collides);
        };
        let mut freed = used.ports_freed.clone();
        let left = taken
            .iter()
            .filter(|port| match freed.iter().position(|p| p == *port) {
                Some(at) => {
                    freed.swap_remove(at);
                    false
                }
                None => true,
            });
        left.chain(&used.ports_taken).any(collides)
    }

    /// Resources and images, weighted.
    pub(super) fn score(&self, cluster: &Cluster, row: Row) -> i64 {
        let mut score = 0;
        if self.weights.fit > 0 {
            score += self.weights.fit * self.use_score(&cluster.columns, row);
        }
        if self.weights.balanced > 0 && !self.balanced.is_empty() {
            score += self.weights.balanced * balance_score(&self.balanced, &cluster.columns, row);
        }
        if self.weights.images > 0 && !self.images.is_empty() {
            score += self.weights.images * self.image_score(cluster, row);
        }
        score
    }

    fn use_score(&self, columns: &Columns, row: Row) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for scored in &self.used {
            let allocatable = columns.all[scored.column].allocatable[row];
            if allocatable == 0 {
                continue;
            }
            let requested = scored_use(columns, scored.column, row) + scored.wanted;
            let score = match &self.strategy {
                Strategy::LeastAllocated if requested > allocatable => 0,
                Strategy::LeastAllocated => (allocatable - requested) * BEST / allocatable,
                Strategy::MostAllocated => requested.min(allocatable) * BEST / allocatable,
                Strategy::RequestedToCapacityRatio(shape) => {
                    ratio_score(shape, requested, allocatable)
                }
            };
            // Upstream leaves a resource out whose score on the curve is nothing.
            if matches!(self.strategy, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
                continue;
            }
            sum += score * scored.weight;
            weights += scored.weight;
        }
        match (&self.strategy, weights) {
            (_, 0) => 0,
            (Strategy::RequestedToCapacityRatio(_), weights) => {
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    reason = "as upstream"
                )]
                let rounded = (sum as f64 / weights as f64).round() as i64;
                rounded
            }
            (_, weights) => sum / weights,
        }
    }

    fn image_score(&self, cluster: &Cluster, row: Row) -> i64 {
        let here = &cluster.nodes[row].images;
        let mut sum = 0;
        if !here.is_empty() {
            for name in &self.images {
                if let Some(image) = cluster.image(*name)
                    && here.contains(name)
                {
                    sum += spread_bytes(image.bytes, image.nodes, cluster.node_count());
                }
            }
        }
        let count = i64::try_from(self.images.len()).unwrap_or(i64::MAX);
        let most = IMAGE_MOST.saturating_mul(count);
        BEST * (sum.clamp(IMAGE_LEAST, most) - IMAGE_LEAST) / (most - IMAGE_LEAST)
    }
}

fn any_image(cluster: &Cluster, images: &[Sym]) -> bool {
    images.iter().any(|name| cluster.image(*name).is_some())
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as upstream"
)]
fn spread_bytes(bytes: i64, nodes: u32, all: usize) -> i64 {
    let spread = f64::from(nodes) / all as f64;
    (bytes as f64 * spread) as i64
}

fn needed(cluster: &mut Cluster, ask: &Ask, profile: &Profile) -> Vec<(usize, i64)> {
    let mut needed = Vec::new();
    for &(resource, amount) in &ask.requests.amounts {
        let column = cluster.columns.column(resource);
        let name = cluster.symbols.text(resource);
        let group = name.split('/').next().unwrap_or_default();
        let is_ignored = Columns::is_scalar(column)
            && (profile.ignored_resources.iter().any(|r| r == name)
                || name.contains('/') && profile.ignored_groups.iter().any(|g| g == group));
        if !is_ignored {
            needed.push((column, amount));
        }
    }
    needed
}

// Resources that only some nodes have are scored only for pods that ask for them.
fn scored(
    cluster: &mut Cluster,
    ask: &Ask,
    resources: &[(String, i64)],
    as_scored: bool,
) -> Vec<Scored> {
    let mut all = Vec::new();
    for (name, weight) in resources {
        let resource = cluster.symbols.of(name);
        let column = cluster.columns.column(resource);
        let wanted = match column {
            CPU if as_scored => ask.requests.scored[0],
            MEMORY if as_scored => ask.requests.scored[1],
            _ => ask.requests.get(resource),
        };
        if wanted > 0 || !Columns::is_scalar(column) {
            all.push(Scored {
                column,
                wanted,
                weight: *weight,
            });
        }
    }
    all
}

// A pod that asks for nothing is not scored: it would go where balance happens to be best, with all its like.
fn balanced(cluster: &mut Cluster, ask: &Ask, profile: &Profile) -> Vec<Scored> {
    let resources: Vec<_> = profile.balanced.iter().map(|r| (r.clone(), 1)).collect();
    let all = scored(cluster, ask, &resources, false);
    match all.iter().any(|scored| scored.wanted > 0) {
        true => all,
        false => Vec::new(),
    }
}

fn scored_use(columns: &Columns, column: usize, row: Row) -> i64 {
    match column {
        CPU => columns.scored[0][row],
        MEMORY => columns.scored[1][row],
        _ => columns.all[column].requested[row],
    }
}

fn ratio_score(shape: &[(i64, i64)], requested: i64, allocatable: i64) -> i64 {
    let used = match requested > allocatable {
        true => BEST,
        false => requested * BEST / allocatable,
    };
    broken_line(shape, used)
}

/// A curve through points, flat outside them (upstream's `BuildBrokenLinearFunction`); scores from 0 to 10 become 0 to 100.
fn broken_line(shape: &[(i64, i64)], at: i64) -> i64 {
    let scale = BEST / 10;
    let Some(&(_, last)) = shape.last() else {
        return 0;
    };
    for (index, &(x, y)) in shape.iter().enumerate() {
        if at <= x {
            if index == 0 {
                return y * scale;
            }
            let (x0, y0) = shape[index - 1];
            return y0 * scale + (y - y0) * scale * (at - x0) / (x - x0);
        }
    }
    last * scale
}

// How much more even the use of resources becomes (upstream's `balancedResourceScorer`).
fn balance_score(balanced: &[Scored], columns: &Columns, row: Row) -> i64 {
    let with = evenness(balanced, columns, row, true);
    let without = evenness(balanced, columns, row, false);
    BEST / 2 + (BEST / 2 + with - without) / 2
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "as upstream"
)]
fn evenness(balanced: &[Scored], columns: &Columns, row: Row, with: bool) -> i64 {
    let fraction = |scored: &Scored| {
        let column = &columns.all[scored.column];
        let allocatable = column.allocatable[row];
        let wanted = if with { scored.wanted } else { 0 };
        (allocatable != 0)
            .then(|| ((column.requested[row] + wanted) as f64 / allocatable as f64).min(1.0))
    };
    let deviation = match balanced {
        [a, b] => match (fraction(a), fraction(b)) {
            (Some(a), Some(b)) => ((a - b) / 2.0).abs(),
            _ => 0.0,
        },
        all => {
            let fractions: Vec<f64> = all.iter().filter_map(fraction).collect();
            standard_deviation(&fractions)
        }
    };
    ((1.0 - deviation) * BEST as f64) as i64
}

#[allow(clippy::cast_precision_loss, reason = "as upstream")]
fn standard_deviation(fractions: &[f64]) -> f64 {
    match fractions {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        all => {
            let count = all.len() as f64;
            let mean = all.iter().sum::<f64>() / count;
            let squares: f64 = all.iter().map(|f| (f - mean) * (f - mean)).sum();
            (squares / count).sqrt()
        }
    }
}
