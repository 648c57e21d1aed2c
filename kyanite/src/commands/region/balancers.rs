//! Load balancers: packets for a frontend's address go to a machine that is well.
//!
//! ```text
//! this host ──cable──► host0 ┐ the machines' network namespace
//!                            ├─ script: which machine, by a hash; the packet as it came ──► br0 ──► a machine
//! a machine ─────────► br0 ──┘
//! range    which public addresses are this cloud's     probes   whether machines are well
//! ```
//!
//! Only what the network's namespace has changes, and one cable of the host's: it goes with the namespace. The rules are
//! those of ARM at all times: who writes them looks again whenever resources or machines' health change.

mod probes;
mod range;
mod script;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::cloud::{Fabric, Node, Probe, Rule};
use ipnet::Ipv4Net;
use machines::Network;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::probes::Prober;
use self::script::Flow;
use super::imds::namespace_at;
use super::vms::Vms;
use super::{INSTANCE, clusters};
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};

/// How long changes wait for each other.
const TOGETHER: Duration = Duration::from_millis(50);
/// How often somebody looks for networks that came or went.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The load balancers of a cloud.
#[derive(Debug)]
pub(super) struct Balancers {
    home: DataDir,
    range: Ipv4Net,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    fabric: Fabric,
    worker: AbortHandle,
}

impl Balancers {
    pub(super) fn new(home: &DataDir) -> Result<Balancers> {
        Ok(Balancers {
            home: home.clone(),
            range: range::of(home)?,
            open: Mutex::default(),
        })
    }

    /// The public addresses of this cloud.
    pub(super) fn public_addresses(&self) -> Ipv4Net {
        self.range
    }

    /// The cloud is open: what it says is done.
    pub(super) fn open(&self, fabric: Fabric, vms: Arc<Vms>) {
        let carrier = Carrier {
            home: self.home.clone(),
            vms,
            // The Internet, as machines see it.
            host: Ipv4Addr::from(u32::from(self.range.network()) + 1),
            told: Arc::default(),
            networks: BTreeMap::new(),
        };
        let worker = tokio::spawn(carrier.follow(fabric.clone())).abort_handle();
        if let Some(before) = self.lock().replace(Open { fabric, worker }) {
            before.worker.abort();
        }
    }

    /// The cloud has ended. Packets go on as it said last.
    pub(super) fn close(&self) {
        if let Some(open) = self.lock().take() {
            open.worker.abort();
        }
    }

    pub(super) fn fabric(&self) -> Option<Fabric> {
        self.lock().as_ref().map(|open| open.fabric.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rules of a network, and which namespace that is just now.
struct Wanted {
    network: Network,
    namespace: u64,
    rules: Vec<Rule>,
}

/// What was done in a network.
struct Carried {
    network: Network,
    namespace: u64,
    /// What the kernel was told last; nothing where it did not take it.
    flows: Option<Vec<Flow>>,
    public: BTreeSet<Ipv4Addr>,
    probers: HashMap<(Ipv4Addr, Probe), Prober>,
}

/// Who carries packets.
struct Carrier {
    home: DataDir,
    vms: Arc<Vms>,
    host: Ipv4Addr,
    /// Probers tell of what they found.
    told: Arc<Notify>,
    /// By the file that stands for a network's namespace.
    networks: BTreeMap<PathBuf, Carried>,
}

impl Carrier {
    async fn follow(mut self, fabric: Fabric) {
        let mut changes = fabric.changes();
        loop {
            changes.mark_unchanged();
            let wanted = self.by_network(fabric.rules());
            self.settle(wanted).await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = self.told.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Rules by the networks that their machines are on. One without machines is nowhere.
    fn by_network(&self, rules: Vec<Rule>) -> BTreeMap<PathBuf, Wanted> {
        let mut known: HashMap<String, Option<(PathBuf, u64, Network)>> = HashMap::new();
        let mut wanted: BTreeMap<PathBuf, Wanted> = BTreeMap::new();
        for rule in rules {
            let mut parts: BTreeMap<PathBuf, Rule> = BTreeMap::new();
            for node in &rule.backends {
                let place = known
                    .entry(node.id.clone())
                    .or_insert_with(|| self.locate(node));
                let Some((file, namespace, network)) = place.clone() else {
                    continue;
                };
                let bare = || Rule {
                    backends: Vec::new(),
                    ..rule.clone()
                };
                let part = parts.entry(file.clone()).or_insert_with(bare);
                part.backends.push(node.clone());
                let empty = || Wanted {
                    network,
                    namespace,
                    rules: Vec::new(),
                };
                wanted.entry(file).or_insert_with(empty);
            }
            for (file, part) in parts {
                if let Some(network) = wanted.get_mut(&file) {
                    network.rules.push(part);
                }
            }
        }
        wanted
    }

    /// The network that a machine is on, and its namespace, if it is there.
    fn locate(&self, node: &Node) -> Option<(PathBuf, u64, Network)> {
        let network = match is_instance(&node.id) {
            true => clusters::driver_of(&self.home, &node.name)?
                .network("cluster")
                .ok(),
            false => self.vms.network(node),
        }?;
        let file = network.namespace();
        let namespace = namespace_at(&file)?;
        Some((file, namespace, network))
    }

    async fn settle(&mut self, mut wanted: BTreeMap<PathBuf, Wanted>) {
        let mut left = BTreeMap::new();
        for (file, carried) in std::mem::take(&mut self.networks) {
            let is_same = |wanted: &Wanted| wanted.namespace == carried.namespace;
            match wanted.get(&file).is_some_and(is_same) {
                true => {
                    left.insert(file, carried);
                }
                // One that is gone has taken everything with it.
                false if namespace_at(&file) == Some(carried.namespace) => {
                    let network = carried.network.clone();
                    report(blocking(move || take_away(&network)).await);
                }
                false => {}
            }
        }
        self.networks = left;
        while let Some((file, wanted)) = wanted.pop_first() {
            let carried = self.networks.remove(&file);
            let carried = self.carry(wanted, carried).await;
            self.networks.insert(file, carried);
        }
    }

    /// Brings a network to what its rules and its machines' health say.
    async fn carry(&self, wanted: Wanted, before: Option<Carried>) -> Carried {
        let mut carried = before.unwrap_or_else(|| Carried {
            network: wanted.network,
            namespace: wanted.namespace,
            flows: None,
            public: BTreeSet::new(),
            probers: HashMap::new(),
        });
        self.ask(&mut carried, &wanted.rules);
        let is_well = |address: Ipv4Addr, probe: &Probe| {
            let prober = carried.probers.get(&(address, probe.clone()));
            prober.is_some_and(Prober::is_well)
        };
        let flows: Vec<Flow> = wanted
            .rules
            .iter()
            .map(|rule| Flow::of(rule, is_well))
            .collect();
        let public = wanted.rules.iter().filter(|rule| rule.is_public);
        let public: BTreeSet<Ipv4Addr> = public.map(|rule| rule.frontend).collect();
        if carried.flows.as_ref() == Some(&flows) && carried.public == public {
            return carried;
        }
        let fresh = carried.flows.is_none() || carried.public.is_empty() != public.is_empty();
        let known = carried.flows.take().filter(|_| !fresh);
        let text = script::script(known.as_deref(), &flows, !public.is_empty());
        let (network, host, reached) = (carried.network.clone(), self.host, public.clone());
        let done = blocking(move || {
            match reached.is_empty() {
                true => network.close_to_host()?,
                false => network.open_to_host(host, &reached)?,
            }
            tell(&network, &text)
        });
        if report(done.await) {
            (carried.flows, carried.public) = (Some(flows), public);
        }
        carried
    }

    /// Has machines asked that nobody asks yet, and none that nobody wants to know of.
    fn ask(&self, carried: &mut Carried, rules: &[Rule]) {
        let mut asked = BTreeSet::new();
        for rule in rules {
            let addresses = rule.backends.iter().filter_map(|node| node.address);
            asked.extend(rule.probe.iter().flat_map(|probe| {
                addresses
                    .clone()
                    .map(move |address| (address, probe.clone()))
            }));
        }
        carried.probers.retain(|key, _| asked.contains(key));
        for (address, probe) in asked {
            let (network, told) = (&carried.network, &self.told);
            carried
                .probers
                .entry((address, probe.clone()))
                .or_insert_with(|| {
                    Prober::begin(network.clone(), address, probe, Arc::clone(told))
                });
        }
    }
}

fn is_instance(id: &str) -> bool {
    let set = INSTANCE
        .split('/')
        .nth(1)
        .unwrap_or_default()
        .to_lowercase();
    id.to_lowercase().contains(&format!("/{set}/"))
}

/// Takes everything of ours out of a network.
fn take_away(network: &Network) -> Result<()> {
    network.close_to_host()?;
    tell(network, &script::nothing())
}

/// Hands a transaction to nftables inside a network: it takes all of it or nothing.
fn tell(network: &Network, text: &str) -> Result<()> {
    let run = || -> std::io::Result<std::process::Output> {
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = nft.stdin.take() {
            input.write_all(text.as_bytes())?;
        }
        nft.wait_with_output()
    };
    let output = network.inside(run)?.map_err(|e| {
        Failure::new(Code::Failure, format!("cannot run nft: {e}"))
            .hint("install nftables 1.0.1 or newer")
    })?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Failure::new(
                Code::Failure,
                format!("nftables refuses: {said}"),
            ))
        }
    }
}

async fn blocking(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Failure::new(Code::Failure, e.to_string()))?
}

/// Whether it was done; if not, it is tried again.
fn report(done: Result<()>) -> bool {
    if let Err(failure) = &done {
        tracing::error!(%failure, hint = failure.hint, "packets of a load balancer do not go where they should");
    }
    done.is_ok()
}
