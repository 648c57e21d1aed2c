//! Machines: what the cloud calls a virtual machine, as a Linux machine on this host.
//!
//! A [`Driver`] boots, powers off and looks at machines. [`Namespaces`] is the driver that needs nothing but
//! Linux: a machine is a set of namespaces with real systemd as its first process, on an overlay of this
//! host's own root, so that it boots at once and costs only what it writes.
//!
//! What a machine is made of, and who makes it:
//!
//! ```text
//! <directory>/machines/<name>/    plan.json   what was asked for (Spec)
//!                                 record.json what runs (Record), lock: held while a supervisor watches
//!                                 upper work root  the overlay; data/: plain directories outside of it
//!                                 disks.json  its data disks, plugged.json: how far they are plugged in
//!                                 console.log supervisor.log
//! <directory>/networks/<name>/    network.json, netns: a network namespace with a bridge, held by a mount
//! <directory>/lock                whoever changes which of these there are
//! <cgroups>/kyanite/<group>       in every hierarchy of cgroups
//! ```
//!
//! `Namespaces::boot` → the launcher program (`launcher`) starts `supervise`, which makes the control groups
//! and the network, and starts `init` as process 1 of a new pid namespace; `init` makes the root, lays down
//! the machine's files and becomes systemd. The supervisor reboots the machine when it asks for that and
//! takes everything away when it is off. Whatever is left when a supervisor was killed is found by what is
//! recorded, and [`Namespaces::sweep`] removes it.
//!
//! The host's root is the lower layer of every machine: what is installed or changed there while a machine runs,
//! the machine may or may not see. And a machine is no wall: its root is root.

pub mod custom_data;
mod driver;
mod guest;
pub mod image;
pub mod launcher;
mod namespaces;
mod preflight;
mod spec;

pub use driver::{Driver, Error, PowerOff, State};
pub use namespaces::{
    BRIDGE, HOST_LINK, Launcher, METADATA, Machine, Namespaces, Network, PLATFORM, Swept, Way,
    Ways, hardware_address,
};
pub use preflight::Missing;
pub use spec::{Attachment, Bind, Disk, File, Spec, User};
