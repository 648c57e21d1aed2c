//! The best of many scores, kept while single ones change: a tree of winners.

/// A score and how many have it; nobody has the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Winner {
    score: i64,
    count: u32,
}

const NOBODY: Winner = Winner {
    score: i64::MIN,
    count: 0,
};

fn of_two(a: Winner, b: Winner) -> Winner {
    match a.score.cmp(&b.score) {
        std::cmp::Ordering::Greater => a,
        std::cmp::Ordering::Less => b,
        std::cmp::Ordering::Equal => Winner {
            score: a.score,
            count: a.count + b.count,
        },
    }
}

/// The scores of rows, some of which have none.
#[derive(Debug)]
pub(super) struct Best {
    tree: Vec<Winner>,
    leaves: usize,
}

impl Best {
    pub(super) fn new(scores: impl ExactSizeIterator<Item = Option<i64>>) -> Best {
        let leaves = scores.len().next_power_of_two().max(2);
        let mut tree = vec![NOBODY; 2 * leaves];
        for (row, score) in scores.enumerate() {
            tree[leaves + row] = leaf(score);
        }
        for at in (1..leaves).rev() {
            tree[at] = of_two(tree[2 * at], tree[2 * at + 1]);
        }
        Best { tree, leaves }
    }

    pub(super) fn set(&mut self, row: usize, score: Option<i64>) {
        let mut at = self.leaves + row;
        self.tree[at] = leaf(score);
        while at > 1 {
            at /= 2;
            let winner = of_two(self.tree[2 * at], self.tree[2 * at + 1]);
            if self.tree[at] == winner {
                return;
            }
            self.tree[at] = winner;
        }
    }

    /// One of the best, each as likely as the others.
    pub(super) fn pick(&self, chance: &mut impl FnMut(u64) -> u64) -> Option<usize> {
        let top = self.tree[1];
        if top.count == 0 {
            return None;
        }
        let mut left = chance(u64::from(top.count));
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            let first = self.tree[at];
            let count = match first.score == top.score {
                true => u64::from(first.count),
                false => 0,
            };
            if left >= count {
                left -= count;
                at += 1;
            }
        }
        Some(at - self.leaves)
    }
}

fn leaf(score: Option<i64>) -> Winner {
    score.map_or(NOBODY, |score| Winner { score, count: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_picked_evenly_and_follows_changes() {
        let scores = [Some(3), None, Some(7), Some(7), Some(-1)];
        let mut best = Best::new(scores.into_iter());
        assert_eq!(best.pick(&mut |_| 0), Some(2));
        assert_eq!(best.pick(&mut |count| count - 1), Some(3));
        best.set(2, None);
        best.set(3, Some(2));
        assert_eq!(best.pick(&mut |_| 0), Some(0));
        for row in [0, 3, 4] {
            best.set(row, None);
        }
        assert_eq!(best.pick(&mut |_| 0), None);
    }
}
