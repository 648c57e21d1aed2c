//! Images that nobody uses go when the disk fills.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::context::Context;
use crate::cri;
use crate::node;

/// When images were first seen and last used.
#[derive(Default)]
pub(super) struct Memory(BTreeMap<String, (Timestamp, Timestamp)>);

/// One image as the choice sees it.
struct Candidate {
    id: String,
    size: u64,
    first_seen: Timestamp,
    last_used: Timestamp,
}

/// Looks at the disk, and removes images until it is well or none is left to remove.
pub(super) async fn collect(ctx: &Context, memory: &mut Memory) {
    let now = Timestamp::now();
    let Ok(candidates) = unused(ctx, memory, now).await else {
        return;
    };
    let Some((used, whole)) = usage(ctx).await else {
        return;
    };
    let config = &ctx.settings.config;
    let percent = used * 100 / whole.max(1);
    if percent < config.image_gc_high_threshold_percent as u64 {
        return;
    }
    let goal = whole * config.image_gc_low_threshold_percent as u64 / 100;
    let age = config.image_minimum_gc_age.0.as_secs() as i64;
    let wanted = used.saturating_sub(goal);
    let chosen = choose(candidates, wanted, |c| {
        now.duration_since(c.first_seen).as_secs() >= age
    });
    let mut freed = 0;
    for candidate in chosen {
        let image = cri::ImageSpec {
            image: candidate.id.clone(),
            ..cri::ImageSpec::default()
        };
        let request = cri::RemoveImageRequest { image: Some(image) };
        match ctx.runtime.remove_image(request).await {
            Ok(_) => freed += candidate.size,
            Err(status) => tracing::warn!(
                image = candidate.id,
                error = status.message(),
                "an image cannot be removed"
            ),
        }
    }
    if freed < wanted {
        let text = format!(
            "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found {freed} bytes eligible to free."
        );
        node::say(
            ctx,
            client_runtime::Severity::Warning,
            "FreeDiskSpaceFailed",
            &text,
        );
    }
}

/// The images to remove: the one that was used longest ago first, until enough is freed.
fn choose(
    mut candidates: Vec<Candidate>,
    wanted: u64,
    old_enough: impl Fn(&Candidate) -> bool,
) -> Vec<Candidate> {
    candidates.sort_by_key(|c| (c.last_used, c.first_seen));
    let mut freed = 0;
    let mut chosen = Vec::new();
    for candidate in candidates.into_iter().filter(old_enough) {
        if freed >= wanted {
            break;
        }
        freed += candidate.size;
        chosen.push(candidate);
    }
    chosen
}

async fn unused(
    ctx: &Context,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<Vec<Candidate>, tonic::Status> {
    let images = ctx
        .runtime
        .list_images(cri::ListImagesRequest::default())
        .await?
        .images;
    let containers = ctx
        .runtime
        .list_containers(cri::ListContainersRequest::default())
        .await?
        .containers;
    let mut used: BTreeSet<String> = BTreeSet::new();
    for container in containers {
        used.extend([container.image_ref, container.image_id]);
        used.extend(container.image.map(|i| i.image));
    }
    // Old runtimes do not say that they need the image of sandboxes themselves.
    let sandbox_image = sandbox_image(ctx).await.unwrap_or_default();
    memory
        .0
        .retain(|id, _| images.iter().any(|image| image.id == *id));
    let mut candidates = Vec::new();
    for image in images {
        let names = || {
            image
                .repo_tags
                .iter()
                .chain(&image.repo_digests)
                .chain([&image.id])
        };
        let in_use = names().any(|name| used.contains(name));
        let entry = memory
            .0
            .entry(image.id.clone())
            .or_insert((now, Timestamp::UNIX_EPOCH));
        if in_use {
            entry.1 = now;
        }
        let (first_seen, last_used) = *entry;
        if !in_use && !image.pinned && !names().any(|name| *name == sandbox_image) {
            candidates.push(Candidate {
                id: image.id.clone(),
                size: image.size,
                first_seen,
                last_used,
            });
        }
    }
    Ok(candidates)
}

async fn sandbox_image(ctx: &Context) -> Option<String> {
    let status = ctx
        .runtime
        .status(cri::StatusRequest { verbose: true })
        .await
        .ok()?;
    let config: serde_json::Value = serde_json::from_str(status.info.get("config")?).ok()?;
    Some(config["sandboxImage"].as_str()?.to_owned())
}

/// Bytes in use and bytes in all of the file system with the images.
async fn usage(ctx: &Context) -> Option<(u64, u64)> {
    let info = ctx
        .runtime
        .image_fs_info(cri::ImageFsInfoRequest {})
        .await
        .ok()?;
    let place = info.image_filesystems.first()?.fs_id.clone()?.mountpoint;
    let stat = rustix::fs::statvfs(place).ok()?;
    let whole = stat.f_blocks * stat.f_frsize;
    Some((whole - stat.f_bavail * stat.f_frsize, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_used_longest_ago_goes_first_and_no_more_than_needed() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let candidate = |id: &str, size, last_used| Candidate {
            id: id.to_owned(),
            size,
            first_seen: at(0),
            last_used: at(last_used),
        };
        let all = vec![
            candidate("new", 10, 30),
            candidate("old", 10, 10),
            candidate("middle", 10, 20),
        ];
        let chosen = choose(all, 15, |_| true);
        let ids: Vec<&str> = chosen.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids, ["old", "middle"]);
    }
}
