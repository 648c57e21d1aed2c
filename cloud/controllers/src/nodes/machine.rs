//! What a machine is to Kubernetes: an id, a size, a place, addresses, and whether it runs. Pure.

use std::net::IpAddr;

use azure::id::MachineId;
use azure::imds;
use azure::models::{Card, Machine, Resource};

/// What a node gets from its machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Metadata {
    pub(crate) provider_id: String,
    pub(crate) instance_type: String,
    pub(crate) region: String,
    pub(crate) zone: String,
    /// Types and addresses, in the order they are shown in.
    pub(crate) addresses: Vec<(String, String)>,
    /// Labels of Azure's own.
    pub(crate) labels: Vec<(String, String)>,
}

/// What the cloud says of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// There is none, or it is being deleted.
    Gone,
    /// It was stopped, by a person or by Azure.
    Stopped,
    /// Anything else.
    There,
}

/// The state of a machine that was found.
pub(crate) fn state(machine: &Machine) -> State {
    if machine.state.eq_ignore_ascii_case("Deleting") {
        return State::Gone;
    }
    let is_settled = machine.state.eq_ignore_ascii_case("Succeeded");
    match is_settled && is_off(power(machine)) {
        true => State::Stopped,
        false => State::There,
    }
}

fn is_off(power: &str) -> bool {
    ["stopped", "deallocated", "deallocating"].contains(&power)
}

/// What is said of its power, such as `running`; `unknown` where nothing is.
pub(crate) fn power(machine: &Machine) -> &str {
    let statuses = machine.view.iter().flat_map(|view| &view.statuses);
    let mut power = statuses.filter_map(|status| status.code.strip_prefix("PowerState/"));
    power.next().unwrap_or("unknown")
}

/// Whether a machine may be written: one that is going or off is left alone.
pub(crate) fn is_active(machine: &Machine) -> bool {
    let is_going = ["Deleting", "Unknown"]
        .iter()
        .any(|state| machine.state.eq_ignore_ascii_case(state));
    // Without a view nothing is known of its power, which is no reason to leave it out.
    let power = machine.view.as_ref().map(|_| power(machine));
    !is_going && !power.is_some_and(|power| is_off(power) || power == "stopping")
}

/// A zone as labels have it: `eastus-1`, or the number of the fault domain where there are no zones.
fn zone(machine: &Resource<Machine>, region: &str, is_instance: bool) -> Result<String, String> {
    if let Some(zone) = machine.zones.first() {
        return Ok(format!("{region}-{zone}"));
    }
    let view = machine.properties.view.as_ref();
    match view.map(|view| view.fault_domain) {
        Some(domain) => Ok(domain.unwrap_or(0).to_string()),
        None if is_instance => Err(format!("nothing is known of what {} does", machine.id)),
        None => Ok("0".into()),
    }
}

/// What a node gets from what Resource Manager says. `publics` are public addresses by their ids.
pub(crate) fn metadata(
    id: &MachineId,
    machine: &Resource<Machine>,
    cards: &[Resource<Card>],
    publics: &[(String, String)],
) -> Result<Metadata, String> {
    let is_instance = matches!(id, MachineId::Instance { .. });
    let region = machine.location.to_lowercase();
    let size = match is_instance {
        true => &machine.sku.name,
        false => &machine.properties.hardware.size,
    };
    Ok(Metadata {
        provider_id: id.provider_id(),
        instance_type: size.clone(),
        zone: zone(machine, &region, is_instance)?,
        region,
        addresses: addresses(machine, cards, publics)?,
        labels: Vec::new(),
    })
}

fn addresses(
    machine: &Resource<Machine>,
    cards: &[Resource<Card>],
    publics: &[(String, String)],
) -> Result<Vec<(String, String)>, String> {
    let first = |card: &&Resource<Card>| card.properties.primary == Some(true);
    let card = cards.iter().find(first).or(cards.first());
    let card = card.ok_or_else(|| format!("{} has no network card", machine.id))?;
    let configurations = &card.properties.addresses;
    let mut found: Vec<(String, String)> = configurations
        .iter()
        .map(|one| one.text("/privateIPAddress"))
        .filter(|address| !address.is_empty())
        .map(|address| ("InternalIP".to_owned(), address.to_owned()))
        .collect();
    let host = machine.properties.system.name.to_lowercase();
    if !host.is_empty() {
        found.push(("Hostname".into(), host));
    }
    let primary = configurations
        .iter()
        .find(|one| one.properties["primary"] == true)
        .or(configurations.first());
    let id = primary.map_or("", |one| one.text("/publicIPAddress/id"));
    let public = publics
        .iter()
        .find(|(own, _)| !id.is_empty() && azure::id::same(own, id));
    found.extend(public.map(|(_, address)| ("ExternalIP".to_owned(), address.clone())));
    Ok(found)
}

/// What a node gets from its own metadata service; `balanced` are public addresses of load balancers, each with the
/// address it leads to.
pub(crate) fn of_metadata_service(
    instance: &imds::Instance,
    host: &str,
    balanced: &[(IpAddr, IpAddr)],
) -> Result<Metadata, String> {
    let compute = &instance.compute;
    let id = MachineId::of_resource(&compute.resource_id).ok_or_else(|| {
        format!(
            "the metadata service names no machine: `{}`",
            compute.resource_id
        )
    })?;
    let region = compute.location.to_lowercase();
    let zone = match compute.zone.as_str() {
        "" => compute.platform_fault_domain.clone(),
        zone => format!("{region}-{zone}"),
    };
    let mut labels = Vec::new();
    if !compute.platform_sub_fault_domain.is_empty() {
        let label = "topology.kubernetes.azure.com/sub-fault-domain";
        labels.push((label.into(), compute.platform_sub_fault_domain.clone()));
    }
    let group = |tag: &&imds::Tag| tag.name == "Platform_Interconnect_Group";
    if let Some(tag) = compute.tags_list.iter().find(group) {
        let label = "topology.kubernetes.azure.com/interconnect-group";
        labels.push((label.into(), tag.value.clone()));
    }
    Ok(Metadata {
        // The subscription is in lower case here, and here only.
        provider_id: lower_subscription(&id).provider_id(),
        instance_type: compute.vm_size.clone(),
        region,
        zone,
        addresses: own_addresses(instance, host, balanced)?,
        labels,
    })
}

fn lower_subscription(id: &MachineId) -> MachineId {
    let mut id = id.clone();
    let (MachineId::Vm { subscription, .. } | MachineId::Instance { subscription, .. }) = &mut id;
    subscription.make_ascii_lowercase();
    id
}

fn own_addresses(
    instance: &imds::Instance,
    host: &str,
    balanced: &[(IpAddr, IpAddr)],
) -> Result<Vec<(String, String)>, String> {
    let card = instance.network.interface.first();
    let card = card.ok_or("the metadata service knows no network card")?;
    let mut found = vec![("Hostname".to_owned(), host.to_owned())];
    for family in [&card.ipv4, &card.ipv6] {
        for pair in &family.ip_address {
            let own = &pair.private_ip_address;
            if own.is_empty() {
                continue;
            }
            found.push(("InternalIP".into(), own.clone()));
            let to_us = |(_, to): &&(IpAddr, IpAddr)| own.parse() == Ok(*to);
            let public = match pair.public_ip_address.as_str() {
                "" => balanced
                    .iter()
                    .find(to_us)
                    .map(|(from, _)| from.to_string()),
                own => Some(own.to_owned()),
            };
            found.extend(public.map(|address| ("ExternalIP".to_owned(), address)));
        }
    }
    Ok(found)
}

/// Whether a machine has a public address of its own, so that nobody need ask for load balancers.
pub(crate) fn has_public_address(instance: &imds::Instance) -> bool {
    let cards = instance.network.interface.iter();
    let mut pairs = cards.flat_map(|card| card.ipv4.ip_address.iter().chain(&card.ipv6.ip_address));
    pairs.any(|pair| !pair.public_ip_address.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, json};

    const AT: &str = "/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute";

    fn machine(value: Value) -> Resource<Machine> {
        serde_json::from_value(value).unwrap()
    }

    fn view(power: &str) -> Value {
        json!({"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": format!("PowerState/{power}")}]})
    }

    #[test]
    fn states_of_machines() {
        let cases = [
            ("Succeeded", "running", State::There, true),
            ("Succeeded", "stopped", State::Stopped, false),
            ("Succeeded", "deallocated", State::Stopped, false),
            ("Succeeded", "deallocating", State::Stopped, false),
            ("Succeeded", "stopping", State::There, false),
            ("Updating", "stopped", State::There, false),
            ("Failed", "running", State::There, true),
            ("Deleting", "running", State::Gone, false),
        ];
        for (provisioning, power, expected, active) in cases {
            let one = machine(
                json!({"properties": {"provisioningState": provisioning, "instanceView": view(power)}}),
            );
            assert_eq!(state(&one.properties), expected, "{provisioning} {power}");
            assert_eq!(is_active(&one.properties), active, "{provisioning} {power}");
        }
        let unknown = machine(json!({"properties": {"provisioningState": "Succeeded"}}));
        assert_eq!(state(&unknown.properties), State::There);
    }

    #[test]
    fn a_machine_of_a_set_with_everything() {
        let id = MachineId::of_resource(&format!(
            "{AT}/virtualMachineScaleSets/np/virtualMachines/3"
        ))
        .unwrap();
        let one = machine(
            json!({"id": id.resource(), "location": "EastUS", "zones": ["2"], "sku": {"name": "Standard_D2s_v5"},
            "properties": {"osProfile": {"computerName": "NP000003"}, "hardwareProfile": {"vmSize": "ignored"}}}),
        );
        let cards: Vec<Resource<Card>> = serde_json::from_value(json!([
            {"name": "second", "properties": {"ipConfigurations": [{"name": "c", "properties": {"privateIPAddress": "10.9.9.9"}}]}},
            {"name": "first", "properties": {"primary": true, "ipConfigurations": [
                {"name": "c", "properties": {"primary": true, "privateIPAddress": "10.0.0.4", "publicIPAddress": {"id": "/P"}}},
                {"name": "d", "properties": {"privateIPAddress": "fd00::4"}}]}},
        ])).unwrap();
        let got = metadata(&id, &one, &cards, &[("/p".into(), "20.0.0.1".into())]).unwrap();
        assert_eq!(got.provider_id, format!("azure://{}", id.resource()));
        assert!(got.provider_id.contains("/resourceGroups/g/"));
        assert_eq!(
            (got.instance_type.as_str(), got.zone.as_str()),
            ("Standard_D2s_v5", "eastus-2")
        );
        let expected = [
            ("InternalIP", "10.0.0.4"),
            ("InternalIP", "fd00::4"),
            ("Hostname", "np000003"),
            ("ExternalIP", "20.0.0.1"),
        ];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(got.addresses, expected);
        assert!(metadata(&id, &one, &[], &[]).is_err());
    }

    #[test]
    fn without_zones_the_fault_domain_counts() {
        let domain = |view: Value| machine(json!({"properties": {"instanceView": view}}));
        let with = domain(json!({"platformFaultDomain": 2}));
        assert_eq!(zone(&with, "eastus", true), Ok("2".into()));
        let without = domain(Value::Null);
        assert_eq!(zone(&without, "eastus", false), Ok("0".into()));
        assert!(zone(&without, "eastus", true).is_err());
    }

    #[test]
    fn a_machine_tells_of_itself() {
        let instance: imds::Instance = serde_json::from_value(json!({
            "compute": {"location": "EastUS", "zone": "", "platformFaultDomain": "1", "vmSize": "D2",
                "platformSubFaultDomain": "7", "tagsList": [{"name": "Platform_Interconnect_Group", "value": "i"}],
                "resourceId": "/subscriptions/ABC/resourceGroups/MC_rg/providers/Microsoft.Compute/virtualMachines/mc_rg-vm"},
            "network": {"interface": [{"ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.5", "publicIpAddress": ""}]},
                "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::5"}]}}]}})).unwrap();
        let balanced = [("20.0.0.9".parse().unwrap(), "10.0.0.5".parse().unwrap())];
        let got = of_metadata_service(&instance, "host", &balanced).unwrap();
        let id = "azure:///subscriptions/abc/resourceGroups/mc_rg/providers/Microsoft.Compute/virtualMachines/mc_rg-vm";
        assert_eq!(got.provider_id, id);
        assert_eq!((got.zone.as_str(), got.labels.len()), ("1", 2));
        let kinds: Vec<&str> = got
            .addresses
            .iter()
            .map(|(_, address)| address.as_str())
            .collect();
        assert_eq!(kinds, ["host", "10.0.0.5", "20.0.0.9", "fd00::5"]);
        assert!(of_metadata_service(&imds::Instance::default(), "host", &[]).is_err());
    }
}
