//! What a namespace allows: Pod Security levels, limit ranges and resource quotas.
//!
//! Everything here looks at objects as JSON and decides; nothing waits, reads a clock or writes. The API
//! server's admission asks before a write, the quota controller measures afterwards.

pub mod limit_range;
pub mod pod_security;
pub mod quota;
