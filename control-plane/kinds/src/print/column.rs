//! Short ways to write columns.

use std::borrow::Cow;

use super::Column;

/// The object's name, first in most tables.
pub(super) const NAME: Column = name("Name", "The object's name.", 0);

/// Time since the object was created.
pub(super) const AGE: Column = text("Age", "Time since the object was created.");

/// When the object was created; the only cell that is a time and not an age.
pub(super) const CREATED_AT: Column =
    column("date", 0, "Created At", "When the object was created.");

/// Names in a pod template.
pub(super) const CONTAINERS: Column = wide("Containers", "Names of the template's containers.");

/// Images in a pod template.
pub(super) const IMAGES: Column = wide("Images", "Images of the template's containers.");

/// Label selector of a workload.
pub(super) const SELECTOR: Column =
    wide("Selector", "Labels of the pods that belong to the object.");

/// A column of text.
pub(super) const fn text(name: &'static str, description: &'static str) -> Column {
    column("string", 0, name, description)
}

/// A column of text for wide output only.
pub(super) const fn wide(name: &'static str, description: &'static str) -> Column {
    column("string", 1, name, description)
}

/// A column of whole numbers.
pub(super) const fn integer(name: &'static str, description: &'static str) -> Column {
    column("integer", 0, name, description)
}

/// A column of truth values.
pub(super) const fn boolean(name: &'static str, description: &'static str) -> Column {
    column("boolean", 0, name, description)
}

/// A column of names of objects.
pub(super) const fn name(name: &'static str, description: &'static str, priority: i32) -> Column {
    Column {
        name: Cow::Borrowed(name),
        ty: Cow::Borrowed("string"),
        format: Cow::Borrowed("name"),
        description: Cow::Borrowed(description),
        priority,
    }
}

const fn column(
    ty: &'static str,
    priority: i32,
    name: &'static str,
    description: &'static str,
) -> Column {
    Column {
        name: Cow::Borrowed(name),
        ty: Cow::Borrowed(ty),
        format: Cow::Borrowed(""),
        description: Cow::Borrowed(description),
        priority,
    }
}
