//! Random choices that a printed seed repeats.

use std::time::SystemTime;

/// A small random number generator (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    /// Takes its seed from `KYANITE_TEST_SEED`, or from the clock; libtest shows it with a failure.
    #[expect(
        clippy::print_stderr,
        reason = "libtest captures it and shows it with the failed test only"
    )]
    pub(crate) fn seeded() -> Self {
        let seed = match std::env::var("KYANITE_TEST_SEED") {
            Ok(seed) => seed.parse().expect("KYANITE_TEST_SEED is a number"),
            Err(_) => {
                let clock = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
                u64::from(clock.subsec_nanos()) ^ clock.as_secs()
            }
        };
        eprintln!("KYANITE_TEST_SEED={seed}");
        Self(seed)
    }

    /// A generator of its own for another task.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.number())
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// True `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
