//! Who put what into a table, and what changes when one of them changes their mind.
//!
//! Two Services may ask for the same thing: the same chain, or the same external address. Of those who want
//! different values under one key the first by name has it, in whatever order they came.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::layout::{Key, Value};
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

impl Claims {
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
            changes.extend(change);
        }
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
        self.claims
            .get(key)
            .and_then(|claims| claims.effective(owners))
    }

    /// What stands under a range of keys.
    pub(super) fn range(&self, keys: RangeInclusive<Key>, owners: &impl Owners) -> Vec<Value> {
        let claims = self.claims.range(keys);
        claims
            .filter_map(|(_, claims)| claims.effective(owners))
            .collect()
    }

    /// Everything that stands in the table.
    pub(super) fn content(&self, owners: &impl Owners) -> impl Iterator<Item = (Key, Value)> {
        self.claims
            .iter()
            .filter_map(move |(key, claims)| Some((*key, claims.effective(owners)?)))
    }
}
