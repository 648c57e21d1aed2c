//! Managed clusters: each is this program again, with a data directory, keys, ports and a network of its own.

mod archive;
mod command;
mod refused;
mod roll;
mod wanted;

use std::process::Stdio;
use std::time::Duration;

use ::cloud::{Done, Fabric, Order, Task, Trouble};
use machines::{Driver as _, Launcher, Namespaces, Network};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::imds::Imds;
use super::{HOLLOW, take_machines, trouble};
use crate::admin;
use crate::commands::machine::LAUNCHER;
use crate::commands::up::{can_run_machines, cloud_controllers};
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::pools::Pools;

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
/// The state of a cluster whose certificates are rotated.
const ROTATING: &str = "RotatingClusterCertificates";
/// The same of one that gets another key for tokens of service accounts.
const ROTATING_KEYS: &str = "RotatingServiceAccountSigningKeys";

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
        Task::Act { word, input } if word == "runcommand" => command::run(&dir, input).await,
        Task::Bring | Task::Act { .. } => bring(&dir, imds, order).await,
    }
}

/// Why a cluster cannot be as it is asked for.
pub(super) fn objection(body: &Value) -> Option<Trouble> {
    refused::objection(body)
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

/// Every cluster's data directory that has machines, the one that this cloud is a part of as well.
fn homes(home: &DataDir) -> impl Iterator<Item = DataDir> {
    home.clusters().into_iter().chain([home.clone()])
}

/// The cluster that has a machine of this name. Machines are not asked how they are, which leaves traces.
fn home_of(home: &DataDir, machine: &str) -> Option<DataDir> {
    let has = |dir: &DataDir| dir.path().join("machines/machines").join(machine).exists();
    homes(home).find(has)
}

/// The machines of the cluster that has one of this name.
pub(super) fn driver_of(home: &DataDir, machine: &str) -> Option<Namespaces> {
    driver(&home_of(home, machine)?)
}

/// The network of the cluster that has a machine of this name.
pub(super) fn network_of(home: &DataDir, machine: &str) -> Option<Network> {
    network(&home_of(home, machine)?)
}

/// The network of a cluster's machines.
pub(super) fn network(dir: &DataDir) -> Option<Network> {
    driver(dir)?.network("cluster").ok()
}

/// The machines that a scale set of a cluster has on this host.
pub(super) fn machines_of_set(home: &DataDir, set: &str) -> Vec<String> {
    let listed = homes(home).filter_map(|dir| driver(&dir)?.list().ok());
    let names = listed.flatten().map(|machine| machine.name);
    names.filter(|name| is_of_set(name, set)).collect()
}

// Six digits follow the set's name.
fn is_of_set(machine: &str, set: &str) -> bool {
    let split = machine.len().checked_sub(6);
    let prefix = split.and_then(|at| machine.get(..at));
    prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(set))
}

/// Machines are no more that the cloud no longer has. What becomes of their nodes is for the cluster's controllers to say.
pub(super) async fn forget(home: &DataDir, names: Vec<String>) -> Result<Done, Trouble> {
    for name in names {
        let Some(dir) = home_of(home, &name) else {
            continue;
        };
        let question = json!({"ask": "forget", "machines": [name]});
        if ask(&dir, question).await.is_err() {
            // Nobody looks after them now; whoever does next reads which there are.
            let gone = driver(&dir).map(|driver| driver.remove(&name));
            if let Some(Err(error)) = gone {
                tracing::warn!(machine = name, %error, "a machine that the cloud no longer has stays");
            }
        }
    }
    Ok(Done::default())
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
    let mut pools = wanted::pools(order);
    let hollow = hollow(dir, order);
    let is_rotated = order.body["properties"]["provisioningState"] == ROTATING;
    if hollow.is_none() {
        wanted::remember(&mut pools, Pools::read(dir).ok().flatten().as_ref());
    }
    let there = running(dir).await.map_err(trouble(NO_CLUSTER))?;
    if is_rotated {
        rotate(dir).await.map_err(trouble(NO_CLUSTER))?;
    }
    // Tokens of the old key are believed until they end, as in AKS.
    if order.body["properties"]["provisioningState"] == ROTATING_KEYS {
        let key = ["service-account".to_owned()];
        let rotated = run(&["certs", "rotate"], dir, &key).await;
        rotated.map_err(trouble(NO_CLUSTER))?;
    }
    let state = match (there, &hollow) {
        (Some(state), None) => {
            roll::bring(dir, &pools, order).await?;
            state
        }
        (Some(state), Some(_)) if order.hidden["hollow"] == json!(order.nodes.len()) => state,
        (there, _) => {
            if there.is_some() {
                end(dir, &[]).await.map_err(trouble(NO_CLUSTER))?;
            }
            let started = start(dir, order, &pools, hollow.is_some()).await;
            let state = started.map_err(trouble(NO_NODES))?;
            if hollow.is_none() {
                roll::bring(dir, &pools, order).await?;
            }
            state
        }
    };
    if is_rotated {
        run(
            &["certs", "rotate"],
            dir,
            &["--ca", "--finish"].map(str::to_owned),
        )
        .await
        .map_err(trouble(NO_CLUSTER))?;
    }
    if hollow.is_none()
        && let Some(network) = network(dir)
    {
        imds.serve(&network, &order.nodes);
    }
    let access = super::access(dir, &state.server).map_err(trouble(NO_CLUSTER))?;
    let mut done = wanted::done(order, json!(access), hollow);
    if is_rotated {
        done.hidden["rotations"] = json!(wanted::rotations(order));
    }
    Ok(done)
}

/// New authorities beside the old ones, and everything of the control plane signed by them. What is left of an attempt
/// that was interrupted ends first.
async fn rotate(dir: &DataDir) -> Result<()> {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    // There may be nothing to finish.
    let _ = run(&["certs", "rotate"], dir, &words(&["--ca", "--finish"])).await;
    run(&["certs", "rotate"], dir, &words(&["--ca"])).await
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
async fn ask_for(dir: &DataDir, pools: &Pools) -> Result<()> {
    ask(dir, json!({"ask": "pools", "pools": pools})).await
}

async fn ask(dir: &DataDir, question: Value) -> Result<()> {
    let socket = dir.socket();
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
    run(&["up"], dir, &words).await?;
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
        match run(&["down"], dir, words).await {
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
async fn run(command: &[&str], dir: &DataDir, words: &[String]) -> Result<()> {
    let broken = |e: std::io::Error| {
        Failure::new(
            Code::Failure,
            format!("this program cannot run itself: {e}"),
        )
    };
    let program = std::env::current_exe().map_err(broken)?;
    let output = Command::new(program)
        .args(command)
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
