//! Sets of completion indexes, written as a job's status has them: `1,3-5`.

use std::collections::BTreeSet;

/// Indexes as runs from a first to a last, in order, apart from each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// What a status says; indexes beyond `completions` are left out, and so is what cannot be read.
    pub(super) fn parse(text: &str, completions: i32) -> Indexes {
        let run = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i32>().ok()?, last.parse::<i32>().ok()?);
            (first < completions).then(|| (first, last.min(completions - 1)))
        };
        Indexes::of_runs(text.split(',').filter_map(run).collect())
    }

    fn of_runs(mut runs: Vec<(i32, i32)>) -> Indexes {
        runs.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::new();
        for (first, last) in runs {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Indexes(merged)
    }

    /// These and more.
    pub(super) fn with(&self, more: impl IntoIterator<Item = i32>) -> Indexes {
        let more = more.into_iter().map(|index| (index, index));
        Indexes::of_runs(self.0.iter().copied().chain(more).collect())
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        let place = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(place).is_some_and(|(first, _)| *first <= index)
    }

    pub(super) fn len(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many of these are in the others.
    pub(super) fn common_with(&self, others: &Indexes) -> i32 {
        let overlap = |a: &(i32, i32), b: &(i32, i32)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        let all = self
            .0
            .iter()
            .flat_map(|a| others.0.iter().map(move |b| (a, b)));
        all.map(|(a, b)| overlap(a, b)).sum()
    }

    /// The first `count` indexes below `completions` that are in none of these.
    pub(super) fn missing(
        completions: i32,
        count: usize,
        apart_from: [&Indexes; 2],
        taken: &BTreeSet<i32>,
    ) -> Vec<i32> {
        let is_free = |index: &i32| {
            !taken.contains(index) && apart_from.iter().all(|known| !known.contains(*index))
        };
        (0..completions).filter(is_free).take(count).collect()
    }
}

impl std::fmt::Display for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, (first, last)) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_read_merged_and_written() {
        let indexes = Indexes::parse("1,3-5,9", 10);
        assert_eq!(indexes.to_string(), "1,3-5,9");
        assert_eq!(indexes.len(), 5);
        assert_eq!(indexes.with([2, 7]).to_string(), "1-5,7,9");
        assert_eq!(indexes.with([0]).to_string(), "0,1,3-5,9");
        assert!(indexes.contains(4) && !indexes.contains(2) && !indexes.contains(10));
        assert_eq!(Indexes::parse("0-100", 3).to_string(), "0-2");
        assert_eq!(Indexes::parse("", 3), Indexes::default());
        let none = Indexes::default();
        let missing = Indexes::missing(10, 3, [&indexes, &none], &BTreeSet::from([0]));
        assert_eq!(missing, [2, 6, 7]);
        assert_eq!(indexes.common_with(&Indexes::parse("4-9", 10)), 3);
    }
}
