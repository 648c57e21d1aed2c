//! How the program is linked.

use std::process::Command;

/// The first C library that reads packed relocations.
const READS_PACKED: (u32, u32) = (2, 36);

// A table of 1.4 MB, read whole at every start, becomes one of 20 KB. The program then needs at least that
// library where it runs, so this is done only where it is built for the machine it is built on.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name, value| std::env::var(name).is_ok_and(|found| found == value);
    let is_native = std::env::var("TARGET").ok() == std::env::var("HOST").ok();
    if is_native && is("CARGO_CFG_TARGET_ENV", "gnu") && c_library() >= Some(READS_PACKED) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

// `glibc 2.36`, as getconf says it.
fn c_library() -> Option<(u32, u32)> {
    let said = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
