//! What becomes of each configuration in `tests/golden`: its problems, what is left out, what the scripts are told,
//! and what a machine is sent. `KYANITE_BLESS=1 cargo test -p bootstrap --test golden` writes the answers anew;
//! read the difference before you keep it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_controller::config::{self, Configuration};
use node_controller::custom_data::{Form, custom_data, marshal};
use node_controller::environment::containerd::Layout;
use node_controller::environment::gpu::DriverImages;
use node_controller::environment::{Host, variables};
use node_controller::validate::validate;

const COMPONENTS: &str = r#"{"GPUContainerImages": [
    {"downloadURL": "mcr.microsoft.com/aks/aks-gpu-cuda-lts:*", "gpuVersion": {"latestVersion": "580.1-20260101"}},
    {"downloadURL": "mcr.microsoft.com/aks/aks-gpu-cuda:*", "gpuVersion": {"latestVersion": "570.2-20260102"}},
    {"downloadURL": "mcr.microsoft.com/aks/aks-gpu-grid:*", "gpuVersion": {"latestVersion": "550.3-20260103"}},
    {"downloadURL": "mcr.microsoft.com/aks/aks-gpu-grid-v20:*", "gpuVersion": {"latestVersion": "595.4-20260104"}}]}"#;

#[test]
fn every_configuration_becomes_what_it_became_before() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = std::fs::read_dir(directory).unwrap();
    let mut configs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    configs.retain(|path| path.extension() == Some("json".as_ref()));
    configs.sort();
    assert!(configs.len() >= 30);
    let bless = std::env::var_os("KYANITE_BLESS").is_some();
    for path in configs {
        let answer = answer(&std::fs::read(&path).unwrap());
        let kept = path.with_extension("out");
        if bless {
            std::fs::write(&kept, &answer).unwrap();
        }
        let expected = std::fs::read_to_string(&kept).unwrap_or_default();
        assert!(answer == expected, "{}: now\n{answer}", kept.display());
    }
}

fn answer(text: &[u8]) -> String {
    let mut out = String::from("problems\n");
    for problem in validate(text) {
        let place = problem
            .place
            .map(|(line, column)| format!(" {line}:{column}"));
        let place = place.unwrap_or_default();
        let (severity, path, value) = (problem.severity, problem.path, problem.value);
        writeln!(
            out,
            "  {severity:?}{place} {path} {value}\n    {}\n    {}",
            problem.rule, problem.remedy
        )
        .unwrap();
    }
    match config::read(text) {
        Err(unusable) => writeln!(out, "unusable\n  {unusable}").unwrap(),
        Ok(accepted) => {
            for notice in accepted.notices {
                writeln!(out, "notice\n  {notice}").unwrap();
            }
            let config = accepted.configuration;
            let canonical = marshal(&config);
            if as_value(canonical.as_bytes()) != as_value(text) {
                writeln!(out, "configuration\n{canonical}").unwrap();
            }
            sections(&mut out, &config);
        }
    }
    out
}

fn as_value(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).unwrap()
}

fn sections(out: &mut String, config: &Configuration) {
    environment(out, config, Layout::V1, "");
    environment(out, config, Layout::V2, "CONTAINERD_CONFIG");
    let data = custom_data(config, Form::Boothook).unwrap();
    let data = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
    let features = data
        .lines()
        .skip_while(|line| !line.contains("enabled_features.sh <<"));
    for line in features.take_while(|line| !line.starts_with("umask")) {
        writeln!(out, "boothook: {line}").unwrap();
    }
}

/// The variables that differ from those of the least configuration, with base64 opened.
fn environment(out: &mut String, config: &Configuration, containerd: Layout, only: &str) {
    let drivers = DriverImages::parse(COMPONENTS.as_bytes()).unwrap();
    let host = Host {
        containerd,
        drivers,
    };
    let least = config::read(include_bytes!("golden/least.json")).unwrap();
    let least = variables(&least.configuration, &host);
    writeln!(out, "environment with containerd {containerd:?}").unwrap();
    for variable in variables(config, &host) {
        if least.contains(&variable) || !variable.name.starts_with(only) {
            continue;
        }
        let opened = STANDARD.decode(&variable.value).ok();
        let opened = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        match opened.filter(|text| text.contains('\n')) {
            None => writeln!(out, "  {}={}", variable.name, variable.value).unwrap(),
            Some(text) => {
                writeln!(out, "  {}:", variable.name).unwrap();
                for line in text.lines() {
                    writeln!(out, "    |{line}").unwrap();
                }
            }
        }
    }
}
