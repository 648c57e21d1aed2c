#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

fn shown(fields: Fields) -> Vec<String> {
    fields
        .into_iter()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8(value).unwrap()))
        .collect()
}

// RFC 7541, appendices C.3 and C.4: three requests on one connection, without and with Huffman codes.
#[test]
fn the_requests_of_the_rfc_are_read() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let expected = [
        vec![
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
        ],
        vec![
            ":method: GET",
            ":scheme: http",
            ":path: /",
            ":authority: www.example.com",
            "cache-control: no-cache",
        ],
        vec![
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ],
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        for (block, expected) in blocks.iter().zip(&expected) {
            assert_eq!(shown(decoder.decode(&hex(block), 4096).unwrap()), *expected);
        }
    }
}

#[test]
fn what_is_written_is_read_back() {
    let long = "x".repeat(300);
    let fields = [
        ("agentid", "a"),
        ("authorization", long.as_str()),
        ("empty", ""),
    ];
    let block = encode(fields.map(|(name, value)| (name, value.as_bytes())));
    let read = Decoder::default().decode(&block, 4096).unwrap();
    assert_eq!(
        shown(read),
        fields.map(|(name, value)| format!("{name}: {value}"))
    );
}

#[test]
fn hostile_blocks_are_refused() {
    let cases = [
        ("80", HpackError::Index),
        ("c0", HpackError::Index),
        ("ff ff ff ff ff ff", HpackError::Integer),
        ("40 05 61", HpackError::Truncated),
        ("3f e2 7f", HpackError::TableSize),
        ("00 81 ff 81 ff", HpackError::Huffman),
        ("00 84 ff ff ff ff 00", HpackError::Huffman),
        ("00 01 ff 00", HpackError::Name),
    ];
    for (block, error) in cases {
        assert_eq!(
            Decoder::default().decode(&hex(block), 4096),
            Err(error),
            "{block}"
        );
    }
    let long = encode([("name", [b'v'; 100].as_slice())]);
    assert_eq!(
        Decoder::default().decode(&long, 100),
        Err(HpackError::TooLong)
    );
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_panic(blocks in proptest::collection::vec(proptest::collection::vec(0u8.., 0..200), 0..5)) {
        let mut decoder = Decoder::default();
        for block in blocks {
            let _ = decoder.decode(&block, 4096);
            proptest::prop_assert!(decoder.size <= TABLE_SIZE);
        }
    }
}
