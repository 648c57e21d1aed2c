//! The Flex Node agent: a machine outside of Azure becomes a worker of an AKS cluster, stays one, and leaves without a trace.
//!
//! ```text
//! config   upstream's file, all its eras, as one model; everything wrong with it at once
//! machine  what the machine is: containers, control groups, installed programs and their versions
//! render   what goes into files
//! steps    the table: identity, installation, activation; `steps::engine` plans, does and undoes it
//! journey  bootstrap and unbootstrap around it, with phases and times
//! checks   what can be wrong before and after, each with the command that mends it
//! identity Arc, roles, cluster credentials: the agent's own calls of Azure
//! himds    the identity of a machine that connected itself, as Azure's agent serves it
//! membership what the cluster grants to that identity
//! token    the kubelet's exec credential
//! agent    the loop: health and drift as a pure decision, remediation under a budget
//! cluster  the node's own object, and its pods at the runtime
//! drain    a node is emptied before an upgrade
//! bundle   everything that would be fetched, in one file
//! versions what an upgrade chose
//! ```

pub mod agent;
pub mod bundle;
pub mod checks;
pub mod cluster;
pub mod codes;
pub mod config;
pub mod drain;
pub mod himds;
pub mod identity;
pub mod journey;
pub mod machine;
pub mod membership;
pub mod paths;
pub mod render;
pub mod steps;
pub mod token;
pub mod versions;
