//! DEL and GC: what is no longer needed goes, in the order that lets anybody who is killed be followed by another.

use std::fmt::Write as _;
use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use crate::attach::base;
use crate::call::Call;
use crate::conf::{Conf, Role};
use crate::error::{Code, Error};
use crate::ledger::{Attachment, Books, key};
use crate::links::{Link, Links};
use crate::{firewall, killed_at, namespace};

const ALIAS: &str = "kyanite-cni";

/// The node's end of a container's cable: always the same name, so that whoever looks for it finds it.
pub(crate) fn host_name(network: &str, container: &str, interface: &str) -> String {
    let hash = Sha256::digest(format!("{network}/{container}/{interface}"));
    let mut name = "veth".to_owned();
    for byte in &hash[..5] {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// What is written on a cable: enough to find its way back into lost books.
pub(crate) fn alias(network: &str, call: &Call, addresses: &[IpAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let (container, interface) = (&call.container, &call.interface);
    format!(
        "{ALIAS} {network} {container} {interface} {}",
        addresses.join(",")
    )
}

fn read_alias(network: &str, link: &Link) -> Option<Attachment> {
    let mut words = link.alias.split(' ');
    let ours = words.next() == Some(ALIAS) && words.next() == Some(network);
    let (container, interface) = (words.next()?, words.next()?);
    let addresses = words.next()?.split(',');
    ours.then(|| Attachment {
        container: container.to_owned(),
        interface: interface.to_owned(),
        host: link.name.clone(),
        addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
        complete: true,
        ..Attachment::default()
    })
}

/// The books; lost ones are written anew from what is on the cables.
pub(crate) fn books(conf: &Conf, links: &Links) -> Result<Books, Error> {
    let mut books = Books::take(&conf.directory())?;
    if books.lost {
        books.ledger.base = base(conf);
        for link in links.all().map_err(Error::kernel("list links"))? {
            if let Some(found) = read_alias(&conf.name, &link) {
                let key = key(&found.container, &found.interface);
                books.ledger.attachments.insert(key, found);
            }
        }
    }
    Ok(books)
}

/// Detaches a container; one that is not attached is fine.
pub(crate) fn del(call: &Call, conf: &Conf) -> Result<(), Error> {
    let links = Links::here().map_err(Error::kernel("talk to the kernel"))?;
    let host = host_name(&conf.name, &call.container, &call.interface);
    if conf.role != Role::Portmap {
        links
            .delete(&host)
            .map_err(Error::kernel(format!("take {host} away")))?;
        killed_at("disconnected");
    }
    let mut books = books(conf, &links)?;
    let key = key(&call.container, &call.interface);
    let known = books.ledger.attachments.remove(&key).is_some();
    firewall::follow(&table(conf), &books.ledger)?;
    killed_at("unruled");
    if known || books.lost {
        books.save()?;
    }
    killed_at("released");
    Ok(())
}

/// The name of the network's rules.
pub(crate) fn table(conf: &Conf) -> String {
    let name = &conf.name;
    match conf.role {
        Role::Portmap => format!("{ALIAS}.{name}.ports"),
        _ => format!("{ALIAS}.{name}"),
    }
}

/// Takes away what is not on the runtime's list; goes on past what cannot be taken away, and says it at the end.
pub(crate) fn gc(conf: &Conf) -> Result<(), Error> {
    let Some(valid) = &conf.settings.valid else {
        let message = "GC without `cni.dev/valid-attachments`";
        return Err(Error::new(Code::InvalidConfiguration, message));
    };
    let links = Links::here().map_err(Error::kernel("talk to the kernel"))?;
    let mut books = books(conf, &links)?;
    let stays = |attachment: &Attachment| {
        valid
            .iter()
            .any(|v| v.container == attachment.container && v.interface == attachment.interface)
    };
    let all = links.all().map_err(Error::kernel("list links"))?;
    let cables = all.iter().filter_map(|link| read_alias(&conf.name, link));
    let known = books.ledger.attachments.values().cloned();
    let unwanted = cables.chain(known).filter(|a| !stays(a));
    let mut refused = None;
    for attachment in unwanted.filter(|_| conf.role != Role::Portmap) {
        if let Err(cause) = links.delete(&attachment.host) {
            refused = Some(Error::kernel(format!("take {} away", attachment.host))(
                cause,
            ));
        }
    }
    let held: Vec<String> = links
        .all()
        .map_err(Error::kernel("list links"))?
        .into_iter()
        .map(|link| link.name)
        .collect();
    books
        .ledger
        .attachments
        .retain(|_, attachment| stays(attachment) || held.contains(&attachment.host));
    if !conf.ranges.is_empty() {
        books.ledger.base = base(conf);
    }
    firewall::follow(&table(conf), &books.ledger)?;
    books.save()?;
    refused.map_or(Ok(()), Err)
}

/// Strikes those from the books whose namespace and cable are both gone: their DEL never came.
pub(crate) fn drop_dead(books: &mut Books, links: &Links) -> Result<(), Error> {
    let all = links.all().map_err(Error::kernel("list links"))?;
    let connected = |attachment: &Attachment| all.iter().any(|l| l.name == attachment.host);
    books.ledger.attachments.retain(|_, attachment| {
        connected(attachment) || namespace::is_alive(&attachment.namespace, attachment.identity)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_tells_whose_it_is() {
        let call = Call {
            verb: crate::call::Verb::Add,
            container: "abc".to_owned(),
            interface: "eth0".to_owned(),
            namespace: None,
            arguments: Default::default(),
        };
        let addresses = ["10.0.0.2", "fd00::2"].map(|a| a.parse().expect("an address"));
        let link = Link {
            name: host_name("net", "abc", "eth0"),
            alias: alias("net", &call, &addresses),
            ..Link::default()
        };
        let read = read_alias("net", &link).expect("ours");
        assert_eq!((read.container.as_str(), read.addresses.len()), ("abc", 2));
        assert_eq!(read_alias("other", &link), None);
        assert!(link.name.len() <= 15);
    }
}
