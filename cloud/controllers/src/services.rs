//! Services of type LoadBalancer.
//!
//! All Services are one piece of work: what all of them ask for is worked out together, and each load balancer, public
//! address and security group is written at most once. Five hundred new Services of one load balancer are one read and
//! one write of it, and a look at what is as it should be costs nothing.
//!
//! ```text
//! wish, options   what a Service asks for
//! addresses       public addresses ─┐
//! balancer, rules load balancers    ├─ decisions: pure
//! security        the security group│
//! pools           nodes behind it  ─┘
//! shell, writing  reads before, writes after, and tells people; lock is for others who write the same
//! ```

mod addresses;
mod balancer;
mod lock;
mod members;
mod names;
mod options;
mod pools;
mod rules;
mod security;
mod shell;
mod wish;
mod writing;

use std::collections::BTreeMap;
use std::net::IpAddr;

use azure::CloudConfig;
use ipnet::IpNet;

pub(crate) use shell::start;
use wish::Wish;

/// What every decision about load balancers needs to know.
pub(crate) struct Ground<'a> {
    pub(crate) cloud: &'a CloudConfig,
    pub(crate) cluster: &'a str,
    /// The zones of the region.
    pub(crate) zones: &'a [String],
    /// Ranges of subnets by name.
    pub(crate) subnets: &'a BTreeMap<String, Vec<IpNet>>,
}

impl Ground<'_> {
    /// The id of the cluster's load balancer of a kind.
    pub(crate) fn balancer_id(&self, internal: bool) -> String {
        let name = match self.cloud.load_balancer_name.as_str() {
            "" => self.cluster,
            own => own,
        };
        let kind = if internal { "-internal" } else { "" };
        let place = self.cloud.network(&self.cloud.load_balancer_resource_group);
        place.resource("Microsoft.Network/loadBalancers", &format!("{name}{kind}"))
    }

    /// The id of a subnet, or of the nodes' own.
    pub(crate) fn subnet_id(&self, name: Option<&str>) -> String {
        let name = name.unwrap_or(&self.cloud.subnet_name);
        format!("{}/subnets/{name}", self.cloud.network_id())
    }

    /// Whether an address is in the subnet that a Service asks for.
    fn is_in_subnet(&self, wish: &Wish, address: &IpAddr) -> bool {
        let name = wish
            .options
            .subnet
            .as_deref()
            .unwrap_or(&self.cloud.subnet_name);
        let nets = self.subnets.get(name).into_iter().flatten();
        nets.into_iter().any(|net| net.contains(address))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// What decisions of tests stand on.
    pub(crate) struct Stand {
        cloud: CloudConfig,
        zones: Vec<String>,
        subnets: BTreeMap<String, Vec<IpNet>>,
    }

    impl Stand {
        pub(crate) fn ground(&self) -> Ground<'_> {
            Ground {
                cloud: &self.cloud,
                cluster: "kubernetes",
                zones: &self.zones,
                subnets: &self.subnets,
            }
        }
    }

    pub(crate) fn ground() -> Stand {
        let config = r#"{"subscriptionId": "s", "resourceGroup": "g", "location": "eastus", "vnetName": "net", "subnetName": "nodes"}"#;
        Stand {
            cloud: CloudConfig::parse(config, |_| None).unwrap(),
            zones: vec!["1".into(), "2".into()],
            subnets: [("nodes".to_owned(), vec!["10.0.0.0/24".parse().unwrap()])].into(),
        }
    }
}
