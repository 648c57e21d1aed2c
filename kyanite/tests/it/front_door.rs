//! Who is let in to knock, before TLS and HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{INSIDE, Namespace, Server, ServerOptions};

/// An address that is not private.
const PUBLIC: &str = "203.0.113.5";

// Anything that is not TLS: who is let in is told so, in an alert.
fn hears_something(address: &str, port: u16) -> bool {
    let mut stream = TcpStream::connect((address, port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // Both may fail where the server has closed already, which is what a refusal is.
    let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    !heard.is_empty()
}

/// Whether connections from 10.77.0.2 and from a public address are let in, with this flag.
fn let_in(namespace: &Namespace, flag: &'static str) -> (bool, bool) {
    namespace.inside(|| {
        let flags = vec!["--bind-address=0.0.0.0", "--controllers=", flag];
        let server = Server::start_with(ServerOptions { flags });
        assert_eq!(server.get("/readyz").0, 200, "loopback is always let in");
        let port = server.port();
        (hears_something(INSIDE, port), hears_something(PUBLIC, port))
    })
}

#[test]
fn addresses_that_are_not_authorized_learn_nothing() {
    let Some(namespace) = Namespace::make() else {
        return;
    };
    namespace.add_address(PUBLIC);
    let cases = [
        ("--log-level=info", (true, true)),
        (
            "--api-server-authorized-ip-ranges=203.0.113.0/24",
            (false, true),
        ),
        (
            "--api-server-authorized-ip-ranges=10.77.0.2,198.51.100.0/24",
            (true, false),
        ),
        ("--enable-private-cluster", (true, false)),
    ];
    for (flag, wanted) in cases {
        assert_eq!(let_in(&namespace, flag), wanted, "{flag}");
    }
}
