//! Short names for contents: the hash of a pod template or revision, in letters that spell nothing.

use serde::Serialize;

/// Upstream's `rand.SafeEncodeString` alphabet: no vowels, and no digits that look like letters.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a value; collisions with other values of the same name are told apart by their count.
pub(crate) fn hash(value: &impl Serialize, collisions: Option<i32>) -> String {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.extend(collisions.into_iter().flat_map(i32::to_le_bytes));
    spelled(fnv1a(&bytes))
}

fn fnv1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

fn spelled(hash: u32) -> String {
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    hash.to_string().bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_stable_spelled_safely_and_moved_by_collisions() {
        assert_eq!(fnv1a(b"hello"), 0x4f9f_2cab);
        let of = |collisions| hash(&"template", collisions);
        assert_eq!(of(None), of(None));
        assert_ne!(of(None), of(Some(1)));
        assert!(of(None).bytes().all(|letter| LETTERS.contains(&letter)));
    }
}
