//! Field sets written under an older schema, brought in line with today's.

use crate::fieldset::{FieldSet, PathElement};
use crate::shape::{Form, Shape};

/// Replaces paths below what has become atomic with the atomic field itself. The other direction
/// (atomic became granular) needs nothing: the owner keeps just the field.
pub fn reconciled(shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    let mut atomics = FieldSet::default();
    find_atomics(shape, Some(set), false, &mut Vec::new(), &mut atomics);
    if atomics.is_empty() {
        return set.clone();
    }
    set.recursive_difference(&atomics).union(&atomics)
}

fn find_atomics(
    shape: Shape<'_>,
    set: Option<&FieldSet>,
    is_leaf: bool,
    path: &mut Vec<PathElement>,
    atomics: &mut FieldSet,
) {
    let owns_inside = set.is_some_and(|s| !s.is_empty());
    match shape.atom().form() {
        Form::Map(map) if map.is_deduced() => {}
        Form::Map(map) if !is_leaf && map.is_atomic && owns_inside => atomics.insert(path),
        Form::Map(map) if !is_leaf && map.is_atomic => {}
        Form::Map(map) => each_element(set, path, |element, set, is_leaf, path| {
            let shape = match element {
                PathElement::Field(name) => map.entry(name),
                _ => None,
            };
            if let Some(shape) = shape {
                find_atomics(shape, set, is_leaf, path, atomics);
            }
        }),
        Form::Scalar(_) => {}
        Form::List(list) if !is_leaf && list.kind.is_atomic() => atomics.insert(path),
        Form::List(list) => each_element(set, path, |_, set, is_leaf, path| {
            find_atomics(list.element, set, is_leaf, path, atomics);
        }),
    }
}

/// Visits each element once, with what lies below it and whether the path ends there.
fn each_element(
    set: Option<&FieldSet>,
    path: &mut Vec<PathElement>,
    mut visit: impl FnMut(&PathElement, Option<&FieldSet>, bool, &mut Vec<PathElement>),
) {
    let Some(set) = set else { return };
    let goes_on = set
        .children()
        .map(|(element, below)| (element, Some(below)));
    let ends = set
        .members()
        .filter(|m| set.below(m).is_none())
        .map(|m| (m, None));
    for (element, below) in goes_on.chain(ends) {
        path.push(element.clone());
        visit(element, below, below.is_none(), path);
        path.pop();
    }
}
