//! Rules as netfilter's messages: a batch that takes effect as a whole or not at all.

use std::io;

use ipnet::IpNet;
use rustix::io::Errno;

use super::{CHAINS, Rule, Table, Test, Verdict};
use crate::conf::Protocol;
use crate::links::octets;
use crate::netlink::{ACK, Attributes, CREATE, Message, Socket, attributes, text};

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = 0;
const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const APPEND: u16 = 0x800;

const TABLE_NAME: u16 = 1;
const TABLE_USERDATA: u16 = 6;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;

const FIRST: u32 = 1;
const SECOND: u32 = 2;
const EQUAL: u32 = 0;
const UNEQUAL: u32 = 1;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const META_LINK_IN: u32 = 4;
const META_PROTOCOL: u32 = 16;
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_DESTINATION: u32 = 2;
const LOCAL: u32 = 2;
const LOOPBACK: u32 = 1;
const DROP: i32 = 0;
const RETURN: i32 = -5;
const DESTINATION_NAT: u32 = 1;
const FULLY_RANDOM: u32 = 1 << 4;

fn family(table: &Table) -> u8 {
    if table.is_4 { 2 } else { 10 }
}

fn message(table: &Table, kind: u16, flags: u16, attributes: Attributes) -> Message {
    let header = [family(table), 0, 0, 0];
    Message::new(NFTABLES << 8 | kind, flags, &header, attributes)
}

/// The comment of a table that is there.
pub(super) fn mark(socket: &Socket, table: &Table) -> io::Result<Option<String>> {
    let name = Attributes::default().text(TABLE_NAME, &table.name);
    let body = match socket.get(&message(table, GET_TABLE, 0, name)) {
        Ok(body) => body,
        Err(e) if e.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(None),
        Err(e) => return Err(e),
    };
    let found = attributes(&body, 4);
    let comment = found.iter().find(|(kind, _)| *kind == TABLE_USERDATA);
    let comment = comment.and_then(|(_, value)| value.get(2..)).map(text);
    Ok(Some(comment.unwrap_or_default()))
}

/// Takes a table away.
pub(super) fn removal(table: &Table) -> Vec<Message> {
    let name = Attributes::default().text(TABLE_NAME, &table.name);
    batch(vec![message(table, DELETE_TABLE, ACK, name)])
}

/// Puts a table with these rules in the place of what is there.
pub(super) fn replacement(table: &Table, rules: &[Rule], mark: &str) -> Vec<Message> {
    let name = || Attributes::default().text(TABLE_NAME, &table.name);
    // A comment as `nft` writes and shows it: a kind, a length, a text with its zero.
    let length = u8::try_from(mark.len() + 1).expect("marks are short");
    let comment = [&[0, length], mark.as_bytes(), &[0]].concat();
    let mut messages = vec![
        message(table, NEW_TABLE, CREATE | ACK, name()),
        message(table, DELETE_TABLE, ACK, name()),
        message(
            table,
            NEW_TABLE,
            CREATE | ACK,
            name().put(TABLE_USERDATA, comment),
        ),
    ];
    for (chain, name, kind, hook, priority) in CHAINS {
        let mut of_chain = rules.iter().filter(|rule| rule.chain == chain).peekable();
        if of_chain.peek().is_none() {
            continue;
        }
        let hook = Attributes::default()
            .network_number(1, hook)
            .network_number(2, priority.cast_unsigned());
        let attributes = Attributes::default()
            .text(CHAIN_TABLE, &table.name)
            .text(CHAIN_NAME, name)
            .nest(CHAIN_HOOK, hook)
            .text(CHAIN_TYPE, kind);
        messages.push(message(table, NEW_CHAIN, CREATE | ACK, attributes));
        messages.extend(of_chain.map(|rule| {
            let attributes = Attributes::default()
                .text(RULE_TABLE, &table.name)
                .text(RULE_CHAIN, name)
                .nest(RULE_EXPRESSIONS, expressions(table, rule));
            message(table, NEW_RULE, CREATE | APPEND | ACK, attributes)
        }));
    }
    batch(messages)
}

fn batch(mut messages: Vec<Message>) -> Vec<Message> {
    let [high, low] = NFTABLES.to_be_bytes();
    let bound = |kind| Message::new(kind, 0, &[0, 0, high, low], Attributes::default());
    messages.insert(0, bound(BATCH_BEGIN));
    messages.push(bound(BATCH_END));
    messages
}

fn expressions(table: &Table, rule: &Rule) -> Attributes {
    let tests = rule.tests.iter().flat_map(|test| look(table, *test));
    tests
        .chain(act(table, rule.verdict))
        .fold(Attributes::default(), |all, (name, data)| {
            let expression = Attributes::default().text(1, name).nest(2, data);
            all.nest(1, expression)
        })
}

type Expression = (&'static str, Attributes);

// Offsets of sender and receiver in the header of a packet.
fn look(table: &Table, test: Test) -> Vec<Expression> {
    let (from, to, length) = if table.is_4 { (12, 16, 4) } else { (8, 24, 16) };
    match test {
        Test::From(net) => address(from, length, net),
        Test::To(net) => address(to, length, net),
        Test::ToThisNode => vec![
            numbers("fib", &[FIRST, FIB_ADDRESS_TYPE, FIB_DESTINATION]),
            compare(EQUAL, &LOCAL.to_ne_bytes()),
        ],
        Test::ByCable => vec![
            numbers("meta", &[FIRST, META_LINK_IN]),
            compare(UNEQUAL, &LOOPBACK.to_ne_bytes()),
        ],
        Test::Port(protocol, port) => vec![
            numbers("meta", &[FIRST, META_PROTOCOL]),
            compare(EQUAL, &[protocol_number(protocol)]),
            numbers("payload", &[FIRST, TRANSPORT_HEADER, 2, 2]),
            compare(EQUAL, &port.to_be_bytes()),
        ],
    }
}

fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

fn address(offset: u32, length: u32, net: IpNet) -> Vec<Expression> {
    if net.prefix_len() == 0 {
        return Vec::new();
    }
    let load = numbers("payload", &[FIRST, NETWORK_HEADER, offset, length]);
    let wanted = compare(EQUAL, &octets(net.network()));
    if net.prefix_len() == net.max_prefix_len() {
        return vec![load, wanted];
    }
    let mask = octets(net.netmask());
    let nothing = vec![0; mask.len()];
    let bitwise = Attributes::default()
        .network_number(1, FIRST)
        .network_number(2, FIRST)
        .network_number(3, length)
        .nest(4, value(&mask))
        .nest(5, value(&nothing));
    vec![load, ("bitwise", bitwise), wanted]
}

// Expressions whose attributes are numbers, in the order of their kinds.
fn numbers(name: &'static str, values: &[u32]) -> Expression {
    let data = (1..)
        .zip(values)
        .fold(Attributes::default(), |all, (kind, value)| {
            all.network_number(kind, *value)
        });
    (name, data)
}

fn compare(operator: u32, wanted: &[u8]) -> Expression {
    let data = Attributes::default()
        .network_number(1, FIRST)
        .network_number(2, operator)
        .nest(3, value(wanted));
    ("cmp", data)
}

fn value(bytes: &[u8]) -> Attributes {
    Attributes::default().put(1, bytes)
}

fn act(table: &Table, verdict: Verdict) -> Vec<Expression> {
    let register = |number, bytes: &[u8]| {
        let data = Attributes::default()
            .network_number(1, number)
            .nest(2, value(bytes));
        ("immediate", data)
    };
    match verdict {
        Verdict::Leave => vec![end(RETURN)],
        Verdict::Drop => vec![end(DROP)],
        Verdict::Masquerade => vec![numbers("masq", &[FULLY_RANDOM])],
        Verdict::Lead(to, port) => vec![
            register(FIRST, &octets(to)),
            register(SECOND, &port.to_be_bytes()),
            numbers(
                "nat",
                &[
                    DESTINATION_NAT,
                    u32::from(family(table)),
                    FIRST,
                    FIRST,
                    SECOND,
                    SECOND,
                ],
            ),
        ],
    }
}

fn end(code: i32) -> Expression {
    let verdict = Attributes::default().network_number(1, code.cast_unsigned());
    let data = Attributes::default()
        .network_number(1, 0)
        .nest(2, Attributes::default().nest(2, verdict));
    ("immediate", data)
}
