//! Roles: what those that Azure has built in allow, and those that people made.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::turn::Turn;

/// What a role allows. A pattern is a name in which `*` stands for anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) actions: Vec<String>,
    pub(crate) not_actions: Vec<String>,
    pub(crate) data_actions: Vec<String>,
    pub(crate) not_data_actions: Vec<String>,
}

/// A role that Azure has built in.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    pub(crate) id: String,
    pub(crate) name: String,
    permission: Permission,
}

static BUILT_IN: LazyLock<Vec<BuiltIn>> = LazyLock::new(|| {
    let lines = include_str!("../../data/roles.tbl").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .map(built_in)
        .collect()
});

static BY_ID: LazyLock<HashMap<&'static str, &'static BuiltIn>> = LazyLock::new(|| {
    BUILT_IN
        .iter()
        .map(|role| (role.id.as_str(), role))
        .collect()
});

fn built_in(line: &str) -> BuiltIn {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let words = |at: usize| {
        cells
            .get(at)
            .map(|cell| cell.split_whitespace().map(str::to_owned).collect())
    };
    BuiltIn {
        id: cells.first().copied().unwrap_or_default().to_owned(),
        name: cells.get(1).copied().unwrap_or_default().to_owned(),
        permission: Permission {
            actions: words(2).unwrap_or_default(),
            not_actions: words(3).unwrap_or_default(),
            data_actions: words(4).unwrap_or_default(),
            not_data_actions: words(5).unwrap_or_default(),
        },
    }
}

/// The built-in roles.
pub(crate) fn built_ins() -> &'static [BuiltIn] {
    &BUILT_IN
}

impl Permission {
    /// Whether this allows an action, or an action on data.
    pub(crate) fn allows(&self, action: &str, on_data: bool) -> bool {
        let (yes, no) = match on_data {
            true => (&self.data_actions, &self.not_data_actions),
            false => (&self.actions, &self.not_actions),
        };
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, action));
        any(yes) && !any(no)
    }

    fn of(value: &Value) -> Permission {
        let words = |field: &str| {
            let all = value[field].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Permission {
            actions: words("actions"),
            not_actions: words("notActions"),
            data_actions: words("dataActions"),
            not_data_actions: words("notDataActions"),
        }
    }
}

/// Whether an action fits a pattern, in any case.
fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_lowercase(), action.to_lowercase());
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = action.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The key of a role that people made.
pub(crate) fn key(id: &str) -> String {
    format!("role/{}", id.to_lowercase())
}

/// What the role of an id allows.
pub(crate) fn permissions(turn: &Turn<'_>, id: &str) -> Vec<Permission> {
    if let Some(role) = BY_ID.get(id) {
        return vec![role.permission.clone()];
    }
    let custom = turn.get(&key(id)).unwrap_or_default();
    let all = custom["properties"]["permissions"]
        .as_array()
        .into_iter()
        .flatten();
    all.map(Permission::of).collect()
}

/// A built-in role as ARM shows it.
pub(crate) fn shown(role: &BuiltIn, subscription: &str) -> Value {
    let id = format!(
        "/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions/{}",
        role.id
    );
    let allowed = &role.permission;
    json!({
        "id": id, "name": role.id, "type": "Microsoft.Authorization/roleDefinitions",
        "properties": {
            "roleName": role.name, "type": "BuiltInRole", "description": role.name, "assignableScopes": ["/"],
            "permissions": [{"actions": allowed.actions, "notActions": allowed.not_actions,
                "dataActions": allowed.data_actions, "notDataActions": allowed.not_data_actions}],
            "createdOn": "2015-02-02T21:55:09.8806423Z", "updatedOn": "2015-02-02T21:55:09.8806423Z",
            "createdBy": null, "updatedBy": null,
        },
    })
}

/// The id at the end of a role's address.
pub(crate) fn id_of(address: &str) -> String {
    address
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// Whether there is such a role.
pub(crate) fn exists(turn: &Turn<'_>, id: &str) -> bool {
    BY_ID.contains_key(id) || turn.get(&key(id)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_with_stars_and_without_case() {
        for (pattern, action, expected) in [
            ("*", "Microsoft.Compute/virtualMachines/write", true),
            ("*/read", "Microsoft.Compute/virtualMachines/read", true),
            ("*/read", "Microsoft.Compute/virtualMachines/write", false),
            (
                "microsoft.compute/*/start/action",
                "Microsoft.Compute/virtualMachines/start/action",
                true,
            ),
            (
                "Microsoft.Compute/disks/*",
                "Microsoft.Compute/diskAccesses/read",
                false,
            ),
            (
                "Microsoft.Compute/disks/read",
                "Microsoft.Compute/disks/read",
                true,
            ),
            (
                "Microsoft.Compute/disks/read",
                "Microsoft.Compute/disks/read/x",
                false,
            ),
        ] {
            assert_eq!(matches(pattern, action), expected, "{pattern} {action}");
        }
    }

    #[test]
    fn contributors_do_everything_but_give_rights() {
        let contributor = built_ins()
            .iter()
            .find(|role| role.name == "Contributor")
            .unwrap();
        let allows = |action| contributor.permission.allows(action, false);
        assert!(allows("Microsoft.Compute/virtualMachines/write"));
        assert!(!allows("Microsoft.Authorization/roleAssignments/write"));
        assert!(allows("Microsoft.Authorization/roleAssignments/read"));
        assert!(
            !contributor
                .permission
                .allows("Microsoft.KeyVault/vaults/secrets/getSecret/action", true)
        );
    }
}
