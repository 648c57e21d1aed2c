//! What Azure's agent does in a machine: commands and extensions. They run as root, in the machine.

use ::cloud::{Done, Order, Task, Trouble};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machines::Namespaces;
use serde_json::{Value, json};

use super::vms::blocking;
use super::{digest, last};

/// The most that a program may print into its result, as Azure has it.
const LONGEST: usize = 4096;
/// Where the script extension keeps what it loads, by the path that people and scripts look at.
const SCRIPTS: &str = "/var/lib/waagent/custom-script/download/0";
/// The script extension, by its names.
const SCRIPT_TYPES: [(&str, &str); 2] = [
    ("microsoft.azure.extensions", "customscript"),
    ("microsoft.ostcextensions", "customscriptforlinux"),
];
/// The agent begins when the machine is up; a machine that does not come up is not waited for without end.
const WHEN_UP: &str = "for i in $(seq 600); do systemctl -q is-active multi-user.target 2>/dev/null && break; \
    sleep 0.1; done; ";

/// A script to be run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Script {
    text: String,
    directory: &'static str,
    variables: Vec<String>,
    arguments: Vec<String>,
}

/// What came of a script.
#[derive(Debug, Default)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    /// In the words of Azure's agent.
    fn message(&self) -> String {
        let title = match self.code {
            0 => "Enable succeeded: ".to_owned(),
            code => format!(
                "Enable failed: failed to execute command: command terminated with exit status={code}"
            ),
        };
        format!("{title}\n[stdout]\n{}\n[stderr]\n{}", self.out, self.err)
    }
}

fn run(driver: &Namespaces, name: &str, script: &Script) -> Result<Ran, machines::Error> {
    let directory = script.directory;
    let mut words = vec!["/usr/bin/env".to_owned()];
    words.extend(script.variables.iter().cloned());
    let start =
        format!("mkdir -p {directory} && cd {directory} && {WHEN_UP}exec /bin/bash -c \"$@\"");
    words.extend(["/bin/bash", "-c", start.as_str(), "agent"].map(str::to_owned));
    words.extend([script.text.clone(), name.to_owned()]);
    words.extend(script.arguments.iter().cloned());
    let mut command = driver.command(name, words)?;
    let said = |bytes: &[u8]| tail(&String::from_utf8_lossy(bytes));
    Ok(match command.stdin(std::process::Stdio::null()).output() {
        Ok(output) => Ran {
            code: output.status.code().unwrap_or(-1),
            out: said(&output.stdout),
            err: said(&output.stderr),
        },
        Err(error) => Ran {
            code: -1,
            err: error.to_string(),
            ..Ran::default()
        },
    })
}

fn tail(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(LONGEST);
    text.chars().skip(skipped).collect()
}

/// `runCommand`: a script, and what it printed.
pub(super) fn command(driver: &Namespaces, name: &str, input: &Value) -> Done {
    let lines = input["script"].as_array().into_iter().flatten();
    let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
    let script = Script {
        text: lines.join("\n"),
        directory: "/var/lib/waagent/run-command/download/0",
        ..with_parameters(&[&input["parameters"]])
    };
    let ran = run(driver, name, &script).unwrap_or_else(|error| Ran {
        code: -1,
        err: error.to_string(),
        ..Ran::default()
    });
    Done {
        output: json!({"value": [{"code": "ProvisioningState/succeeded", "level": "Info",
            "displayStatus": "Provisioning succeeded", "message": ran.message()}]}),
        ..Done::default()
    }
}

// Parameters are both arguments in their order and variables by their names.
fn with_parameters(lists: &[&Value]) -> Script {
    let all: Vec<&Value> = lists
        .iter()
        .flat_map(|list| list.as_array().into_iter().flatten())
        .collect();
    let text =
        |parameter: &Value, field: &str| parameter[field].as_str().unwrap_or_default().to_owned();
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(fits)
    };
    Script {
        arguments: all.iter().map(|one| text(one, "value")).collect(),
        variables: all
            .iter()
            .filter(|one| is_name(&text(one, "name")))
            .map(|one| format!("{}={}", text(one, "name"), text(one, "value")))
            .collect(),
        ..Script::default()
    }
}

/// Carries out an order for an extension or a command that is kept: runs it once, however often it is ordered.
pub(super) async fn carry_out(driver: Option<Namespaces>, order: &Order) -> Result<Done, Trouble> {
    let properties = &order.body["properties"];
    let asked = digest(
        &json!([
            properties["settings"],
            properties["forceUpdateTag"],
            properties["type"],
            properties["source"],
            properties["parameters"],
            order.hidden["protectedSettings"],
            order.hidden["protectedParameters"]
        ])
        .to_string(),
    );
    if order.task != Task::Bring || order.hidden["ran"] == asked.as_str() {
        return Ok(Done::default());
    }
    let (Some(driver), Some(node)) = (driver, order.nodes.first()) else {
        let message = "the machine does not run";
        return Err(Trouble::new("OperationNotAllowed", message));
    };
    let is_extension = order.kind.ends_with("/extensions");
    let script = match is_extension {
        true => script_of_extension(order)?,
        false => script_of_command(order),
    };
    let machine = node.name.clone();
    let began = jiff::Timestamp::now();
    let ran = blocking(move || run(&driver, &machine, &script)).await?;
    let mut done = match is_extension {
        true => extension_ran(order, &ran),
        false => command_ran(&ran, began),
    };
    done.hidden["ran"] = json!(asked);
    Ok(done)
}

fn script_of_extension(order: &Order) -> Result<Script, Trouble> {
    let properties = &order.body["properties"];
    let lower = |field: &str| {
        properties[field]
            .as_str()
            .unwrap_or_default()
            .to_lowercase()
    };
    let (publisher, kind) = (lower("publisher"), lower("type"));
    if !SCRIPT_TYPES.contains(&(publisher.as_str(), kind.as_str())) {
        return Err(Trouble::new(
            "VMExtensionHandlerNonTransientError",
            format!(
                "The handler of extension '{}' (publisher '{publisher}' and type '{kind}') cannot be had here: of \
                 extensions only Microsoft.Azure.Extensions CustomScript runs.",
                last(&order.id)
            ),
        ));
    }
    let setting = |field: &str| {
        let found = [
            &order.hidden["protectedSettings"][field],
            &properties["settings"][field],
        ];
        found
            .into_iter()
            .find(|value| !value.is_null())
            .cloned()
            .unwrap_or_default()
    };
    let script = setting("script");
    let script = script.as_str().map(|text| STANDARD.decode(text));
    let script = match script {
        Some(Ok(bytes)) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Some(Err(error)) => {
            let message = format!("Enable failed: failed to decode script: {error}");
            return Err(Trouble::new("VMExtensionProvisioningError", message));
        }
        None => None,
    };
    let command = setting("commandToExecute").as_str().map(str::to_owned);
    let text = command.or(script).ok_or_else(|| {
        let message = "Enable failed: failed to get configuration: invalid configuration: 'commandToExecute' is not specified";
        Trouble::new("VMExtensionProvisioningError", message)
    })?;
    Ok(Script {
        text: format!("{}{text}", downloads(&setting("fileUris"))),
        directory: SCRIPTS,
        ..Script::default()
    })
}

// Files are loaded by the machine itself, as far as its network reaches.
fn downloads(addresses: &Value) -> String {
    let addresses = addresses
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let quoted = addresses.map(|address| address.replace('\'', r"'\''"));
    let line = |address: String| {
        format!(
            "curl -fsSLO --retry 3 -m 300 '{address}' || {{ echo \"failed to download file: {address}\" >&2; exit 1; }}\n"
        )
    };
    quoted.map(line).collect()
}

fn extension_ran(order: &Order, ran: &Ran) -> Done {
    let properties = &order.body["properties"];
    let text = |field: &str| properties[field].as_str().unwrap_or_default();
    let (code, level, title) = match ran.code {
        0 => (
            "ProvisioningState/succeeded".to_owned(),
            "Info",
            "Provisioning succeeded",
        ),
        code => (
            format!("ProvisioningState/failed/{code}"),
            "Error",
            "Provisioning failed",
        ),
    };
    let message = ran.message();
    let view = json!({"name": last(&order.id), "type": format!("{}.{}", text("publisher"), text("type")),
        "typeHandlerVersion": text("typeHandlerVersion"), "statuses": [{"code": code, "level": level,
        "displayStatus": title, "message": message, "time": jiff::Timestamp::now().to_string()}]});
    let failed = format!(
        "VM has reported a failure when processing extension '{}' (publisher '{}' and type '{}'). Error message: \
         '{message}'.",
        last(&order.id),
        text("publisher"),
        text("type")
    );
    let error = json!({"code": "VMExtensionProvisioningError", "message": failed});
    Done {
        body: match ran.code {
            0 => Value::Null,
            _ => {
                json!({"properties": {"provisioningState": "Failed", "status": {"provisioningError": error}}})
            }
        },
        hidden: json!({ "view": view }),
        ..Done::default()
    }
}

fn script_of_command(order: &Order) -> Script {
    let properties = &order.body["properties"];
    let parameters = [
        &properties["parameters"],
        &order.hidden["protectedParameters"],
    ];
    Script {
        text: properties["source"]["script"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        directory: "/var/lib/waagent/run-command-handler/download/0",
        ..with_parameters(&parameters)
    }
}

fn command_ran(ran: &Ran, began: jiff::Timestamp) -> Done {
    let state = if ran.code == 0 { "Succeeded" } else { "Failed" };
    Done {
        hidden: json!({"view": {"executionState": state, "executionMessage": "Execution completed",
            "exitCode": ran.code, "output": ran.out, "error": ran.err, "startTime": began.to_string(),
            "endTime": jiff::Timestamp::now().to_string(), "statuses": []}}),
        ..Done::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(body: Value, hidden: Value) -> Order {
        Order {
            id: "/x/extensions/e".to_owned(),
            kind: "Microsoft.Compute/virtualMachines/extensions",
            task: Task::Bring,
            body: json!({ "properties": body }),
            hidden,
            nodes: Vec::new(),
            disks: Vec::new(),
        }
    }

    #[test]
    fn the_script_of_an_extension_is_its_command_or_its_script() {
        let named = |settings: Value| json!({"publisher": "Microsoft.Azure.Extensions", "type": "CustomScript", "settings": settings});
        let protected = json!({"protectedSettings": {"commandToExecute": "secret"}});
        for (body, hidden, expected) in [
            (
                named(json!({"commandToExecute": "a"})),
                json!({}),
                Some("a"),
            ),
            (
                named(json!({"script": "ZWNobyBoaQ=="})),
                json!({}),
                Some("echo hi"),
            ),
            (
                named(json!({"commandToExecute": "a"})),
                protected,
                Some("secret"),
            ),
            (named(json!({"script": "?"})), json!({}), None),
            (named(json!({})), json!({}), None),
            (
                json!({"publisher": "P", "type": "T", "settings": {"commandToExecute": "a"}}),
                json!({}),
                None,
            ),
        ] {
            let script = script_of_extension(&extension(body, hidden));
            assert_eq!(script.ok().map(|s| s.text).as_deref(), expected);
        }
    }

    #[test]
    fn what_a_script_came_to_is_said_as_azure_says_it() {
        let ran = Ran {
            code: 7,
            out: "o".to_owned(),
            err: "e".to_owned(),
        };
        let message = "Enable failed: failed to execute command: command terminated with exit status=7\n[stdout]\no\n\
            [stderr]\ne";
        assert_eq!(ran.message(), message);
        let done = extension_ran(&extension(json!({}), json!({})), &ran);
        let status = &done.hidden["view"]["statuses"][0];
        assert_eq!(
            (&status["code"], &status["message"]),
            (&json!("ProvisioningState/failed/7"), &json!(message))
        );
        assert_eq!(done.body["properties"]["provisioningState"], "Failed");
        assert!(tail(&"x".repeat(9000)).len() == LONGEST);
    }

    #[test]
    fn parameters_are_arguments_and_variables() {
        let script = with_parameters(&[
            &json!([{"name": "a", "value": "1"}, {"name": "b-c", "value": "2"}]),
            &Value::Null,
        ]);
        assert_eq!(script.arguments, ["1", "2"]);
        assert_eq!(script.variables, ["a=1"]);
    }
}
