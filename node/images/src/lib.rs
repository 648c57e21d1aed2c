//! Container images without a registry: made from programs and directories, written as an archive that containerd
//! and Docker read.
//!
//! [`tar`] and [`archive`] are pure: the same files and settings are the same bytes, and so the same digests. What a
//! program needs to run is found by [`program`]. [`built_in`] are the images of our own programs.

pub mod archive;
pub mod built_in;
mod layer;
pub mod program;
pub mod tar;

pub use archive::{Archive, Settings};
pub use layer::{Layer, LayerError};

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The digest of content, as images name it.
pub fn digest(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    hash.iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
