//! The images that nodes have from the start: made of our own programs, so that nothing has to be pulled.

use std::path::{Path, PathBuf};

use ::images::built_in::BuiltIn;
use ::images::{Archive, Layer, LayerError, Settings};

use crate::datadir::{DataDir, write_private};
use crate::exit::{Code, Failure, Result};

/// The image of this program, which add-ons run.
pub(super) const OWN: &str = concat!("kyanite.local/kyanite:", env!("CARGO_PKG_VERSION"));

/// Makes every image that is missing or older than the program it is made of.
pub(super) fn make(dir: &DataDir, kyanite: &Path) -> Result<PathBuf> {
    let images = dir.images();
    std::fs::create_dir_all(&images).map_err(|e| Failure::file("create", &images, &e))?;
    let beside = kyanite.parent().unwrap_or(Path::new("/"));
    for (name, program) in [
        ("pause", BuiltIn::Pause),
        ("demo-1", BuiltIn::Demo(1)),
        ("demo-2", BuiltIn::Demo(2)),
    ] {
        let source = beside.join(program.program());
        write(&images, name, &source, || program.build(beside, &[]))?;
    }
    write(&images, "kyanite", kyanite, || own(kyanite))?;
    Ok(images)
}

fn write(
    images: &Path,
    name: &str,
    program: &Path,
    build: impl FnOnce() -> std::result::Result<Archive, LayerError>,
) -> Result<()> {
    let file = images.join(format!("{name}.tar"));
    if is_newer(&file, program) {
        return Ok(());
    }
    let archive = build().map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("the image `{name}` cannot be made: {e}"),
        )
        .hint("`make up` builds the programs it is made of")
    })?;
    write_private(&file, &archive.bytes)
}

fn is_newer(file: &Path, program: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    matches!((changed(file), changed(program)), (Some(made), Some(built)) if made > built)
}

fn own(kyanite: &Path) -> std::result::Result<Archive, LayerError> {
    let mut layer = Layer::default();
    layer.add_program(kyanite, "/kyanite")?;
    let settings = Settings {
        entrypoint: vec!["/kyanite".to_owned()],
        ..Settings::default()
    };
    let names = [OWN.to_owned()];
    Ok(::images::archive::build(
        &names,
        &settings,
        &[layer.to_tar()],
    ))
}
