//! Addresses and ranges of them, as strictly as Kubernetes reads them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Opaque, Table, opaque, text};
use crate::error::{Error, Result};
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("ip", ip),
    ("isIP", |args| {
        Ok(Value::Bool(read_ip(text(args, 0)?).is_ok()))
    }),
    ("ip.isCanonical", is_canonical),
    ("family", |args| {
        of_ip(args, |ip| Value::Int(if ip.is_ipv4() { 4 } else { 6 }))
    }),
    ("isUnspecified", |args| {
        of_ip(args, |ip| Value::Bool(ip.is_unspecified()))
    }),
    ("isLoopback", |args| {
        of_ip(args, |ip| Value::Bool(ip.is_loopback()))
    }),
    ("isLinkLocalMulticast", |args| {
        of_ip(args, |ip| Value::Bool(is_link_local_multicast(ip)))
    }),
    ("isLinkLocalUnicast", |args| {
        of_ip(args, |ip| Value::Bool(is_link_local(ip)))
    }),
    ("isGlobalUnicast", |args| {
        of_ip(args, |ip| Value::Bool(is_global(ip)))
    }),
    ("cidr", |args| {
        Ok(Value::opaque(Opaque::Cidr(read_cidr(text(args, 0)?)?)))
    }),
    ("isCIDR", |args| {
        Ok(Value::Bool(read_cidr(text(args, 0)?).is_ok()))
    }),
    ("containsIP", contains_ip),
    ("containsCIDR", contains_cidr),
    ("prefixLength", |args| {
        of_cidr(args, |cidr| Value::Int(cidr.prefix_len().into()))
    }),
    ("masked", |args| {
        of_cidr(args, |cidr| Value::opaque(Opaque::Cidr(cidr.trunc())))
    }),
];

fn read_ip(text: &str) -> Result<IpAddr> {
    let fail = |why: &str| {
        Error::new(format!(
            "IP Address {text:?} parse error during conversion from string: {why}"
        ))
    };
    let ip: IpAddr = text
        .parse()
        .map_err(|_| fail(&format!("ParseAddr({text:?}): unable to parse IP")))?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(fail("IPv4-mapped IPv6 address is not allowed"))
        }
        ip => Ok(ip),
    }
}

fn read_cidr(text: &str) -> Result<IpNet> {
    let fail = |why: String| {
        Error::new(format!(
            "network address parse error during conversion from string: {why}"
        ))
    };
    let prefix = text
        .split_once('/')
        .map(|(_, bits)| bits)
        .unwrap_or_default();
    let leading_zero = prefix.len() > 1 && prefix.starts_with('0');
    let signed = prefix.starts_with('+');
    let parsed: Option<IpNet> = text.parse().ok();
    let Some(net) = parsed.filter(|_| !leading_zero && !signed) else {
        return Err(fail(format!("netip.ParsePrefix({text:?}): invalid CIDR")));
    };
    match net {
        IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
            Err(fail("IPv4-mapped IPv6 address is not allowed".to_owned()))
        }
        net => Ok(net),
    }
}

fn ip<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Opaque(_) => of_cidr(args, |cidr| Value::opaque(Opaque::Ip(cidr.addr()))),
        _ => Ok(Value::opaque(Opaque::Ip(read_ip(text(args, 0)?)?))),
    }
}

fn is_canonical<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let text = text(args, 0)?;
    Ok(Value::Bool(read_ip(text)?.to_string() == text))
}

fn of_ip<'a>(args: &[Value<'a>], get: fn(&IpAddr) -> Value<'a>) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::Ip(ip) => Ok(get(ip)),
        _ => Err(Error::no_overload()),
    }
}

fn of_cidr<'a>(args: &[Value<'a>], get: fn(&IpNet) -> Value<'a>) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::Cidr(cidr) => Ok(get(cidr)),
        _ => Err(Error::no_overload()),
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.octets()[0] == 0xff && v6.octets()[1] & 0x0f == 2,
    }
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast
        || ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || is_link_local(ip))
}

fn contains_ip<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Opaque::Cidr(cidr) = opaque(args, 0)? else {
        return Err(Error::no_overload());
    };
    let ip = match &args[1] {
        Value::String(text) => read_ip(text)?,
        _ => match opaque(args, 1)? {
            Opaque::Ip(ip) => *ip,
            _ => return Err(Error::no_overload()),
        },
    };
    Ok(Value::Bool(cidr.contains(&ip)))
}

fn contains_cidr<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Opaque::Cidr(cidr) = opaque(args, 0)? else {
        return Err(Error::no_overload());
    };
    let other = match &args[1] {
        Value::String(text) => read_cidr(text)?,
        _ => match opaque(args, 1)? {
            Opaque::Cidr(other) => *other,
            _ => return Err(Error::no_overload()),
        },
    };
    let within = cidr.prefix_len() <= other.prefix_len() && cidr.contains(&other.trunc().addr());
    Ok(Value::Bool(within))
}
