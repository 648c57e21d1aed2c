//! Taking volumes down. What fails is done again from the beginning, so a record goes last: until then all of it may
//! have happened or nothing.

use std::fs;
use std::path::Path;

use super::super::layout::PodDirectory;
use super::messages::*;
use super::records::{self, Record};
use super::{Csi, driver, said, text, wanted};

impl Csi {
    /// Takes the volumes of a pod down that drivers have published, and what nobody else here uses of them.
    pub(in crate::volumes) async fn unpublish_all(
        &self,
        directory: &PodDirectory,
    ) -> Result<(), String> {
        for (place, record) in records::of_pod(directory) {
            self.unpublish(&place, &record).await?;
        }
        Ok(())
    }

    async fn unpublish(&self, place: &Path, record: &Record) -> Result<(), String> {
        let (name, handle) = (&record.driver_name, &record.volume_handle);
        let _alone = self.alone(name, handle).await;
        let registered = self.registry.get(name)?;
        let target = place.join("mount");
        let request = NodeUnpublishVolumeRequest {
            volume_id: handle.clone(),
            target_path: text(&target),
        };
        registered.driver.unpublish(request).await.map_err(said)?;
        let _ = fs::remove_dir(&target);
        if !self.is_used_elsewhere(place, record) {
            if registered.abilities.stages && record.volume_lifecycle_mode == "Persistent" {
                self.unstage(&registered.driver, record).await?;
            }
            self.in_use.remove(&wanted::unique_name(name, handle));
        }
        Record::remove(place)
    }

    async fn unstage(&self, driver: &driver::Driver, record: &Record) -> Result<(), String> {
        let staging = self.staging(&record.driver_name, &record.volume_handle);
        let request = NodeUnstageVolumeRequest {
            volume_id: record.volume_handle.clone(),
            staging_target_path: text(&staging),
        };
        driver.unstage(request).await.map_err(said)?;
        let _ = fs::remove_dir(&staging);
        let _ = staging.parent().map(fs::remove_dir);
        Ok(())
    }

    fn is_used_elsewhere(&self, place: &Path, record: &Record) -> bool {
        records::with_places(&self.root).any(|(other, of)| {
            other != place
                && (&of.driver_name, &of.volume_handle)
                    == (&record.driver_name, &record.volume_handle)
        })
    }
}
