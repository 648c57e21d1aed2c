//! How messages are declared: one row per field gives the struct, its names, its reader and its writer.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::decode::Decoder;
use super::json::Node;
use super::secret::Secret;

/// What the contract says of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The number in the proto; never used again once given.
    pub number: u32,
    /// The proto name, `snake_case`.
    pub name: &'static str,
    /// The JSON name where it is not the mechanical lowerCamelCase.
    pub json: Option<&'static str>,
    /// Another JSON name that is read.
    pub also: Option<&'static str>,
}

impl Row {
    /// The name in protobuf's JSON.
    pub fn json_name(&self) -> String {
        self.json
            .map_or_else(|| lower_camel(self.name).collect(), str::to_owned)
    }

    /// Whether `key` spells this field, either way.
    pub fn is_spelled(&self, key: &str) -> bool {
        let json = |key: &str| match self.json {
            Some(name) => name == key,
            None => lower_camel(self.name).eq(key.chars()),
        };
        key == self.name || json(key) || self.also == Some(key)
    }
}

/// Protobuf's rule: an underscore goes away and the letter after it is capital.
fn lower_camel(name: &str) -> impl Iterator<Item = char> + '_ {
    let mut capital = false;
    name.chars().filter_map(move |c| {
        if c == '_' {
            capital = true;
            return None;
        }
        let c = if capital { c.to_ascii_uppercase() } else { c };
        capital = false;
        Some(c)
    })
}

/// A message of the contract.
pub trait Message {
    /// The table of its fields, in the order they are written.
    fn rows(&self) -> &'static [Row];
    /// The value of the field with this proto name.
    fn value(&self, name: &str) -> Option<&dyn Value>;
    /// The same, to be written.
    fn value_mut(&mut self, name: &str) -> Option<&mut dyn Value>;
}

/// What a field can hold.
pub trait Value {
    /// What it holds.
    fn view(&self) -> View<'_>;
    /// Whether it is written: an `optional` field or message that is there, otherwise anything but zero.
    fn is_set(&self) -> bool;
    /// Takes what JSON says; what does not fit is told to `decoder`.
    fn decode(&mut self, node: &Node<'_>, decoder: &mut Decoder<'_>);
}

/// A field seen without its type.
pub enum View<'a> {
    /// An `optional` field that is not there.
    Absent,
    /// Text.
    Text(&'a str),
    /// Text that nobody may print.
    Secret(&'a str),
    /// A bool.
    Flag(bool),
    /// An int32.
    Number(i32),
    /// A double.
    Real(f64),
    /// An enum: its number, and its name where it is known.
    Choice(i32, Option<&'static str>),
    /// A message that is there.
    Message(&'a dyn Message),
    /// A repeated string.
    List(&'a [String]),
    /// A map, in the order of its keys.
    Map(Vec<(&'a str, View<'a>)>),
}

/// A message inside a message. Absent it reads as its default; writing to it makes it present.
#[derive(Clone, Default, PartialEq)]
pub struct Part<T> {
    present: bool,
    message: T,
}

impl<T> Part<T> {
    /// Whether the sender gave it, if only as `{}`.
    pub fn is_present(&self) -> bool {
        self.present
    }
}

impl<T> From<T> for Part<T> {
    fn from(message: T) -> Part<T> {
        let present = true;
        Part { present, message }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.message
    }
}

impl<T> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.present = true;
        &mut self.message
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.present {
            self.message.fmt(f)
        } else {
            f.write_str("absent")
        }
    }
}

impl<T: Message> Value for Part<T> {
    fn view(&self) -> View<'_> {
        if self.present {
            View::Message(&self.message)
        } else {
            View::Absent
        }
    }
    fn is_set(&self) -> bool {
        self.present
    }
    fn decode(&mut self, node: &Node<'_>, decoder: &mut Decoder<'_>) {
        decoder.message(node, &mut **self);
    }
}

impl<T: Value + Default> Value for Option<T> {
    fn view(&self) -> View<'_> {
        self.as_ref().map_or(View::Absent, Value::view)
    }
    fn is_set(&self) -> bool {
        self.is_some()
    }
    fn decode(&mut self, node: &Node<'_>, decoder: &mut Decoder<'_>) {
        self.get_or_insert_default().decode(node, decoder);
    }
}

impl Value for Vec<String> {
    fn view(&self) -> View<'_> {
        View::List(self)
    }
    fn is_set(&self) -> bool {
        !self.is_empty()
    }
    fn decode(&mut self, node: &Node<'_>, decoder: &mut Decoder<'_>) {
        decoder.list(node, self);
    }
}

impl<T: Value + Default> Value for BTreeMap<String, T> {
    fn view(&self) -> View<'_> {
        let entries = self.iter();
        View::Map(entries.map(|(key, v)| (key.as_str(), v.view())).collect())
    }
    fn is_set(&self) -> bool {
        !self.is_empty()
    }
    fn decode(&mut self, node: &Node<'_>, decoder: &mut Decoder<'_>) {
        decoder.map(node, self);
    }
}

/// Scalars: how each is seen, when it is not zero, and which reading of JSON fits it.
macro_rules! scalars {
    ($($kind:ty, $value:ident => $view:expr, $set:expr, $read:ident;)*) => {$(
        impl Value for $kind {
            fn view(&self) -> View<'_> {
                let $value = self;
                $view
            }
            fn is_set(&self) -> bool {
                let $value = self;
                $set
            }
            fn decode(&mut self, node: &Node<'_>, decoder: &mut Decoder<'_>) {
                if let Some(value) = decoder.$read(node) {
                    *self = value.into();
                }
            }
        }
    )*};
}

scalars! {
    String, value => View::Text(value), !value.is_empty(), text;
    Secret, value => View::Secret(value.reveal()), !value.is_empty(), text;
    bool, value => View::Flag(*value), *value, flag;
    i32, value => View::Number(*value), *value != 0, number;
    f64, value => View::Real(*value), *value != 0.0, real;
}

macro_rules! json_name {
    () => {
        None
    };
    ($name:literal) => {
        Some($name)
    };
}

/// Declares messages: `number name: Type`, with `as "name"` where the JSON name is not mechanical, and `or "name"`
/// for another that is read.
macro_rules! messages {
    ($($(#[$about:meta])* $message:ident {
        $($(#[$doc:meta])* $number:literal $field:ident $(as $json:literal $(or $also:literal)?)?: $kind:ty,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $message {
            $(
                #[doc = concat!("Field ", $number, ". ")]
                $(#[$doc])*
                pub $field: $kind,
            )*
        }

        impl $crate::config::declare::Message for $message {
            fn rows(&self) -> &'static [$crate::config::declare::Row] {
                &[$($crate::config::declare::Row {
                    number: $number,
                    name: stringify!($field),
                    json: json_name!($($json)?),
                    also: json_name!($($($also)?)?),
                }),*]
            }
            fn value(&self, name: &str) -> Option<&dyn $crate::config::declare::Value> {
                match name {
                    $(stringify!($field) => Some(&self.$field),)*
                    _ => None,
                }
            }
            fn value_mut(&mut self, name: &str) -> Option<&mut dyn $crate::config::declare::Value> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }

        impl $crate::config::declare::Value for $message {
            fn view(&self) -> $crate::config::declare::View<'_> {
                $crate::config::declare::View::Message(self)
            }
            fn is_set(&self) -> bool {
                true
            }
            fn decode(
                &mut self,
                node: &$crate::config::json::Node<'_>,
                decoder: &mut $crate::config::decode::Decoder<'_>,
            ) {
                decoder.message(node, self);
            }
        }
    )*};
}

/// Declares enums: `Name = number "PROTO_NAME"`; zero is `Unspecified`.
macro_rules! choices {
    ($($(#[$about:meta])* $choice:ident $prefix:literal {
        $($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub enum $choice {
            /// Not said, or said in words that this version does not know.
            #[default]
            Unspecified,
            $(
                #[doc = concat!("`", $prefix, $name, "`. ")]
                $(#[$doc])*
                $variant,
            )*
            /// A number that this version does not know.
            Unknown(i32),
        }

        impl $choice {
            /// The number in the proto.
            pub fn number(self) -> i32 {
                match self {
                    $choice::Unspecified => 0,
                    $($choice::$variant => $number,)*
                    $choice::Unknown(number) => number,
                }
            }

            /// The name in the proto.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $choice::Unspecified => Some(concat!($prefix, "UNSPECIFIED")),
                    $($choice::$variant => Some(concat!($prefix, $name)),)*
                    $choice::Unknown(_) => None,
                }
            }

            const ALL: &'static [$choice] = &[$choice::Unspecified, $($choice::$variant),*];
        }

        impl From<i32> for $choice {
            fn from(number: i32) -> $choice {
                let known = $choice::ALL.iter().find(|choice| choice.number() == number);
                known.copied().unwrap_or($choice::Unknown(number))
            }
        }

        impl $crate::config::declare::Value for $choice {
            fn view(&self) -> $crate::config::declare::View<'_> {
                $crate::config::declare::View::Choice(self.number(), self.name())
            }
            fn is_set(&self) -> bool {
                self.number() != 0
            }
            fn decode(
                &mut self,
                node: &$crate::config::json::Node<'_>,
                decoder: &mut $crate::config::decode::Decoder<'_>,
            ) {
                let number = |name: &str| {
                    let known = $choice::ALL.iter().find(|choice| choice.name() == Some(name));
                    known.map(|choice| choice.number())
                };
                if let Some(value) = decoder.choice(node, &number) {
                    *self = value.into();
                }
            }
        }
    )*};
}

pub(super) use {choices, json_name, messages};
