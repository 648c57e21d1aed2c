//! The rule set as text for `nft`: all of it, or what changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ipnet::IpNet;

use super::layout::{
    Front, Key, LocalTraffic, NodePortAddresses, Pick, Reach, Settings, Sources, TABLE, Value,
    kind, remembering,
};
use super::ledger::Change;
use super::model::{Family, Protocol};

/// How many elements one command names.
const BATCH: usize = 1000;

/// The whole rule set, in place of whatever is in our table: one transaction, so that no packet sees half of it.
/// Who is bound to which endpoint stays known. `leftovers` are chains of the table as it is.
pub fn full(
    family: Family,
    settings: &Settings,
    content: &[(Key, Value)],
    leftovers: &[String],
) -> String {
    let words = Words::of(family);
    let mut text = skeleton(&words, settings);
    let wanted: Vec<Change> = content
        .iter()
        .map(|(key, value)| added(*key, *value))
        .collect();
    for chain in leftovers.iter().filter(|name| !is_wanted(name, content)) {
        let _ = writeln!(
            text,
            "flush chain {words} {chain}\ndelete chain {words} {chain}"
        );
    }
    text.push_str(&incremental(family, settings, &wanted));
    text
}

/// Takes our table away; no error if it is not there.
pub fn removal(family: Family, table: &str) -> String {
    let family = Words::of(family).family;
    format!("add table {family} {table}\ndelete table {family} {table}\n")
}

fn added(key: Key, value: Value) -> Change {
    Change {
        key,
        before: None,
        after: Some(value),
    }
}

fn is_wanted(chain: &str, content: &[(Key, Value)]) -> bool {
    let is_ours = CHAINS.iter().any(|(name, ..)| *name == chain);
    is_ours
        || content
            .iter()
            .any(|(key, _)| chain_of(key).is_some_and(|name| name == chain))
}

fn chain_of(key: &Key) -> Option<String> {
    match key {
        Key::Picks(pick) => Some(pick.chain()),
        Key::Remembers(seconds) => Some(remembering(*seconds)),
        _ => None,
    }
}

/// What changed, as one transaction: chains come before what leads to them and go after it.
pub fn incremental(family: Family, settings: &Settings, changes: &[Change]) -> String {
    let words = Words::of(family);
    let mut text = String::new();
    for change in changes.iter().filter(|c| c.before.is_none()) {
        chain(&mut text, &words, settings, &change.key);
    }
    let gone = changes.iter().filter_map(|c| Some((c.key, c.before?)));
    elements(&mut text, &words, "delete", gone);
    let come = changes.iter().filter_map(|c| Some((c.key, c.after?)));
    elements(&mut text, &words, "add", come);
    for change in changes.iter().filter(|c| c.after.is_none()) {
        if let Some(name) = chain_of(&change.key) {
            let _ = writeln!(
                text,
                "flush chain {words} {name}\ndelete chain {words} {name}"
            );
        }
    }
    text
}

fn elements(text: &mut String, words: &Words, verb: &str, all: impl Iterator<Item = (Key, Value)>) {
    let mut by_object: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in all {
        if let Some((object, element)) = element(&key, &value) {
            by_object.entry(object).or_default().push(element);
        }
    }
    for (object, elements) in by_object {
        for batch in elements.chunks(BATCH) {
            let list = batch.join(", ");
            let _ = writeln!(text, "{verb} element {words} {object} {{ {list} }}");
        }
    }
}

/// The map or set that a key belongs to, and how it is written there.
fn element(key: &Key, value: &Value) -> Option<(String, String)> {
    let (object, key) = match key {
        Key::Picks(_) | Key::Remembers(_) => return None,
        Key::Dispatch(reach, front) => (dispatch(*reach, is_node(front)), text_of(front)),
        Key::Slot(reach, front, i) => (
            slots(*reach, is_node(front), front.protocol()),
            slot(front, *i),
        ),
        Key::Affinity(front) => (format!("affinity-{}", kind(is_node(front))), text_of(front)),
        Key::Refused(front) => (format!("refused-{}", kind(is_node(front))), text_of(front)),
        Key::Guarded(front) => ("guarded-ips".into(), text_of(front)),
        Key::Admitted(front, net) => ("admitted-ips".into(), format!("{} . {net}", text_of(front))),
        Key::ClusterAddress(ip) => ("cluster-ips".into(), ip.to_string()),
        Key::Hairpin(ip) => ("hairpin".into(), format!("{ip} . {ip}")),
    };
    let value = match value {
        Value::Present => return Some((object, key)),
        Value::Goto(pick) => format!("goto {}", pick.chain()),
        Value::Drop => "drop".into(),
        Value::To(target) => format!("{} . {}", target.address, target.port),
        Value::Remember(seconds) => format!("jump {}", remembering(*seconds)),
    };
    Some((object, format!("{key} : {value}")))
}

fn is_node(front: &Front) -> bool {
    matches!(front, Front::Node(..))
}

fn dispatch(reach: Reach, nodes: bool) -> String {
    let reach = match reach {
        Reach::Cluster => "service",
        Reach::Outside => "outside",
    };
    format!("{reach}-{}", kind(nodes))
}

fn slots(reach: Reach, nodes: bool, protocol: Protocol) -> String {
    format!("{}-{}-slots", dispatch(reach, nodes), protocol.name())
}

fn slot(front: &Front, i: u16) -> String {
    match front {
        Front::Address(ip, _, port) => format!("{ip} . {port} . {i}"),
        Front::Node(_, port) => format!("{port} . {i}"),
    }
}

fn text_of(front: &Front) -> String {
    match front {
        Front::Address(ip, protocol, port) => format!("{ip} . {} . {port}", protocol.name()),
        Front::Node(protocol, port) => format!("{} . {port}", protocol.name()),
    }
}

/// What differs between the families' rules.
struct Words {
    family: &'static str,
    address: &'static str,
    loopback: &'static str,
    is: Family,
}

impl Words {
    fn of(family: Family) -> Words {
        let (name, address, loopback) = match family {
            Family::V4 => ("ip", "ipv4_addr", "127.0.0.0/8"),
            Family::V6 => ("ip6", "ipv6_addr", "::1"),
        };
        Words {
            family: name,
            address,
            loopback,
            is: family,
        }
    }

    // In rules `ip` stands for the family and `ADDRESS` for its type.
    fn rule(&self, rule: &str) -> String {
        match self.is {
            Family::V4 => rule.replace("ADDRESS", self.address),
            Family::V6 => rule
                .replace("ADDRESS", self.address)
                .replace("ip daddr", "ip6 daddr")
                .replace("ip saddr", "ip6 saddr"),
        }
    }
}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {TABLE}", self.family)
    }
}

const FRONT: &str = "ADDRESS . inet_proto . inet_service";
const NODE_FRONT: &str = "inet_proto . inet_service";
/// The packet's front, as a key.
const THIS_FRONT: &str = "ip daddr . meta l4proto . th dport";
const THIS_NODE_FRONT: &str = "meta l4proto . th dport";

/// Maps and sets: `map` or `set`, name, declaration. All are emptied before they are filled.
const OBJECTS: [(&str, &str, &str); 16] = [
    ("set", "cluster-ips", "type ADDRESS;"),
    ("set", "hairpin", "type ADDRESS . ADDRESS;"),
    ("set", "nodeport-ips", "type ADDRESS;"),
    ("set", "service-nets", "type ADDRESS; flags interval;"),
    ("set", "refused-ips", "type FRONT;"),
    ("set", "refused-nodeports", "type NODE_FRONT;"),
    ("set", "guarded-ips", "type FRONT;"),
    (
        "set",
        "admitted-ips",
        "type FRONT . ADDRESS; flags interval;",
    ),
    ("map", "service-ips", "type FRONT : verdict;"),
    ("map", "service-nodeports", "type NODE_FRONT : verdict;"),
    ("map", "outside-ips", "type FRONT : verdict;"),
    ("map", "outside-nodeports", "type NODE_FRONT : verdict;"),
    ("map", "affinity-ips", "type FRONT : verdict;"),
    ("map", "affinity-nodeports", "type NODE_FRONT : verdict;"),
    // Filled by packets, never emptied by us as a whole.
    (
        "map",
        BONDS,
        "type ADDRESS . ADDRESS . inet_proto . inet_service : ADDRESS . inet_service; flags dynamic,timeout; size 262144;",
    ),
    // Its name is the version of all this.
    ("set", "layout-1", "type ADDRESS;"),
];

/// Who is bound to which endpoint: client and front to endpoint, with the time that is left.
pub(super) const BONDS: &str = "bonds";

/// Chains that are always there, with the hook of those that have one.
const CHAINS: [(&str, &str); 16] = [
    ("masquerading", ""),
    ("refusal", ""),
    ("refuse", ""),
    ("guard", ""),
    ("bind", ""),
    ("outside", ""),
    ("services", ""),
    ("guard-prerouting", "filter hook prerouting priority -110"),
    ("guard-output", "filter hook output priority -110"),
    ("nat-prerouting", "nat hook prerouting priority -100"),
    ("nat-output", "nat hook output priority -100"),
    ("refuse-input", "filter hook input priority 0"),
    ("refuse-forward", "filter hook forward priority 0"),
    ("refuse-output", "filter hook output priority 0"),
    ("nat-postrouting", "nat hook postrouting priority 100"),
    ("nat-input", "nat hook input priority 100"),
];

fn skeleton(words: &Words, settings: &Settings) -> String {
    let mut text = format!("add table {words}\n");
    for (what, name, declaration) in OBJECTS {
        let declaration = declaration
            .replace("NODE_FRONT", NODE_FRONT)
            .replace("FRONT", FRONT);
        let declaration = words.rule(&declaration);
        let _ = writeln!(text, "add {what} {words} {name} {{ {declaration} }}");
        if name != BONDS {
            let _ = writeln!(text, "flush {what} {words} {name}");
        }
    }
    for (name, declaration) in slot_maps() {
        let declaration = words.rule(&declaration);
        let _ = writeln!(
            text,
            "add map {words} {name} {{ {declaration} }}\nflush map {words} {name}"
        );
    }
    for (name, hook) in CHAINS {
        let hook = if hook.is_empty() {
            String::new()
        } else {
            format!("{{ type {hook}; }}")
        };
        let _ = writeln!(
            text,
            "add chain {words} {name} {hook}\nflush chain {words} {name}"
        );
    }
    for (chain, rule) in rules(words, settings) {
        let _ = writeln!(text, "add rule {words} {chain} {}", words.rule(&rule));
    }
    own_addresses(&mut text, words, settings);
    text
}

// The type of a number that is drawn cannot be written, only that it is like one.
fn slot_maps() -> Vec<(String, String)> {
    let mut maps = Vec::new();
    for (reach, nodes) in [Reach::Cluster, Reach::Outside]
        .into_iter()
        .flat_map(|r| [(r, false), (r, true)])
    {
        for protocol in Protocol::ALL {
            let (name, address) = (protocol.name(), if nodes { "" } else { "ip daddr . " });
            let key = format!("{address}{name} dport . numgen inc mod 65536");
            maps.push((
                slots(reach, nodes, protocol),
                format!("typeof {key} : ip daddr . {name} dport;"),
            ));
        }
    }
    maps
}

fn own_addresses(text: &mut String, words: &Words, settings: &Settings) {
    let nets = settings
        .service_nets
        .iter()
        .filter(|net| Family::of_net(net) == words.is);
    for net in IpNet::aggregate(&nets.copied().collect()) {
        let _ = writeln!(text, "add element {words} service-nets {{ {net} }}");
    }
    if let NodePortAddresses::Some(ips) = &settings.node_ports {
        for ip in ips.iter().filter(|ip| Family::of(**ip) == words.is) {
            let _ = writeln!(text, "add element {words} nodeport-ips {{ {ip} }}");
        }
    }
}

fn rules(words: &Words, settings: &Settings) -> Vec<(&'static str, String)> {
    let to_node = match settings.node_ports {
        NodePortAddresses::Some(_) => "ip daddr @nodeport-ips".to_owned(),
        NodePortAddresses::All => format!("fib daddr type local ip daddr != {}", words.loopback),
    };
    let not_pods = not_pods(words, settings).unwrap_or_default();
    let mark = settings.masquerade_mark;
    let mut rules = vec![
        (
            "masquerading",
            "ct status dnat ip saddr . ip daddr @hairpin masquerade fully-random".into(),
        ),
        ("masquerading", format!("meta mark & {mark:#x} == 0 return")),
        (
            "masquerading",
            format!("meta mark set meta mark ^ {mark:#x}"),
        ),
        ("masquerading", "masquerade fully-random".into()),
        (
            "guard",
            format!("{THIS_FRONT} @guarded-ips {THIS_FRONT} . ip saddr != @admitted-ips drop"),
        ),
        // A reset is not rationed, as ICMP messages are.
        ("refusal", "meta l4proto tcp reject with tcp reset".into()),
        ("refusal", "reject".into()),
        ("refuse", format!("{THIS_FRONT} @refused-ips goto refusal")),
        ("outside", format!("{THIS_FRONT} vmap @outside-ips")),
        (
            "outside",
            format!("{to_node} {THIS_NODE_FRONT} vmap @outside-nodeports"),
        ),
        (
            "services",
            format!("{not_pods} fib saddr type != local jump outside"),
        ),
        ("services", format!("{THIS_FRONT} vmap @service-ips")),
        (
            "services",
            format!("{to_node} {THIS_NODE_FRONT} vmap @service-nodeports"),
        ),
        ("guard-prerouting", "ct state new jump guard".into()),
        ("guard-output", "ct state new jump guard".into()),
        ("nat-prerouting", "jump services".into()),
        ("nat-output", "jump services".into()),
        ("refuse-input", "ct state new jump refuse".into()),
        (
            "refuse-input",
            format!("ct state new {to_node} {THIS_NODE_FRONT} @refused-nodeports goto refusal"),
        ),
        ("nat-postrouting", "ct status dnat jump bind".into()),
        ("nat-postrouting", "jump masquerading".into()),
        ("nat-input", "ct status dnat jump bind".into()),
    ];
    for chain in ["refuse-forward", "refuse-output"] {
        rules.push((chain, "ct state new jump refuse".into()));
        rules.push((
            chain,
            "ct state new ip daddr @cluster-ips goto refusal".into(),
        ));
        rules.push((chain, "ct state new ip daddr @service-nets drop".into()));
    }
    // The type of a port before translation is known only behind a named transport.
    for protocol in Protocol::ALL.map(Protocol::name) {
        let original = "meta l4proto . ct original proto-dst";
        let family = words.family;
        rules.push((
            "bind",
            format!(
                "meta l4proto {protocol} ct original {family} daddr . {original} vmap @affinity-ips"
            ),
        ));
        rules.push(("bind", format!("meta l4proto {protocol} ct original {family} daddr != @cluster-ips {original} vmap @affinity-nodeports")));
    }
    rules
}

// What tells packets that are not from pods; nothing where nobody can tell.
fn not_pods(words: &Words, settings: &Settings) -> Option<String> {
    match &settings.local_traffic {
        LocalTraffic::Unknown => None,
        LocalTraffic::Bridge(name) => Some(format!("meta iifname != {name:?}")),
        LocalTraffic::Prefix(prefix) => Some(format!("meta iifname != \"{prefix}*\"")),
        LocalTraffic::Nets(nets) => {
            let nets = nets.iter().filter(|net| Family::of_net(net) == words.is);
            let nets: Vec<String> = nets.map(ToString::to_string).collect();
            (!nets.is_empty()).then(|| format!("ip saddr != {{ {} }}", nets.join(", ")))
        }
    }
}

fn chain(text: &mut String, words: &Words, settings: &Settings, key: &Key) {
    let (name, rules) = match key {
        Key::Picks(pick) => (pick.chain(), picking(words, settings, pick)),
        Key::Remembers(seconds) => (remembering(*seconds), remembering_rules(words, *seconds)),
        _ => return,
    };
    let _ = writeln!(text, "add chain {words} {name}\nflush chain {words} {name}");
    for rule in rules {
        let _ = writeln!(text, "add rule {words} {name} {}", words.rule(&rule));
    }
}

fn picking(words: &Words, settings: &Settings, pick: &Pick) -> Vec<String> {
    let mark = format!("meta mark set meta mark | {:#x}", settings.masquerade_mark);
    let marking = match pick.sources {
        Sources::Internal if settings.masquerade_all => Some(mark),
        Sources::Internal => not_pods(words, settings).map(|those| format!("{those} {mark}")),
        Sources::Always => Some(mark),
        Sources::Node => Some(format!("fib saddr type local {mark}")),
        Sources::Kept => None,
    };
    let mut rules: Vec<String> = marking.into_iter().collect();
    if pick.sticky {
        rules.push(format!("dnat to ip saddr . {THIS_FRONT} map @{BONDS}"));
    }
    let address = if pick.nodes { "" } else { "ip daddr . " };
    let slots = slots(pick.reach(), pick.nodes, pick.protocol);
    let (protocol, of) = (pick.protocol.name(), pick.of);
    rules.push(format!(
        "dnat to {address}{protocol} dport . numgen random mod {of} map @{slots}"
    ));
    rules
}

fn remembering_rules(words: &Words, seconds: u32) -> Vec<String> {
    // nft 1.0.6 cannot write this rule for IPv6: it runs out of registers and aborts.
    if words.is == Family::V6 {
        return Vec::new();
    }
    let family = words.family;
    let rule = |protocol: &str| {
        format!(
            "meta l4proto {protocol} update @{BONDS} {{ ct original {family} saddr . ct original {family} daddr \
             . meta l4proto . ct original proto-dst timeout {seconds}s : ip daddr . th dport }}"
        )
    };
    Protocol::ALL.map(|protocol| rule(protocol.name())).into()
}
