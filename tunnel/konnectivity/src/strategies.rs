//! Which agent a destination is dialled through.

use std::collections::HashSet;

/// A way to find an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Any agent.
    Default,
    /// An agent that named the destination's host among its identifiers.
    DestHost,
    /// An agent that said it can reach what others cannot.
    DefaultRoute,
}

impl Strategy {
    /// Upstream's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Strategy::Default => "default",
            Strategy::DestHost => "destHost",
            Strategy::DefaultRoute => "defaultRoute",
        }
    }

    /// Reads a comma-separated list, in order; empty items are skipped.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Strategy>, UnknownStrategy> {
        let items = text.split(',').filter(|item| !item.is_empty());
        items.map(Strategy::named).collect()
    }

    fn named(text: &str) -> Result<Strategy, UnknownStrategy> {
        let all = [
            Strategy::Default,
            Strategy::DestHost,
            Strategy::DefaultRoute,
        ];
        let found = all.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| UnknownStrategy(text.to_owned()))
    }
}

/// A name that is no strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown proxy strategy: {0}; use default, destHost or defaultRoute")]
pub(crate) struct UnknownStrategy(String);

/// What an agent says it can reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identifiers {
    hosts: Vec<String>,
    cidrs: Vec<String>,
    default_route: bool,
}

/// The keys of an agent's identifiers; the last one is a truth value.
const KEYS: [&str; 5] = ["ipv4", "ipv6", "host", "cidr", "default-route"];

impl Identifiers {
    /// Reads the URL query an agent sends. Unknown keys are ignored, as upstream's server does.
    pub(crate) fn parse(text: &str) -> Identifiers {
        let mut found = Identifiers::default();
        let mut default_route_seen = false;
        for (key, value) in pairs(text) {
            match key.as_str() {
                "ipv4" | "ipv6" | "host" => found.hosts.push(value),
                "cidr" => found.cidrs.push(value),
                // Only the first one counts.
                "default-route" if !default_route_seen => {
                    default_route_seen = true;
                    found.default_route = is_true(&value);
                }
                _ => {}
            }
        }
        found
    }

    /// The hosts it says it is.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The first key an agent may not have on its command line.
    pub(crate) fn unknown_key(text: &str) -> Option<String> {
        pairs(text)
            .map(|(key, _)| key)
            .find(|key| !KEYS.contains(&key.as_str()))
    }
}

// Go's strconv.ParseBool.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let items = text.split('&').filter(|item| !item.is_empty());
    items.map(|item| {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        (unescape(key), unescape(value))
    })
}

fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let decoded = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        rest = after;
        match (first, decoded) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => out.push(b' '),
            (plain, _) => out.push(*plain),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// An agent as the choice sees it.
pub(crate) trait Candidate {
    fn agent_id(&self) -> &str;
    fn identifiers(&self) -> &Identifiers;
    fn draining(&self) -> bool;
    /// How many connections it carries.
    fn load(&self) -> usize;
}

/// Picks from `agents`, which stand in the order of their arrival; `chance` gives a number below
/// its argument. The first strategy that finds somebody decides.
pub(crate) fn pick<'a, C: Candidate>(
    strategies: &[Strategy],
    agents: &'a [C],
    address: &str,
    mut chance: impl FnMut(usize) -> usize,
) -> Option<&'a C> {
    let host = host_of(address);
    strategies.iter().find_map(|strategy| {
        let mut all: Vec<&C> = candidates(*strategy, agents, host).collect();
        // An agent that is leaving is better than none.
        if all.iter().any(|agent| !agent.draining()) {
            all.retain(|agent| !agent.draining());
        }
        match strategy {
            Strategy::DestHost => all.first().copied(),
            Strategy::Default | Strategy::DefaultRoute => lighter_of_two(&all, &mut chance),
        }
    })
}

/// How many agents a strategy can choose from.
pub(crate) fn count<C: Candidate>(strategy: Strategy, agents: &[C]) -> usize {
    let known: HashSet<&str> = agents
        .iter()
        .filter(|agent| match strategy {
            Strategy::Default => true,
            Strategy::DestHost => !agent.identifiers().hosts.is_empty(),
            Strategy::DefaultRoute => agent.identifiers().default_route,
        })
        .map(Candidate::agent_id)
        .collect();
    known.len()
}

// Of several streams of one agent the oldest stands for it: the agent will drop the others.
fn candidates<'a, C: Candidate>(
    strategy: Strategy,
    agents: &'a [C],
    host: &str,
) -> impl Iterator<Item = &'a C> {
    let mut seen = HashSet::new();
    agents.iter().filter(move |agent| match strategy {
        Strategy::Default => seen.insert(agent.agent_id()),
        Strategy::DestHost => agent.identifiers().hosts.iter().any(|h| h == host),
        Strategy::DefaultRoute => {
            agent.identifiers().default_route && seen.insert(agent.agent_id())
        }
    })
}

fn lighter_of_two<'a, C: Candidate>(
    all: &[&'a C],
    chance: &mut impl FnMut(usize) -> usize,
) -> Option<&'a C> {
    match all {
        [] => None,
        [one] => Some(one),
        _ => {
            let first = all[chance(all.len())];
            let second = all[chance(all.len())];
            Some(if second.load() < first.load() {
                second
            } else {
                first
            })
        }
    }
}

/// The host of `host:port`, by upstream's rule: no normalisation, brackets of IPv6 removed.
pub(crate) fn host_of(address: &str) -> &str {
    match address.matches(':').count() {
        0 | 1 => address.split(':').next().unwrap_or_default(),
        _ => {
            let host = match (address.contains('['), address.rsplit_once(':')) {
                (true, Some((host, _))) => host,
                _ => address,
            };
            host.trim_matches(['[', ']'])
        }
    }
}

#[cfg(test)]
mod tests;
