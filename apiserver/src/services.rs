//! Virtual IPs and node ports of services.
//!
//! A virtual IP belongs to the service whose `IPAddress` object bears its name: taking one is creating
//! that object, so two servers on one store cannot hand out the same address. Node ports are counted
//! in memory, from the services themselves.

mod spec;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::Ipv4Net;
use kinds::field::{Errors, Path};
use kinds::resources::{self, Resource};
use serde_json::{Value, json};
use store::{Change, Expect, Written};

use crate::rest::Api;
use crate::status::{ApiError, Result};
use spec::{
    NODE_PORTS, carry_allocated, check_families, cluster_ips, health_check_port, host_count,
    needs_health_check_port, needs_node_ports, node_ports, nth, pick_port, port_error, ports_mut,
    set_families,
};

/// The allocator.
#[derive(Debug)]
pub(crate) struct Services {
    cidr: Ipv4Net,
    ports: Mutex<HashSet<u16>>,
}

/// What one write took, to be given back if the write does not happen.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    ips: Vec<Ipv4Addr>,
    ports: Vec<u16>,
}

fn is_service(resource: &Resource) -> bool {
    resource.gv.group.is_empty() && resource.kind == "Service"
}

impl Services {
    /// An allocator over a range of addresses.
    pub(crate) fn new(cidr: Ipv4Net) -> Services {
        Services {
            cidr,
            ports: Mutex::default(),
        }
    }

    /// The first address of the range, which belongs to the API server itself.
    pub(crate) fn first_ip(&self) -> Ipv4Addr {
        nth(self.cidr, 1)
    }

    /// The range.
    pub(crate) fn cidr(&self) -> Ipv4Net {
        self.cidr
    }

    /// Counts the node ports of services that exist.
    pub(crate) fn load<'a>(&self, services: impl Iterator<Item = &'a Value>) {
        let mut taken = self.taken();
        for service in services {
            taken.extend(node_ports(service));
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What validation must see: values an update leaves out are the present ones, and the two forms of
    /// the address agree (upstream's `patchAllocatedValues` and `normalizeClusterIPs`).
    pub(crate) fn prepare(&self, resource: &Resource, service: &mut Value, old: Option<&Value>) {
        if !is_service(resource) {
            return;
        }
        if let Some(old) = old {
            carry_allocated(service, old);
        }
        let spec = &mut service["spec"];
        let one = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
        if !one.is_empty() && spec.get("clusterIPs").is_none_or(Value::is_null) {
            spec["clusterIPs"] = json!([one]);
        }
    }

    /// Fills in the addresses and ports a service needs (upstream's `allocServiceClusterIPs` and
    /// `allocServiceNodePorts`).
    pub(crate) async fn allocate(
        &self,
        api: &Api,
        resource: &Resource,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Lease> {
        let mut lease = Lease::default();
        if !is_service(resource) {
            return Ok(lease);
        }
        let outcome = match self
            .allocate_ip(api, service, old, dry_run, &mut lease)
            .await
        {
            Ok(()) => self
                .allocate_ports(service, old, &mut lease)
                .and_then(|()| self.allocate_health_check(service, old, &mut lease)),
            Err(errors) => Err(errors),
        };
        match outcome {
            Ok(()) => Ok(lease),
            Err(errors) => {
                self.give_back(api, lease).await;
                let name = service["metadata"]["name"].as_str().unwrap_or_default();
                Err(ApiError::invalid("", "Service", name, &errors))
            }
        }
    }

    /// Gives back what a write that did not happen had taken.
    pub(crate) async fn give_back(&self, api: &Api, lease: Lease) {
        for ip in lease.ips {
            self.release_ip(api, ip).await;
        }
        let mut taken = self.taken();
        for port in lease.ports {
            taken.remove(&port);
        }
    }

    /// After a successful update: gives back what the old service had and the new one has not.
    pub(crate) async fn settle(&self, api: &Api, resource: &Resource, new: &Value, old: &Value) {
        if !is_service(resource) {
            return;
        }
        let (kept_ips, kept_ports) = (cluster_ips(new), node_ports(new));
        let ips = cluster_ips(old)
            .into_iter()
            .filter(|ip| !kept_ips.contains(ip))
            .collect();
        let ports = node_ports(old)
            .into_iter()
            .filter(|p| !kept_ports.contains(p))
            .collect();
        self.give_back(api, Lease { ips, ports }).await;
    }

    /// After a deletion: gives back everything.
    pub(crate) async fn forget(&self, api: &Api, resource: &Resource, service: &Value) {
        if is_service(resource) {
            self.give_back(
                api,
                Lease {
                    ips: cluster_ips(service),
                    ports: node_ports(service),
                },
            )
            .await;
        }
    }

    async fn allocate_ip(
        &self,
        api: &Api,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
        lease: &mut Lease,
    ) -> Result<(), Errors> {
        if service["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        let asked = service["spec"]["clusterIP"]
            .as_str()
            .filter(|ip| !ip.is_empty())
            .map(str::to_owned);
        let asked = asked.or_else(|| service["spec"]["clusterIPs"][0].as_str().map(str::to_owned));
        let had = old.map(cluster_ips).unwrap_or_default();
        let address = match asked.as_deref() {
            Some("None") => "None".to_owned(),
            Some(text) if had.iter().any(|ip| ip.to_string() == text) => text.to_owned(),
            Some(text) => self
                .take_named(api, service, text, dry_run, lease)
                .await?
                .to_string(),
            None => self
                .take_any(api, service, dry_run, lease)
                .await?
                .to_string(),
        };
        if address != "None" {
            check_families(service)?;
        }
        service["spec"]["clusterIP"] = address.as_str().into();
        service["spec"]["clusterIPs"] = json!([address]);
        set_families(service, &address);
        Ok(())
    }

    async fn take_named(
        &self,
        api: &Api,
        service: &Value,
        text: &str,
        dry_run: bool,
        lease: &mut Lease,
    ) -> Result<Ipv4Addr, Errors> {
        let refuse = |why: &str| {
            let mut errors = Errors::default();
            let spec = Path::root("spec");
            errors.invalid(&spec.child("clusterIPs"), &json!([text]), why);
            errors
        };
        let ip = match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) if self.cidr.contains(&ip) => ip,
            Ok(_) => {
                return Err(refuse(&format!(
                    "failed to allocate IP {text}: the provided network does not match the current range"
                )));
            }
            Err(_) => return Err(refuse("must be a valid IP address")),
        };
        match self.claim(api, service, ip, dry_run).await {
            Ok(true) => {
                lease.ips.push(ip);
                Ok(ip)
            }
            Ok(false) => Err(refuse(&format!(
                "failed to allocate IP {text}: provided IP is already allocated"
            ))),
            Err(error) => Err(refuse(&format!(
                "failed to allocate IP {text}: {}",
                error.message
            ))),
        }
    }

    // Random addresses above the band that is kept for explicit requests, then every address in turn.
    async fn take_any(
        &self,
        api: &Api,
        service: &Value,
        dry_run: bool,
        lease: &mut Lease,
    ) -> Result<Ipv4Addr, Errors> {
        let hosts = host_count(self.cidr);
        let band = (hosts / 16).clamp(16, 256).min(hosts.saturating_sub(1));
        let random = (0..8).map(|_| rand::random_range(band..hosts) + 1);
        let in_turn = (band..hosts).chain(0..band).map(|offset| offset + 1);
        for offset in random.chain(in_turn) {
            let ip = nth(self.cidr, offset);
            if address_exists(api, ip) {
                continue;
            }
            if let Ok(true) = self.claim(api, service, ip, dry_run).await {
                lease.ips.push(ip);
                return Ok(ip);
            }
        }
        let mut errors = Errors::default();
        let spec = Path::root("spec");
        errors.invalid(
            &spec.child("clusterIPs"),
            &json!([]),
            "failed to allocate a serviceIP: range is full",
        );
        Err(errors)
    }

    async fn claim(&self, api: &Api, service: &Value, ip: Ipv4Addr, dry_run: bool) -> Result<bool> {
        let collection = api.collection(addresses())?;
        let key = collection.key("", &ip.to_string());
        if dry_run {
            return Ok(api.store.get(&key).await?.is_none());
        }
        let object = address_object(api, service, ip);
        let value = collection
            .form
            .encode(&crate::rest::normal_form(addresses(), object)?);
        let written = api
            .store
            .write(&key, Expect::Absent, Change::Put { value, ttl: None })
            .await?;
        Ok(matches!(written, Written::Done(_)))
    }

    async fn release_ip(&self, api: &Api, ip: Ipv4Addr) {
        let Ok(collection) = api.collection(addresses()) else {
            return;
        };
        let key = collection.key("", &ip.to_string());
        let outcome = match api.store.get(&key).await {
            Ok(Some(kv)) => api
                .store
                .write(&key, Expect::Modified(kv.mod_revision), Change::Delete)
                .await
                .map(|_| ()),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            tracing::warn!(%ip, %error, "a virtual IP could not be released; it stays reserved");
        }
    }

    // Load balancers that keep the client's address ask each node whether it has endpoints.
    fn allocate_health_check(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        lease: &mut Lease,
    ) -> Result<(), Errors> {
        if !needs_health_check_port(service) {
            return Ok(());
        }
        let had = old.and_then(health_check_port);
        let wanted = health_check_port(service).or(had);
        if wanted.is_some() && wanted == had {
            service["spec"]["healthCheckNodePort"] = wanted.into();
            return Ok(());
        }
        let mut taken = self.taken();
        let refuse = |why: String| {
            let mut errors = Errors::default();
            let spec = Path::root("spec");
            errors.invalid(
                &spec.child("healthCheckNodePort"),
                &wanted.unwrap_or(0).into(),
                &why,
            );
            errors
        };
        let port = match wanted {
            Some(port) if taken.contains(&port) => {
                let why = format!(
                    "failed to allocate requested HealthCheck NodePort {port}: provided port is already allocated"
                );
                return Err(refuse(why));
            }
            Some(port) => port,
            None => pick_port(&taken, &HashSet::new()).ok_or_else(|| {
                refuse("failed to allocate a HealthCheck NodePort: range is full".into())
            })?,
        };
        taken.insert(port);
        lease.ports.push(port);
        service["spec"]["healthCheckNodePort"] = port.into();
        Ok(())
    }

    fn allocate_ports(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        lease: &mut Lease,
    ) -> Result<(), Errors> {
        if !needs_node_ports(service) {
            return Ok(());
        }
        let had: HashSet<u16> = old
            .map(node_ports)
            .unwrap_or_default()
            .into_iter()
            .collect();
        let mut errors = Errors::default();
        let mut own: HashSet<u16> = had.clone();
        let mut taken = self.taken();
        let ports = ports_mut(service);
        for (index, port) in ports.enumerate() {
            let wanted = port["nodePort"].as_u64().unwrap_or(0);
            match wanted {
                0 => match pick_port(&taken, &own) {
                    Some(free) => {
                        taken.insert(free);
                        own.insert(free);
                        lease.ports.push(free);
                        port["nodePort"] = free.into();
                    }
                    None => port_error(
                        &mut errors,
                        index,
                        0,
                        "failed to allocate a nodePort: range is full",
                    ),
                },
                n => match u16::try_from(n).ok().filter(|p| NODE_PORTS.contains(p)) {
                    None => port_error(
                        &mut errors,
                        index,
                        n,
                        "provided port is not in the valid range. The range of valid ports is 30000-32767",
                    ),
                    Some(p) if own.contains(&p) => {}
                    Some(p) if taken.contains(&p) => {
                        port_error(&mut errors, index, n, "provided port is already allocated");
                    }
                    Some(p) => {
                        taken.insert(p);
                        own.insert(p);
                        lease.ports.push(p);
                    }
                },
            }
        }
        drop(taken);
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

fn addresses() -> &'static Resource {
    resources::find("networking.k8s.io", "v1", "ipaddresses").expect("in the table")
}

fn address_exists(api: &Api, ip: Ipv4Addr) -> bool {
    api.collection(addresses())
        .is_ok_and(|c| c.get(&ip.to_string()).is_some())
}

fn address_object(api: &Api, service: &Value, ip: Ipv4Addr) -> Value {
    json!({
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": ip.to_string(),
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": api.clock.seconds(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "group": "",
            "resource": "services",
            "namespace": service["metadata"]["namespace"],
            "name": service["metadata"]["name"],
        }},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_and_explicit_ones_checked() {
        let services = Services::new("10.0.0.0/24".parse().expect("a range"));
        let mut lease = Lease::default();
        let mut first = json!({"spec": {"type": "NodePort", "ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 80, "protocol": "UDP", "nodePort": 30080}, {"port": 81}]}});
        services
            .allocate_ports(&mut first, None, &mut lease)
            .expect("free");
        assert!(
            NODE_PORTS.contains(
                &u16::try_from(first["spec"]["ports"][2]["nodePort"].as_u64().expect("set"))
                    .expect("a port")
            )
        );
        let mut second = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}, {"port": 81, "nodePort": 80}]}});
        let errors = services
            .allocate_ports(&mut second, None, &mut Lease::default())
            .expect_err("taken");
        assert_eq!(
            errors.0[0].to_string(),
            "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
        );
        assert!(errors.0[1].message.contains("30000-32767"));
    }
}
