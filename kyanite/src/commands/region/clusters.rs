//! Managed clusters: each is this program again, with a data directory, keys, ports and a network of its own.

use std::process::Stdio;
use std::time::Duration;

use ::cloud::{Done, Fabric, Order, Task, Trouble};
use machines::{Launcher, Namespaces, Network};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::imds::Imds;
use super::{HOLLOW, last, trouble};
use crate::admin;
use crate::commands::machine::LAUNCHER;
use crate::commands::up::{can_run_machines, cloud_controllers};
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::pools::{Machine, Pool, Pools};

/// How long nodes may take to come, a little longer than who brings them waits for them.
const NODES: Duration = Duration::from_secs(300);
/// How long a cluster may take to be gone.
const GOING: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The longest part of a cluster's name in its directory's: a socket's path has a limit.
const LONGEST: usize = 20;
/// What fails when nodes do not come, in AKS' words.
const NO_NODES: &str = "CreateVMSSAgentPoolFailed";
const NO_CLUSTER: &str = "ControlPlaneNotReady";

/// What this region does not do for a cluster, and would otherwise pass over in silence.
const REFUSED: [(&str, &str); 6] = [
    (
        "/properties/apiServerAccessProfile/enablePrivateCluster",
        "true",
    ),
    ("/properties/networkProfile/networkPlugin", "none"),
    ("/properties/networkProfile/ipFamilies/1", "IPv6"),
    ("/properties/serviceMeshProfile/mode", "Istio"),
    ("/properties/windowsProfile/adminUsername", ""),
    ("/properties/httpProxyConfig/httpProxy", ""),
];

/// Carries out an order for a cluster.
pub(super) async fn carry_out(
    home: &DataDir,
    imds: &Imds,
    fabric: Option<Fabric>,
    order: &Order,
) -> Result<Done, Trouble> {
    let dir = place(home, order);
    let stopped = order.body["properties"]["powerState"]["code"] == "Stopped";
    if stopped || order.task == Task::Remove {
        imds.forget(dir.path());
    }
    if let Some(fabric) = fabric.filter(|_| !stopped && order.task != Task::Remove) {
        super::tell(home, &dir, &fabric, &order.id);
    }
    match &order.task {
        Task::Remove => remove(&dir)
            .await
            .map(|()| Done::default())
            .map_err(trouble(NO_CLUSTER)),
        Task::Bring if stopped => end(&dir, &[])
            .await
            .map(|()| Done::default())
            .map_err(trouble(NO_CLUSTER)),
        Task::Bring | Task::Act { .. } => bring(&dir, imds, order).await,
    }
}

/// Ends clusters that no resource stands for.
pub(super) async fn clear(home: &DataDir, known: &[&Order]) {
    let kept: Vec<_> = known.iter().map(|order| place(home, order)).collect();
    for dir in home.clusters() {
        if kept.iter().any(|kept| kept.path() == dir.path()) {
            continue;
        }
        tracing::info!(directory = %dir.path().display(), "ends a cluster that no resource stands for");
        if let Err(failure) = remove(&dir).await {
            tracing::error!(%failure, "a cluster that no resource stands for goes on");
        }
    }
}

/// The machines of the cluster that has one of this name.
pub(super) fn driver_of(home: &DataDir, machine: &str) -> Option<Namespaces> {
    let all = home.clusters().into_iter().chain([home.clone()]);
    let drivers = all.filter_map(|dir| driver(&dir));
    drivers.into_iter().find(|driver| {
        let list = driver.list().unwrap_or_default();
        list.iter().any(|one| one.name == machine)
    })
}

/// The network of the cluster that has a machine of this name. Machines are not asked how they are, which leaves traces.
pub(super) fn network_of(home: &DataDir, machine: &str) -> Option<Network> {
    let all = home.clusters().into_iter().chain([home.clone()]);
    let has = |dir: &DataDir| dir.path().join("machines/machines").join(machine).exists();
    let drivers = all.filter(has).filter_map(|dir| driver(&dir));
    drivers
        .into_iter()
        .find_map(|driver| driver.network("cluster").ok())
}

fn driver(dir: &DataDir) -> Option<Namespaces> {
    let directory = dir.path().join("machines");
    let launcher = Launcher::this_program(&[LAUNCHER]);
    directory
        .exists()
        .then(|| Namespaces::new(&directory, launcher).ok())?
}

/// Where a cluster lives; the one that this cloud is a part of lives where the cloud does.
fn place(home: &DataDir, order: &Order) -> DataDir {
    if order.hidden["adopted"] == true {
        return home.clone();
    }
    let name: String = order.name().to_lowercase().chars().take(LONGEST).collect();
    let digits = order.hidden["suffix"].as_str().unwrap_or_default();
    home.cluster(&format!("{name}-{digits}"))
}

async fn bring(dir: &DataDir, imds: &Imds, order: &Order) -> Result<Done, Trouble> {
    refuse(order)?;
    let pools = pools(order)?;
    let hollow = hollow(dir, order);
    let state = match (running(dir).await.map_err(trouble(NO_CLUSTER))?, &hollow) {
        (Some(state), None) => {
            ask(dir, &pools).await.map_err(trouble(NO_NODES))?;
            state
        }
        (Some(state), Some(_)) if order.hidden["hollow"] == json!(order.nodes.len()) => state,
        (there, _) => {
            if there.is_some() {
                end(dir, &[]).await.map_err(trouble(NO_CLUSTER))?;
            }
            let started = start(dir, order, &pools, hollow.is_some()).await;
            started.map_err(trouble(NO_NODES))?
        }
    };
    if hollow.is_none()
        && let Some(network) = driver(dir).and_then(|d| d.network("cluster").ok())
    {
        imds.serve(&network, &order.nodes);
    }
    let access = super::access(dir, &state.server).map_err(trouble(NO_CLUSTER))?;
    Ok(done(order, json!(access), hollow))
}

/// What became of a cluster: how it is reached, which version it really has, and whether its nodes are on paper.
fn done(order: &Order, access: Value, hollow: Option<String>) -> Done {
    let mut pools = order.body["properties"]["agentPoolProfiles"].clone();
    for pool in pools.as_array_mut().into_iter().flatten() {
        pool["currentOrchestratorVersion"] = json!(::apiserver::RELEASE);
    }
    let mut done = Done {
        body: json!({"properties": {"currentKubernetesVersion": ::apiserver::RELEASE, "agentPoolProfiles": pools}}),
        hidden: json!({"access": access}),
        output: Value::Null,
    };
    if let Some(why) = hollow {
        done.body["tags"] = json!({ HOLLOW: why });
        done.hidden["hollow"] = json!(order.nodes.len());
    }
    done
}

/// Why nodes are on paper, if they have to be. A tag has 256 characters at most.
fn hollow(dir: &DataDir, order: &Order) -> Option<String> {
    let was = order.hidden["hollow"].is_number();
    let adopted = order.hidden["adopted"] == true;
    match can_run_machines(dir) {
        Ok(()) if !was => None,
        Ok(()) => Some("its nodes were on paper when it was made".to_owned()),
        // Its own process knows best what it has.
        Err(_) if adopted => None,
        Err(failure) => Some(failure.message.chars().take(256).collect()),
    }
}

fn refuse(order: &Order) -> Result<(), Trouble> {
    let asked = REFUSED.iter().find(|(pointer, value)| {
        let found = order.body.pointer(pointer).filter(|found| !found.is_null());
        found.is_some_and(|found| match found {
            _ if value.is_empty() => true,
            Value::String(text) => text == value,
            found => *found == (*value == "true"),
        })
    });
    match asked {
        None => Ok(()),
        Some((pointer, _)) => {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            let message =
                format!("This region makes no clusters with {field} as it was asked for.");
            Err(Trouble::new("FeatureNotSupported", message))
        }
    }
}

/// A cluster's pools as its process is told them. Pure.
fn pools(order: &Order) -> Result<Pools, Trouble> {
    let properties = &order.body["properties"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let profiles = properties["agentPoolProfiles"]
        .as_array()
        .into_iter()
        .flatten();
    let pools = profiles
        .map(|profile| pool(order, profile))
        .collect::<Result<_, _>>()?;
    Ok(Pools {
        location: text(&order.body["location"]),
        group: text(&properties["nodeResourceGroup"]),
        subnet: order
            .nodes
            .iter()
            .find_map(|node| node.subnet)
            .unwrap_or(Pools::SUBNET),
        pools,
    })
}

fn pool(order: &Order, profile: &Value) -> Result<Pool, Trouble> {
    let text = |field: &str| profile[field].as_str().unwrap_or_default().to_owned();
    let list = |field: &str| -> Vec<String> {
        let all = profile[field].as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let name = text("name");
    for (field, only) in [("osType", "Linux"), ("type", "VirtualMachineScaleSets")] {
        let asked = text(field);
        if asked != only {
            let message = format!(
                "This region has no nodes with {field} {asked}, as the pool {name} asks for."
            );
            return Err(Trouble::new("FeatureNotSupported", message));
        }
    }
    let labels = profile["nodeLabels"].as_object().into_iter().flatten();
    let own = order.nodes.iter().filter(|node| node.pool == name);
    let machines = own.filter_map(|node| {
        let number = last(&node.id).parse().ok()?;
        Some(Machine {
            number,
            address: node.address?,
        })
    });
    Ok(Pool {
        id: order.hidden["sets"][&name]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        vm_size: text("vmSize"),
        zones: list("availabilityZones"),
        mode: text("mode").to_lowercase(),
        labels: labels
            .filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())))
            .collect(),
        taints: list("nodeTaints"),
        max_pods: profile["maxPods"]
            .as_u64()
            .and_then(|n| u16::try_from(n).ok())
            .unwrap_or(110),
        machines: machines.collect(),
        name,
    })
}

/// What a cluster's process says of itself, once it has started; none if there is no process.
async fn running(dir: &DataDir) -> Result<Option<State>> {
    let deadline = Instant::now() + GOING;
    loop {
        match dir.running() {
            Err(failure) if failure.code == Code::Unavailable && Instant::now() < deadline => {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            known => return known,
        }
    }
}

/// Has a cluster that runs bring its machines to these pools.
async fn ask(dir: &DataDir, pools: &Pools) -> Result<()> {
    let (socket, question) = (dir.socket(), json!({"ask": "pools", "pools": pools}));
    let asked = move || admin::ask_patiently(&socket, &question, NODES);
    let answer = tokio::task::spawn_blocking(asked).await;
    answer
        .map_err(|e| Failure::new(Code::Failure, e.to_string()))?
        .map(drop)
}

/// Starts a cluster and waits for its nodes. It keeps the port it had.
async fn start(dir: &DataDir, order: &Order, pools: &Pools, hollow: bool) -> Result<State> {
    dir.prepare()?;
    share_images(dir);
    pools.write(dir)?;
    let server = order.hidden["access"]["server"]
        .as_str()
        .unwrap_or_default();
    let port: u16 = server
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(0);
    let profile = &order.body["properties"]["networkProfile"];
    let mut words = vec![
        "--cloud=false".to_owned(),
        format!("--cloud-config={}", cloud_controllers::file(dir).display()),
        format!("--port={port}"),
        format!("--kubeconfig={}", dir.path().join("context.conf").display()),
    ];
    let ranges = [
        ("serviceCidr", "service-cluster-ip-range"),
        ("podCidr", "cluster-cidr"),
    ];
    words.extend(
        ranges
            .iter()
            .filter_map(|(field, flag)| Some(format!("--{flag}={}", profile[*field].as_str()?))),
    );
    if hollow {
        words.push(format!("--hollow={}", order.nodes.len()));
    }
    run("up", dir, &words).await?;
    let state = dir.running()?;
    state.ok_or_else(|| Failure::new(Code::Unavailable, "the cluster ended as soon as it was up"))
}

/// Clusters of one program need its images once. Where that fails they are made again.
fn share_images(dir: &DataDir) {
    let home = dir.path().parent().and_then(|all| all.parent());
    if let Some(images) = home
        .map(|home| home.join("images"))
        .filter(|at| at.exists())
    {
        let _ = std::os::unix::fs::symlink(images, dir.images());
    }
}

/// Ends a cluster's process and its machines.
async fn end(dir: &DataDir, words: &[String]) -> Result<()> {
    let deadline = Instant::now() + GOING;
    loop {
        match run("down", dir, words).await {
            // One that starts right now cannot be told to stop yet.
            Err(_) if Instant::now() < deadline => tokio::time::sleep(LOOK_EVERY).await,
            ended => return ended,
        }
    }
}

async fn remove(dir: &DataDir) -> Result<()> {
    match dir.path().exists() {
        true => end(dir, &["--purge".to_owned()]).await,
        false => Ok(()),
    }
}

/// Runs this program on a cluster's data directory.
async fn run(command: &str, dir: &DataDir, words: &[String]) -> Result<()> {
    let broken = |e: std::io::Error| {
        Failure::new(
            Code::Failure,
            format!("this program cannot run itself: {e}"),
        )
    };
    let program = std::env::current_exe().map_err(broken)?;
    let output = Command::new(program)
        .arg(command)
        .arg("--data-dir")
        .arg(dir.path())
        .args(words)
        .env_remove("KYANITE_NODES")
        .env_remove("KYANITE_DATA_DIR")
        .env_remove("KYANITE_NAME")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(broken)?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said
                .lines()
                .filter(|line| !line.trim_start().starts_with('✓'));
            let said: Vec<&str> = said.collect();
            Err(Failure::new(
                Code::Failure,
                said.join(" ").trim().to_owned(),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use ::cloud::Node;

    use super::*;

    fn order(pool: Value) -> Order {
        let id = "/subscriptions/s/resourcegroups/g/providers/Microsoft.ContainerService/managedClusters/Blue";
        let node = |number: u8| Node {
            id: format!("/x/virtualMachineScaleSets/aks-p-11112222-vmss/virtualMachines/{number}"),
            name: format!("aks-p-11112222-vmss00000{number}"),
            pool: "p".into(),
            address: Some([10, 224, 0, 4 + number].into()),
            subnet: Some("10.224.0.0/16".parse().unwrap()),
            network: None,
            zone: None,
        };
        Order {
            id: id.into(),
            kind: super::super::CLUSTER,
            task: Task::Bring,
            body: json!({"location": "eastus", "properties": {"nodeResourceGroup": "MC_g_Blue_eastus",
                "agentPoolProfiles": [pool]}}),
            hidden: json!({"suffix": "12345678", "sets": {"p": "11112222"}}),
            nodes: vec![node(0), node(3)],
        }
    }

    fn profile() -> Value {
        json!({"name": "p", "type": "VirtualMachineScaleSets", "osType": "Linux", "mode": "System", "vmSize": "Standard_D2s_v5",
            "maxPods": 250, "availabilityZones": ["1", "2"], "nodeLabels": {"team": "blue"}, "nodeTaints": ["a=b:NoSchedule"]})
    }

    #[test]
    fn the_nodes_of_a_cluster_have_the_names_that_its_scale_sets_have() {
        let order = order(profile());
        let pools = pools(&order).unwrap();
        let names: Vec<String> = order.nodes.iter().map(|node| node.name.clone()).collect();
        assert_eq!(pools.names(), names);
        assert_eq!(pools.group, "MC_g_Blue_eastus");
        let pool = &pools.pools[0];
        assert_eq!((pool.mode.as_str(), pool.max_pods), ("system", 250));
        assert_eq!(pool.labels["team"], "blue");
        assert_eq!(pool.taints, ["a=b:NoSchedule"]);
    }

    #[test]
    fn what_this_region_does_not_do_is_refused_by_name() {
        let mut windows = profile();
        windows["osType"] = json!("Windows");
        let trouble = pools(&order(windows)).unwrap_err();
        assert!(trouble.message.contains("osType Windows"), "{trouble}");
        let mut private = order(profile());
        private.body["properties"]["apiServerAccessProfile"] =
            json!({"enablePrivateCluster": true});
        let trouble = refuse(&private).unwrap_err();
        assert!(
            trouble.message.contains("enablePrivateCluster"),
            "{trouble}"
        );
        assert!(refuse(&order(profile())).is_ok());
    }

    #[test]
    fn nodes_on_paper_are_said_to_be_and_versions_are_those_that_run() {
        let done = done(&order(profile()), json!({}), Some("no root".into()));
        assert_eq!(done.body["tags"][HOLLOW], "no root");
        assert_eq!(done.hidden["hollow"], 2);
        let pool = &done.body["properties"]["agentPoolProfiles"][0];
        assert_eq!(pool["currentOrchestratorVersion"], ::apiserver::RELEASE);
    }
}
