//! What objects of a resource cost, and under which names.

use jiff::Timestamp;
use kinds::pod_resources::Amounts;
use kube_kit::quantity::{Format, Quantity};
use kube_kit::selector::Requirement;
use serde_json::Value;

use super::{claims, items, pods};

/// A resource without its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// Group; empty for the core group.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

impl GroupResource {
    /// A resource of a group.
    pub fn new(group: &str, resource: &str) -> GroupResource {
        GroupResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    /// The name under which a quota counts its objects.
    pub fn count_name(&self) -> String {
        match self.group.as_str() {
            "" => format!("count/{}", self.resource),
            group => format!("count/{}.{group}", self.resource),
        }
    }

    /// The resource whose objects a quota counts under this name.
    pub fn of_count_name(name: &str) -> Option<GroupResource> {
        let counted = name.strip_prefix("count/")?;
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        Some(GroupResource::new(group, resource))
    }
}

/// Core resources that had a quota of their own name before `count/` existed.
pub(super) const LEGACY_COUNTS: [&str; 4] = [
    "configmaps",
    "resourcequotas",
    "replicationcontrollers",
    "secrets",
];

/// Resources that are never counted: they are not stored, or come in floods.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("", "events"),
    ("events.k8s.io", "events"),
];

const SERVICE_NAMES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];

/// How objects of one resource are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// Pods: compute resources, while they are not over.
    Pods,
    /// Services: node ports and load balancers.
    Services,
    /// Volume claims: storage, in all and by class.
    VolumeClaims,
    /// Claims of devices, by device class.
    DeviceClaims,
    /// Everything else: by number, under these names.
    Objects(Vec<String>),
}

impl Measure {
    /// The measure of a resource; `None` when it is never counted.
    pub fn of(resource: &GroupResource) -> Option<Measure> {
        let pair = (resource.group.as_str(), resource.resource.as_str());
        if IGNORED.contains(&pair) {
            return None;
        }
        Some(match pair {
            ("", "pods") => Measure::Pods,
            ("", "services") => Measure::Services,
            ("", "persistentvolumeclaims") => Measure::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Measure::DeviceClaims,
            (group, name) => {
                let legacy = group.is_empty() && LEGACY_COUNTS.contains(&name);
                let mut names = vec![resource.count_name()];
                names.extend(legacy.then(|| name.to_owned()));
                Measure::Objects(names)
            }
        })
    }

    /// Whether a write can change what is used. `old` is the object before an update.
    pub fn concerns(&self, creates: bool, subresource: &str, new: &Value, old: &Value) -> bool {
        match (self, subresource, creates) {
            (_, "", true) => true,
            (Measure::Pods, "", false) => pods::is_terminating(new) != pods::is_terminating(old),
            (Measure::Pods, "resize", false) => true,
            (Measure::Services | Measure::DeviceClaims, "", false) => true,
            (Measure::VolumeClaims, "" | "status", false) => true,
            _ => false,
        }
    }

    /// Whether objects count under this name of a quota.
    pub fn tracks(&self, name: &str) -> bool {
        match self {
            Measure::Pods => pods::tracks(name),
            Measure::Services => SERVICE_NAMES.contains(&name),
            Measure::VolumeClaims => claims::tracks_volumes(name),
            Measure::DeviceClaims => claims::tracks_devices(name),
            Measure::Objects(names) => names.iter().any(|own| own == name),
        }
    }

    /// What an object uses.
    pub fn usage(&self, object: &Value, now: Timestamp) -> Amounts {
        match self {
            Measure::Pods => pods::usage(object, now),
            Measure::Services => service_usage(&object["spec"]),
            Measure::VolumeClaims => claims::volume_usage(object),
            Measure::DeviceClaims => claims::device_usage(object),
            Measure::Objects(names) => names.iter().map(|name| (name.clone(), count(1))).collect(),
        }
    }

    /// Whether an object is in all of a quota's scopes. Only pods and volume claims know any.
    pub(super) fn in_scopes(&self, scopes: &[Requirement], object: &Value) -> bool {
        scopes.iter().all(|scope| match self {
            Measure::Pods => pods::in_scope(scope, object),
            Measure::VolumeClaims => claims::in_scope(scope, object),
            _ => false,
        })
    }

    /// What a quota on these names wants said that the object leaves open.
    pub(super) fn unsaid(&self, names: &[&str], object: &Value) -> Option<String> {
        match self {
            Measure::Pods => pods::unsaid(names, object),
            _ => None,
        }
    }
}

/// A number of things.
pub(super) fn count(number: usize) -> Quantity {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    Quantity::from_integer(number, Format::DecimalSi)
}

// A load balancer that asks for no node ports pays for those it names itself.
fn service_usage(spec: &Value) -> Amounts {
    let ports = items(&spec["ports"]).count();
    let named = items(&spec["ports"])
        .filter(|port| port["nodePort"].as_i64().is_some_and(|number| number != 0))
        .count();
    let suppressed = spec["allocateLoadBalancerNodePorts"] == false;
    let (node_ports, balancers) = match spec["type"].as_str() {
        Some("NodePort") => (ports, 0),
        Some("LoadBalancer") if suppressed => (named, 1),
        Some("LoadBalancer") => (ports, 1),
        _ => (0, 0),
    };
    SERVICE_NAMES
        .iter()
        .zip([1, 1, node_ports, balancers])
        .map(|(name, number)| ((*name).to_owned(), count(number)))
        .collect()
}
