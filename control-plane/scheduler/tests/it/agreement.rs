//! On random clusters that change step by step, the scheduler and the oracle must agree on every pod: the same best
//! nodes with the same score, or the same sentence.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use scheduler::Found;
use serde_json::{Value, json};

use super::oracle::{Opinion, opinion};
use super::world::{Mind, World, name, node, pod};

/// How many clusters; `KYANITE_CASES` says how many more.
const CLUSTERS: u64 = 300;

fn pick<'a, T: ?Sized>(random: &mut StdRng, from: &[&'a T]) -> &'a T {
    from.choose(random).unwrap()
}

fn some_node(random: &mut StdRng, number: usize) -> Value {
    let mut labels = json!({ "size": random.random_range(1..4).to_string() });
    if random.random_bool(0.8) {
        labels["zone"] = pick(random, &["a", "b", "c"]).into();
    }
    if random.random_bool(0.3) {
        labels["disk"] = "ssd".into();
    }
    let mut taints = Vec::new();
    for effect in ["NoSchedule", "PreferNoSchedule", "NoExecute"] {
        if random.random_bool(0.12) {
            taints.push(
                json!({ "key": pick(random, &["spot", "gpu"]), "value": "yes", "effect": effect }),
            );
        }
    }
    let cpu = random.random_range(1..5).to_string();
    let more = json!({
        "spec": { "unschedulable": random.random_bool(0.05), "taints": taints },
        "status": { "allocatable": { "cpu": cpu, "memory": pick(random, &["2Gi", "4Gi", "8Gi"]), "pods": pick(random, &["2", "4", "10"]) } },
    });
    node(&format!("n{number}"), &labels, &more)
}

fn selector(random: &mut StdRng) -> Value {
    match random.random_range(0..5) {
        0 => json!({}),
        1 => {
            json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["x", "y"] }] })
        }
        2 => json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] }),
        _ => json!({ "matchLabels": { "app": pick(random, &["web", "db"]) } }),
    }
}

fn term(random: &mut StdRng) -> Value {
    let mut term = json!({ "labelSelector": selector(random), "topologyKey": pick(random, &["zone", "kubernetes.io/hostname", "disk"]) });
    match random.random_range(0..6) {
        0 => term["namespaces"] = json!(["other"]),
        1 => term["namespaceSelector"] = json!({ "matchLabels": { "team": "red" } }),
        2 => term["namespaceSelector"] = json!({}),
        _ => {}
    }
    term
}

fn terms(random: &mut StdRng, chance: f64) -> Vec<Value> {
    let count = if random.random_bool(chance) {
        random.random_range(1..3)
    } else {
        0
    };
    (0..count).map(|_| term(random)).collect()
}

fn weighted(random: &mut StdRng) -> Vec<Value> {
    let terms = terms(random, 0.15);
    let weigh = |term| json!({ "weight": random.random_range(1..100), "podAffinityTerm": term });
    terms.into_iter().map(weigh).collect()
}

fn spread(random: &mut StdRng) -> Vec<Value> {
    let count = if random.random_bool(0.3) {
        random.random_range(1..3)
    } else {
        0
    };
    let mut all = Vec::new();
    for _ in 0..count {
        let mut one = json!({
            "maxSkew": random.random_range(1..3),
            "topologyKey": pick(random, &["zone", "kubernetes.io/hostname", "size"]),
            "whenUnsatisfiable": pick(random, &["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": selector(random),
        });
        if random.random_bool(0.2) {
            one["nodeTaintsPolicy"] = "Honor".into();
        }
        if random.random_bool(0.2) {
            one["nodeAffinityPolicy"] = "Ignore".into();
        }
        if one["whenUnsatisfiable"] == "DoNotSchedule" && random.random_bool(0.2) {
            one["minDomains"] = 3.into();
        }
        all.push(one);
    }
    all
}

fn node_affinity(random: &mut StdRng) -> Value {
    let mut affinity = json!({});
    let expression = |random: &mut StdRng| match random.random_range(0..4) {
        0 => json!({ "key": "zone", "operator": "In", "values": ["a", "b"] }),
        1 => json!({ "key": "size", "operator": "Gt", "values": ["1"] }),
        2 => json!({ "key": "disk", "operator": "Exists" }),
        _ => json!({ "key": "zone", "operator": "NotIn", "values": ["c"] }),
    };
    if random.random_bool(0.15) {
        let terms: Vec<Value> = (0..random.random_range(1..3))
            .map(|_| json!({ "matchExpressions": [expression(random)] }))
            .collect();
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({ "nodeSelectorTerms": terms });
    }
    if random.random_bool(0.15) {
        let weight = random.random_range(1..100);
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{ "weight": weight, "preference": { "matchExpressions": [expression(random)] } }]);
    }
    affinity
}

fn some_pod(random: &mut StdRng, number: usize) -> Value {
    let mut labels = json!({ "app": pick(random, &["web", "db"]) });
    if random.random_bool(0.3) {
        labels["tier"] = pick(random, &["x", "z"]).into();
    }
    let mut requests = json!({});
    if random.random_bool(0.8) {
        requests["cpu"] = pick(random, &["100m", "500m", "1"]).into();
    }
    if random.random_bool(0.5) {
        requests["memory"] = pick(random, &["100Mi", "1Gi"]).into();
    }
    let mut container = json!({ "name": "a", "resources": { "requests": requests } });
    if random.random_bool(0.1) {
        container["ports"] =
            json!([{ "containerPort": 80, "hostPort": random.random_range(80..82) }]);
    }
    let mut tolerations = Vec::new();
    if random.random_bool(0.3) {
        tolerations.push(json!({ "key": pick(random, &["spot", "gpu"]), "operator": "Exists" }));
    }
    if random.random_bool(0.1) {
        tolerations.push(json!({ "key": "spot", "value": "yes", "effect": "NoSchedule" }));
    }
    let mut spec = json!({
        "containers": [container],
        "tolerations": tolerations,
        "topologySpreadConstraints": spread(random),
        "affinity": {
            "nodeAffinity": node_affinity(random),
            "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms(random, 0.12), "preferredDuringSchedulingIgnoredDuringExecution": weighted(random) },
            "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms(random, 0.12), "preferredDuringSchedulingIgnoredDuringExecution": weighted(random) },
        },
    });
    if random.random_bool(0.1) {
        spec["nodeSelector"] = json!({ "disk": "ssd" });
    }
    let namespace = if random.random_bool(0.75) {
        "default"
    } else {
        "other"
    };
    let mut made = pod(
        &format!("p{number}"),
        "0",
        &json!({ "metadata": { "namespace": namespace, "labels": labels } }),
    );
    if random.random_bool(0.1) {
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    made["spec"] = spec;
    made
}

fn compare(mind: &mut Mind, world: &World, pod: &Value, seed: u64) {
    let expected = opinion(world, pod);
    let waiting = mind.waiting(pod);
    let found = match mind.0.best(&waiting) {
        Found::Best(rows, score) => {
            let names = rows.iter().map(|row| mind.0.cluster.name(*row).to_owned());
            Opinion::Best(names.collect(), score)
        }
        Found::None(diagnosis) => Opinion::None(diagnosis.sentence(&mind.0.cluster)),
    };
    assert_eq!(found, expected, "seed {seed}: {pod:#}\n{world:#?}");
    match (mind.place(pod), expected) {
        (Ok(node), Opinion::Best(names, _)) => assert!(
            names.contains(&node),
            "seed {seed}: {node} of {names:?} for {pod:#}"
        ),
        (Err(said), Opinion::None(sentence)) => assert_eq!(said, sentence, "seed {seed}"),
        (got, expected) => panic!("seed {seed}: {got:?} instead of {expected:?}"),
    }
}

/// Something happens to the cluster; both are told.
fn step(random: &mut StdRng, world: &mut World, mind: &mut Mind, number: usize) {
    match random.random_range(0..10) {
        0 if world.nodes.len() > 1 => {
            let at = random.random_range(0..world.nodes.len());
            let gone = world.nodes.remove(at);
            mind.0.cluster.remove_node(name(&gone));
        }
        1 => {
            let node = some_node(random, 100 + number);
            mind.node(&node);
            world.nodes.push(node);
        }
        2 => {
            let at = random.random_range(0..world.nodes.len());
            let number = name(&world.nodes[at])[1..].parse().unwrap();
            world.nodes[at] = some_node(random, number);
            mind.node(&world.nodes[at]);
        }
        3 | 4 if !world.pods.is_empty() => {
            let at = random.random_range(0..world.pods.len());
            let (gone, _) = world.pods.remove(at);
            mind.take(&gone);
        }
        _ => {
            let pod = some_pod(random, 1000 + number);
            let at = random.random_range(0..world.nodes.len());
            let node = name(&world.nodes[at]).to_owned();
            mind.put(&pod, &node);
            world.pods.push((pod, node));
        }
    }
}

fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World {
        namespaces: vec![
            json!({ "metadata": { "name": "default", "labels": {} } }),
            json!({ "metadata": { "name": "other", "labels": { "team": "red" } } }),
        ],
        ..World::default()
    };
    for number in 0..random.random_range(1..7) {
        world.nodes.push(some_node(&mut random, number));
    }
    let mut mind = Mind::of(&world);
    let kinds: Vec<Value> = (0..3)
        .map(|number| some_pod(&mut random, 5000 + number))
        .collect();
    for number in 0..12 {
        step(&mut random, &mut world, &mut mind, number);
        for pod in &kinds {
            compare(&mut mind, &world, pod, seed);
        }
    }
}

#[test]
fn the_scheduler_and_a_plain_opinion_agree_on_random_clusters() {
    let more = std::env::var("KYANITE_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    for seed in 0..CLUSTERS + more.unwrap_or(0) {
        run(seed);
    }
}
