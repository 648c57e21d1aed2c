//! What things are called in Azure. The names are a contract: whoever takes over from upstream's manager finds its
//! resources, and the other way round.

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: &std::net::IpAddr) -> Family {
        match address {
            std::net::IpAddr::V4(_) => Family::V4,
            std::net::IpAddr::V6(_) => Family::V6,
        }
    }

    /// As Azure calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// What names of things for the sixth version end in; only where a service has both.
    fn suffix(self, is_dual: bool) -> &'static str {
        match (self, is_dual) {
            (Family::V6, true) => "-IPv6",
            _ => "",
        }
    }
}

/// What everything of a service begins with.
pub(crate) fn base(uid: &str) -> String {
    let name: String = format!("a{}", uid.replace('-', ""));
    name.chars().take(32).collect()
}

/// At most so long, with a last letter that Azure takes.
fn cut(name: String, longest: usize) -> String {
    if name.len() <= longest {
        return name;
    }
    let mut name: String = name.chars().take(longest).collect();
    if name.ends_with(|c: char| !c.is_ascii_alphanumeric()) {
        name.pop();
        name.push('_');
    }
    name
}

/// A service's names.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) base: String,
    /// The subnet that the service asks for by name.
    pub(crate) subnet: Option<String>,
    pub(crate) is_dual: bool,
}

impl Names {
    fn stem(&self) -> String {
        match &self.subnet {
            Some(subnet) => format!("{}-{subnet}", self.base),
            None => self.base.clone(),
        }
    }

    pub(crate) fn frontend(&self, family: Family) -> String {
        cut(self.stem(), 75) + family.suffix(self.is_dual)
    }

    /// A rule and its probe.
    pub(crate) fn rule(&self, protocol: &str, port: i32, family: Family) -> String {
        let name = format!("{}-{protocol}-{port}", self.stem());
        let suffix = family.suffix(self.is_dual);
        cut(name, 80 - suffix.len()) + suffix
    }

    pub(crate) fn public_ip(&self, cluster: &str, prefix: &str, family: Family) -> String {
        let mut name = format!("{cluster}-{}", self.base);
        // The last word of the range's id.
        if let Some(range) = prefix.rsplit('/').next().filter(|range| !range.is_empty()) {
            name += &format!("-{range}");
        }
        cut(name, 75) + family.suffix(self.is_dual)
    }
}

/// The pool of a family; that of the sixth version always says so.
pub(crate) fn pool(cluster: &str, family: Family) -> String {
    format!("{cluster}{}", family.suffix(true))
}

/// The rule that lets traffic in.
pub(crate) fn allow(
    family: Family,
    protocol: &str,
    sources: &[String],
    ports: &[String],
) -> String {
    let text = format!("{protocol}_{}_{}", sources.join(","), ports.join(","));
    format!("{ALLOW}{}_{}", family.name(), md5(text.as_bytes()))
}

/// The rule that keeps everything else out.
pub(crate) fn deny(family: Family) -> String {
    format!("{DENY}{}", family.name())
}

const ALLOW: &str = "k8s-azure-lb_allow_";
const DENY: &str = "k8s-azure-lb_deny-all_";

/// Whether a security rule is one of the controller's.
pub(crate) fn is_security_rule(name: &str) -> bool {
    let name = name.to_lowercase();
    name.starts_with(ALLOW) || name.starts_with(DENY)
}

/// RFC 1321. It is only a name here: upstream's rules have it.
fn md5(text: &[u8]) -> String {
    const SHIFTS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    let mut data = text.to_vec();
    data.push(0x80);
    while data.len() % 64 != 56 {
        data.push(0);
    }
    data.extend((text.len() as u64 * 8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in data.chunks_exact(64) {
        let word = |at: usize| {
            let bytes = &block[at * 4..at * 4 + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mix, at) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            // The constants are the sine of whole numbers.
            let sine = ((step + 1) as f64).sin().abs() * 4_294_967_296.0;
            let sum = a
                .wrapping_add(mix)
                .wrapping_add(sine as u32)
                .wrapping_add(word(at));
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        }
        for (kept, new) in state.iter_mut().zip([a, b, c, d]) {
            *kept = kept.wrapping_add(new);
        }
    }
    let bytes = state.iter().flat_map(|word| word.to_le_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(subnet: Option<&str>, is_dual: bool) -> Names {
        Names {
            base: base("0f4c1a2b-3c4d-5e6f-7081-92a3b4c5d6e7"),
            subnet: subnet.map(str::to_owned),
            is_dual,
        }
    }

    #[test]
    fn names_are_upstreams() {
        let plain = names(None, false);
        let base = "a0f4c1a2b3c4d5e6f708192a3b4c5d6e";
        assert_eq!(plain.base, base);
        assert_eq!(plain.frontend(Family::V4), base);
        assert_eq!(plain.frontend(Family::V6), base);
        assert_eq!(plain.rule("TCP", 80, Family::V4), format!("{base}-TCP-80"));
        assert_eq!(
            plain.public_ip("kubernetes", "", Family::V4),
            format!("kubernetes-{base}")
        );
        let subnet = names(Some("apps"), false);
        assert_eq!(subnet.frontend(Family::V4), format!("{base}-apps"));
        assert_eq!(
            subnet.rule("TCP", 80, Family::V4),
            format!("{base}-apps-TCP-80")
        );
        let dual = names(None, true);
        assert_eq!(dual.frontend(Family::V6), format!("{base}-IPv6"));
        assert_eq!(
            dual.rule("TCP", 80, Family::V6),
            format!("{base}-TCP-80-IPv6")
        );
        assert_eq!(
            dual.public_ip("kubernetes", "", Family::V6),
            format!("kubernetes-{base}-IPv6")
        );
        assert_eq!(pool("kubernetes", Family::V6), "kubernetes-IPv6");
        let long = names(Some(&"s".repeat(90)), false);
        assert_eq!(long.frontend(Family::V4).len(), 75);
        assert!(long.rule("TCP", 80, Family::V4).len() <= 80);
    }

    #[test]
    fn security_rules_are_named_by_a_digest() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(md5(text.as_bytes()), digest, "{text}");
        }
        let rule = allow(Family::V4, "Tcp", &["Internet".into()], &["80".into()]);
        assert_eq!(
            rule,
            "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77"
        );
        assert!(is_security_rule(&rule) && is_security_rule("k8s-azure-lb_deny-all_IPv6"));
        assert!(!is_security_rule("allow-ssh"));
    }
}
