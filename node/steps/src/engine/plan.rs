//! What a run would do, without doing any of it.

use std::path::PathBuf;

use super::compare::{Comparison, Difference};
use super::graph::{GraphError, Schedule};
use super::journal::Journal;
use super::run::Engine;
use super::step::{Failure, Scene, Step, Work};

/// What a run would do to this host as it is now.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    /// Steps, in an order in which they could run.
    pub steps: Vec<StepPlan>,
}

/// What one step would do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct StepPlan {
    /// Its name.
    pub name: String,
    /// What it waits for.
    pub needs: Vec<String>,
    /// It only looks.
    pub probe: bool,
    /// What it would do; empty if nothing.
    pub changes: Vec<Difference>,
    /// Why it would fail on the host as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What to do about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Plan {
    /// How many steps would fail on the host as it is now.
    pub fn failing(&self) -> usize {
        self.steps.iter().filter(|s| s.problem.is_some()).count()
    }

    /// How many changes there would be.
    pub fn changes(&self) -> usize {
        self.steps.iter().map(|s| s.changes.len()).sum()
    }
}

impl Engine<'_> {
    /// Compares every step with the host. Probes are listed and not run: some of them take minutes.
    pub fn plan(&self, steps: &[Step]) -> Result<Plan, PlanError> {
        let order = Schedule::new(steps)?.order();
        let journal = Journal::open(self.host.files(), &self.state)?;
        let mut planned = Vec::new();
        let plans = order
            .iter()
            .map(|&n| self.plan_step(&steps[n], &journal, &mut planned));
        Ok(Plan {
            steps: plans.collect(),
        })
    }

    fn plan_step(
        &self,
        step: &Step,
        journal: &Journal<'_>,
        planned: &mut Vec<PathBuf>,
    ) -> StepPlan {
        let scene = Scene {
            host: self.host,
            stop: &self.stop,
            until: self.host.elapsed().saturating_add(step.deadline),
            planning: true,
        };
        let (probe, outcome) = match &step.work {
            Work::Probe(_) => (true, Ok(Vec::new())),
            Work::Changes(desired) => {
                let mut compare = || -> Result<Vec<Difference>, Failure> {
                    let mut differences = Vec::new();
                    for change in desired(&scene)? {
                        let comparison = Comparison {
                            scene: &scene,
                            journal,
                            planned,
                        };
                        if let Some(difference) = comparison.difference(&change)? {
                            planned.extend(change.path().map(PathBuf::from));
                            differences.push(difference);
                        }
                    }
                    Ok(differences)
                };
                (false, compare())
            }
        };
        let (changes, failure) = match outcome {
            Ok(changes) => (changes, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        StepPlan {
            name: step.name.to_owned(),
            needs: step.needs.iter().map(|&n| n.to_owned()).collect(),
            probe,
            changes,
            problem: failure.as_ref().map(|f| f.cause.clone()),
            remedy: failure.map(|f| f.remedy),
        }
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The table of steps is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The journal of earlier runs cannot be read.
    #[error(transparent)]
    Journal(#[from] Failure),
}
