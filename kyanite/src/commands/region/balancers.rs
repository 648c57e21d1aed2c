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
use self::script::{Flow, Setting};
use super::imds::namespace_at;
use super::vms::Vms;
use super::{INSTANCE, clusters};
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};

/// How long changes wait for each other.
const TOGETHER: Duration = Duration::from_millis(100);
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
            places: HashMap::new(),
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

/// A network, and which namespace that is just now.
#[derive(Clone)]
struct Place {
    file: PathBuf,
    namespace: u64,
    network: Network,
}

impl Place {
    fn empty(&self) -> Wanted {
        Wanted {
            network: self.network.clone(),
            namespace: self.namespace,
            rules: Vec::new(),
            attached: BTreeMap::new(),
        }
    }
}

/// What a network is to do.
struct Wanted {
    network: Network,
    namespace: u64,
    rules: Vec<Rule>,
    /// Public addresses that are one machine's, with that machine's own.
    attached: BTreeMap<Ipv4Addr, Ipv4Addr>,
}

/// What was done in a network.
struct Carried {
    network: Network,
    namespace: u64,
    /// What the kernel was told last; nothing where it did not take it.
    told: Option<Setting>,
    probers: HashMap<(Ipv4Addr, Probe), Prober>,
}

/// Who carries packets.
struct Carrier {
    home: DataDir,
    vms: Arc<Vms>,
    host: Ipv4Addr,
    /// Probers tell of what they found.
    told: Arc<Notify>,
    /// Where machines were found, by their ids.
    places: HashMap<String, Place>,
    /// By the file that stands for a network's namespace.
    networks: BTreeMap<PathBuf, Carried>,
}

impl Carrier {
    async fn follow(mut self, fabric: Fabric) {
        let mut changes = fabric.changes();
        // Everything is read again only when something was written.
        let (mut read, mut rules, mut attached) = (None, Vec::new(), Vec::new());
        loop {
            let written = *changes.borrow_and_update();
            if read.replace(written) != Some(written) {
                (rules, attached) = (fabric.rules(), fabric.attached());
            }
            let wanted = self.by_network(&rules, &attached);
            self.settle(wanted).await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = self.told.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Rules and addresses by the networks that their machines are on. What has no machine is nowhere.
    fn by_network(
        &mut self,
        rules: &[Rule],
        attached: &[(Ipv4Addr, Node)],
    ) -> BTreeMap<PathBuf, Wanted> {
        let mut wanted: BTreeMap<PathBuf, Wanted> = BTreeMap::new();
        let mut places = std::mem::take(&mut self.places);
        places.retain(|_, place| namespace_at(&place.file) == Some(place.namespace));
        let mut find = |node: &Node| match places.get(&node.id) {
            Some(place) => Some(place.clone()),
            None => {
                let place = self.locate(node)?;
                places.insert(node.id.clone(), place.clone());
                Some(place)
            }
        };
        for rule in rules {
            let mut parts: BTreeMap<PathBuf, Rule> = BTreeMap::new();
            for node in &rule.backends {
                let Some(place) = find(node) else {
                    continue;
                };
                let bare = || Rule {
                    backends: Vec::new(),
                    ..rule.clone()
                };
                let part = parts.entry(place.file.clone()).or_insert_with(bare);
                part.backends.push(node.clone());
                wanted
                    .entry(place.file.clone())
                    .or_insert_with(|| place.empty());
            }
            for (file, part) in parts {
                if let Some(network) = wanted.get_mut(&file) {
                    network.rules.push(part);
                }
            }
        }
        for (public, node) in attached {
            if let (Some(place), Some(own)) = (find(node), node.address) {
                let network = wanted.entry(place.file.clone());
                let network = network.or_insert_with(|| place.empty());
                network.attached.insert(*public, own);
            }
        }
        self.places = places;
        wanted
    }

    /// The network that a machine is on, and its namespace, if it is there.
    fn locate(&self, node: &Node) -> Option<Place> {
        let network = match is_instance(&node.id) {
            true => clusters::network_of(&self.home, &node.name),
            false => self.vms.network(node),
        }?;
        let file = network.namespace();
        Some(Place {
            namespace: namespace_at(&file)?,
            file,
            network,
        })
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
            told: None,
            probers: HashMap::new(),
        });
        self.ask(&mut carried, &wanted.rules);
        let is_well = |address: Ipv4Addr, probe: &Probe| {
            let prober = carried.probers.get(&(address, probe.clone()));
            prober.is_some_and(Prober::is_well)
        };
        let flows = wanted.rules.iter();
        let now = Setting {
            flows: flows.map(|rule| Flow::of(rule, is_well)).collect(),
            attached: wanted.attached,
        };
        if carried.told.as_ref() == Some(&now) {
            return carried;
        }
        let text = script::script(carried.told.take().as_ref(), &now);
        let (network, host) = (carried.network.clone(), self.host);
        let (reached, internal) = (now.public(), now.internal());
        let done = blocking(move || {
            match reached.is_empty() {
                true => network.close_to_host()?,
                false => network.open_to_host(host, &reached)?,
            }
            network.answer_for(&internal)?;
            tell(&network, &text)
        });
        if report(done.await) {
            carried.told = Some(now);
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
    network.answer_for(&BTreeSet::new())?;
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
