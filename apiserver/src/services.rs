//! Virtual IPs and node ports of services.
//!
//! A virtual IP belongs to the service whose `IPAddress` object bears its name: taking one is creating
//! that object, so two servers on one store cannot hand out the same address. Node ports are counted
//! in memory, from the services themselves.

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

/// The first and last node port (upstream's `--service-node-port-range`).
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// Ports kept for explicit requests until the rest is used up: min(max(16, size/32), 128).
const NODE_PORT_BAND: u16 = 86;

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

fn port_error(errors: &mut Errors, index: usize, value: u64, why: &str) {
    let spec = Path::root("spec");
    let ports = spec.child("ports");
    errors.invalid(&ports.index(index).child("nodePort"), &value.into(), why);
}

fn pick_port(taken: &HashSet<u16>, own: &HashSet<u16>) -> Option<u16> {
    let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
    let free = |p: &u16| !taken.contains(p) && !own.contains(p);
    (0..16)
        .map(|_| rand::random_range(first + NODE_PORT_BAND..=last))
        .chain(first + NODE_PORT_BAND..=last)
        .chain(first..first + NODE_PORT_BAND)
        .find(free)
}

// A headless service without a selector may have endpoints of both families, whatever the cluster has.
fn set_families(service: &mut Value, address: &str) {
    let selector = service["spec"].get("selector").and_then(Value::as_object);
    let open = address == "None" && selector.is_none_or(serde_json::Map::is_empty);
    let spec = &mut service["spec"];
    if open
        && spec.get("ipFamilyPolicy").is_none_or(Value::is_null)
        && spec.get("ipFamilies").is_none_or(Value::is_null)
    {
        spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
        spec["ipFamilyPolicy"] = "RequireDualStack".into();
        return;
    }
    if address != "None" || spec.get("ipFamilies").is_none_or(Value::is_null) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}

fn check_families(service: &Value) -> Result<(), Errors> {
    let mut errors = Errors::default();
    let spec = Path::root("spec");
    if service["spec"]["ipFamilyPolicy"] == "RequireDualStack" {
        let path = spec.child("ipFamilyPolicy");
        errors.invalid(
            &path,
            &"RequireDualStack".into(),
            "this cluster is not configured for dual-stack services",
        );
    }
    let families = service["spec"]["ipFamilies"]
        .as_array()
        .into_iter()
        .flatten();
    for (index, family) in families.enumerate() {
        if family != "IPv4" {
            let path = spec.child("ipFamilies");
            errors.invalid(&path.index(index), family, "not configured on this cluster");
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

// Upstream's patchAllocatedValues: an update that leaves allocated values out keeps them.
fn carry_allocated(new: &mut Value, old: &Value) {
    let external = |s: &Value| s["spec"]["type"] == "ExternalName";
    if external(new) {
        // A service that becomes an alias loses the address it had.
        if new["spec"].get("clusterIP") == old["spec"].get("clusterIP") {
            drop_addresses(new);
        }
        return;
    }
    if !external(old)
        && new["spec"]["clusterIP"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old["spec"].get(field) {
                new["spec"][field] = value.clone();
            }
        }
    }
    if !needs_node_ports(new) {
        drop_ports_of(new, old);
        return;
    }
    let same = |a: &Value, b: &Value| a["port"] == b["port"] && a["protocol"] == b["protocol"];
    for port in ports_mut(new) {
        if port["nodePort"].as_u64().unwrap_or(0) == 0
            && let Some(before) = old["spec"]["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|p| same(p, port))
            && before["nodePort"].as_u64().unwrap_or(0) != 0
        {
            port["nodePort"] = before["nodePort"].clone();
        }
    }
}

// A type that needs no node ports loses those it had, unless the client names new ones.
fn drop_ports_of(new: &mut Value, old: &Value) {
    let had = node_ports(old);
    for port in ports_mut(new) {
        let inherited = port["nodePort"]
            .as_u64()
            .and_then(|n| u16::try_from(n).ok())
            .is_some_and(|n| had.contains(&n));
        if let Some(port) = port.as_object_mut()
            && inherited
        {
            port.remove("nodePort");
        }
    }
}

fn drop_addresses(service: &mut Value) {
    if let Some(spec) = service["spec"].as_object_mut() {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
    }
}

fn needs_node_ports(service: &Value) -> bool {
    match service["spec"]["type"].as_str() {
        Some("NodePort") => true,
        Some("LoadBalancer") => {
            service["spec"]["allocateLoadBalancerNodePorts"].as_bool() != Some(false)
        }
        _ => false,
    }
}

// Not by index: that would make a null of ports that are not there.
fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    ports.into_iter().flatten()
}

fn needs_health_check_port(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

fn health_check_port(service: &Value) -> Option<u16> {
    let port = service["spec"]["healthCheckNodePort"].as_u64()?;
    u16::try_from(port).ok().filter(|p| *p != 0)
}

fn node_ports(service: &Value) -> Vec<u16> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|p| p["nodePort"].as_u64())
        .filter_map(|p| u16::try_from(p).ok())
        .filter(|p| *p != 0)
        .chain(health_check_port(service))
        .collect()
}

fn cluster_ips(service: &Value) -> Vec<Ipv4Addr> {
    let ips = service["spec"]["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten();
    ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
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

fn host_count(cidr: Ipv4Net) -> u32 {
    // Without the network and the broadcast address.
    (1u32 << (32 - u32::from(cidr.prefix_len()))).saturating_sub(2)
}

fn nth(cidr: Ipv4Net, offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(cidr.network()).saturating_add(offset))
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

    #[test]
    fn an_update_that_leaves_values_out_keeps_them() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30081}]}});
        let mut new =
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        carry_allocated(&mut new, &old);
        assert_eq!(new["spec"]["clusterIP"], "10.0.0.9");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30081);
        let mut plain = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30081}]}});
        carry_allocated(&mut plain, &old);
        assert!(plain["spec"]["ports"][0].get("nodePort").is_none());
    }
}
