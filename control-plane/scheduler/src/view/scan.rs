//! Looking at every node: when neighbours or wishes make the best one hard to follow, and when there is none.

use super::local::BEST;
use super::tally::Role;
use super::{Lows, View};
use crate::cluster::{Cluster, NOWHERE, Row};
use crate::profile::Plugin;
use crate::verdict::{Diagnosis, Verdict};

/// What a look at the nodes gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The best nodes, and their score.
    Best(Vec<Row>, i64),
    /// None will do.
    None(Diagnosis),
}

/// Where to begin and how many feasible nodes are enough; for `percentageOfNodesToScore`.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The first row.
    pub from: Row,
    /// How many are enough.
    pub enough: usize,
}

impl View {
    /// Looks at every node, or at enough of them. `judge` may have the last word on a node that would do.
    pub fn scan(
        &mut self,
        cluster: &mut Cluster,
        sample: Option<Sample>,
        mut judge: impl FnMut(&mut View, &mut Cluster, Row) -> Verdict,
    ) -> (Found, usize) {
        let lows = self.lows();
        let rows = self.local.len();
        let from = sample.map_or(0, |s| if rows == 0 { 0 } else { s.from % rows });
        let enough = sample.map_or(usize::MAX, |s| s.enough);
        let mut verdicts = vec![Verdict::FITS; rows];
        let mut feasible = Vec::new();
        let mut looked = 0;
        for row in (from..rows).chain(0..from) {
            looked += 1;
            let mut verdict = self.local[row];
            if verdict.fits() && !self.tallies.is_empty() {
                verdict = self.beyond(cluster, row, &lows, &[]);
            }
            if verdict.fits() {
                verdict = judge(self, cluster, row);
            }
            verdicts[row] = verdict;
            if verdict.fits() {
                feasible.push(row);
                if feasible.len() >= enough {
                    break;
                }
            }
        }
        let found = match feasible.is_empty() {
            true => Found::None(Diagnosis { verdicts }),
            false => self.best_of(cluster, feasible),
        };
        (found, looked)
    }

    fn best_of(&self, cluster: &Cluster, feasible: Vec<Row>) -> Found {
        if let [only] = feasible[..] {
            return Found::Best(vec![only], 0);
        }
        let scores = self.scores(cluster, &feasible);
        let best = scores.iter().copied().max().unwrap_or_default();
        let winners = feasible.into_iter().zip(&scores);
        let winners = winners.filter(|(_, score)| **score == best);
        Found::Best(winners.map(|(row, _)| row).collect(), best)
    }

    /// The score of each of these nodes among each other.
    pub(crate) fn scores(&self, cluster: &Cluster, rows: &[Row]) -> Vec<i64> {
        let mut scores: Vec<i64> = rows.iter().map(|&row| self.base[row]).collect();
        self.add_taints(rows, &mut scores);
        self.add_preference(rows, &mut scores);
        self.add_spread(cluster, rows, &mut scores);
        self.add_wishes(cluster, rows, &mut scores);
        scores
    }

    fn add_taints(&self, rows: &[Row], scores: &mut [i64]) {
        let weight = self.profile.weight(Plugin::TaintToleration);
        let most = rows.iter().map(|&row| self.unwelcome[row]).max();
        let most = i64::from(most.unwrap_or_default());
        for (&row, score) in rows.iter().zip(scores) {
            let share = match most {
                0 => 0,
                most => BEST * i64::from(self.unwelcome[row]) / most,
            };
            *score += weight * (BEST - share);
        }
    }

    fn add_preference(&self, rows: &[Row], scores: &mut [i64]) {
        let weight = self.profile.weight(Plugin::NodeAffinity);
        let most = rows.iter().map(|&row| self.preference[row]).max();
        let most = i64::from(most.unwrap_or_default());
        if most == 0 || weight == 0 {
            return;
        }
        for (&row, score) in rows.iter().zip(scores) {
            *score += weight * (BEST * i64::from(self.preference[row]) / most);
        }
    }

    // PodTopologySpread: the fewer such pods in a node's domains the better; counts of few domains weigh less.
    fn add_spread(&self, cluster: &Cluster, rows: &[Row], scores: &mut [i64]) {
        let is_soft = |role| matches!(role, Role::SoftSpread(_));
        if !self.tallies.iter().any(|tally| is_soft(tally.role)) {
            return;
        }
        let ignored: Vec<bool> = rows
            .iter()
            .map(|&row| self.is_ignored(cluster, row))
            .collect();
        let mut sums = vec![0.0; rows.len()];
        for tally in &self.tallies {
            let Role::SoftSpread(at) = tally.role else {
                continue;
            };
            let spread = &self.ask.spread[at];
            let by_node = cluster.symbols.text(spread.key) == HOSTNAME;
            let domains = &cluster.topology.places[tally.place].domains;
            let size = match by_node {
                true => ignored.iter().filter(|ignored| !**ignored).count(),
                false => {
                    let counted = rows.iter().zip(&ignored).filter(|(_, ignored)| !**ignored);
                    distinct(counted.map(|(&row, _)| domains[row]))
                }
            };
            let weight = normalizing_weight(size);
            let skew = f64::from(spread.max_skew - 1);
            for (&row, sum) in rows.iter().zip(&mut sums) {
                if domains[row] != NOWHERE {
                    let count = match by_node {
                        true => tally.on(row),
                        false => tally.at(domains[row]),
                    };
                    *sum += as_float(count) * weight + skew;
                }
            }
        }
        self.normalize_spread(&sums, &ignored, scores);
    }

    fn normalize_spread(&self, sums: &[f64], ignored: &[bool], scores: &mut [i64]) {
        let weight = self.profile.weight(Plugin::PodTopologySpread);
        #[allow(clippy::cast_possible_truncation, reason = "as upstream rounds")]
        let rounded: Vec<i64> = sums.iter().map(|sum| sum.round() as i64).collect();
        let counted = rounded
            .iter()
            .zip(ignored)
            .filter(|(_, ignored)| !**ignored);
        let counted: Vec<i64> = counted.map(|(sum, _)| *sum).collect();
        let least = counted.iter().copied().min().unwrap_or_default();
        let most = counted.iter().copied().max().unwrap_or_default().max(0);
        for ((score, sum), ignored) in scores.iter_mut().zip(rounded).zip(ignored) {
            let own = match (ignored, most) {
                (true, _) => 0,
                (false, 0) => BEST,
                (false, most) => BEST * (most + least - sum) / most,
            };
            *score += weight * own;
        }
    }

    // InterPodAffinity: the sum of weights at a node's places, stretched over the whole range.
    fn add_wishes(&self, cluster: &Cluster, rows: &[Row], scores: &mut [i64]) {
        let wishes = self
            .tallies
            .iter()
            .filter(|tally| tally.role == Role::Wishes);
        let mut sums = vec![0; rows.len()];
        let mut any = false;
        for tally in wishes {
            any = true;
            let domains = &cluster.topology.places[tally.place].domains;
            for (&row, sum) in rows.iter().zip(&mut sums) {
                if domains[row] != NOWHERE {
                    *sum += tally.at(domains[row]);
                }
            }
        }
        let least = sums.iter().copied().min().unwrap_or_default();
        let most = sums.iter().copied().max().unwrap_or_default();
        if !any || most == least {
            return;
        }
        let weight = self.profile.weight(Plugin::InterPodAffinity);
        for (score, sum) in scores.iter_mut().zip(sums) {
            #[allow(clippy::cast_possible_truncation, reason = "as upstream rounds")]
            let own = (BEST_FLOAT * (as_float(sum - least) / as_float(most - least))) as i64;
            *score += weight * own;
        }
    }
}

const BEST_FLOAT: f64 = 100.0;
/// The label that every node has by itself.
const HOSTNAME: &str = "kubernetes.io/hostname";

#[allow(clippy::cast_precision_loss, reason = "as upstream")]
fn as_float(count: i64) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss, reason = "as upstream")]
fn normalizing_weight(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

fn distinct(domains: impl Iterator<Item = u32>) -> usize {
    let mut seen: Vec<bool> = Vec::new();
    let mut count = 0;
    for domain in domains {
        // All nodes without the label are one domain more, as upstream counts them.
        let at = if domain == NOWHERE {
            0
        } else {
            domain as usize + 1
        };
        if seen.len() <= at {
            seen.resize(at + 1, false);
        }
        count += usize::from(!std::mem::replace(&mut seen[at], true));
    }
    count
}

/// What a node says if some pods came and others went.
pub(crate) fn what_if(
    view: &mut View,
    cluster: &Cluster,
    row: Row,
    lows: &[Lows],
    used: &super::Used,
    shift: &[i64],
) -> Verdict {
    let verdict = view.verdict_with(cluster, row, used);
    match verdict.fits() {
        true => view.beyond(cluster, row, lows, shift),
        false => verdict,
    }
}
