//! Domain names, as they travel: labels with their lengths, lower case.

use std::fmt;

/// A name. Two that differ only in case are the same.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Labels with a length before each and a zero at the end.
    wire: Vec<u8>,
}

/// The longest name there is.
pub(crate) const LONGEST: usize = 255;
const LONGEST_LABEL: usize = 63;

impl Name {
    /// The root.
    pub fn root() -> Name {
        Name { wire: vec![0] }
    }

    /// From text such as `a.example.org`; nothing if that is no name.
    pub fn parse(text: &str) -> Option<Name> {
        let labels = text.strip_suffix('.').unwrap_or(text).split('.');
        match text {
            "" | "." => Some(Name::root()),
            _ => Name::of_labels(labels.map(str::as_bytes)),
        }
    }

    /// From labels.
    pub fn of_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Option<Name> {
        let mut wire = Vec::with_capacity(64);
        for label in labels {
            if label.is_empty() || label.len() > LONGEST_LABEL {
                return None;
            }
            wire.push(u8::try_from(label.len()).ok()?);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        wire.push(0);
        (wire.len() <= LONGEST).then_some(Name { wire })
    }

    /// Its labels, from the left.
    pub fn labels(&self) -> Labels<'_> {
        Labels { rest: &self.wire }
    }

    /// As it travels.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Whether it is a name or below it.
    pub fn is_under(&self, other: &Name) -> bool {
        self.prefix_before(other).is_some()
    }

    /// Its labels before those of a name that it is under.
    pub fn prefix_before(&self, other: &Name) -> Option<Vec<&[u8]>> {
        let count = self.labels().count().checked_sub(other.labels().count())?;
        let mut labels = self.labels();
        let prefix: Vec<&[u8]> = labels.by_ref().take(count).collect();
        (labels.rest == other.wire).then_some(prefix)
    }

    /// The name below this one with more labels before it; nothing if it would be too long.
    pub fn below<'a>(&'a self, labels: impl IntoIterator<Item = &'a [u8]>) -> Option<Name> {
        Name::of_labels(labels.into_iter().chain(self.labels()))
    }
}

/// The labels of a name as it travels.
pub(crate) fn labels_of(wire: &[u8]) -> Labels<'_> {
    Labels { rest: wire }
}

/// The labels of a name.
pub struct Labels<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first()?;
        if *length == 0 {
            return None;
        }
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        self.rest = rest;
        Some(label)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for label in self.labels() {
            write!(f, "{}.", label.escape_ascii())?;
        }
        if self.wire.len() == 1 {
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case() {
        assert_eq!(
            Name::parse("Web.Default.SVC."),
            Name::parse("web.default.svc")
        );
        assert_eq!(Name::parse("").unwrap(), Name::root());
        assert!(Name::parse("a..b").is_none());
        assert!(Name::parse(&"a".repeat(64)).is_none());
        assert!(Name::parse(&"a.".repeat(200)).is_none());
    }

    #[test]
    fn a_name_is_under_its_suffixes_by_whole_labels() {
        let zone = Name::parse("cluster.local").unwrap();
        let name = Name::parse("a.cluster.local").unwrap();
        assert_eq!(name.prefix_before(&zone).unwrap(), [b"a"]);
        assert!(zone.is_under(&zone) && name.is_under(&Name::root()));
        assert!(!Name::parse("acluster.local").unwrap().is_under(&zone));
        assert!(!Name::parse("local").unwrap().is_under(&zone));
    }
}
