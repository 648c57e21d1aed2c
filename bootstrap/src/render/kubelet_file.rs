//! The kubelet's own configuration file: the producer's fields in the contract's order, four
//! spaces deep. The node adds no defaults: the producer sends the final form.

use serde_json::Value;

use super::kubelet::{Serving, kubernetes, serving, tolerates_cgroup_v1};
use super::version::Version;
use crate::config::Configuration;
use crate::config::declare::{Message, View};
use crate::machine::Machine;

/// JSON that keeps the order of its fields.
enum Json {
    Plain(Value),
    List(Vec<String>),
    Object(Vec<(String, Json)>),
}

/// The `KubeletConfiguration` of this node.
pub fn config_file(config: &Configuration, machine: &Machine) -> String {
    let mut file = config.kubelet_config.kubelet_config_file_config.clone();
    if kubernetes(config) >= Version(1, 34, 0) {
        file.streaming_connection_idle_timeout.clear();
    }
    let serving = serving(config, machine);
    if serving == Serving::Rotated {
        file.tls_cert_file.clear();
        file.tls_private_key_file.clear();
    }
    let mut fields = fields(&*file);
    if serving == Serving::ForcedSelfSigned {
        set(&mut fields, "serverTLSBootstrap", false);
    }
    if tolerates_cgroup_v1(config, machine) {
        set(&mut fields, "failCgroupV1", false);
    }
    let mut text = String::new();
    write(&Json::Object(fields), 0, &mut text);
    text + "\n"
}

fn set(fields: &mut Vec<(String, Json)>, name: &str, value: bool) {
    fields.retain(|(field, _)| field != name);
    fields.push((name.to_owned(), Json::Plain(Value::from(value))));
}

fn fields(message: &dyn Message) -> Vec<(String, Json)> {
    let rows = message.rows().iter();
    rows.filter_map(|row| {
        let value = message.value(row.name)?;
        if !value.is_set() {
            return None;
        }
        let name = row.json_name();
        Some((spelled(&name).to_owned(), json(value.view())))
    })
    .collect()
}

/// Three lifetimes have names in the contract that no kubelet knows.
fn spelled(name: &str) -> &str {
    match name {
        "cacheTtl" => "cacheTTL",
        "cacheAuthorizedTtl" => "cacheAuthorizedTTL",
        "cacheUnauthorizedTtl" => "cacheUnauthorizedTTL",
        name => name,
    }
}

fn json(view: View<'_>) -> Json {
    match view {
        View::Absent => Json::Plain(Value::Null),
        View::Text(text) | View::Secret(text) => Json::Plain(Value::from(text)),
        View::Flag(flag) => Json::Plain(Value::from(flag)),
        View::Number(number) => Json::Plain(Value::from(number)),
        View::Real(number) => Json::Plain(Value::from(number)),
        View::Choice(number, name) => {
            Json::Plain(name.map_or_else(|| Value::from(number), Value::from))
        }
        View::Message(message) => Json::Object(fields(message)),
        View::List(items) => Json::List(items.to_vec()),
        View::Map(entries) => Json::Object(
            entries.into_iter().map(|(key, value)| (key.to_owned(), json(value))).collect(),
        ),
    }
}

fn write(json: &Json, depth: usize, out: &mut String) {
    match json {
        Json::Plain(value) => *out += &value.to_string(),
        Json::List(items) => {
            let lines = items.iter().map(|item| Value::from(item.as_str()).to_string()).collect();
            enclosed('[', lines, ']', depth, out);
        }
        Json::Object(fields) => {
            let line = |(name, value): &(String, Json)| {
                let mut line = format!("{}: ", Value::from(name.as_str()));
                write(value, depth + 1, &mut line);
                line
            };
            enclosed('{', fields.iter().map(line).collect(), '}', depth, out);
        }
    }
}

fn enclosed(open: char, lines: Vec<String>, close: char, depth: usize, out: &mut String) {
    out.push(open);
    if !lines.is_empty() {
        let indent = "    ".repeat(depth + 1);
        *out += &format!("\n{indent}{}\n{}", lines.join(&format!(",\n{indent}")), "    ".repeat(depth));
    }
    out.push(close);
}
