//! Which machines a cluster is to have: its pools, as its data directory keeps them in `pools.json`. Pure, but for that
//! file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::datadir::{DataDir, write_private};
use crate::exit::{Code, Failure, Result};

/// The pool of `az aks create`'s first nodes.
pub(crate) const FIRST: &str = "nodepool1";
/// How many addresses of a subnet Azure keeps for itself, the network's own not counted.
const KEPT: usize = 3;

/// The pools of a cluster, and where they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pools {
    /// The region that nodes say they are in.
    pub(crate) location: String,
    /// The resource group of the nodes, as the cloud calls it.
    pub(crate) group: String,
    /// Where nodes' addresses come from.
    pub(crate) subnet: Ipv4Net,
    pub(crate) pools: Vec<Pool>,
}

/// Machines of one sort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pool {
    pub(crate) name: String,
    /// Eight digits that tell its scale set from those of other clusters.
    pub(crate) id: String,
    pub(crate) vm_size: String,
    /// The zones that machines are spread over, in turn.
    pub(crate) zones: Vec<String>,
    /// `system` or `user`.
    pub(crate) mode: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<String>,
    pub(crate) max_pods: u16,
    pub(crate) machines: Vec<Machine>,
}

/// A machine of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Its number in the scale set; never used twice.
    pub(crate) number: u64,
    pub(crate) address: Ipv4Addr,
    /// What it was made of, where that is known: the first ones of `up` stay, whatever they were made of.
    #[serde(default)]
    pub(crate) made: Option<Made>,
}

/// What a machine is made of. One that is to be made of something else is made anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The version of Kubernetes, as its pool asks for it.
    pub(crate) version: String,
    /// The image, as AKS names images.
    pub(crate) image: String,
    /// How often the cluster's certificates were rotated when it was made.
    pub(crate) rotation: u64,
}

impl Machine {
    /// Whether it has to be made anew to be this one.
    pub(crate) fn is_stale(&self, wanted: &Machine) -> bool {
        self.made.is_some() && self.made != wanted.made
    }
}

impl Pool {
    /// The name of the node with this number, as a scale set counts: in base 36.
    pub(crate) fn node_name(&self, number: u64) -> String {
        let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let digit = |place: u32| digits[(number / 36u64.pow(place) % 36) as usize] as char;
        let suffix: String = (0..6).rev().map(digit).collect();
        format!("aks-{}-{}-vmss{suffix}", self.name, self.id)
    }

    /// The zone of the node with this number.
    pub(crate) fn zone(&self, number: u64) -> Option<&str> {
        let at = usize::try_from(number).unwrap_or(0) % self.zones.len().max(1);
        self.zones.get(at).map(String::as_str)
    }
}

impl Pools {
    /// The subnet of `az aks create`'s nodes.
    pub(crate) const SUBNET: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 224, 0, 0), 16);

    /// One pool of so many machines.
    pub(crate) fn simple(location: &str, group: String, first: Pool, count: u16) -> Pools {
        let mut pools = Pools {
            location: location.to_owned(),
            group,
            subnet: Pools::SUBNET,
            pools: vec![first],
        };
        pools.grow(count.into());
        pools
    }

    /// Gives the first pool machines until there are so many in all, as far as there are addresses.
    pub(crate) fn grow(&mut self, count: usize) {
        let there: Vec<&Machine> = self.machines().map(|(_, machine)| machine).collect();
        let taken: BTreeSet<Ipv4Addr> = there.iter().map(|machine| machine.address).collect();
        let missing = count.saturating_sub(there.len());
        let free = self.subnet.hosts().skip(KEPT);
        let free = free.filter(|address| !taken.contains(address));
        let Some(first) = self.pools.first_mut() else {
            return;
        };
        let numbers = first.machines.iter().map(|machine| machine.number);
        let next = numbers.max().map_or(0, |number| number + 1);
        let added = (next..).zip(free.take(missing));
        let added = added.map(|(number, address)| Machine {
            number,
            address,
            made: None,
        });
        first.machines.extend(added.collect::<Vec<_>>());
    }

    /// Every machine with its pool.
    pub(crate) fn machines(&self) -> impl Iterator<Item = (&Pool, &Machine)> {
        let of_pool = |pool| std::iter::repeat(pool);
        let pools = self.pools.iter();
        pools.flat_map(move |pool| of_pool(pool).zip(&pool.machines))
    }

    /// The machine of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&Machine> {
        let mut all = self.machines();
        all.find(|(pool, machine)| pool.node_name(machine.number) == name)
            .map(|(_, machine)| machine)
    }

    /// Every machine, to be changed; with its name.
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = (String, &mut Machine)> {
        self.pools.iter_mut().flat_map(|pool| {
            let names: Vec<String> = pool
                .machines
                .iter()
                .map(|m| pool.node_name(m.number))
                .collect();
            names.into_iter().zip(&mut pool.machines)
        })
    }

    /// Takes machines out, by their names.
    pub(crate) fn forget(&mut self, names: &[String]) {
        for pool in &mut self.pools {
            let its: Vec<u64> = (pool.machines.iter().map(|m| m.number))
                .filter(|number| names.contains(&pool.node_name(*number)))
                .collect();
            pool.machines.retain(|m| !its.contains(&m.number));
        }
    }

    /// The names of all nodes.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.machines();
        all.map(|(pool, machine)| pool.node_name(machine.number))
            .collect()
    }

    /// What a data directory keeps, if it does.
    pub(crate) fn read(dir: &DataDir) -> Result<Option<Pools>> {
        let path = dir.pools();
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Ok(None);
        };
        serde_json::from_str(&text).map(Some).map_err(|e| {
            let what = format!("`{}` cannot be read: {e}", path.display());
            Failure::new(Code::Failure, what).hint("remove it, and say --nodes")
        })
    }

    pub(crate) fn write(&self, dir: &DataDir) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("pools are plain data");
        write_private(&dir.pools(), text.as_bytes())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pool() -> Pool {
        Pool {
            name: FIRST.into(),
            id: "12345678".into(),
            vm_size: "Standard_D2s_v5".into(),
            zones: vec!["1".into(), "2".into()],
            mode: "system".into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            max_pods: 110,
            machines: Vec::new(),
        }
    }

    #[test]
    fn nodes_are_named_as_scale_sets_count_and_spread_over_the_zones() {
        let pool = pool();
        for (number, name, zone) in [
            (0, "aks-nodepool1-12345678-vmss000000", "1"),
            (1, "aks-nodepool1-12345678-vmss000001", "2"),
            (10, "aks-nodepool1-12345678-vmss00000a", "1"),
        ] {
            assert_eq!(pool.node_name(number), name);
            assert_eq!(pool.zone(number), Some(zone));
        }
        let nowhere = Pool {
            zones: Vec::new(),
            ..pool
        };
        assert_eq!(nowhere.zone(3), None);
    }

    #[test]
    fn the_first_machines_have_the_first_addresses_that_azure_gives() {
        let pools = Pools::simple("local", "MC_a_a_local".into(), pool(), 2);
        let addresses: Vec<String> = pools
            .machines()
            .map(|(_, m)| m.address.to_string())
            .collect();
        assert_eq!(addresses, ["10.224.0.4", "10.224.0.5"]);
    }

    #[test]
    fn pools_that_grow_keep_their_machines_and_take_free_addresses() {
        let mut pools = Pools::simple("local", "MC_a_a_local".into(), pool(), 3);
        pools.pools[0].machines.remove(1);
        pools.grow(1);
        pools.grow(4);
        let machines = pools
            .machines()
            .map(|(_, m)| (m.number, m.address.octets()[3]));
        assert_eq!(
            machines.collect::<Vec<_>>(),
            [(0, 4), (2, 6), (3, 5), (4, 7)]
        );
    }
}
