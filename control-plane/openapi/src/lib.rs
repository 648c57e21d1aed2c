//! The OpenAPI documents of the built-in types, made at build time and kept compressed.
//!
//! Upstream's server keeps these documents as object trees, which costs a control plane a hundred
//! megabytes. Here they are bytes of the program: an answer to a client that takes gzip touches
//! nothing else. What custom resources add is the API server's business.

pub mod gnostic;

use std::io::Read;

/// One document.
#[derive(Debug)]
pub struct Document {
    /// Where it is served below `/openapi/v3/`, such as `apis/apps/v1`.
    pub path: &'static str,
    /// SHA-512 of the text in upper-case hexadecimal: the `hash` of its address and its ETag.
    pub hash: &'static str,
    /// The text, compressed with gzip.
    pub gzip: &'static [u8],
    /// Length of the text.
    pub json_len: usize,
}

impl Document {
    /// The text, for a client that does not take gzip or for merging: JSON, but for [`v2_protobuf`].
    pub fn json(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.json_len);
        flate2::read::GzDecoder::new(self.gzip)
            .read_to_end(&mut text)
            .expect("the build compressed the document and a test reads every one");
        text
    }
}

static DOCUMENTS: &[Document] = &include!(concat!(env!("OUT_DIR"), "/documents.rs"));
static V2: Document = include!(concat!(env!("OUT_DIR"), "/v2.rs"));
static V2_PROTOBUF: Document = include!(concat!(env!("OUT_DIR"), "/v2-protobuf.rs"));

/// The OpenAPI v3 documents, sorted by path.
pub fn documents() -> &'static [Document] {
    DOCUMENTS
}

/// The OpenAPI v3 document at this path, such as `apis/apps/v1`.
pub fn document(path: &str) -> Option<&'static Document> {
    let found = DOCUMENTS.binary_search_by(|document| document.path.cmp(path));
    found.ok().map(|i| &DOCUMENTS[i])
}

/// The body of `/openapi/v3` when there are no custom resources: each document with its address.
pub fn index() -> &'static str {
    include_str!(concat!(env!("OUT_DIR"), "/index.json"))
}

/// The OpenAPI v2 document of everything, in JSON; its path is `v2`.
pub fn v2() -> &'static Document {
    &V2
}

/// The same document as protobuf, as [`gnostic::encode`] makes it.
pub fn v2_protobuf() -> &'static Document {
    &V2_PROTOBUF
}
