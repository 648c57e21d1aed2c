//! Custom resources, without any I/O: what a CustomResourceDefinition means for the objects it brings.
//!
//! ```text
//!  schema      a structural schema as a tree        structural  which schemas are allowed
//!  coerce      prune, nulls, embedded, defaults     validate    what is wrong with an object
//!  paths       JSONPath of columns and fields       formats     texts with a format
//!  definition  one served version: kinds' Definition, and the resources of a definition
//!  names       who gets which names, and the conditions that say so
//!  openapi     the published documents
//! ```
//!
//! Rules written in CEL are kept in the schema; whoever has an engine gives it to [`Definitions::read`].

pub mod coerce;
pub mod definition;
pub mod formats;
pub mod names;
pub mod openapi;
pub mod paths;
pub mod pattern;
pub mod schema;
pub mod structural;
pub mod validate;

pub use definition::{Definitions, Rules};
