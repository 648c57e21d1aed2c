//! The HTTP proxy, in every place that is looked at.

use ::steps::engine::{Change, Content, File, Scene};

use super::{Changes, observe};
use crate::config::Configuration;
use crate::render::{containerd, proxy};

/// Units are restarted by the steps that start them; the kubelet's drop-in is written with the
/// others of the kubelet. URLs may carry passwords, so contents are not shown.
pub(super) fn settings(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let present = observe::read_text(scene, proxy::ENVIRONMENT).unwrap_or_default();
    let rows = [
        (
            proxy::ENVIRONMENT.to_owned(),
            proxy::environment(&present, config),
        ),
        (proxy::APT.to_owned(), proxy::apt(config)),
        (proxy::MANAGER.to_owned(), proxy::manager(config)),
        (
            format!("{}/10-httpproxy.conf", containerd::DROP_INS),
            proxy::UNIT_DROP_IN.to_owned(),
        ),
    ];
    let file = |(path, text): (String, String)| {
        let content = Content::Bytes(text.into_bytes());
        Change::File(File {
            secret: true,
            ..File::new(path, 0o644, content)
        })
    };
    Ok(rows.into_iter().map(file).collect())
}
