//! A load balancer with everything that all its Services ask for, as one document.

use std::collections::{BTreeMap, BTreeSet};

use azure::models::{LoadBalancer, Part, Resource, Sku};
use serde_json::{Value, json};

use super::Ground;
use super::names::{Family, pool};
use super::rules::{self, Around, SHARED_PROBE};
use super::wish::Wish;
use crate::parts::settle;

pub(crate) type Balancer = Resource<LoadBalancer>;

/// What is to be done about a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    Nothing,
    Put(Box<Balancer>),
    Delete,
}

/// A decision about a load balancer.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) act: Act,
    /// Services whose parts change.
    pub(crate) touched: BTreeSet<String>,
    /// What is wrong with Services; their parts stay as they are.
    pub(crate) errors: BTreeMap<String, String>,
    /// The names of frontends, by Service and family.
    pub(crate) frontends: BTreeMap<(String, Family), String>,
}

/// What a decision is made from.
pub(crate) struct Question<'a> {
    pub(crate) ground: &'a Ground<'a>,
    pub(crate) internal: bool,
    /// Every Service that is decided about, the oldest first.
    pub(crate) wishes: &'a [&'a Wish],
    /// Public addresses by Service and family.
    pub(crate) addresses: &'a BTreeMap<(String, Family), String>,
    pub(crate) present: Option<&'a Balancer>,
}

/// Decides about a load balancer. Services that cannot have what they ask for keep what they have.
pub(crate) fn plan(question: &Question<'_>) -> Plan {
    let mut errors: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let acting: Vec<&Wish> = question
            .wishes
            .iter()
            .copied()
            .filter(|wish| !errors.contains_key(&wish.key))
            .collect();
        let mut draft = Draft::new(question, acting);
        let wrong = draft.fill();
        if wrong.is_empty() {
            return draft.decided(errors);
        }
        // Whoever is in the way of others may be in nobody's way once it is left out.
        errors.extend(wrong);
    }
}

struct Draft<'a> {
    question: &'a Question<'a>,
    acting: Vec<&'a Wish>,
    id: String,
    body: Balancer,
    frontends: BTreeMap<(String, Family), String>,
}

impl<'a> Draft<'a> {
    fn new(question: &'a Question<'a>, acting: Vec<&'a Wish>) -> Draft<'a> {
        let ground = question.ground;
        let id = ground.balancer_id(question.internal);
        let made = || Balancer {
            location: ground.cloud.location.clone(),
            sku: Sku {
                name: "Standard".into(),
                ..Sku::default()
            },
            ..Balancer::default()
        };
        let mut body = question.present.cloned().unwrap_or_else(made);
        body.tags.extend(ground.cloud.all_tags());
        Draft {
            question,
            acting,
            id,
            body,
            frontends: BTreeMap::new(),
        }
    }

    fn live(&self) -> impl Iterator<Item = &'a Wish> + use<'a> {
        let internal = self.question.internal;
        let acting = self.acting.clone().into_iter();
        acting.filter(move |wish| !wish.leaving && wish.options.internal == internal)
    }

    fn is_ours(&self, name: &str) -> bool {
        self.acting.iter().any(|wish| wish.owns(name))
    }

    /// Fills in everything; gives what is wrong with whom.
    fn fill(&mut self) -> BTreeMap<String, String> {
        let mut wrong = BTreeMap::new();
        let mut wanted = (Vec::new(), Vec::new(), Vec::new());
        let mut taken = self.taken_by_others();
        for wish in self.live() {
            for family in &wish.families {
                match self.of_wish(wish, *family, &mut wanted.0, &mut taken) {
                    Ok(made) => {
                        wanted.1.extend(made.rules);
                        wanted.2.extend(made.probes);
                    }
                    Err(cause) => {
                        wrong.insert(wish.key.clone(), cause);
                        break;
                    }
                }
            }
        }
        if wrong.is_empty() {
            self.settle(wanted.0, wanted.1, wanted.2);
        }
        wrong
    }

    /// The frontend, rules and probes of a Service in a family.
    fn of_wish(
        &mut self,
        wish: &Wish,
        family: Family,
        frontends: &mut Vec<Part>,
        taken: &mut BTreeSet<(String, i64, String)>,
    ) -> Result<rules::Wanted, String> {
        let name = self.frontend(wish, family, frontends)?;
        let ground = self.question.ground;
        let frontend = format!("{}/frontendIPConfigurations/{name}", self.id);
        let pool = format!(
            "{}/backendAddressPools/{}",
            self.id,
            pool(ground.cluster, family)
        );
        let around = Around {
            balancer: &self.id,
            frontend: &frontend,
            pool: &pool,
            cloud: ground.cloud,
        };
        let made = rules::wanted(wish, family, &around)?;
        for rule in &made.rules {
            if !taken.insert(place(rule)) {
                return Err(format!(
                    "port {} of frontend {name} is another one's already",
                    rule.properties["frontendPort"]
                ));
            }
        }
        self.frontends.insert((wish.key.clone(), family), name);
        Ok(made)
    }

    /// The frontend of a Service: one that has its address already, or one of its own.
    fn frontend(
        &self,
        wish: &Wish,
        family: Family,
        wanted: &mut Vec<Part>,
    ) -> Result<String, String> {
        let name = wish.names.frontend(family);
        let present = &self.body.properties.frontends;
        let own = present
            .iter()
            .find(|part| part.name.eq_ignore_ascii_case(&name));
        let (properties, fits) = match self.question.internal {
            true => self.private(wish, family, own)?,
            false => self.public(wish, family)?,
        };
        let shared = wanted
            .iter()
            .chain(present)
            .find(|part| !part.name.eq_ignore_ascii_case(&name) && fits(part));
        if let Some(shared) = shared {
            return Ok(shared.name.clone());
        }
        let mut part = Part::new(name.clone(), properties);
        // Zones are for life, so a frontend has those it was made with.
        if self.question.internal && own.is_none() && !self.question.ground.zones.is_empty() {
            part.rest
                .insert("zones".into(), json!(self.question.ground.zones));
        }
        wanted.push(part);
        Ok(name)
    }

    fn public(&self, wish: &Wish, family: Family) -> Result<Fitting, String> {
        let id = self.question.addresses.get(&(wish.key.clone(), family));
        let id = id.ok_or("it has no public address")?.clone();
        let properties = json!({"publicIPAddress": {"id": id}});
        Ok((
            properties,
            Box::new(move |part| azure::id::same(part.text("/publicIPAddress/id"), &id)),
        ))
    }

    fn private(&self, wish: &Wish, family: Family, own: Option<&Part>) -> Result<Fitting, String> {
        let subnet = self
            .question
            .ground
            .subnet_id(wish.options.subnet.as_deref());
        let asked = wish.address(family);
        let mut properties =
            json!({"subnet": {"id": subnet}, "privateIPAddressVersion": family.name()});
        let has_own = own.is_some_and(|own| azure::id::same(own.text("/subnet/id"), &subnet));
        let kept = wish.shown.iter().find(|shown| {
            Family::of(shown) == family && self.question.ground.is_in_subnet(wish, shown)
        });
        match (asked, kept) {
            (Some(address), _) => set_static(&mut properties, &address.to_string()),
            // What it has is left alone.
            (None, _) if has_own => {}
            // It had a frontend before, and shows its address.
            (None, Some(address)) => set_static(&mut properties, &address.to_string()),
            (None, None) => properties["privateIPAllocationMethod"] = json!("Dynamic"),
        }
        let fits = move |part: &Part| {
            let address = part.text("/privateIPAddress").parse().ok();
            asked.is_some() && address == asked
        };
        Ok((properties, Box::new(fits)))
    }

    /// Frontends, ports and protocols of rules that are not decided about here.
    fn taken_by_others(&self) -> BTreeSet<(String, i64, String)> {
        let lists = [&self.body.properties.rules, &self.body.properties.nat_rules];
        let theirs = lists
            .into_iter()
            .flatten()
            .filter(|rule| !self.is_ours(&rule.name));
        theirs.map(place).collect()
    }

    fn settle(&mut self, frontends: Vec<Part>, rules: Vec<Part>, mut probes: Vec<Part>) {
        let used = self.used_by_others(&rules);
        let acting = self.acting.clone();
        let ours = |name: &str| acting.iter().any(|wish| wish.owns(name));
        let own = self.id.to_lowercase();
        let frontend_id = |part: &Part| {
            format!(
                "{own}/frontendipconfigurations/{}",
                part.name.to_lowercase()
            )
        };
        let families: BTreeSet<Family> = self.frontends.keys().map(|(_, family)| *family).collect();
        let pools = families.iter().map(|family| {
            // What is in a pool is another decision.
            Part::new(pool(self.question.ground.cluster, *family), json!({}))
        });
        let pools: Vec<Part> = pools.collect();
        let shared_is_used = |rule: &Part| rule.text("/probe/id").ends_with(SHARED_PROBE);
        let properties = &mut self.body.properties;
        settle(&mut properties.pools, pools, |_| false);
        settle(&mut properties.frontends, frontends, |part| {
            ours(&part.name) && !used.contains(&frontend_id(part))
        });
        settle(&mut properties.rules, rules, |part| ours(&part.name));
        probes.dedup_by(|one, other| one.name == other.name);
        let keeps_shared = properties.rules.iter().any(shared_is_used);
        settle(&mut properties.probes, probes, |part| {
            match part.name == SHARED_PROBE {
                true => !keeps_shared,
                false => ours(&part.name),
            }
        });
    }

    /// Frontends that must stay although nobody asks for them by name, by their ids.
    fn used_by_others(&self, wanted: &[Part]) -> BTreeSet<String> {
        let properties = &self.body.properties;
        let theirs = properties
            .rules
            .iter()
            .filter(|rule| !self.is_ours(&rule.name));
        let one = theirs
            .chain(wanted)
            .chain(&properties.nat_rules)
            .chain(&properties.nat_pools)
            .map(|part| part.text("/frontendIPConfiguration/id").to_owned());
        let many = properties.outbound_rules.iter().flat_map(|rule| {
            let all = rule.properties["frontendIPConfigurations"]
                .as_array()
                .cloned();
            all.unwrap_or_default()
        });
        let many = many.filter_map(|one| one["id"].as_str().map(str::to_owned));
        one.chain(many).map(|id| id.to_lowercase()).collect()
    }

    fn decided(self, errors: BTreeMap<String, String>) -> Plan {
        let touched = self.touched();
        let act = match self.question.present {
            Some(_) if self.body.properties.frontends.is_empty() => Act::Delete,
            Some(present) if *present == self.body => Act::Nothing,
            None if self.body.properties.frontends.is_empty() => Act::Nothing,
            _ => Act::Put(Box::new(self.body)),
        };
        Plan {
            act,
            touched,
            errors,
            frontends: self.frontends,
        }
    }

    fn touched(&self) -> BTreeSet<String> {
        let parts = |body: &Balancer, wish: &Wish| -> Vec<Part> {
            let all = &body.properties;
            let lists = [&all.frontends, &all.rules, &all.probes].into_iter();
            lists
                .flatten()
                .filter(|part| wish.owns(&part.name))
                .cloned()
                .collect()
        };
        let before = |wish: &Wish| {
            self.question
                .present
                .map(|body| parts(body, wish))
                .unwrap_or_default()
        };
        let changed = self
            .acting
            .iter()
            .filter(|wish| before(wish) != parts(&self.body, wish));
        changed.map(|wish| wish.key.clone()).collect()
    }
}

/// What a frontend should say, and whether another one says it.
type Fitting = (Value, Box<dyn Fn(&Part) -> bool>);

fn set_static(properties: &mut Value, address: &str) {
    properties["privateIPAllocationMethod"] = json!("Static");
    properties["privateIPAddress"] = json!(address);
}

fn place(rule: &Part) -> (String, i64, String) {
    (
        rule.text("/frontendIPConfiguration/id").to_lowercase(),
        rule.properties["frontendPort"].as_i64().unwrap_or_default(),
        rule.text("/protocol").to_lowercase(),
    )
}

#[cfg(test)]
mod tests;
