#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn the_target_is_the_requests_authority() {
    let head = b"CONNECT node:10250 HTTP/1.1\r\nHost: 127.0.0.1";
    assert_eq!(target(head).unwrap(), "node:10250");
    for (head, status) in [
        (&b"GET / HTTP/1.1\r\n"[..], "405 Method Not Allowed"),
        (b"CONNECT  HTTP/1.1", "405 Method Not Allowed"),
        (b"PRI * HTTP/2.0", "400 Bad Request"),
        (b"\xff\xfe", "400 Bad Request"),
        (b"", "400 Bad Request"),
    ] {
        assert_eq!(target(head).unwrap_err().status, status);
    }
}

#[test]
fn failures_have_upstreams_status_and_text() {
    let endpoint = |text: &str| NoConnection::Failed(DialError::Endpoint(text.to_owned()));
    let cases = [
        (
            NoConnection::NoAgent,
            "500 Internal Server Error",
            "currently no tunnels available: No agent available",
        ),
        (
            NoConnection::Timeout,
            GATEWAY_TIMEOUT,
            "Backend dial timeout: timed out waiting for backend dial",
        ),
        (
            NoConnection::Failed(DialError::Lost("context canceled".to_owned())),
            BAD_GATEWAY,
            "Backend context error: context canceled",
        ),
        (
            NoConnection::Failed(DialError::TooMany),
            BAD_GATEWAY,
            "Failed to tunnel dial request: too many dials wait for the agent",
        ),
        (
            endpoint("dial tcp: I/O Timeout"),
            GATEWAY_TIMEOUT,
            "dial tcp: I/O Timeout",
        ),
        (
            endpoint("socket: too many open files"),
            UNAVAILABLE,
            "socket: too many open files",
        ),
        (
            endpoint("connection refused"),
            BAD_GATEWAY,
            "connection refused",
        ),
    ];
    for (error, status, text) in cases {
        let text = text.to_owned();
        assert_eq!(refusal(&error), Refusal { status, text });
    }
}
