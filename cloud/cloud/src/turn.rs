//! One request's turn: what it sees of the state, and what it wants changed.
//!
//! A decision gets a [`Turn`], reads through it and stages changes in it; its own reads see them. Whoever called
//! keeps the changes all together, or none of them where the decision refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::chance::Chance;
use crate::settings::Settings;

/// The state as it is.
pub(crate) trait View: Send + Sync {
    fn get(&self, key: &str) -> Option<Value>;

    /// Every entry whose key starts so, in the order of keys.
    fn under(&self, prefix: &str) -> Vec<(String, Value)>;

    /// The first key of a resource from one key on and before another.
    fn next(&self, from: &str, end: &str) -> Option<String>;
}

/// A state that is only remembered.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Remembered(pub(crate) BTreeMap<String, Value>);

#[cfg(test)]
impl View for Remembered {
    fn next(&self, from: &str, end: &str) -> Option<String> {
        let range = self.0.range(from.to_owned()..end.to_owned());
        range.map(|(key, _)| key.clone()).next()
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.0.get(key).cloned()
    }

    fn under(&self, prefix: &str) -> Vec<(String, Value)> {
        let from = self.0.range(prefix.to_owned()..);
        from.take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// What a decision wants changed: a new value for a key, or none.
pub(crate) type Changes = BTreeMap<String, Option<Value>>;

/// A decision's view of the world.
pub(crate) struct Turn<'a> {
    view: &'a dyn View,
    staged: Changes,
    pub(crate) now: Timestamp,
    pub(crate) chance: Chance,
    pub(crate) settings: &'a Settings,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        view: &'a dyn View,
        now: Timestamp,
        chance: Chance,
        settings: &'a Settings,
    ) -> Turn<'a> {
        Turn {
            view,
            staged: Changes::new(),
            now,
            chance,
            settings,
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        match self.staged.get(key) {
            Some(staged) => staged.clone(),
            None => self.view.get(key),
        }
    }

    pub(crate) fn under(&self, prefix: &str) -> Vec<(String, Value)> {
        let mut found: BTreeMap<String, Value> = self.view.under(prefix).into_iter().collect();
        let staged = self.staged.range(prefix.to_owned()..);
        for (key, value) in staged.take_while(|(key, _)| key.starts_with(prefix)) {
            match value {
                Some(value) => found.insert(key.clone(), value.clone()),
                None => found.remove(key),
            };
        }
        found.into_iter().collect()
    }

    /// The first key of a resource from one key on and before another.
    fn next(&self, from: &str, end: &str) -> Option<String> {
        let mut from = from.to_owned();
        let kept = loop {
            match self.view.next(&from, end) {
                Some(key) if self.staged.get(&key).is_some_and(Option::is_none) => {
                    from = key + "\0"
                }
                kept => break kept,
            }
        };
        let staged = self.staged.range(from..end.to_owned());
        let mut staged = staged.filter(|(_, value)| value.is_some());
        let staged = staged.next().map(|(key, _)| key.clone());
        kept.into_iter().chain(staged).min()
    }

    /// The keys of resources right below a prefix, without a look at what is below those.
    pub(crate) fn right_below(&self, prefix: &str) -> Vec<String> {
        // What is below a key follows a slash: the character after it is beyond all of that.
        let end = format!("{prefix}\u{10ffff}");
        let (mut found, mut from) = (Vec::new(), prefix.to_owned());
        while let Some(key) = self.next(&from, &end) {
            match key[prefix.len()..].split_once('/') {
                Some((name, _)) => from = format!("{prefix}{name}0"),
                None => {
                    from = format!("{key}\0");
                    found.push(key);
                }
            }
        }
        found
    }

    pub(crate) fn put(&mut self, key: impl Into<String>, value: Value) {
        self.staged.insert(key.into(), Some(value));
    }

    pub(crate) fn remove(&mut self, key: impl Into<String>) {
        self.staged.insert(key.into(), None);
    }

    /// Forgets what was staged: the decision refuses.
    pub(crate) fn forget(&mut self) {
        self.staged.clear();
    }

    /// The changes that were asked for.
    pub(crate) fn changes(self) -> Changes {
        self.staged
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_turn_sees_what_it_staged_and_the_state_does_not() {
        let state = Remembered(BTreeMap::from([
            ("a/1".into(), json!(1)),
            ("a/2".into(), json!(2)),
            ("b".into(), json!(3)),
        ]));
        let settings = Settings::for_tests();
        let mut turn = Turn::new(&state, Timestamp::UNIX_EPOCH, Chance::seeded(1), &settings);
        turn.remove("a/1");
        turn.put("a/3", json!(4));
        let keys: Vec<String> = turn.under("a/").into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a/2", "a/3"]);
        assert_eq!(turn.get("a/1"), None);
        assert_eq!(state.get("a/1"), Some(json!(1)));
        assert_eq!(turn.changes().len(), 2);
    }

    #[test]
    fn what_is_right_below_is_found_without_what_is_below_that() {
        let keys = [
            "p/a",
            "p/a-b",
            "p/a-b/x/1",
            "p/a/x/1",
            "p/a/x/2",
            "p/c/x/1",
            "p/d",
            "q/e",
        ];
        let state = Remembered(
            keys.iter()
                .map(|key| ((*key).to_owned(), json!(1)))
                .collect(),
        );
        let settings = Settings::for_tests();
        let mut turn = Turn::new(&state, Timestamp::UNIX_EPOCH, Chance::seeded(1), &settings);
        assert_eq!(turn.right_below("p/"), ["p/a", "p/a-b", "p/d"]);
        turn.remove("p/a");
        turn.put("p/b", json!(2));
        assert_eq!(turn.right_below("p/"), ["p/a-b", "p/b", "p/d"]);
    }
}
