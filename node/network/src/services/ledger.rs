//! Who put what into a table, and what changes when one of them changes their mind.
//!
//! Two Services may ask for the same thing: the same chain, or the same external address. Of those who want
//! different values under one key the first by name has it, in whatever order they came. A front belongs to one of
//! them as a whole: endpoints of two Services are never mixed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::layout::{Front, Key, Reach, Value};
use super::model::ServiceName;

/// One key of the rule set changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub key: Key,
    /// What stood there.
    pub before: Option<Value>,
    /// What is to stand there.
    pub after: Option<Value>,
}

/// The content of one table, by who wants it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    claims: BTreeMap<Key, Claims>,
    /// Who has the fronts that several want; there are hardly any.
    contested: BTreeMap<Front, u32>,
}

/// Almost everything is claimed once; a claim then is no more than its value.
#[derive(Debug)]
enum Claims {
    One(u32, Value),
    Many(BTreeMap<u32, Value>),
}

/// The order in which owners have their way: by name, whatever their numbers.
pub(super) trait Owners {
    /// The name behind a number.
    fn name(&self, owner: u32) -> Option<&ServiceName>;
}

/// Keys of which a front has at least one, if it has any.
fn heads(front: Front) -> [Key; 4] {
    [
        Key::Dispatch(Reach::Cluster, front),
        Key::Dispatch(Reach::Outside, front),
        Key::Refused(front),
        Key::Guarded(front),
    ]
}

impl Claims {
    fn owners(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Claims::One(owner, _) => (Some(*owner), None),
            Claims::Many(all) => (None, Some(all.keys().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn of(&self, owner: u32) -> Option<Value> {
        match self {
            Claims::One(known, value) => (*known == owner).then_some(*value),
            Claims::Many(all) => all.get(&owner).copied(),
        }
    }

    fn effective(&self, owners: &impl Owners) -> Option<Value> {
        match self {
            Claims::One(_, value) => Some(*value),
            Claims::Many(all) => {
                let first = all.iter().min_by_key(|(owner, _)| owners.name(**owner));
                first.map(|(_, value)| *value)
            }
        }
    }

    fn set(&mut self, owner: u32, value: Value) {
        match self {
            Claims::One(known, current) if *known == owner => *current = value,
            Claims::One(known, current) => {
                *self = Claims::Many(BTreeMap::from([(*known, *current), (owner, value)]));
            }
            Claims::Many(all) => {
                all.insert(owner, value);
            }
        }
    }

    /// Whether nobody is left.
    fn unset(&mut self, owner: u32) -> bool {
        match self {
            Claims::One(known, _) => *known == owner,
            Claims::Many(all) => {
                all.remove(&owner);
                if let (1, Some((owner, value))) = (all.len(), all.first_key_value()) {
                    *self = Claims::One(*owner, *value);
                }
                false
            }
        }
    }
}

impl Ledger {
    /// Replaces what an owner wants; both lists are sorted and hold no key twice.
    pub(super) fn replace(
        &mut self,
        owner: u32,
        before: &[(Key, Value)],
        after: &[(Key, Value)],
        owners: &impl Owners,
        changes: &mut Vec<Change>,
    ) {
        let fronts = self.wanted_by_others(owner, before, after);
        let held = self.fronts_content(&fronts, owners);
        let is_apart = |key: &Key| key.front().is_some_and(|front| fronts.contains(&front));
        let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(a), Some(b)) => a.0.cmp(&b.0),
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            if gone == come {
                continue;
            }
            let Some((key, _)) = gone.or(come) else { break };
            let change = self.alter(*key, owner, come.map(|(_, value)| *value), owners);
            changes.extend(change.filter(|_| !is_apart(key)));
        }
        for front in &fronts {
            self.award(*front, owners);
        }
        let now = self.fronts_content(&fronts, owners);
        let keys: BTreeSet<&Key> = held.keys().chain(now.keys()).collect();
        changes.extend(keys.into_iter().filter_map(|key| {
            let (before, after) = (held.get(key).copied(), now.get(key).copied());
            let key = *key;
            (before != after).then_some(Change { key, before, after })
        }));
    }

    // Fronts of an owner, before or after, that somebody else wants as well.
    fn wanted_by_others(
        &self,
        owner: u32,
        before: &[(Key, Value)],
        after: &[(Key, Value)],
    ) -> BTreeSet<Front> {
        let keys = before.iter().chain(after).map(|(key, _)| key);
        let mut fronts: BTreeSet<Front> = keys.filter_map(Key::front).collect();
        fronts.retain(|front| self.owners_of(*front).iter().any(|other| *other != owner));
        fronts
    }

    fn owners_of(&self, front: Front) -> BTreeSet<u32> {
        let heads = heads(front);
        let claims = heads.iter().filter_map(|key| self.claims.get(key));
        claims.flat_map(Claims::owners).collect()
    }

    // Says whose a front is.
    fn award(&mut self, front: Front, owners: &impl Owners) {
        let all = self.owners_of(front);
        let first = all.iter().min_by_key(|owner| owners.name(**owner));
        match first.filter(|_| all.len() > 1) {
            Some(first) => self.contested.insert(front, *first),
            None => self.contested.remove(&front),
        };
    }

    // What stands under the keys of fronts.
    fn fronts_content(
        &self,
        fronts: &BTreeSet<Front>,
        owners: &impl Owners,
    ) -> BTreeMap<Key, Value> {
        if fronts.is_empty() {
            return BTreeMap::new();
        }
        let content = self.content(owners);
        let of_them = content.filter(|(key, _)| key.front().is_some_and(|f| fronts.contains(&f)));
        of_them.collect()
    }

    fn alter(
        &mut self,
        key: Key,
        owner: u32,
        value: Option<Value>,
        owners: &impl Owners,
    ) -> Option<Change> {
        let before = self.get(&key, owners);
        match (value, self.claims.get_mut(&key)) {
            (Some(value), Some(claims)) => claims.set(owner, value),
            (Some(value), None) => {
                self.claims.insert(key, Claims::One(owner, value));
            }
            (None, Some(claims)) => {
                if claims.unset(owner) {
                    self.claims.remove(&key);
                }
            }
            (None, None) => {}
        }
        let after = self.get(&key, owners);
        (before != after).then_some(Change { key, before, after })
    }

    fn get(&self, key: &Key, owners: &impl Owners) -> Option<Value> {
        let claims = self.claims.get(key)?;
        self.effective(key, claims, owners)
    }

    fn effective(&self, key: &Key, claims: &Claims, owners: &impl Owners) -> Option<Value> {
        let contested = key.front().and_then(|front| self.contested.get(&front));
        match contested {
            Some(owner) => claims.of(*owner),
            None => claims.effective(owners),
        }
    }

    /// What stands under a range of keys.
    pub(super) fn range(&self, keys: RangeInclusive<Key>, owners: &impl Owners) -> Vec<Value> {
        let claims = self.claims.range(keys);
        claims
            .filter_map(|(key, claims)| self.effective(key, claims, owners))
            .collect()
    }

    /// Everything that stands in the table.
    pub(super) fn content(&self, owners: &impl Owners) -> impl Iterator<Item = (Key, Value)> {
        let all = self.claims.iter();
        all.filter_map(|(key, claims)| Some((*key, self.effective(key, claims, owners)?)))
    }
}
