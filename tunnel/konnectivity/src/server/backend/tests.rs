#![allow(clippy::unwrap_used, reason = "tests")]

use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;
use crate::lanes::Inbound;

/// Where a connection stands when a packet arrives.
#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing was ever asked.
    Idle,
    /// Dial 7 waits.
    Pending,
    /// Dial 7 was given up.
    Cancelled,
    /// Connection 5 is open.
    Open,
    /// Connection 5 was closed from here, and not yet from there.
    Closing,
}

struct Setup {
    backend: Arc<Backend>,
    dial: Option<PendingDial>,
    wire: Option<Wire>,
}

fn setup(state: State) -> Setup {
    let metrics = Arc::new(ServerMetrics::default());
    let backend = Backend::new("a".to_owned(), Identifiers::default(), None, metrics);
    let dial = || backend.dial(7, "tcp".to_owned(), "h:1".to_owned()).unwrap();
    let (mut pending, mut wire) = (None, None);
    match state {
        State::Idle => {}
        State::Pending => pending = Some(dial()),
        State::Cancelled => drop(dial()),
        State::Open => wire = Some(Wire::open(&backend.lanes, 5)),
        State::Closing => drop(Wire::open(&backend.lanes, 5)),
    }
    sent(&backend);
    Setup {
        backend,
        dial: pending,
        wire,
    }
}

fn sent(backend: &Backend) -> Vec<Packet> {
    std::iter::from_fn(|| lock(&backend.lanes).next_packet()).collect()
}

// What becomes visible: packets to the agent, the dial's answer, what the connection's holder sees.
fn outcome(setup: &mut Setup) -> String {
    let mut cx = Context::from_waker(Waker::noop());
    let mut seen: Vec<String> = sent(&setup.backend)
        .into_iter()
        .map(|packet| match packet {
            Packet::CloseRequest { id } => format!("CLOSE_REQ {id}"),
            other => format!("{other:?}"),
        })
        .collect();
    if let Some(dial) = &mut setup.dial {
        match dial.waiting.try_recv() {
            Ok(Ok(wire)) => {
                seen.push(format!("dialled {}", wire.id()));
                setup.wire = Some(wire);
            }
            Ok(Err(error)) => seen.push(format!("failed: {error}")),
            Err(_) => {}
        }
    }
    if let Some(wire) = &setup.wire
        && let Poll::Ready(inbound) = wire.poll_take(&mut cx)
    {
        seen.push(match inbound {
            Inbound::Data(data) => format!("data {}", data.len()),
            Inbound::EndOfData => "end of data".to_owned(),
            Inbound::Closed(reason) => format!("closed {reason}"),
        });
    }
    seen.join(", ")
}

fn packets() -> Vec<(&'static str, Packet)> {
    let text = str::to_owned;
    let data = |id| Packet::Data {
        id,
        data: Bytes::from_static(b"xyz"),
    };
    let answer = |random, id, error| Packet::DialResponse {
        random,
        id,
        error: text(error),
    };
    vec![
        ("DIAL_RSP", answer(7, 6, "")),
        ("DIAL_RSP error", answer(7, 0, "refused")),
        ("DIAL_RSP without id", answer(7, 0, "")),
        ("DIAL_RSP of nobody", answer(99, 98, "")),
        ("DIAL_RSP with a used id", answer(7, 5, "")),
        ("DIAL_CLS", Packet::DialClose { random: 7 }),
        ("DATA", data(5)),
        ("DATA 0", data(0)),
        ("DATA of nobody", data(99)),
        (
            "CLOSE_RSP",
            Packet::CloseResponse {
                id: 5,
                error: text("e"),
            },
        ),
        (
            "CLOSE_RSP of nobody",
            Packet::CloseResponse {
                id: 99,
                error: text("e"),
            },
        ),
        ("END_OF_DATA", Packet::EndOfData { id: 5 }),
        (
            "CREDIT",
            Packet::Credit {
                id: 5,
                bytes: i64::MAX,
            },
        ),
        ("DRAIN", Packet::Drain),
        (
            "DIAL_REQ",
            Packet::DialRequest {
                random: 7,
                protocol: text("tcp"),
                address: text("h:1"),
            },
        ),
        ("CLOSE_REQ", Packet::CloseRequest { id: 5 }),
        ("unknown", Packet::Unknown),
    ]
}

// What upstream's server does, by the tables of its behaviour; whatever is not listed has no effect.
const EXPECTED: [(State, &str, &str); 17] = [
    (State::Idle, "DIAL_RSP", "CLOSE_REQ 6"),
    (State::Idle, "DIAL_RSP with a used id", "CLOSE_REQ 5"),
    (State::Idle, "DATA", "CLOSE_REQ 5"),
    (State::Pending, "DIAL_RSP", "dialled 6"),
    (State::Pending, "DIAL_RSP error", "failed: refused"),
    (
        State::Pending,
        "DIAL_RSP without id",
        "failed: the agent answered with a connection id it may not use: 0",
    ),
    (State::Pending, "DIAL_RSP with a used id", "dialled 5"),
    (State::Pending, "DIAL_CLS", "failed: dial closed"),
    (State::Pending, "DATA", "CLOSE_REQ 5"),
    (State::Cancelled, "DIAL_RSP", "CLOSE_REQ 6"),
    (State::Cancelled, "DIAL_RSP with a used id", "CLOSE_REQ 5"),
    (State::Cancelled, "DATA", "CLOSE_REQ 5"),
    (State::Open, "DIAL_RSP", "CLOSE_REQ 6"),
    (State::Open, "DATA", "data 3"),
    (State::Open, "CLOSE_RSP", "closed e"),
    (State::Open, "END_OF_DATA", "end of data"),
    (State::Closing, "DIAL_RSP", "CLOSE_REQ 6"),
];
// In every state.
const ALWAYS: [(&str, &str); 2] = [
    ("DIAL_RSP of nobody", "CLOSE_REQ 98"),
    ("DATA of nobody", "CLOSE_REQ 99"),
];

fn expected(state: State, name: &str) -> &'static str {
    let always = ALWAYS.iter().find(|(n, _)| *n == name).map(|(_, e)| *e);
    let here = EXPECTED
        .iter()
        .find(|(s, n, _)| format!("{s:?}") == format!("{state:?}") && *n == name);
    always.or(here.map(|(_, _, e)| *e)).unwrap_or_default()
}

#[test]
fn every_packet_in_every_state() {
    use State::{Cancelled, Closing, Idle, Open, Pending};
    for state in [Idle, Pending, Cancelled, Open, Closing] {
        for (name, packet) in packets() {
            let mut setup = setup(state);
            assert_eq!(setup.backend.receive(packet), None);
            assert_eq!(
                outcome(&mut setup),
                expected(state, name),
                "{name} when {state:?}"
            );
            // Whatever came before, everything ends with the stream.
            setup.backend.lose("gone");
            drop(setup.dial.take());
            drop(setup.wire.take());
            assert_eq!(lock(&setup.backend.lanes).len(), 0, "{name} when {state:?}");
            assert!(setup.backend.pending().dials.is_empty());
        }
    }
}

#[test]
fn a_dial_that_nobody_waits_for_is_called_off() {
    let mut setup = setup(State::Pending);
    drop(setup.dial.take());
    assert_eq!(sent(&setup.backend), [Packet::DialClose { random: 7 }]);
}

#[test]
fn an_answer_that_nobody_takes_is_closed() {
    let mut setup = setup(State::Pending);
    let (_, packet) = packets().swap_remove(0);
    setup.backend.receive(packet);
    drop(setup.dial.take());
    assert_eq!(sent(&setup.backend), [Packet::CloseRequest { id: 6 }]);
}

#[test]
fn a_lost_agent_fails_its_dials_at_once() {
    let mut setup = setup(State::Pending);
    setup.backend.lose("gone");
    assert_eq!(outcome(&mut setup), "failed: gone");
    let late = setup.backend.dial(8, String::new(), String::new());
    assert_eq!(late.err(), Some(DialError::Lost("gone".to_owned())));
}

#[test]
fn a_flood_of_dials_is_bounded() {
    let setup = setup(State::Idle);
    let dial = |random| setup.backend.dial(random, String::new(), String::new());
    let held: Vec<_> = (0..MAX_PENDING as i64)
        .map(|random| dial(random).unwrap())
        .collect();
    assert_eq!(dial(-1).err(), Some(DialError::TooMany));
    drop(held);
    assert!(dial(-1).is_ok());
}

#[test]
fn two_dials_may_not_have_the_same_id() {
    let setup = setup(State::Pending);
    let again = setup.backend.dial(7, String::new(), String::new());
    assert_eq!(again.err(), Some(DialError::Duplicate));
}
