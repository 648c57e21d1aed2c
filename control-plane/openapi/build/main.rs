//! Makes the OpenAPI documents from the tables of types and resources, and compresses them.

#![allow(
    clippy::print_stdout,
    reason = "cargo listens to what a build script prints"
)]

mod descriptions;
mod documents;
#[allow(
    unreachable_pub,
    reason = "public in the library, which shares the file"
)]
#[path = "../src/gnostic.rs"]
mod gnostic;
mod operation;
mod parameters;
mod resource_paths;
mod schemas;
mod swagger;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, json};
use sha2::{Digest, Sha512};

use crate::documents::Document;
use crate::schemas::SchemaWriter;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/gnostic.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let documents = documents::all(&SchemaWriter::new());
    let v2 = Document {
        path: "v2".into(),
        content: swagger::combine(&documents),
    };

    let mut index = Map::new();
    let mut table = String::from("[\n");
    for (number, document) in documents.iter().enumerate() {
        let text = document.content.to_string();
        let stored = store(
            &out,
            &format!("v3-{number}"),
            &document.path,
            text.as_bytes(),
        )?;
        index.insert(
            document.path.clone(),
            json!({"serverRelativeURL": stored.address}),
        );
        table.push_str(&stored.expression);
        table.push_str(",\n");
    }
    table.push(']');
    std::fs::write(out.join("documents.rs"), table)?;
    let forms = [
        ("v2", v2.content.to_string().into_bytes()),
        ("v2-protobuf", gnostic::encode(&v2.content)),
    ];
    for (stem, bytes) in forms {
        let stored = store(&out, stem, &v2.path, &bytes)?;
        std::fs::write(out.join(format!("{stem}.rs")), stored.expression)?;
    }
    std::fs::write(out.join("index.json"), json!({"paths": index}).to_string())
}

/// A document that was written to the output directory.
struct Stored {
    /// The Rust expression for the crate's table.
    expression: String,
    /// Where clients find it, with the hash that lets them keep it.
    address: String,
}

fn store(out: &Path, stem: &str, path: &str, text: &[u8]) -> io::Result<Stored> {
    let hash = hex(&Sha512::digest(text));
    let file = format!("{stem}.gz");
    std::fs::write(out.join(&file), compress(text)?)?;
    let bytes = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\"))");
    let json_len = text.len();
    Ok(Stored {
        expression: format!(
            "Document {{ path: {path:?}, hash: {hash:?}, gzip: {bytes}, json_len: {json_len} }}"
        ),
        address: format!("/openapi/v3/{path}?hash={hash}"),
    })
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02X}").expect("writing to a String cannot fail");
        text
    })
}
