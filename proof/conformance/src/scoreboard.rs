//! The scoreboard: by SIG and class, every failure with its first line, every time beside upstream's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::Outcome;
use crate::specs::{Catalogue, SUITE, Spec};

/// How many of a group are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    passed: usize,
    failed: usize,
    not_run: usize,
}

impl Tally {
    fn of<'a>(
        specs: impl Iterator<Item = &'a Spec>,
        outcomes: &BTreeMap<String, Outcome>,
    ) -> Tally {
        let mut tally = Tally::default();
        for spec in specs {
            let place = match outcomes.get(spec.name) {
                Some(outcome) if outcome.passed => &mut tally.passed,
                Some(_) => &mut tally.failed,
                None => &mut tally.not_run,
            };
            *place += 1;
        }
        tally
    }

    fn cells(self) -> [usize; 4] {
        let all = self.passed + self.failed + self.not_run;
        [self.passed, self.failed, self.not_run, all]
    }
}

/// The page: Markdown that also reads well in a terminal.
pub(crate) fn page(
    catalogue: &Catalogue,
    outcomes: &BTreeMap<String, Outcome>,
    about: &str,
) -> String {
    let mut page = String::from("# Conformance\n\n");
    let tally = Tally::of(catalogue.specs.iter(), outcomes);
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
            "**{} passed**, {} failed, {} not run.",
            tally.passed, tally.failed, tally.not_run
        ),
    );
    put(&mut page, format_args!("{}", about.trim_end()));
    page.push_str(&groups(catalogue, outcomes));
    page.push_str(&failures(outcomes));
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
        rows.push((title, Tally::of(specs, outcomes)));
    }
    let mut sigs: Vec<&str> = catalogue.specs.iter().map(Spec::sig).collect();
    sigs.sort_unstable();
    sigs.dedup();
    for sig in sigs {
        let specs = catalogue.specs.iter().filter(|spec| spec.sig() == sig);
        rows.push((sig, Tally::of(specs, outcomes)));
    }
    let mut table =
        String::from("| | passed | failed | not run | all |\n|---|---:|---:|---:|---:|\n");
    for (title, tally) in rows {
        let cells = tally.cells().map(|count| count.to_string()).join(" | ");
        let _ = writeln!(table, "| {title} | {cells} |");
    }
    table.push('\n');
    table
}

fn failures(outcomes: &BTreeMap<String, Outcome>) -> String {
    let mut failed = outcomes.values().filter(|o| !o.passed).peekable();
    if failed.peek().is_none() {
        return String::new();
    }
    let mut table = String::from("## Failed\n\n| spec | first line of the failure |\n|---|---|\n");
    for outcome in failed {
        let (spec, failure) = (cell(&outcome.spec), cell(&outcome.failure));
        let _ = writeln!(table, "| {spec} | {failure} |");
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
        let tally = Tally::of(catalogue.specs.iter(), &outcomes());
        assert_eq!(tally.cells(), [1, 1, 444, 446]);
    }

    #[test]
    fn the_page_tells_failures_and_times() {
        let page = page(&Catalogue::built_in(), &outcomes(), "With help.");
        assert!(page.contains("**1 passed**, 1 failed, 444 not run."));
        assert!(page.contains("| class 1: the API alone | 1 | 1 | 108 | 110 |"));
        assert!(
            page.contains(r"| \[sig-node\] Secrets should patch a secret | no \<such\> thing |")
        );
        assert!(page.contains(r"| \[sig-node\] Lease lease API should be available | 0.2 | 0.1 |"));
    }
}
