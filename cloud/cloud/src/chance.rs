//! Times as Azure prints them, and chance as an input.

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};

/// RFC 3339 in UTC with seven digits of a second, as Azure prints times.
pub(crate) fn seven_digits(time: Timestamp) -> String {
    let fraction = time.subsec_nanosecond() / 100;
    format!("{}.{fraction:07}Z", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// What is new: identifiers, names, secrets.
#[derive(Debug)]
pub(crate) struct Chance(StdRng);

impl Chance {
    /// Chance that nobody can foresee.
    pub(crate) fn new() -> Chance {
        Chance(StdRng::from_os_rng())
    }

    /// Chance that is the same for the same seed.
    #[cfg(test)]
    pub(crate) fn seeded(seed: u64) -> Chance {
        Chance(StdRng::seed_from_u64(seed))
    }

    /// A new GUID.
    pub(crate) fn guid(&mut self) -> String {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }

    /// Characters of an alphabet.
    pub(crate) fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        let pick = |_| alphabet[self.0.next_u32() as usize % alphabet.len()] as char;
        (0..length).map(pick).collect()
    }

    /// Decimal digits.
    pub(crate) fn digits(&mut self, length: usize) -> String {
        self.text(b"0123456789", length)
    }

    /// Lower-case letters and digits.
    pub(crate) fn small(&mut self, length: usize) -> String {
        self.text(b"abcdefghijklmnopqrstuvwxyz0123456789", length)
    }

    /// Hexadecimal digits.
    pub(crate) fn hex(&mut self, length: usize) -> String {
        self.text(b"0123456789abcdef", length)
    }

    /// A secret as Entra makes them: forty characters, the fourth a digit and the fifth `Q~`.
    pub(crate) fn secret(&mut self) -> String {
        const LETTERS: &[u8] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
        let (head, tail) = (self.text(LETTERS, 3), self.text(LETTERS, 34));
        format!("{head}8Q~{tail}")
    }
}
