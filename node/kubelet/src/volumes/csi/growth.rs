//! Volumes that grow, and how full they are.

use std::path::Path;

use super::super::cause;
use super::messages::*;
use super::registry::Registered;
use super::{Csi, Wanted, said, text};
use crate::resources;
use crate::space::Space;

const BYTES: i32 = 1;
const INODES: i32 = 2;

impl Csi {
    /// Lets the file system of a volume grow that has grown, and its claim say so.
    pub(super) async fn grow(
        &self,
        registered: &Registered,
        wanted: &Wanted,
        target: &Path,
        group: Option<u32>,
    ) -> Result<(), String> {
        let (Some(size), Some((namespace, name))) = (&wanted.grow, &wanted.claim) else {
            return Ok(());
        };
        if !registered.abilities.expands || wanted.read_only {
            return Ok(());
        }
        let staging = self.staging(&wanted.driver, &wanted.handle);
        let request = NodeExpandVolumeRequest {
            volume_id: wanted.handle.clone(),
            volume_path: text(target),
            capacity_range: Some(CapacityRange {
                required_bytes: resources::whole(size),
                limit_bytes: 0,
            }),
            staging_target_path: if registered.abilities.stages {
                text(&staging)
            } else {
                String::new()
            },
            volume_capability: Some(wanted.capability(group, registered.abilities)),
            secrets: self.secret(wanted.expand_secret()).await?,
        };
        let grown = registered.driver.expand(request).await;
        let bytes = grown
            .map_err(|status| format!("MountVolume.NodeExpandVolume failed: {}", said(status)))?;
        tracing::info!(
            volume = wanted.name,
            bytes,
            "a volume's file system has grown"
        );
        let told = self.objects.claim_grew(namespace, name, size).await;
        told.map_err(|e| cause(&e))
    }

    /// How full a volume is, as its driver says; `None` if it says nothing.
    pub(in crate::volumes) async fn measure(
        &self,
        driver: &str,
        handle: &str,
        path: &Path,
    ) -> Option<Space> {
        let registered = self.registry.get(driver).ok()?;
        if !registered.abilities.measures {
            return None;
        }
        let staging = self.staging(driver, handle);
        let request = NodeGetVolumeStatsRequest {
            volume_id: handle.to_owned(),
            volume_path: text(path),
            staging_target_path: if registered.abilities.stages {
                text(&staging)
            } else {
                String::new()
            },
        };
        let usage = registered.driver.measure(request).await.ok()?;
        let of = |unit| usage.iter().find(|usage| usage.unit == unit);
        let amount = |n: i64| u64::try_from(n).unwrap_or_default();
        let (bytes, inodes) = (of(BYTES)?, of(INODES));
        Some(Space {
            capacity: amount(bytes.total),
            available: amount(bytes.available),
            used: amount(bytes.used),
            inodes: inodes.map_or(0, |i| amount(i.total)),
            inodes_free: inodes.map_or(0, |i| amount(i.available)),
        })
    }
}
