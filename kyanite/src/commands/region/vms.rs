//! Virtual machines: a machine for each, on a network for each virtual network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::cloud::{Done, Node, Order, Task, Trouble};
use ipnet::Ipv4Net;
use machines::{
    Attachment, Disk, Driver as _, File, Launcher, Namespaces, Network, PLATFORM, PowerOff, Spec,
    State, User,
};
use serde_json::Value;
use tokio::time::{Interval, MissedTickBehavior};

use super::disks::Disks;
use super::imds::Imds;
use super::turns::{Turn, Turns};
use super::{agent, digest};
use crate::commands::machine::LAUNCHER;

/// The network's name in its directory.
const NETWORK: &str = "vnet";
/// How long a machine may take to shut down before its plug is pulled.
const GRACE: Duration = Duration::from_secs(20);
/// How often machines are looked at, and after how many looks all is told again that was told before.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 10;
/// The most of a console that is shown, from its end.
const CONSOLE: usize = 1 << 20;
/// What fails when a machine does, in Azure's words.
const FAILED: &str = "OSProvisioningInternalError";

/// The virtual machines below a directory.
#[derive(Debug)]
pub(super) struct Vms {
    directory: PathBuf,
    imds: Arc<Imds>,
    disks: Arc<Disks>,
    turns: Turns,
    watched: Mutex<BTreeMap<String, Watched>>,
    beat: tokio::sync::Mutex<Option<Interval>>,
}

/// A machine that is looked at from time to time.
#[derive(Debug)]
struct Watched {
    driver: Namespaces,
    name: String,
    /// Whether it was last said to run, and how often it was looked at since.
    told: Option<(bool, u32)>,
}

impl Watched {
    // Whether it is to be told that it runs or not.
    fn is_new(&mut self, runs: bool) -> bool {
        match &mut self.told {
            Some((told, looks)) if *told == runs && *looks < LOOKS => {
                *looks += 1;
                false
            }
            told => {
                *told = Some((runs, 0));
                true
            }
        }
    }
}

impl Vms {
    pub(super) fn new(directory: &Path, imds: Arc<Imds>, disks: Arc<Disks>) -> Vms {
        Vms {
            directory: directory.to_owned(),
            imds,
            disks,
            turns: Turns::default(),
            watched: Mutex::default(),
            beat: tokio::sync::Mutex::default(),
        }
    }

    /// Carries out an order for a machine.
    pub(super) async fn carry_out(&self, order: &Order) -> Result<Done, Trouble> {
        let Some(node) = order.nodes.first().cloned() else {
            return Ok(Done::default());
        };
        if order.task == Task::Remove {
            return self.remove(order, &node).await;
        }
        let disks = self.disks.ready(&order.disks).await?;
        let system = &order.body["properties"]["osProfile"];
        let place = Place::of(self.driver(&node)?, &node.name)
            .in_turn(self.turn(&node.id))
            .on(node.subnet)
            .with_spec(spec(&order.hidden, system, &node, disks.clone()))
            .with_disks(disks);
        let done = match &order.task {
            Task::Act { word, input } => act(place, word, input).await,
            _ if order.hidden["power"] == "running" => place.work(Place::start).await,
            _ => place.work(Place::plug).await,
        };
        self.watch(&order.id, &node)?;
        self.speak_for(&node)?;
        done
    }

    /// Takes a machine away, with the disks that go with it.
    pub(super) async fn remove(&self, order: &Order, node: &Node) -> Result<Done, Trouble> {
        self.watched().remove(&node.id);
        let place = Place::of(self.driver(node)?, &node.name).in_turn(self.turn(&node.id));
        place.work(Place::remove).await?;
        self.imds.forget_gone();
        for disk in order.disks.iter().filter(|disk| disk.goes_with_machine) {
            self.disks.remove(&disk.id).await?;
        }
        Ok(Done::default())
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn with a machine.
    pub(super) fn turn(&self, id: &str) -> Turn {
        self.turns.of(id)
    }

    pub(super) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Looks at a machine from now on. How it is after an order is told in any case: the order may have failed.
    pub(super) fn watch(&self, id: &str, node: &Node) -> Result<(), Trouble> {
        let watched = Watched {
            driver: self.driver(node)?,
            name: node.name.clone(),
            told: None,
        };
        self.watched().insert(id.to_owned(), watched);
        Ok(())
    }

    /// Waits for a machine that came on or went off, by itself or by an order.
    pub(super) async fn power(&self) -> (String, bool) {
        let mut beat = self.beat.lock().await;
        let beat = beat.get_or_insert_with(|| {
            let mut beat = tokio::time::interval(LOOK);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            beat
        });
        loop {
            if let Some(news) = self.look() {
                return news;
            }
            beat.tick().await;
        }
    }

    // The first that has something new to tell. Whoever has the turn with a machine changes it just now; one that is
    // not there any more is forgotten.
    fn look(&self) -> Option<(String, bool)> {
        let mut watched = self.watched();
        let mut news = None;
        watched.retain(|id, one| {
            if news.is_some() || self.turns.of(id).is_taken() {
                return true;
            }
            let state = one.driver.state(&one.name);
            if let Ok(state) = &state
                && one.is_new(*state != State::Off)
            {
                news = Some((id.clone(), *state != State::Off));
            }
            state.is_ok()
        });
        news
    }

    /// What a machine has written to its console, the last of it.
    pub(super) async fn console(&self, node: &Node) -> Option<String> {
        let driver = self.started(node)?;
        console(&driver, &node.name).await
    }

    /// Whoever has a machine, if it was ever started.
    pub(super) fn started(&self, node: &Node) -> Option<Namespaces> {
        let driver = self.place(node).exists().then(|| self.driver(node).ok());
        driver
            .flatten()
            .filter(|driver| driver.state(&node.name).is_ok())
    }

    /// Ends machines that no resource stands for, and networks that no machine is on.
    pub(super) async fn clear(&self, known: &[&Order]) {
        let nodes = known.iter().flat_map(|order| &order.nodes);
        let kept: Vec<(PathBuf, String)> = nodes
            .map(|node| (self.place(node), node.name.clone()))
            .collect();
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        for place in entries.flatten().map(|entry| entry.path()) {
            let names = kept.iter().filter(|(its, _)| *its == place);
            let names: Vec<String> = names.map(|(_, name)| name.clone()).collect();
            let cleared = blocking(move || {
                let driver = Namespaces::new(&place, launcher())?;
                for machine in driver.list()? {
                    if !names.contains(&machine.name) {
                        driver.remove(&machine.name)?;
                    }
                }
                driver.sweep().map(drop)
            });
            if let Err(trouble) = cleared.await {
                tracing::error!(%trouble, "machines that no resource stands for may go on");
            }
        }
    }

    /// Whoever has the machines of a network, if there are any.
    pub(super) fn driver_of_network(&self, network: &str) -> Option<Namespaces> {
        let place = self.place_of(network);
        place
            .exists()
            .then(|| Namespaces::new(&place, launcher()).ok())?
    }

    /// Has the metadata service of its network know a machine.
    pub(super) fn speak_for(&self, node: &Node) -> Result<(), Trouble> {
        if let Ok(network) = self.driver(node)?.network(NETWORK) {
            self.imds.serve(&network, std::slice::from_ref(node));
        }
        Ok(())
    }

    /// The network that a machine is on, if it was ever started.
    pub(super) fn network(&self, node: &Node) -> Option<Network> {
        let place = self.place(node);
        place.exists().then_some(())?;
        self.driver(node).ok()?.network(NETWORK).ok()
    }

    /// Machines of a virtual network are kept together: they share its addresses.
    fn place(&self, node: &Node) -> PathBuf {
        self.place_of(node.network.as_deref().unwrap_or_default())
    }

    fn place_of(&self, network: &str) -> PathBuf {
        let network = network.to_lowercase();
        let name: String = super::last(&network).chars().take(20).collect();
        self.directory.join(format!("{name}-{}", digest(&network)))
    }

    pub(super) fn driver(&self, node: &Node) -> Result<Namespaces, Trouble> {
        Namespaces::new(&self.place(node), launcher()).map_err(failed)
    }
}

fn launcher() -> Launcher {
    Launcher::this_program(&[LAUNCHER])
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn failed(error: machines::Error) -> Trouble {
    Trouble::new(FAILED, error.to_string())
}

/// The end of a machine's console.
pub(super) async fn console(driver: &Namespaces, name: &str) -> Option<String> {
    let bytes = tokio::fs::read(driver.console_log(name).ok()?).await.ok()?;
    let start = bytes.len().saturating_sub(CONSOLE);
    Some(String::from_utf8_lossy(&bytes[start..]).into_owned())
}

/// Does something that takes a while.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, machines::Error> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Trouble::new(FAILED, e.to_string()))?
        .map_err(failed)
}

/// What a virtual machine is as a machine: by what is kept with it, and its system's profile. Pure.
pub(super) fn spec(hidden: &Value, system: &Value, node: &Node, disks: Vec<Disk>) -> Spec {
    let address = node.address.filter(|_| node.subnet.is_some());
    let mut hosts = format!("127.0.0.1 localhost\n127.0.1.1 {}\n", node.name);
    if let Some(address) = address {
        hosts += &format!("{address} {}\n", node.name);
    }
    Spec {
        name: node.name.clone(),
        attachment: address.map(|address| Attachment {
            network: NETWORK.to_owned(),
            address,
            name_servers: vec![PLATFORM],
        }),
        custom_data: hidden["customData"].as_str().unwrap_or_default().into(),
        files: vec![File::new("/etc/hosts", hosts)],
        users: administrator(system).into_iter().collect(),
        disks: Some(disks),
        ..Spec::default()
    }
}

/// Whom Azure's agent gives an account before anything else, with the keys that let in.
fn administrator(system: &Value) -> Option<User> {
    let keys = system["linuxConfiguration"]["ssh"]["publicKeys"].as_array();
    let keys = keys.into_iter().flatten();
    Some(User {
        name: system["adminUsername"].as_str()?.to_owned(),
        keys: keys
            .filter_map(|key| key["keyData"].as_str().map(str::to_owned))
            .collect(),
    })
}

/// A machine, and what is known of it. One without a specification is started as it was before.
pub(super) struct Place {
    driver: Namespaces,
    name: String,
    spec: Option<Spec>,
    subnet: Option<Ipv4Net>,
    /// Its data disks; those it had, if nothing is said of them.
    disks: Option<Vec<Disk>>,
    turn: Turn,
}

impl Place {
    pub(super) fn of(driver: Namespaces, name: &str) -> Place {
        Place {
            driver,
            name: name.to_owned(),
            spec: None,
            subnet: None,
            disks: None,
            turn: Turn::default(),
        }
    }

    /// The same, when it is its turn.
    pub(super) fn in_turn(self, turn: Turn) -> Place {
        Place { turn, ..self }
    }

    /// The same, on a network of these addresses.
    pub(super) fn on(self, subnet: Option<Ipv4Net>) -> Place {
        Place { subnet, ..self }
    }

    /// The same, started as this says.
    pub(super) fn with_spec(self, spec: Spec) -> Place {
        Place {
            spec: Some(spec),
            ..self
        }
    }

    /// The same with these data disks.
    pub(super) fn with_disks(self, disks: Vec<Disk>) -> Place {
        Place {
            disks: Some(disks),
            ..self
        }
    }

    /// Does something when it is this order's turn.
    pub(super) async fn work(
        self,
        work: impl FnOnce(&Place) -> Result<(), machines::Error> + Send + 'static,
    ) -> Result<Done, Trouble> {
        blocking(move || {
            let turn = self.turn.clone();
            let _turn = turn.lock();
            work(&self)
        })
        .await?;
        Ok(Done::default())
    }

    pub(super) fn start(&self) -> Result<(), machines::Error> {
        match self.driver.state(&self.name) {
            Ok(State::Running) => return self.plug(),
            Ok(State::Orphaned) => self.off(PowerOff::Plug)?,
            _ => {}
        }
        self.boot(&self.plan()?)
    }

    /// Gives the machine its disks, whether it runs or not.
    pub(super) fn plug(&self) -> Result<(), machines::Error> {
        let Some(disks) = &self.disks else {
            return Ok(());
        };
        match self.driver.set_disks(&self.name, disks) {
            // It gets them when it is started for the first time.
            Err(machines::Error::NotFound(_)) => Ok(()),
            done => done,
        }
    }

    fn plan(&self) -> Result<Spec, machines::Error> {
        let known = self.spec.clone();
        known.map_or_else(|| self.driver.plan(&self.name), Ok)
    }

    fn boot(&self, spec: &Spec) -> Result<(), machines::Error> {
        match self.subnet {
            Some(subnet) => self.driver.boot_with_network(spec, subnet),
            None => self.driver.boot(spec),
        }
    }

    fn reimage(&self) -> Result<(), machines::Error> {
        let mut spec = self.plan()?;
        if spec.disks.is_none() {
            spec.disks = Some(self.driver.disks(&self.name)?);
        }
        self.driver.remove(&self.name)?;
        self.boot(&spec)
    }

    fn off(&self, how: PowerOff) -> Result<(), machines::Error> {
        self.driver.power_off(&self.name, how)
    }

    /// Forgets the machine, and its network if it was the last on it.
    fn remove(&self) -> Result<(), machines::Error> {
        match self.driver.remove(&self.name) {
            Ok(()) | Err(machines::Error::NotFound(_)) => self.driver.sweep().map(drop),
            Err(error) => Err(error),
        }
    }
}

/// Does something with a machine.
pub(super) async fn act(place: Place, word: &str, input: &Value) -> Result<Done, Trouble> {
    let (word, input) = (word.to_owned(), input.clone());
    // A command may run for long, and does not keep anybody from turning its machine off.
    if word == "runcommand" {
        return blocking(move || Ok(agent::command(&place.driver, &place.name, &input))).await;
    }
    let work = move |place: &Place| match word.as_str() {
        "start" | "reapply" => place.start(),
        "restart" => place
            .off(PowerOff::Button(GRACE))
            .and_then(|()| place.start()),
        "redeploy" => place.off(PowerOff::Plug).and_then(|()| place.start()),
        "poweroff" if input["skipShutdown"] == true => place.off(PowerOff::Plug),
        "poweroff" | "deallocate" => place.off(PowerOff::Button(GRACE)),
        "reimage" | "reimageall" => place.reimage(),
        "attachdetachdatadisks" => place.plug(),
        _ => Ok(()),
    };
    place.work(work).await
}
