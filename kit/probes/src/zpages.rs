//! Pages for people who look after a server: `/statusz` and `/flagz`, and its health as figures, `/metrics/slis`.

use std::fmt::Write as _;

/// What upstream says above such pages.
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

/// What runs here: the component by upstream's name, its version, and the release it behaves as.
pub fn status(component: &str, version: &str, release: (&str, &str)) -> String {
    let (major, minor) = release;
    let text = format!("{component} statusz\n{WARNING}\n\n");
    let lines = [
        ("Binary version", version.to_owned()),
        ("Emulation version", format!("{major}.{minor}")),
        ("Compiler", "rustc".to_owned()),
        ("Process", std::process::id().to_string()),
        (
            "Paths",
            "/healthz /livez /metrics /readyz /version /flagz".to_owned(),
        ),
    ];
    lines.iter().fold(text, |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

/// What it was told. Secrets are never told by flags.
pub fn flags(component: &str, arguments: impl Iterator<Item = String>) -> String {
    let mut text = format!("{component} flagz\n{WARNING}\n\n");
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix("--") else {
            continue;
        };
        let value = match flag.contains('=') {
            true => String::new(),
            false => match arguments.next_if(|next| !next.starts_with('-')) {
                Some(value) => format!("={value}"),
                None => "=true".to_owned(),
            },
        };
        let _ = writeln!(text, "{flag}{value}");
    }
    text
}

/// Health checks as upstream's gauges: name, endpoint, and whether it is well.
pub fn indicators(checks: &[(&str, &str, bool)]) -> String {
    let mut text = String::from(
        "# HELP kubernetes_healthcheck This metric records the result of a single healthcheck.\n\
         # TYPE kubernetes_healthcheck gauge\n",
    );
    for (name, endpoint, ok) in checks {
        let value = u8::from(*ok);
        let _ = writeln!(
            text,
            "kubernetes_healthcheck{{name=\"{name}\",type=\"{endpoint}\"}} {value}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_in_one_form() {
        let words = [
            "up",
            "--port",
            "0",
            "--foreground",
            "--hollow=3",
            "-o",
            "json",
        ];
        let text = flags("kube-apiserver", words.into_iter().map(str::to_owned));
        assert!(
            text.ends_with("\n\nport=0\nforeground=true\nhollow=3\n"),
            "{text}"
        );
    }

    #[test]
    fn health_is_a_gauge_per_check() {
        let text = indicators(&[("ping", "livez", true), ("etcd", "readyz", false)]);
        assert!(text.contains("kubernetes_healthcheck{name=\"ping\",type=\"livez\"} 1\n"));
        assert!(text.contains("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 0\n"));
        assert!(
            status("kube-apiserver", "v1.36.0", ("1", "36"))
                .starts_with("kube-apiserver statusz\n")
        );
    }
}
