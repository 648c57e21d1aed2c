//! Brings Azure to what all Services ask for: reads what is not known, decides, writes what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use azure::id::ResourceId;
use azure::models::{Resource, SecurityGroup, Subnet};
use azure::{Arm, CloudConfig, Error};
use futures::{StreamExt as _, stream};
use ipnet::IpNet;
use serde_json::Value;
use tokio::time::Instant;

use super::Ground;
use super::addresses::{self, Address};
use super::balancer::{self, Act, Balancer, Question};
use super::members::Members;
use super::names::Family;
use super::pools::is_eligible;
use super::security;
use super::wish::Wish;
use crate::nodes::NodeView;
use crate::nodes::instances::Instances;

/// How many addresses are written at once.
const AT_ONCE: usize = 16;
const ADDRESSES: &str = "Microsoft.Network/publicIPAddresses";

/// Azure as it was last seen.
#[derive(Default)]
struct Known {
    at: Option<Instant>,
    /// By whether it is internal.
    balancers: BTreeMap<bool, Balancer>,
    addresses: Vec<Address>,
    /// Groups whose addresses were read.
    groups: BTreeSet<String>,
    security: Option<Resource<SecurityGroup>>,
    subnets: BTreeMap<String, Vec<IpNet>>,
}

/// How it went with each Service.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What is wrong with Services.
    pub(crate) errors: BTreeMap<String, String>,
    /// Services that were written about.
    pub(crate) touched: BTreeSet<String>,
    /// Addresses of Services that have what they ask for.
    pub(crate) ready: BTreeMap<String, Vec<IpAddr>>,
    /// Ranges that could not be read, by Service.
    pub(crate) invalid_ranges: BTreeMap<String, Vec<String>>,
}

/// Writes load balancers and what belongs to them.
pub(crate) struct Writer {
    arm: Arm,
    cloud: Arc<CloudConfig>,
    cluster: String,
    members: Members,
    known: Known,
    /// The region's zones, once they were read.
    zones: Option<Vec<String>>,
}

/// What was decided about one load balancer, as far as it could be written.
struct Written {
    balancer: Option<Balancer>,
    deletes: bool,
    frontends: BTreeMap<(String, Family), String>,
}

impl Writer {
    pub(crate) fn new(instances: Arc<Instances>, cloud: Arc<CloudConfig>, cluster: &str) -> Writer {
        Writer {
            arm: instances.arm.clone(),
            cloud,
            cluster: cluster.to_owned(),
            members: Members::new(instances),
            known: Known::default(),
            zones: None,
        }
    }

    /// What is known may be old: somebody else wrote.
    pub(crate) fn forget(&mut self) {
        self.known = Known::default();
        self.members.forget();
    }

    /// Brings Azure to what these Services ask for, the oldest first. `kept` are addresses of Services that cannot be
    /// read: what they have stays.
    pub(crate) async fn sync(
        &mut self,
        wishes: &[Wish],
        nodes: &[Arc<NodeView>],
        kept: &[IpAddr],
    ) -> Result<Outcome, Error> {
        self.read(wishes).await?;
        let mut outcome = Outcome::default();
        for wish in wishes
            .iter()
            .filter(|wish| wish.options.internal && !wish.leaving)
        {
            let name = wish
                .options
                .subnet
                .as_ref()
                .unwrap_or(&self.cloud.subnet_name);
            if !self.known.subnets.contains_key(name) {
                let cause = format!(
                    "there is no subnet `{name}` in the network {}",
                    self.cloud.vnet_name
                );
                outcome.errors.insert(wish.key.clone(), cause);
            }
        }
        let (chosen, doomed) = self.write_addresses(wishes, &mut outcome).await?;
        let external = self
            .write_balancer(false, wishes, &chosen, &mut outcome)
            .await?;
        let internal = self
            .write_balancer(true, wishes, &chosen, &mut outcome)
            .await?;
        let written = [(false, external), (true, internal)];
        self.write_members(&written, nodes).await?;
        for (is_internal, one) in &written {
            if one.deletes {
                self.delete_balancer(*is_internal).await?;
            }
        }
        let ready = self.ready(wishes, &written, &chosen, &outcome);
        self.write_security(wishes, &ready, nodes, kept, &mut outcome)
            .await?;
        for id in doomed {
            self.arm.delete(&id).await?;
            self.known.addresses.retain(|address| address.id != id);
        }
        outcome.ready = ready;
        Ok(outcome)
    }

    fn ground<'a>(&'a self, zones: &'a [String]) -> Ground<'a> {
        Ground {
            cloud: &self.cloud,
            cluster: &self.cluster,
            zones,
            subnets: &self.known.subnets,
        }
    }

    fn zones(&self) -> Vec<String> {
        self.zones.clone().unwrap_or_default()
    }

    /// Reads what is not known, or was read too long ago.
    async fn read(&mut self, wishes: &[Wish]) -> Result<(), Error> {
        let oldest = Duration::from_secs(self.cloud.load_balancer_cache_ttl_in_seconds);
        let is_fresh = self.known.at.is_some_and(|at| at.elapsed() < oldest);
        if !is_fresh || self.cloud.disable_api_call_cache {
            self.read_anew().await?;
        }
        let mut groups: BTreeSet<String> = wishes
            .iter()
            .filter_map(|wish| wish.options.public_ip_group.clone())
            .collect();
        groups.insert(self.cloud.resource_group.clone());
        // A Service may have asked for another group before: its address tells.
        for frontend in self
            .known
            .balancers
            .values()
            .flat_map(|own| &own.properties.frontends)
        {
            let id = ResourceId::parse(frontend.text("/publicIPAddress/id"));
            groups.extend(id.map(|id| id.group));
        }
        for group in groups {
            if self.known.groups.insert(group.to_lowercase()) {
                let place = self.cloud.network(&group);
                let found: Vec<Address> = self.arm.list(&place.collection(ADDRESSES), "").await?;
                self.known.addresses.extend(found);
            }
        }
        for wish in wishes
            .iter()
            .filter(|wish| wish.options.internal && !wish.leaving)
        {
            let name = wish
                .options
                .subnet
                .clone()
                .unwrap_or_else(|| self.cloud.subnet_name.clone());
            if !self.known.subnets.contains_key(&name) {
                self.read_subnet(name).await?;
            }
        }
        Ok(())
    }

    async fn read_anew(&mut self) -> Result<(), Error> {
        if self.zones.is_none() {
            self.zones = Some(read_zones(&self.arm, &self.cloud).await?);
        }
        let asked = Instant::now();
        let mut known = Known::default();
        let place = self.cloud.network(&self.cloud.load_balancer_resource_group);
        let path = place.collection("Microsoft.Network/loadBalancers");
        let all: Vec<Balancer> = self.arm.list(&path, "").await?;
        for internal in [false, true] {
            let id = self.ground(&[]).balancer_id(internal);
            let own = all.iter().find(|one| azure::id::same(&one.id, &id));
            known
                .balancers
                .extend(own.map(|own| (internal, own.clone())));
        }
        if let Some(id) = self.cloud.security_group() {
            known.security = self.arm.get(&id, "").await?;
        }
        known.at = Some(asked);
        self.known = known;
        Ok(())
    }

    async fn read_subnet(&mut self, name: String) -> Result<(), Error> {
        let id = self.ground(&[]).subnet_id(Some(&name));
        if let Some(subnet) = self.arm.get::<Resource<Subnet>>(&id, "").await? {
            let texts = subnet
                .properties
                .prefixes
                .iter()
                .chain([&subnet.properties.prefix]);
            let nets = texts.filter_map(|text| text.parse().ok()).collect();
            self.known.subnets.insert(name, nets);
        }
        Ok(())
    }

    /// Writes public addresses; gives which Service has which, and those that go in the end.
    async fn write_addresses(
        &mut self,
        wishes: &[Wish],
        outcome: &mut Outcome,
    ) -> Result<(BTreeMap<(String, Family), String>, Vec<String>), Error> {
        let zones = self.zones();
        let acting: Vec<&Wish> = wishes
            .iter()
            .filter(|w| !outcome.errors.contains_key(&w.key))
            .collect();
        let mut plan = addresses::plan(&acting, &self.known.addresses, &self.ground(&zones));
        outcome.errors.append(&mut plan.errors);
        let arm = &self.arm;
        let written: Vec<(String, Result<Address, Error>)> = stream::iter(plan.puts)
            .map(|address| async move {
                let put = arm
                    .put::<_, Address>(&address.id, &address, &address.etag)
                    .await;
                (address.id, put)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (id, put) in written {
            match put {
                Ok(now) => {
                    self.known
                        .addresses
                        .retain(|one| !azure::id::same(&one.id, &id));
                    self.known.addresses.push(now);
                }
                // One that cannot be made is the trouble of those who asked for it.
                Err(error) if error.is_permanent() => {
                    let users = plan
                        .chosen
                        .iter()
                        .filter(|(_, chosen)| azure::id::same(chosen, &id));
                    for ((key, _), _) in users {
                        outcome.errors.insert(key.clone(), error.to_string());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok((plan.chosen, plan.deletes))
    }

    /// Writes a load balancer. What Azure refuses is tried again by halves, until it is known whose wish it refuses:
    /// nobody waits for somebody else's mistake.
    async fn write_balancer(
        &mut self,
        internal: bool,
        wishes: &[Wish],
        chosen: &BTreeMap<(String, Family), String>,
        outcome: &mut Outcome,
    ) -> Result<Written, Error> {
        let zones = self.zones();
        let mut present = self.known.balancers.get(&internal).cloned();
        let id = self.ground(&zones).balancer_id(internal);
        let mut sets: Vec<BTreeSet<String>> =
            vec![wishes.iter().map(|wish| wish.key.clone()).collect()];
        let mut last = None;
        while let Some(set) = sets.pop() {
            let acting: Vec<&Wish> = wishes
                .iter()
                .filter(|wish| set.contains(&wish.key) && !outcome.errors.contains_key(&wish.key))
                .collect();
            let plan = balancer::plan(&Question {
                ground: &self.ground(&zones),
                internal,
                wishes: &acting,
                addresses: chosen,
                present: present.as_ref(),
            });
            outcome.errors.extend(plan.errors.clone());
            let Act::Put(body) = &plan.act else {
                outcome.touched.extend(plan.touched.clone());
                last = Some(plan);
                continue;
            };
            match self.arm.put::<_, Balancer>(&id, body, &body.etag).await {
                Ok(now) => {
                    outcome.touched.extend(plan.touched.clone());
                    present = Some(now);
                    last = Some(plan);
                }
                Err(error) if error.is_permanent() && !plan.touched.is_empty() => {
                    match plan.touched.len() {
                        1 => {
                            let keys = plan.touched.iter().cloned();
                            outcome
                                .errors
                                .extend(keys.map(|key| (key, error.to_string())));
                        }
                        many => {
                            let keys: Vec<String> = plan.touched.iter().cloned().collect();
                            let (one, other) = keys.split_at(many / 2);
                            sets.extend([one, other].map(|half| half.iter().cloned().collect()));
                        }
                    }
                    // What was tried by halves is seen together in the end.
                    last = None;
                }
                Err(error) => return Err(error),
            }
        }
        let plan = match last {
            Some(plan) => plan,
            None => self.settled(internal, wishes, chosen, present.as_ref(), outcome),
        };
        if let Some(now) = &present {
            self.known.balancers.insert(internal, now.clone());
        }
        Ok(Written {
            deletes: plan.act == Act::Delete,
            frontends: plan.frontends,
            balancer: present,
        })
    }

    fn settled(
        &self,
        internal: bool,
        wishes: &[Wish],
        chosen: &BTreeMap<(String, Family), String>,
        present: Option<&Balancer>,
        outcome: &Outcome,
    ) -> balancer::Plan {
        let zones = self.zones();
        let acting: Vec<&Wish> = wishes
            .iter()
            .filter(|w| !outcome.errors.contains_key(&w.key))
            .collect();
        balancer::plan(&Question {
            ground: &self.ground(&zones),
            internal,
            wishes: &acting,
            addresses: chosen,
            present,
        })
    }

    /// Puts nodes behind what stays; machines leave the pools of a load balancer before it goes.
    async fn write_members(
        &mut self,
        written: &[(bool, Written)],
        nodes: &[Arc<NodeView>],
    ) -> Result<(), Error> {
        let staying: Vec<(bool, Balancer)> = written
            .iter()
            .filter(|(_, one)| !one.deletes)
            .filter_map(|(internal, one)| Some((*internal, one.balancer.clone()?)))
            .collect();
        let ground = Ground {
            cloud: &self.cloud,
            cluster: &self.cluster,
            zones: &[],
            subnets: &self.known.subnets,
        };
        let wrote = self.members.sync(&ground, &staying, nodes).await;
        // A pool is a part of its load balancer, which has another mark now.
        if wrote.as_ref().is_ok_and(|wrote| *wrote) {
            self.known.at = None;
        }
        wrote.map(drop)
    }

    async fn delete_balancer(&mut self, internal: bool) -> Result<(), Error> {
        let id = self.ground(&[]).balancer_id(internal);
        self.arm.delete(&id).await?;
        self.known.balancers.remove(&internal);
        Ok(())
    }

    /// The addresses of Services that have what they asked for.
    fn ready(
        &self,
        wishes: &[Wish],
        written: &[(bool, Written)],
        chosen: &BTreeMap<(String, Family), String>,
        outcome: &Outcome,
    ) -> BTreeMap<String, Vec<IpAddr>> {
        let live = wishes
            .iter()
            .filter(|w| !w.leaving && !outcome.errors.contains_key(&w.key));
        let address = |wish: &Wish, family: Family| -> Option<IpAddr> {
            let key = (wish.key.clone(), family);
            if let Some(id) = chosen.get(&key) {
                let found = self
                    .known
                    .addresses
                    .iter()
                    .find(|one| azure::id::same(&one.id, id));
                return found?.properties.address.parse().ok();
            }
            let (_, own) = written.iter().find(|(internal, _)| *internal)?;
            let name = own.frontends.get(&key)?;
            let parts = &own.balancer.as_ref()?.properties.frontends;
            let part = parts
                .iter()
                .find(|part| part.name.eq_ignore_ascii_case(name))?;
            part.text("/privateIPAddress").parse().ok()
        };
        let all = |wish: &Wish| -> Vec<IpAddr> {
            let own = wish
                .families
                .iter()
                .filter_map(|family| address(wish, *family));
            own.collect()
        };
        live.map(|wish| (wish.key.clone(), all(wish)))
            .filter(|(_, addresses)| !addresses.is_empty())
            .collect()
    }

    async fn write_security(
        &mut self,
        wishes: &[Wish],
        ready: &BTreeMap<String, Vec<IpAddr>>,
        nodes: &[Arc<NodeView>],
        kept: &[IpAddr],
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let Some(mut group) = self.known.security.clone() else {
            return Ok(());
        };
        let eligible = nodes.iter().filter(|node| is_eligible(node, &self.cloud));
        let backends: Vec<IpAddr> = eligible.flat_map(|node| node.internal_ips()).collect();
        let mut kept = kept.to_vec();
        let mut accesses = Vec::new();
        for wish in wishes.iter().filter(|wish| !wish.leaving) {
            match ready.get(&wish.key) {
                Some(own) => {
                    let at = own.iter().chain(&wish.options.more_addresses).copied();
                    let access = security::access(wish, &at.collect::<Vec<_>>(), &backends);
                    if !access.invalid.is_empty() {
                        outcome
                            .invalid_ranges
                            .insert(wish.key.clone(), access.invalid.clone());
                    }
                    accesses.push(access);
                }
                None => kept.extend(wish.shown.iter().copied()),
            }
        }
        let changed =
            security::plan(&mut group.properties, &accesses, &kept).map_err(Error::Config)?;
        if changed {
            let now = self
                .arm
                .put::<_, Resource<SecurityGroup>>(&group.id.clone(), &group, &group.etag)
                .await?;
            self.known.security = Some(now);
        }
        Ok(())
    }
}

/// The zones of the cluster's region.
async fn read_zones(arm: &Arm, cloud: &CloudConfig) -> Result<Vec<String>, Error> {
    // An edge zone has no zones of its own.
    if !cloud.extended_location_name.is_empty() {
        return Ok(Vec::new());
    }
    let id = format!(
        "/subscriptions/{}/providers/Microsoft.Compute",
        cloud.subscription_id
    );
    let provider: Value = match arm.get(&id, "").await {
        // Who may change one group only may not ask about the subscription; nothing but zones follows from it.
        Err(error) if error.status() == Some(403) => {
            tracing::info!(%error, "zones are not known; new addresses are in none");
            return Ok(Vec::new());
        }
        answer => answer?.unwrap_or_default(),
    };
    let types = provider["resourceTypes"].as_array().into_iter().flatten();
    let machines = types.filter(|kind| kind["resourceType"] == "virtualMachines");
    let mappings = machines.flat_map(|kind| kind["zoneMappings"].as_array().into_iter().flatten());
    let plain = |text: &str| text.to_lowercase().replace(' ', "");
    let mut own = mappings.filter(|one| {
        one["location"]
            .as_str()
            .is_some_and(|l| plain(l) == cloud.location)
    });
    let zones = own
        .next()
        .and_then(|one| one["zones"].as_array())
        .into_iter()
        .flatten();
    let mut zones: Vec<String> = zones
        .filter_map(|zone| zone.as_str().map(str::to_owned))
        .collect();
    zones.sort();
    Ok(zones)
}
