//! Node ports. Which are taken stands in one object of the store, upstream's `RangeAllocation`, and is
//! changed on condition that nobody else changed it: servers that share a store give out no port twice.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kinds::field::{Errors, Path};
use serde_json::{Value, json};
use store::{Change, Expect, Written};

use super::spec::{
    NODE_PORTS, health_check_port, needs_health_check_port, needs_node_ports, node_ports,
    pick_port, port_error, ports_mut,
};
use crate::api::Api;
use crate::status::{ApiError, Result};

const KEY: &str = "/registry/ranges/servicenodeports";
/// How often a change is tried again when other servers allocate meanwhile.
const ATTEMPTS: usize = 50;

/// Fills in the ports a service needs and answers the ones it did not have before.
pub(super) async fn allocate(
    api: &Api,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Vec<u16>> {
    if !needs_node_ports(service) && !needs_health_check_port(service) {
        return Ok(Vec::new());
    }
    let assigned = change(api, dry_run, |taken| {
        let mut candidate = service.clone();
        let fresh = assign(&mut candidate, old, taken)?;
        Ok((candidate, fresh))
    })
    .await?;
    let (candidate, fresh) = assigned.map_err(|errors: Errors| {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        ApiError::invalid("", "Service", name, &errors)
    })?;
    *service = candidate;
    // A dry run has taken nothing.
    Ok(if dry_run { Vec::new() } else { fresh })
}

/// Gives ports back.
pub(super) async fn release(api: &Api, ports: &[u16]) {
    let outcome = change(api, false, |taken| {
        taken.retain(|port| !ports.contains(port));
        Ok::<_, Errors>(())
    });
    if let Err(error) = outcome.await {
        let why = error.message;
        tracing::warn!(
            why,
            ?ports,
            "node ports could not be released; they stay reserved"
        );
    }
}

/// Compares what is taken with what services have, and answers what nobody has. A port that was without
/// an owner before, too, is free; one that just lost it may belong to a service being written.
pub(super) async fn audit(
    api: &Api,
    services: &[Value],
    suspects: &HashSet<u16>,
) -> Result<HashSet<u16>> {
    let used: HashSet<u16> = services.iter().flat_map(node_ports).collect();
    let outcome = change(api, false, |taken| {
        taken.extend(&used);
        taken.retain(|port| used.contains(port) || !suspects.contains(port));
        Ok::<_, Errors>(taken.difference(&used).copied().collect())
    });
    Ok(outcome.await?.unwrap_or_default())
}

// Reads, edits and writes until nobody was quicker.
async fn change<T>(
    api: &Api,
    dry_run: bool,
    mut edit: impl FnMut(&mut HashSet<u16>) -> Result<T, Errors>,
) -> Result<Result<T, Errors>> {
    for _ in 0..ATTEMPTS {
        let current = api.store.get(KEY).await?;
        let before = match &current {
            Some(kv) => decode(&kv.value).map_err(ApiError::internal)?,
            None => HashSet::new(),
        };
        let mut taken = before.clone();
        let outcome = edit(&mut taken);
        if outcome.is_err() || dry_run || taken == before {
            return Ok(outcome);
        }
        let expect = current.map_or(Expect::Absent, |kv| Expect::Modified(kv.mod_revision));
        let value = encode(&taken);
        let put = Change::Put { value, ttl: None };
        if let Written::Done(_) = api.store.write(KEY, expect, put).await? {
            return Ok(outcome);
        }
    }
    Err(ApiError::timeout(
        "too many servers allocate node ports at once",
    ))
}

fn assign(
    service: &mut Value,
    old: Option<&Value>,
    taken: &mut HashSet<u16>,
) -> Result<Vec<u16>, Errors> {
    let mut fresh = Vec::new();
    if needs_node_ports(service) {
        assign_ports(service, old, taken, &mut fresh)?;
    }
    if needs_health_check_port(service) {
        assign_health_check(service, old, taken, &mut fresh)?;
    }
    Ok(fresh)
}

fn assign_ports(
    service: &mut Value,
    old: Option<&Value>,
    taken: &mut HashSet<u16>,
    fresh: &mut Vec<u16>,
) -> Result<(), Errors> {
    let mut own: HashSet<u16> = old
        .map(node_ports)
        .unwrap_or_default()
        .into_iter()
        .collect();
    let mut errors = Errors::default();
    for (index, port) in ports_mut(service).enumerate() {
        let wanted = port["nodePort"].as_u64().unwrap_or(0);
        let number = match wanted {
            0 => pick_port(taken, &own).ok_or("failed to allocate a nodePort: range is full"),
            n => match u16::try_from(n).ok().filter(|p| NODE_PORTS.contains(p)) {
                None => Err(
                    "provided port is not in the valid range. The range of valid ports is 30000-32767",
                ),
                Some(p) if own.contains(&p) => continue,
                Some(p) if taken.contains(&p) => Err("provided port is already allocated"),
                Some(p) => Ok(p),
            },
        };
        match number {
            Err(why) => port_error(&mut errors, index, wanted, why),
            Ok(number) => {
                taken.insert(number);
                own.insert(number);
                fresh.push(number);
                port["nodePort"] = number.into();
            }
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors),
    }
}

// Load balancers that keep the client's address ask each node whether it has endpoints.
fn assign_health_check(
    service: &mut Value,
    old: Option<&Value>,
    taken: &mut HashSet<u16>,
    fresh: &mut Vec<u16>,
) -> Result<(), Errors> {
    let had = old.and_then(health_check_port);
    let wanted = health_check_port(service).or(had);
    if wanted.is_some() && wanted == had {
        service["spec"]["healthCheckNodePort"] = wanted.into();
        return Ok(());
    }
    let refuse = |why: String| {
        let mut errors = Errors::default();
        let spec = Path::root("spec");
        let path = spec.child("healthCheckNodePort");
        errors.invalid(&path, &wanted.unwrap_or(0).into(), &why);
        errors
    };
    let port = match wanted {
        Some(port) if taken.contains(&port) => {
            return Err(refuse(format!(
                "failed to allocate requested HealthCheck NodePort {port}: provided port is already allocated"
            )));
        }
        Some(port) => port,
        None => pick_port(taken, &HashSet::new()).ok_or_else(|| {
            refuse("failed to allocate a HealthCheck NodePort: range is full".into())
        })?,
    };
    taken.insert(port);
    fresh.push(port);
    service["spec"]["healthCheckNodePort"] = port.into();
    Ok(())
}

// Upstream keeps the bitmap as Go's big integer writes itself: most significant byte first, without
// leading zeros; bit n is the n-th port of the range.
fn encode(taken: &HashSet<u16>) -> Bytes {
    let first = *NODE_PORTS.start();
    let offsets = taken.iter().filter(|port| NODE_PORTS.contains(port));
    let mut bytes = vec![0_u8; usize::from(*NODE_PORTS.end() - first) / 8 + 1];
    for offset in offsets.map(|port| usize::from(port - first)) {
        bytes[offset / 8] |= 1 << (offset % 8);
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.reverse();
    let object = json!({
        "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {},
        "range": format!("{first}-{}", NODE_PORTS.end()), "data": STANDARD.encode(bytes),
    });
    object.to_string().into()
}

fn decode(value: &Bytes) -> Result<HashSet<u16>, String> {
    let object = match serde_json::from_slice::<Value>(value) {
        Ok(object) => object,
        Err(_) => {
            objects::protobuf::decode_object(value)
                .map_err(|e| format!("{KEY} cannot be read: {e}"))?
                .2
        }
    };
    let data = object["data"].as_str().unwrap_or_default();
    let bytes = STANDARD
        .decode(data)
        .map_err(|e| format!("{KEY} has no bitmap: {e}"))?;
    let is_set = |offset: &u16| {
        let byte = bytes.iter().rev().nth(usize::from(*offset) / 8);
        byte.is_some_and(|byte| byte & (1 << (offset % 8)) != 0)
    };
    let first = *NODE_PORTS.start();
    Ok((0..=*NODE_PORTS.end() - first)
        .filter(is_set)
        .map(|offset| first + offset)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_and_explicit_ones_checked() {
        let mut taken = HashSet::new();
        let mut first = json!({"spec": {"type": "NodePort", "ports": [
            {"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 80, "protocol": "UDP", "nodePort": 30080}, {"port": 81}]}});
        let fresh = assign(&mut first, None, &mut taken).expect("free");
        let third = first["spec"]["ports"][2]["nodePort"].as_u64().expect("set");
        assert_eq!(fresh, [30080, u16::try_from(third).expect("a port")]);
        assert!(NODE_PORTS.contains(&fresh[1]));
        let mut second = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}, {"port": 81, "nodePort": 80}]}});
        let errors = assign(&mut second, None, &mut taken).expect_err("taken");
        assert_eq!(
            errors.0[0].to_string(),
            "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
        );
        assert!(errors.0[1].message.contains("30000-32767"));
    }

    #[test]
    fn the_bitmap_is_upstreams() {
        let taken = HashSet::from([30_000, 30_009]);
        let object: Value = serde_json::from_slice(&encode(&taken)).expect("JSON");
        assert_eq!(object["range"], "30000-32767");
        assert_eq!(object["data"], STANDARD.encode([0b10, 0b1]));
        assert_eq!(decode(&encode(&taken)), Ok(taken));
        assert_eq!(decode(&encode(&HashSet::new())), Ok(HashSet::new()));
    }

    proptest::proptest! {
        #[test]
        fn every_set_of_ports_survives(ports in proptest::collection::hash_set(30_000_u16..=32_767, 0..200)) {
            proptest::prop_assert_eq!(decode(&encode(&ports)), Ok(ports));
        }
    }
}
