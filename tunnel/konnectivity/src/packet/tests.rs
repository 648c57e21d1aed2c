#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

fn wire(packet: Packet) -> Vec<u8> {
    let (head, data) = packet.encode();
    [head.as_slice(), &data].concat()
}

fn read(bytes: &[u8]) -> Result<Packet, Malformed> {
    Packet::decode(Bytes::copy_from_slice(bytes))
}

// As upstream's programs put them on the wire.
#[test]
fn packets_look_as_upstreams_do() {
    let dial = Packet::DialRequest {
        random: 5,
        protocol: "tcp".to_owned(),
        address: "h:1".to_owned(),
    };
    let cases: [(Packet, &[u8]); 7] = [
        (dial, b"\x12\x0c\x0a\x03tcp\x12\x03h:1\x18\x05"),
        (
            Packet::DialResponse {
                random: 5,
                id: 1,
                error: String::new(),
            },
            b"\x08\x01\x1a\x04\x10\x01\x18\x05",
        ),
        (Packet::CloseRequest { id: 1 }, b"\x08\x02\x2a\x02\x08\x01"),
        (
            Packet::CloseResponse {
                id: 300,
                error: "e".to_owned(),
            },
            b"\x08\x03\x32\x06\x0a\x01e\x10\xac\x02",
        ),
        (
            Packet::Data {
                id: 1,
                data: Bytes::from_static(b"hi"),
            },
            b"\x08\x04\x22\x06\x08\x01\x1a\x02hi",
        ),
        (Packet::DialClose { random: 5 }, b"\x08\x05\x3a\x02\x08\x05"),
        (Packet::Drain, b"\x08\x06\x42\x00"),
    ];
    for (packet, bytes) in cases {
        assert_eq!(wire(packet.clone()), bytes, "{packet:?}");
        assert_eq!(read(bytes), Ok(packet));
    }
}

#[test]
fn odd_packets_are_read_as_upstream_reads_them() {
    let empty_dial = Packet::DialRequest {
        random: 0,
        protocol: String::new(),
        address: String::new(),
    };
    let cases: [(&str, &[u8], Packet); 6] = [
        ("nothing at all", b"", empty_dial.clone()),
        (
            "a payload of another kind",
            b"\x22\x06\x08\x01\x1a\x02hi",
            empty_dial,
        ),
        ("an unknown type", b"\x08\x63", Packet::Unknown),
        (
            "a negative type",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            Packet::Unknown,
        ),
        (
            "an unknown field",
            b"\x08\x02\xfa\x01\x01x\x2a\x02\x08\x01",
            Packet::CloseRequest { id: 1 },
        ),
        (
            "the last payload counts",
            b"\x08\x02\x2a\x02\x08\x01\x2a\x02\x08\x02",
            Packet::CloseRequest { id: 2 },
        ),
    ];
    for (name, bytes, packet) in cases {
        assert_eq!(read(bytes), Ok(packet), "{name}");
    }
}

#[test]
fn what_is_no_packet_is_refused() {
    let cases: [(&str, &[u8]); 5] = [
        ("a cut length", b"\x12\x0c\x0a\x03tc"),
        ("a group", b"\x0b"),
        ("field zero", b"\x00\x01"),
        (
            "an endless number",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ),
        ("text that is none", b"\x08\x03\x32\x03\x0a\x01\xff"),
    ];
    for (name, bytes) in cases {
        assert_eq!(read(bytes), Err(Malformed), "{name}");
    }
}

#[test]
fn the_largest_packet_stays_below_upstreams_slow_path() {
    let data = Bytes::from(vec![0; MAX_DATA]);
    let packet = Packet::Data { id: i64::MAX, data };
    assert!(wire(packet).len() <= 32 << 10);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(bytes in proptest::collection::vec(0u8.., 0..64)) {
        let _ = read(&bytes);
    }

    #[test]
    fn numbers_and_data_survive(id: i64, random: i64, error: String, data: Vec<u8>) {
        for packet in [
            Packet::DialResponse { random, id, error },
            Packet::Data { id, data: data.into() },
            Packet::Credit { id, bytes: random },
            Packet::EndOfData { id },
        ] {
            prop_assert_eq!(read(&wire(packet.clone())), Ok(packet));
        }
    }
}
