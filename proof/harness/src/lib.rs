//! What tests of several crates need: waiting with a deadline, saying what is missing, programs that end with their
//! test, throw-away certificates, an image of one program. A dev-dependency only: what goes wrong here panics.

mod containerd;
pub mod destinations;
mod image;
mod pki;
mod process;
mod program;
mod skip;
mod wait;

pub use containerd::containerd_configuration;
pub use image::Image;
pub use pki::{Authority, Identity, Pki};
pub use process::{Process, free_port, said};
pub use program::{Finished, Running};
pub use skip::{directory, find_program, is_root, skip};
pub use wait::{Look, eventually, eventually_async, in_time};
