//! What stands in the way of an apply.

use std::collections::BTreeMap;
use std::fmt;

use super::entries::{ManagerId, Operation};
use crate::fieldset::FieldPath;
use crate::gotext;

/// One field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns it.
    pub manager: ManagerId,
    /// The field.
    pub path: FieldPath,
}

impl Conflict {
    /// The cause's message: `conflict with "kubectl-edit" using apps/v1`.
    pub fn message(&self) -> String {
        format!("conflict with {}", manager_text(&self.manager))
    }

    /// The cause's field: `.spec.replicas`.
    pub fn field(&self) -> String {
        self.path.to_string()
    }
}

/// All conflicts of one apply; prints as the message of the 409 upstream answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl std::error::Error for Conflicts {}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(
                f,
                "Apply failed with 1 conflict: {}: {}",
                only.message(),
                only.path
            );
        }
        let mut by_manager: BTreeMap<&ManagerId, Vec<&FieldPath>> = BTreeMap::new();
        for conflict in &self.0 {
            by_manager
                .entry(&conflict.manager)
                .or_default()
                .push(&conflict.path);
        }
        let lines: Vec<_> = by_manager
            .into_iter()
            .flat_map(|(manager, paths)| {
                let title = format!("conflicts with {}:", manager_text(manager));
                std::iter::once(title).chain(paths.into_iter().map(|path| format!("- {path}")))
            })
            .collect();
        write!(
            f,
            "Apply failed with {} conflicts: {}",
            self.0.len(),
            lines.join("\n")
        )
    }
}

// Upstream prints a time too, but its manager identities have not carried one for years.
fn manager_text(id: &ManagerId) -> String {
    let mut text = gotext::quoted(&id.manager);
    if !id.subresource.is_empty() {
        text += &format!(" with subresource {}", gotext::quoted(&id.subresource));
    }
    if id.operation == Operation::Update {
        text += &format!(" using {}", id.api_version);
    }
    text
}
