//! Logs of containers: the current one is moved away when it is large; of those moved away a few are kept, packed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::context::Context;
use crate::cri::{self, ContainerState};
use crate::resources;

/// Looks at the log of every container that runs.
pub(super) async fn rotate_all(ctx: &Context) {
    let config = &ctx.settings.config;
    let most = resources::whole(&Quantity(config.container_log_max_size.clone()));
    let files = usize::try_from(config.container_log_max_files)
        .unwrap_or(5)
        .max(2);
    if most <= 0 {
        return;
    }
    for known in ctx.pods.all() {
        let newest = known.containers.values().filter_map(|list| list.first());
        for container in newest.filter(|c| c.state == ContainerState::Running) {
            let size = fs::metadata(&container.log_path).map_or(0, |meta| meta.len());
            if size < most as u64 {
                continue;
            }
            if let Err(error) = rotate(ctx, &container.log_path, &container.id, files).await {
                tracing::warn!(log = %container.log_path.display(), %error, "a log cannot be rotated");
            }
        }
    }
}

async fn rotate(ctx: &Context, log: &Path, id: &str, files: usize) -> io::Result<()> {
    let path = log.to_owned();
    let moved = tokio::task::spawn_blocking(move || make_room(&path, files, Timestamp::now()));
    let moved = moved.await.map_err(io::Error::other)??;
    let request = cri::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    };
    if let Err(status) = ctx.runtime.reopen_container_log(request).await {
        // The runtime still writes to the file: it gets its name back.
        fs::rename(moved, log)?;
        return Err(io::Error::other(status.message().to_owned()));
    }
    Ok(())
}

/// Packs what was moved away before, removes what is too many, and moves the current log away.
fn make_room(log: &Path, files: usize, now: Timestamp) -> io::Result<PathBuf> {
    let name = log
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let folder = log.parent().unwrap_or(Path::new("/"));
    let mut old: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        if !file.starts_with(&format!("{name}.")) {
            continue;
        }
        match file.ends_with(".tmp") {
            // Of a rotation that did not come to its end.
            true => fs::remove_file(entry.path())?,
            false => old.push(entry.path()),
        }
    }
    old.sort();
    let surplus = (old.len() + 2).saturating_sub(files);
    for path in old.drain(..surplus.min(old.len())) {
        fs::remove_file(path)?;
    }
    for path in old
        .iter()
        .filter(|path| path.extension().is_none_or(|e| e != "gz"))
    {
        pack(path)?;
    }
    let moved = folder.join(format!("{name}.{}", now.strftime("%Y%m%d-%H%M%S")));
    fs::rename(log, &moved)?;
    Ok(moved)
}

fn pack(path: &Path) -> io::Result<()> {
    let with = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    let (packing, packed) = (with(".tmp"), with(".gz"));
    let mut encoder = GzEncoder::new(fs::File::create(&packing)?, Compression::default());
    io::copy(&mut fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::rename(packing, packed)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_old_logs_are_kept_packed_and_the_rest_goes() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("0.log");
        for round in 0..6 {
            fs::write(&log, format!("round {round}\n")).expect("a log");
            let now = Timestamp::from_second(1_800_000_000 + round).expect("a time");
            make_room(&log, 4, now).expect("rotated");
        }
        let mut names: Vec<String> = fs::read_dir(directory.path())
            .expect("a directory")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(
            names[0].ends_with(".gz") && names[1].ends_with(".gz"),
            "{names:?}"
        );
        assert!(!names[2].ends_with(".gz"), "{names:?}");
    }
}
