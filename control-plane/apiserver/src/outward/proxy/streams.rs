//! The kubelet's side of `pods/log`, `exec`, `attach` and `portforward`: its paths and options.
//!
//! Pure: `pkg/registry/core/pod/strategy.go` and `ValidatePodLogOptions`.

use kinds::field::{Errors, Path};
use serde_json::{Value, json};

use crate::door::request::Query;
use crate::status::{ApiError, Result};

/// Fields of a pod's spec that hold containers, in the order upstream visits them.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The container a request means: the one it names, or the only one.
pub(super) fn container<'a>(pod: &'a Value, asked: Option<&'a str>) -> Result<&'a str> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |field: &str| {
        pod["spec"][field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|c| c["name"].as_str())
    };
    let all = || CONTAINERS.into_iter().flat_map(names);
    if let Some(asked) = asked {
        return match all().any(|known| known == asked) {
            true => Ok(asked),
            false => Err(ApiError::bad_request(format!(
                "container {asked} is not valid for pod {name}"
            ))),
        };
    }
    let mut main = names("containers");
    match (main.next(), main.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        _ => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all().collect::<Vec<_>>().join(" ")
        ))),
    }
}

/// The kubelet's path for a stream of a pod, with its options.
pub(super) fn path(subresource: &str, pod: &Value, query: &Query) -> Result<String> {
    let of = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (of("namespace"), of("name"));
    let (path, options) = match subresource {
        "portforward" => (format!("/portForward/{namespace}/{name}"), ports(query)?),
        "log" => {
            let container = container(pod, query.get("container"))?;
            (
                format!("/containerLogs/{namespace}/{name}/{container}"),
                log_options(query)?,
            )
        }
        _ => {
            let container = container(pod, query.get("container"))?;
            (
                format!("/{subresource}/{namespace}/{name}/{container}"),
                stream_options(subresource, query),
            )
        }
    };
    Ok(match options.is_empty() {
        true => path,
        false => format!("{path}?{}", encode(&options)),
    })
}

type Options = Vec<(&'static str, String)>;

// Sorted by name, as Go's encoder has them.
fn stream_options(subresource: &str, query: &Query) -> Options {
    let commands = match subresource {
        "exec" => query.all("command"),
        _ => &[],
    };
    // The kubelet knows the three streams by these names.
    let flags = [
        ("stderr", "error"),
        ("stdin", "input"),
        ("stdout", "output"),
        ("tty", "tty"),
    ];
    let mut options: Options = commands
        .iter()
        .map(|word| ("command", word.clone()))
        .collect();
    let set = flags.into_iter().filter(|(asked, _)| query.flag(asked));
    options.extend(set.map(|(_, told)| (told, "1".to_owned())));
    options
}

fn ports(query: &Query) -> Result<Options> {
    let ports: Vec<&str> = query
        .all("ports")
        .iter()
        .flat_map(|value| value.split(','))
        .collect();
    for port in &ports {
        port.parse::<i32>().map_err(|_| not_a_number(port))?;
    }
    Ok(match ports.is_empty() {
        true => Vec::new(),
        false => vec![("port", ports.join(","))],
    })
}

fn not_a_number(text: &str) -> ApiError {
    ApiError::bad_request(format!(
        "strconv.ParseInt: parsing {text:?}: invalid syntax"
    ))
}

fn log_options(query: &Query) -> Result<Options> {
    let flag = |name: &'static str| query.flag(name).then(|| (name, "true".to_owned()));
    let number = |name: &'static str| -> Result<Option<(&'static str, String)>> {
        Ok(query.number::<i64>(name)?.map(|n| (name, n.to_string())))
    };
    let since = query.get("sinceTime").map(|text| {
        let time: jiff::Timestamp = text.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
            ))
        })?;
        Ok::<_, ApiError>(("sinceTime", time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
    });
    let all = [
        flag("follow"),
        number("limitBytes")?,
        flag("previous"),
        number("sinceSeconds")?,
        since.transpose()?,
        number("tailLines")?,
        flag("timestamps"),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Says what is wrong with the options of a log, if anything is.
pub(super) fn check_log_options(name: &str, query: &Query) -> Result<()> {
    let mut errors = Errors::default();
    let least = [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
    ];
    for (field, least, detail) in least {
        check_least(query, field, least, detail, &mut errors)?;
    }
    if query.get("sinceSeconds").is_some() && query.get("sinceTime").is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.forbidden(&Path::root(""), detail);
    } else {
        check_least(
            query,
            "sinceSeconds",
            1,
            "must be greater than 0",
            &mut errors,
        )?;
    }
    if query.has("stream") {
        errors.forbidden(&Path::root("stream"), "may not be specified");
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid("", "PodLogOptions", name, &errors)),
    }
}

fn check_least(
    query: &Query,
    field: &str,
    least: i64,
    detail: &str,
    errors: &mut Errors,
) -> Result<()> {
    if let Some(found) = query.number::<i64>(field)?.filter(|found| *found < least) {
        errors.invalid(&Path::root(field), &json!(found), detail);
    }
    Ok(())
}

// Go's `url.QueryEscape`.
fn encode(options: &Options) -> String {
    let escape = |text: &str| -> String {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            b' ' => "+".to_owned(),
            other => format!("%{other:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    let pairs = options
        .iter()
        .map(|(name, value)| format!("{name}={}", escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pod(names: &[&str]) -> Value {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"metadata": {"name": "p", "namespace": "n"},
               "spec": {"containers": containers, "initContainers": [{"name": "init"}]}})
    }

    #[test]
    fn streams_become_the_kubelets_paths() {
        let cases = [
            (
                "exec",
                "command=sh&command=-c&command=echo%20a%26b&stdout=true&stdin=0&tty=1",
                "/exec/n/p/main?command=sh&command=-c&command=echo+a%26b&output=1&tty=1",
            ),
            (
                "exec",
                "container=init&stdin=true&stderr=true&command=x",
                "/exec/n/p/init?command=x&error=1&input=1",
            ),
            (
                "attach",
                "stdout=1&command=ignored",
                "/attach/n/p/main?output=1",
            ),
            ("portforward", "", "/portForward/n/p"),
            (
                "portforward",
                "ports=80,81&ports=82",
                "/portForward/n/p?port=80%2C81%2C82",
            ),
            ("log", "", "/containerLogs/n/p/main"),
            (
                "log",
                "follow=true&tailLines=5&timestamps=1&previous=false&sinceSeconds=9&limitBytes=7",
                "/containerLogs/n/p/main?follow=true&limitBytes=7&sinceSeconds=9&tailLines=5&timestamps=true",
            ),
            (
                "log",
                "sinceTime=2026-11-16T03%3A00%3A00%2B01%3A00",
                "/containerLogs/n/p/main?sinceTime=2026-11-16T02%3A00%3A00Z",
            ),
        ];
        for (subresource, query, wanted) in cases {
            let found = path(subresource, &pod(&["main"]), &Query::parse(Some(query))).unwrap();
            assert_eq!(found, wanted, "{subresource}?{query}");
        }
    }

    #[test]
    fn a_container_must_be_clear() {
        let complaint = |names: &[&str], asked| container(&pod(names), asked).unwrap_err().message;
        assert_eq!(
            complaint(&["a", "b"], None),
            "a container name must be specified for pod p, choose one of: [init a b]"
        );
        assert_eq!(
            complaint(&["a"], Some("z")),
            "container z is not valid for pod p"
        );
        assert_eq!(
            complaint(&[], None),
            "a container name must be specified for pod p"
        );
        assert_eq!(container(&pod(&["a", "b"]), Some("b")).unwrap(), "b");
    }

    #[test]
    fn log_options_are_checked_in_upstreams_words() {
        let check = |query: &str| check_log_options("p", &Query::parse(Some(query)));
        let cases = [
            (
                "tailLines=-1",
                422,
                "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                "limitBytes=0",
                422,
                "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=0",
                422,
                "PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                "sinceSeconds=1&sinceTime=2026-11-16T03:00:00Z",
                422,
                "PodLogOptions \"p\" is invalid: : Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            (
                "tailLines=x",
                400,
                "strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
        ];
        for (query, code, message) in cases {
            let error = check(query).unwrap_err();
            assert_eq!(
                (error.code.as_u16(), &*error.message),
                (code, message),
                "{query}"
            );
        }
        assert!(check("tailLines=0&follow=true").is_ok());
    }
}
