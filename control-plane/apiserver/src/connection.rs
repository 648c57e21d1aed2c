//! Connections: TLS, and the bytes that come and go on it.

pub(crate) mod budget;
pub(crate) mod gather;
pub(crate) mod guests;
pub(crate) mod inside;
pub(crate) mod linger;
pub(crate) mod one_task;
pub(crate) mod reload;
pub(crate) mod request_body;
pub(crate) mod response_body;
pub(crate) mod sending;
pub(crate) mod server;
pub(crate) mod tls;
pub(crate) mod websocket;
