//! The scoreboard: by SIG and class, every failure with what is missing, every time beside upstream's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::Outcome;
use crate::specs::{Catalogue, SUITE, Spec};

/// Specs of this class and below can run without a node agent.
pub(crate) const RUNNABLE_CLASS: u8 = 2;

/// How many of a group are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    not_run: usize,
    not_runnable: usize,
}

impl Tally {
    fn of<'a>(
        catalogue: &Catalogue,
        specs: impl Iterator<Item = &'a Spec>,
        outcomes: &BTreeMap<String, Outcome>,
    ) -> Tally {
        let mut tally = Tally::default();
        for spec in specs {
            let place = match outcomes.get(spec.name) {
                Some(outcome) if outcome.passed => &mut tally.passed,
                Some(_) => &mut tally.failed,
                None if spec.class > RUNNABLE_CLASS || catalogue.lacks(spec.name).is_some() => {
                    &mut tally.not_runnable
                }
                None => &mut tally.not_run,
            };
            *place += 1;
        }
        tally
    }

    fn cells(self) -> [usize; 5] {
        let all = self.passed + self.failed + self.not_run + self.not_runnable;
        [
            self.passed,
            self.failed,
            self.not_run,
            self.not_runnable,
            all,
        ]
    }
}

/// The page: Markdown that also reads well in a terminal.
pub(crate) fn page(
    catalogue: &Catalogue,
    outcomes: &BTreeMap<String, Outcome>,
    about: &str,
) -> String {
    let mut page = String::from("# Conformance\n\n");
    let tally = Tally::of(catalogue, catalogue.specs.iter(), outcomes);
    put(
        &mut page,
        format_args!(
            "Written by `make conformance`: the {} specs of Kubernetes {SUITE}'s conformance suite, unchanged, against `kyanite up`.",
            catalogue.specs.len()
        ),
    );
    put(
        &mut page,
        format_args!(
            "**{} passed**, {} failed, {} not run, {} not yet runnable (they need a node agent, custom resources or admission policies).",
            tally.passed, tally.failed, tally.not_run, tally.not_runnable
        ),
    );
    put(&mut page, format_args!("{}", about.trim_end()));
    page.push_str(&groups(catalogue, outcomes));
    page.push_str(&failures(catalogue, outcomes));
    page.push_str(&times(catalogue, outcomes));
    page
}

fn put(page: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{line}\n");
}

const CLASSES: [(u8, &str); 4] = [
    (1, "class 1: the API alone"),
    (2, "class 2: the API, alone or slowly"),
    (3, "class 3: a node and local images"),
    (4, "class 4: DNS, two nodes, a registry"),
];

fn groups(catalogue: &Catalogue, outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut rows = Vec::new();
    for (class, title) in CLASSES {
        let specs = catalogue.specs.iter().filter(|spec| spec.class == class);
        rows.push((title, Tally::of(catalogue, specs, outcomes)));
    }
    let mut sigs: Vec<&str> = catalogue.specs.iter().map(Spec::sig).collect();
    sigs.sort_unstable();
    sigs.dedup();
    for sig in sigs {
        let specs = catalogue.specs.iter().filter(|spec| spec.sig() == sig);
        rows.push((sig, Tally::of(catalogue, specs, outcomes)));
    }
    let mut table = String::from(
        "| | passed | failed | not run | not yet runnable | all |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for (title, tally) in rows {
        let cells = tally.cells().map(|count| count.to_string()).join(" | ");
        let _ = writeln!(table, "| {title} | {cells} |");
    }
    table.push('\n');
    table
}

fn failures(catalogue: &Catalogue, outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut rows: Vec<(&str, &Outcome)> = outcomes
        .values()
        .filter(|outcome| !outcome.passed)
        .map(|outcome| {
            (
                catalogue.lacks(&outcome.spec).unwrap_or("a defect"),
                outcome,
            )
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by_key(|(lacks, outcome)| (*lacks, outcome.spec.clone()));
    let mut table = String::from(
        "## Failed\n\n| spec | what is missing | first line of the failure |\n|---|---|---|\n",
    );
    for (lacks, outcome) in rows {
        let _ = writeln!(
            table,
            "| {} | {lacks} | {} |",
            cell(&outcome.spec),
            cell(&outcome.failure)
        );
    }
    table.push('\n');
    table
}

const ABOUT_TIMES: &str = "\
Seconds that each spec took, ours and upstream's own control plane on a machine of the same size. Most specs look \
at once, and then every two seconds, whether a write has had its effect: a time is so many lost races of two \
seconds, and a little more. Where the effect is a controller's (EndpointSlice, EndpointSliceMirroring, \
EndpointsController), a fast server loses: upstream's answer to a list that follows another kind's write takes about \
90 ms (it waits for etcd to report its progress), in which the controller acts; ours takes less than one.";

fn times(catalogue: &Catalogue, outcomes: &BTreeMap<String, Outcome>) -> String {
    let passed = |spec: &&Spec| {
        outcomes
            .get(spec.name)
            .is_some_and(|outcome| outcome.passed)
    };
    let rows: Vec<&Spec> = catalogue.specs.iter().filter(passed).collect();
    let mut table =
        format!("## Passed\n\n{ABOUT_TIMES}\n\n| spec | ours | upstream |\n|---|---:|---:|\n");
    let (mut ours, mut theirs) = (0.0, 0.0);
    for spec in rows {
        let seconds = outcomes[spec.name].seconds;
        if let Some(upstream) = spec.upstream_seconds {
            (ours, theirs) = (ours + seconds, theirs + upstream);
        }
        let upstream = spec
            .upstream_seconds
            .map_or("–".into(), |s| format!("{s:.1}"));
        let _ = writeln!(table, "| {} | {seconds:.1} | {upstream} |", cell(spec.name));
    }
    let _ = writeln!(
        table,
        "| **all that have both** | **{ours:.0}** | **{theirs:.0}** |"
    );
    table
}

// What would end or format a table cell.
fn cell(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '<' | '>' | '`' | '[' | ']' => safe.extend(['\\', letter]),
            '\n' | '\r' | '\t' => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LEASE: &str = "[sig-node] Lease lease API should be available";
    const SECRET: &str = "[sig-node] Secrets should patch a secret";

    fn outcomes() -> BTreeMap<String, Outcome> {
        let outcome = |spec: &str, failure: &str| Outcome {
            spec: spec.into(),
            passed: failure.is_empty(),
            seconds: 0.25,
            failure: failure.into(),
        };
        let both = [outcome(LEASE, ""), outcome(SECRET, "no <such> thing")];
        both.map(|outcome| (outcome.spec.clone(), outcome)).into()
    }

    #[test]
    fn every_spec_is_counted_once() {
        let catalogue = Catalogue::built_in();
        let tally = Tally::of(&catalogue, catalogue.specs.iter(), &outcomes());
        assert_eq!(tally.cells(), [1, 1, 91, 353, 446]);
    }

    #[test]
    fn the_page_tells_failures_and_times() {
        let page = page(&Catalogue::built_in(), &outcomes(), "With help.");
        assert!(page.contains("**1 passed**, 1 failed, 91 not run, 353 not yet runnable"));
        assert!(page.contains("| class 1: the API alone | 1 | 1 | 83 | 25 | 110 |"));
        assert!(page.contains(
            r"| \[sig-node\] Secrets should patch a secret | a defect | no \<such\> thing |"
        ));
        assert!(page.contains(r"| \[sig-node\] Lease lease API should be available | 0.2 | 0.1 |"));
    }
}
