//! Paths and metadata of the two gRPC services.

pub(crate) const CONNECT: &str = "/AgentService/Connect";
pub(crate) const PROXY: &str = "/ProxyService/Proxy";

pub(crate) const AGENT_ID: &str = "agentid";
pub(crate) const AGENT_IDENTIFIERS: &str = "agentidentifiers";
pub(crate) const AUTHORIZATION: &str = "authorization";
pub(crate) const SERVER_ID: &str = "serverid";
pub(crate) const SERVER_COUNT: &str = "servercount";

/// Ours, between a server and an agent: windows per connection are kept, this is the first, and the
/// end of one direction is told. Upstream's peers ignore it.
pub(crate) const WINDOW: &str = "kyanite-window";
/// Ours, between a client and a server: the end of one direction is told.
pub(crate) const HALF_CLOSE: &str = "kyanite-half-close";
