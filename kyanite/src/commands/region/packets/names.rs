//! Names inside a network, answered where Azure's are: at 168.63.129.16. Others than the network's own are refused:
//! nothing leaves this host.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ::cloud::{Says, Zone};
use ::dns::Name;
use ::dns::message::{Code, Data, Malformed, Record, Reply, kind, parse_query, refusal};
use machines::{Network, PLATFORM};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Where names are asked for.
const PORT: u16 = 53;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(10);
/// How many names in a row may be other names for the next.
const ALIASES: usize = 8;
/// For how many seconds it holds that there is no such name.
const NOT_THERE: u32 = 10;

type Zones = Arc<RwLock<Arc<Vec<Zone>>>>;

/// Answers in one network, until it is dropped.
pub(super) struct Names {
    zones: Zones,
    workers: [AbortHandle; 2],
}

impl Names {
    pub(super) fn begin(network: &Network) -> std::io::Result<Names> {
        let place = SocketAddr::from((PLATFORM, PORT));
        let bind = || {
            let socket = std::net::UdpSocket::bind(place)?;
            let listener = std::net::TcpListener::bind(place)?;
            socket.set_nonblocking(true)?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>((socket, listener))
        };
        let (socket, listener) = network.inside(bind).map_err(std::io::Error::other)??;
        let (socket, listener) = (
            UdpSocket::from_std(socket)?,
            TcpListener::from_std(listener)?,
        );
        let zones = Zones::default();
        let datagrams = tokio::spawn(datagrams(socket, Arc::clone(&zones)));
        let streams = tokio::spawn(streams(listener, Arc::clone(&zones)));
        Ok(Names {
            zones,
            workers: [datagrams.abort_handle(), streams.abort_handle()],
        })
    }

    /// From now on these are the names.
    pub(super) fn know(&self, zones: Vec<Zone>) {
        *self.zones.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(zones);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.workers.iter().for_each(AbortHandle::abort);
    }
}

async fn datagrams(socket: UdpSocket, zones: Zones) {
    let mut buffer = vec![0; 4096];
    loop {
        // A client that went away before its answer came is no reason to stop.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        if let Some(answer) = handle(&zones, &buffer[..length], None) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn streams(listener: TcpListener, zones: Zones) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // One after the other: clients use datagrams, and who is silent is let go.
            let _ = timeout(IDLE, one_stream(stream, &zones)).await;
        }
    }
}

async fn one_stream(mut stream: TcpStream, zones: &Zones) -> std::io::Result<()> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    let Some(answer) = handle(zones, &message, Some(usize::from(u16::MAX))) else {
        return Ok(());
    };
    let length = u16::try_from(answer.len()).unwrap_or_default();
    let length = length.to_be_bytes();
    stream.write_all(&[&length[..], &answer].concat()).await
}

fn handle(zones: &Zones, bytes: &[u8], limit: Option<usize>) -> Option<Vec<u8>> {
    match parse_query(bytes) {
        Err(Malformed::Silent) => None,
        Err(Malformed::Answer(id, code)) => Some(refusal(id, code)),
        Ok(query) => {
            let zones = zones.read().unwrap_or_else(PoisonError::into_inner);
            let reply = answer(&zones, &query.name, query.kind);
            Some(query.reply(&reply, limit.unwrap_or_else(|| query.size())))
        }
    }
}

/// What zones say to a question. Pure.
fn answer(zones: &[Zone], asked: &Name, kind: u16) -> Reply {
    let Some(mut zone) = zone_of(zones, asked) else {
        return Reply::of_code(Code::Refused);
    };
    let (mut name, mut answers) = (asked.clone(), Vec::new());
    for _ in 0..ALIASES {
        let own = records(zone, &name);
        let fit = own
            .iter()
            .filter(|one| one.data.kind() == kind || kind == kind::ANY);
        let fit: Vec<Record> = fit.cloned().collect();
        let alias = own.iter().find_map(|one| match &one.data {
            Data::Cname(other) => Some((one.clone(), other.clone())),
            _ => None,
        });
        let exists = !own.is_empty() || name == *asked && is_between(zone, &name);
        answers.extend(fit.iter().cloned());
        match alias.filter(|_| fit.is_empty()) {
            Some((record, other)) => {
                answers.push(record);
                match zone_of(zones, &other) {
                    Some(next) => (zone, name) = (next, other),
                    // Whoever asked knows where to ask on.
                    None => break,
                }
            }
            None if answers.is_empty() => return nothing(zone, exists),
            None => break,
        }
    }
    Reply {
        authoritative: true,
        answers,
        ..Reply::default()
    }
}

/// The zone that is responsible: the longest.
fn zone_of<'z>(zones: &'z [Zone], name: &Name) -> Option<&'z Zone> {
    let fits = zones.iter().filter(|zone| {
        let own = Name::parse(&zone.name);
        own.is_some_and(|own| name.is_under(&own))
    });
    fits.max_by_key(|zone| zone.name.split('.').count())
}

/// The records of a name, or of everything that has none of its own.
fn records(zone: &Zone, name: &Name) -> Vec<Record> {
    let of = |wanted: &Name| -> Vec<Record> {
        let own = zone.records.iter();
        let own = own.filter(|record| Name::parse(&record.name).as_ref() == Some(wanted));
        own.filter_map(|record| {
            Some(Record {
                name: name.clone(),
                ttl: record.ttl,
                data: match &record.says {
                    Says::Address(address) => Data::A(*address),
                    Says::Address6(address) => Data::Aaaa(*address),
                    Says::Alias(other) => Data::Cname(Name::parse(other)?),
                    Says::Text(text) => Data::Txt(text.as_bytes().to_vec()),
                },
            })
        })
        .collect()
    };
    let own = of(name);
    if !own.is_empty() || is_between(zone, name) {
        return own;
    }
    let labels: Vec<&[u8]> = name.labels().skip(1).collect();
    let any = Name::of_labels([&b"*"[..]].into_iter().chain(labels));
    any.map(|any| of(&any)).unwrap_or_default()
}

/// Whether a name is the zone's own, or has others below it.
fn is_between(zone: &Zone, name: &Name) -> bool {
    let mut all = zone
        .records
        .iter()
        .filter_map(|record| Name::parse(&record.name));
    Name::parse(&zone.name).as_ref() == Some(name) || all.any(|other| other.is_under(name))
}

fn nothing(zone: &Zone, exists: bool) -> Reply {
    let name = |text: &str| Name::parse(text).unwrap_or_else(Name::root);
    let authority = Record {
        name: name(&zone.name),
        ttl: NOT_THERE,
        data: Data::Soa {
            server: name("azureprivatedns.net"),
            contact: name("azureprivatedns-host.microsoft.com"),
            serial: 1,
            minimum: NOT_THERE,
        },
    };
    Reply {
        code: Some(if exists {
            Code::NoError
        } else {
            Code::NxDomain
        }),
        authoritative: true,
        authority: vec![authority],
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ::cloud::ZoneRecord;

    use super::*;

    fn zones() -> Vec<Zone> {
        let record = |name: &str, says: Says| ZoneRecord {
            name: name.to_owned(),
            ttl: 60,
            says,
        };
        let address = |n: u8| Says::Address(Ipv4Addr::new(10, 0, 0, n));
        vec![
            Zone {
                name: "corp.example".into(),
                records: vec![
                    record("db.corp.example", address(4)),
                    record("db.corp.example", address(5)),
                    record("www.corp.example", Says::Alias("db.corp.example".into())),
                    record("out.corp.example", Says::Alias("example.org".into())),
                    record("a.b.corp.example", address(6)),
                    record("*.apps.corp.example", address(7)),
                ],
            },
            Zone {
                name: "m1".into(),
                records: vec![record("m1", address(8))],
            },
        ]
    }

    #[test]
    fn names_of_a_zone_its_aliases_and_all_that_have_none_of_their_own() {
        let ask = |name: &str, kind: u16| {
            let reply = answer(&zones(), &Name::parse(name).expect("a name"), kind);
            let found = reply.answers.iter().map(|record| match &record.data {
                Data::A(address) => u64::from(address.octets()[3]),
                _ => 0,
            });
            (reply.code(), found.collect::<Vec<_>>())
        };
        let cases: [(&str, u16, Code, &[u64]); 11] = [
            ("db.corp.example", kind::A, Code::NoError, &[4, 5]),
            ("DB.Corp.Example", kind::A, Code::NoError, &[4, 5]),
            ("db.corp.example", kind::AAAA, Code::NoError, &[]),
            ("www.corp.example", kind::A, Code::NoError, &[0, 4, 5]),
            ("out.corp.example", kind::A, Code::NoError, &[0]),
            ("b.corp.example", kind::A, Code::NoError, &[]),
            ("x.apps.corp.example", kind::A, Code::NoError, &[7]),
            ("none.corp.example", kind::A, Code::NxDomain, &[]),
            ("corp.example", kind::A, Code::NoError, &[]),
            ("m1", kind::A, Code::NoError, &[8]),
            ("example.org", kind::A, Code::Refused, &[]),
        ];
        for (name, kind, code, found) in cases {
            assert_eq!(ask(name, kind), (code, found.to_vec()), "{name} {kind}");
        }
    }
}
