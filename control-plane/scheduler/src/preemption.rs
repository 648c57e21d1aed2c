//! Who must go so that a more important pod can run: upstream's `DefaultPreemption`.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::cluster::{Placed, Row};
use crate::placement::{Placement, Promise, Waiting};
use crate::selector::Selector;
use crate::symbols::Sym;
use crate::verdict::{self, Diagnosis, Sentence, Verdict, Why};
use crate::view::scan::what_if;
use crate::view::{Lows, Used, View};

/// A disruption budget.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Its namespace.
    pub namespace: Sym,
    /// Which pods.
    pub selector: Selector,
    /// How many may be disrupted now.
    pub allowed: i64,
    /// Pods that are being disrupted already and were counted.
    pub disrupted: Vec<String>,
}

/// What preemption gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preempted {
    /// The pod is promised this node, once these pods are gone.
    Node(Row, Vec<Arc<str>>),
    /// It does not help; why not.
    NoHelp(String),
    /// Not now: it waits for what was begun before; why.
    Ineligible(&'static str),
}

struct Candidate {
    row: Row,
    /// Most important first.
    victims: Vec<Placed>,
    violations: usize,
}

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

impl Placement {
    /// Finds the node where the least is lost.
    pub fn preempt(
        &mut self,
        pod: &Waiting,
        diagnosis: &Diagnosis,
        budgets: &[Budget],
    ) -> Preempted {
        if !pod.may_preempt {
            return Preempted::Ineligible("not eligible due to preemptionPolicy=Never.");
        }
        if self.waits_for_victims(pod) {
            return Preempted::Ineligible(
                "not eligible due to a terminating pod on the nominated node.",
            );
        }
        let possible = diagnosis.verdicts.iter().enumerate();
        let possible: Vec<Row> = possible
            .filter(|(_, verdict)| verdict.why() != Why::Absent && !verdict.is_final())
            .map(|(row, _)| row)
            .collect();
        let mut view = self.take_view(&pod.ask);
        let found = self.dry_run(&mut view, pod, &possible, budgets);
        self.keep_view(view);
        match found {
            Ok(candidates) => {
                let best = candidates.into_iter().min_by_key(cost);
                best.map_or_else(
                    || Preempted::NoHelp(String::new()),
                    |best| {
                        Preempted::Node(best.row, best.victims.into_iter().map(|v| v.uid).collect())
                    },
                )
            }
            Err(verdicts) => Preempted::NoHelp(self.no_help(&verdicts)),
        }
    }

    // Whether less important pods on its promised node are on their way out already.
    fn waits_for_victims(&self, pod: &Waiting) -> bool {
        let Some(promise) = self.promises.get(&pod.uid) else {
            return false;
        };
        let Some(row) = self.cluster.row(&promise.node) else {
            return false;
        };
        let pods = self.cluster.nodes[row].pods.iter();
        let mut pods = pods.filter_map(|uid| self.cluster.pod(uid));
        pods.any(|p| p.is_ending && p.priority < pod.priority)
    }

    fn dry_run(
        &mut self,
        view: &mut View,
        pod: &Waiting,
        possible: &[Row],
        budgets: &[Budget],
    ) -> Result<Vec<Candidate>, Vec<Option<Verdict>>> {
        let profile = Arc::clone(view.profile());
        let enough = (possible.len() * profile.candidates_percent / 100)
            .max(profile.candidates_least)
            .min(possible.len());
        let offset = self.random_below(possible.len());
        let rivals = self.rivals(pod);
        let asks = rivals.values().flatten().map(|rival| &rival.ask);
        view.expect(&mut self.cluster, asks);
        let lows = view.lows();
        let (mut unhurt, mut hurt, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..possible.len() {
            let row = possible[(offset + at) % possible.len()];
            let none = Vec::new();
            let rivals = rivals.get(&row).unwrap_or(&none);
            let mut trial = Trial {
                placement: self,
                view,
                lows: &lows,
                row,
                used: Used::default(),
                shift: Vec::new(),
            };
            match trial.victims(pod, rivals, budgets) {
                Ok(candidate) if candidate.violations == 0 => unhurt.push(candidate),
                Ok(candidate) => hurt.push(candidate),
                Err(verdict) => failed.push(verdict),
            }
            // As upstream: enough of both, and one that hurts no budget.
            if !unhurt.is_empty() && unhurt.len() + hurt.len() >= enough {
                break;
            }
        }
        unhurt.append(&mut hurt);
        match unhurt.is_empty() {
            true => Err(failed),
            false => Ok(unhurt),
        }
    }

    fn no_help(&self, failed: &[Option<Verdict>]) -> String {
        let mut sentence = Sentence::default();
        for verdict in failed {
            match verdict {
                None => sentence.add(NO_VICTIMS, 1),
                Some(verdict) => {
                    for reason in verdict::reasons(*verdict, &self.cluster) {
                        sentence.add(reason, 1);
                    }
                }
            }
        }
        let nodes = self.cluster.node_count();
        if failed.len() < nodes {
            sentence.add(NOT_HELPFUL, nodes - failed.len());
        }
        sentence.text(nodes)
    }
}

/// One node with some of its pods taken away for a moment.
struct Trial<'a> {
    placement: &'a mut Placement,
    view: &'a mut View,
    lows: &'a [Lows],
    row: Row,
    used: Used,
    shift: Vec<i64>,
}

impl Trial<'_> {
    fn change(&mut self, pod: &Placed, by: i64) {
        self.used.change(&pod.ask, by);
        let cluster = &mut self.placement.cluster;
        let ending = pod.is_ending;
        self.view
            .shift(cluster, &pod.ask, ending, by, &mut self.shift);
    }

    fn verdict(&mut self) -> Verdict {
        let cluster = &self.placement.cluster;
        what_if(
            self.view,
            cluster,
            self.row,
            self.lows,
            &self.used,
            &self.shift,
        )
    }

    /// The fewest and least important pods that must go; `None` where there are none to take.
    fn victims(
        &mut self,
        pod: &Waiting,
        rivals: &[Promise],
        budgets: &[Budget],
    ) -> Result<Candidate, Option<Verdict>> {
        let cluster = &self.placement.cluster;
        let pods = cluster.nodes[self.row].pods.iter();
        let pods = pods.filter_map(|uid| cluster.pod(uid));
        let mut lesser: Vec<Placed> = pods
            .filter(|p| p.priority < pod.priority)
            .cloned()
            .collect();
        if lesser.is_empty() {
            return Err(None);
        }
        for victim in &lesser {
            self.change(victim, -1);
        }
        for rival in rivals {
            self.used.change(&rival.ask, 1);
            let cluster = &mut self.placement.cluster;
            self.view
                .shift(cluster, &rival.ask, false, 1, &mut self.shift);
        }
        let verdict = self.verdict();
        if !verdict.fits() {
            return Err(Some(verdict));
        }
        // More important ones are spared first, and of equals those that run longer.
        lesser.sort_by_key(|p| (Reverse(p.priority), p.started));
        let (protected, others) = self.by_budget(lesser, budgets);
        let mut victims = Vec::new();
        let violations = self.spare(protected, &mut victims);
        self.spare(others, &mut victims);
        victims.sort_by_key(|p| (Reverse(p.priority), p.started));
        Ok(Candidate {
            row: self.row,
            victims,
            violations,
        })
    }

    fn spare(&mut self, pods: Vec<Placed>, victims: &mut Vec<Placed>) -> usize {
        let before = victims.len();
        for pod in pods {
            self.change(&pod, 1);
            if !self.verdict().fits() {
                self.change(&pod, -1);
                victims.push(pod);
            }
        }
        victims.len() - before
    }

    // Those whose going would break a budget, and the rest (`filterPodsWithPDBViolation`).
    fn by_budget(&self, pods: Vec<Placed>, budgets: &[Budget]) -> (Vec<Placed>, Vec<Placed>) {
        let mut allowed: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
        let symbols = &self.placement.cluster.symbols;
        pods.into_iter().partition(|pod| {
            let mut breaks = false;
            if pod.ask.labels.is_empty() {
                return false;
            }
            for (budget, allowed) in budgets.iter().zip(&mut allowed) {
                let is_meant = budget.namespace == pod.ask.namespace
                    && budget.selector.matches(symbols, &pod.ask.labels)
                    && !budget.disrupted.iter().any(|name| **name == *pod.name);
                if is_meant {
                    *allowed -= 1;
                    breaks |= *allowed < 0;
                }
            }
            breaks
        })
    }
}

// Fewest broken budgets, then the least important most important victim, the smallest sum of importance, the fewest
// victims, and the one whose oldest most important victim is youngest.
fn cost(candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<i128>) {
    let highest = candidate.victims.first().map_or(i32::MIN, |v| v.priority);
    // Priorities may be negative: shifted so that a sum of more victims is never smaller, as upstream does.
    let sum = candidate
        .victims
        .iter()
        .map(|v| i64::from(v.priority) + i64::from(i32::MAX) + 1);
    let most_important = candidate.victims.iter().filter(|v| v.priority == highest);
    let oldest = most_important.map(|v| v.started).min().unwrap_or(i128::MAX);
    (
        candidate.violations,
        highest,
        sum.sum(),
        candidate.victims.len(),
        Reverse(oldest),
    )
}
