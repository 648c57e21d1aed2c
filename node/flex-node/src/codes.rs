//! Exit codes: what kind of thing went wrong, so that a caller need not read sentences. Upstream has only 1.

/// A code and what it stands for.
pub struct Code {
    /// The exit status.
    pub code: u8,
    /// One word.
    pub name: &'static str,
    /// One sentence.
    pub meaning: &'static str,
}

macro_rules! codes {
    ($($constant:ident = $code:literal, $name:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: u8 = $code;)*
        /// All of them.
        pub const ALL: &[Code] = &[$(Code { code: $code, name: $name, meaning: $meaning }),*];
    };
}

codes! {
    CONFIG = 2, "config", "The configuration cannot be used; every problem of it was said.";
    PREFLIGHT = 11, "preflight", "The machine is not fit, or something of others is in the way.";
    AUTH = 12, "auth", "Azure does not know us.";
    PERMISSION = 13, "permission", "Azure knows us, and does not let us.";
    NETWORK = 14, "network", "Something cannot be reached.";
    INTEGRITY = 15, "integrity", "What was fetched is not what it should be.";
    HOST = 16, "host", "The machine did not do what it was told.";
    CLUSTER = 17, "cluster", "The cluster does not take the node.";
    LEFT = 18, "left", "Something was left behind.";
    BUSY = 19, "busy", "Another run is under way.";
    TIMEOUT = 124, "timeout", "The run took too long.";
    CANCELLED = 255, "interrupted", "The run was told to end.";
}

/// The word for a code.
pub fn name(code: u8) -> &'static str {
    let found = ALL.iter().find(|row| row.code == code);
    found.map_or("failed", |row| row.name)
}

/// The table, for people.
pub fn table() -> String {
    let rows = ALL
        .iter()
        .map(|row| format!("  {:>3}  {:<12} {}\n", row.code, row.name, row.meaning));
    format!("Exit codes of the journeys:\n{}", rows.collect::<String>())
}
