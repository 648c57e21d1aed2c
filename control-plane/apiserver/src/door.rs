//! At the door: what a request asks for, who asks, whether they may, and when it is their turn.

pub(crate) mod access_review;
pub(crate) mod asked;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod callers;
pub(crate) mod deadline;
pub(crate) mod identity;
pub(crate) mod impersonation;
pub(crate) mod request;
pub(crate) mod seats;
