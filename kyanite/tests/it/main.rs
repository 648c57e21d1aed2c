//! The real binary, driven by real clients: kubectl, Python's client, the kube crate, and raw TLS.
//!
//! Every test starts a server of its own on a free port in a temporary directory; see [`harness`].
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod admission_policies;
mod admission_webhooks;
mod aggregation;
mod answers;
mod audit;
mod authorization_config;
mod bundles;
mod by_tunnel;
mod certs;
mod cloud_controllers;
mod cloud_crash;
mod controllers;
mod conversion;
mod crash;
mod custom_resources;
mod encryption;
mod escalation;
mod fair_shares;
mod flex_node;
mod front_door;
mod harness;
mod hollow_nodes;
mod hostile;
mod hostile_credentials;
mod kube_rs;
mod kubectl_apply;
mod kubectl_auth;
mod kubectl_change;
mod kubectl_create;
mod kubectl_delete;
mod kubectl_get;
mod kubectl_inspect;
mod lifecycle;
mod many_definitions;
mod model;
mod namespace_policies;
mod node_bootstrap;
mod node_controller;
mod nodes;
mod oidc;
mod on_etcd;
mod one_verb;
mod other_clients;
mod own_pages;
mod own_tunnels;
mod provision;
mod python;
mod rollout_kills;
mod scheduling;
mod secrecy;
mod stolen_credentials;
mod storage_migration;
mod workloads;
