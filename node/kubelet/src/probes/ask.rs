//! One question of a probe.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use prost::Message;
use tokio::net::TcpStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;
use wire::proxy::authority;

use crate::context::Context;
use crate::cri;
use crate::http_get;
use crate::make::env::expand;

/// How much of an answer goes into events.
const TEXT: usize = 10 * 1024;

/// Asks: well, or not and why. `Ok(None)` is no answer at all: the question could not be asked.
pub(super) async fn ask(
    ctx: &Context,
    container: &Container,
    probe: &Probe,
    id: &str,
    pod_ip: &str,
) -> Result<Option<()>, String> {
    let limit = Duration::from_secs(probe.timeout_seconds.unwrap_or(1).max(1) as u64);
    if let Some(exec) = &probe.exec {
        return run(
            ctx,
            container,
            exec.command.as_deref().unwrap_or_default(),
            id,
            limit,
        )
        .await;
    }
    if let Some(get) = &probe.http_get {
        let answer = http_get::get(get, container, pod_ip, "kube-probe/1.36", Some(limit)).await?;
        return match answer.code {
            200..=399 => Ok(Some(())),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        let host = tcp
            .host
            .as_deref()
            .filter(|h| !h.is_empty())
            .unwrap_or(pod_ip);
        let port = http_get::port(&tcp.port, container)?;
        let failed = |cause: String| format!("dial tcp {}: {cause}", authority(host, port));
        return match tokio::time::timeout(limit, TcpStream::connect((host, port))).await {
            Ok(Ok(_)) => Ok(Some(())),
            Ok(Err(error)) => Err(failed(format!("connect: {}", http_get::words(&error)))),
            Err(_) => Err(failed("i/o timeout".to_owned())),
        };
    }
    if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).unwrap_or(0);
        let service = grpc.service.clone().unwrap_or_default();
        return check(&authority(pod_ip, port), service, limit)
            .await
            .map(Some);
    }
    Ok(None)
}

async fn run(
    ctx: &Context,
    container: &Container,
    command: &[String],
    id: &str,
    limit: Duration,
) -> Result<Option<()>, String> {
    let env = container.env.as_deref().unwrap_or_default();
    let literal = |name: &str| {
        env.iter()
            .find(|v| v.name == name)
            .and_then(|v| v.value.as_ref())
    };
    let command: Vec<String> = command.iter().map(|word| expand(word, literal)).collect();
    let request = cri::ExecSyncRequest {
        container_id: id.to_owned(),
        cmd: command.clone(),
        timeout: limit.as_secs() as i64,
    };
    let timed_out = || {
        let text = command.join(" ");
        Err(format!(
            "command timed out: {text:?} timed out after {}s",
            limit.as_secs()
        ))
    };
    // The runtime does not always keep to the time limit by itself.
    let call = tokio::time::timeout(
        limit + Duration::from_secs(2),
        ctx.runtime.exec_sync(request),
    );
    match call.await {
        Err(_) => timed_out(),
        Ok(Err(status)) if status.code() == tonic::Code::DeadlineExceeded => timed_out(),
        Ok(Err(_)) => Ok(None),
        Ok(Ok(answer)) if answer.exit_code == 0 => Ok(Some(())),
        Ok(Ok(answer)) => {
            let mut text = String::from_utf8_lossy(&answer.stdout).into_owned();
            text += &String::from_utf8_lossy(&answer.stderr);
            let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= TEXT);
            text.truncate(end.unwrap_or(text.len()));
            Err(text)
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

async fn check(address: &str, service: String, limit: Duration) -> Result<(), String> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|e| e.to_string())?.connect_timeout(limit);
    let slow = |cause: String| {
        format!(
            "timeout: failed to connect service {address:?} within {}s: {cause}",
            limit.as_secs()
        )
    };
    let call = async {
        let channel = endpoint.connect().await.map_err(|e| slow(e.to_string()))?;
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.map_err(|e| slow(e.to_string()))?;
        let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let codec = ProstCodec::<HealthRequest, HealthResponse>::default();
        let request = tonic::Request::new(HealthRequest { service });
        let answer = grpc.unary(request, path, codec).await;
        let answer = answer
            .map_err(|s| format!("rpc error: code = {:?} desc = {}", s.code(), s.message()))?;
        match answer.into_inner().status {
            1 => Ok(()),
            0 => Err("service unhealthy (responded with \"UNKNOWN\")".to_owned()),
            3 => Err("service unhealthy (responded with \"SERVICE_UNKNOWN\")".to_owned()),
            _ => Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned()),
        }
    };
    match tokio::time::timeout(limit, call).await {
        Ok(result) => result,
        Err(_) => Err(slow("context deadline exceeded".to_owned())),
    }
}
