//! Tokens whose signature was found good, so that it is checked once and not with every request.
//!
//! Only the signature is remembered, by a digest of the whole token; time, audience and what the token is bound
//! to are asked anew each time, so that nothing revoked is believed (upstream remembers the whole answer for ten
//! seconds). A set belongs to one reading of the keys and goes with them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

/// Remembered at most; beyond that the set begins anew.
const MOST: usize = 8192;

/// The tokens one set of keys has been found to have signed.
#[derive(Debug, Default)]
pub struct Seen(Mutex<HashSet<[u8; 32]>>);

impl Seen {
    /// Checks a token unless its signature was found good before.
    pub(crate) fn or_check<E>(
        &self,
        token: &str,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let digest = Sha256::digest(token).into();
        if self.lock().contains(&digest) {
            return Ok(());
        }
        check()?;
        let mut seen = self.lock();
        if seen.len() >= MOST {
            seen.clear();
        }
        seen.insert(digest);
        Ok(())
    }

    // Whatever a thread panicked over, the set holds only digests of good tokens.
    fn lock(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_good_is_remembered() {
        let seen = Seen::default();
        assert_eq!(seen.or_check("a", || Err("bad")), Err("bad"));
        assert_eq!(seen.or_check("a", || Ok::<(), &str>(())), Ok(()));
        assert_eq!(seen.or_check("a", || Err("asked again")), Ok(()));
        assert_eq!(seen.or_check("b", || Err("another")), Err("another"));
    }

    #[test]
    fn memory_is_bounded() {
        let seen = Seen::default();
        for token in 0..=MOST {
            let good = seen.or_check(&token.to_string(), || Ok::<(), ()>(()));
            assert!(good.is_ok());
        }
        assert!(seen.0.lock().unwrap().len() <= MOST);
    }
}
