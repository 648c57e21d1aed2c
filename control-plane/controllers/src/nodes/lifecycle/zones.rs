//! How fast the lost nodes of a zone are tainted: the state of a zone, and a queue that lets one node
//! through at a time.

use std::collections::{BTreeMap, HashMap};

use jiff::SignedDuration;

use crate::nodes::settings::NodeLifecycle;

/// How much of a zone is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Disruption {
    /// Not looked at yet.
    #[default]
    Initial,
    /// Few nodes, or none.
    Normal,
    /// Most nodes.
    Partial,
    /// Every node.
    Full,
}

/// How many nodes of a zone are ready, and how many are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) ready: usize,
    pub(super) lost: usize,
}

impl Tally {
    fn size(self) -> usize {
        self.ready + self.lost
    }

    /// Upstream's `ComputeZoneState`: fewer than three lost nodes never disrupt a zone.
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of nodes, in upstream's precision"
    )]
    fn disruption(self, settings: &NodeLifecycle) -> Disruption {
        let share = self.lost as f32 / self.size() as f32;
        match self {
            Tally {
                ready: 0,
                lost: 1..,
            } => Disruption::Full,
            Tally { lost: 3.., .. } if share >= settings.unhealthy_zone_threshold => {
                Disruption::Partial
            }
            _ => Disruption::Normal,
        }
    }
}

/// A bucket of one token.
#[derive(Debug, Clone, PartialEq)]
struct Limiter {
    rate: f32,
    free_at: SignedDuration,
}

impl Limiter {
    fn full(rate: f32) -> Limiter {
        Limiter {
            rate,
            free_at: SignedDuration::MIN,
        }
    }

    fn take(&mut self, now: SignedDuration) -> bool {
        let free = self.rate > 0.0 && now >= self.free_at;
        if free {
            self.free_at = now.saturating_add(refill(self.rate));
        }
        free
    }

    // A bucket that was empty is followed by an empty one (upstream's `SwapLimiter`).
    fn swap(&mut self, rate: f32, now: SignedDuration) {
        if rate.to_bits() == self.rate.to_bits() {
            return;
        }
        let was_free = self.take(now);
        *self = Limiter::full(rate);
        if !was_free {
            self.take(now);
        }
    }

    fn due(&self) -> Option<SignedDuration> {
        (self.rate > 0.0).then_some(self.free_at)
    }
}

// To the millisecond: 0.1 as an f32 is a little more than 0.1, and ten seconds are to be ten seconds.
fn refill(rate: f32) -> SignedDuration {
    #[allow(clippy::cast_possible_truncation, reason = "such casts saturate")]
    SignedDuration::from_millis((1_000.0 / f64::from(rate)).round() as i64)
}

#[derive(Debug)]
struct Zone {
    disruption: Disruption,
    limiter: Limiter,
    /// In the order in which they came.
    waiting: BTreeMap<u64, String>,
}

/// What a change of disruption asks for beyond other limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// No node is left anywhere: it is us who are cut off, and nobody is evicted.
    AllDark,
    /// Some node is back.
    LightAgain,
}

/// Every zone, and who waits in it.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
    /// Where a node waits, and its number there.
    places: HashMap<String, (String, u64)>,
    next_number: u64,
}

impl Zones {
    /// A zone is known from its first node on.
    pub(super) fn know(&mut self, zone: &str, settings: &NodeLifecycle) {
        if !self.zones.contains_key(zone) {
            let fresh = Zone {
                disruption: Disruption::Initial,
                limiter: Limiter::full(settings.eviction_rate),
                waiting: BTreeMap::new(),
            };
            self.zones.insert(zone.to_owned(), fresh);
        }
    }

    /// A lost node waits for its turn, once.
    pub(super) fn wait(&mut self, zone: &str, node: &str) {
        match self.places.get(node) {
            Some((there, _)) if there == zone => return,
            Some(_) => self.leave(node),
            None => {}
        }
        let number = self.next_number;
        if let Some(zone_state) = self.zones.get_mut(zone) {
            zone_state.waiting.insert(number, node.to_owned());
            self.places
                .insert(node.to_owned(), (zone.to_owned(), number));
            self.next_number += 1;
        }
    }

    /// A node is well again, or gone.
    pub(super) fn leave(&mut self, node: &str) {
        if let Some((zone, number)) = self.places.remove(node)
            && let Some(zone) = self.zones.get_mut(&zone)
        {
            zone.waiting.remove(&number);
        }
    }

    /// Those whose turn it is.
    pub(super) fn let_through(&mut self, now: SignedDuration) -> Vec<String> {
        let mut through = Vec::new();
        for zone in self.zones.values_mut() {
            while !zone.waiting.is_empty()
                && zone.limiter.take(now)
                && let Some((_, node)) = zone.waiting.pop_first()
            {
                self.places.remove(&node);
                through.push(node);
            }
        }
        through
    }

    /// When somebody's turn comes next.
    pub(super) fn due(&self) -> Option<SignedDuration> {
        let busy = self.zones.values().filter(|zone| !zone.waiting.is_empty());
        busy.filter_map(|zone| zone.limiter.due()).min()
    }

    #[cfg(test)]
    pub(super) fn disruption(&self, zone: &str) -> Disruption {
        self.zones
            .get(zone)
            .map_or(Disruption::Initial, |zone| zone.disruption)
    }

    /// Takes up what was counted in each zone (upstream's `handleDisruption`).
    pub(super) fn judge(
        &mut self,
        tallies: &BTreeMap<String, Tally>,
        settings: &NodeLifecycle,
        now: SignedDuration,
    ) -> Turn {
        let states: BTreeMap<&String, Disruption> = tallies
            .iter()
            .map(|(zone, tally)| (zone, tally.disruption(settings)))
            .collect();
        self.forget_empty(tallies);
        let counted = || {
            self.zones
                .iter()
                .filter(|(zone, _)| tallies.contains_key(*zone))
        };
        let are_dark = states.values().all(|state| *state == Disruption::Full);
        let were_dark = counted().all(|(_, zone)| zone.disruption == Disruption::Full);
        match (are_dark, were_dark) {
            (true, true) => return Turn::None,
            (true, false) => {
                for zone in self.zones.values_mut() {
                    zone.limiter.swap(0.0, now);
                    zone.disruption = Disruption::Full;
                }
                return Turn::AllDark;
            }
            (false, _) => {}
        }
        for (name, zone) in &mut self.zones {
            let Some(state) = states.get(name) else {
                continue;
            };
            if were_dark || zone.disruption != *state {
                let size = tallies.get(name).map_or(0, |tally| tally.size());
                zone.limiter.swap(rate(*state, size, settings), now);
                zone.disruption = *state;
            }
        }
        match were_dark {
            true => Turn::LightAgain,
            false => Turn::None,
        }
    }

    // A zone that nobody is counted in starts from the beginning when somebody is again.
    fn forget_empty(&mut self, tallies: &BTreeMap<String, Tally>) {
        self.zones
            .retain(|name, zone| tallies.contains_key(name) || !zone.waiting.is_empty());
    }
}

fn rate(state: Disruption, size: usize, settings: &NodeLifecycle) -> f32 {
    match state {
        Disruption::Partial if size > settings.large_cluster_size => {
            settings.secondary_eviction_rate
        }
        Disruption::Partial => 0.0,
        Disruption::Initial | Disruption::Normal | Disruption::Full => settings.eviction_rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_disrupted_by_at_least_three_and_the_threshold() {
        let settings = NodeLifecycle::default();
        for (ready, lost, expected) in [
            (0, 0, Disruption::Normal),
            (0, 1, Disruption::Full),
            (2, 2, Disruption::Normal),
            (1, 2, Disruption::Normal),
            (2, 3, Disruption::Partial),
            (9, 11, Disruption::Partial),
            (46, 54, Disruption::Normal),
            (45, 55, Disruption::Partial),
            (100, 0, Disruption::Normal),
        ] {
            let tally = Tally { ready, lost };
            assert_eq!(tally.disruption(&settings), expected, "{tally:?}");
        }
    }

    #[test]
    fn a_bucket_holds_one_token_and_a_new_one_is_as_empty_as_the_old() {
        let at = SignedDuration::from_secs;
        let mut limiter = Limiter::full(0.1);
        assert!(limiter.take(at(0)) && !limiter.take(at(9)) && limiter.take(at(10)));
        limiter.swap(0.1, at(11));
        assert_eq!(limiter.due(), Some(at(20)), "the same rate is no change");
        limiter.swap(0.01, at(11));
        assert_eq!(limiter.due(), Some(at(111)));
        limiter.swap(0.0, at(200));
        assert_eq!((limiter.due(), limiter.take(at(10_000))), (None, false));
        limiter.swap(0.1, at(300));
        assert_eq!(limiter.due(), Some(at(310)));
    }
}
