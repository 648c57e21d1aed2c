//! PriorityLevelConfigurations: how many seats a level has, and what happens when they are taken.

use std::sync::Arc;

use serde_json::Value;

/// One PriorityLevelConfiguration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Level {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    /// `None` for a level without limits.
    pub(crate) limits: Option<Limits>,
}

/// What a limited level may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    pub(crate) shares: u32,
    /// Percent of its seats that others may use while it does not.
    pub(crate) lendable: u32,
    /// Percent of its seats that it may use of others'; `None` for all there are.
    pub(crate) borrowing: Option<u32>,
    /// `None` to refuse at once what finds no seat.
    pub(crate) queuing: Option<Queuing>,
}

/// The queues of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queuing {
    pub(crate) queues: u32,
    /// How many queues a flow is dealt.
    pub(crate) hand: u32,
    /// Requests that may wait in one queue.
    pub(crate) length: u32,
}

impl Level {
    /// Reads a PriorityLevelConfiguration, with upstream's defaults for what it leaves out.
    pub(crate) fn read(object: &Value) -> Level {
        let text = |field: &str| Arc::from(object["metadata"][field].as_str().unwrap_or_default());
        let spec = &object["spec"];
        Level {
            name: text("name"),
            uid: text("uid"),
            limits: (spec["type"] != "Exempt").then(|| Limits::read(&spec["limited"])),
        }
    }
}

impl Limits {
    fn read(limited: &Value) -> Limits {
        let queuing = &limited["limitResponse"]["queuing"];
        let queues = Queuing {
            queues: number(&queuing["queues"]).unwrap_or(64).max(1),
            hand: number(&queuing["handSize"]).unwrap_or(8).max(1),
            length: number(&queuing["queueLengthLimit"]).unwrap_or(50),
        };
        Limits {
            shares: number(&limited["nominalConcurrencyShares"]).unwrap_or(30),
            lendable: number(&limited["lendablePercent"]).unwrap_or(0).min(100),
            borrowing: number(&limited["borrowingLimitPercent"]),
            queuing: (limited["limitResponse"]["type"] == "Queue").then_some(queues),
        }
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}
