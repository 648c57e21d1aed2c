//! Disks as files of the host: sparse, so that they cost what is written to them.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ftruncate, seek};
use rustix::io::Errno;

use crate::Error;
use crate::namespaces::loops;

/// Makes an empty disk, wholly or not at all; one that is there is only made larger, and whoever has it attached sees
/// that.
pub fn make(file: &Path, bytes: u64) -> Result<(), Error> {
    match fs::metadata(file) {
        Ok(found) if found.len() >= bytes => Ok(()),
        Ok(_) => grow(file, bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => fresh(file, |made| {
            ftruncate(made, bytes).map_err(Error::file("make the disk", file))
        }),
        Err(error) => Err(Error::file("find the disk", file)(error)),
    }
}

/// Makes a disk with what another has, larger if need be: what had reached it, as if its machine's plug were pulled. Of
/// what is written to it meanwhile some may be in the copy and some not.
pub fn copy(from: &Path, to: &Path, bytes: u64) -> Result<(), Error> {
    loops::flush(from)?;
    let source = fs::File::open(from).map_err(Error::file("open the disk", from))?;
    fresh(to, |made| {
        let copied = copy_data(&source, made).map_err(Error::file("copy the disk", from))?;
        ftruncate(made, copied.max(bytes)).map_err(Error::file("make the disk", to))
    })
}

/// Takes a disk away; one that is not there is gone already.
pub fn remove(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::file("remove the disk", file)(error))
        }
        _ => Ok(()),
    }
}

fn grow(file: &Path, bytes: u64) -> Result<(), Error> {
    let open = fs::OpenOptions::new().write(true).open(file);
    let open = open.map_err(Error::file("open the disk", file))?;
    ftruncate(&open, bytes).map_err(Error::file("make the disk larger", file))?;
    loops::tell_size(file)
}

// Nobody sees a disk that is not whole.
fn fresh(file: &Path, fill: impl FnOnce(&fs::File) -> Result<(), Error>) -> Result<(), Error> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).map_err(Error::file("make", directory))?;
    }
    let unfinished = file.with_extension("new");
    let made = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(Error::file("make the disk", &unfinished))?;
    fill(&made)?;
    made.sync_all().map_err(Error::file("write", &unfinished))?;
    fs::rename(&unfinished, file).map_err(Error::file("name the disk", file))
}

// Copies what is data and leaves holes holes; where the file system can, nothing is copied but shared. Gives the
// size of it all.
fn copy_data(from: &fs::File, to: &fs::File) -> rustix::io::Result<u64> {
    let end = seek(from, SeekFrom::End(0))?;
    let mut at = 0;
    loop {
        let mut start = match seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => return Ok(end),
            Err(error) => return Err(error),
        };
        at = seek(from, SeekFrom::Hole(start))?;
        let mut target = start;
        while start < at {
            let length = usize::try_from(at - start).unwrap_or(usize::MAX);
            if copy_file_range(from, Some(&mut start), to, Some(&mut target), length)? == 0 {
                return Err(Errno::IO);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_the_same_holes() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = ["one.img", "two.img"].map(|name| dir.path().join(name));
        make(&one, 64 << 20).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&one).unwrap();
        file.write_all_at(b"beginning", 0).unwrap();
        file.write_all_at(b"middle", 33 << 20).unwrap();
        copy(&one, &two, 0).unwrap();
        assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap());
        let copied = fs::metadata(&two).unwrap();
        assert!(copied.blocks() * 512 < 1 << 20, "{}", copied.blocks());
        make(&two, 128 << 20).unwrap();
        assert_eq!(fs::metadata(&two).unwrap().len(), 128 << 20);
        make(&two, 1 << 20).unwrap();
        assert_eq!(
            fs::metadata(&two).unwrap().len(),
            128 << 20,
            "never smaller"
        );
        remove(&two).unwrap();
        remove(&two).unwrap();
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}
