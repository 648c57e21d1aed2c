#![allow(clippy::unwrap_used, reason = "tests")]

use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;
use crate::lanes::Inbound;
use crate::link::Wire;

/// Where things stand when a packet arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// Dial 7 is under way.
    Dialling,
    /// Connection 1 is open.
    Open,
    /// Connection 1 is closed here.
    Closed,
}

fn dial_request(random: i64) -> Packet {
    Packet::DialRequest {
        random,
        protocol: "tcp".to_owned(),
        address: "h:1".to_owned(),
    }
}

fn setup(state: State) -> (Session, Option<Wire>) {
    let session = Session::new(None);
    let mut wire = None;
    match state {
        State::Idle => {}
        State::Dialling => {
            session.receive(dial_request(7));
        }
        State::Open => wire = Some(Wire::open(&session.lanes, 1)),
        State::Closed => drop(Wire::open(&session.lanes, 1)),
    }
    sent(&session);
    (session, wire)
}

fn sent(session: &Session) -> Vec<Packet> {
    std::iter::from_fn(|| lock(&session.lanes).next_packet()).collect()
}

fn outcome(session: &Session, wire: Option<&Wire>, effect: &Effect) -> String {
    let mut seen = Vec::new();
    match effect {
        Effect::Nothing => {}
        Effect::Dial { random, id, .. } => seen.push(format!("dial {random} as {id}")),
        Effect::Congested(id) => seen.push(format!("congested {id}")),
    }
    for packet in sent(session) {
        seen.push(match packet {
            Packet::CloseResponse { id, error } => format!("CLOSE_RSP {id} {error}"),
            Packet::DialResponse { random, error, .. } => format!("DIAL_RSP {random} {error}"),
            other => format!("{other:?}"),
        });
    }
    let mut cx = Context::from_waker(Waker::noop());
    if let Some(wire) = wire
        && let Poll::Ready(inbound) = wire.poll_take(&mut cx)
    {
        seen.push(match inbound {
            Inbound::Data(data) => format!("data {}", data.len()),
            Inbound::EndOfData => "end of data".to_owned(),
            Inbound::Closed(reason) => format!("closed{reason}"),
        });
    }
    seen.join(", ")
}

fn packets() -> Vec<(&'static str, Packet)> {
    let data = |id| Packet::Data {
        id,
        data: Bytes::from_static(b"xyz"),
    };
    vec![
        ("DIAL_REQ", dial_request(7)),
        ("DIAL_CLS", Packet::DialClose { random: 7 }),
        ("DATA", data(1)),
        ("DATA 0", data(0)),
        ("CLOSE_REQ", Packet::CloseRequest { id: 1 }),
        ("END_OF_DATA", Packet::EndOfData { id: 1 }),
        ("CREDIT", Packet::Credit { id: 1, bytes: 1 }),
        (
            "DIAL_RSP",
            Packet::DialResponse {
                random: 7,
                id: 1,
                error: String::new(),
            },
        ),
        (
            "CLOSE_RSP",
            Packet::CloseResponse {
                id: 1,
                error: String::new(),
            },
        ),
        ("DRAIN", Packet::Drain),
        ("unknown", Packet::Unknown),
    ]
}

// What upstream's agent does; whatever is not listed has no effect.
const EXPECTED: [(State, &str, &str); 13] = [
    (State::Idle, "DIAL_REQ", "dial 7 as 1"),
    (State::Idle, "DATA", "CLOSE_RSP 1 unrecognized connectID"),
    (State::Idle, "CLOSE_REQ", "CLOSE_RSP 1 Unknown connectID"),
    (
        State::Dialling,
        "DIAL_REQ",
        "DIAL_RSP 7 a dial with this id is already under way",
    ),
    (
        State::Dialling,
        "DATA",
        "CLOSE_RSP 1 unrecognized connectID",
    ),
    (
        State::Dialling,
        "CLOSE_REQ",
        "CLOSE_RSP 1 Unknown connectID",
    ),
    (State::Open, "DIAL_REQ", "dial 7 as 1"),
    (State::Open, "DATA", "data 3"),
    (State::Open, "CLOSE_REQ", "closed"),
    (State::Open, "END_OF_DATA", "end of data"),
    (State::Closed, "DIAL_REQ", "dial 7 as 1"),
    (State::Closed, "DATA", "CLOSE_RSP 1 unrecognized connectID"),
    (State::Closed, "CLOSE_REQ", "CLOSE_RSP 1 Unknown connectID"),
];

#[test]
fn every_packet_in_every_state() {
    for state in [State::Idle, State::Dialling, State::Open, State::Closed] {
        for (name, packet) in packets() {
            let (session, wire) = setup(state);
            let effect = session.receive(packet);
            let expected = EXPECTED.iter().find(|(s, n, _)| (*s, *n) == (state, name));
            let expected = expected.map_or("", |(_, _, e)| *e);
            assert_eq!(
                outcome(&session, wire.as_ref(), &effect),
                expected,
                "{name} when {state:?}"
            );
            session.lose();
            drop(wire);
            assert_eq!(lock(&session.lanes).len(), 0, "{name} when {state:?}");
        }
    }
}

#[test]
fn a_close_is_answered_after_the_last_data_was_taken() {
    let (session, wire) = setup(State::Open);
    session.receive(Packet::Data {
        id: 1,
        data: Bytes::from_static(b"last"),
    });
    session.receive(Packet::CloseRequest { id: 1 });
    assert_eq!(sent(&session), []);
    let mut cx = Context::from_waker(Waker::noop());
    let inbound = wire.as_ref().unwrap().poll_take(&mut cx);
    assert_eq!(
        inbound,
        Poll::Ready(Inbound::Data(Bytes::from_static(b"last")))
    );
    drop(wire);
    assert_eq!(sent(&session), [unknown(1, "")]);
}

#[test]
fn a_flood_of_dials_is_bounded() {
    let session = Session::new(None);
    for random in 0..MAX_DIALS as i64 {
        assert!(matches!(
            session.receive(dial_request(random)),
            Effect::Dial { .. }
        ));
    }
    assert_eq!(session.receive(dial_request(-1)), Effect::Nothing);
    assert_eq!(sent(&session).len(), 1);
    assert!(session.finished(0));
    assert!(matches!(
        session.receive(dial_request(-1)),
        Effect::Dial { .. }
    ));
}
