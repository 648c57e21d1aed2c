#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Buf as _;

use super::*;
use crate::http2::frame::HEAD;
use crate::http2::messages::prefix;

const TUNING: Tuning = Tuning {
    stream_window: 64 << 10,
    max_streams: 2,
};

fn put(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::put(&mut out, kind, flags, stream, payload);
    out.to_vec()
}

fn headers(stream: u32, flags: u8) -> Vec<u8> {
    let fields: [(&str, &[u8]); 3] = [
        (":method", b"POST"),
        (":path", b"/ProxyService/Proxy"),
        // What grpc-go says for a Unix socket.
        (":authority", b"%2Ftunnel-uds%2Fsocket"),
    ];
    put(frame::HEADERS, flags, stream, &hpack::encode(fields))
}

fn server() -> Core {
    let mut core = Core::new(Role::Server, TUNING);
    core.feed(frame::PREFACE).unwrap();
    core.feed(&put(frame::SETTINGS, 0, 0, &[])).unwrap();
    core.out.take();
    core
}

fn serving() -> Core {
    let mut core = server();
    core.feed(&headers(1, frame::END_HEADERS)).unwrap();
    core
}

// The frames in what is to be written.
fn written(core: &mut Core) -> Vec<(Head, Vec<u8>)> {
    core.fill(usize::MAX);
    let mut out = core.out.take().into_bytes();
    let mut frames = Vec::new();
    while let Some(head) = out.first_chunk::<HEAD>().map(Head::read) {
        out.advance(HEAD);
        frames.push((head, out.split_to(head.length).to_vec()));
    }
    assert!(out.is_empty());
    frames
}

fn data_bytes(frames: &[(Head, Vec<u8>)]) -> usize {
    let data = frames.iter().filter(|(head, _)| head.kind == frame::DATA);
    data.map(|(head, _)| head.length).sum()
}

#[test]
fn an_authority_that_is_a_path_is_taken() {
    let core = serving();
    assert_eq!(core.accepted, [1]);
    let fields = core.streams[&1].headers.as_ref().unwrap();
    assert!(fields.contains(&(":authority".to_owned(), b"%2Ftunnel-uds%2Fsocket".to_vec())));
}

#[test]
fn frames_may_be_cut_anywhere() {
    let message = [prefix(5).as_slice(), b"hello"].concat();
    let padded = [&[3], message.as_slice(), &[0; 3]].concat();
    let wire = [
        headers(1, 0),
        put(
            frame::CONTINUATION,
            frame::END_HEADERS,
            1,
            &hpack::encode([("a", &b"b"[..])]),
        ),
        put(frame::PING, 0, 0, &[7; 8]),
        put(frame::DATA, 0, 1, &message),
        put(frame::DATA, frame::PADDED | frame::END_STREAM, 1, &padded),
    ]
    .concat();
    for size in 1..wire.len() {
        let mut core = server();
        for piece in wire.chunks(size) {
            core.feed(piece).unwrap();
        }
        assert_eq!(core.take_message(1).unwrap(), "hello", "pieces of {size}");
        assert_eq!(core.take_message(1).unwrap(), "hello");
        assert_eq!(core.streams[&1].ended, Some(Ok(())));
        let (head, payload) = written(&mut core).swap_remove(0);
        assert_eq!(
            (head.kind, head.flags, payload),
            (frame::PING, frame::ACK, vec![7; 8])
        );
    }
}

#[test]
fn windows_are_kept_when_sending() {
    let mut core = serving();
    core.respond(1, &[(":status", b"200")]);
    core.send(1, [Bytes::from(vec![1; 100_000]), Bytes::new()]);
    core.end(1, &[("grpc-status", b"0")]);
    let first = written(&mut core);
    assert_eq!(data_bytes(&first), DEFAULT_WINDOW as usize);
    core.feed(&put(frame::WINDOW_UPDATE, 0, 1, &10_000u32.to_be_bytes()))
        .unwrap();
    assert_eq!(
        data_bytes(&written(&mut core)),
        0,
        "the connection's window is closed"
    );
    core.feed(&put(frame::WINDOW_UPDATE, 0, 0, &100_000u32.to_be_bytes()))
        .unwrap();
    assert_eq!(data_bytes(&written(&mut core)), 10_000);
    let larger = [
        &frame::SETTING_INITIAL_WINDOW.to_be_bytes()[..],
        &200_000u32.to_be_bytes(),
    ]
    .concat();
    core.feed(&put(frame::SETTINGS, 0, 0, &larger)).unwrap();
    let last = written(&mut core);
    assert_eq!(
        data_bytes(&last),
        100_000 - DEFAULT_WINDOW as usize - 10_000
    );
    let kinds: Vec<u8> = last.iter().map(|(head, _)| head.kind).collect();
    assert!(
        kinds.ends_with(&[frame::DATA, frame::HEADERS, frame::RST_STREAM]),
        "{kinds:?}"
    );
}

#[test]
fn a_reader_that_does_not_read_stops_its_sender() {
    let mut core = serving();
    let message = [prefix(16_000).as_slice(), &[1; 16_000]].concat();
    let mut granted = i64::from(TUNING.stream_window);
    let mut sent = 0;
    while granted >= message.len() as i64 {
        core.feed(&put(frame::DATA, 0, 1, &message)).unwrap();
        granted -= message.len() as i64;
        sent += 1;
        granted += windows(&mut core);
    }
    assert!(sent < 8, "{sent} messages");
    let too_much = core.feed(&put(frame::DATA, 0, 1, &[0; 16_384]));
    assert_eq!(too_much.unwrap_err().code, Code::FlowControl);
}

fn windows(core: &mut Core) -> i64 {
    let frames = written(core);
    let updates = frames
        .iter()
        .filter(|(head, _)| (head.kind, head.stream) == (frame::WINDOW_UPDATE, 1));
    updates
        .map(|(_, payload)| i64::from(frame::number(payload).unwrap()))
        .sum()
}

#[test]
fn a_reader_that_reads_is_sent_everything() {
    let mut core = serving();
    let message = [prefix(16_000).as_slice(), &[1; 16_000]].concat();
    let mut granted = i64::from(TUNING.stream_window);
    for _ in 0..1000 {
        granted -= message.len() as i64;
        assert!(granted >= 0);
        core.feed(&put(frame::DATA, 0, 1, &message)).unwrap();
        assert_eq!(core.take_message(1).unwrap().len(), 16_000);
        granted += windows(&mut core);
    }
}

#[test]
fn what_breaks_the_rules_ends_the_connection() {
    let block = hpack::encode([("a", &b"b"[..])]);
    let six = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let cases: Vec<(&str, Vec<u8>, Code)> = vec![
        (
            "a huge frame",
            vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1],
            Code::FrameSize,
        ),
        (
            "DATA of nobody",
            put(frame::DATA, 0, 9, b"x"),
            Code::Protocol,
        ),
        (
            "DATA on the connection",
            put(frame::DATA, 0, 0, b"x"),
            Code::Protocol,
        ),
        (
            "wrong padding",
            put(frame::DATA, frame::PADDED, 1, &[9, 1]),
            Code::Protocol,
        ),
        (
            "an even stream",
            headers(2, frame::END_HEADERS),
            Code::Protocol,
        ),
        (
            "a second header",
            headers(1, frame::END_HEADERS),
            Code::Protocol,
        ),
        (
            "a push",
            put(frame::PUSH_PROMISE, 0, 1, &[0; 4]),
            Code::Protocol,
        ),
        (
            "a broken block",
            put(frame::HEADERS, frame::END_HEADERS, 3, &[0x80]),
            Code::Compression,
        ),
        (
            "a lone CONTINUATION",
            put(frame::CONTINUATION, 0, 1, &block),
            Code::Protocol,
        ),
        (
            "a frame inside a block",
            [headers(3, 0), put(frame::PING, 0, 0, &[0; 8])].concat(),
            Code::Protocol,
        ),
        (
            "DATA inside a block",
            [headers(3, 0), put(frame::DATA, 0, 1, b"x")].concat(),
            Code::Protocol,
        ),
        (
            "an endless block",
            [
                headers(3, 0),
                put(frame::CONTINUATION, 0, 3, &[0; 60_000]).repeat(2),
            ]
            .concat(),
            Code::EnhanceYourCalm,
        ),
        (
            "empty CONTINUATIONs",
            [headers(3, 0), put(frame::CONTINUATION, 0, 3, &[])].concat(),
            Code::EnhanceYourCalm,
        ),
        (
            "a short RST_STREAM",
            put(frame::RST_STREAM, 0, 1, &[0]),
            Code::FrameSize,
        ),
        (
            "RST_STREAM of nobody",
            put(frame::RST_STREAM, 0, 9, &[0; 4]),
            Code::Protocol,
        ),
        (
            "half a setting",
            put(frame::SETTINGS, 0, 0, &[0; 5]),
            Code::FrameSize,
        ),
        (
            "a window too large",
            put(
                frame::SETTINGS,
                0,
                0,
                &six(frame::SETTING_INITIAL_WINDOW, u32::MAX),
            ),
            Code::FlowControl,
        ),
        (
            "a frame size too small",
            put(frame::SETTINGS, 0, 0, &six(frame::SETTING_MAX_FRAME, 1)),
            Code::Protocol,
        ),
        (
            "a short PING",
            put(frame::PING, 0, 0, &[0; 7]),
            Code::FrameSize,
        ),
        (
            "a short GOAWAY",
            put(frame::GOAWAY, 0, 0, &[]),
            Code::FrameSize,
        ),
        (
            "a short WINDOW_UPDATE",
            put(frame::WINDOW_UPDATE, 0, 0, &[]),
            Code::FrameSize,
        ),
        (
            "WINDOW_UPDATE by 0",
            put(frame::WINDOW_UPDATE, 0, 0, &[0; 4]),
            Code::Protocol,
        ),
        (
            "WINDOW_UPDATE by too much",
            put(frame::WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
            Code::FlowControl,
        ),
    ];
    for (name, bytes, code) in cases {
        assert_eq!(serving().feed(&bytes).unwrap_err().code, code, "{name}");
    }
    let mut core = Core::new(Role::Server, TUNING);
    assert_eq!(
        core.feed(b"GET / HTTP/1.1\r\n\r\n").unwrap_err().code,
        Code::Protocol
    );
    let mut client = Core::new(Role::Client, TUNING);
    assert_eq!(
        client
            .feed(&headers(2, frame::END_HEADERS))
            .unwrap_err()
            .code,
        Code::Protocol
    );
}

#[test]
fn a_message_that_is_too_large_ends_its_stream_alone() {
    let mut core = serving();
    core.feed(&headers(3, frame::END_HEADERS)).unwrap();
    core.feed(&put(frame::DATA, 0, 1, &[0, 0xff, 0, 0, 0]))
        .unwrap();
    assert!(matches!(core.streams[&1].ended, Some(Err(_))));
    let reset = written(&mut core);
    assert_eq!((reset[0].0.kind, reset[0].0.stream), (frame::RST_STREAM, 1));
    core.feed(&put(frame::DATA, 0, 3, &[&prefix(1)[..], b"x"].concat()))
        .unwrap();
    assert_eq!(core.take_message(3).unwrap(), "x");
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut core = serving();
    core.feed(&headers(3, frame::END_HEADERS)).unwrap();
    core.feed(&headers(5, frame::END_HEADERS)).unwrap();
    assert_eq!(core.accepted, [1, 3]);
    let (head, code) = written(&mut core).pop().unwrap();
    assert_eq!((head.kind, head.stream), (frame::RST_STREAM, 5));
    assert_eq!(frame::number(&code), Some(Code::RefusedStream as u32));
    core.abandon(1);
    core.feed(&headers(7, frame::END_HEADERS)).unwrap();
    assert_eq!(core.accepted, [1, 3, 7]);
}

#[test]
fn an_abandoned_stream_is_reset_or_finished_and_then_forgotten() {
    let mut core = serving();
    core.send(1, [Bytes::from_static(b"last"), Bytes::new()]);
    core.end(1, &[("grpc-status", b"0")]);
    core.abandon(1);
    let kinds: Vec<u8> = written(&mut core)
        .iter()
        .map(|(head, _)| head.kind)
        .collect();
    assert_eq!(kinds, [frame::DATA, frame::HEADERS, frame::RST_STREAM]);
    assert!(core.streams.is_empty());

    let mut core = serving();
    core.abandon(1);
    assert_eq!(written(&mut core)[0].0.kind, frame::RST_STREAM);
    assert!(core.streams.is_empty());
    // What was under way is dropped without a word.
    core.feed(&put(frame::DATA, 0, 1, b"late")).unwrap();
    core.feed(&headers(1, frame::END_HEADERS)).unwrap();
    assert_eq!(written(&mut core), []);
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_panic(frames in proptest::collection::vec(
        (0u8..11, 0u8.., 0u32..5, proptest::collection::vec(0u8.., 0..40)), 0..40))
    {
        let mut core = serving();
        for (kind, flags, stream, payload) in frames {
            if core.feed(&put(kind, flags, stream, &payload)).is_err() {
                break;
            }
            core.fill(1 << 16);
            core.out.take();
        }
    }
}

#[test]
fn whoever_leaves_keeps_its_streams_and_takes_no_new_ones() {
    let mut core = serving();
    core.leave();
    core.leave();
    let frames = written(&mut core);
    let expected = [1u32.to_be_bytes(), 0u32.to_be_bytes()].concat();
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!((frames[0].0.kind, &frames[0].1), (frame::GOAWAY, &expected));
    core.feed(&headers(3, frame::END_HEADERS)).unwrap();
    let (head, code) = written(&mut core).swap_remove(0);
    assert_eq!((head.kind, head.stream), (frame::RST_STREAM, 3));
    assert_eq!(code, (Code::RefusedStream as u32).to_be_bytes());
    let message = [prefix(5).as_slice(), b"hello"].concat();
    core.feed(&put(frame::DATA, 0, 1, &message)).unwrap();
    assert_eq!(core.take_message(1).unwrap(), "hello");
}

// A client: the dialer, or an agent.
#[test]
fn whoever_is_left_keeps_what_the_server_took_and_opens_nothing_more() {
    let mut core = Core::new(Role::Client, TUNING);
    let (told, mut hears) = tokio::sync::oneshot::channel();
    core.leaving = Some(told);
    let fields: [(&str, &[u8]); 1] = [(":path", b"/x")];
    let (taken, late) = (core.open(&fields).unwrap(), core.open(&fields).unwrap());
    let until_taken = [taken.to_be_bytes(), 0u32.to_be_bytes()].concat();
    core.feed(&put(frame::GOAWAY, 0, 0, &until_taken)).unwrap();
    assert!(hears.try_recv().is_ok());
    assert!(core.streams[&taken].ended.is_none());
    assert!(matches!(core.streams[&late].ended, Some(Err(_))));
    assert!(core.open(&fields).is_err());
    let message = [prefix(5).as_slice(), b"hello"].concat();
    core.feed(&put(frame::DATA, 0, taken, &message)).unwrap();
    assert_eq!(core.take_message(taken).unwrap(), "hello");
}
