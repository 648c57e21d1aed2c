//! Short ways to write columns.

use super::Column;

/// The object's name, first in most tables.
pub(super) const NAME: Column = Column {
    name: "Name",
    ty: "string",
    format: "name",
    description: "The object's name.",
    priority: 0,
};

/// Time since the object was created.
pub(super) const AGE: Column = text("Age", "Time since the object was created.");

/// When the object was created; the only cell that is a time and not an age.
pub(super) const CREATED_AT: Column = Column {
    ty: "date",
    ..text("Created At", "When the object was created.")
};

/// Names in a pod template.
pub(super) const CONTAINERS: Column = wide("Containers", "Names of the template's containers.");

/// Images in a pod template.
pub(super) const IMAGES: Column = wide("Images", "Images of the template's containers.");

/// Label selector of a workload.
pub(super) const SELECTOR: Column =
    wide("Selector", "Labels of the pods that belong to the object.");

/// A column of text.
pub(super) const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        ty: "string",
        format: "",
        description,
        priority: 0,
    }
}

/// A column of text for wide output only.
pub(super) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        priority: 1,
        ..text(name, description)
    }
}

/// A column of whole numbers.
pub(super) const fn integer(name: &'static str, description: &'static str) -> Column {
    Column {
        ty: "integer",
        ..text(name, description)
    }
}

/// A column of truth values.
pub(super) const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column {
        ty: "boolean",
        ..text(name, description)
    }
}
