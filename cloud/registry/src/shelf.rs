//! Where everything is kept:
//!
//! ```text
//! blobs/sha256/<hash>                        content, once for all repositories
//! uploads/<id>                               content that is still coming
//! repositories/<name>/_blobs/<hash>          a repository has this blob
//! repositories/<name>/_manifests/<hash>      … and this manifest; the file says its media type
//! repositories/<name>/_tags/<tag>            the digest that a tag stands for
//! repositories/<name>/_referrers/<hash>/<hash of manifest>
//! ```
//!
//! Files appear whole (written aside, synced, renamed), content before what names it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::route::Digest;

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `{}` for images", directory.display())]
pub struct ShelfError {
    /// Which.
    pub directory: PathBuf,
    /// Why.
    pub source: io::Error,
}

#[derive(Debug)]
pub(crate) struct Shelf {
    root: PathBuf,
}

const BLOBS: &str = "_blobs";
const MANIFESTS: &str = "_manifests";
const TAGS: &str = "_tags";
const REFERRERS: &str = "_referrers";

impl Shelf {
    pub(crate) fn open(root: &Path) -> Result<Shelf, ShelfError> {
        let shelf = Shelf {
            root: root.to_owned(),
        };
        let failed = |source| ShelfError {
            directory: root.to_owned(),
            source,
        };
        shelf.prepare().map_err(failed)?;
        Ok(shelf)
    }

    fn prepare(&self) -> io::Result<()> {
        for directory in ["blobs/sha256", "repositories"] {
            fs::create_dir_all(self.root.join(directory))?;
        }
        let uploads = self.root.join("uploads");
        if uploads.exists() {
            fs::remove_dir_all(&uploads)?;
        }
        fs::create_dir(&uploads)?;
        self.sweep()
    }

    // Content that no repository has any more.
    fn sweep(&self) -> io::Result<()> {
        let mut kept = std::collections::HashSet::new();
        for name in self.repositories()? {
            for kind in [BLOBS, MANIFESTS] {
                kept.extend(names(&self.repository(&name).join(kind))?);
            }
        }
        for hash in names(&self.root.join("blobs/sha256"))? {
            if !kept.contains(&hash) {
                fs::remove_file(self.root.join("blobs/sha256").join(hash))?;
            }
        }
        Ok(())
    }

    /// Every repository, in order.
    pub(crate) fn repositories(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut waiting = vec![String::new()];
        while let Some(name) = waiting.pop() {
            let inside = names(&self.repository(&name))?;
            if inside.iter().any(|item| item == MANIFESTS || item == BLOBS) {
                found.push(name.clone());
            }
            for item in inside.iter().filter(|item| !item.starts_with('_')) {
                waiting.push(format!("{name}/{item}").trim_start_matches('/').to_owned());
            }
        }
        found.sort();
        Ok(found)
    }

    fn repository(&self, name: &str) -> PathBuf {
        self.root.join("repositories").join(name)
    }

    fn content(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hash())
    }

    pub(crate) fn upload(&self, id: &str) -> PathBuf {
        self.root.join("uploads").join(id)
    }

    pub(crate) fn begin_upload(&self, id: &str) -> io::Result<()> {
        File::create_new(self.upload(id)).map(|_| ())
    }

    /// Takes an upload over as a blob, if it is what the digest says.
    pub(crate) fn finish_upload(&self, name: &str, id: &str, digest: &Digest) -> io::Result<bool> {
        let path = self.upload(id);
        if hash_of(&path)? != *digest {
            fs::remove_file(&path)?;
            return Ok(false);
        }
        File::open(&path)?.sync_all()?;
        fs::rename(&path, self.content(digest))?;
        self.link(name, BLOBS, digest.hash(), "")?;
        Ok(true)
    }

    /// The file of a blob that a repository has.
    pub(crate) fn blob(&self, name: &str, digest: &Digest) -> Option<PathBuf> {
        let has = |kind| {
            self.repository(name)
                .join(kind)
                .join(digest.hash())
                .exists()
        };
        let content = self.content(digest);
        ((has(BLOBS) || has(MANIFESTS)) && content.exists()).then_some(content)
    }

    /// Lets a repository have a blob of another one.
    pub(crate) fn mount(&self, name: &str, from: &str, digest: &Digest) -> io::Result<bool> {
        if self.blob(from, digest).is_none() {
            return Ok(false);
        }
        self.link(name, BLOBS, digest.hash(), "")?;
        Ok(true)
    }

    pub(crate) fn delete_blob(&self, name: &str, digest: &Digest) -> io::Result<bool> {
        removed(&self.repository(name).join(BLOBS).join(digest.hash()))
    }

    /// Keeps a manifest, about another one if it says so, and lets a tag stand for it.
    pub(crate) fn put_manifest(
        &self,
        name: &str,
        content: &[u8],
        media_type: &str,
        subject: Option<&Digest>,
        tag: Option<&str>,
    ) -> io::Result<Digest> {
        let digest = digest_of(content);
        write_whole(&self.content(&digest), content)?;
        self.link(name, MANIFESTS, digest.hash(), media_type)?;
        if let Some(subject) = subject {
            let kind = format!("{REFERRERS}/{}", subject.hash());
            self.link(name, &kind, digest.hash(), "")?;
        }
        if let Some(tag) = tag {
            self.link(name, TAGS, tag, digest.hash())?;
        }
        Ok(digest)
    }

    /// A manifest and its media type.
    pub(crate) fn manifest(&self, name: &str, digest: &Digest) -> Option<(Vec<u8>, String)> {
        let entry = self.repository(name).join(MANIFESTS).join(digest.hash());
        let media_type = fs::read_to_string(entry).ok()?;
        Some((fs::read(self.content(digest)).ok()?, media_type))
    }

    /// What a tag stands for.
    pub(crate) fn tag(&self, name: &str, tag: &str) -> Option<Digest> {
        let hash = fs::read_to_string(self.repository(name).join(TAGS).join(tag)).ok()?;
        Some(Digest::of_hash(hash))
    }

    pub(crate) fn tags(&self, name: &str) -> io::Result<Vec<String>> {
        let mut tags = names(&self.repository(name).join(TAGS))?;
        tags.sort();
        Ok(tags)
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        let repository = self.repository(name);
        repository.join(MANIFESTS).exists() || repository.join(BLOBS).exists()
    }

    pub(crate) fn delete_tag(&self, name: &str, tag: &str) -> io::Result<bool> {
        removed(&self.repository(name).join(TAGS).join(tag))
    }

    /// Takes a manifest away, with the tags that stand for it.
    pub(crate) fn delete_manifest(&self, name: &str, digest: &Digest) -> io::Result<bool> {
        for tag in self.tags(name)? {
            if self.tag(name, &tag).as_ref() == Some(digest) {
                self.delete_tag(name, &tag)?;
            }
        }
        let referrers = self.repository(name).join(REFERRERS);
        for subject in names(&referrers)? {
            removed(&referrers.join(subject).join(digest.hash()))?;
        }
        removed(&self.repository(name).join(MANIFESTS).join(digest.hash()))
    }

    /// The manifests that are about another one.
    pub(crate) fn referrers(&self, name: &str, subject: &Digest) -> io::Result<Vec<Digest>> {
        let mut found = names(&self.repository(name).join(REFERRERS).join(subject.hash()))?;
        found.sort();
        Ok(found.into_iter().map(Digest::of_hash).collect())
    }

    fn link(&self, name: &str, kind: &str, file: &str, content: &str) -> io::Result<()> {
        let directory = self.repository(name).join(kind);
        fs::create_dir_all(&directory)?;
        write_whole(&directory.join(file), content.as_bytes())
    }
}

/// The digest of bytes.
pub(crate) fn digest_of(content: &[u8]) -> Digest {
    Digest::of_hash(hexadecimal(&Sha256::digest(content)))
}

fn hash_of(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest::of_hash(hexadecimal(&hash.finalize()))),
            length => hash.update(&buffer[..length]),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let name =
        |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    let all: io::Result<Vec<String>> = entries.map(name).collect();
    // Files that were being written when the power went.
    Ok(all?
        .into_iter()
        .filter(|name| !name.ends_with(".new"))
        .collect())
}

fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    // Two may write the same at once; each has a file of its own.
    let unique = uuid::Uuid::new_v4().simple();
    let aside = path.with_file_name(format!(".{unique}.new"));
    let mut file = File::create(&aside)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&aside, path)
}
