//! The rules as upstream's documentation and plugins state them, written plainly: every node, every plugin, every pod,
//! every time. Nothing here is shared with the program but selectors and quantities.

use std::collections::{BTreeMap, BTreeSet};

use kube_kit::quantity::Quantity;
use kube_kit::selector::LabelSelector;
use serde_json::Value;

use super::world::{World, name};

/// What should come out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opinion {
    Best(BTreeSet<String>, i64),
    None(String),
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn namespace(pod: &Value) -> &str {
    text(&pod["metadata"]["namespace"])
}

fn label<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node["metadata"]["labels"][key].as_str()
}

fn selects(selector: &Value, pod: &Value) -> bool {
    !selector.is_null()
        && LabelSelector::from_object(selector)
            .unwrap()
            .matches_labels(&pod["metadata"]["labels"])
}

fn amount(value: &Value, resource: &str) -> i64 {
    let quantity = value[resource]
        .as_str()
        .map_or(Quantity::ZERO, |t| t.parse().unwrap());
    if resource == "cpu" {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// What a pod needs; for scoring, containers without a request count a little.
fn needs(pod: &Value, resource: &str, scored: bool) -> i64 {
    let least = match (scored, resource) {
        (true, "cpu") => 100,
        (true, "memory") => 200 << 20,
        _ => 0,
    };
    let containers = list(&pod["spec"]["containers"]).iter();
    containers
        .map(|c| {
            let requests = &c["resources"]["requests"];
            if requests[resource].is_null() {
                least
            } else {
                amount(requests, resource)
            }
        })
        .sum()
}

fn on<'a>(world: &'a World, node: &'a Value) -> impl Iterator<Item = &'a Value> {
    let pods = world.pods.iter().filter(move |(_, at)| at == name(node));
    pods.map(|(pod, _)| pod)
}

fn used(world: &World, node: &Value, resource: &str, scored: bool) -> i64 {
    on(world, node)
        .map(|pod| needs(pod, resource, scored))
        .sum()
}

fn bears(pod: &Value, taint: &Value) -> bool {
    list(&pod["spec"]["tolerations"]).iter().any(|t| {
        (t["effect"].is_null() || t["effect"] == taint["effect"])
            && (t["key"].is_null() || t["key"] == taint["key"])
            && (t["operator"] == "Exists" || text(&t["value"]) == text(&taint["value"]))
    })
}

fn bears_all(pod: &Value, node: &Value) -> bool {
    let taints = list(&node["spec"]["taints"]).iter();
    let mut hard = taints.filter(|t| t["effect"] != "PreferNoSchedule");
    hard.all(|t| bears(pod, t))
}

fn expression(node: &Value, e: &Value) -> bool {
    let value = label(node, text(&e["key"]));
    let values: Vec<&str> = list(&e["values"]).iter().map(text).collect();
    match text(&e["operator"]) {
        "In" => value.is_some_and(|v| values.contains(&v)),
        "NotIn" => value.is_none_or(|v| !values.contains(&v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.is_some_and(|v| {
            v.parse::<i64>()
                .is_ok_and(|v| v > values[0].parse().unwrap())
        }),
        _ => value.is_some_and(|v| {
            v.parse::<i64>()
                .is_ok_and(|v| v < values[0].parse().unwrap())
        }),
    }
}

fn node_term(node: &Value, term: &Value) -> bool {
    let expressions = list(&term["matchExpressions"]);
    !expressions.is_empty() && expressions.iter().all(|e| expression(node, e))
}

fn selects_node(pod: &Value, node: &Value) -> bool {
    let pairs = pod["spec"]["nodeSelector"].as_object();
    let mut pairs = pairs.into_iter().flatten();
    let required =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    pairs.all(|(k, v)| label(node, k) == v.as_str())
        && (required.is_null()
            || list(&required["nodeSelectorTerms"])
                .iter()
                .any(|t| node_term(node, t)))
}

fn host_ports(pod: &Value) -> Vec<i64> {
    let containers = list(&pod["spec"]["containers"]).iter();
    let ports = containers.flat_map(|c| list(&c["ports"]));
    ports.filter_map(|p| p["hostPort"].as_i64()).collect()
}

fn required<'a>(pod: &'a Value, kind: &str) -> &'a [Value] {
    list(&pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"])
}

fn preferred<'a>(pod: &'a Value, kind: &str) -> &'a [Value] {
    list(&pod["spec"]["affinity"][kind]["preferredDuringSchedulingIgnoredDuringExecution"])
}

/// Whether a term of `owner` means this pod.
fn means(world: &World, term: &Value, owner: &Value, pod: &Value) -> bool {
    let named: Vec<&str> = list(&term["namespaces"]).iter().map(text).collect();
    let by_labels = &term["namespaceSelector"];
    let inside = if named.is_empty() && by_labels.is_null() {
        namespace(owner) == namespace(pod)
    } else {
        let its = world.namespaces.iter().find(|n| name(n) == namespace(pod));
        let empty = serde_json::json!({});
        named.contains(&namespace(pod)) || selects(by_labels, its.unwrap_or(&empty))
    };
    inside && selects(&term["labelSelector"], pod)
}

/// Pods in the same place as a node, by a key; nobody is where the node has no such label.
fn near<'a>(world: &'a World, node: &'a Value, key: &'a str) -> Vec<&'a Value> {
    let Some(value) = label(node, key) else {
        return Vec::new();
    };
    let nodes = world.nodes.iter().filter(|n| label(n, key) == Some(value));
    nodes.flat_map(|n| on(world, n)).collect()
}

fn counts_for(constraint: &Value, pod: &Value, node: &Value, keys: &[&Value]) -> bool {
    keys.iter()
        .all(|c| label(node, text(&c["topologyKey"])).is_some())
        && (constraint["nodeAffinityPolicy"] == "Ignore" || selects_node(pod, node))
        && (constraint["nodeTaintsPolicy"] != "Honor" || bears_all(pod, node))
}

fn matching(world: &World, constraint: &Value, pod: &Value, node: &Value) -> i64 {
    let pods = on(world, node).filter(|p| {
        namespace(p) == namespace(pod)
            && p["metadata"]["deletionTimestamp"].is_null()
            && selects(&constraint["labelSelector"], p)
    });
    i64::try_from(pods.count()).unwrap()
}

fn constraints<'a>(pod: &'a Value, when: &str) -> Vec<&'a Value> {
    let all = list(&pod["spec"]["topologySpreadConstraints"]).iter();
    all.filter(|c| c["whenUnsatisfiable"] == when).collect()
}

/// Pods by domain, of nodes that count.
fn domains<'a>(
    world: &'a World,
    constraint: &Value,
    pod: &Value,
    all: &[&Value],
) -> BTreeMap<&'a str, i64> {
    let mut domains = BTreeMap::new();
    for node in world
        .nodes
        .iter()
        .filter(|n| counts_for(constraint, pod, n, all))
    {
        let value = label(node, text(&constraint["topologyKey"])).unwrap();
        *domains.entry(value).or_default() += matching(world, constraint, pod, node);
    }
    domains
}

fn spread(world: &World, pod: &Value, node: &Value) -> Option<&'static str> {
    let all = constraints(pod, "DoNotSchedule");
    for constraint in &all {
        let Some(value) = label(node, text(&constraint["topologyKey"])) else {
            return Some(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            );
        };
        let domains = domains(world, constraint, pod, &all);
        let wanted = constraint["minDomains"].as_i64().unwrap_or(1);
        let least = domains.values().min().copied().unwrap_or_default();
        let least = if i64::try_from(domains.len()).unwrap() < wanted {
            0
        } else {
            least
        };
        let own = i64::from(selects(&constraint["labelSelector"], pod));
        let here = domains.get(value).copied().unwrap_or_default();
        if here + own - least > constraint["maxSkew"].as_i64().unwrap() {
            return Some("node(s) didn't match pod topology spread constraints");
        }
    }
    None
}

fn gather(world: &World, pod: &Value, node: &Value) -> Option<&'static str> {
    let refused = Some("node(s) didn't match pod affinity rules");
    let terms = required(pod, "podAffinity");
    let all = |p: &Value| terms.iter().all(|t| means(world, t, pod, p));
    if terms
        .iter()
        .any(|t| label(node, text(&t["topologyKey"])).is_none())
    {
        return refused;
    }
    let satisfied = terms.iter().all(|t| {
        near(world, node, text(&t["topologyKey"]))
            .into_iter()
            .any(all)
    });
    if !terms.is_empty() && !satisfied {
        let anyone = world.nodes.iter().any(|n| {
            let has_key = terms
                .iter()
                .any(|t| label(n, text(&t["topologyKey"])).is_some());
            has_key && on(world, n).any(all)
        });
        if anyone || !all(pod) {
            return refused;
        }
    }
    for term in required(pod, "podAntiAffinity") {
        if near(world, node, text(&term["topologyKey"]))
            .into_iter()
            .any(|p| means(world, term, pod, p))
        {
            return Some("node(s) didn't match pod anti-affinity rules");
        }
    }
    for other in &world.nodes {
        for existing in on(world, other) {
            for term in required(existing, "podAntiAffinity") {
                let key = text(&term["topologyKey"]);
                let same = label(other, key).is_some() && label(other, key) == label(node, key);
                if same && means(world, term, existing, pod) {
                    return Some("node(s) didn't satisfy existing pods anti-affinity rules");
                }
            }
        }
    }
    None
}

/// Why a node will not do.
fn refuses(world: &World, pod: &Value, node: &Value) -> Vec<String> {
    let one = |text: &str| vec![text.to_owned()];
    if node["spec"]["unschedulable"] == true {
        return one("node(s) were unschedulable");
    }
    if !bears_all(pod, node) {
        return one("node(s) had untolerated taint(s)");
    }
    if !selects_node(pod, node) {
        return one("node(s) didn't match Pod's node affinity/selector");
    }
    let taken: Vec<i64> = on(world, node).flat_map(host_ports).collect();
    if host_ports(pod).iter().any(|port| taken.contains(port)) {
        return one("node(s) didn't have free ports for the requested pod ports");
    }
    let mut lacking = Vec::new();
    let allocatable = &node["status"]["allocatable"];
    if i64::try_from(on(world, node).count()).unwrap() + 1 > amount(allocatable, "pods") {
        lacking.push("Too many pods".to_owned());
    }
    for resource in ["cpu", "memory"] {
        let wanted = needs(pod, resource, false);
        if wanted > 0 && wanted > amount(allocatable, resource) - used(world, node, resource, false)
        {
            lacking.push(format!("Insufficient {resource}"));
        }
    }
    if !lacking.is_empty() {
        return lacking;
    }
    let refused = spread(world, pod, node).or_else(|| gather(world, pod, node));
    refused.map(str::to_owned).into_iter().collect()
}

fn fit_score(world: &World, pod: &Value, node: &Value) -> i64 {
    let allocatable = &node["status"]["allocatable"];
    let score = |resource: &str| {
        let all = amount(allocatable, resource);
        let taken = used(world, node, resource, true) + needs(pod, resource, true);
        if taken > all {
            0
        } else {
            (all - taken) * 100 / all
        }
    };
    (score("cpu") + score("memory")) / 2
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the rule is in floating point"
)]
fn balance_score(world: &World, pod: &Value, node: &Value) -> i64 {
    if needs(pod, "cpu", false) == 0 && needs(pod, "memory", false) == 0 {
        return 0;
    }
    let evenness = |with: i64| {
        let fraction = |resource: &str| {
            let taken = used(world, node, resource, false) + with * needs(pod, resource, false);
            (taken as f64 / amount(&node["status"]["allocatable"], resource) as f64).min(1.0)
        };
        ((1.0 - ((fraction("cpu") - fraction("memory")) / 2.0).abs()) * 100.0) as i64
    };
    50 + (50 + evenness(1) - evenness(0)) / 2
}

fn wishes(world: &World, pod: &Value, node: &Value) -> (i64, bool) {
    let (mut sum, mut any) = (0, false);
    for other in &world.nodes {
        let shares =
            |key: &str| label(other, key).is_some() && label(other, key) == label(node, key);
        for existing in on(world, other) {
            let mut add = |term: &Value, owner: &Value, of: &Value, weight: i64| {
                if means(world, term, owner, of)
                    && label(other, text(&term["topologyKey"])).is_some()
                {
                    any = true;
                    sum += if shares(text(&term["topologyKey"])) {
                        weight
                    } else {
                        0
                    };
                }
            };
            for (kind, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
                for wish in preferred(pod, kind) {
                    add(
                        &wish["podAffinityTerm"],
                        pod,
                        existing,
                        sign * wish["weight"].as_i64().unwrap(),
                    );
                }
                for wish in preferred(existing, kind) {
                    add(
                        &wish["podAffinityTerm"],
                        existing,
                        pod,
                        sign * wish["weight"].as_i64().unwrap(),
                    );
                }
            }
            for term in required(existing, "podAffinity") {
                add(term, existing, pod, 1);
            }
        }
    }
    (sum, any)
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the rule is in floating point"
)]
fn spread_scores(world: &World, pod: &Value, nodes: &[&Value]) -> Vec<i64> {
    let all = constraints(pod, "ScheduleAnyway");
    if all.is_empty() {
        return vec![0; nodes.len()];
    }
    let ignored = |n: &Value| {
        all.iter()
            .any(|c| label(n, text(&c["topologyKey"])).is_none())
    };
    let counted: Vec<&&Value> = nodes.iter().filter(|n| !ignored(n)).collect();
    let raw = |node: &Value| -> i64 {
        let mut sum = 0.0;
        for constraint in &all {
            let key = text(&constraint["topologyKey"]);
            let values: BTreeSet<_> = counted.iter().map(|n| label(n, key)).collect();
            let is_host = key == "kubernetes.io/hostname";
            let size = if is_host { counted.len() } else { values.len() };
            let count = match is_host {
                true => matching(world, constraint, pod, node),
                false => domains(world, constraint, pod, &all)
                    .get(label(node, key).unwrap())
                    .copied()
                    .unwrap_or_default(),
            };
            sum += count as f64 * ((size + 2) as f64).ln()
                + (constraint["maxSkew"].as_i64().unwrap() - 1) as f64;
        }
        sum.round() as i64
    };
    let raws: Vec<i64> = counted.iter().map(|n| raw(n)).collect();
    let (least, most) = (
        raws.iter().min().copied().unwrap_or(0),
        raws.iter().max().copied().unwrap_or(0),
    );
    let score = |n: &&Value| match (ignored(n), most) {
        (true, _) => 0,
        (false, 0) => 100,
        (false, most) => 100 * (most + least - raw(n)) / most,
    };
    nodes.iter().map(score).collect()
}

/// Where this pod should go.
pub(crate) fn opinion(world: &World, pod: &Value) -> Opinion {
    let refusals: Vec<Vec<String>> = world.nodes.iter().map(|n| refuses(world, pod, n)).collect();
    let fits: Vec<&Value> = world
        .nodes
        .iter()
        .zip(&refusals)
        .filter(|(_, r)| r.is_empty())
        .map(|(n, _)| n)
        .collect();
    if fits.is_empty() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        refusals
            .iter()
            .flatten()
            .for_each(|reason| *counts.entry(reason).or_default() += 1);
        let mut reasons: Vec<String> = counts.iter().map(|(r, c)| format!("{c} {r}")).collect();
        reasons.sort();
        return Opinion::None(format!(
            "0/{} nodes are available: {}.",
            world.nodes.len(),
            reasons.join(", ")
        ));
    }
    if let [only] = fits[..] {
        return Opinion::Best(BTreeSet::from([name(only).to_owned()]), 0);
    }
    let scores = scores(world, pod, &fits);
    let best = scores.iter().copied().max().unwrap();
    let names = fits
        .iter()
        .zip(&scores)
        .filter(|(_, s)| **s == best)
        .map(|(n, _)| name(n).to_owned());
    Opinion::Best(names.collect(), best)
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the rule is in floating point"
)]
fn scores(world: &World, pod: &Value, fits: &[&Value]) -> Vec<i64> {
    let advised = |n: &Value| {
        let soft = list(&n["spec"]["taints"])
            .iter()
            .filter(|t| t["effect"] == "PreferNoSchedule");
        i64::try_from(soft.filter(|t| !bears(pod, t)).count()).unwrap()
    };
    let liked = |n: &Value| -> i64 {
        let terms = preferred(pod, "nodeAffinity").iter();
        terms
            .filter(|t| node_term(n, &t["preference"]))
            .map(|t| t["weight"].as_i64().unwrap())
            .sum()
    };
    let most_advised = fits.iter().map(|n| advised(n)).max().unwrap();
    let most_liked = fits.iter().map(|n| liked(n)).max().unwrap();
    let wished: Vec<(i64, bool)> = fits.iter().map(|n| wishes(world, pod, n)).collect();
    let (least, most) = (
        wished.iter().map(|w| w.0).min().unwrap(),
        wished.iter().map(|w| w.0).max().unwrap(),
    );
    let spreads = spread_scores(world, pod, fits);
    let mut scores = Vec::new();
    for (at, node) in fits.iter().enumerate() {
        let taints = if most_advised == 0 {
            100
        } else {
            100 - 100 * advised(node) / most_advised
        };
        let affinity = if most_liked == 0 {
            0
        } else {
            100 * liked(node) / most_liked
        };
        let wish = match most > least {
            true => (100.0 * ((wished[at].0 - least) as f64 / (most - least) as f64)) as i64,
            false => 0,
        };
        let alone = fit_score(world, pod, node) + balance_score(world, pod, node);
        scores.push(alone + 3 * taints + 2 * affinity + 2 * spreads[at] + 2 * wish);
    }
    scores
}
