//! Starts servers and clients, waits for conditions, and judges what programs print.

mod azure;
mod forger;
mod hook_server;
mod issuer;
mod json;
mod jwt;
mod kms;
mod kubectl;
mod namespace;
mod person;
mod random;
mod raw_tls;
mod server;
mod stand_in;
mod standalone;

pub(crate) use ::harness::{
    Finished, Process, Running, eventually, eventually_async, find_program, free_port, skip,
};
pub(crate) use azure::Azure;
pub(crate) use forger::{Forger, certificate_request};
pub(crate) use hook_server::HookServer;
pub(crate) use issuer::OidcIssuer;
pub(crate) use json::{JsonWatch, WatchEnd, call, version};
pub(crate) use jwt::{TokenKey, jwt, opened};
pub(crate) use kms::KmsPlugin;
pub(crate) use kubectl::Kubectl;
pub(crate) use namespace::{INSIDE, Namespace};
pub(crate) use person::{Answer, Credentials, Person};
pub(crate) use random::Random;
pub(crate) use raw_tls::RawConnection;
pub(crate) use server::{KYANITE, Server, ServerOptions, client_of, exchange};
pub(crate) use stand_in::{LOG, StandIn};
pub(crate) use standalone::{Etcd, Pki, Replica};
