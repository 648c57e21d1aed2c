//! What makes pods: deployments, sets, jobs, autoscalers and disruption budgets.

pub mod autoscaling;
pub(super) mod cron_job;
pub(super) mod cron_schedule;
pub(super) mod job;
pub(super) mod job_policies;
pub(super) mod job_status;
pub mod policy;
pub(super) mod workload;
pub(super) mod workload_stateful;
pub(super) mod workload_status;
