//! Which step may run when: pure bookkeeping over the names of steps.

use std::collections::{BTreeMap, BTreeSet};

use super::step::Step;

/// A table of steps that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Two steps have one name.
    #[error("two steps are called `{0}`")]
    Duplicate(String),
    /// Steps wait for each other.
    #[error("these steps wait for each other: {}", .0.join(", "))]
    Circle(Vec<String>),
}

/// What is ready, what waits, what is done.
#[derive(Debug)]
pub(super) struct Schedule {
    /// For each step, those it still waits for.
    waits: Vec<BTreeSet<usize>>,
    state: Vec<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
    /// It failed, or something it needs did.
    Lost,
}

impl Schedule {
    /// Nothing has run. Needs that name no step of the table are ignored.
    pub(super) fn new(steps: &[Step]) -> Result<Schedule, GraphError> {
        let mut numbers = BTreeMap::new();
        for (number, step) in steps.iter().enumerate() {
            if numbers.insert(step.name, number).is_some() {
                return Err(GraphError::Duplicate(step.name.to_owned()));
            }
        }
        let waits = |step: &Step| {
            step.needs
                .iter()
                .filter_map(|n| numbers.get(n).copied())
                .collect()
        };
        let schedule = Schedule {
            waits: steps.iter().map(waits).collect(),
            state: vec![State::Waiting; steps.len()],
        };
        match schedule.in_circles() {
            circle if circle.is_empty() => Ok(schedule),
            circle => Err(GraphError::Circle(
                circle.iter().map(|&n| steps[n].name.to_owned()).collect(),
            )),
        }
    }

    /// Steps that can never become ready.
    fn in_circles(&self) -> Vec<usize> {
        let order = self.order();
        (0..self.waits.len())
            .filter(|n| !order.contains(n))
            .collect()
    }

    /// An order in which each step comes after those it needs; as near to the table's as that allows.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::new();
        loop {
            let ready = |n: &usize| {
                !order.contains(n) && self.waits[*n].iter().all(|need| order.contains(need))
            };
            match (0..self.waits.len()).find(ready) {
                Some(n) => order.push(n),
                None => return order,
            }
        }
    }

    /// Takes a step that is ready.
    pub(super) fn take(&mut self) -> Option<usize> {
        let ready = |n: &usize| self.state[*n] == State::Waiting && self.waits[*n].is_empty();
        let next = (0..self.state.len()).find(ready)?;
        self.state[next] = State::Running;
        Some(next)
    }

    /// A step succeeded: others may be ready now.
    pub(super) fn succeeded(&mut self, number: usize) {
        self.state[number] = State::Done;
        for waits in &mut self.waits {
            waits.remove(&number);
        }
    }

    /// A step failed: those that need it will never be ready.
    pub(super) fn failed(&mut self, number: usize) {
        self.state[number] = State::Lost;
    }

    /// Whether any step runs now.
    pub(super) fn busy(&self) -> bool {
        self.state.contains(&State::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(table: &[(&'static str, &[&'static str])]) -> Vec<Step> {
        let step = |(name, needs): &(&'static str, &[&'static str])| {
            Step::probe(name, 1, |_| Ok(String::new())).after(needs)
        };
        table.iter().map(step).collect()
    }

    #[test]
    fn steps_become_ready_when_all_they_need_is_done() {
        let table = steps(&[("c", &["a", "b"]), ("a", &[]), ("b", &["unknown"])]);
        let mut schedule = Schedule::new(&table).unwrap();
        assert_eq!(schedule.order(), [1, 2, 0]);
        assert_eq!(
            (schedule.take(), schedule.take(), schedule.take()),
            (Some(1), Some(2), None)
        );
        schedule.succeeded(2);
        assert_eq!(schedule.take(), None);
        schedule.succeeded(1);
        assert_eq!(schedule.take(), Some(0));
        assert!(schedule.busy());
        schedule.failed(0);
        assert!(!schedule.busy());
        assert_eq!(schedule.take(), None);
    }

    #[test]
    fn circles_and_duplicates_are_refused_by_name() {
        let circle = Schedule::new(&steps(&[("a", &["b"]), ("b", &["a"]), ("c", &[])]));
        assert_eq!(
            circle.unwrap_err().to_string(),
            "these steps wait for each other: a, b"
        );
        let twice = Schedule::new(&steps(&[("a", &[]), ("a", &[])]));
        assert_eq!(twice.unwrap_err(), GraphError::Duplicate("a".to_owned()));
    }
}
