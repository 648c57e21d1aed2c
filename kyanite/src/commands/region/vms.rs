//! Virtual machines: a machine for each, on a network for each virtual network.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::cloud::{Done, Node, Order, Task, Trouble};
use ipnet::Ipv4Net;
use machines::{
    Attachment, Driver as _, File, Launcher, Namespaces, Network, PowerOff, Spec, State,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::imds::Imds;
use crate::commands::machine::LAUNCHER;

/// The network's name in its directory.
const NETWORK: &str = "vnet";
/// How long a machine may take to shut down before its plug is pulled.
const GRACE: Duration = Duration::from_secs(20);
/// The most that a command in a machine may print into its result, as Azure has it.
const LONGEST: usize = 4096;
/// What fails when a machine does, in Azure's words.
const FAILED: &str = "OSProvisioningInternalError";

/// The virtual machines below a directory.
#[derive(Debug)]
pub(super) struct Vms {
    directory: PathBuf,
    imds: Arc<Imds>,
    turns: Mutex<HashMap<String, Turn>>,
}

/// Whose turn it is with a machine. An order that a newer one takes the place of is not waited for, but what it has
/// begun goes on to its end.
type Turn = Arc<Mutex<()>>;

impl Vms {
    pub(super) fn new(directory: &Path, imds: Arc<Imds>) -> Vms {
        Vms {
            directory: directory.to_owned(),
            imds,
            turns: Mutex::default(),
        }
    }

    /// Carries out an order for a machine.
    pub(super) async fn carry_out(&self, order: &Order) -> Result<Done, Trouble> {
        let Some(node) = order.nodes.first().cloned() else {
            return Ok(Done::default());
        };
        let place = Place {
            spec: Some(spec(order, &node)),
            subnet: node.subnet,
            turn: self.turn(&order.id),
            ..Place::of(self.driver(&node)?, &node.name)
        };
        let done = match &order.task {
            Task::Remove => {
                place.work(Place::remove).await?;
                self.imds.forget_gone();
                return Ok(Done::default());
            }
            Task::Bring if order.hidden["power"] == "running" => place.work(Place::start).await?,
            Task::Bring => return Ok(Done::default()),
            Task::Act { word, input } => act(place, word, input).await?,
        };
        self.speak_for(&node)?;
        Ok(done)
    }

    fn turn(&self, id: &str) -> Turn {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(id.to_lowercase()).or_default())
    }

    /// Ends machines that no resource stands for, and networks that no machine is on.
    pub(super) async fn clear(&self, known: &[&Order]) {
        let nodes = known.iter().filter_map(|order| order.nodes.first());
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

    fn speak_for(&self, node: &Node) -> Result<(), Trouble> {
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
        let network = node.network.as_deref().unwrap_or_default().to_lowercase();
        let digest = Sha256::digest(network.as_bytes());
        let digest: String = digest
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name: String = super::last(&network).chars().take(20).collect();
        self.directory.join(format!("{name}-{digest}"))
    }

    fn driver(&self, node: &Node) -> Result<Namespaces, Trouble> {
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, machines::Error> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Trouble::new(FAILED, e.to_string()))?
        .map_err(failed)
}

/// What a virtual machine is as a machine. Pure.
fn spec(order: &Order, node: &Node) -> Spec {
    let address = node.address.filter(|_| node.subnet.is_some());
    let mut hosts = format!("127.0.0.1 localhost\n127.0.1.1 {}\n", node.name);
    if let Some(address) = address {
        hosts += &format!("{address} {}\n", node.name);
    }
    let system = &order.body["properties"]["osProfile"];
    let keys = system["linuxConfiguration"]["ssh"]["publicKeys"].as_array();
    let keys = keys.into_iter().flatten().filter_map(|key| {
        let (path, text) = (key["path"].as_str()?, key["keyData"].as_str()?);
        let file = File::new(path, format!("{}\n", text.trim()));
        Some(File {
            mode: 0o600,
            ..file
        })
    });
    Spec {
        name: node.name.clone(),
        attachment: address.map(|address| Attachment {
            network: NETWORK.to_owned(),
            address,
            name_servers: Vec::new(),
        }),
        custom_data: order.hidden["customData"]
            .as_str()
            .unwrap_or_default()
            .into(),
        files: [File::new("/etc/hosts", hosts)]
            .into_iter()
            .chain(keys)
            .collect(),
        ..Spec::default()
    }
}

/// A machine, and what is known of it. One without a specification is started as it was before.
pub(super) struct Place {
    driver: Namespaces,
    name: String,
    spec: Option<Spec>,
    subnet: Option<Ipv4Net>,
    turn: Turn,
}

impl Place {
    pub(super) fn of(driver: Namespaces, name: &str) -> Place {
        Place {
            driver,
            name: name.to_owned(),
            spec: None,
            subnet: None,
            turn: Turn::default(),
        }
    }

    /// Does something when it is this order's turn.
    async fn work(
        self,
        work: impl FnOnce(&Place) -> Result<(), machines::Error> + Send + 'static,
    ) -> Result<Done, Trouble> {
        blocking(move || {
            let turn = Arc::clone(&self.turn);
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            work(&self)
        })
        .await?;
        Ok(Done::default())
    }

    fn start(&self) -> Result<(), machines::Error> {
        match self.driver.state(&self.name) {
            Ok(State::Running) => return Ok(()),
            Ok(State::Orphaned) => self.off(PowerOff::Plug)?,
            _ => {}
        }
        self.boot(&self.plan()?)
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
        let spec = self.plan()?;
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
        return blocking(move || Ok(command(&place.driver, &place.name, &input))).await;
    }
    let work = move |place: &Place| match word.as_str() {
        "start" | "reapply" => place.start(),
        "restart" => place
            .off(PowerOff::Button(GRACE))
            .and_then(|()| place.start()),
        "redeploy" => place.off(PowerOff::Plug).and_then(|()| place.start()),
        "poweroff" | "deallocate" => place.off(PowerOff::Button(GRACE)),
        "reimage" => place.reimage(),
        _ => Ok(()),
    };
    place.work(work).await
}

/// `RunShellScript`: a script as root, and what it printed.
fn command(driver: &Namespaces, name: &str, input: &Value) -> Done {
    let lines = input["script"].as_array().into_iter().flatten();
    let script: Vec<&str> = lines.filter_map(Value::as_str).collect();
    let mut words = vec![
        "/bin/bash".to_owned(),
        "-c".to_owned(),
        script.join("\n"),
        name.to_owned(),
    ];
    let parameters = input["parameters"].as_array().into_iter().flatten();
    words.extend(parameters.filter_map(|p| p["value"].as_str().map(str::to_owned)));
    let ran = driver.command(name, words).map_err(|e| e.to_string());
    let ran = ran.and_then(|mut command| command.output().map_err(|e| e.to_string()));
    let (title, out, err) = match ran {
        Ok(output) => {
            let text = |bytes: &[u8]| tail(&String::from_utf8_lossy(bytes));
            (
                "Enable succeeded: ",
                text(&output.stdout),
                text(&output.stderr),
            )
        }
        Err(error) => ("Enable failed: ", String::new(), error),
    };
    let message = format!("{title}\n[stdout]\n{out}\n[stderr]\n{err}");
    Done {
        output: json!({"value": [{"code": "ProvisioningState/succeeded", "level": "Info",
            "displayStatus": "Provisioning succeeded", "message": message}]}),
        ..Done::default()
    }
}

fn tail(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(LONGEST);
    text.chars().skip(skipped).collect()
}
