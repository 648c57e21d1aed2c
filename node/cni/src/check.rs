//! CHECK and STATUS: whether what was made is still so, and whether more can be made.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::call::Call;
use crate::cleanup::{self, table};
use crate::conf::{Conf, Role};
use crate::error::{Code, Error};
use crate::firewall;
use crate::ledger::{Books, key};
use crate::links::Links;
use crate::namespace::Namespace;
use crate::result::Outcome;

/// Compares an attachment with what its ADD answered.
pub(crate) fn check(call: &Call, conf: &Conf) -> Result<(), Error> {
    let previous = previous(conf)?;
    let books = Books::take(&conf.directory())?;
    let known = books
        .ledger
        .attachments
        .get(&key(&call.container, &call.interface));
    let expected = conf.role != Role::Portmap || !conf.settings.ports().is_empty();
    if expected && known.is_none_or(|attachment| !attachment.complete) {
        let message = format!("the container {} is not attached", call.container);
        return Err(Error::new(Code::UnknownContainer, message));
    }
    if !firewall::follows(&table(conf), &books.ledger)? {
        return Err(drifted(
            "the network's packet rules are not as they were made",
        ));
    }
    drop(books);
    if conf.role == Role::Portmap {
        return Ok(());
    }
    check_node(call, conf, previous)?;
    let namespace = Namespace::open(call.namespace.as_deref().unwrap_or("".as_ref()))?;
    namespace.inside(|| check_pod(call, previous))
}

/// What CHECK compares with.
pub(crate) fn previous(conf: &Conf) -> Result<&Outcome, Error> {
    let message = "required prevResult missing";
    let missing = || Error::new(Code::InvalidConfiguration, message);
    conf.previous.as_ref().ok_or_else(missing)
}

fn drifted(message: impl Into<String>) -> Error {
    Error::new(Code::Drifted, message)
}

fn check_node(call: &Call, conf: &Conf, previous: &Outcome) -> Result<(), Error> {
    let links = Links::here().map_err(Error::kernel("talk to the kernel"))?;
    let host = cleanup::host_name(&conf.name, &call.container, &call.interface);
    let found = links.find(&host).map_err(Error::kernel("look for links"))?;
    let Some(link) = found.filter(|link| link.up) else {
        return Err(drifted(format!("the link {host} is missing or down")));
    };
    match conf.role {
        Role::Bridge => {
            let name = conf.settings.bridge_name();
            let bridge = links.find(name).map_err(Error::kernel("look for links"))?;
            match bridge {
                Some(bridge) if link.controller == bridge.index => Ok(()),
                _ => Err(drifted(format!(
                    "the link {host} is not on the bridge {name}"
                ))),
            }
        }
        _ => {
            let routes = links.routes().map_err(Error::kernel("list routes"))?;
            let leads = |ip: IpAddr| {
                routes
                    .iter()
                    .any(|r| r.to == ip.into() && r.link == link.index)
            };
            match previous.ips.iter().find(|ip| !leads(ip.address.addr())) {
                None => Ok(()),
                Some(ip) => Err(drifted(format!("no route leads to {}", ip.address))),
            }
        }
    }
}

fn check_pod(call: &Call, previous: &Outcome) -> Result<(), Error> {
    let doing = || Error::kernel("look into the container");
    let links = Links::here().map_err(doing())?;
    let name = &call.interface;
    let found = links.find(name).map_err(doing())?;
    let Some(link) = found.filter(|link| link.up) else {
        return Err(drifted(format!("the interface {name} is missing or down")));
    };
    let addresses = links.addresses(link.index).map_err(doing())?;
    let ours = previous.ips.iter().filter(|ip| {
        let interface = ip.interface.and_then(|n| previous.interfaces.get(n));
        interface.is_none_or(|interface| interface.name == *name)
    });
    for ip in ours {
        if !addresses.contains(&ip.address) {
            return Err(drifted(format!("{name} has lost {}", ip.address)));
        }
    }
    let routes = links.routes().map_err(doing())?;
    let main = |route: &&crate::result::Route| route.table.is_none_or(|table| table == 254);
    for route in previous.routes.iter().filter(main) {
        if !routes.iter().any(|way| way.to == route.dst) {
            return Err(drifted(format!("the route to {} has gone", route.dst)));
        }
    }
    Ok(())
}

/// Says whether pods can be attached.
pub(crate) fn status(conf: &Conf) -> Result<(), Error> {
    if matches!(conf.role, Role::Portmap | Role::Loopback) {
        return Ok(());
    }
    let unavailable = |error: Error| Error {
        code: Code::NotAvailable,
        ..error
    };
    conf.needs_ranges().map_err(unavailable)?;
    let links = Links::here()
        .map_err(Error::kernel("talk to the kernel"))
        .map_err(unavailable)?;
    let mut books = cleanup::books(conf, &links).map_err(unavailable)?;
    cleanup::drop_dead(&mut books, &links).map_err(unavailable)?;
    let all = books.ledger.attachments.values();
    let taken: HashSet<IpAddr> = all.flat_map(|a| a.addresses.iter().copied()).collect();
    for set in &conf.ranges {
        let size: u128 = set.iter().map(crate::ipam::Range::size).sum();
        let used = taken
            .iter()
            .filter(|ip| set.iter().any(|range| range.contains(**ip)));
        if used.count() as u128 >= size {
            let subnet = set
                .first()
                .map(|range| range.subnet.to_string())
                .unwrap_or_default();
            let message = format!("no IP addresses available in {subnet}");
            return Err(Error::new(Code::NotAvailable, message));
        }
    }
    Ok(())
}
