//! Virtual IPs and node ports of services.
//!
//! A virtual IP belongs to the service whose `IPAddress` object bears its name: taking one is creating
//! that object, so two servers on one store cannot hand out the same address. Node ports: [`ports`]. There is a range of
//! addresses for one family or one for each; which of them a service has addresses of says [`families`].

mod families;
mod ports;
mod spec;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use kinds::field::{Errors, Path};
use kinds::resources::{self, Resource};
use serde_json::{Value, json};
use store::{Change, Expect, Written};

use crate::api::Api;
use crate::status::{ApiError, Result};
use families::{Family, family_of};
use spec::{carry_allocated, cluster_ips, host_count, node_ports, nth};

/// The allocator.
#[derive(Debug)]
pub(crate) struct Services {
    /// One of each family at most; the first one's is the family of services that do not say.
    ranges: Vec<IpNet>,
    /// Node ports that were taken and without an owner at the last audit.
    suspects: Mutex<HashSet<u16>>,
}

/// What one write took, to be given back if the write does not happen.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    ips: Vec<IpAddr>,
    ports: Vec<u16>,
}

fn is_service(resource: &Resource) -> bool {
    resource.gv.group.is_empty() && resource.kind == "Service"
}

impl Services {
    /// An allocator over a range of addresses, or one of each family.
    pub(crate) fn new(ranges: Vec<IpNet>) -> Services {
        Services {
            ranges,
            suspects: Mutex::default(),
        }
    }

    /// The first address of the first range, which belongs to the API server itself.
    pub(crate) fn first_ip(&self) -> Option<IpAddr> {
        self.ranges.first().map(|range| nth(*range, 1))
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &[IpNet] {
        &self.ranges
    }

    fn configured(&self) -> Vec<Family> {
        self.ranges
            .iter()
            .map(|range| family_of(range.addr()))
            .collect()
    }

    /// Brings the record of node ports and the services that exist together: at the start, and from
    /// time to time for the sake of servers that died between taking a port and using it.
    pub(crate) async fn audit(&self, api: &Api) -> Result<()> {
        let services = resources::find("", "v1", "services").expect("in the table");
        let listed = api.collection(services)?.objects("", None);
        let existing: Vec<Value> = listed.objects.iter().map(|(_, s)| s.value()).collect();
        let suspects = std::mem::take(&mut *self.suspects());
        let found = ports::audit(api, &existing, &suspects).await?;
        *self.suspects() = found;
        Ok(())
    }

    fn suspects(&self) -> MutexGuard<'_, HashSet<u16>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What validation must see: values an update leaves out are the present ones, and the two forms of
    /// the address agree (upstream's `patchAllocatedValues` and `normalizeClusterIPs`).
    pub(crate) fn prepare(&self, resource: &Resource, service: &mut Value, old: Option<&Value>) {
        if !is_service(resource) {
            return;
        }
        if let Some(old) = old {
            carry_allocated(service, old);
            families::trim_downgrade(service, old);
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
        let addressed = self
            .allocate_ip(api, service, old, dry_run, &mut lease)
            .await;
        let outcome = match addressed {
            Ok(()) => ports::allocate(api, service, old, dry_run).await,
            Err(errors) => {
                let name = service["metadata"]["name"].as_str().unwrap_or_default();
                Err(ApiError::invalid("", "Service", name, &errors))
            }
        };
        match outcome {
            Ok(ports) => Ok(Lease { ports, ..lease }),
            Err(error) => {
                self.give_back(api, lease).await;
                Err(error)
            }
        }
    }

    /// Gives back what a write that did not happen had taken.
    pub(crate) async fn give_back(&self, api: &Api, lease: Lease) {
        for ip in lease.ips {
            self.release_ip(api, ip).await;
        }
        if !lease.ports.is_empty() {
            ports::release(api, &lease.ports).await;
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
        let families = families::decide(service, old, &self.configured())?;
        if families::is_headless(service) {
            service["spec"]["clusterIP"] = "None".into();
            service["spec"]["clusterIPs"] = json!(["None"]);
            return Ok(());
        }
        let asked = spec::asked_ips(service);
        let had = old.map(cluster_ips).unwrap_or_default();
        let mut addresses = Vec::new();
        for (number, family) in families.into_iter().enumerate() {
            let address = match asked.get(number) {
                Some(text) if had.iter().any(|ip| ip.to_string() == *text) => text.clone(),
                Some(text) => {
                    let taken = self.take_named(api, service, text, dry_run, lease).await;
                    taken?.to_string()
                }
                None => {
                    let taken = self.take_any(api, service, family, dry_run, lease).await;
                    taken?.to_string()
                }
            };
            addresses.push(address);
        }
        service["spec"]["clusterIP"] = addresses.first().cloned().into();
        service["spec"]["clusterIPs"] = addresses.into();
        Ok(())
    }

    async fn take_named(
        &self,
        api: &Api,
        service: &Value,
        text: &str,
        dry_run: bool,
        lease: &mut Lease,
    ) -> Result<IpAddr, Errors> {
        let refuse = |why: &str| {
            let mut errors = Errors::default();
            let spec = Path::root("spec");
            errors.invalid(&spec.child("clusterIPs"), &json!([text]), why);
            errors
        };
        let ip = match text.parse::<IpAddr>() {
            Ok(ip) if self.ranges.iter().any(|range| range.contains(&ip)) => ip,
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
        family: Family,
        dry_run: bool,
        lease: &mut Lease,
    ) -> Result<IpAddr, Errors> {
        let mut ranges = self.ranges.iter();
        let range = ranges.find(|range| family_of(range.addr()) == family);
        let range = *range.expect("families that are decided on have a range");
        let hosts = host_count(range);
        let band = (hosts / 16).clamp(16, 256).min(hosts.saturating_sub(1));
        let random = (0..8).map(|_| rand::random_range(band..hosts) + 1);
        let in_turn = (band..hosts).chain(0..band).map(|offset| offset + 1);
        for offset in random.chain(in_turn) {
            let ip = nth(range, offset);
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

    async fn claim(&self, api: &Api, service: &Value, ip: IpAddr, dry_run: bool) -> Result<bool> {
        let collection = api.collection(addresses())?;
        let key = collection.key("", &ip.to_string());
        if dry_run {
            return Ok(api.store.get(&key).await?.is_none());
        }
        let object = crate::writing::boot::complete(api, addresses(), address_object(service, ip));
        let value = collection.form.encode(&object);
        let written = api
            .store
            .write(&key, Expect::Absent, Change::Put { value, ttl: None })
            .await?;
        Ok(matches!(written, Written::Done(_)))
    }

    async fn release_ip(&self, api: &Api, ip: IpAddr) {
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
}

fn addresses() -> &'static Arc<Resource> {
    resources::find("networking.k8s.io", "v1", "ipaddresses").expect("in the table")
}

fn address_exists(api: &Api, ip: IpAddr) -> bool {
    api.collection(addresses())
        .is_ok_and(|c| c.get(&ip.to_string()).is_some())
}

fn address_object(service: &Value, ip: IpAddr) -> Value {
    json!({
        "metadata": {
            "name": ip.to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family_of(ip).name(),
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
