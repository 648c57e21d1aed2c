//! What functions do. Each module has a table of names and functions; `data/functions.tbl` says what they take.

mod arithmetic;
mod authorization;
mod conversion;
mod formats;
mod lists;
mod net;
mod optional;
mod quantity;
mod semver;
mod strings;
mod texts;
mod times;
mod url;

use std::fmt;

use kube_kit::quantity::Quantity;
use regex::Regex;

pub use authorization::{Authorizer, Decision, Question};
pub(crate) use texts::show_double;

use crate::error::{Error, Result};
use crate::functions::Builtin;
use crate::value::Value;

/// Values that only libraries know.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "there is always a pointer to it")]
pub enum Opaque<'a> {
    /// Who may be asked.
    Authorizer(authorization::Asker<'a>),
    /// A question about a path.
    PathCheck(authorization::Asker<'a>, String),
    /// A question about a group, not yet a resource.
    GroupCheck(authorization::Asker<'a>, String),
    /// A question about a resource.
    ResourceCheck(authorization::Asker<'a>, Question),
    /// An answer.
    Decision(Decision),
    /// An amount.
    Quantity(Quantity),
    /// An address.
    Ip(std::net::IpAddr),
    /// A range of addresses, with the address it was written with.
    Cidr(ipnet::IpNet),
    /// A URL.
    Url(url::Url),
    /// A version.
    Semver(semver::Semver),
    /// A named format.
    Format(formats::Format),
}

impl fmt::Debug for Opaque<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opaque::Ip(ip) => write!(f, "ip({ip})"),
            Opaque::Cidr(cidr) => write!(f, "cidr({cidr})"),
            Opaque::Quantity(quantity) => write!(f, "quantity({quantity})"),
            other => f.write_str(other.type_name()),
        }
    }
}

impl<'a> Opaque<'a> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Opaque::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Opaque::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Opaque::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Opaque::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
            Opaque::Decision(_) => "kubernetes.authorization.Decision",
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// Addresses are as long as their bytes; nothing else has a size.
    pub(crate) fn size(&self) -> u64 {
        let bytes = |v6: bool| if v6 { 16 } else { 4 };
        match self {
            Opaque::Ip(ip) => bytes(ip.is_ipv6()),
            Opaque::Cidr(cidr) => u64::from(cidr.prefix_len()).div_ceil(8),
            _ => 1,
        }
    }

    pub(crate) fn equals(&self, other: &Opaque<'_>) -> bool {
        match (self, other) {
            (Opaque::Quantity(a), Opaque::Quantity(b)) => a.nanos() == b.nanos(),
            (Opaque::Ip(a), Opaque::Ip(b)) => a == b,
            (Opaque::Cidr(a), Opaque::Cidr(b)) => a == b,
            (Opaque::Url(a), Opaque::Url(b)) => a == b,
            (Opaque::Semver(a), Opaque::Semver(b)) => a.order(b).is_eq(),
            (Opaque::Format(a), Opaque::Format(b)) => a == b,
            (Opaque::Decision(a), Opaque::Decision(b)) => a == b,
            _ => false,
        }
    }
}

type Table = &'static [(&'static str, Builtin)];

const TABLES: [Table; 12] = [
    arithmetic::TABLE,
    authorization::TABLE,
    conversion::TABLE,
    formats::TABLE,
    lists::TABLE,
    net::TABLE,
    optional::TABLE,
    quantity::TABLE,
    semver::TABLE,
    strings::TABLE,
    times::TABLE,
    url::TABLE,
];

/// What a function does; one that is not here can only be evaluated by the interpreter itself.
pub(crate) fn find(name: &str) -> Builtin {
    let mut rows = TABLES.iter().flat_map(|table| table.iter());
    rows.find(|(known, _)| *known == name)
        .map_or(nothing as Builtin, |(_, run)| *run)
}

fn nothing<'a>(_: &mut [Value<'a>]) -> Result<Value<'a>> {
    Err(Error::no_overload())
}

/// Whether the interpreter itself evaluates a function.
#[cfg(test)]
pub(crate) fn is_special(name: &str) -> bool {
    matches!(name, "_&&_" | "_||_" | "_?_:_" | "@not_strictly_false")
}

/// A call whose pattern stands in the text and was compiled with it.
pub(crate) fn with_pattern<'a>(
    function: &str,
    pattern: &Regex,
    args: &mut [Value<'a>],
) -> Result<Value<'a>> {
    strings::with_pattern(function, pattern, args)
}

/// Only these can be keys of maps.
pub(crate) fn check_key(key: &Value<'_>) -> Result<()> {
    match key {
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_) => Ok(()),
        Value::Double(_) => Err(Error::new("unsupported key type: double")),
        other => Err(Error::new(format!(
            "unsupported key type: {}",
            other.type_name()
        ))),
    }
}

fn text<'v>(args: &'v [Value<'_>], index: usize) -> Result<&'v str> {
    match args.get(index) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Error::no_overload()),
    }
}

fn int(args: &[Value<'_>], index: usize) -> Result<i64> {
    match args.get(index) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(Error::no_overload()),
    }
}

fn opaque<'v, 'a>(args: &'v [Value<'a>], index: usize) -> Result<&'v Opaque<'a>> {
    match args.get(index) {
        Some(Value::Opaque(value)) => Ok(value),
        _ => Err(Error::no_overload()),
    }
}
