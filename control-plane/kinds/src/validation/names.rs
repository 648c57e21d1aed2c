//! Names and other short texts: which spellings are allowed, and what to say when one is not.
//!
//! Every function returns the complaints about a value, none when it is fine. The rules and words
//! are those of `apimachinery/pkg/util/validation` and `apimachinery/pkg/api/validate/content`; the
//! regular expressions only appear in the messages, the checks themselves are plain byte tests
//! because every label of every object passes through them.

use std::net::IpAddr;
use std::str::FromStr;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// A rule for texts: the complaints about one.
pub type Rule = fn(&str) -> Vec<String>;

/// Longest DNS label and label value.
pub const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

/// `must be between LOW and HIGH, inclusive`, or nothing.
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    complain_unless((low..=high).contains(&value), || {
        format!("must be between {low} and {high}, inclusive")
    })
}

/// A port number that is not zero.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A Unix user or group number.
pub fn user_id(id: i64) -> Vec<String> {
    in_range(id, 0, i64::from(i32::MAX))
}

/// A DNS label: lower-case letters, digits and inner dashes, 63 at most.
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = at_most(value, LABEL_MAX);
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            with_format(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FORMAT,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// DNS labels joined by dots, 253 characters at most.
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = at_most(value, SUBDOMAIN_MAX);
    if !is_subdomain(value) {
        errors.push(with_format(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN_FORMAT,
            &["example.com"],
        ));
    }
    errors
}

/// A subdomain whose labels may hold underscores: what resolvers accept as a search domain.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut errors = at_most(value, SUBDOMAIN_MAX);
    if !value.split('.').all(is_label_with_underscore) {
        errors.push(with_format(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

/// A subdomain in any letter case, as CSI drivers may be called.
pub fn dns1123_subdomain_caseless(value: &str) -> Vec<String> {
    let mut errors = at_most_bytes(value, SUBDOMAIN_MAX);
    if !is_subdomain(&value.to_ascii_lowercase()) {
        errors.push(with_format(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN_FORMAT,
            &["Example.com"],
        ));
    }
    errors
}

/// A DNS label that starts with a letter.
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = at_most(value, LABEL_MAX);
    if !(is_label(value) && value.starts_with(|c: char| c.is_ascii_lowercase())) {
        errors.push(with_format(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// `*.` and a subdomain, as hosts of an Ingress may be.
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut errors = at_most(value, SUBDOMAIN_MAX);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(with_format(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN_FORMAT}"),
            &["*.example.com"],
        ));
    }
    errors
}

/// A label key, also called a qualified name: an optional `subdomain/` and a name of 63 at most.
pub fn qualified_name(value: &str) -> Vec<String> {
    let (mut errors, name) = match value.split('/').collect::<Vec<_>>()[..] {
        [name] => (Vec::new(), name),
        [prefix, name] => (qualified_prefix(prefix), name),
        _ => {
            let form = with_format(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "a valid label key {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    errors.extend(
        at_most_bytes(name, LABEL_MAX)
            .into_iter()
            .map(|e| format!("name part {e}")),
    );
    if !is_key(name) {
        let form = with_format(KEY_RULE, KEY_FORMAT, &["MyName", "my.name", "123-abc"]);
        errors.push(format!("name part {form}"));
    }
    errors
}

fn qualified_prefix(prefix: &str) -> Vec<String> {
    if prefix.is_empty() {
        return vec!["prefix part must be non-empty".to_owned()];
    }
    let mut errors = at_most_bytes(prefix, SUBDOMAIN_MAX);
    if !is_subdomain(prefix) {
        errors.extend(dns1123_subdomain(prefix).pop());
    }
    errors
        .into_iter()
        .map(|e| format!("prefix part {e}"))
        .collect()
}

/// A label value: empty, or letters, digits and inner `-_.`, 63 at most.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = at_most_bytes(value, LABEL_MAX);
    if !value.is_empty() && !is_key(value) {
        errors.push(with_format(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// A name that can stand as one segment of a URL path.
pub fn path_segment(value: &str) -> Vec<String> {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

/// The beginning of a path segment.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    let found = ['/', '%'].into_iter().filter(|c| value.contains(*c));
    found.map(|c| format!("may not contain '{c}'")).collect()
}

/// The name of a container or service port: an IANA service name.
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = at_most(value, 15);
    let mut complain = |wrong: bool, message: &str| {
        if wrong {
            errors.push(message.to_owned());
        }
    };
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    complain(
        value.is_empty() || !value.bytes().all(allowed),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    complain(
        !value.bytes().any(|b| b.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    complain(value.contains("--"), "must not contain consecutive hyphens");
    complain(
        value.starts_with('-') || value.ends_with('-'),
        "must not begin or end with a hyphen",
    );
    errors
}

/// A C identifier.
pub fn c_identifier(value: &str) -> Vec<String> {
    let body = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fine = value.bytes().all(body) && value.starts_with(|c: char| !c.is_ascii_digit());
    complain_unless(fine, || {
        with_format(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            &["my_name", "MY_NAME", "MyName"],
        )
    })
}

/// The name of an environment variable: printable ASCII without `=` (the relaxed rule of 1.34).
pub fn env_var_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if !value.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        errors.push("a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned());
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = at_most(value, SUBDOMAIN_MAX);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(allowed) {
        errors.push(with_format(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." | ".." => errors.push(format!("must not be '{value}'")),
        _ if value.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of an HTTP header.
pub fn http_header_name(value: &str) -> Vec<String> {
    let fine = !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    complain_unless(fine, || {
        with_format(
            "a valid HTTP header must consist of alphanumeric characters or '-'",
            "[-A-Za-z0-9]+",
            &["X-Header-Name"],
        )
    })
}

/// Digits and a percent sign.
pub fn percent(value: &str) -> Vec<String> {
    let fine = value
        .strip_suffix('%')
        .is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
    complain_unless(fine, || {
        with_format(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )
    })
}

/// An IP address of a field older than the strict rules: any spelling, but unambiguous.
pub fn ip(value: &str) -> Vec<String> {
    let Some((address, has_leading_zeros)) = parse_ip(value) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    let mut errors = Vec::new();
    if has_leading_zeros {
        errors.push("must not have leading 0s".to_owned());
    } else if is_mapped(address) {
        errors.push("must not be an IPv4-mapped IPv6 address".to_owned());
    }
    errors
}

/// An IP address in its one canonical spelling.
pub fn canonical_ip(value: &str) -> Vec<String> {
    let errors = ip(value);
    match parse_ip(value) {
        Some((address, _)) if errors.is_empty() && address.to_string() != value => {
            vec![format!(
                "must be in canonical form ({:?})",
                address.to_string()
            )]
        }
        _ => errors,
    }
}

/// A network of a field older than the strict rules: any spelling, but no host bits.
pub fn cidr(value: &str) -> Vec<String> {
    let complaint = match parse_cidr(value) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some(Cidr {
            has_leading_zeros: true,
            ..
        }) => "must not have leading 0s in IP or prefix length",
        Some(cidr) if is_mapped(cidr.address) => "must not have an IPv4-mapped IPv6 address",
        Some(cidr) if cidr.net.trunc().addr() != cidr.address => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return Vec::new(),
    };
    vec![complaint.to_owned()]
}

/// A network in its one canonical spelling.
pub fn canonical_cidr(value: &str) -> Vec<String> {
    let errors = cidr(value);
    match parse_cidr(value) {
        Some(cidr) if errors.is_empty() && cidr.net.to_string() != value => {
            vec![format!(
                "must be in canonical form ({:?})",
                cidr.net.to_string()
            )]
        }
        _ => errors,
    }
}

/// Whether the address is IPv6 once IPv4-mapped forms are counted as IPv4; `None` when it is none.
pub fn is_ipv6(value: &str) -> Option<bool> {
    parse_ip(value).map(|(address, _)| address.to_canonical().is_ipv6())
}

/// The address, leading zeros of IPv4 parts ignored as upstream does.
pub fn sloppy_ip(value: &str) -> Option<IpAddr> {
    parse_ip(value).map(|(address, _)| address.to_canonical())
}

/// The network, without its host bits, leading zeros ignored as upstream does.
pub fn sloppy_cidr(value: &str) -> Option<ipnet::IpNet> {
    parse_cidr(value).map(|cidr| cidr.net.trunc())
}

/// `group/version`, `resource.group` and the like: the part before the slash is a subdomain, the
/// rest consists of characters of an HTTP path. Returns `(offending part, complaint)`.
pub fn domain_prefixed_path(value: &str) -> Vec<(String, String)> {
    let (host, path) = match value.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => {
            let complaint = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![(value.to_owned(), complaint.to_owned())];
        }
    };
    let mut errors: Vec<_> = dns1123_subdomain(host)
        .into_iter()
        .map(|e| (host.to_owned(), e))
        .collect();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !path.bytes().all(allowed) {
        let complaint = with_format("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push((path.to_owned(), complaint));
    }
    errors
}

/// A subdomain of at least three parts, as webhooks are called.
pub fn fully_qualified_name(value: &str) -> Vec<String> {
    let errors = dns1123_subdomain(value);
    if !errors.is_empty() {
        return vec![errors.join(",")];
    }
    complain_unless(value.split('.').count() >= 3, || {
        "should be a domain with at least three segments separated by dots".to_owned()
    })
}

/// A subdomain of at least two parts; a closing dot is fine.
pub fn fully_qualified_domain_name(value: &str) -> Vec<String> {
    let name = value.strip_suffix('.').unwrap_or(value);
    let errors = dns1123_subdomain(name);
    if !errors.is_empty() {
        return vec![errors.join(",")];
    }
    if name.split('.').count() < 2 {
        return vec!["should be a domain with at least two segments separated by dots".to_owned()];
    }
    let bad = name.split('.').map(dns1123_label).find(|e| !e.is_empty());
    bad.map(|errors| errors.join(",")).into_iter().collect()
}

/// The message of a broken pattern: the rule, examples, and the pattern itself.
pub fn with_format(rule: &str, format: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{format}')");
    }
    let examples: Vec<_> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{format}')",
        examples.join(" or ")
    )
}

fn complain_unless(fine: bool, complaint: impl FnOnce() -> String) -> Vec<String> {
    if fine { Vec::new() } else { vec![complaint()] }
}

// The two texts differ upstream: older rules count "characters", newer ones "bytes"; both mean bytes.
fn at_most(value: &str, max: usize) -> Vec<String> {
    complain_unless(value.len() <= max, || {
        format!("must be no more than {max} characters")
    })
}

fn at_most_bytes(value: &str, max: usize) -> Vec<String> {
    complain_unless(value.len() <= max, || {
        format!("must be no more than {max} bytes")
    })
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

// First and last byte obey `edge`, everything between `edge` or `inner`.
fn is_shaped(value: &str, edge: fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    edge(*first) && edge(*last) && bytes.iter().all(|b| edge(*b) || inner.contains(b))
}

fn is_label(value: &str) -> bool {
    is_shaped(value, is_lower_alphanumeric, b"-")
}

fn is_label_with_underscore(value: &str) -> bool {
    is_shaped(
        value.strip_prefix('_').unwrap_or(value),
        is_lower_alphanumeric,
        b"-_",
    )
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_key(value: &str) -> bool {
    is_shaped(value, |b| b.is_ascii_alphanumeric(), b"-_.")
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

// The address, and whether IPv4 parts had leading zeros (which older API servers let pass).
fn parse_ip(value: &str) -> Option<(IpAddr, bool)> {
    if let Ok(address) = IpAddr::from_str(value) {
        return Some((address, false));
    }
    let (head, dotted) = match value.rfind(':') {
        Some(colon) => value.split_at(colon + 1),
        None => ("", value),
    };
    let parts: Vec<_> = dotted.split('.').map(without_leading_zeros).collect();
    let address = IpAddr::from_str(&format!("{head}{}", parts.join("."))).ok()?;
    dotted.contains('.').then_some((address, true))
}

fn without_leading_zeros(digits: &str) -> &str {
    match digits.trim_start_matches('0') {
        "" if !digits.is_empty() => "0",
        trimmed => trimmed,
    }
}

struct Cidr {
    address: IpAddr,
    net: ipnet::IpNet,
    has_leading_zeros: bool,
}

fn parse_cidr(value: &str) -> Option<Cidr> {
    let (address, length) = value.split_once('/')?;
    let (address, zeros_in_ip) = parse_ip(address)?;
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let trimmed = without_leading_zeros(length);
    let net = ipnet::IpNet::new(address, trimmed.parse().ok()?).ok()?;
    Some(Cidr {
        address,
        net,
        has_leading_zeros: zeros_in_ip || trimmed != length,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    // Rule, values it takes, values it refuses with a part of the complaint.
    type Case = (
        Rule,
        &'static [&'static str],
        &'static [(&'static str, &'static str)],
    );

    const CASES: &[Case] = &[
        (
            dns1123_label,
            &["a", "0", "my-name", "123-abc"],
            &[
                ("", "a lowercase RFC 1123 label must consist of"),
                (
                    "A",
                    "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                ),
                ("a.b", "must not contain dots"),
                ("-a", "a lowercase RFC 1123 label"),
                ("a-", "a lowercase RFC 1123 label"),
                ("a_b", "a lowercase RFC 1123 label"),
            ],
        ),
        (
            dns1123_subdomain,
            &["a", "example.com", "a-b.c0"],
            &[
                ("a..b", "(e.g. 'example.com', regex"),
                ("A", "lowercase RFC 1123 subdomain"),
                ("a.", ""),
            ],
        ),
        (
            dns1123_subdomain_with_underscore,
            &["_sip.example.com", "a_b.c"],
            &[("__a", "'_', '-' or '.'"), ("a_", "")],
        ),
        (
            dns1123_subdomain_caseless,
            &["Example.COM"],
            &[("a b", "an RFC 1123 subdomain must")],
        ),
        (
            dns1035_label,
            &["a1", "abc-123"],
            &[("1a", "a DNS-1035 label must"), ("", ""), ("a.b", "")],
        ),
        (
            wildcard_subdomain,
            &["*.example.com"],
            &[
                ("*", "must start with '*.'"),
                ("*.*.com", ""),
                ("a.com", ""),
            ],
        ),
        (
            qualified_name,
            &["a", "example.com/A_b.c", "A"],
            &[
                ("", "name part must be non-empty"),
                ("/a", "prefix part must be non-empty"),
                ("A.com/a", "prefix part a lowercase RFC 1123 subdomain"),
                (
                    "a/b/c",
                    "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                ),
                ("-a", "name part must consist of alphanumeric characters"),
            ],
        ),
        (
            label_value,
            &["", "a", "A_b.c-1"],
            &[
                ("-a", "a valid label must be an empty string"),
                ("a b", "'my_value',  or '12345'"),
            ],
        ),
        (
            path_segment,
            &["system:node", "a b", ""],
            &[
                (".", "may not be '.'"),
                ("a/b", "may not contain '/'"),
                ("%", "may not contain '%'"),
            ],
        ),
        (
            port_name,
            &["http", "a-1", "0a"],
            &[
                ("", "must contain at least one letter (a-z)"),
                ("80", "must contain at least one letter (a-z)"),
                ("a--b", "must not contain consecutive hyphens"),
                ("-a", "must not begin or end with a hyphen"),
                (
                    "HTTP",
                    "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
                ),
                ("abcdefghijklmnop", "must be no more than 15 characters"),
            ],
        ),
        (
            c_identifier,
            &["_a1", "A"],
            &[("1a", "a valid C identifier"), ("", ""), ("a-b", "")],
        ),
        (
            env_var_name,
            &["A B", "1.a-b", "~"],
            &[
                ("", "environment variable name must be non-empty"),
                ("a=b", "other than '='"),
                ("ä", ""),
            ],
        ),
        (
            config_map_key,
            &["a", ".a", "A-_.", "a..b"],
            &[
                ("", "a valid config key must"),
                (".", "must not be '.'"),
                ("..", "must not be '..'"),
                ("..a", "must not start with '..'"),
                ("a/b", ""),
            ],
        ),
        (
            http_header_name,
            &["X-A1"],
            &[("", "a valid HTTP header"), ("a b", "")],
        ),
        (
            percent,
            &["1%", "100%"],
            &[("%", "a valid percent string"), ("1", ""), ("a%", "")],
        ),
        (
            ip,
            &["10.0.0.1", "2001:db8::1", "FE80:0:0:0:0:0:0:0abc"],
            &[
                (
                    "",
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ),
                ("10.0.0", "must be a valid IP address"),
                ("fe80::1%eth0", "must be a valid IP address"),
                ("010.0.0.1", "must not have leading 0s"),
                ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ],
        ),
        (
            canonical_ip,
            &["10.0.0.1", "fe80::abc"],
            &[
                ("FE80::0abc", "must be in canonical form (\"fe80::abc\")"),
                ("x", "valid IP"),
            ],
        ),
        (
            cidr,
            &["10.0.0.0/8", "2001:db8::/64", "0.0.0.0/0"],
            &[
                (
                    "10.0.0.0",
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ),
                ("10.0.0.0/33", "must be a valid CIDR value"),
                (
                    "10.0.0.0/08",
                    "must not have leading 0s in IP or prefix length",
                ),
                (
                    "::ffff:10.0.0.0/104",
                    "must not have an IPv4-mapped IPv6 address",
                ),
                (
                    "10.0.0.1/8",
                    "must not have bits set beyond the prefix length",
                ),
            ],
        ),
        (
            canonical_cidr,
            &["10.0.0.0/8"],
            &[("FE80::/64", "must be in canonical form (\"fe80::/64\")")],
        ),
        (
            fully_qualified_name,
            &["a.b.c"],
            &[("a.b", "at least three segments"), ("A.b.c", "lowercase")],
        ),
        (
            fully_qualified_domain_name,
            &["a.b", "a.b."],
            &[("a", "at least two segments")],
        ),
    ];

    #[test]
    fn each_rule_takes_and_refuses() {
        for (rule, good, bad) in CASES {
            for value in *good {
                assert_eq!(rule(value), Vec::<String>::new(), "{value:?}");
            }
            for (value, part) in *bad {
                let errors = rule(value);
                assert!(
                    errors.iter().any(|e| e.contains(part)),
                    "{value:?}: {errors:?}"
                );
            }
        }
    }

    #[test]
    fn lengths_are_limited() {
        for (rule, max) in [
            (dns1123_label as Rule, 63),
            (dns1035_label, 63),
            (dns1123_subdomain, 253),
            (label_value, 63),
            (config_map_key, 253),
            (qualified_name, 63),
        ] {
            assert_eq!(rule(&"a".repeat(max)), Vec::<String>::new());
            assert!(rule(&"a".repeat(max + 1))[0].contains(&format!("no more than {max}")));
        }
    }

    #[test]
    fn numbers_are_ranged() {
        assert!(port_number(1).is_empty() && port_number(65535).is_empty());
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert_eq!(user_id(-1), ["must be between 0 and 2147483647, inclusive"]);
    }

    #[test]
    fn domain_prefixed_paths_have_both_parts() {
        assert!(domain_prefixed_path("acme.io/foo").is_empty());
        for value in ["foo", "/foo", "acme.io/", "Acme.io/foo", "acme.io/f o"] {
            assert_eq!(domain_prefixed_path(value).len(), 1, "{value}");
        }
    }

    #[test]
    fn mapped_addresses_count_as_ipv4() {
        assert_eq!(is_ipv6("::ffff:1.2.3.4"), Some(false));
        assert_eq!(is_ipv6("::1"), Some(true));
        assert_eq!(is_ipv6("nope"), None);
        assert_eq!(sloppy_ip("010.0.0.1").unwrap().to_string(), "10.0.0.1");
        assert_eq!(
            sloppy_cidr("10.0.0.9/08").unwrap().to_string(),
            "10.0.0.0/8"
        );
    }
}
