//! The reference plugins that this program stands in for under their names, besides the bridge: `loopback`, which
//! containerd calls for every pod, and `portmap`, which comes after other plugins.

use crate::attach::mac_text;
use crate::call::Call;
use crate::check::previous;
use crate::conf::Conf;
use crate::error::{Code, Error};
use crate::ledger::{Attachment, Books, key};
use crate::links::{Link, Links};
use crate::namespace::{Namespace, set};
use crate::result::{Address, Interface, Outcome};
use crate::{cleanup, firewall};

const LOOPBACK: &str = "lo";

/// Starts a pod's loopback.
pub(crate) fn add_loopback(call: &Call, conf: &Conf) -> Result<Outcome, Error> {
    let namespace = namespace(call)?;
    let (link, addresses) = namespace.inside(|| {
        let (links, lo) = loopback()?;
        let doing = || Error::kernel("start the loopback");
        links.raise(lo.index).map_err(doing())?;
        let addresses = links.addresses(lo.index).map_err(doing())?;
        Ok((lo, addresses))
    })?;
    if let Some(previous) = &conf.previous {
        return Ok(previous.clone());
    }
    let interface = Interface {
        name: LOOPBACK.to_owned(),
        mac: mac_text(link.mac),
        mtu: 0,
        sandbox: namespace.path.display().to_string(),
    };
    let ips = addresses.into_iter().map(|address| Address {
        interface: Some(0),
        address,
        gateway: None,
    });
    Ok(Outcome {
        interfaces: vec![interface],
        ips: ips.collect(),
        ..Outcome::default()
    })
}

/// Stops it; a pod that has gone is fine.
pub(crate) fn del_loopback(call: &Call) -> Result<(), Error> {
    let Ok(namespace) = namespace(call) else {
        return Ok(());
    };
    namespace.inside(|| {
        let (links, lo) = loopback()?;
        links
            .lower(lo.index)
            .map_err(Error::kernel("stop the loopback"))
    })
}

/// Whether it runs.
pub(crate) fn check_loopback(call: &Call) -> Result<(), Error> {
    namespace(call)?.inside(|| match loopback()?.1.up {
        true => Ok(()),
        false => Err(Error::new(Code::Drifted, "the loopback is down")),
    })
}

fn namespace(call: &Call) -> Result<Namespace, Error> {
    Namespace::open(call.namespace.as_deref().unwrap_or("".as_ref()))
}

fn loopback() -> Result<(Links, Link), Error> {
    let doing = || Error::kernel("find the loopback");
    let links = Links::here().map_err(doing())?;
    let found = links.find(LOOPBACK).map_err(doing())?;
    let lo = found.ok_or_else(|| Error::new(Code::Kernel, "the container has no loopback"))?;
    Ok((links, lo))
}

/// Lets ports of the node lead to a pod that others attached.
pub(crate) fn add_ports(call: &Call, conf: &Conf) -> Result<Outcome, Error> {
    let previous = previous(conf)?;
    let ports = conf.settings.ports();
    if ports.is_empty() {
        return Ok(previous.clone());
    }
    for link in previous.interfaces.iter().filter(|i| i.sandbox.is_empty()) {
        set(&format!("ipv4/conf/{}/route_localnet", link.name), "1")?;
    }
    let mut books = Books::take(&conf.directory())?;
    let order = books.ledger.orders + 1;
    let attachment = Attachment {
        container: call.container.clone(),
        interface: call.interface.clone(),
        namespace: call.namespace.clone().unwrap_or_default(),
        addresses: previous.ips.iter().map(|ip| ip.address.addr()).collect(),
        ports,
        order,
        complete: true,
        ..Attachment::default()
    };
    books.ledger.orders = order;
    let key = key(&call.container, &call.interface);
    books.ledger.attachments.insert(key, attachment);
    // The books first: a DEL after a kill finds what to take away.
    books.save()?;
    firewall::follow(&cleanup::table(conf), &books.ledger)?;
    Ok(previous.clone())
}
