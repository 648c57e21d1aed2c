//! What came of one cell of the table.

use std::fmt;
use std::time::Duration;

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The scenario ran to its end in this time.
    Passed(Duration),
    /// It did not, for this reason.
    Failed(String),
    /// It was not tried, because this machine lacks something.
    NotAvailable(String),
    /// The two sides do not exist in this combination.
    NoSuchSwap,
}

/// Said by a set-up or a scenario that lacks something on this machine.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

impl Outcome {
    /// Judges what a scenario gave back after this time.
    pub(crate) fn of(result: anyhow::Result<()>, took: Duration) -> Outcome {
        match result {
            Ok(()) => Outcome::Passed(took),
            Err(error) => match error.downcast_ref::<Missing>() {
                Some(missing) => Outcome::NotAvailable(missing.0.clone()),
                None => Outcome::Failed(format!("{error:#}")),
            },
        }
    }

    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Outcome::Failed(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed(took) => write!(f, "passed ({:.1} s)", took.as_secs_f64()),
            Outcome::Failed(reason) => write!(f, "failed: {reason}"),
            Outcome::NotAvailable(reason) => write!(f, "not available here: {reason}"),
            Outcome::NoSuchSwap => f.write_str("—"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn something_missing_is_not_a_failure_even_below_a_context() {
        let result = Err(anyhow::Error::new(Missing("no helm".into()))).context("setting up");
        let outcome = Outcome::of(result, Duration::ZERO);
        assert_eq!(outcome, Outcome::NotAvailable("no helm".into()));
        assert!(!outcome.is_failure());
    }

    #[test]
    fn a_failure_tells_its_causes() {
        let result = Err(anyhow::anyhow!("503")).context("creating a pod");
        let outcome = Outcome::of(result, Duration::ZERO);
        assert_eq!(outcome, Outcome::Failed("creating a pod: 503".into()));
    }
}
