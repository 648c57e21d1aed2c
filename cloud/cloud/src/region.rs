//! What stands behind resources: the one seam between what ARM says and what runs on this machine.
//!
//! An operation on a resource that a region has something behind becomes an [`Order`]. It ends when the order is
//! carried out, and as the region says. Orders describe what is to be, not what is to be done: one that was
//! interrupted is given again after a restart, and finds half of it there. [`Hollow`] has nothing behind anything:
//! operations end by the clock.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use serde_json::Value;

/// What is asked of a region.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Bring what stands behind a resource to what the resource says.
    Bring,
    /// Take it away, if it is there.
    Remove,
    /// Do something with it once: the word of the action, and what came with it.
    Act {
        /// In lower case, such as `restart`.
        word: String,
        /// The body of the request.
        input: Value,
    },
}

impl Task {
    /// Whether it is done beside whatever else is done with the resource, and does not take its place.
    pub(crate) fn is_aside(&self) -> bool {
        matches!(self, Task::Act { word, .. } if word == "runcommand")
    }
}

/// A machine that a resource has: one of a cluster or of a scale set, or a virtual machine itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its resource id.
    pub id: String,
    /// Its computer name.
    pub name: String,
    /// Its pool, in a cluster.
    pub pool: String,
    /// Its private address.
    pub address: Option<Ipv4Addr>,
    /// The addresses of its subnet.
    pub subnet: Option<Ipv4Net>,
    /// The network's resource id.
    pub network: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
}

/// A disk or a snapshot: one that is ordered, or one that a machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its resource id.
    pub id: String,
    /// Where its machine has it.
    pub lun: u32,
    /// How large it is.
    pub bytes: u64,
    /// What it is a copy of: a disk or a snapshot.
    pub source: Option<String>,
    /// Whether it was made from an image: the disk of a machine's system.
    pub is_system: bool,
    /// Whether it goes with its machine.
    pub goes_with_machine: bool,
}

/// An order to a region.
#[derive(Debug, Clone)]
pub struct Order {
    /// The resource id.
    pub id: String,
    /// The type, as tables spell it.
    pub kind: &'static str,
    /// What is asked.
    pub task: Task,
    /// The resource as clients see it.
    pub body: Value,
    /// What is kept with it and no client sees: custom data, what earlier orders came to.
    pub hidden: Value,
    /// Its machines.
    pub nodes: Vec<Node>,
    /// The data disks of a machine; a disk or a snapshot itself.
    pub disks: Vec<Disk>,
}

impl Order {
    /// The resource's name.
    pub fn name(&self) -> &str {
        self.id.rsplit('/').next().unwrap_or_default()
    }
}

/// What an order came to; laid over what the resource says, where it says something.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// For clients to see.
    pub body: Value,
    /// Not for clients.
    pub hidden: Value,
    /// What an action has to show.
    pub output: Value,
}

/// Why an order could not be carried out, as the operation says it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// ARM's word for it.
    pub code: String,
    /// For people.
    pub message: String,
}

impl Trouble {
    /// Trouble in ARM's words.
    pub fn new(code: &str, message: impl Into<String>) -> Trouble {
        Trouble {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// What stands behind resources.
#[async_trait]
pub trait Region: std::fmt::Debug + Send + Sync {
    /// Whether something stands behind resources of this type.
    fn has(&self, kind: &str) -> bool;

    /// Why a resource of this type cannot be as it is asked for, if it cannot. Whoever asks is told before anything is made.
    fn objection(&self, _kind: &str, _body: &Value) -> Option<Trouble> {
        None
    }

    /// The public addresses that lead here; without one, addresses that lead nowhere.
    fn public_addresses(&self) -> Option<Ipv4Net> {
        None
    }

    /// What a machine has written to its console.
    async fn console(&self, _machine: &Node) -> Option<String> {
        None
    }

    /// Waits for a machine to have come on or gone off by itself: its id, and whether it runs.
    async fn power(&self) -> (String, bool) {
        std::future::pending().await
    }

    /// Takes away what stands behind none of these: they are all there are.
    async fn clear(&self, known: &[Order]);

    /// Carries out an order. Dropped when another order for the same resource takes its place.
    async fn carry_out(&self, order: Order) -> Result<Done, Trouble>;
}

/// Nothing stands behind anything.
#[derive(Debug, Clone, Copy)]
pub struct Hollow;

#[async_trait]
impl Region for Hollow {
    fn has(&self, _: &str) -> bool {
        false
    }

    async fn clear(&self, _: &[Order]) {}

    async fn carry_out(&self, _: Order) -> Result<Done, Trouble> {
        Ok(Done::default())
    }
}
