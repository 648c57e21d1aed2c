//! Public addresses: which Service has which, who made it, and when it goes.
//!
//! An address with our tag was made here, and goes with the last Service that the tag names. One without is somebody
//! else's: it is used where a Service names it, and never tagged or deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use azure::models::{Dns, IpTag, PublicIp, Reference, Resource, Sku};

use super::Ground;
use super::names::Family;
use super::wish::Wish;

pub(crate) type Address = Resource<PublicIp>;

/// Services that use an address; what it was called before.
const SERVICES: [&str; 2] = ["k8s-azure-service", "service"];
/// The cluster that made it.
const CLUSTER: &str = "k8s-azure-cluster-name";
/// The Service whose name in DNS it has.
const DNS_OWNER: &str = "k8s-azure-dns-label-service";
/// What is no address of the Internet, though it does not look private: shared address space, and Azure itself.
const NOT_PUBLIC: [&str; 2] = ["100.64.0.0/10", "168.63.129.16/32"];

/// What is to be done about addresses.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// To be written before load balancers are.
    pub(crate) puts: Vec<Address>,
    /// To be deleted once no load balancer has them.
    pub(crate) deletes: Vec<String>,
    /// Ids by Service and family.
    pub(crate) chosen: BTreeMap<(String, Family), String>,
    /// What is wrong with Services.
    pub(crate) errors: BTreeMap<String, String>,
}

fn services(address: &Address) -> BTreeSet<String> {
    let tag = SERVICES.iter().find_map(|name| address.tags.get(*name));
    let words = tag.map_or("", String::as_str).split(',').map(str::trim);
    words.filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

fn set_services(address: &mut Address, services: &BTreeSet<String>) {
    let list: Vec<&str> = services.iter().map(String::as_str).collect();
    address.tags.remove(SERVICES[1]);
    address.tags.insert(SERVICES[0].into(), list.join(","));
}

/// Decides about all addresses at once.
pub(crate) fn plan(wishes: &[&Wish], present: &[Address], ground: &Ground<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut now: BTreeMap<String, Address> = present
        .iter()
        .map(|address| (address.id.to_lowercase(), address.clone()))
        .collect();
    for wish in wishes {
        if wish.leaving || wish.options.internal {
            continue;
        }
        // All of a Service's families or none.
        let found: Result<Vec<Choice>, String> = wish
            .families
            .iter()
            .map(|family| choose(wish, *family, &now, ground))
            .collect();
        match found {
            Ok(choices) => {
                for (family, choice) in wish.families.iter().zip(choices) {
                    let id = choice.apply(wish, *family, &mut now, ground);
                    plan.chosen.insert((wish.key.clone(), *family), id);
                }
            }
            Err(cause) => {
                plan.errors.insert(wish.key.clone(), cause);
            }
        }
    }
    release(wishes, &mut now, &mut plan, ground);
    for (id, address) in now {
        let before = present.iter().find(|one| one.id.eq_ignore_ascii_case(&id));
        if before != Some(&address) && !plan.deletes.contains(&address.id) {
            plan.puts.push(address);
        }
    }
    plan
}

/// The address of a Service.
enum Choice {
    /// One that it names, by the key it is known by.
    Named(String),
    /// One of its own, by its id; and the range it is from.
    Own(String, String),
}

/// The address of a Service: the one it names, or one of its own.
fn choose(
    wish: &Wish,
    family: Family,
    now: &BTreeMap<String, Address>,
    ground: &Ground<'_>,
) -> Result<Choice, String> {
    let group = wish.options.public_ip_group.as_deref().unwrap_or("");
    let place = ground.cloud.network(group);
    let id_of = |name: &str| place.resource("Microsoft.Network/publicIPAddresses", name);
    let named = match (
        wish.address(family),
        &wish.options.public_ip[family as usize],
    ) {
        (Some(wanted), _) => Some(by_address(wanted, now, &place.collection(""))?),
        (None, Some(name)) => Some(id_of(name).to_lowercase()),
        (None, None) => None,
    };
    let Some(id) = named else {
        let prefix = wish.options.prefix[family as usize]
            .clone()
            .unwrap_or_default();
        let id = id_of(&wish.names.public_ip(ground.cluster, &prefix, family));
        check_label(wish, now.get(&id.to_lowercase()))?;
        return Ok(Choice::Own(id, prefix));
    };
    let address = now.get(&id).ok_or_else(|| {
        let name = id.rsplit('/').next().unwrap_or_default();
        format!(
            "there is no public IP address {name} in resource group {}",
            place.group
        )
    })?;
    check_label(wish, Some(address))?;
    Ok(Choice::Named(id))
}

impl Choice {
    /// Gives the Service the address; its id.
    fn apply(
        self,
        wish: &Wish,
        family: Family,
        now: &mut BTreeMap<String, Address>,
        ground: &Ground<'_>,
    ) -> String {
        let (address, is_own) = match &self {
            Choice::Named(id) => (now.get_mut(id), false),
            Choice::Own(id, prefix) => {
                let own = now.entry(id.to_lowercase());
                let own = own.or_insert_with(|| made(id, family, prefix, ground));
                (Some(own), true)
            }
        };
        let address = address.expect("what was chosen is there");
        let mut users = services(address);
        let is_managed = is_own || !users.is_empty();
        if is_managed && users.insert(wish.key.clone()) {
            set_services(address, &users);
        }
        if is_own {
            address.tags.insert(CLUSTER.into(), ground.cluster.into());
            let extra = ground
                .cloud
                .all_tags()
                .into_iter()
                .chain(wish.options.tags.clone());
            address.tags.extend(extra);
            if !wish.options.ip_tags.is_empty() {
                address.properties.ip_tags = ip_tags(wish);
            }
        }
        set_label(wish, address, is_managed);
        address.id.clone()
    }
}

fn made(id: &str, family: Family, prefix: &str, ground: &Ground<'_>) -> Address {
    Address {
        id: id.to_owned(),
        name: id.rsplit('/').next().unwrap_or_default().to_owned(),
        location: ground.cloud.location.clone(),
        zones: ground.zones.to_vec(),
        sku: Sku {
            name: "Standard".into(),
            ..Sku::default()
        },
        properties: PublicIp {
            allocation: "Static".into(),
            version: family.name().into(),
            prefix: (!prefix.is_empty()).then(|| Reference { id: prefix.into() }),
            ..PublicIp::default()
        },
        ..Address::default()
    }
}

fn ip_tags(wish: &Wish) -> Vec<IpTag> {
    let all = wish.options.ip_tags.iter();
    all.map(|(kind, tag)| IpTag {
        kind: kind.clone(),
        tag: tag.clone(),
        ..IpTag::default()
    })
    .collect()
}

fn by_address(
    wanted: IpAddr,
    now: &BTreeMap<String, Address>,
    place: &str,
) -> Result<String, String> {
    let is_private = match wanted {
        IpAddr::V4(ip) => {
            let reserved = NOT_PUBLIC
                .iter()
                .filter_map(|net| net.parse::<ipnet::Ipv4Net>().ok());
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || reserved.into_iter().any(|net| net.contains(&ip))
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    if is_private {
        return Err(format!(
            "{wanted} is no public address, and the Service is not internal"
        ));
    }
    let place = place.to_lowercase();
    let found = now.iter().find(|(id, address)| {
        id.starts_with(&place) && address.properties.address.parse() == Ok(wanted)
    });
    let missing = || format!("no public IP address in the resource group is {wanted}");
    found.map(|(id, _)| id.clone()).ok_or_else(missing)
}

/// A name in DNS that another Service has is not taken from it.
fn check_label(wish: &Wish, address: Option<&Address>) -> Result<(), String> {
    let owner = address.and_then(|address| address.tags.get(DNS_OWNER));
    let owner = owner.filter(|owner| **owner != wish.key);
    match owner.filter(|_| wish.options.dns_label.is_some()) {
        Some(owner) => Err(format!(
            "its public IP address has its name in DNS from Service {owner}"
        )),
        None => Ok(()),
    }
}

/// The name in DNS that a Service asks for.
fn set_label(wish: &Wish, address: &mut Address, is_managed: bool) {
    match wish.options.dns_label.as_deref() {
        None => {}
        Some("") => {
            address.properties.dns = None;
            address.tags.remove(DNS_OWNER);
        }
        Some(label) => {
            let dns = address.properties.dns.get_or_insert_with(Dns::default);
            dns.label = label.to_owned();
            if is_managed {
                address.tags.insert(DNS_OWNER.into(), wish.key.clone());
            }
        }
    }
}

/// Takes Services off addresses that they do not use any more; an address without any goes.
fn release(
    wishes: &[&Wish],
    now: &mut BTreeMap<String, Address>,
    plan: &mut Plan,
    ground: &Ground<'_>,
) {
    for (id, address) in now.iter_mut() {
        let before = services(address);
        let cluster = address.tags.get(CLUSTER).map_or("", String::as_str);
        let is_ours = cluster.is_empty() || cluster.eq_ignore_ascii_case(ground.cluster);
        let uses = |wish: &&Wish| {
            let mine = plan.chosen.iter().filter(|((key, _), _)| *key == wish.key);
            mine.into_iter()
                .any(|(_, chosen)| chosen.eq_ignore_ascii_case(id))
        };
        let left: BTreeSet<String> = before
            .iter()
            .filter(|key| {
                // Who is not decided about keeps what it has.
                let wish = wishes.iter().find(|wish| wish.key == **key);
                wish.is_none_or(|wish| plan.errors.contains_key(&wish.key) || uses(wish))
            })
            .cloned()
            .collect();
        if left == before || !is_ours {
            continue;
        }
        let owner = address.tags.get(DNS_OWNER);
        if owner.is_some_and(|owner| before.contains(owner) && !left.contains(owner)) {
            address.tags.remove(DNS_OWNER);
            address.properties.dns = None;
        }
        match left.is_empty() {
            true => plan.deletes.push(address.id.clone()),
            false => set_services(address, &left),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::tests::ground;
    use super::super::wish::tests::wish;
    use super::*;
    use serde_json::json;

    fn ids(plan: &Plan) -> Vec<String> {
        let name = |id: &String| id.rsplit('/').next().unwrap().to_owned();
        plan.chosen.values().map(name).collect()
    }

    #[test]
    fn a_service_gets_an_address_of_its_own_and_gives_it_back() {
        let cloud = ground();
        let one = wish(
            1,
            json!({"azure-dns-label-name": "web", "azure-pip-tags": "a=b"}),
            json!({}),
        );
        let made = plan(&[&one], &[], &cloud.ground());
        assert_eq!(ids(&made), ["kubernetes-a0000000100000000000000000000000"]);
        let address = &made.puts[0];
        assert_eq!(address.tags["k8s-azure-service"], "default/s1");
        assert_eq!(address.tags["k8s-azure-cluster-name"], "kubernetes");
        assert_eq!(address.tags["a"], "b");
        assert_eq!(address.properties.dns.as_ref().unwrap().label, "web");
        let again = plan(&[&one], &made.puts, &cloud.ground());
        assert!(
            again.puts.is_empty() && again.deletes.is_empty(),
            "{again:?}"
        );
        let mut leaving = one.clone();
        leaving.leaving = true;
        let gone = plan(&[&leaving], &made.puts, &cloud.ground());
        assert_eq!(gone.deletes, std::slice::from_ref(&address.id));
        assert!(gone.puts.is_empty());
        let unknown = plan(&[], &made.puts, &cloud.ground());
        assert!(
            unknown.deletes.is_empty(),
            "who is not known is not touched"
        );
    }

    #[test]
    fn addresses_of_others_are_used_and_left() {
        let cloud = ground();
        let mut theirs = made(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/byo",
            Family::V4,
            "",
            &cloud.ground(),
        );
        theirs.properties.address = "20.0.0.9".into();
        let present = [theirs];
        let by_ip = wish(1, json!({}), json!({"loadBalancerIP": "20.0.0.9"}));
        let by_name = wish(2, json!({"azure-pip-name": "BYO"}), json!({}));
        let both = plan(&[&by_ip, &by_name], &present, &cloud.ground());
        assert_eq!(ids(&both), ["byo", "byo"]);
        assert!(both.puts.is_empty() && both.errors.is_empty());
        let mut leaving = by_ip.clone();
        leaving.leaving = true;
        assert!(
            plan(&[&leaving], &present, &cloud.ground())
                .deletes
                .is_empty()
        );
    }

    #[test]
    fn an_address_made_here_stays_until_the_last_service_goes() {
        let cloud = ground();
        let first = wish(1, json!({}), json!({}));
        let mut address = plan(&[&first], &[], &cloud.ground()).puts.remove(0);
        address.properties.address = "20.0.0.1".into();
        let second = wish(
            2,
            json!({"azure-load-balancer-ipv4": "20.0.0.1"}),
            json!({}),
        );
        let shared = plan(&[&first, &second], &[address], &cloud.ground());
        assert_eq!(
            shared.puts[0].tags["k8s-azure-service"],
            "default/s1,default/s2"
        );
        let mut gone = first.clone();
        gone.leaving = true;
        let left = plan(&[&gone, &second], &shared.puts, &cloud.ground());
        assert_eq!(left.puts[0].tags["k8s-azure-service"], "default/s2");
        assert!(left.deletes.is_empty());
    }

    #[test]
    fn what_cannot_be_is_said() {
        let cloud = ground();
        for (annotations, spec, word) in [
            (
                json!({}),
                json!({"loadBalancerIP": "10.0.0.1"}),
                "no public address",
            ),
            (
                json!({}),
                json!({"loadBalancerIP": "168.63.129.16"}),
                "no public address",
            ),
            (json!({}), json!({"loadBalancerIP": "20.0.0.1"}), "20.0.0.1"),
            (json!({"azure-pip-name": "none"}), json!({}), "none"),
        ] {
            let one = wish(1, annotations, spec);
            let made = plan(&[&one], &[], &cloud.ground());
            assert!(made.errors["default/s1"].contains(word), "{made:?}");
            assert!(made.puts.is_empty());
        }
        let first = wish(1, json!({"azure-dns-label-name": "x"}), json!({}));
        let mut address = plan(&[&first], &[], &cloud.ground()).puts.remove(0);
        address.properties.address = "20.0.0.1".into();
        let second = wish(
            2,
            json!({"azure-dns-label-name": "y"}),
            json!({"loadBalancerIP": "20.0.0.1"}),
        );
        let both = plan(&[&first, &second], &[address], &cloud.ground());
        assert!(both.errors["default/s2"].contains("default/s1"));
    }
}
