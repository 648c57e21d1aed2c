#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::addresses;
use super::super::tests::{Stand, ground};
use super::super::wish::tests::wish;
use super::*;
use proptest::prelude::*;

/// A load balancer that was written: Azure gives addresses to what has none.
fn written(mut body: Balancer) -> Balancer {
    for (number, frontend) in body.properties.frontends.iter_mut().enumerate() {
        let is_private = frontend.properties["subnet"].is_object();
        if is_private && frontend.properties["privateIPAddress"].is_null() {
            frontend.properties["privateIPAddress"] = json!(format!("10.0.0.{}", 10 + number));
        }
    }
    body
}

/// An Azure of one load balancer and its addresses.
struct Azure {
    stand: Stand,
    present: Option<Balancer>,
    addresses: Vec<addresses::Address>,
}

impl Azure {
    fn new() -> Azure {
        Azure {
            stand: ground(),
            present: None,
            addresses: Vec::new(),
        }
    }

    /// Brings it to what these ask for; gives the decision.
    fn apply(&mut self, internal: bool, wishes: &[&Wish]) -> Plan {
        let ground = self.stand.ground();
        let addresses = addresses::plan(wishes, &self.addresses, &ground);
        for put in addresses.puts {
            self.addresses.retain(|one| one.id != put.id);
            self.addresses.push(put);
        }
        let plan = plan(&Question {
            ground: &ground,
            internal,
            wishes,
            addresses: &addresses.chosen,
            present: self.present.as_ref(),
        });
        match plan.act.clone() {
            Act::Put(body) => self.present = Some(written(*body)),
            Act::Delete => self.present = None,
            Act::Nothing => {}
        }
        self.addresses
            .retain(|one| !addresses.deletes.contains(&one.id));
        plan
    }

    fn names(&self) -> [Vec<String>; 3] {
        let names = |parts: &[Part]| parts.iter().map(|part| part.name.clone()).collect();
        match &self.present {
            Some(body) => [
                names(&body.properties.frontends),
                names(&body.properties.rules),
                names(&body.properties.probes),
            ],
            None => [vec![], vec![], vec![]],
        }
    }
}

const ONE: &str = "a0000000100000000000000000000000";
const TWO: &str = "a0000000200000000000000000000000";

#[test]
fn services_come_change_and_go() {
    let mut azure = Azure::new();
    let (one, two) = (wish(1, json!({}), json!({})), wish(2, json!({}), json!({})));
    let plan = azure.apply(false, &[&one, &two]);
    assert_eq!(plan.touched.len(), 2);
    let [frontends, rules, probes] = azure.names();
    assert_eq!(frontends, [ONE, TWO]);
    assert_eq!(rules, [format!("{ONE}-TCP-80"), format!("{TWO}-TCP-80")]);
    assert_eq!(probes, rules);
    let body = azure.present.clone().unwrap();
    assert_eq!(body.properties.pools[0].name, "kubernetes");
    assert_eq!(body.sku.name, "Standard");
    assert_eq!(
        azure.apply(false, &[&one, &two]).act,
        Act::Nothing,
        "a second time"
    );

    let changed = wish(
        1,
        json!({}),
        json!({"ports": [{"port": 443, "protocol": "TCP", "nodePort": 30443}]}),
    );
    let plan = azure.apply(false, &[&changed, &two]);
    assert_eq!(plan.touched, BTreeSet::from(["default/s1".to_owned()]));
    assert_eq!(
        azure.names()[1],
        [format!("{TWO}-TCP-80"), format!("{ONE}-TCP-443")]
    );

    let mut leaving = one.clone();
    leaving.leaving = true;
    azure.apply(false, &[&leaving, &two]);
    assert_eq!(azure.names()[0], [TWO]);
    let mut last = two.clone();
    last.leaving = true;
    let plan = azure.apply(false, &[&last]);
    assert_eq!(plan.act, Act::Delete);
    assert!(azure.addresses.is_empty());
}

#[test]
fn others_parts_stay_and_so_do_those_of_who_is_not_known() {
    let mut azure = Azure::new();
    let one = wish(1, json!({}), json!({}));
    azure.apply(false, &[&one]);
    let body = azure.present.as_mut().unwrap();
    body.properties.frontends.push(Part::new(
        "outbound",
        json!({"publicIPAddress": {"id": "/subscriptions/x"}}),
    ));
    body.properties
        .rules
        .push(Part::new("theirs", json!({"frontendPort": 1})));
    let before = azure.present.clone();
    assert_eq!(azure.apply(false, &[]).act, Act::Nothing);
    assert_eq!(azure.present, before);
    let mut leaving = one.clone();
    leaving.leaving = true;
    azure.apply(false, &[&leaving]);
    let [frontends, rules, probes] = azure.names();
    assert_eq!(
        (frontends, rules),
        (vec!["outbound".to_owned()], vec!["theirs".to_owned()])
    );
    assert!(probes.is_empty());
}

#[test]
fn an_address_may_be_shared_and_the_first_may_go() {
    let mut azure = Azure::new();
    let one = wish(1, json!({}), json!({}));
    azure.apply(false, &[&one]);
    azure.addresses[0].properties.address = "20.0.0.1".into();
    let ports = json!({"loadBalancerIP": "20.0.0.1", "ports": [{"port": 443, "protocol": "TCP", "nodePort": 30443}]});
    let two = wish(2, json!({}), ports);
    azure.apply(false, &[&one, &two]);
    assert_eq!(azure.names()[0], [ONE], "one frontend for both");
    assert_eq!(azure.names()[1].len(), 2);
    let clash = wish(3, json!({}), json!({"loadBalancerIP": "20.0.0.1"}));
    let plan = azure.apply(false, &[&one, &two, &clash]);
    assert!(plan.errors["default/s3"].contains("port 80"), "{plan:?}");
    assert_eq!(azure.names()[1].len(), 2);
    let mut leaving = one.clone();
    leaving.leaving = true;
    azure.apply(false, &[&leaving, &two]);
    assert_eq!(azure.names()[0], [ONE], "the second still needs it");
    assert_eq!(azure.names()[1], [format!("{TWO}-TCP-443")]);
    assert_eq!(azure.addresses.len(), 1);
}

#[test]
fn internal_services_have_addresses_of_their_subnet() {
    let mut azure = Azure::new();
    let internal = json!({"azure-load-balancer-internal": "true"});
    let one = wish(1, internal.clone(), json!({}));
    azure.apply(true, &[&one]);
    let frontend = azure.present.as_ref().unwrap().properties.frontends[0].clone();
    assert_eq!(frontend.text("/privateIPAllocationMethod"), "Dynamic");
    assert!(
        frontend
            .text("/subnet/id")
            .ends_with("/virtualNetworks/net/subnets/nodes")
    );
    assert_eq!(frontend.rest["zones"], json!(["1", "2"]));
    assert_eq!(azure.apply(true, &[&one]).act, Act::Nothing);
    let pinned = wish(1, internal.clone(), json!({"loadBalancerIP": "10.0.0.99"}));
    azure.apply(true, &[&pinned]);
    let frontend = &azure.present.as_ref().unwrap().properties.frontends[0];
    assert_eq!(frontend.text("/privateIPAddress"), "10.0.0.99");
    // Flipped: what it had here goes, and it is another load balancer's from now on.
    let outside = wish(1, json!({}), json!({}));
    assert_eq!(azure.apply(true, &[&outside]).act, Act::Delete);
}

/// Services of all sorts, by a few numbers.
fn any_wish(number: u32) -> impl Strategy<Value = Wish> {
    (any::<bool>(), any::<bool>(), 1..4i32, any::<bool>(), any::<bool>()).prop_map(
        move |(internal, sticky, ports, local, leaving)| {
            let ports: Vec<Value> = (0..ports)
                .map(|at| json!({"port": 80 + at, "protocol": if at == 2 { "UDP" } else { "TCP" }, "nodePort": 30000 + number as i32 * 10 + at}))
                .collect();
            let mut spec = json!({"ports": ports, "sessionAffinity": if sticky { "ClientIP" } else { "None" }});
            if local {
                spec["externalTrafficPolicy"] = json!("Local");
                spec["healthCheckNodePort"] = json!(32000 + number);
            }
            let mut wish = wish(number, json!({"azure-load-balancer-internal": internal.to_string()}), spec);
            wish.leaving = leaving;
            wish
        },
    )
}

fn any_wishes() -> impl Strategy<Value = Vec<Wish>> {
    (any_wish(1), any_wish(2), any_wish(3), any_wish(4)).prop_map(|(a, b, c, d)| vec![a, b, c, d])
}

proptest! {
    #[test]
    fn whatever_came_before_a_second_look_changes_nothing(before in any_wishes(), after in any_wishes(), internal: bool) {
        let mut azure = Azure::new();
        azure.apply(internal, &before.iter().collect::<Vec<_>>());
        azure.apply(internal, &after.iter().collect::<Vec<_>>());
        let settled = azure.names();
        let plan = azure.apply(internal, &after.iter().collect::<Vec<_>>());
        prop_assert!(plan.act == Act::Nothing && plan.touched.is_empty());
        // The same comes of it from nothing.
        let mut fresh = Azure::new();
        fresh.apply(internal, &after.iter().collect::<Vec<_>>());
        let sorted = |mut names: [Vec<String>; 3]| { names.iter_mut().for_each(|n| n.sort()); names };
        prop_assert_eq!(sorted(settled), sorted(fresh.names()));
    }
}
