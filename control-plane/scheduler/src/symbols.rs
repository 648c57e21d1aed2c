//! Texts as numbers: labels, namespaces, taints and images are compared millions of times and written once.

use std::collections::HashMap;

/// A text that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(u32);

/// Every text that was seen.
#[derive(Debug, Default)]
pub struct Symbols {
    numbers: HashMap<Box<str>, Sym>,
    texts: Vec<Box<str>>,
}

impl Symbols {
    /// The number of a text.
    pub fn of(&mut self, text: &str) -> Sym {
        if let Some(&known) = self.numbers.get(text) {
            return known;
        }
        let number = u32::try_from(self.texts.len()).expect("fewer than four billion texts");
        self.texts.push(text.into());
        self.numbers.insert(text.into(), Sym(number));
        Sym(number)
    }

    /// The number of a text, if it was ever seen.
    pub fn known(&self, text: &str) -> Option<Sym> {
        self.numbers.get(text).copied()
    }

    /// The text of a number.
    pub fn text(&self, sym: Sym) -> &str {
        &self.texts[sym.0 as usize]
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether nothing was seen yet.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// Labels, sorted by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Sym, Sym)]>);

impl Labels {
    /// Labels as an object has them.
    pub fn of<'a>(
        symbols: &mut Symbols,
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Labels {
        let pairs = labels.into_iter();
        let mut pairs: Vec<_> = pairs.map(|(k, v)| (symbols.of(k), symbols.of(v))).collect();
        pairs.sort_unstable();
        Labels(pairs.into())
    }

    /// The value of a key.
    pub fn get(&self, key: Sym) -> Option<Sym> {
        // Few enough that looking at each is quicker than searching.
        let found = self.0.iter().find(|(k, _)| *k == key);
        found.map(|(_, value)| *value)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
