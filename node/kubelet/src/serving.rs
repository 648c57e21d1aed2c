//! The kubelet's servers and the certificate they show.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::certificates::{self, Purpose};
use crate::config::KubeletConfiguration;
use crate::context::Context;
use crate::server::{Certificate, Reports, Rules, Server, Settings, Sources, Webhook, self_signed};
use crate::volumes::{Mounts, VolumeUsage};

/// What the server tells of the kubelet beside its pods.
struct Own {
    config: KubeletConfiguration,
    mounts: Arc<dyn Mounts>,
}

#[async_trait]
impl Reports for Own {
    async fn volumes(&self, uid: &str) -> Vec<VolumeUsage> {
        self.mounts.usage(uid).await
    }

    fn configuration(&self) -> Value {
        serde_json::to_value(&self.config).unwrap_or_else(|_| json!({}))
    }
}

/// Serves for ever; without `enableServer` nothing is served.
pub(crate) async fn serve(ctx: Arc<Context>, client: kube::Client) {
    let config = &ctx.settings.config;
    if !config.enable_server {
        return std::future::pending().await;
    }
    let certificate = Arc::new(Certificate::default());
    let ca = &config.authentication.x509.client_ca_file;
    let settings = Settings {
        node: ctx.node().to_owned(),
        root: ctx.settings.root_dir.clone(),
        system_logs: "/var/log".into(),
        client_ca: (!ca.is_empty()).then(|| ca.into()),
        rules: Rules {
            anonymous: config.authentication.anonymous.enabled,
            tokens: config.authentication.webhook.enabled,
            always_allow: config.authorization.mode == "AlwaysAllow",
        },
        debugging: config.enable_debugging_handlers,
    };
    let sources = Sources {
        pods: Arc::clone(&ctx.pods),
        runtime: Arc::clone(&ctx.runtime),
        reports: Arc::new(Own {
            config: config.clone(),
            mounts: Arc::clone(&ctx.mounts),
        }),
        reviews: Arc::new(Webhook::new(client, ctx.node())),
        certificate: Arc::clone(&certificate),
    };
    let server = Server::new(settings, sources);
    // Never told: the server ends with this future.
    let (_running, stop) = watch::channel(false);
    let main = async {
        let listener = listen(&config.address, config.port).await;
        if let Err(error) = Arc::clone(&server).serve(listener, stop.clone()).await {
            tracing::error!(%error, "the kubelet's server cannot serve");
        }
        std::future::pending::<()>().await
    };
    let health = async {
        if config.healthz_port > 0 {
            let listener = listen(&config.healthz_bind_address, config.healthz_port).await;
            Arc::clone(&server)
                .serve_health(listener, stop.clone())
                .await;
        }
        std::future::pending::<()>().await
    };
    tokio::join!(main, health, keep_certificate(&ctx, &certificate));
}

/// Listens as soon as the port is free: the kubelet before may still hold it.
async fn listen(address: &str, port: u16) -> TcpListener {
    loop {
        match TcpListener::bind((address, port)).await {
            Ok(listener) => return listener,
            Err(error) => {
                tracing::warn!(address, port, %error, "the kubelet cannot listen yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Shows the certificate that was given, one that the cluster signs, or one of our own making.
async fn keep_certificate(ctx: &Context, certificate: &Certificate) {
    let config = &ctx.settings.config;
    if !config.tls_cert_file.is_empty() {
        follow_files(
            &config.tls_cert_file,
            &config.tls_private_key_file,
            certificate,
        )
        .await;
    }
    if !config.server_tls_bootstrap {
        let names: Vec<String> = ctx
            .host_ips()
            .into_iter()
            .chain([ctx.node().to_owned()])
            .collect();
        match self_signed(&names) {
            Ok((chain, key)) => show(certificate, chain.as_bytes(), key.as_bytes()),
            Err(error) => tracing::error!(%error, "no certificate can be made to serve with"),
        }
        return;
    }
    let current = Purpose::Serving.current(&ctx.settings.cert_dir);
    loop {
        let now = Timestamp::now();
        let validity = certificates::validity(&current).filter(|(_, end)| now < *end);
        if let Some(validity) = validity {
            let pem = std::fs::read(&current).unwrap_or_default();
            show(certificate, &pem, &pem);
            tokio::time::sleep(certificates::until_renewal(validity, now, rand::random())).await;
        }
        if let Err(error) =
            certificates::renew(&ctx.actor, &ctx.settings, Purpose::Serving, &ctx.host_ips()).await
        {
            tracing::warn!(%error, "there is no certificate to serve with yet");
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
    }
}

async fn follow_files(chain: &str, key: &str, certificate: &Certificate) {
    let mut shown = Vec::new();
    loop {
        let (Ok(chain), Ok(key)) = (tokio::fs::read(chain).await, tokio::fs::read(key).await)
        else {
            tracing::warn!(chain, "the serving certificate cannot be read");
            tokio::time::sleep(Duration::from_secs(10)).await;
            continue;
        };
        if chain != shown {
            show(certificate, &chain, &key);
            shown = chain;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

fn show(certificate: &Certificate, chain: &[u8], key: &[u8]) {
    if let Err(error) = certificate.set(chain, key) {
        tracing::error!(%error, "the serving certificate cannot be used");
    }
}
