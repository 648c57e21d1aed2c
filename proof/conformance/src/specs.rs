//! The suite's specs: what each is called, what it needs, and how long upstream takes for it.

use std::collections::BTreeSet;

/// Which version of the suite the table describes.
pub(crate) const SUITE: &str = "1.36";
const SPECS: &str = include_str!("../data/specs.tbl");
const EXPECTED: &str = include_str!("../data/expected.txt");

/// One spec of the suite.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spec {
    /// The name without the suite's `[Conformance]` tag.
    pub(crate) name: &'static str,
    pub(crate) class: u8,
    /// Images and the like, as the table writes them; `-` for nothing.
    pub(crate) needs: &'static str,
    pub(crate) upstream_seconds: Option<f64>,
}

impl Spec {
    /// The group that owns it: `sig-node` of `[sig-node] …`.
    pub(crate) fn sig(&self) -> &'static str {
        let tag = self.name.split(']').next().unwrap_or_default();
        tag.trim_start_matches('[')
    }

    /// Serial specs disturb others; the suite's runner keeps them apart by itself.
    pub(crate) fn is_serial(&self) -> bool {
        self.name.contains("[Serial]")
    }
}

/// The tables that are built in.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) specs: Vec<Spec>,
    /// Names of those that must pass.
    pub(crate) expected: BTreeSet<&'static str>,
}

impl Catalogue {
    /// Reads the built-in tables.
    pub(crate) fn built_in() -> Catalogue {
        Catalogue {
            specs: lines(SPECS).map(spec).collect(),
            expected: lines(EXPECTED).collect(),
        }
    }

    /// The spec of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&Spec> {
        self.specs.iter().find(|spec| spec.name == name)
    }
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    let all = table.lines().map(str::trim);
    all.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

// The built-in tables are checked by the tests below, so their form is an invariant here.
fn spec(line: &'static str) -> Spec {
    let (class, rest) = field(line);
    let (seconds, rest) = field(rest);
    let (needs, name) = field(rest);
    Spec {
        name,
        class: class.parse().expect("a class is a digit"),
        needs,
        upstream_seconds: seconds.parse().ok(),
    }
}

fn field(line: &'static str) -> (&'static str, &'static str) {
    let (first, rest) = line.split_once(' ').expect("a row has four fields");
    (first, rest.trim_start())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_whole_suite_is_in_the_table() {
        let specs = Catalogue::built_in().specs;
        let of = |class| specs.iter().filter(|spec| spec.class == class).count();
        assert_eq!([of(1), of(2), of(3), of(4)], [110, 8, 304, 24]);
        let names: BTreeSet<_> = specs.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), 446, "a name is there twice");
    }

    #[test]
    fn a_row_has_its_fields() {
        let spec = spec("3  12.5 agnhost,pause   [sig-apps] Job should [Serial] run");
        assert_eq!(spec.name, "[sig-apps] Job should [Serial] run");
        assert_eq!((spec.class, spec.needs), (3, "agnhost,pause"));
        assert_eq!(spec.upstream_seconds, Some(12.5));
        assert_eq!((spec.sig(), spec.is_serial()), ("sig-apps", true));
        assert_eq!(super::spec("4 - - [sig-x] y").upstream_seconds, None);
    }

    #[test]
    fn every_expected_spec_exists() {
        let catalogue = Catalogue::built_in();
        for name in &catalogue.expected {
            assert!(catalogue.find(name).is_some(), "no spec `{name}`");
        }
    }
}
