//! Results that are kept between runs: one JSON object per line, the last word about a spec counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::report::Outcome;

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// Which build of ours was examined.
    build: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// The results of one build.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: PathBuf,
    build: String,
    /// The last outcome of each spec.
    pub(crate) outcomes: BTreeMap<String, Outcome>,
}

impl Ledger {
    /// Opens the ledger of the program `kyanite`, or of all its builds; a missing file is an empty ledger.
    pub(crate) fn open(file: PathBuf, kyanite: &Path, all_builds: bool) -> Result<Ledger> {
        let build = fingerprint(kyanite)?;
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => {
                read.with_context(|| format!("cannot read the results in {}", file.display()))?
            }
        };
        let outcomes = last_outcomes(&text, (!all_builds).then_some(build.as_str()));
        Ok(Ledger {
            file,
            build,
            outcomes,
        })
    }

    /// The specs that passed.
    pub(crate) fn passed(&self) -> BTreeSet<String> {
        let passed = self.outcomes.values().filter(|outcome| outcome.passed);
        passed.map(|outcome| outcome.spec.clone()).collect()
    }

    /// Adds outcomes and keeps them.
    pub(crate) fn add(&mut self, outcomes: Vec<Outcome>) -> Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.file)
            .with_context(|| format!("cannot keep the results in {}", self.file.display()))?;
        for outcome in outcomes {
            let entry = Entry {
                build: self.build.clone(),
                outcome,
            };
            writeln!(file, "{}", serde_json::to_string(&entry)?)?;
            self.outcomes
                .insert(entry.outcome.spec.clone(), entry.outcome);
        }
        Ok(())
    }
}

// A line that was cut off by a full disk or a kill is a result we do not have.
fn last_outcomes(text: &str, build: Option<&str>) -> BTreeMap<String, Outcome> {
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Entry>(line).ok());
    entries
        .filter(|entry| build.is_none_or(|build| entry.build == build))
        .map(|entry| (entry.outcome.spec.clone(), entry.outcome))
        .collect()
}

// A build is known by its size and time, not by its contents: a debug build has hundreds of megabytes.
fn fingerprint(program: &Path) -> Result<String> {
    let about =
        fs::metadata(program).with_context(|| format!("cannot read {}", program.display()))?;
    let since = about.modified()?.duration_since(UNIX_EPOCH)?;
    Ok(format!("{:x}-{:x}", about.len(), since.as_nanos()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn outcome(spec: &str, passed: bool) -> Outcome {
        Outcome {
            spec: spec.into(),
            passed,
            seconds: 1.0,
            failure: if passed { String::new() } else { "no".into() },
        }
    }

    #[test]
    fn what_was_added_is_there_after_reopening_for_the_same_build_only() {
        let dir = tempfile::tempdir().unwrap();
        let (program, file) = (dir.path().join("kyanite"), dir.path().join("results.jsonl"));
        fs::write(&program, "one build").unwrap();
        let mut ledger = Ledger::open(file.clone(), &program, false).unwrap();
        ledger
            .add(vec![outcome("a", false), outcome("b", true)])
            .unwrap();
        ledger.add(vec![outcome("a", true)]).unwrap();
        let again = Ledger::open(file.clone(), &program, false).unwrap();
        assert_eq!(again.outcomes, ledger.outcomes);
        assert_eq!(again.passed(), BTreeSet::from(["a".into(), "b".into()]));
        fs::write(&program, "another build").unwrap();
        let of = |all_builds| Ledger::open(file.clone(), &program, all_builds).unwrap();
        assert_eq!(of(false).outcomes.len(), 0);
        assert_eq!(of(true).outcomes, ledger.outcomes);
    }

    #[test]
    fn a_line_cut_short_is_passed_over() {
        let entry = Entry {
            build: "x".into(),
            outcome: outcome("a", true),
        };
        let line = serde_json::to_string(&entry).unwrap();
        let text = format!("{line}\n{}", &line[..line.len() / 2]);
        assert_eq!(last_outcomes(&text, Some("x")).len(), 1);
    }
}
