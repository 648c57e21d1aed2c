//! Moving fields between managers. Rules of `structured-merge-diff/merge`.

use std::sync::LazyLock;

use serde_json::Value;

use super::Request;
use super::conflict::{Conflict, Conflicts};
use super::entries::{ManagerId, Managers, Owned};
use crate::fieldset::{FieldPath, FieldSet, PathElement, equal};
use crate::merge::{
    Comparison, compare, field_set, merge, reconciled, remove_items, with_named_fields,
};
use crate::shape::Shape;

/// Which fields an endpoint tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All but these paths and what lies below them.
    Exclude(FieldSet),
    /// Only what one of these patterns leads to.
    Include(Vec<Vec<Step>>),
}

/// One step of a pattern of [`Filter::Include`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The field of this name.
    Field(&'static str),
    /// Any field or element.
    Any,
}

impl Default for Filter {
    fn default() -> Self {
        Self::Exclude(FieldSet::default())
    }
}

impl Filter {
    /// Excludes top-level fields and everything below them.
    pub fn without_fields<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let paths: Vec<_> = names
            .into_iter()
            .map(|n| FieldPath::of_fields([n]))
            .collect();
        Self::Exclude(FieldSet::from_paths(&paths))
    }

    fn filter(&self, set: FieldSet) -> FieldSet {
        match self {
            Self::Exclude(excluded) if excluded.is_empty() => set,
            Self::Exclude(excluded) => set.recursive_difference(excluded),
            Self::Include(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(Vec::as_slice).collect();
                included(&set, &patterns)
            }
        }
    }
}

// Members on the way to the end of a pattern match too, as upstream's matcher has it.
fn included(set: &FieldSet, patterns: &[&[Step]]) -> FieldSet {
    if patterns.iter().any(|p| p.is_empty()) {
        return set.clone();
    }
    let rest_of = |element: &PathElement| -> Vec<&[Step]> {
        let matching = patterns.iter().filter(|p| match &p[0] {
            Step::Any => true,
            Step::Field(name) => element.is_field(name),
        });
        matching.map(|p| &p[1..]).collect()
    };
    let members = set
        .members()
        .filter(|m| !rest_of(m).is_empty())
        .cloned()
        .collect();
    let children = set.children().filter_map(|(element, child)| {
        let rest = rest_of(element);
        (!rest.is_empty()).then(|| (element.clone(), included(child, &rest)))
    });
    FieldSet::from_parts(members, children)
}

/// Fields nobody owns.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let top = ["apiVersion", "kind", "metadata"].map(|n| FieldPath::of_fields([n]));
    let of_metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ]
    .map(|n| FieldPath::of_fields(["metadata", n]));
    FieldSet::from_paths(top.iter().chain(&of_metadata))
});

/// Gives what changed from `live` to `new` to manager `id`, and takes it from everybody else.
pub(super) fn update(
    shape: Shape<'_>,
    live: &Value,
    new: &Value,
    managers: &mut Managers,
    id: &ManagerId,
    request: &Request<'_>,
) {
    reconcile(shape, managers, request);
    let Comparison {
        removed,
        modified,
        added,
    } = changes(shape, live, new, request);
    let mut gained = modified.joined(added);
    yield_fields(managers, &removed, &gained, None);
    gained.subtract(&NEVER_OWNED);
    if gained.is_empty() {
        return;
    }
    let kept = managers
        .0
        .remove(id)
        .map(|owned| owned.set)
        .unwrap_or_default();
    let owned = Owned {
        set: gained.joined(kept),
        api_version: request.api_version.to_owned(),
        time: Some(request.time.to_owned()),
    };
    managers.0.insert(id.clone(), owned);
}

/// Merges `config` into `live` for manager `id`. The object is `None` when nothing changed.
pub(super) fn apply(
    shape: Shape<'_>,
    live: &Value,
    config: &Value,
    mut managers: Managers,
    id: &ManagerId,
    request: &Request<'_>,
) -> Result<(Option<Value>, Managers), Conflicts> {
    reconcile(shape, &mut managers, request);
    let merged = merge(shape, live, config);
    let last = managers.0.remove(id);
    let applied = Owned {
        set: request.filter.filter(field_set(shape, config)),
        api_version: request.api_version.to_owned(),
        time: last.as_ref().and_then(|l| l.time.clone()),
    };
    managers.0.insert(id.clone(), applied);
    let new = match &last {
        Some(last) if !last.set.is_empty() => prune(shape, merged, &managers, &last.set),
        _ => merged,
    };
    let Comparison {
        removed,
        modified,
        added,
    } = changes(shape, live, &new, request);
    let changed = modified.joined(added);
    if !request.force {
        refuse_conflicts(&managers, &changed, id)?;
    }
    yield_fields(&mut managers, &removed, &changed, Some(id));
    let has_changed = !equal(live, &new);
    strip(&mut managers, id, has_changed.then_some(request.time));
    Ok((has_changed.then_some(new), managers))
}

fn changes(shape: Shape<'_>, live: &Value, new: &Value, request: &Request<'_>) -> Comparison {
    compare(shape, live, new).filtered(|set| request.filter.filter(set))
}

// Entries of other API versions have another schema, which is not at hand here.
fn reconcile(shape: Shape<'_>, managers: &mut Managers, request: &Request<'_>) {
    let of_this_version = |owned: &&mut Owned| owned.api_version == request.api_version;
    for owned in managers.0.values_mut().filter(of_this_version) {
        owned.set = reconciled(shape, &owned.set);
    }
}

/// Takes changed and removed fields from every manager but `keeper`; the empty-handed leave.
fn yield_fields(
    managers: &mut Managers,
    removed: &FieldSet,
    changed: &FieldSet,
    keeper: Option<&ManagerId>,
) {
    for (_, owned) in managers.0.iter_mut().filter(|(id, _)| Some(*id) != keeper) {
        owned.set.subtract(changed);
        owned.set.subtract(removed);
    }
    managers.0.retain(|_, owned| !owned.set.is_empty());
}

fn refuse_conflicts(
    managers: &Managers,
    changed: &FieldSet,
    id: &ManagerId,
) -> Result<(), Conflicts> {
    let others = managers.0.iter().filter(|(other, _)| *other != id);
    let conflicts: Vec<_> = others
        .flat_map(|(manager, owned)| {
            let paths = owned.set.intersection(changed).paths();
            paths.into_iter().map(|path| Conflict {
                manager: manager.clone(),
                path,
            })
        })
        .collect();
    if conflicts.is_empty() {
        Ok(())
    } else {
        Err(Conflicts(conflicts))
    }
}

fn strip(managers: &mut Managers, id: &ManagerId, new_time: Option<&str>) {
    let Some(mut owned) = managers.0.remove(id) else {
        return;
    };
    owned.set = owned.set.difference(&NEVER_OWNED);
    if let Some(time) = new_time {
        owned.time = Some(time.to_owned());
    }
    if !owned.set.is_empty() {
        managers.0.insert(id.clone(), owned);
    }
}

/// Removes what this manager applied last time and not now, unless somebody (this manager's new
/// configuration included) still owns it.
fn prune(shape: Shape<'_>, merged: Value, managers: &Managers, last: &FieldSet) -> Value {
    let named = |set: &FieldSet| with_named_fields(shape, set);
    let named_fields_of = |value: &Value| named(&field_set(shape, value));
    let last = named(last);
    let owned = managers
        .0
        .values()
        .fold(FieldSet::default(), |all, o| all.union(&o.set));

    let everything = named_fields_of(&merged);
    let pruned = remove_items(shape, &merged, &last);
    let still_there = named_fields_of(&pruned).union(&named(&owned));
    let pruned = remove_items(shape, &merged, &everything.difference(&still_there));
    // What goes must have been ours: removing a parent may have taken others' fields with it.
    let gone = everything.difference(&named_fields_of(&pruned));
    remove_items(shape, &merged, &gone.intersection(&last))
}
