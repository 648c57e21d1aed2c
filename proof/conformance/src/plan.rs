//! Which specs are run, in which order, and how the suite's runner is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::specs::{Catalogue, Spec};

/// What the user asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) classes: Vec<u8>,
    /// Only those that must pass.
    pub(crate) expected_only: bool,
    /// Only those whose name contains one of these; empty means all.
    pub(crate) names: Vec<String>,
    /// How long the run may take, going by upstream's times.
    pub(crate) limit: Option<Duration>,
}

/// Seconds a spec is taken to need where upstream's time is unknown.
const UNKNOWN_SECONDS: f64 = 30.0;
/// What the suite spends around each spec: its namespace, its accounts, its clean-up.
const AROUND_A_SPEC: f64 = 2.0;

/// The specs to run: what is wanted, without what is `done`; the quickest first, so that a run that is cut short has
/// seen as many as it could. With a limit it is a sample: the quickest of every SIG and class, then the next of each.
pub(crate) fn choose<'a>(
    catalogue: &'a Catalogue,
    wanted: &Wanted,
    done: &BTreeSet<String>,
    workers: usize,
) -> Vec<&'a Spec> {
    let mut chosen: Vec<&Spec> = catalogue
        .specs
        .iter()
        .filter(|spec| is_wanted(catalogue, wanted, spec) && !done.contains(spec.name))
        .collect();
    chosen.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    match wanted.limit {
        Some(limit) => as_many_as_fit(in_turns(chosen), limit, workers),
        None => chosen,
    }
}

// One of every SIG and class, then the next of each; the order within them stays.
fn in_turns(chosen: Vec<&Spec>) -> Vec<&Spec> {
    let mut seen = BTreeMap::new();
    let mut ranked: Vec<(usize, &Spec)> = Vec::new();
    for spec in chosen {
        let rank: &mut usize = seen.entry((spec.sig(), spec.class)).or_default();
        ranked.push((*rank, spec));
        *rank += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, spec)| spec).collect()
}

fn is_wanted(catalogue: &Catalogue, wanted: &Wanted, spec: &Spec) -> bool {
    let named = |part: &String| spec.name.contains(part.as_str());
    wanted.classes.contains(&spec.class)
        && (!wanted.expected_only || catalogue.expected.contains(spec.name))
        && (wanted.names.is_empty() || wanted.names.iter().any(named))
}

fn cost(spec: &Spec) -> f64 {
    spec.upstream_seconds.unwrap_or(UNKNOWN_SECONDS) + AROUND_A_SPEC
}

/// How long a slice may take before it is cut short: several times what upstream takes, because a spec that
/// fails often does so by waiting.
pub(crate) fn patience(specs: &[&Spec], workers: usize) -> Duration {
    let upstream: f64 = specs.iter().map(|spec| cost(spec)).sum();
    Duration::from_secs(240) + Duration::from_secs_f64(3.0 * upstream / workers.max(1) as f64)
}

fn as_many_as_fit(chosen: Vec<&Spec>, limit: Duration, workers: usize) -> Vec<&Spec> {
    let mut left = limit.as_secs_f64();
    let fits = |spec: &&Spec| {
        let lanes = if spec.is_serial() { 1 } else { workers };
        left -= cost(spec) / lanes as f64;
        left >= 0.0
    };
    chosen.into_iter().take_while(fits).collect()
}

/// The runner's `--focus`: exactly these specs. The suite's tag ends every name, so that no name matches
/// one that merely starts alike.
pub(crate) fn focus(specs: &[&Spec]) -> String {
    let names: Vec<String> = specs.iter().map(|spec| regex::escape(spec.name)).collect();
    format!(r"({}) \[Conformance\]", names.join("|"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn class_one() -> Wanted {
        Wanted {
            classes: vec![1],
            expected_only: false,
            names: Vec::new(),
            limit: None,
        }
    }

    #[test]
    fn the_quickest_come_first_and_those_done_are_left_out() {
        let catalogue = Catalogue::built_in();
        let all = choose(&catalogue, &class_one(), &BTreeSet::new(), 3);
        assert_eq!(all.len(), 110);
        assert!(all.windows(2).all(|pair| cost(pair[0]) <= cost(pair[1])));
        let done = BTreeSet::from([all[0].name.to_owned()]);
        assert_eq!(choose(&catalogue, &class_one(), &done, 3), all[1..]);
    }

    #[test]
    fn a_limit_takes_what_fits_with_so_many_workers() {
        let catalogue = Catalogue::built_in();
        let with = |seconds, workers| {
            let limit = Some(Duration::from_secs(seconds));
            let wanted = Wanted {
                limit,
                ..class_one()
            };
            choose(&catalogue, &wanted, &BTreeSet::new(), workers).len()
        };
        assert_eq!(with(600, 1), 110);
        assert_eq!(with(0, 1), 0);
        assert!(with(30, 1) < with(30, 3));
    }

    #[test]
    fn a_sample_has_something_of_every_sig_and_class() {
        let catalogue = Catalogue::built_in();
        let wanted = Wanted {
            classes: vec![1, 2, 3, 4],
            limit: Some(Duration::from_secs(600)),
            ..class_one()
        };
        let of = |specs: &[&Spec]| -> BTreeSet<_> {
            specs.iter().map(|spec| (spec.sig(), spec.class)).collect()
        };
        let sample = choose(&catalogue, &wanted, &BTreeSet::new(), 3);
        let all: Vec<&Spec> = catalogue.specs.iter().collect();
        assert_eq!(of(&sample), of(&all));
        assert!(sample.len() < all.len());
    }

    #[test]
    fn a_part_of_a_name_and_the_expected_ones_narrow_the_choice() {
        let catalogue = Catalogue::built_in();
        let names = vec!["Lease lease API".to_owned()];
        let wanted = Wanted {
            names,
            ..class_one()
        };
        let chosen = choose(&catalogue, &wanted, &BTreeSet::new(), 3);
        assert_eq!(chosen.len(), 1);
        let wanted = Wanted {
            expected_only: true,
            ..class_one()
        };
        for spec in choose(&catalogue, &wanted, &BTreeSet::new(), 3) {
            assert!(catalogue.expected.contains(spec.name));
        }
    }

    #[test]
    fn the_focus_matches_a_spec_and_not_one_that_starts_alike() {
        let catalogue = Catalogue::built_in();
        let name =
            "[sig-api-machinery] AggregatedDiscovery should support aggregated discovery interface";
        let focus = focus(&[catalogue.find(name).unwrap()]);
        let focus = regex::Regex::new(&focus).unwrap();
        assert!(focus.is_match(&format!("Kubernetes e2e suite {name} [Conformance]")));
        assert!(!focus.is_match(&format!("{name} for CRDs [Conformance]")));
    }
}
