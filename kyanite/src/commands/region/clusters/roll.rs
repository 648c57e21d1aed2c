//! Brings the machines of a cluster that runs to what its pools say. Those that are to be made of something else are
//! replaced a few at a time, as AKS upgrades a pool: others stand in for them meanwhile, and nobody's budget is broken.

use std::time::Duration;

use ::cloud::{Order, Trouble};
use futures::future::join_all;
use serde_json::{Value, json};

use super::{NO_NODES, ROTATING, ask_for, trouble, wanted};
use crate::client::Client;
use crate::commands::drain::{self, Blocked};
use crate::datadir::DataDir;
use crate::exit::Result;
use crate::pools::{Pool, Pools};

/// How long nodes that go for good are drained at most.
const LEAVING: Duration = Duration::from_secs(60);
/// How long a drain takes at most, where a pool says nothing.
const USUAL_DRAIN: u64 = 30;
const FAILED: &str = "UpgradeFailed";

/// Brings the machines to what the order says. `now` has those that are to be there, made of what they are made of.
pub(super) async fn bring(dir: &DataDir, now: &Pools, order: &Order) -> Result<(), Trouble> {
    let client = connect(dir).await?;
    let before = Pools::read(dir).ok().flatten();
    let before = before.map(|before| before.names()).unwrap_or_default();
    let kept = now.names();
    let gone: Vec<String> = before
        .into_iter()
        .filter(|name| !kept.contains(name))
        .collect();
    leave(&client, &gone).await;
    ask_for(dir, now).await.map_err(trouble(NO_NODES))?;
    replace(dir, now.clone(), order).await
}

/// Makes machines anew that are not made of what their pool says, pool by pool.
pub(super) async fn replace(dir: &DataDir, mut now: Pools, order: &Order) -> Result<(), Trouble> {
    let goal = wanted::pools(order);
    // Nobody trusts the old ones any longer than it takes: all at once, as AKS does.
    if order.body["properties"]["provisioningState"] == ROTATING {
        return ask_for(dir, &goal).await.map_err(trouble(NO_NODES));
    }
    let client = connect(dir).await?;
    for profile in wanted::profiles(order) {
        let pool = profile["name"].as_str().unwrap_or_default();
        roll(
            dir,
            &client,
            (&mut now, &goal),
            &Settings::of(profile),
            pool,
        )
        .await?;
    }
    Ok(())
}

async fn connect(dir: &DataDir) -> Result<Client, Trouble> {
    Client::connect(dir).await.map_err(trouble(NO_NODES))
}

/// What a pool says of its upgrades.
#[derive(Debug, Clone)]
struct Settings {
    /// How many machines it has when nothing goes on.
    count: usize,
    /// How many may be missing.
    unavailable: usize,
    drain: Duration,
    soak: Duration,
}

impl Settings {
    fn of(profile: &Value) -> Settings {
        let settings = &profile["upgradeSettings"];
        let minutes = |field: &str, usual| {
            Duration::from_secs(60 * settings[field].as_u64().unwrap_or(usual))
        };
        let is_off = profile["powerState"]["code"] == "Stopped";
        let count = profile["count"].as_u64().filter(|_| !is_off).unwrap_or(0);
        let unavailable = settings["maxUnavailable"].as_str().unwrap_or("0");
        let unavailable: u64 = match unavailable.strip_suffix('%') {
            Some(part) => part
                .parse()
                .map_or(0, |part: u64| (count * part).div_ceil(100)),
            None => unavailable.parse().unwrap_or(0),
        };
        Settings {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            unavailable: usize::try_from(unavailable).unwrap_or(usize::MAX),
            drain: minutes("drainTimeoutInMinutes", USUAL_DRAIN),
            soak: minutes("nodeSoakDurationInMinutes", 0),
        }
    }
}

/// What is done next with a pool.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// These are drained and made anew.
    Replace(Vec<String>),
    /// These stood in for others, and go.
    Shed(Vec<String>),
    Done,
}

/// Decides what is done next: as many at once as others stand in for, or as may be missing. Those with the highest numbers,
/// beyond what the pool has, are the ones that stand in.
fn next(now: &Pool, goal: &Pool, settings: &Settings) -> Step {
    let name = |number: &u64| now.node_name(*number);
    let mut numbers: Vec<u64> = now.machines.iter().map(|machine| machine.number).collect();
    numbers.sort_unstable();
    let surge = numbers.split_off(settings.count.min(numbers.len()));
    let is_stale = |number: &&u64| {
        let of = |pool: &Pool| pool.machines.iter().find(|m| m.number == **number).cloned();
        of(now)
            .zip(of(goal))
            .is_some_and(|(now, goal)| now.is_stale(&goal))
    };
    let at_once = surge.len().max(settings.unavailable).max(1);
    let stale: Vec<String> = numbers
        .iter()
        .filter(is_stale)
        .take(at_once)
        .map(name)
        .collect();
    match (stale.is_empty(), surge.is_empty()) {
        (false, _) => Step::Replace(stale),
        (true, false) => Step::Shed(surge.iter().map(name).collect()),
        (true, true) => Step::Done,
    }
}

async fn roll(
    dir: &DataDir,
    client: &Client,
    (now, goal): (&mut Pools, &Pools),
    settings: &Settings,
    pool: &str,
) -> Result<(), Trouble> {
    loop {
        let find = |pools: &Pools| pools.pools.iter().find(|own| own.name == pool).cloned();
        let Some((own, wanted)) = find(now).zip(find(goal)) else {
            return Ok(());
        };
        let (names, is_last) = match next(&own, &wanted, settings) {
            Step::Done => return Ok(()),
            Step::Replace(names) => (names, false),
            Step::Shed(names) => (names, true),
        };
        tracing::info!(
            pool,
            ?names,
            is_last,
            "machines are drained, to be replaced or to go"
        );
        if let Err(trouble) = empty(client, &names, settings).await {
            give_up(dir, client, now, (pool, settings), &names).await;
            return Err(trouble);
        }
        if is_last {
            now.forget(&names);
        }
        for (name, machine) in now.each_mut().filter(|(name, _)| names.contains(name)) {
            machine.made = goal.find(&name).and_then(|goal| goal.made.clone());
        }
        ask_for(dir, now).await.map_err(trouble(NO_NODES))?;
        for name in names.iter().filter(|_| !is_last) {
            note(client, name, "Upgrade", "Successfully upgraded node").await;
        }
        if !is_last {
            tokio::time::sleep(settings.soak).await;
        }
    }
}

/// Takes everything from nodes; together, as they go together.
async fn empty(client: &Client, names: &[String], settings: &Settings) -> Result<(), Trouble> {
    let broken = trouble(FAILED);
    for name in names {
        drain::cordon(client, name, true).await.map_err(&broken)?;
    }
    let drains = names.iter().map(|name| async move {
        note(client, name, "Drain", "Draining node").await;
        if !drain::is_ready(client, name).await {
            return Ok(());
        }
        let drained = drain::drain(client, name, settings.drain).await;
        match drained.map_err(trouble(FAILED))? {
            Ok(()) => Ok(()),
            Err(blocked) => Err(explained(client, name, &blocked).await),
        }
    });
    join_all(drains).await.into_iter().collect()
}

/// Those that were to be replaced take pods again, and those that stood in go.
async fn give_up(
    dir: &DataDir,
    client: &Client,
    now: &mut Pools,
    (pool, settings): (&str, &Settings),
    names: &[String],
) {
    for name in names {
        if let Err(failure) = drain::cordon(client, name, false).await {
            tracing::warn!(node = name, %failure, "a node that was not drained stays cordoned");
        }
    }
    let own = now.pools.iter().find(|own| own.name == pool);
    let mut numbers: Vec<u64> = own
        .into_iter()
        .flat_map(|own| &own.machines)
        .map(|m| m.number)
        .collect();
    numbers.sort_unstable();
    let surge = numbers.split_off(settings.count.min(numbers.len()));
    let surge: Vec<String> = surge
        .iter()
        .filter_map(|number| Some(own?.node_name(*number)))
        .collect();
    leave(client, &surge).await;
    now.forget(&surge);
    if let Err(failure) = ask_for(dir, now).await {
        tracing::warn!(%failure, "machines that stood in for others stay until the next operation");
    }
}

/// Nodes go for good. Whoever does not leave in time goes with them.
async fn leave(client: &Client, names: &[String]) {
    let drains = names.iter().map(|name| async move {
        if !drain::is_ready(client, name).await {
            return;
        }
        let cordoned = drain::cordon(client, name, true).await;
        note(client, name, "RemovingNode", "Removing node").await;
        let drained = match cordoned {
            Ok(()) => drain::drain(client, name, LEAVING).await,
            Err(failure) => Err(failure),
        };
        match drained {
            Ok(Ok(())) => {}
            Ok(Err(blocked)) => {
                tracing::warn!(node = name, pod = ?blocked.pod, "goes with its node: it did not leave in time");
            }
            Err(failure) => tracing::warn!(node = name, %failure, "a node goes without being drained"),
        }
    });
    join_all(drains).await;
}

/// Why a drain failed, as AKS says it.
async fn explained(client: &Client, node: &str, blocked: &Blocked) -> Trouble {
    let (namespace, pod) = &blocked.pod;
    let Some(said) = &blocked.said else {
        let message = format!(
            "Drain node {node} failed: pod {namespace}/{pod} was evicted and did not end in time. See \
             https://aka.ms/aks/debugdrainfailures"
        );
        return Trouble::new(FAILED, message);
    };
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
    let object = client.get(&path).await.unwrap_or_default();
    let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
    let budgets = client.get(&path).await.unwrap_or_default();
    let budgets = budgets["items"].as_array().cloned().unwrap_or_default();
    let budget = drain::budgets_of(&budgets, &object).first().map(|budget| {
        let name = budget["metadata"]["name"].as_str().unwrap_or_default();
        let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
        let unready = number("expectedPods") - number("currentHealthy");
        format!(" PDB debug info: {namespace}/{name} blocked pod {namespace}/{pod} with {unready} unready pods.")
    });
    let message = format!(
        "Drain node {node} failed when evicting pod {pod} failed with Too Many Requests error. This is often caused by a \
         restrictive Pod Disruption Budget (PDB) policy. See https://aka.ms/aks/debugdrainfailures. Original error: \
         {said}.{}",
        budget.unwrap_or_default()
    );
    Trouble::new(FAILED, message)
}

/// Leaves an event on a node.
async fn note(client: &Client, node: &str, reason: &str, message: &str) {
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "default",
            "name": format!("{node}.{:016x}", rand::random::<u64>())},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}, "type": "Normal",
        "reason": reason, "message": format!("{message}: {node}"), "source": {"component": "upgrader"}, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now});
    let made = client
        .create("/api/v1/namespaces/default/events", &event)
        .await;
    if let Err(failure) = made {
        tracing::debug!(node, %failure, "an event is lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::tests::pool;
    use crate::pools::{Machine, Made};

    fn pool_of(machines: &[(u64, &str)]) -> Pool {
        let machine = |(number, image): &(u64, &str)| Machine {
            number: *number,
            address: std::net::Ipv4Addr::LOCALHOST,
            made: (!image.is_empty()).then(|| Made {
                image: (*image).into(),
                ..Made::default()
            }),
        };
        Pool {
            machines: machines.iter().map(machine).collect(),
            ..pool()
        }
    }

    #[test]
    fn which_machines_are_replaced_next() {
        let settings = |count, unavailable| Settings {
            count,
            unavailable,
            drain: Duration::ZERO,
            soak: Duration::ZERO,
        };
        let names = |numbers: &[u64]| numbers.iter().map(|n| pool().node_name(*n)).collect();
        let replace = |numbers: &[u64]| Step::Replace(names(numbers));
        for (now, unavailable, expected) in [
            // With one that stands in, one after the other.
            (
                vec![(0, "a"), (1, "a"), (2, "a"), (7, "b")],
                0,
                replace(&[0]),
            ),
            (
                vec![(0, "b"), (1, "a"), (2, "a"), (7, "b")],
                0,
                replace(&[1]),
            ),
            (
                vec![(7, "b"), (2, "a"), (1, "a"), (0, "a"), (8, "b")],
                0,
                replace(&[0, 1]),
            ),
            (
                vec![(0, "b"), (1, "b"), (2, "b"), (7, "b")],
                0,
                Step::Shed(names(&[7])),
            ),
            (vec![(0, "b"), (1, "b"), (2, "b")], 0, Step::Done),
            // Without one, as many as may be missing; one at least, or it would never end.
            (vec![(0, "a"), (1, "a"), (2, "a")], 2, replace(&[0, 1])),
            (vec![(0, "a"), (1, "a"), (2, "a")], 0, replace(&[0])),
            // Nobody knows what these are made of, and they stay.
            (vec![(0, ""), (1, ""), (2, "b")], 0, Step::Done),
            (vec![], 0, Step::Done),
        ] {
            let goal: Vec<(u64, &str)> = now.iter().map(|(n, _)| (*n, "b")).collect();
            let step = next(&pool_of(&now), &pool_of(&goal), &settings(3, unavailable));
            assert_eq!(step, expected, "{now:?}");
        }
    }

    #[test]
    fn what_a_pool_says_of_its_upgrades() {
        let profile = json!({"count": 20, "upgradeSettings": {"maxUnavailable": "10%", "drainTimeoutInMinutes": 5,
            "nodeSoakDurationInMinutes": 2}});
        let settings = Settings::of(&profile);
        assert_eq!((settings.count, settings.unavailable), (20, 2));
        assert_eq!(
            (settings.drain.as_secs(), settings.soak.as_secs()),
            (300, 120)
        );
        let usual = Settings::of(&json!({"count": 1}));
        assert_eq!((usual.unavailable, usual.drain.as_secs()), (0, 1800));
    }
}
