//! Packets go where the cloud's documents say, and nowhere else.
//!
//! ```text
//! this host ──cable──► host0 ┐ the machines' network namespace
//!                            ├─ filter: may it?  balancers: to whom?  ways: through whom? ──► br0 ──► a machine
//! a machine ─────────► br0 ──┤
//! another network ──► p-… ───┘
//! range    which public addresses are this cloud's     probes   whether machines are well
//! gates    how many rules of a group are asked          names    what machines call each other
//! ```
//!
//! Only what the network's namespace has changes, and one cable of the host's: it goes with the namespace. The rules are
//! those of ARM at all times: who writes them looks again whenever resources or machines' health change.

mod balancers;
mod filter;
mod gates;
mod names;
mod probes;
mod range;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::cloud::{Card, Fabric, Node, Probe, Rule, VirtualNetwork, Zone};
use ipnet::Ipv4Net;
use machines::{Network, Ways};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::balancers::{Flow, Setting};
use self::filter::Beside;
use self::names::Names;
use self::probes::Prober;
use super::imds::namespace_at;
use super::vms::Vms;
use super::{INSTANCE, clusters};
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};

/// How long changes wait for each other.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often somebody looks for networks that came or went.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The packets of a cloud.
#[derive(Debug)]
pub(super) struct Packets {
    home: DataDir,
    range: Ipv4Net,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    fabric: Fabric,
    worker: AbortHandle,
    told: Arc<Notify>,
}

impl Packets {
    pub(super) fn new(home: &DataDir) -> Result<Packets> {
        Ok(Packets {
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
        let told: Arc<Notify> = Arc::default();
        let carrier = Carrier {
            home: self.home.clone(),
            vms,
            // The Internet, as machines see it.
            host: Ipv4Addr::from(u32::from(self.range.network()) + 1),
            told: Arc::clone(&told),
            places: HashMap::new(),
            networks: BTreeMap::new(),
        };
        let worker = tokio::spawn(carrier.follow(fabric.clone())).abort_handle();
        if let Some(before) = self.lock().replace(Open {
            fabric,
            worker,
            told,
        }) {
            before.worker.abort();
        }
    }

    /// The cloud has ended. Packets go on as it said last.
    pub(super) fn close(&self) {
        if let Some(open) = self.lock().take() {
            open.worker.abort();
        }
    }

    /// A machine came or went: nobody waits for the next look.
    pub(super) fn look(&self) {
        if let Some(open) = self.lock().as_ref() {
            open.told.notify_one();
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
            cards: Vec::new(),
            peers: Vec::new(),
            zones: Vec::new(),
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
    /// The cards of its machines.
    cards: Vec<Card>,
    /// Networks that it reaches.
    peers: Vec<Reached>,
    /// Names that it knows.
    zones: Vec<Zone>,
}

/// Another network, and what of it is reached.
#[derive(Clone)]
struct Reached {
    place: Place,
    ranges: Vec<Ipv4Net>,
    /// Who may send from there, if not everybody.
    only: Option<Vec<Ipv4Net>>,
}

/// What the kernel is told of a network.
#[derive(PartialEq, Eq)]
struct Told {
    text: String,
    ways: Ways,
    public: BTreeSet<Ipv4Addr>,
    peers: Vec<(u64, Vec<Ipv4Net>)>,
}

/// What was done in a network.
struct Carried {
    network: Network,
    namespace: u64,
    /// What the kernel was told last; nothing where it did not take it.
    told: Option<Told>,
    names: Option<Names>,
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
        let (mut read, mut said) = (None, Said::default());
        loop {
            let written = *changes.borrow_and_update();
            if read.replace(written) != Some(written) {
                said = Said {
                    rules: fabric.rules(),
                    attached: fabric.attached(),
                    networks: fabric.networks(),
                };
            }
            let wanted = self.by_network(&said);
            self.settle(wanted).await;
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = self.told.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Everything by the networks that its machines are on. What has no machine is nowhere.
    fn by_network(&mut self, said: &Said) -> BTreeMap<PathBuf, Wanted> {
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
        for rule in &said.rules {
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
                wanted_at(&mut wanted, &place);
            }
            for (file, part) in parts {
                if let Some(network) = wanted.get_mut(&file) {
                    network.rules.push(part);
                }
            }
        }
        for (public, node) in &said.attached {
            if let (Some(place), Some(own)) = (find(node), node.address) {
                let network = wanted_at(&mut wanted, &place);
                network.attached.insert(*public, own);
            }
        }
        let mut parts = Parts::new();
        for network in &said.networks {
            for card in &network.cards {
                if let Some(place) = find(&card.node) {
                    wanted_at(&mut wanted, &place).cards.push(card.clone());
                    let its = parts.entry(network.id.as_str()).or_default();
                    let its = its.entry(place.file.clone());
                    let its = its.or_insert_with(|| (place, Vec::new()));
                    its.1.push(Ipv4Net::from(card.address));
                }
            }
        }
        connect(&said.networks, &parts, &mut wanted);
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

    /// Brings a network to what its documents and its machines' health say.
    async fn carry(&self, wanted: Wanted, before: Option<Carried>) -> Carried {
        let mut carried = before.unwrap_or_else(|| Carried {
            network: wanted.network,
            namespace: wanted.namespace,
            told: None,
            names: None,
            probers: HashMap::new(),
        });
        answer(&mut carried, wanted.zones);
        self.ask(&mut carried, &wanted.rules);
        let is_well = |address: Ipv4Addr, probe: &Probe| {
            let prober = carried.probers.get(&(address, probe.clone()));
            prober.is_some_and(Prober::is_well)
        };
        let flows = wanted.rules.iter();
        let setting = Setting {
            flows: flows.map(|rule| Flow::of(rule, is_well)).collect(),
            attached: wanted.attached,
        };
        let now = told(&setting, &wanted.cards, &wanted.peers);
        if carried.told.as_ref() == Some(&now) {
            return carried;
        }
        carried.told = None;
        let (network, host) = (carried.network.clone(), self.host);
        let peers = wanted.peers.into_iter();
        let peers: Vec<_> = peers.map(|one| (one.place.network, one.ranges)).collect();
        let done = blocking(move || {
            match now.public.is_empty() {
                true => network.close_to_host()?,
                false => network.open_to_host(host, &now.public)?,
            }
            // Nobody reaches another network before it is said who may.
            tell(&network, &now.text)?;
            network.set_ways(&now.ways)?;
            network.set_peers(&peers)?;
            Ok(now)
        });
        carried.told = report(done.await);
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

/// What the cloud says, as it was read last.
#[derive(Default)]
struct Said {
    rules: Vec<Rule>,
    attached: Vec<(Ipv4Addr, Node)>,
    networks: Vec<VirtualNetwork>,
}

/// Where the machines of virtual networks are, by the networks' ids, and which addresses these have.
type Parts<'a> = BTreeMap<&'a str, BTreeMap<PathBuf, (Place, Vec<Ipv4Net>)>>;

fn wanted_at<'w>(wanted: &'w mut BTreeMap<PathBuf, Wanted>, place: &Place) -> &'w mut Wanted {
    let network = wanted.entry(place.file.clone());
    network.or_insert_with(|| place.empty())
}

/// Which networks reach which: peers, and the parts of one virtual network that machines of several clusters are on.
fn connect(networks: &[VirtualNetwork], parts: &Parts<'_>, wanted: &mut BTreeMap<PathBuf, Wanted>) {
    for network in networks {
        let Some(own) = parts.get(network.id.as_str()) else {
            continue;
        };
        for file in own.keys() {
            let others = own.iter().filter(|(other, _)| *other != file);
            let within = others.map(|(_, (place, cards))| Reached {
                place: place.clone(),
                ranges: with_gateway(place, cards),
                only: None,
            });
            let beside = network.peers.iter().flat_map(|peer| {
                let there = parts.get(peer.network.as_str());
                let is_whole = there.is_some_and(|there| there.len() == 1);
                let there = there.into_iter().flatten();
                there.map(move |(_, (place, cards))| Reached {
                    place: place.clone(),
                    ranges: match is_whole {
                        true => peer.space.clone(),
                        false => with_gateway(place, cards),
                    },
                    only: (!peer.takes_forwarded).then(|| peer.space.clone()),
                })
            });
            let reached: Vec<Reached> = within.chain(beside).collect();
            if let Some(wanted) = wanted.get_mut(file) {
                wanted.peers.extend(reached);
                wanted.zones.extend_from_slice(&network.zones);
            }
        }
    }
}

/// Addresses of machines, and the network's own, at which a cluster's API server is.
fn with_gateway(place: &Place, cards: &[Ipv4Net]) -> Vec<Ipv4Net> {
    let gateway = Ipv4Net::from(place.network.gateway());
    cards.iter().copied().chain([gateway]).collect()
}

fn told(setting: &Setting, cards: &[Card], peers: &[Reached]) -> Told {
    let beside = peers.iter().filter_map(|peer| {
        Some(Beside {
            link: peer.place.network.peer_link().ok()?,
            space: peer.only.clone()?,
        })
    });
    let beside: Vec<Beside> = beside.collect();
    let public = setting.public();
    let mut ways = filter::ways(cards);
    ways.extend(balancers::ways(setting));
    Told {
        text: balancers::script(setting) + &filter::script(cards, &beside, &public),
        ways,
        public,
        peers: peers
            .iter()
            .map(|peer| (peer.place.namespace, peer.ranges.clone()))
            .collect(),
    }
}

/// Has names answered in a network as they are now.
fn answer(carried: &mut Carried, zones: Vec<Zone>) {
    if carried.names.is_none() {
        let begun = Names::begin(&carried.network);
        carried.names = begun
            .inspect_err(
                |error| tracing::warn!(%error, "machines of a network cannot ask for names"),
            )
            .ok();
    }
    if let Some(names) = &carried.names {
        names.know(zones);
    }
}

/// What is between braces.
fn elements(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

/// Takes everything of ours out of a network.
fn take_away(network: &Network) -> Result<()> {
    network.close_to_host()?;
    network.set_peers(&[])?;
    network.set_ways(&Ways::new())?;
    tell(network, &(balancers::nothing() + &filter::nothing()))
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

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Failure::new(Code::Failure, e.to_string()))?
}

/// What was done; where it was not, it is tried again.
fn report<T>(done: Result<T>) -> Option<T> {
    done.inspect_err(|failure| {
        tracing::error!(%failure, hint = failure.hint, "packets of a network do not go where they should");
    })
    .ok()
}
