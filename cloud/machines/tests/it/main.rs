//! Real machines on this host: systemd, networks, containers. They need root and are skipped, loudly, where the
//! host cannot run machines.

mod boot;
mod containers;
mod crash;
mod custom_data;
mod disks;
mod host;
mod network;
mod power;
