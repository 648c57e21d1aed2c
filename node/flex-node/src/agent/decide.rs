//! What is the least that mends a node. Pure.

use jiff::Timestamp;
use std::time::Duration;

/// How often something may be tried before a person is asked; a node that was well for an hour starts anew.
const BUDGET: u32 = 6;
const FORGET_AFTER: i64 = 3600;
/// The first wait after an attempt; each one is twice as long, up to half an hour.
const FIRST_WAIT: i64 = 60;
const LONGEST_WAIT: i64 = 1800;
/// A node may be NotReady for so many looks before something is done: networks come and go.
const PATIENT_LOOKS: u32 = 5;

/// What the cluster says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Ready.
    Ready,
    /// There, and not Ready.
    NotReady,
    /// Not there.
    Absent,
    /// It does not answer: nothing on this machine mends that.
    Unknown,
}

/// How the node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// containerd's unit is active.
    pub containerd_runs: bool,
    /// It answers.
    pub containerd_answers: bool,
    /// The kubelet's unit is active.
    pub kubelet_runs: bool,
    /// It says that it is well.
    pub kubelet_is_well: bool,
    /// What the cluster says of it.
    pub readiness: Readiness,
    /// What is not as it should be on disk; nothing where nobody compared.
    pub drift: Vec<String>,
    /// Whether the machine's identity gives tokens; nothing where it has none, or nobody asked.
    pub identity: Option<bool>,
    /// Bytes that are free for images and logs, where somebody looked.
    pub free: Option<u64>,
    /// A version of the kubelet that the cluster wants here, and that does not run.
    pub goal: Option<String>,
}

impl Observation {
    /// Nothing is wrong.
    pub fn is_well(&self) -> bool {
        self.containerd_runs
            && self.containerd_answers
            && self.kubelet_runs
            && self.kubelet_is_well
            && self.readiness == Readiness::Ready
            && self.drift.is_empty()
            && self.identity != Some(false)
            && self.goal.is_none()
    }
}

/// What was tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    attempts: u32,
    last: Option<Timestamp>,
    well_since: Option<Timestamp>,
    not_ready: u32,
}

impl History {
    /// How many more times something may be tried.
    pub fn budget(&self) -> u32 {
        BUDGET.saturating_sub(self.attempts)
    }

    /// The node is well.
    pub fn well(&mut self, now: Timestamp) {
        self.not_ready = 0;
        let since = *self.well_since.get_or_insert(now);
        if now.as_second() - since.as_second() >= FORGET_AFTER {
            self.attempts = 0;
        }
    }

    /// Something was tried.
    pub fn tried(&mut self, now: Timestamp) {
        self.attempts += 1;
        self.last = Some(now);
        self.well_since = None;
        self.not_ready = 0;
    }

    /// When the next attempt may be.
    fn next(&self) -> Option<Timestamp> {
        let doublings = self.attempts.checked_sub(1)?.min(10);
        let wait = (FIRST_WAIT << doublings).min(LONGEST_WAIT);
        let wait = Duration::from_secs(wait.unsigned_abs());
        self.last?.saturating_add(wait).ok()
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Well,
    /// Nothing yet.
    Wait(String),
    /// A unit again.
    Restart(&'static str, String),
    /// Everything that differs, as bootstrap does it.
    Converge(String),
    /// Another version of the kubelet.
    Upgrade(String, String),
    /// Nothing any more.
    AskSomebody(String),
}

/// The least that can help, when it may be tried again.
pub fn decide(seen: &Observation, history: &mut History, now: Timestamp, may: bool) -> Decision {
    if seen.is_well() {
        return Decision::Well;
    }
    history.well_since = None;
    let decision = remedy(seen, history);
    if matches!(decision, Decision::Wait(_)) {
        return decision;
    }
    let why = match &decision {
        Decision::Restart(_, why) | Decision::Converge(why) | Decision::Upgrade(_, why) => {
            why.clone()
        }
        _ => String::new(),
    };
    if !may {
        return Decision::Wait(format!(
            "{why}; agent.enableDriftDetectionAndRemediation says to leave it"
        ));
    }
    if history.attempts >= BUDGET {
        return Decision::AskSomebody(format!(
            "{why}, and {BUDGET} attempts did not help: see `aks-flex-node doctor`"
        ));
    }
    match history.next().filter(|next| now < *next) {
        Some(next) => Decision::Wait(format!("{why}; the next attempt is at {next}")),
        None => decision,
    }
}

/// In the order of what stands on what. A first attempt restarts, a second one converges: a unit that does not come back
/// may have lost what it reads.
fn remedy(seen: &Observation, history: &mut History) -> Decision {
    let unit = |unit: &'static str, why: &str| match history.attempts % 2 {
        0 => Decision::Restart(unit, why.to_owned()),
        _ => Decision::Converge(why.to_owned()),
    };
    if !seen.containerd_runs {
        return unit("containerd.service", "containerd does not run");
    }
    if !seen.containerd_answers {
        return unit("containerd.service", "containerd does not answer");
    }
    if !seen.drift.is_empty() {
        return Decision::Converge(format!("{} differs", seen.drift.join(", ")));
    }
    if seen.identity == Some(false) {
        let why = "the machine's identity gives no tokens";
        return unit("aks-flex-node-himds.service", why);
    }
    if !seen.kubelet_runs {
        return unit("kubelet.service", "the kubelet does not run");
    }
    if !seen.kubelet_is_well {
        return unit("kubelet.service", "the kubelet is not well");
    }
    if let (Some(version), Readiness::Ready) = (&seen.goal, seen.readiness) {
        let why = format!("the cluster wants version {version} here");
        return Decision::Upgrade(version.clone(), why);
    }
    if seen.readiness == Readiness::Unknown {
        return Decision::Wait("the cluster does not say how the node is".to_owned());
    }
    history.not_ready += 1;
    match history.not_ready > PATIENT_LOOKS {
        true => Decision::Restart("kubelet.service", "the node is not Ready".to_owned()),
        false => Decision::Wait("the node is not Ready; it may be in a moment".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn well() -> Observation {
        Observation {
            containerd_runs: true,
            containerd_answers: true,
            kubelet_runs: true,
            kubelet_is_well: true,
            readiness: Readiness::Ready,
            drift: Vec::new(),
            identity: None,
            free: None,
            goal: None,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_smallest_thing_that_can_help_comes_first() {
        let drift = vec!["/etc/default/kubelet".to_owned()];
        let cases = [
            (well(), "Well"),
            (
                Observation {
                    containerd_runs: false,
                    kubelet_is_well: false,
                    ..well()
                },
                "Restart(\"containerd.service\"",
            ),
            (
                Observation {
                    containerd_answers: false,
                    ..well()
                },
                "Restart(\"containerd.service\"",
            ),
            (
                Observation {
                    kubelet_runs: false,
                    ..well()
                },
                "Restart(\"kubelet.service\"",
            ),
            (
                Observation {
                    kubelet_is_well: false,
                    ..well()
                },
                "Restart(\"kubelet.service\"",
            ),
            (
                Observation {
                    drift: drift.clone(),
                    kubelet_runs: false,
                    ..well()
                },
                "Converge(\"/etc/default/kubelet differs\"",
            ),
            (
                Observation {
                    identity: Some(false),
                    ..well()
                },
                "Restart(\"aks-flex-node-himds.service\"",
            ),
            (
                Observation {
                    goal: Some("1.36.1".to_owned()),
                    ..well()
                },
                "Upgrade(\"1.36.1\"",
            ),
            (
                Observation {
                    goal: Some("1.36.1".to_owned()),
                    readiness: Readiness::NotReady,
                    ..well()
                },
                "Wait(\"the node is not Ready",
            ),
            (
                Observation {
                    readiness: Readiness::Unknown,
                    ..well()
                },
                "Wait(\"the cluster",
            ),
            (
                Observation {
                    readiness: Readiness::NotReady,
                    ..well()
                },
                "Wait(\"the node is not Ready",
            ),
        ];
        for (seen, expected) in cases {
            let decision = format!("{:?}", decide(&seen, &mut History::default(), at(0), true));
            assert!(decision.starts_with(expected), "{seen:?}: {decision}");
        }
    }

    #[test]
    fn attempts_wait_longer_each_time_and_end() {
        let broken = Observation {
            kubelet_runs: false,
            ..well()
        };
        let mut history = History::default();
        let (mut tried, mut last) = (Vec::new(), Decision::Well);
        for second in (0..20_000).step_by(60) {
            last = decide(&broken, &mut history, at(second), true);
            if let Decision::Restart(..) | Decision::Converge(_) = last {
                history.tried(at(second));
                tried.push(second);
            }
        }
        assert_eq!(tried, [0, 60, 180, 420, 900, 1860]);
        assert!(matches!(last, Decision::AskSomebody(_)), "{last:?}");
        // Well for an hour, it may try again.
        for second in [20_000, 23_600] {
            assert_eq!(
                decide(&well(), &mut history, at(second), true),
                Decision::Well
            );
            history.well(at(second));
        }
        assert!(matches!(
            decide(&broken, &mut history, at(23_700), true),
            Decision::Restart(..)
        ));
    }

    #[test]
    fn a_second_attempt_looks_at_what_the_unit_reads() {
        let broken = Observation {
            kubelet_runs: false,
            ..well()
        };
        let mut history = History::default();
        history.tried(at(0));
        assert!(matches!(
            decide(&broken, &mut history, at(600), true),
            Decision::Converge(_)
        ));
    }

    #[test]
    fn a_node_that_is_not_ready_is_given_some_looks() {
        let seen = Observation {
            readiness: Readiness::NotReady,
            ..well()
        };
        let mut history = History::default();
        let decisions: Vec<bool> = (0..7)
            .map(|n| {
                matches!(
                    decide(&seen, &mut history, at(n * 60), true),
                    Decision::Restart(..)
                )
            })
            .collect();
        assert_eq!(decisions, [false, false, false, false, false, true, true]);
    }

    #[test]
    fn told_to_leave_it_it_is_left() {
        let seen = Observation {
            kubelet_runs: false,
            ..well()
        };
        let decision = decide(&seen, &mut History::default(), at(0), false);
        assert!(matches!(decision, Decision::Wait(why) if why.contains("says to leave it")));
    }
}
