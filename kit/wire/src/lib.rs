//! What several roles need on the wire: TLS from files that may change, small documents over HTTPS, a client that keeps
//! its connections, and a way through proxies.

mod any_holder;
pub mod client;
pub mod https;
pub mod proxy;
pub mod tls;

pub use any_holder::AnyHolder;
