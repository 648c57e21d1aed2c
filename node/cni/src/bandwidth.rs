//! How fast a pod may send and receive: the kernel's token bucket, `tbf`.

use serde::{Deserialize, Serialize};

use crate::netlink::Attributes;

pub(crate) const NEW_QUEUE: u16 = 36;
const ROOT: u32 = 0xffff_ffff;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TBF_PARAMETERS: u16 = 1;
const TBF_RATE64: u16 = 4;
const TBF_BURST: u16 = 6;
/// As the reference plugin: packets wait at most this long.
const LATENCY_MS: u64 = 25;

/// What the runtime asks for, in bits; 0 is no limit. Ingress is what a pod receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bandwidth {
    /// Bits in a second that a pod may receive.
    pub ingress_rate: u64,
    /// Bits that it may receive at once.
    pub ingress_burst: u64,
    /// Bits in a second that a pod may send.
    pub egress_rate: u64,
    /// Bits that it may send at once.
    pub egress_burst: u64,
}

/// A limit of one direction, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    rate: u64,
    burst: u32,
}

impl Bandwidth {
    pub(crate) fn received(self) -> Option<Limit> {
        limit(self.ingress_rate, self.ingress_burst)
    }

    pub(crate) fn sent(self) -> Option<Limit> {
        limit(self.egress_rate, self.egress_burst)
    }
}

fn limit(rate: u64, burst: u64) -> Option<Limit> {
    let most = u64::from(u32::MAX);
    // A burst below a packet would let nothing through.
    let burst = u32::try_from((burst / 8).clamp(2 * 1500, most)).ok()?;
    (rate > 0).then_some(Limit {
        rate: (rate / 8).max(1),
        burst,
    })
}

/// The message's structure and attributes that put a token bucket at the root of a link.
pub(crate) fn token_bucket(link: u32, limit: Limit) -> (Vec<u8>, Attributes) {
    let mut header = vec![0; 20];
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header[8..12].copy_from_slice(&0x0001_0000_u32.to_ne_bytes());
    header[12..16].copy_from_slice(&ROOT.to_ne_bytes());
    let options = Attributes::default()
        .put(TBF_PARAMETERS, parameters(limit))
        .number(TBF_BURST, limit.burst)
        .put(TBF_RATE64, limit.rate.to_ne_bytes());
    let attributes = Attributes::default()
        .text(TCA_KIND, "tbf")
        .nest(TCA_OPTIONS, options);
    (header, attributes)
}

// `struct tc_tbf_qopt`: two rates of twelve bytes, then limit, buffer and mtu.
fn parameters(limit: Limit) -> Vec<u8> {
    let rate = u32::try_from(limit.rate).unwrap_or(u32::MAX);
    let waiting = limit.rate * LATENCY_MS / 1000 + u64::from(limit.burst);
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
    let mut bytes = vec![0; 36];
    // Link layer: Ethernet, so that the kernel needs no table of ours.
    bytes[1] = 1;
    bytes[8..12].copy_from_slice(&rate.to_ne_bytes());
    bytes[24..28].copy_from_slice(&waiting.to_ne_bytes());
    bytes[28..32].copy_from_slice(&limit.burst.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_become_bytes_and_nothing_is_no_limit() {
        let asked = Bandwidth {
            ingress_rate: 8_000_000,
            ingress_burst: 80_000_000,
            ..Bandwidth::default()
        };
        let limit = asked.received().expect("a limit");
        assert_eq!((limit.rate, limit.burst), (1_000_000, 10_000_000));
        assert_eq!(asked.sent(), None);
    }

    #[test]
    fn a_burst_is_never_less_than_two_packets() {
        assert_eq!(limit(8, 8).map(|l| l.burst), Some(3000));
    }
}
