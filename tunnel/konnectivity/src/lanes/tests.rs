#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn taken(lanes: &mut Lanes, id: i64) -> Option<Inbound> {
    let mut cx = Context::from_waker(Waker::noop());
    match lanes.poll_take(id, &mut cx) {
        Poll::Ready(inbound) => Some(inbound),
        Poll::Pending => None,
    }
}

fn sent(lanes: &mut Lanes) -> Vec<Packet> {
    std::iter::from_fn(|| lanes.next_packet()).collect()
}

fn bytes(count: usize) -> Bytes {
    Bytes::from(vec![1; count])
}

fn data_in(packets: &[Packet]) -> usize {
    let sizes = packets.iter().map(|packet| match packet {
        Packet::Data { data, .. } => data.len(),
        _ => 0,
    });
    sizes.sum()
}

fn close_response(id: i64, error: &str) -> Packet {
    let error = error.to_owned();
    Packet::CloseResponse { id, error }
}

#[test]
fn a_peer_of_ours_is_sent_no_more_than_it_granted() {
    let mut lanes = Lanes::new(Side::Agent, Some(100));
    lanes.open(1);
    lanes.send(1, bytes(250));
    assert_eq!(data_in(&sent(&mut lanes)), 100);
    lanes.credit(1, -5);
    assert_eq!(data_in(&sent(&mut lanes)), 0);
    lanes.credit(1, 60);
    assert_eq!(data_in(&sent(&mut lanes)), 60);
    lanes.credit(1, i64::MAX);
    assert_eq!(data_in(&sent(&mut lanes)), 90);
}

#[test]
fn a_peer_of_ours_that_sends_more_than_granted_loses_the_connection() {
    let mut lanes = Lanes::new(Side::Agent, Some(100));
    lanes.open(1);
    lanes.open(2);
    assert_eq!(
        lanes.deliver(1, bytes(FIRST_WINDOW as usize)),
        Delivery::Taken
    );
    assert_eq!(lanes.deliver(1, bytes(1)), Delivery::Taken);
    let reason = "more data than was granted";
    assert_eq!(
        taken(&mut lanes, 1),
        Some(Inbound::Closed(reason.to_owned()))
    );
    assert_eq!(sent(&mut lanes), [close_response(1, reason)]);
    assert_eq!(lanes.deliver(2, bytes(1)), Delivery::Taken);
    assert_eq!(taken(&mut lanes, 2), Some(Inbound::Data(bytes(1))));
}

#[test]
fn a_reader_that_keeps_up_is_granted_larger_windows_and_one_that_does_not_is_not() {
    let mut lanes = Lanes::new(Side::Server, Some(100));
    lanes.open(1);
    let mut granted = FIRST_WINDOW;
    for _ in 0..200 {
        assert_eq!(lanes.deliver(1, bytes(32 << 10)), Delivery::Taken);
        assert!(matches!(taken(&mut lanes, 1), Some(Inbound::Data(_))));
        for packet in sent(&mut lanes) {
            let Packet::Credit { bytes, .. } = packet else {
                panic!("{packet:?}")
            };
            granted += bytes;
        }
    }
    let ahead = granted - 200 * (32 << 10);
    assert!(
        (LARGEST_WINDOW / 2..=LARGEST_WINDOW).contains(&ahead),
        "{ahead}"
    );

    lanes.open(2);
    lanes.deliver(2, bytes(FIRST_WINDOW as usize / 2));
    lanes.deliver(2, bytes(FIRST_WINDOW as usize / 2));
    assert!(matches!(taken(&mut lanes, 2), Some(Inbound::Data(_))));
    let bytes = FIRST_WINDOW / 2;
    assert_eq!(sent(&mut lanes), [Packet::Credit { id: 2, bytes }]);
}

#[test]
fn a_reader_that_takes_what_came_together_keeps_up() {
    let mut lanes = Lanes::new(Side::Server, Some(100));
    lanes.open(1);
    for _ in 0..200 {
        // Half of the window is used before the last piece is taken, every time.
        for size in [100, 50, 10] {
            assert_eq!(lanes.deliver(1, bytes(size << 10)), Delivery::Taken);
        }
        while taken(&mut lanes, 1).is_some() {}
    }
    assert_eq!(lanes.lanes[&1].window, LARGEST_WINDOW);
}

#[test]
fn windows_of_all_connections_together_are_bounded() {
    let mut lanes = Lanes::new(Side::Server, Some(100));
    for id in 1..100 {
        lanes.open(id);
        for _ in 0..100 {
            lanes.deliver(id, bytes(64 << 10));
            taken(&mut lanes, id);
        }
    }
    let windows: i64 = lanes.lanes.values().map(|lane| lane.window).sum();
    assert!(windows <= GROWTH_TOTAL + 99 * FIRST_WINDOW, "{windows}");
}

#[test]
fn a_peer_that_does_not_read_its_answers_is_noticed() {
    let mut lanes = Lanes::new(Side::Server, None);
    for id in 0..=CONTROL_BOUND as i64 {
        assert!(!lanes.flooded());
        lanes.control(Packet::CloseRequest { id });
    }
    assert!(lanes.flooded());
    lanes.next_packet();
    assert!(!lanes.flooded());
}

#[test]
fn nothing_is_sent_to_a_peer_that_has_closed() {
    let mut lanes = Lanes::new(Side::Agent, Some(0));
    lanes.open(1);
    lanes.close(1, String::new());
    lanes.send(1, bytes(10));
    lanes.release(1);
    assert_eq!(sent(&mut lanes), [close_response(1, "")]);
}

#[test]
fn upstreams_peer_is_told_to_wait_by_the_slow_connection_only() {
    let mut lanes = Lanes::new(Side::Server, None);
    lanes.open(1);
    lanes.open(2);
    let piece = 1 << 20;
    for _ in 0..LEGACY_BOUND / piece {
        assert_eq!(lanes.deliver(1, bytes(piece)), Delivery::Taken);
    }
    assert_eq!(lanes.deliver(1, bytes(1)), Delivery::Congested);
    assert_eq!(lanes.deliver(2, bytes(piece)), Delivery::Taken);
    let before = lanes.progress(1);
    taken(&mut lanes, 1);
    assert!(!lanes.congested(1) && lanes.progress(1) > before);
    lanes.cut(1, "slow");
    assert_eq!(
        taken(&mut lanes, 1),
        Some(Inbound::Closed("slow".to_owned()))
    );
    assert_eq!(sent(&mut lanes), [Packet::CloseRequest { id: 1 }]);
}

#[test]
fn all_slow_connections_together_are_bounded() {
    let mut lanes = Lanes::new(Side::Server, None);
    let share = LEGACY_BOUND / 2;
    let count = (LEGACY_TOTAL / share) as i64;
    for id in 1..=count {
        lanes.open(id);
        assert_eq!(lanes.deliver(id, bytes(share)), Delivery::Taken);
    }
    assert_eq!(lanes.deliver(1, bytes(1)), Delivery::Congested);
    lanes.open(count + 1);
    assert_eq!(lanes.deliver(count + 1, bytes(1)), Delivery::Taken);
}

#[test]
fn connections_take_turns_and_control_goes_first() {
    let mut lanes = Lanes::new(Side::Server, None);
    for id in [1, 2] {
        lanes.open(id);
        lanes.send(id, bytes(2 * MAX_DATA));
    }
    lanes.control(Packet::Drain);
    let order: Vec<i64> = sent(&mut lanes)
        .into_iter()
        .map(|packet| match packet {
            Packet::Data { id, data } => {
                assert_eq!(data.len(), MAX_DATA);
                id
            }
            _ => 0,
        })
        .collect();
    assert_eq!(order, [0, 1, 2, 1, 2]);
}

#[test]
fn the_farewell_follows_the_last_data() {
    for (side, farewell) in [
        (Side::Server, Packet::CloseRequest { id: 1 }),
        (Side::Agent, close_response(1, "")),
    ] {
        let mut lanes = Lanes::new(side, None);
        lanes.open(1);
        lanes.send(1, bytes(10));
        lanes.release(1);
        let packets = sent(&mut lanes);
        assert_eq!(data_in(&packets[..1]), 10);
        assert_eq!(packets[1..], [farewell]);
        // The server waits for the agent's answer; the agent has given its own.
        assert_eq!(lanes.len(), usize::from(side == Side::Server));
        lanes.close(1, String::new());
        assert_eq!(lanes.len(), 0);
    }
}

#[test]
fn what_is_not_taken_holds_no_connection_for_ever() {
    let mut lanes = Lanes::new(Side::Server, Some(10));
    lanes.open(1);
    lanes.send(1, bytes(50));
    lanes.release(1);
    assert_eq!(data_in(&sent(&mut lanes)), 10);
    let mut left = Vec::new();
    lanes.sweep(&mut left);
    assert_eq!(sent(&mut lanes), []);
    lanes.sweep(&mut left);
    assert_eq!(sent(&mut lanes), [Packet::CloseRequest { id: 1 }]);
    lanes.sweep(&mut left);
    assert_eq!(lanes.len(), 0);
}

#[test]
fn data_before_a_close_is_read_and_data_after_it_is_not() {
    for extension in [None, Some(1000)] {
        let mut lanes = Lanes::new(Side::Server, extension);
        lanes.open(1);
        lanes.deliver(1, bytes(3));
        lanes.close(1, "reason".to_owned());
        assert_eq!(lanes.deliver(1, bytes(4)), Delivery::Taken);
        assert_eq!(taken(&mut lanes, 1), Some(Inbound::Data(bytes(3))));
        assert_eq!(
            taken(&mut lanes, 1),
            Some(Inbound::Closed("reason".to_owned()))
        );
        lanes.send(1, bytes(5));
        lanes.release(1);
        assert_eq!(sent(&mut lanes), []);
        assert_eq!(lanes.len(), 0);
        assert_eq!(lanes.deliver(1, bytes(1)), Delivery::Unknown);
    }
}

#[test]
fn one_direction_may_end_before_the_other() {
    let mut lanes = Lanes::new(Side::Agent, Some(1000));
    lanes.open(1);
    lanes.send(1, bytes(1));
    lanes.send_end(1);
    lanes.send(1, bytes(1));
    lanes.deliver(1, bytes(2));
    lanes.end_of_data(1);
    let packets = sent(&mut lanes);
    assert_eq!(packets[1..], [Packet::EndOfData { id: 1 }]);
    assert_eq!(taken(&mut lanes, 1), Some(Inbound::Data(bytes(2))));
    assert_eq!(taken(&mut lanes, 1), Some(Inbound::EndOfData));
    assert_eq!(taken(&mut lanes, 1), None);
}

#[test]
fn a_lost_stream_ends_everything() {
    let mut lanes = Lanes::new(Side::Server, None);
    lanes.open(1);
    lanes.open(2);
    lanes.deliver(1, bytes(3));
    lanes.send(1, bytes(3));
    lanes.release(2);
    lanes.lose("gone");
    assert_eq!(sent(&mut lanes), []);
    assert_eq!(lanes.len(), 1);
    assert_eq!(taken(&mut lanes, 1), Some(Inbound::Data(bytes(3))));
    assert_eq!(
        taken(&mut lanes, 1),
        Some(Inbound::Closed("gone".to_owned()))
    );
    lanes.release(1);
    assert_eq!((lanes.len(), lanes.inbox_total), (0, 0));
    lanes.open(3);
    assert_eq!(
        taken(&mut lanes, 3),
        Some(Inbound::Closed("gone".to_owned()))
    );
}

proptest::proptest! {
    // Whatever arrives and whatever the local half does, the books balance and everything ends.
    #[test]
    fn the_books_balance(
        extended: bool,
        agent: bool,
        steps in proptest::collection::vec((0u8..12, 1i64..4, 0usize..100_000), 0..200),
    ) {
        let side = if agent { Side::Agent } else { Side::Server };
        let mut lanes = Lanes::new(side, extended.then_some(50_000));
        for (step, id, size) in steps {
            match step {
                0 if !lanes.has(id) => lanes.open(id),
                1 | 2 => { lanes.deliver(id, bytes(size)); }
                3 => { lanes.close(id, String::new()); }
                4 => lanes.end_of_data(id),
                5 => lanes.credit(id, size as i64),
                6 => { taken(&mut lanes, id); }
                7 => lanes.send(id, bytes(size)),
                8 => lanes.release(id),
                9 => { lanes.next_packet(); }
                10 => lanes.cut(id, "cut"),
                _ => lanes.send_end(id),
            }
            let held: usize = lanes.lanes.values().map(|lane| lane.inbox_bytes).sum();
            proptest::prop_assert_eq!(held, lanes.inbox_total);
        }
        for id in 1..4 {
            lanes.release(id);
        }
        let mut left = Vec::new();
        for _ in 0..3 {
            sent(&mut lanes);
            lanes.sweep(&mut left);
        }
        proptest::prop_assert_eq!((lanes.len(), lanes.inbox_total, lanes.growth), (0, 0, 0));
    }
}
