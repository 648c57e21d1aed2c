//! CEL, the language of Kubernetes' rules: custom resources' validations, admission policies, match conditions,
//! authentication and authorization configuration.
//!
//! ```text
//! text ─► lexer ─► parser (macros become loops) ─► check (types, names) ─► Program
//!                                                                             │ evaluate(bindings, budget)
//!                                                                             ▼
//!                                                            interpret, over JSON where it lies
//! ```
//!
//! A program is compiled once and evaluated often. Everything is bounded: the length and depth of an expression,
//! and, in cel-go's unit of cost, what an evaluation may spend.

mod ast;
mod check;
mod cost;
mod env;
mod error;
mod estimate;
mod functions;
mod interpret;
mod issues;
mod lexer;
mod library;
mod macros;
mod meter;
mod node;
mod parser;
mod pattern;
mod program;
pub mod shape;
mod time;
mod types;
mod value;

pub use env::{Bindings, Env};
pub use error::{Error, Result};
pub use issues::{Issue, Issues};
pub use library::{Authorizer, Decision, Question};
pub use meter::{Budget, MATCH_CONDITIONS, Meter, PER_CALL, PER_OBJECT};
pub use program::Program;
pub use types::Type;
pub use value::{Lazy, List, Map, Struct, Text, Value};

#[cfg(test)]
mod tests;
