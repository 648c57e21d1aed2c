//! The part of HTTP/2 that gRPC streams need, over any byte stream.
//!
//! Written here because the API server's gRPC client names the Unix socket's path as `:authority`,
//! which the `http` crate (and with it hyper and tonic) refuses, and because a connection per
//! tunnel has to be cheap: an idle one holds no buffer.
//!
//! `core` is the protocol without sockets, `driver` moves its bytes, `stream` is what the rest of
//! the crate holds.

mod core;
mod driver;
mod frame;
mod hpack;
mod messages;
mod output;
mod stream;
mod tables;
mod transport;

pub(crate) use self::core::Tuning;
pub(crate) use self::core::leaving::Leaver;
pub(crate) use self::core::progress::Progress;
pub(crate) use driver::{Connection, drive, serve};
pub(crate) use hpack::Fields;
pub(crate) use stream::{Opener, Stream, StreamError};

/// The value of the one field of that name: none or several are `None`.
pub(crate) fn only<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    let mut found = fields.iter().filter(|(n, _)| n == name);
    match (found.next(), found.next()) {
        (Some((_, value)), None) => std::str::from_utf8(value).ok(),
        _ => None,
    }
}
