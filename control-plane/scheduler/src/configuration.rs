//! `KubeSchedulerConfiguration` (kubescheduler.config.k8s.io/v1): profiles, plugins and their arguments.

mod fields;
mod plugins;

use std::path::{Path, PathBuf};
use std::time::Duration;

use client_runtime::LeaderElection;
use serde_json::Value;

use crate::profile::Profile;
use crate::queue::Backoff;

use fields::Fields;

/// Why a configuration is of no use: where, and what is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("cannot read the configuration `{path}`: {cause}")]
    File {
        /// Which file.
        path: String,
        /// Why not.
        cause: String,
    },
    /// Something in it is wrong.
    #[error("the scheduler's configuration is wrong: {path}: {cause}")]
    Field {
        /// Which field.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
}

/// What a configuration says, with upstream's defaults for what it does not say.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// How the API server is reached.
    pub kubeconfig: Option<PathBuf>,
    /// Whether to run only as the leader.
    pub leader_elect: bool,
    election: LeaderElection,
    /// Which pods are placed, and how.
    pub profiles: Vec<Profile>,
    /// How long pods wait after failures.
    pub backoff: Backoff,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            kubeconfig: None,
            leader_elect: true,
            election: LeaderElection::new("kube-scheduler", String::new()),
            profiles: vec![Profile::new("default-scheduler")],
            backoff: Backoff::default(),
        }
    }
}

/// Fields that say how upstream's process runs and mean nothing here.
const ACCEPTED: [&str; 6] = [
    "parallelism",
    "enableProfiling",
    "enableContentionProfiling",
    "healthzBindAddress",
    "metricsBindAddress",
    "delayCacheUntilActive",
];

impl Configuration {
    /// What a file says.
    pub fn read(path: &Path) -> Result<Configuration, ConfigurationError> {
        let unreadable = |cause: String| ConfigurationError::File {
            path: path.display().to_string(),
            cause,
        };
        let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
        let value = serde_saphyr::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
        Configuration::of(&value)
    }

    /// What a document says.
    pub fn of(document: &Value) -> Result<Configuration, ConfigurationError> {
        let mut read = Configuration::default();
        let mut top = Fields::of(document, "")?;
        let kind = (top.text("apiVersion")?, top.text("kind")?);
        let expected = (
            Some("kubescheduler.config.k8s.io/v1".to_owned()),
            Some("KubeSchedulerConfiguration".to_owned()),
        );
        if kind != expected {
            return Err(top.wrong(
                "kind",
                "must be a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1",
            ));
        }
        ACCEPTED.iter().for_each(|field| top.ignore(field));
        read.client(&mut top)?;
        read.leading(&mut top)?;
        read.pauses(&mut top)?;
        let everywhere = top.percentage("percentageOfNodesToScore")?;
        if let Some(profiles) = top.list("profiles")? {
            read.profiles = profiles
                .into_iter()
                .map(|(value, path)| plugins::profile(value, &path))
                .collect::<Result<_, _>>()?;
        }
        for profile in &mut read.profiles {
            profile.percentage = profile.percentage.or(everywhere);
        }
        if top.list("extenders")?.is_some_and(|all| !all.is_empty()) {
            return Err(top.wrong("extenders", "are not supported: place pods with profiles"));
        }
        top.done()?;
        read.check()?;
        Ok(read)
    }

    /// How several schedulers agree on one.
    pub fn election(&self, identity: String) -> LeaderElection {
        LeaderElection {
            identity,
            ..self.election.clone()
        }
    }

    fn client(&mut self, top: &mut Fields<'_>) -> Result<(), ConfigurationError> {
        if let Some(mut client) = top.object("clientConnection")? {
            self.kubeconfig = client
                .text("kubeconfig")?
                .filter(|k| !k.is_empty())
                .map(PathBuf::from);
            // Nothing here holds back requests of its own.
            for field in ["acceptContentTypes", "contentType", "qps", "burst"] {
                client.ignore(field);
            }
            client.done()?;
        }
        Ok(())
    }

    fn leading(&mut self, top: &mut Fields<'_>) -> Result<(), ConfigurationError> {
        if let Some(mut election) = top.object("leaderElection")? {
            self.leader_elect = election.flag("leaderElect")?.unwrap_or(true);
            let own = &mut self.election;
            let times = [
                ("leaseDuration", &mut own.lease_duration),
                ("renewDeadline", &mut own.renew_deadline),
                ("retryPeriod", &mut own.retry_period),
            ];
            for (field, time) in times {
                *time = election.duration(field)?.unwrap_or(*time);
            }
            if let Some(name) = election.text("resourceName")? {
                own.name = name;
            }
            if let Some(namespace) = election.text("resourceNamespace")? {
                own.namespace = namespace;
            }
            election.ignore("resourceLock");
            election.done()?;
        }
        Ok(())
    }

    fn pauses(&mut self, top: &mut Fields<'_>) -> Result<(), ConfigurationError> {
        let seconds = |value: Option<i64>| {
            value
                .and_then(|s| u64::try_from(s).ok())
                .map(Duration::from_secs)
        };
        let first = seconds(top.number("podInitialBackoffSeconds")?);
        let most = seconds(top.number("podMaxBackoffSeconds")?);
        self.backoff.first = first.unwrap_or(self.backoff.first);
        self.backoff.most = most.unwrap_or(self.backoff.most);
        if self.backoff.first.is_zero() {
            return Err(top.wrong("podInitialBackoffSeconds", "must be greater than 0"));
        }
        if self.backoff.most < self.backoff.first {
            let cause = "must be greater than or equal to podInitialBackoffSeconds";
            return Err(top.wrong("podMaxBackoffSeconds", cause));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ConfigurationError> {
        let wrong = |path: String, cause: &str| ConfigurationError::Field {
            path,
            cause: cause.into(),
        };
        if self.profiles.is_empty() {
            return Err(wrong("profiles".into(), "must have at least one"));
        }
        for (at, profile) in self.profiles.iter().enumerate() {
            let same = |other: &Profile| other.name == profile.name;
            if self.profiles[..at].iter().any(same) {
                let path = format!("profiles[{at}].schedulerName");
                return Err(wrong(path, "is the name of another profile already"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
