//! Says who it runs as. In its image it belongs to root and becomes root, unless that is forbidden: so a spec sees
//! whether it is.

use std::io::Write as _;

fn main() {
    let id = rustix::process::geteuid().as_raw();
    // Nobody is left to be told that nobody listens.
    let _ = writeln!(std::io::stdout(), "Effective uid: {id}");
}
