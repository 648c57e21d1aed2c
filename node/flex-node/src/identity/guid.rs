//! Names that are made of what they stand for: UUIDs of version 5 (RFC 9562).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The namespace of names of resources (URLs), as the RFC has it.
const NAMESPACE: [u8; 16] = [
    0x6b, 0xa7, 0xb8, 0x11, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8,
];

/// The GUID of a name.
pub fn named(name: &str) -> String {
    let input = [&NAMESPACE[..], name.as_bytes()].concat();
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &input);
    let mut bytes: [u8; 16] = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_rfcs() {
        // Python: uuid.uuid5(uuid.NAMESPACE_URL, "http://www.example.com/")
        assert_eq!(
            named("http://www.example.com/"),
            "fcde3c85-2270-590f-9e7c-ee003d65e0e2"
        );
    }
}
