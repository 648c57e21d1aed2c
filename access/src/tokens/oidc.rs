//! Tokens of other issuers.
