//! Add-ons: what a cluster of ours runs as workloads. One table, one mechanism: their manifests are part of the
//! program, are applied by a manager of their own and kept so ([`keep`]), and are taken away when they are disabled.
//! What somebody else adds to the objects stays; what somebody else takes away comes back.

pub(crate) mod choice;
mod keep;
pub(crate) mod readiness;

pub(crate) use keep::run;

use std::net::SocketAddr;

use ipnet::Ipv4Net;
use serde_json::Value;

use crate::exit::{Code, Failure, Result};
use crate::manifest;

/// The label of every object of an add-on; its value is the add-on's name.
pub(crate) const LABEL: &str = "kyanite.dev/addon";
/// What upstream's add-on manager marks objects with that it brings back to their manifest.
const MODE: (&str, &str) = ("addonmanager.kubernetes.io/mode", "Reconcile");

/// An add-on.
pub(crate) struct Addon {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Whether a cluster has it where nobody says anything.
    pub(crate) is_usual: bool,
    /// Whether the API server's way to the nodes decides about it, and nobody else.
    pub(crate) follows_tunnels: bool,
    manifest: &'static str,
}

const USUAL: Addon = Addon {
    name: "",
    about: "",
    is_usual: true,
    follows_tunnels: false,
    manifest: "",
};

/// Every add-on.
pub(crate) const ADDONS: [Addon; 4] = [
    Addon {
        name: "kube-proxy",
        about: "Services are reachable from every node",
        manifest: include_str!("addons/kube-proxy.yaml"),
        ..USUAL
    },
    Addon {
        name: "konnectivity",
        about: "the API server reaches nodes through tunnels that they open",
        manifest: include_str!("addons/konnectivity.yaml"),
        follows_tunnels: true,
        ..USUAL
    },
    Addon {
        name: "dns",
        about: "Services and pods have names",
        manifest: include_str!("addons/dns.yaml"),
        ..USUAL
    },
    Addon {
        name: "network-policy",
        about: "NetworkPolicies are kept on every node",
        manifest: include_str!("addons/network-policy.yaml"),
        is_usual: false,
        ..USUAL
    },
];

/// The add-on of this name.
pub(crate) fn find(name: &str) -> Result<&'static Addon> {
    let known = || ADDONS.map(|addon| addon.name).join(", ");
    ADDONS
        .iter()
        .find(|addon| addon.name == name)
        .ok_or_else(|| {
            Failure::new(Code::NotFound, format!("there is no add-on `{name}`"))
                .hint(format!("there are {}", known()))
        })
}

// Nodes on paper run nothing.
const REAL_NODES: &str = "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: \
    [{matchExpressions: [{key: hollow.kyanite.dev/node, operator: DoesNotExist}]}]}}}";

/// What manifests leave open.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The image with this program in it.
    pub(crate) image: String,
    /// The address of the cluster's DNS.
    pub(crate) cluster_dns: String,
    /// Where pods' addresses come from.
    pub(crate) cluster_cidr: Ipv4Net,
    /// Where nodes reach the API server.
    pub(crate) api_server: SocketAddr,
    /// Where tunnels end, if the API server uses them.
    pub(crate) tunnels: Option<SocketAddr>,
}

impl Settings {
    fn variables(&self) -> [(&'static str, String); 8] {
        let tunnels = self.tunnels.unwrap_or(self.api_server);
        [
            ("$IMAGE", self.image.clone()),
            ("$CLUSTER_DNS", self.cluster_dns.clone()),
            ("$CLUSTER_CIDR", self.cluster_cidr.to_string()),
            ("$API_HOST", self.api_server.ip().to_string()),
            ("$API_PORT", self.api_server.port().to_string()),
            ("$TUNNEL_HOST", tunnels.ip().to_string()),
            ("$TUNNEL_PORT", tunnels.port().to_string()),
            ("$REAL_NODES", REAL_NODES.to_owned()),
        ]
    }
}

impl Addon {
    /// What it is made of: objects, and where each is kept.
    fn objects(&self, settings: &Settings) -> Result<Vec<(String, Value)>> {
        let name = self.name;
        let mut text = self.manifest.to_owned();
        for (variable, value) in settings.variables() {
            text = text.replace(variable, &value);
        }
        let whole = |mut object: Value| {
            let labels = &mut object["metadata"]["labels"];
            labels[LABEL] = name.into();
            labels[MODE.0] = MODE.1.into();
            Ok((manifest::path_of(&object)?, object))
        };
        let all = manifest::objects(&format!("the add-on {name}"), &text)?;
        all.into_iter().map(whole).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn settings() -> Settings {
        Settings {
            image: "kyanite.local/kyanite:1".into(),
            cluster_dns: "10.0.0.10".into(),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            api_server: "10.224.0.1:443".parse().unwrap(),
            tunnels: Some("10.224.0.1:8132".parse().unwrap()),
        }
    }

    #[test]
    fn every_manifest_can_be_read_and_every_object_has_a_place_and_says_whose_it_is() {
        for addon in &ADDONS {
            let objects = addon.objects(&settings()).unwrap();
            assert!(!objects.is_empty());
            for (path, object) in objects {
                assert!(path.starts_with("/api"));
                assert_eq!(object["metadata"]["labels"][LABEL], addon.name);
                // `$(NAME)` is the kubelet's to fill in.
                let left = object.to_string().replace("$(", "");
                assert!(!left.contains('$'), "{object}");
            }
        }
    }

    #[test]
    fn what_runs_does_so_on_real_nodes_from_our_own_image() {
        for addon in &ADDONS {
            let objects = addon.objects(&settings()).unwrap();
            let mut templates = objects
                .iter()
                .filter_map(|(_, object)| object["spec"].get("template"));
            assert!(templates.all(|template| {
                let spec = &template["spec"];
                spec["affinity"]["nodeAffinity"].is_object()
                    && spec["containers"][0]["image"] == "kyanite.local/kyanite:1"
            }));
        }
    }

    #[test]
    fn an_add_on_that_is_not_there_is_answered_with_those_that_are() {
        let failure = find("istio").map(drop).unwrap_err();
        assert!(failure.hint.unwrap().contains("dns"));
    }
}
