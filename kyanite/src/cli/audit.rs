//! What is recorded of requests, and how objects are kept; upstream's names.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use apiserver::settings::{Audit as Settings, AuditWebhook, Encryption as EncryptionSettings};
use audit::{Format, Limits, LogFile, Mode, Truncation};
use clap::{Args, ValueEnum};

use super::duration;

/// Audit.
#[derive(Debug, Clone, Args)]
pub(crate) struct Audit {
    /// An audit.k8s.io/v1 Policy: what is recorded of requests; `kube-audit` and `kube-audit-admin` are AKS's categories
    /// of these names [default: nothing is recorded]
    #[arg(long, value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// File that records are written to; `-` for standard output
    #[arg(
        long,
        value_name = "FILE",
        requires = "audit_policy_file",
        allow_hyphen_values = true
    )]
    audit_log_path: Option<PathBuf>,
    /// Days that old audit logs are kept; 0 for ever
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    audit_log_maxage: u32,
    /// Old audit logs that are kept; 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Megabytes of an audit log before it is put aside; 0 for never
    #[arg(long, value_name = "MEGABYTES", default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Compress old audit logs
    #[arg(long)]
    audit_log_compress: bool,
    /// How records are written
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    audit_log_format: LogFormat,
    /// Whether requests wait for their records, are refused without, or neither
    #[arg(long, value_enum, default_value_t = LogMode::Blocking)]
    audit_log_mode: LogMode,
    /// Leave the objects out of records of the log that are too large
    #[arg(long)]
    audit_log_truncate_enabled: bool,
    /// Bytes of records that are written at once
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::USUAL.batch)]
    audit_log_truncate_max_batch_size: u64,
    /// Bytes of a record in the log
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::USUAL.event)]
    audit_log_truncate_max_event_size: u64,
    /// A kubeconfig: the server that records are sent to
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_webhook_config_file: Option<PathBuf>,
    /// Pause before records are sent a second time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    audit_webhook_initial_backoff: Duration,
    /// Records that may wait to be sent; others are lost, which is counted
    #[arg(long, value_name = "COUNT", default_value_t = Limits::WEBHOOK.buffer)]
    audit_webhook_batch_buffer_size: usize,
    /// Records that are sent at once
    #[arg(long, value_name = "COUNT", default_value_t = Limits::WEBHOOK.batch)]
    audit_webhook_batch_max_size: usize,
    /// How long a record waits for others to be sent with
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Batches a second; 0 for any number
    #[arg(long, value_name = "RATE", default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f64,
    /// Batches at once after a pause
    #[arg(long, value_name = "COUNT", default_value_t = Limits::WEBHOOK.burst)]
    audit_webhook_batch_throttle_burst: u32,
    /// Leave the objects out of records that are too large to be sent
    #[arg(long)]
    audit_webhook_truncate_enabled: bool,
    /// Bytes of records that are sent at once
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::USUAL.batch)]
    audit_webhook_truncate_max_batch_size: u64,
    /// Bytes of a record that is sent
    #[arg(long, value_name = "BYTES", default_value_t = Truncation::USUAL.event)]
    audit_webhook_truncate_max_event_size: u64,
}

/// Encryption of objects in the store.
#[derive(Debug, Clone, Args)]
pub(crate) struct Encryption {
    /// An EncryptionConfiguration: how objects are encrypted in the store
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Read that file again when it changes
    #[arg(long, requires = "encryption_provider_config")]
    encryption_provider_config_automatic_reload: bool,
}

impl Encryption {
    /// What the flags ask for.
    pub(crate) fn settings(&self) -> Option<EncryptionSettings> {
        Some(EncryptionSettings {
            file: self.encryption_provider_config.clone()?,
            reloads: self.encryption_provider_config_automatic_reload,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Lines for people.
    Legacy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogMode {
    /// Requests wait until their records are written.
    Blocking,
    /// Records are written some time later.
    Batch,
    /// As blocking, and requests whose receipt cannot be recorded are refused.
    BlockingStrict,
}

impl Audit {
    /// What the flags ask for; nothing without a policy.
    pub(crate) fn settings(&self) -> Option<Settings> {
        Some(Settings {
            policy_file: self.audit_policy_file.clone()?,
            log: self.audit_log_path.as_ref().map(|path| {
                let file = LogFile {
                    path: (path.as_os_str() != "-").then(|| path.clone()),
                    format: match self.audit_log_format {
                        LogFormat::Json => Format::Json,
                        LogFormat::Legacy => Format::Legacy,
                    },
                    max_age_days: self.audit_log_maxage,
                    max_backups: self.audit_log_maxbackup,
                    max_megabytes: self.audit_log_maxsize,
                    compress: self.audit_log_compress,
                };
                let mode = match self.audit_log_mode {
                    LogMode::Blocking => Mode::Blocking,
                    LogMode::Batch => Mode::Batch,
                    LogMode::BlockingStrict => Mode::BlockingStrict,
                };
                (file, mode, Limits::LOG)
            }),
            log_truncation: self.audit_log_truncate_enabled.then_some(Truncation {
                event: self.audit_log_truncate_max_event_size,
                batch: self.audit_log_truncate_max_batch_size,
            }),
            webhook: self.audit_webhook_config_file.as_ref().map(|file| {
                let rate = self.audit_webhook_batch_throttle_qps;
                AuditWebhook {
                    config_file: file.clone(),
                    initial_backoff: self.audit_webhook_initial_backoff,
                    limits: Limits {
                        buffer: self.audit_webhook_batch_buffer_size,
                        batch: self.audit_webhook_batch_max_size,
                        wait: self.audit_webhook_batch_max_wait,
                        per_second: (rate > 0.0).then_some(rate),
                        burst: self.audit_webhook_batch_throttle_burst,
                    },
                    truncation: self.audit_webhook_truncate_enabled.then_some(Truncation {
                        event: self.audit_webhook_truncate_max_event_size,
                        batch: self.audit_webhook_truncate_max_batch_size,
                    }),
                }
            }),
        })
    }

    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let files = [
            ("--audit-policy-file", &self.audit_policy_file),
            ("--audit-log-path", &self.audit_log_path),
            (
                "--audit-webhook-config-file",
                &self.audit_webhook_config_file,
            ),
        ];
        let mut flags: Vec<OsString> = Vec::new();
        for (flag, file) in files {
            if let Some(file) = file {
                let mut word = OsString::from(format!("{flag}="));
                word.push(absolute(file));
                flags.push(word);
            }
        }
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or(String::new(), |value| value.get_name().to_owned())
        };
        let seconds = |wait: Duration| format!("{}ms", wait.as_millis());
        let values = [
            ("log-maxage", self.audit_log_maxage.to_string()),
            ("log-maxbackup", self.audit_log_maxbackup.to_string()),
            ("log-maxsize", self.audit_log_maxsize.to_string()),
            (
                "log-truncate-max-batch-size",
                self.audit_log_truncate_max_batch_size.to_string(),
            ),
            (
                "log-truncate-max-event-size",
                self.audit_log_truncate_max_event_size.to_string(),
            ),
            (
                "webhook-truncate-max-batch-size",
                self.audit_webhook_truncate_max_batch_size.to_string(),
            ),
            (
                "webhook-truncate-max-event-size",
                self.audit_webhook_truncate_max_event_size.to_string(),
            ),
            (
                "log-format",
                name(self.audit_log_format.to_possible_value()),
            ),
            ("log-mode", name(self.audit_log_mode.to_possible_value())),
            (
                "webhook-initial-backoff",
                seconds(self.audit_webhook_initial_backoff),
            ),
            (
                "webhook-batch-buffer-size",
                self.audit_webhook_batch_buffer_size.to_string(),
            ),
            (
                "webhook-batch-max-size",
                self.audit_webhook_batch_max_size.to_string(),
            ),
            (
                "webhook-batch-max-wait",
                seconds(self.audit_webhook_batch_max_wait),
            ),
            (
                "webhook-batch-throttle-qps",
                self.audit_webhook_batch_throttle_qps.to_string(),
            ),
            (
                "webhook-batch-throttle-burst",
                self.audit_webhook_batch_throttle_burst.to_string(),
            ),
        ];
        if !flags.is_empty() {
            flags.extend(values.map(|(flag, value)| format!("--audit-{flag}={value}").into()));
            let switches = [
                ("log-compress", self.audit_log_compress),
                ("log-truncate-enabled", self.audit_log_truncate_enabled),
                (
                    "webhook-truncate-enabled",
                    self.audit_webhook_truncate_enabled,
                ),
            ];
            let on = switches.iter().filter(|(_, on)| *on);
            flags.extend(on.map(|(flag, _)| format!("--audit-{flag}").into()));
        }
        flags
    }
}

// The background process may work elsewhere; what is no file stays as it is.
fn absolute(file: &PathBuf) -> PathBuf {
    let is_word = file.components().count() == 1 && !file.exists();
    match is_word {
        true => file.clone(),
        false => std::path::absolute(file).unwrap_or_else(|_| file.clone()),
    }
}
