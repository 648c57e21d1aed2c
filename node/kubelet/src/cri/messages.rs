//! The messages of CRI v1 that a kubelet on Linux needs, with the names and field numbers of upstream's `api.proto`.
//! Fields that no kubelet sets or reads (Windows, PSI) are left out; protobuf skips them.
#![allow(
    missing_docs,
    reason = "each name is the one that CRI's own text documents"
)]

use std::collections::BTreeMap;

use prost::{Enumeration, Message};

/// Labels, annotations and the like.
pub type StringMap = BTreeMap<String, String>;

/// `number name: type [kind]` per field.
macro_rules! messages {
    ($( $name:ident { $( $tag:tt $field:ident: $type:ty [$($kind:tt)*]; )* } )*) => { $(
        #[derive(Clone, PartialEq, Message)]
        pub struct $name {
            $( #[prost($($kind)*, tag = $tag)] pub $field: $type, )*
        }
    )* };
}

/// `Variant = number` per value; the first is the default.
macro_rules! enumerations {
    ($( $name:ident { $( $variant:ident = $value:literal ),* } )*) => { $(
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
        #[repr(i32)]
        pub enum $name { $( $variant = $value ),* }
    )* };
}

mod container;
mod image;
mod runtime;
mod sandbox;
mod stats;

pub use container::*;
pub use image::*;
pub use runtime::*;
pub use sandbox::*;
pub use stats::*;

messages! {
    Int64Value { "1" value: i64 [int64]; }
    UInt64Value { "1" value: u64 [uint64]; }
    KeyValue {
        "1" key: String [string];
        "2" value: String [string];
    }
}
