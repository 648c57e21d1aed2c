//! Sets of field paths: what a field manager owns, and its `fieldsV1` text.
//!
//! A [`FieldSet`] is a trie. `members` are the paths that end here, `children` the paths that go
//! on; a path may be both (`{"f:labels": {".": {}, "f:app": {}}}`).

mod element;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use element::equal;
pub use element::{Literal, PathElement};
pub use wire::FieldsError;

/// A path from the object's root to one field or list element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FieldPath(pub Vec<PathElement>);

impl FieldPath {
    /// A path of plain field names.
    pub fn of_fields<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        Self(
            names
                .into_iter()
                .map(|n| PathElement::Field(n.to_owned()))
                .collect(),
        )
    }
}

impl fmt::Display for FieldPath {
    /// The text conflicts are reported with: `.spec.containers[name="nginx"].image`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// A set of field paths. No child is ever empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldSet {
    members: BTreeSet<PathElement>,
    children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// The set of these paths.
    pub fn from_paths<'p>(paths: impl IntoIterator<Item = &'p FieldPath>) -> Self {
        let mut set = Self::default();
        paths.into_iter().for_each(|path| set.insert(&path.0));
        set
    }

    /// Adds one path; its parents are not added. The empty path is ignored: nobody owns the root.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => _ = self.members.insert(last.clone()),
            [first, rest @ ..] => match self.children.get_mut(first) {
                Some(child) => child.insert(rest),
                None => self.children.entry(first.clone()).or_default().insert(rest),
            },
        }
    }

    /// Whether this exact path is a member.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|child| child.has(rest)),
        }
    }

    /// Whether the set has no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// How many paths are members.
    pub fn len(&self) -> usize {
        self.members.len() + self.children.values().map(Self::len).sum::<usize>()
    }

    /// The paths that end at this level.
    pub fn members(&self) -> impl Iterator<Item = &PathElement> {
        self.members.iter()
    }

    /// The paths that go on below this level.
    pub fn children(&self) -> impl Iterator<Item = (&PathElement, &FieldSet)> {
        self.children.iter()
    }

    /// Whether the one-element path is a member.
    pub fn has_member(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// The paths that start with `element`, without it.
    pub fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.children.get(element)
    }

    /// Every path, members of a level before what lies below it.
    pub fn paths(&self) -> Vec<FieldPath> {
        let mut out = Vec::with_capacity(self.len());
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<FieldPath>) {
        for member in &self.members {
            prefix.push(member.clone());
            out.push(FieldPath(prefix.clone()));
            prefix.pop();
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect_paths(prefix, out);
            prefix.pop();
        }
    }

    /// Paths in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.absorb(other);
        out
    }

    /// Paths in either of two sets that are not needed any more: often one of them is empty.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => self.union(&other),
        }
    }

    fn absorb(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            match self.children.get_mut(element) {
                Some(mine) => mine.absorb(child),
                None => _ = self.children.insert(element.clone(), child.clone()),
            }
        }
    }

    /// Paths in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        self.rebuilt(members, |element, child| {
            Some(child.intersection(other.below(element)?))
        })
    }

    /// Paths in this set and not in `other`; a path below a removed one stays.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    /// Removes the paths of `other`; a path below a removed one stays.
    pub fn subtract(&mut self, other: &Self) {
        self.members
            .retain(|element| !other.members.contains(element));
        self.children.retain(|element, child| {
            if let Some(other) = other.children.get(element) {
                child.subtract(other);
            }
            !child.is_empty()
        });
    }

    /// Paths in this set that neither are in `other` nor lie below one of its paths.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        self.rebuilt(members, |element, child| match other.below(element) {
            _ if other.has_member(element) => None,
            Some(other) => Some(child.recursive_difference(other)),
            None => Some(child.clone()),
        })
    }

    /// Only the paths nothing lies below.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let is_leaf = |m: &&PathElement| !self.children.contains_key(*m);
        let members = self.members.iter().filter(is_leaf).cloned().collect();
        self.rebuilt(members, |_, child| Some(child.leaves()))
    }

    /// The same tree with other members, its children mapped; children left empty are dropped.
    fn rebuilt(
        &self,
        members: BTreeSet<PathElement>,
        map: impl Fn(&PathElement, &FieldSet) -> Option<FieldSet>,
    ) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let child = map(element, child)?;
            (!child.is_empty()).then(|| (element.clone(), child))
        });
        Self {
            members,
            children: children.collect(),
        }
    }

    /// Builds a set from one level's members and children; empty children are dropped.
    pub(crate) fn from_parts(
        members: BTreeSet<PathElement>,
        children: impl IntoIterator<Item = (PathElement, FieldSet)>,
    ) -> Self {
        let children = children
            .into_iter()
            .filter(|(_, child)| !child.is_empty())
            .collect();
        Self { members, children }
    }
}

impl fmt::Display for FieldSet {
    /// One path per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.paths()
            .iter()
            .try_for_each(|path| writeln!(f, "{path}"))
    }
}

#[cfg(test)]
mod tests;
