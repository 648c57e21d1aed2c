//! Ids of resources, and what nodes are called by: `azure:///subscriptions/…`.

/// A resource's id in its parts. Names compare without case, as Azure does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceId {
    /// The subscription.
    pub subscription: String,
    /// The group of resources.
    pub group: String,
    /// Such as `Microsoft.Network`.
    pub provider: String,
    /// Types and names in turn: `loadBalancers`, `kubernetes`.
    pub path: Vec<(String, String)>,
}

impl ResourceId {
    /// Reads an id of something in a group.
    pub fn parse(text: &str) -> Option<ResourceId> {
        let mut words = text.strip_prefix('/')?.split('/');
        let mut pair = |name: &str| {
            let is = words.next()?.eq_ignore_ascii_case(name);
            words.next().filter(|word| is && !word.is_empty())
        };
        let (subscription, group, provider) = (
            pair("subscriptions")?.to_owned(),
            pair("resourceGroups")?.to_owned(),
            pair("providers")?.to_owned(),
        );
        let rest: Vec<&str> = words.collect();
        let is_whole = !rest.is_empty() && rest.len().is_multiple_of(2) && !rest.contains(&"");
        let path = rest.chunks(2);
        is_whole.then(|| ResourceId {
            subscription,
            group,
            provider,
            path: path.map(|p| (p[0].to_owned(), p[1].to_owned())).collect(),
        })
    }

    /// The name of the part of this type.
    pub fn named(&self, kind: &str) -> Option<&str> {
        let found = self.path.iter().find(|(k, _)| k.eq_ignore_ascii_case(kind));
        found.map(|(_, name)| name.as_str())
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", |(_, name)| name)
    }

    /// The id of what this is a part of so many levels up.
    pub fn parent(&self, levels: usize) -> ResourceId {
        let mut parent = self.clone();
        parent.path.truncate(self.path.len().saturating_sub(levels));
        parent
    }
}

impl std::fmt::Display for ResourceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "/subscriptions/{}/resourceGroups/{}/providers/{}",
            self.subscription, self.group, self.provider
        )?;
        let mut parts = self.path.iter();
        parts.try_for_each(|(kind, name)| write!(f, "/{kind}/{name}"))
    }
}

/// Whether two ids are of the same thing.
pub fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The machine of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MachineId {
    /// A machine of its own, or of a flexible set.
    Vm {
        /// Its subscription.
        subscription: String,
        /// Its group, in lower case.
        group: String,
        /// Its name.
        name: String,
    },
    /// A machine of a uniform set.
    Instance {
        /// Its subscription.
        subscription: String,
        /// Its group, in lower case.
        group: String,
        /// The set's name.
        set: String,
        /// Its number there.
        instance: String,
    },
}

const SCHEME: &str = "azure://";

impl MachineId {
    /// Reads a node's `spec.providerID`; nothing for machines of another cloud.
    pub fn of_provider(text: &str) -> Option<MachineId> {
        MachineId::of_resource(text.strip_prefix(SCHEME)?)
    }

    /// Reads a resource's id.
    pub fn of_resource(text: &str) -> Option<MachineId> {
        let id = ResourceId::parse(text)?;
        if !id.provider.eq_ignore_ascii_case("Microsoft.Compute") {
            return None;
        }
        let (subscription, group) = (id.subscription.clone(), id.group.to_lowercase());
        let is = |at: usize, kind: &str| id.path[at].0.eq_ignore_ascii_case(kind);
        match id.path.len() {
            1 if is(0, "virtualMachines") => Some(MachineId::Vm {
                subscription,
                group,
                name: id.name().to_owned(),
            }),
            2 if is(0, "virtualMachineScaleSets") && is(1, "virtualMachines") => {
                // An older form has the set's name in front of the number.
                let number = id.name().rsplit('_').next().unwrap_or_default();
                let is_number = number.bytes().all(|b| b.is_ascii_digit());
                is_number.then(|| MachineId::Instance {
                    subscription,
                    group,
                    set: id.path[0].1.clone(),
                    instance: number.to_owned(),
                })
            }
            _ => None,
        }
    }

    /// The resource's id.
    pub fn resource(&self) -> String {
        match self {
            MachineId::Vm {
                subscription,
                group,
                name,
            } => format!(
                "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"
            ),
            MachineId::Instance { instance, .. } => {
                format!("{}/virtualMachines/{instance}", self.set_id())
            }
        }
    }

    /// The id of its uniform set; empty without one.
    pub fn set_id(&self) -> String {
        match self {
            MachineId::Vm { .. } => String::new(),
            MachineId::Instance {
                subscription,
                group,
                set,
                ..
            } => format!(
                "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}"
            ),
        }
    }

    /// What a node has as `spec.providerID`.
    pub fn provider_id(&self) -> String {
        format!("{SCHEME}{}", self.resource())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn ids_come_apart_and_together() {
        let text = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Network/loadBalancers/lb/probes/p";
        let id = ResourceId::parse(text).unwrap();
        assert_eq!(id.named("LOADBALANCERS"), Some("lb"));
        assert_eq!((id.name(), id.to_string().as_str()), ("p", text));
        assert_eq!(id.parent(1).name(), "lb");
        for wrong in [
            "",
            "/subscriptions/s",
            "/subscriptions/s/resourceGroups/g/providers/P",
            "/subscriptions//resourceGroups/g/providers/P/t/n",
            "/subscriptions/s/resourceGroups/g/providers/P/t",
        ] {
            assert_eq!(ResourceId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn provider_ids_of_every_kind_of_machine() {
        let at = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute";
        let cases = [
            ("virtualMachines/vm", Some("virtualMachines/vm")),
            ("virtualMachines/np_1a2b", Some("virtualMachines/np_1a2b")),
            (
                "virtualMachineScaleSets/np/virtualMachines/10",
                Some("virtualMachineScaleSets/np/virtualMachines/10"),
            ),
            (
                "virtualMachineScaleSets/np/virtualMachines/np_7",
                Some("virtualMachineScaleSets/np/virtualMachines/7"),
            ),
            ("virtualMachineScaleSets/np/virtualMachines/x", None),
            ("disks/d", None),
        ];
        for (path, expected) in cases {
            let read = MachineId::of_provider(&format!("{at}/{path}"));
            let expected = expected.map(|path| format!("{at}/{path}"));
            assert_eq!(read.map(|id| id.provider_id()), expected, "{path}");
        }
        assert_eq!(MachineId::of_provider("aws:///us-east-1a/i-1"), None);
        let upper = MachineId::of_provider(
            "azure:///subscriptions/S/resourceGroups/MC_G/providers/microsoft.compute/VirtualMachines/Vm",
        );
        assert!(
            upper
                .unwrap()
                .provider_id()
                .contains("/resourceGroups/mc_g/")
        );
    }
}
