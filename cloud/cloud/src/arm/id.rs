//! Resource ids, and the paths that are not yet one. Nothing in them has a case.

use std::fmt;

/// The id of a resource below a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Id {
    /// What it belongs to: a group, a subscription, another resource, or nothing.
    pub(crate) scope: String,
    pub(crate) subscription: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) namespace: String,
    pub(crate) types: Vec<String>,
    pub(crate) names: Vec<String>,
}

impl Id {
    /// Reads a whole id; a collection or an action is none.
    pub(crate) fn parse(text: &str) -> Option<Id> {
        Path::parse(text).id()
    }

    /// The full type, such as `Microsoft.Network/virtualNetworks/subnets`.
    pub(crate) fn kind(&self) -> String {
        format!("{}/{}", self.namespace, self.types.join("/"))
    }

    pub(crate) fn name(&self) -> &str {
        self.names.last().expect("an id has a name")
    }

    /// `Microsoft.Network/virtualNetworks/a/subnets/b`, as refusals name it.
    pub(crate) fn type_and_name(&self) -> String {
        let pairs = self.types.iter().zip(&self.names);
        let path: Vec<String> = pairs.map(|(kind, name)| format!("{kind}/{name}")).collect();
        format!("{}/{}", self.namespace, path.join("/"))
    }

    /// The resource it is a child of.
    pub(crate) fn parent(&self) -> Option<Id> {
        (self.types.len() > 1).then(|| {
            let mut parent = self.clone();
            parent.types.pop();
            parent.names.pop();
            parent
        })
    }

    pub(crate) fn child(&self, kind: &str, name: &str) -> Id {
        let mut child = self.clone();
        child.types.push(kind.to_owned());
        child.names.push(name.to_owned());
        child
    }

    /// Where the state keeps it.
    pub(crate) fn key(&self) -> String {
        key(&self.to_string())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/providers/{}", self.scope, self.namespace)?;
        let mut pairs = self.types.iter().zip(&self.names);
        pairs.try_for_each(|(kind, name)| write!(f, "/{kind}/{name}"))
    }
}

/// Where the state keeps what has this id.
pub(crate) fn key(id: &str) -> String {
    format!("arm{}", id.to_lowercase())
}

/// The id of a group.
pub(crate) fn group(subscription: &str, name: &str) -> String {
    format!("/subscriptions/{subscription}/resourceGroups/{name}")
}

/// A path of ARM, taken apart at its last provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// What comes before the provider, in ARM's own spelling.
    pub(crate) scope: String,
    pub(crate) subscription: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) namespace: Option<String>,
    /// What follows the provider, or the scope where there is none.
    pub(crate) rest: Vec<String>,
}

impl Path {
    pub(crate) fn parse(text: &str) -> Path {
        let all: Vec<&str> = text.split('/').filter(|s| !s.is_empty()).collect();
        let is_word =
            |at: usize, word: &str| all.get(at).is_some_and(|s| s.eq_ignore_ascii_case(word));
        let mut subscription = None;
        let mut group = None;
        let mut after = 0;
        if is_word(0, "subscriptions") && all.len() > 1 {
            subscription = Some(all[1].to_owned());
            after = 2;
            if is_word(2, "resourceGroups") && all.len() > 3 {
                group = Some(all[3].to_owned());
                after = 4;
            }
        }
        let mut scope = match (&subscription, &group) {
            (Some(subscription), Some(name)) => self::group(subscription, name),
            (Some(subscription), None) => format!("/subscriptions/{subscription}"),
            _ => String::new(),
        };
        let last = (after..all.len())
            .rev()
            .find(|at| is_word(*at, "providers") && at + 1 < all.len());
        let Some(last) = last else {
            let rest = all[after..].iter().map(|s| (*s).to_owned()).collect();
            return Path {
                scope,
                subscription,
                group,
                namespace: None,
                rest,
            };
        };
        for segment in &all[after..last] {
            scope.push('/');
            scope.push_str(if segment.eq_ignore_ascii_case("providers") {
                "providers"
            } else {
                segment
            });
        }
        Path {
            scope,
            subscription,
            group,
            namespace: Some(all[last + 1].to_owned()),
            rest: all[last + 2..].iter().map(|s| (*s).to_owned()).collect(),
        }
    }

    /// The id, where the path is one of a resource.
    pub(crate) fn id(&self) -> Option<Id> {
        let namespace = self.namespace.clone()?;
        if self.rest.is_empty() || self.rest.len() % 2 == 1 {
            return None;
        }
        let every = |first: usize| self.rest.iter().skip(first).step_by(2).cloned().collect();
        Some(Id {
            scope: self.scope.clone(),
            subscription: self.subscription.clone(),
            group: self.group.clone(),
            namespace,
            types: every(0),
            names: every(1),
        })
    }

    /// What follows the provider, in lower case.
    pub(crate) fn words(&self) -> Vec<String> {
        self.rest.iter().map(|s| s.to_lowercase()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_apart_and_put_together() {
        let cases = [
            (
                "/subscriptions/s/resourcegroups/G/providers/Microsoft.Network/virtualNetworks/v/subnets/s1",
                "/subscriptions/s/resourceGroups/G",
                "Microsoft.Network/virtualNetworks/subnets",
                "s1",
            ),
            (
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/PROVIDERS/Microsoft.Authorization/roleAssignments/r",
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v",
                "Microsoft.Authorization/roleAssignments",
                "r",
            ),
            (
                "/providers/Microsoft.Authorization/roleDefinitions/x",
                "",
                "Microsoft.Authorization/roleDefinitions",
                "x",
            ),
            (
                "/subscriptions/s/providers/Microsoft.Authorization/locks/l",
                "/subscriptions/s",
                "Microsoft.Authorization/locks",
                "l",
            ),
        ];
        for (text, scope, kind, name) in cases {
            let id = Id::parse(text).unwrap();
            assert_eq!(
                (id.scope.as_str(), id.kind().as_str(), id.name()),
                (scope, kind, name)
            );
            assert_eq!(Id::parse(&id.to_string()), Some(id));
        }
    }

    #[test]
    fn what_is_no_resource_keeps_its_rest() {
        let collection = Path::parse(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks",
        );
        assert_eq!(collection.id(), None);
        assert_eq!(collection.rest, ["virtualNetworks"]);
        let groups = Path::parse("/subscriptions/s/resourcegroups");
        assert_eq!(
            (groups.group, groups.rest),
            (None, vec!["resourcegroups".to_owned()])
        );
        let provider = Path::parse("/subscriptions/s/providers/Microsoft.Compute/register");
        assert_eq!(provider.namespace.as_deref(), Some("Microsoft.Compute"));
        assert_eq!(
            Path::parse("/subscriptions/s/providers").rest,
            ["providers"]
        );
    }
}
