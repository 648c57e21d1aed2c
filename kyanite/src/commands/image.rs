//! `kyanite image`: images without a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use images::archive::{self, Archive, Settings};
use images::built_in::BuiltIn;
use images::{Layer, LayerError};
use machines::State;
use serde_json::json;

use super::machine;
use crate::cli::image::{ContainerdOf, ImageBuild, ImageCommand};
use crate::exit::{Code, Failure, Result};
use crate::printer::{Printer, table};

/// Runs an image command.
pub(super) fn run(command: ImageCommand, printer: &Printer) -> Result<()> {
    match command {
        ImageCommand::Build(build) => make(&build, printer),
        ImageCommand::Load { file, node } => load(&file, &node, printer),
        ImageCommand::List {
            file: Some(file), ..
        } => list_file(&file, printer),
        ImageCommand::List { file: None, node } => list(&node, printer),
    }
}

fn make(build: &ImageBuild, printer: &Printer) -> Result<()> {
    let image = match (build.pause, build.demo) {
        (true, _) => ours(BuiltIn::Pause, build)?,
        (_, Some(version)) => ours(BuiltIn::Demo(version), build)?,
        _ => assemble(build)?,
    };
    fs::write(&build.to, &image.bytes).map_err(|e| Failure::file("write", &build.to, &e))?;
    let text = format!(
        "{} is {} in {} ({} KiB); load it with `kyanite image load {}`",
        image.names.join(", "),
        image.digest,
        build.to.display(),
        image.bytes.len() / 1024,
        build.to.display()
    );
    let value = json!({"names": image.names, "digest": image.digest, "bytes": image.bytes.len()});
    printer.result(&text, &value);
    Ok(())
}

// Our other programs lie beside this one.
fn ours(which: BuiltIn, build: &ImageBuild) -> Result<Archive> {
    let own = std::env::current_exe()
        .map_err(|e| Failure::new(Code::Failure, format!("cannot find this program: {e}")))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    which.build(beside, &build.names).map_err(|error| {
        let hint = format!(
            "`{}` belongs beside `{}`; `cargo build --package images` makes it",
            which.program(),
            own.display()
        );
        Failure::from(error).hint(hint)
    })
}

fn assemble(build: &ImageBuild) -> Result<Archive> {
    if build.programs.is_empty() && build.directories.is_empty() {
        let message = "an image needs a --program or a --directory";
        return Err(Failure::new(Code::Usage, message));
    }
    let mut layer = Layer::default();
    layer.add_directory("/tmp", 0o1777);
    for text in &build.directories {
        let (directory, at) = placed(text).unwrap_or((text.into(), "/".to_owned()));
        layer.add_tree(&directory, &at)?;
    }
    let mut first = None;
    for text in &build.programs {
        let (file, at) = placed(text).unwrap_or_else(|| at_root(text));
        layer.add_program(&file, &at)?;
        first.get_or_insert(at);
    }
    let mut settings = Settings {
        entrypoint: build.entrypoint.clone(),
        cmd: build.arguments.clone(),
        env: build.environment.clone(),
        user: build.user.clone(),
        working_dir: build.working_directory.clone(),
        ..Settings::default()
    };
    if settings.entrypoint.is_empty() {
        settings.entrypoint.extend(first);
    }
    build.ports.iter().for_each(|port| settings.expose(port));
    let layers = [layer.to_tar()];
    Ok(archive::build(&build.names, &settings, &layers))
}

// `FILE:/PATH`
fn placed(text: &str) -> Option<(PathBuf, String)> {
    let (file, at) = text.split_once(":/")?;
    Some((file.into(), format!("/{at}")))
}

fn at_root(text: &str) -> (PathBuf, String) {
    let file = PathBuf::from(text);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let at = format!("/{name}");
    (file, at)
}

/// One containerd, and how its client is run.
struct Client {
    name: String,
    command: Command,
}

fn clients(node: &ContainerdOf, arguments: &[&str]) -> Result<Vec<Client>> {
    let own = ["--namespace", node.namespace.as_str()];
    let words = || own.iter().chain(arguments).map(|word| (*word).to_owned());
    if let Some(address) = &node.address {
        let mut command = Command::new(&node.ctr);
        command.arg("--address").arg(address).args(words());
        return Ok(vec![Client {
            name: address.display().to_string(),
            command,
        }]);
    }
    let driver = machine::driver(&node.place)?;
    let mut names = node.machines.clone();
    if names.is_empty() {
        let all = driver.list()?;
        let running = all.into_iter().filter(|m| m.state == State::Running);
        names.extend(running.map(|machine| machine.name));
    }
    if names.is_empty() {
        let hint = "start one with `kyanite machine boot`, or name a containerd with --address";
        return Err(Failure::new(Code::NotFound, "no machine runs here").hint(hint));
    }
    let client = |name: String| -> Result<Client> {
        let program = std::iter::once(node.ctr.clone()).chain(words());
        let command = driver.command(&name, program)?;
        Ok(Client { name, command })
    };
    names.into_iter().map(client).collect()
}

fn load(file: &Path, node: &ContainerdOf, printer: &Printer) -> Result<()> {
    let bytes = fs::read(file).map_err(|e| Failure::file("read", file, &e))?;
    let names: Vec<String> = archive::contents(&bytes).into_iter().map(|i| i.0).collect();
    if names.is_empty() {
        let message = format!("`{}` is not a file of images", file.display());
        return Err(Failure::new(Code::Usage, message));
    }
    let mut loaded = Vec::new();
    for mut client in clients(node, &["images", "import", "-"])? {
        let input = fs::File::open(file).map_err(|e| Failure::file("read", file, &e))?;
        client.command.stdin(Stdio::from(input));
        output(&mut client)?;
        loaded.push(client.name);
    }
    let text = format!("{} loaded into {}", names.join(", "), loaded.join(", "));
    printer.result(&text, &json!({"names": names, "loaded": loaded}));
    Ok(())
}

fn output(client: &mut Client) -> Result<String> {
    let name = &client.name;
    let hint = "is containerd running there, and its client on the PATH (--ctr)?";
    let failed = |why: String| {
        let message = format!("containerd's client failed on {name}: {why}");
        Failure::new(Code::Unavailable, message).hint(hint)
    };
    let output = client.command.stderr(Stdio::piped()).output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

fn list(node: &ContainerdOf, printer: &Printer) -> Result<()> {
    let mut rows = Vec::new();
    for mut client in clients(node, &["images", "list", "--quiet"])? {
        let listed = output(&mut client)?;
        let images = listed.lines().filter(|line| !line.starts_with("sha256:"));
        rows.extend(images.map(|image| vec![client.name.clone(), image.to_owned()]));
    }
    let value: Vec<_> = rows
        .iter()
        .map(|row| json!({"node": row[0], "image": row[1]}))
        .collect();
    printer.result(&table(&["NODE", "IMAGE"], rows), &json!(value));
    Ok(())
}

fn list_file(file: &Path, printer: &Printer) -> Result<()> {
    let bytes = fs::read(file).map_err(|e| Failure::file("read", file, &e))?;
    let images = archive::contents(&bytes);
    let value: Vec<_> = images
        .iter()
        .map(|(name, digest)| json!({"image": name, "digest": digest}))
        .collect();
    let rows = images.into_iter().map(|(name, digest)| vec![name, digest]);
    printer.result(&table(&["IMAGE", "DIGEST"], rows), &json!(value));
    Ok(())
}

impl From<LayerError> for Failure {
    fn from(error: LayerError) -> Failure {
        match &error {
            LayerError::Read { path, source } => Failure::file("read", path, source),
            LayerError::Write { path, source } => Failure::file("write", path, source),
            LayerError::Program(_) => Failure::new(Code::Usage, error.to_string()),
        }
    }
}
