//! What a pod needs of resources: `resourcehelper.PodRequests` of upstream.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use kube_kit::quantity::Quantity;

use crate::symbols::{Sym, Symbols};

/// Amounts a pod needs: thousandths of a CPU, bytes, or plain numbers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requests {
    /// What must be free, by resource; never zero.
    pub amounts: Box<[(Sym, i64)]>,
    /// CPU and memory as they are scored: containers that ask for nothing count a little.
    pub scored: [i64; 2],
}

/// What a container that asks for no CPU counts when nodes are scored, in nano-units: 100m.
const SCORED_CPU: i128 = 100_000_000;
/// The same for memory: 200 Mi.
const SCORED_MEMORY: i128 = 200 * 1024 * 1024 * 1_000_000_000;

type Sums = Vec<(Sym, i128)>;

impl Requests {
    /// The requests of a pod.
    pub fn of(symbols: &mut Symbols, pod: &api::Pod) -> Requests {
        let (cpu, memory) = (symbols.of("cpu"), symbols.of("memory"));
        let total = total(symbols, pod, &[]);
        let scored = total_scored(symbols, pod, (cpu, memory));
        let mut amounts: Vec<(Sym, i64)> = total
            .into_iter()
            .map(|(resource, nanos)| (resource, amount(nanos, resource == cpu)))
            .filter(|(_, amount)| *amount != 0)
            .collect();
        amounts.sort_unstable();
        Requests {
            amounts: amounts.into(),
            scored: [
                amount(get(&scored, cpu), true),
                amount(get(&scored, memory), false),
            ],
        }
    }

    /// The amount of one resource.
    pub fn get(&self, resource: Sym) -> i64 {
        let found = self.amounts.iter().find(|(r, _)| *r == resource);
        found.map_or(0, |(_, amount)| *amount)
    }
}

/// An amount as it is counted: CPU in thousandths, everything else in whole units, both rounded up.
pub fn amount(nanos: i128, is_cpu: bool) -> i64 {
    let unit = if is_cpu { 1_000_000 } else { 1_000_000_000 };
    let whole = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

/// A quantity in nano-units; what is no quantity is nothing.
pub fn nanos(text: &Text) -> i128 {
    text.0.parse().map_or(0, |q: Quantity| q.nanos())
}

fn total_scored(symbols: &mut Symbols, pod: &api::Pod, (cpu, memory): (Sym, Sym)) -> Sums {
    total(symbols, pod, &[(cpu, SCORED_CPU), (memory, SCORED_MEMORY)])
}

// All main containers and sidecars together, or the largest init container with the sidecars before it;
// then what the pod as a whole says, then its overhead.
fn total(symbols: &mut Symbols, pod: &api::Pod, missing: &[(Sym, i128)]) -> Sums {
    let Some(spec) = &pod.spec else {
        return Sums::new();
    };
    let status = pod.status.as_ref();
    let held = status.and_then(|s| s.container_statuses.as_deref());
    let held_init = status.and_then(|s| s.init_container_statuses.as_deref());
    let mut sum = Sums::new();
    for container in &spec.containers {
        add(&mut sum, &of_container(symbols, container, held, missing));
    }
    let (mut sidecars, mut peak) = (Sums::new(), Sums::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of_container(symbols, container, held_init, missing);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut peak, &together);
        }
    }
    raise(&mut sum, &peak);
    let whole = spec.resources.as_ref().and_then(|r| r.requests.as_ref());
    for (name, quantity) in whole.into_iter().flatten() {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            set(&mut sum, symbols.of(name), nanos(quantity));
        }
    }
    for (name, quantity) in spec.overhead.iter().flatten() {
        add(&mut sum, &[(symbols.of(name), nanos(quantity))]);
    }
    sum
}

// While a container is resized it counts what it asks for, was promised or holds, whichever is most.
fn of_container(
    symbols: &mut Symbols,
    container: &api::Container,
    held: Option<&[api::ContainerStatus]>,
    missing: &[(Sym, i128)],
) -> Sums {
    let asked = container
        .resources
        .as_ref()
        .and_then(|r| r.requests.as_ref());
    let asked = asked.into_iter().flatten();
    let mut sums: Sums = asked.map(|(n, q)| (symbols.of(n), nanos(q))).collect();
    let held = held.and_then(|all| all.iter().find(|s| s.name == container.name));
    if let Some(held) = held {
        let actual = held.resources.as_ref().and_then(|r| r.requests.as_ref());
        let promised = held.allocated_resources.as_ref();
        for (name, quantity) in actual.into_iter().chain(promised).flatten() {
            raise(&mut sums, &[(symbols.of(name), nanos(quantity))]);
        }
    }
    for (resource, amount) in missing {
        if !sums.iter().any(|(r, _)| r == resource) {
            sums.push((*resource, *amount));
        }
    }
    sums
}

fn get(sums: &[(Sym, i128)], resource: Sym) -> i128 {
    let found = sums.iter().find(|(r, _)| *r == resource);
    found.map_or(0, |(_, amount)| *amount)
}

fn set(sums: &mut Sums, resource: Sym, amount: i128) {
    match sums.iter_mut().find(|(r, _)| *r == resource) {
        Some((_, sum)) => *sum = amount,
        None => sums.push((resource, amount)),
    }
}

fn add(sums: &mut Sums, more: &[(Sym, i128)]) {
    for &(resource, amount) in more {
        let sum = get(sums, resource) + amount;
        set(sums, resource, sum);
    }
}

fn raise(sums: &mut Sums, floor: &[(Sym, i128)]) {
    for &(resource, amount) in floor {
        let sum = get(sums, resource).max(amount);
        set(sums, resource, sum);
    }
}
