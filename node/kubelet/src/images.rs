//! Images on this node: whether one is there, and fetching it if it is to be fetched.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use client_runtime::Severity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use tokio::sync::Semaphore;

use crate::backoff::Backoff;
use crate::context::Context;
use crate::cri::{self, AuthConfig, Image, ImageSpec};
use crate::spec;
use crate::status::Waiting;

mod credentials;

/// What this node remembers about fetching images.
pub struct Images {
    backoff: Mutex<Backoff>,
    last_error: Mutex<BTreeMap<String, String>>,
    pulls: Semaphore,
}

impl Images {
    /// With at most `at_once` pulls at a time.
    pub fn new(at_once: usize) -> Self {
        Self {
            backoff: Mutex::new(Backoff::new(
                Duration::from_secs(10),
                Duration::from_secs(300),
            )),
            last_error: Mutex::default(),
            pulls: Semaphore::new(at_once.max(1)),
        }
    }

    fn backoff(&self) -> std::sync::MutexGuard<'_, Backoff> {
        self.backoff
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The name with the tag that is meant where none is written.
pub fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.contains([':', '@']) {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

fn waiting(reason: &str, message: impl Into<String>) -> Waiting {
    Waiting {
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// Makes sure that a container's image is there, as its policy wants.
pub async fn ensure(
    ctx: &Context,
    pod: &Pod,
    container: &Container,
    place: &str,
    secrets: &[std::sync::Arc<Secret>],
) -> Result<Image, Waiting> {
    let asked = container.image.as_deref().unwrap_or_default();
    if asked.is_empty() || asked.contains(char::is_whitespace) || asked.starts_with('-') {
        let message = format!(
            "Failed to apply default image tag {asked:?}: couldn't parse image name {asked:?}: invalid reference format"
        );
        ctx.say_of(
            pod,
            place,
            Severity::Warning,
            "InspectFailed",
            message.clone(),
        );
        return Err(waiting("InvalidImageName", message));
    }
    let image = with_tag(asked);
    let found = status(ctx, &image).await.map_err(|e| {
        let message = format!("Failed to inspect image {image:?}: {}", e.message());
        ctx.say_of(
            pod,
            place,
            Severity::Warning,
            "InspectFailed",
            message.clone(),
        );
        waiting("ImageInspectError", message)
    })?;
    let default = if image.ends_with(":latest") {
        "Always"
    } else {
        "IfNotPresent"
    };
    match (
        container.image_pull_policy.as_deref().unwrap_or(default),
        found,
    ) {
        ("Never", None) => {
            let message =
                format!("Container image {asked:?} is not present with pull policy of Never");
            ctx.say_of(
                pod,
                place,
                Severity::Warning,
                "ErrImageNeverPull",
                message.clone(),
            );
            Err(waiting("ErrImageNeverPull", message))
        }
        ("Never" | "IfNotPresent", Some(found)) => {
            let text = format!(
                "Container image {asked:?} already present on machine and can be accessed by the pod"
            );
            ctx.say_of(pod, place, Severity::Normal, "Pulled", text);
            Ok(found)
        }
        _ => pull(ctx, pod, asked, &image, place, secrets).await,
    }
}

async fn pull(
    ctx: &Context,
    pod: &Pod,
    asked: &str,
    image: &str,
    place: &str,
    secrets: &[std::sync::Arc<Secret>],
) -> Result<Image, Waiting> {
    let key = format!("{}_{image}", spec::uid(pod));
    let now = Timestamp::now();
    let last = |images: &Images| {
        let errors = images
            .last_error
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        errors.get(&key).cloned()
    };
    // The time of the last failure is the time of the last raise: a failure raises at once.
    if let Some(error) = last(&ctx.images) {
        let (since, text) = error.split_once('|').unwrap_or(("0", &error));
        let since = since
            .parse()
            .ok()
            .and_then(|s| Timestamp::from_second(s).ok())
            .unwrap_or(now);
        if ctx.images.backoff().remaining(&key, since, now).is_some() {
            let message = format!("Back-off pulling image {asked:?}");
            ctx.say_of(pod, place, Severity::Normal, "BackOff", message.clone());
            ctx.say_of(
                pod,
                place,
                Severity::Warning,
                "Failed",
                "Error: ImagePullBackOff",
            );
            return Err(waiting(
                "ImagePullBackOff",
                format!("{message}: ErrImagePull: {text}"),
            ));
        }
    }
    ctx.say_of(
        pod,
        place,
        Severity::Normal,
        "Pulling",
        format!("Pulling image {asked:?}"),
    );
    let begun = Instant::now();
    let turn = ctx.images.pulls.acquire().await;
    let pulling = Instant::now();
    let result = pull_with_credentials(ctx, image, secrets).await;
    drop(turn);
    let result = match result {
        Ok(()) => status(ctx, image).await.and_then(|found| {
            found.ok_or_else(|| {
                tonic::Status::not_found("the image is not there after it was pulled")
            })
        }),
        Err(status) => Err(status),
    };
    let mut errors = ctx
        .images
        .last_error
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    match result {
        Ok(found) => {
            errors.remove(&key);
            let text = format!(
                "Successfully pulled image {asked:?} in {} ({} including waiting). Image size: {} bytes.",
                short(pulling.elapsed()),
                short(begun.elapsed()),
                found.size
            );
            ctx.say_of(pod, place, Severity::Normal, "Pulled", text);
            Ok(found)
        }
        Err(status) => {
            let now = Timestamp::now();
            let text = status_text(&status);
            ctx.images.backoff().raise(&key, now, now);
            errors.insert(key, format!("{}|{text}", now.as_second()));
            let message = format!("Failed to pull image {asked:?}: {text}");
            ctx.say_of(pod, place, Severity::Warning, "Failed", message);
            ctx.say_of(
                pod,
                place,
                Severity::Warning,
                "Failed",
                "Error: ErrImagePull",
            );
            let reason = match () {
                () if status.message().contains("RegistryUnavailable") => "RegistryUnavailable",
                () if status.message().contains("SignatureValidationFailed") => {
                    "SignatureValidationFailed"
                }
                () => "ErrImagePull",
            };
            Err(waiting(reason, text))
        }
    }
}

/// An error of the runtime as gRPC's library for Go prints it.
pub fn status_text(status: &tonic::Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}

fn short(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{}ms", duration.as_millis()),
        _ => format!("{:.3}s", duration.as_secs_f64()),
    }
}

async fn pull_with_credentials(
    ctx: &Context,
    image: &str,
    secrets: &[std::sync::Arc<Secret>],
) -> Result<(), tonic::Status> {
    let mut tries: Vec<Option<AuthConfig>> = credentials::matching(image, secrets)
        .into_iter()
        .map(Some)
        .collect();
    let provided = credentials::provided(ctx, image).await;
    tries.extend(provided.into_iter().map(Some));
    if tries.is_empty() {
        tries.push(None);
    }
    let mut last = None;
    for auth in tries {
        let request = cri::PullImageRequest {
            image: Some(spec_of(image)),
            auth,
            sandbox_config: None,
        };
        match ctx.runtime.pull_image(request).await {
            Ok(_) => return Ok(()),
            Err(status) => last = Some(status),
        }
    }
    Err(last.unwrap_or_else(|| tonic::Status::unknown("nothing was tried")))
}

fn spec_of(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        ..ImageSpec::default()
    }
}

async fn status(ctx: &Context, image: &str) -> Result<Option<Image>, tonic::Status> {
    let request = cri::ImageStatusRequest {
        image: Some(spec_of(image)),
        verbose: false,
    };
    Ok(ctx.runtime.image_status(request).await?.image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_means_latest() {
        for (asked, meant) in [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("host:5000/a/b", "host:5000/a/b:latest"),
            ("a@sha256:00", "a@sha256:00"),
        ] {
            assert_eq!(with_tag(asked), meant);
        }
    }
}
