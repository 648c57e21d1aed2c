//! Which endpoints of a Service are used from this node; the rules of upstream's `topology.go`.

use std::net::IpAddr;

use super::model::Endpoint;

/// Where this proxy runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The node's name.
    pub node: String,
    /// Its zone, where it has one.
    pub zone: Option<String>,
}

/// Where a connection can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The endpoint's address.
    pub address: IpAddr,
    /// The port it listens on.
    pub port: u16,
}

/// What there is to choose from, for one port of a Service in one family.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// For clients that may go anywhere.
    pub(super) cluster: Vec<Target>,
    /// For clients that must stay on this node.
    pub(super) local: Vec<Target>,
    /// Addresses on this node among all of these.
    pub(super) here: Vec<IpAddr>,
}

impl Choice {
    /// Whether there is anything at all.
    pub(super) fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.local.is_empty()
    }
}

/// An endpoint and the number of the port that is asked for.
pub(super) type Candidate<'a> = (&'a Endpoint, u16);

/// Chooses; the lists are sorted and hold nothing twice.
pub(super) fn choose(candidates: &[Candidate<'_>], place: &Place) -> Choice {
    let preferred = preference(candidates, place);
    let is_here = |e: &Endpoint| e.node.as_deref() == Some(place.node.as_str());
    let cluster = ready_or_ending(candidates, |e| preferred.admits(e, place));
    let local = ready_or_ending(candidates, is_here);
    let here = candidates.iter().filter(|(endpoint, _)| is_here(endpoint));
    let mut here: Vec<IpAddr> = here
        .filter(|(e, port)| {
            let target = Target {
                address: e.address,
                port: *port,
            };
            cluster.contains(&target) || local.contains(&target)
        })
        .map(|(e, _)| e.address)
        .collect();
    here.sort_unstable();
    here.dedup();
    Choice {
        cluster,
        local,
        here,
    }
}

// Endpoints that are ready; when there are none, those that are about to end and still serve.
fn ready_or_ending(
    candidates: &[Candidate<'_>],
    admits: impl Fn(&Endpoint) -> bool,
) -> Vec<Target> {
    let ready = targets(candidates, |e| e.ready && admits(e));
    if ready.is_empty() {
        return targets(candidates, |e| e.serving && e.terminating && admits(e));
    }
    ready
}

fn targets(candidates: &[Candidate<'_>], is: impl Fn(&Endpoint) -> bool) -> Vec<Target> {
    let chosen = candidates.iter().filter(|(endpoint, _)| is(endpoint));
    let mut targets: Vec<Target> = chosen
        .map(|(endpoint, port)| Target {
            address: endpoint.address,
            port: *port,
        })
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

enum Preference {
    SameNode,
    SameZone,
    None,
}

impl Preference {
    fn admits(&self, endpoint: &Endpoint, place: &Place) -> bool {
        // Hints are for endpoints that are ready; what is left at the end is used as it is.
        if !endpoint.ready {
            return true;
        }
        match self {
            Preference::None => true,
            Preference::SameNode => names(&endpoint.node_hints, Some(&place.node)),
            Preference::SameZone => names(&endpoint.zone_hints, place.zone.as_deref()),
        }
    }
}

fn names(hints: &[Box<str>], wanted: Option<&str>) -> bool {
    wanted.is_some_and(|wanted| hints.iter().any(|hint| **hint == *wanted))
}

// Hints count only if every ready endpoint has them and one is meant for here.
fn preference(candidates: &[Candidate<'_>], place: &Place) -> Preference {
    let ready = || candidates.iter().map(|(e, _)| e).filter(|e| e.ready);
    let complete = |hints: fn(&Endpoint) -> &[Box<str>], wanted: Option<&str>| {
        ready().all(|e| !hints(e).is_empty()) && ready().any(|e| names(hints(e), wanted))
    };
    if complete(|e| &e.node_hints, Some(&place.node)) {
        return Preference::SameNode;
    }
    if complete(|e| &e.zone_hints, place.zone.as_deref()) {
        return Preference::SameZone;
    }
    Preference::None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            node: "n1".into(),
            zone: Some("z1".into()),
        }
    }

    // Written as `address state node zones nodes`; state: r ready, s serving and ending, n neither.
    fn endpoint(text: &str) -> Endpoint {
        let fields: Vec<&str> = text.split(' ').collect();
        let hints = |i: usize| -> Vec<Box<str>> {
            let list = fields.get(i).copied().unwrap_or_default();
            list.split(',')
                .filter(|h| !h.is_empty())
                .map(Into::into)
                .collect()
        };
        Endpoint {
            address: fields[0].parse().unwrap(),
            ready: fields[1] == "r",
            serving: fields[1] != "n",
            terminating: fields[1] == "s",
            node: Some(fields[2].into()),
            zone_hints: hints(3),
            node_hints: hints(4),
        }
    }

    fn chosen(endpoints: &[&str]) -> (Vec<String>, Vec<String>) {
        let endpoints: Vec<Endpoint> = endpoints.iter().map(|e| endpoint(e)).collect();
        let candidates: Vec<Candidate<'_>> = endpoints.iter().map(|e| (e, 80)).collect();
        let choice = choose(&candidates, &place());
        let text = |list: Vec<Target>| list.iter().map(|t| t.address.to_string()).collect();
        (text(choice.cluster), text(choice.local))
    }

    #[test]
    fn endpoints_are_chosen_as_upstream_chooses_them() {
        for (endpoints, cluster, local) in [
            (
                &["1.0.0.1 r n1", "1.0.0.2 r n2"][..],
                &["1.0.0.1", "1.0.0.2"][..],
                &["1.0.0.1"][..],
            ),
            // About to end: only when nothing else is left, judged for each list.
            (
                &["1.0.0.1 s n1", "1.0.0.2 r n2"],
                &["1.0.0.2"],
                &["1.0.0.1"],
            ),
            (
                &["1.0.0.1 s n1", "1.0.0.2 s n2"],
                &["1.0.0.1", "1.0.0.2"],
                &["1.0.0.1"],
            ),
            (&["1.0.0.1 n n1", "1.0.0.2 n n2"], &[], &[]),
            // Hints: all or nothing.
            (
                &["1.0.0.1 r n1 z1", "1.0.0.2 r n2 z2"],
                &["1.0.0.1"],
                &["1.0.0.1"],
            ),
            (
                &["1.0.0.1 r n2 z1", "1.0.0.2 r n2"],
                &["1.0.0.1", "1.0.0.2"],
                &[],
            ),
            (
                &["1.0.0.1 r n2 z3", "1.0.0.2 r n2 z2"],
                &["1.0.0.1", "1.0.0.2"],
                &[],
            ),
            (
                &["1.0.0.1 r n2 z1 n2", "1.0.0.2 r n1 z1 n1"],
                &["1.0.0.2"],
                &["1.0.0.2"],
            ),
            // The same endpoint in two slices.
            (
                &["1.0.0.1 r n1", "1.0.0.1 n n1"],
                &["1.0.0.1"],
                &["1.0.0.1"],
            ),
        ] {
            let (c, l) = chosen(endpoints);
            assert_eq!((c, l), (strings(cluster), strings(local)), "{endpoints:?}");
        }
    }

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }
}
