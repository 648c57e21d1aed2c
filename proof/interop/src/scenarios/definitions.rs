//! The same random definitions and objects given to two servers: the same are taken, the same causes are named for those
//! that are not, and the same objects come back.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Plan};
use crate::kubectl::{Kubectl, output};
use crate::table::Sides;
use crate::wait::eventually;

/// How many definitions, each with as many objects; how many at once.
const DEFINITIONS: u64 = 400;
const OBJECTS: u64 = 5;
const BATCH: u64 = 50;
/// So many differences are shown.
const SHOWN: usize = 40;
const GROUP: &str = "random.example.com";

pub(crate) fn run(cluster: &mut Cluster<'_>, (_, other): Sides) -> Result<()> {
    let dir = cluster.dir.join("other");
    std::fs::create_dir(&dir)?;
    let mut second = Cluster::start(Plan::server(other), cluster.programs, &dir)?;
    let servers = [&cluster.kubectl, &second.kubectl];
    let mut differences = Vec::new();
    for start in (0..DEFINITIONS).step_by(BATCH as usize) {
        let numbers = start..start + BATCH;
        let definitions: Vec<Value> = numbers.clone().map(definition).collect();
        let taken = compare(&servers, &definitions, &mut differences)?;
        for kubectl in servers {
            established(kubectl, taken.len())?;
        }
        let objects: Vec<Value> = numbers
            .filter(|n| taken.contains(&crd_name(*n)))
            .flat_map(objects)
            .collect();
        compare(&servers, &objects, &mut differences)?;
        let [ours, theirs] = servers.map(|kubectl| stored(kubectl, &taken));
        let (ours, theirs) = (ours?, theirs?);
        for (name, object) in &ours {
            if theirs.get(name) != Some(object) {
                differences.push(format!("{name}: {object} / {:?}", theirs.get(name)));
            }
        }
        for kubectl in servers {
            kubectl.run("delete crd --all --timeout=300s")?;
        }
    }
    second.check()?;
    if differences.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = differences.iter().take(SHOWN).map(String::as_str).collect();
    bail!("{} differences:\n{}", differences.len(), shown.join("\n"))
}

// Gives the names of those that both have taken.
fn compare(
    servers: &[&Kubectl; 2],
    objects: &[Value],
    differences: &mut Vec<String>,
) -> Result<Vec<String>> {
    let outcomes = servers.map(|kubectl| outcomes(kubectl, objects));
    let [ours, theirs] = outcomes;
    let (ours, theirs) = (ours?, theirs?);
    let mut taken = Vec::new();
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let (mine, other) = (ours.get(name), theirs.get(name));
        if mine != other {
            differences.push(format!("{name}: {mine:?} / {other:?}, of {object}"));
        } else if mine.is_none() {
            taken.push(name.to_owned());
        }
    }
    Ok(taken)
}

// What was said against each object, by name. kubectl goes on after one that is refused.
fn outcomes(kubectl: &Kubectl, objects: &[Value]) -> Result<BTreeMap<String, Vec<String>>> {
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    let mut command = kubectl.command()?;
    command.args(["create", "--validate=ignore", "-f", "-"]);
    let output = output(&mut command, &documents.join("\n---\n"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut found = BTreeMap::new();
    // A message may have lines of its own.
    for message in said
        .split("\nError from server")
        .filter(|m| m.contains("error when creating"))
    {
        let message = message.trim();
        let named = objects.iter().find_map(|object| {
            let name = object["metadata"]["name"].as_str()?;
            message.contains(&format!("\"{name}\"")).then_some(name)
        });
        let causes = message
            .split_once(" is invalid: ")
            .map_or(message, |(_, causes)| causes);
        let causes = &in_common(causes);
        // In whichever order they are told.
        let mut causes: Vec<String> = causes
            .trim_matches(['[', ']'])
            .split(", ")
            .map(str::to_owned)
            .collect();
        causes.sort();
        found.insert(named.unwrap_or(message).to_owned(), causes);
    }
    Ok(found)
}

// Upstream numbers its types by the time, and names the place in a pattern in words of Go's.
fn in_common(causes: &str) -> String {
    let mut said = String::with_capacity(causes.len());
    let mut parts = causes.split("selfType");
    said.push_str(parts.next().unwrap_or_default());
    for part in parts {
        said.push_str("selfType");
        said.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    let pattern = "must be a valid regular expression, but isn't:";
    match said.find(pattern) {
        Some(at) => said[..at + pattern.len()].to_owned(),
        None => said,
    }
}

fn established(kubectl: &Kubectl, number: usize) -> Result<()> {
    eventually("every definition is established", || {
        let said = kubectl.run(
            "get crd -o jsonpath={.items[*].status.conditions[?(@.type==\"Established\")].status}",
        )?;
        let done = said
            .split_whitespace()
            .filter(|status| *status == "True")
            .count();
        anyhow::ensure!(done >= number, "{done} of {number}");
        Ok(())
    })
}

// Everything but what every server says in its own way.
fn stored(kubectl: &Kubectl, taken: &[String]) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    if taken.is_empty() {
        return Ok(all);
    }
    let list = kubectl.json(&format!("get {} -A", taken.join(",")))?;
    for item in list["items"].as_array().into_iter().flatten() {
        let mut item = item.clone();
        let name = item["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        item["metadata"] = json!({"labels": item["metadata"]["labels"], "generation": item["metadata"]["generation"]});
        all.insert(name, item);
    }
    Ok(all)
}

/// Numbers that follow from a seed (splitmix64): the same for both servers, and for whoever looks into a difference.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len() as u64) as usize]
    }
}

fn crd_name(number: u64) -> String {
    format!("r{number}s.{GROUP}")
}

fn definition(number: u64) -> Value {
    let spec = schema(&mut Random(number), 3);
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": crd_name(number)},
        "spec": {"group": GROUP, "scope": "Cluster",
            "names": {"plural": format!("r{number}s"), "singular": format!("r{number}"), "kind": format!("R{number}")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

// Mostly in order; one in thirty nodes has something that is not.
fn schema(random: &mut Random, depth: u32) -> Value {
    let mut schema = match random.below(if depth == 0 { 6 } else { 10 }) {
        0 => json!({"type": "integer", "minimum": random.below(5), "maximum": 5 + random.below(5)}),
        1 => json!({"type": "number", "multipleOf": 0.5}),
        2 => json!({"type": "boolean"}),
        3 => json!({"type": "string", "enum": ["a", "b", "c"]}),
        4 => json!({"x-kubernetes-int-or-string": true}),
        5 => json!({"type": "string", "maxLength": 1 + random.below(6), "pattern": "^[a-c]*$"}),
        6 => {
            json!({"type": "array", "items": schema(random, depth - 1), "maxItems": random.below(4)})
        }
        7 => {
            json!({"type": "object", "additionalProperties": schema(random, depth - 1), "maxProperties": 3})
        }
        _ => {
            let properties =
                (0..1 + random.below(4)).map(|n| (format!("f{n}"), schema(random, depth - 1)));
            let properties: Map<String, Value> = properties.collect();
            let mut object = json!({"type": "object", "properties": properties});
            if random.one_in(3) {
                object["required"] = json!([format!("f{}", random.below(4))]);
            }
            if random.one_in(6) {
                object["x-kubernetes-preserve-unknown-fields"] = true.into();
            }
            object
        }
    };
    if random.one_in(8) {
        schema["nullable"] = true.into();
    }
    if random.one_in(8) {
        schema["default"] = value(random, &schema.clone(), 12);
    }
    if random.one_in(10) {
        let rules = [
            "self == self",
            "size(self) < 3",
            "self.f0 == oldSelf.f0",
            "self > 2",
            "self.all(x, true)",
            "self.nope",
        ];
        schema["x-kubernetes-validations"] = json!([{"rule": random.pick(&rules)}]);
    }
    if random.one_in(30) {
        let odd = [
            json!({"type": "strange"}),
            json!({"uniqueItems": true}),
            json!({"allOf": [{"type": "string"}]}),
            json!({"x-kubernetes-list-type": "set"}),
            json!({"x-kubernetes-preserve-unknown-fields": false}),
            json!({"anyOf": [{"properties": {"hidden": {"minLength": 1}}}]}),
            json!({"pattern": "("}),
        ];
        if let (Some(schema), Value::Object(odd)) =
            (schema.as_object_mut(), random.pick(&odd).clone())
        {
            schema.extend(odd);
        }
    }
    schema
}

fn objects(number: u64) -> Vec<Value> {
    let definition = definition(number);
    let spec =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let one = |n: u64| {
        let mut random = Random(number * 1000 + n);
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": format!("R{number}"),
            "metadata": {"name": format!("o{number}-{n}")}, "spec": value(&mut random, spec, 8)})
    };
    (0..OBJECTS).map(one).collect()
}

// A value that mostly fits; the larger `odds`, the more.
fn value(random: &mut Random, schema: &Value, odds: u64) -> Value {
    if random.one_in(odds) {
        let odd = [
            json!(null),
            json!("zzzzzzzz"),
            json!(-7),
            json!(0.25),
            json!(true),
            json!([]),
            json!({}),
            json!({"x": 1}),
        ];
        return random.pick(&odd).clone();
    }
    match schema["type"].as_str() {
        Some("integer") => (random.below(11)).into(),
        Some("number") => json!(random.below(8) as f64 / 2.0),
        Some("boolean") => random.one_in(2).into(),
        Some("string") => (*random.pick(&["", "a", "b", "abc", "cccc"])).into(),
        Some("array") => {
            let items = (0..random.below(4)).map(|_| value(random, &schema["items"], odds));
            items.collect()
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            let entries = (0..random.below(4)).map(|n| {
                (
                    format!("k{n}"),
                    value(random, &schema["additionalProperties"], odds),
                )
            });
            Value::Object(entries.collect())
        }
        Some("object") => {
            let mut object = Map::new();
            for (name, below) in schema["properties"].as_object().into_iter().flatten() {
                if !random.one_in(4) {
                    object.insert(name.clone(), value(random, below, odds));
                }
            }
            Value::Object(object)
        }
        _ => random.pick(&[json!(3), json!("3")]).clone(),
    }
}
